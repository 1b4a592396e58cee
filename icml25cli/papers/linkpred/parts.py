"""Training, validation and test pairs in files: a folder of edge lists, or a `.npz` of arrays.

Knows files and ids. Does not know what is right: it reads what was given and merges nothing, so that an audit sees it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.core.files import atomic_path
from icml25cli.core.tables import read_arrays
from icml25cli.papers.linkpred.edge_list import TEXT, in_natural_order, read_parquet, read_text
from icml25cli.papers.linkpred.graph import Graph, unpack_ids
from icml25cli.papers.linkpred.splits import Split, write_split

PARTS = ("train", "valid", "test", "valid_negatives", "test_negatives")
_WORDS = {"train": "train(ing)?", "valid": "val(id|idation)?", "test": "test"}
_FILE = {
    **{part: rf"{word}([_-]?(pos|positives?|edges?))?" for part, word in _WORDS.items()},
    **{f"{part}_negatives": rf"{word}[_-]?neg(s|atives?)?" for part, word in _WORDS.items() if part != "train"},
}


@dataclass(frozen=True, eq=False)
class Parts:
    """Pairs as they were given.

    Attributes:
        ids: names of nodes.
        pairs: by part of ``PARTS``, rows of ``ids``: (k, 2), or for negatives (p, k, 2), each positive's own. Training
            and test are always there.
        metric: what OGB judges by, where the parts are OGB's; else None.
    """

    ids: tuple[str, ...]
    pairs: dict[str, Int64[ndarray, "*k 2"]]
    metric: str | None = None


def read_parts(path: Path) -> Parts:
    """Read a ``.npz`` with arrays of the names in ``PARTS``, as `icml25 linkpred split -o` writes it; or a folder with
    such a ``split.npz``, or with an edge list a part: train.csv, valid.csv, test.csv, valid_neg.csv, test_neg.csv.

    Raises:
        InputError: a part is torn or there twice, differently or by two names, or training or test is missing.
    """
    if path.is_dir() and (path / "split.npz").is_file():
        parts = _npz(path / "split.npz")
        for part, listed in _named_pairs(_folder(path)).items():
            if listed != _named_pairs(parts).get(part):
                raise InputError(
                    f"{path}: the {part.replace('_', ' ')} of split.npz and of its list of edges differ",
                    hint="remove split.npz if the list was edited, else the list",
                )
    else:
        parts = _folder(path) if path.is_dir() else _npz(path)
    for needed in ("train", "test"):
        if needed not in parts.pairs or not parts.pairs[needed].size:
            raise InputError(f"{path} holds no {needed} pairs", hint="train.csv and test.csv, or a .npz, are expected")
    return parts


def _named_pairs(parts: Parts) -> dict[str, list[tuple[str, str]]]:
    """Pairs of each part by the names of their nodes, in an order of their own; not those of each positive's own."""
    return {
        part: sorted((parts.ids[u], parts.ids[v]) for u, v in pairs.tolist())
        for part, pairs in parts.pairs.items()
        if pairs.ndim == 2
    }


def _npz(path: Path) -> Parts:
    arrays = read_arrays(path)
    pairs = {}
    for part in PARTS:
        if part in arrays:
            array = arrays[part]
            shapes = (2, 3) if part.endswith("negatives") else (2,)
            whole = array.dtype.kind in "iu" and array.min(initial=0) >= 0 and array.max(initial=0) < 2**63
            if array.ndim not in shapes or array.shape[-1] != 2 or not whole:
                raise InputError(f"{path}: {part} holds no pairs of nodes", hint="whole numbers of shape (k, 2)")
            pairs[part] = array.astype(np.int64)
    for part in ("valid", "test"):
        own = pairs.get(f"{part}_negatives")
        if own is not None and own.ndim == 3 and len(own) != len(pairs.get(part, ())):
            raise InputError(
                f"{path}: {part} has {len(own)} rows of negatives for {len(pairs.get(part, ()))} edges",
                hint="give a list of pairs that all edges share, or as many for each edge",
            )
    if "ids_utf8" in arrays and "ids_end" in arrays:
        try:
            ids = unpack_ids(arrays)
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: the ids are damaged", hint="write the file again") from error
        most = max((int(array.max(initial=-1)) for array in pairs.values()), default=-1)
        if len(ids) <= most:
            raise InputError(f"{path} names {len(ids)} nodes and has pairs of node {most}", hint="write the file again")
        return Parts(tuple(ids), pairs)
    # Only nodes that are there: a number may be as large as it likes.
    named = np.unique(np.concatenate([np.empty(0, np.int64), *(array.ravel() for array in pairs.values())]))
    rows = {part: np.searchsorted(named, array) for part, array in pairs.items()}
    return Parts(tuple(map(str, named.tolist())), rows)


def _folder(folder: Path) -> Parts:
    ids: dict[str, int] = {}
    pairs = {}
    for part, pattern in _FILE.items():
        kinds = "|".join(map(re.escape, (*TEXT, ".parquet")))
        files = [
            file for file in sorted(folder.iterdir()) if re.fullmatch(rf"{pattern}({kinds})(\.gz)?", file.name.lower())
        ]
        if len(files) > 1:
            raise InputError(f"{folder} holds {files[0].name} and {files[1].name}", hint="keep one file a part")
        if files:
            found = read_parquet(files[0]) if files[0].suffix == ".parquet" else read_text(files[0])
            rows = np.array([ids.setdefault(name, len(ids)) for name in found.ids], dtype=np.int64)
            pairs[part] = rows[found.pairs]
    names = list(ids)
    stacked = np.concatenate([*pairs.values(), np.empty((0, 2), np.int64)])
    names, stacked = in_natural_order(names, stacked)
    ends = np.cumsum([len(array) for array in pairs.values()])[:-1]
    return Parts(tuple(names), dict(zip(pairs, np.split(stacked, ends) if pairs else [], strict=True)))


def write_parts(folder: Path, graph: Graph, split: Split) -> list[str]:
    """Write ``split`` as split.npz, and each part as a CSV of the user's ids; return the names of the files.

    Negatives of each positive's own are in split.npz alone.

    Raises:
        OutputError: a file cannot be written.
    """
    write_split(folder / "split.npz", split, graph.ids)
    names = ["split.npz"]
    ids = np.array(graph.ids, dtype=object)
    parts = {
        "train": split.train,
        "valid": split.valid.positives,
        "test": split.test.positives,
        "valid_neg": split.valid.negatives,
        "test_neg": split.test.negatives,
    }
    for part, pairs in parts.items():
        if pairs.ndim == 2:
            table = pd.DataFrame({"source": ids[pairs[:, 0]], "target": ids[pairs[:, 1]]})
            with atomic_path(folder / f"{part}.csv") as temporary:
                table.to_csv(temporary, index=False)
            names.append(f"{part}.csv")
    return names

"""A folder of the Open Graph Benchmark's link data sets as its downloads unpack; the package itself is not needed.

Knows the layout (Hu et al., NeurIPS 2020). Does not know how parts are evaluated.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icml25cli.core.errors import InputError
from icml25cli.papers.linkpred.graph import Graph, build_graph
from icml25cli.papers.linkpred.parts import Parts

METRICS = {"collab": "hits_at_50", "ppa": "hits_at_100", "ddi": "hits_at_20", "citation2": "mrr"}


def is_ogb(path: Path) -> bool:
    return (path / "raw").is_dir() and (path / "split").is_dir()


def read_ogb(path: Path) -> tuple[Graph, Parts]:
    """The graph of all positive pairs, with attributes and years where they are there, and OGB's own parts.

    Raises:
        InputError: a file is absent, torn or of another form.
    """
    (split,) = sorted(folder for folder in (path / "split").iterdir() if folder.is_dir())[:1] or [path / "split"]
    num_nodes = int(_csv(path / "raw" / "num-node-list.csv.gz").iloc[0, 0])
    stored = {part: _stored(split / f"{part}.pt") for part in ("train", "valid", "test")}
    pairs = {part: _positives(split / f"{part}.pt", found) for part, found in stored.items()}
    for part in ("valid", "test"):
        if "edge_neg" in stored[part]:
            pairs[f"{part}_negatives"] = _pairs(split / f"{part}.pt", stored[part]["edge_neg"])
        elif "target_node_neg" in stored[part]:
            negatives = np.asarray(stored[part]["target_node_neg"])
            sources = np.broadcast_to(np.asarray(stored[part]["source_node"])[:, None], negatives.shape)
            pairs[f"{part}_negatives"] = np.stack([sources, negatives], axis=-1).astype(np.int64)
    for part, array in pairs.items():
        if array.size and not 0 <= array.min() <= array.max() < num_nodes:
            raise InputError(f"{path}: a pair of {part} names node {array.max()} of {num_nodes}", hint="fetch it again")
    features = None
    if (file := path / "raw" / "node-feat.csv.gz").is_file():
        features = _csv(file).to_numpy(np.float32)
    times = None
    if all("year" in found for found in stored.values()):
        times = np.concatenate([np.asarray(found["year"], np.float64).reshape(-1) for found in stored.values()])
    positives = np.concatenate([pairs[part] for part in ("train", "valid", "test")])
    ids = [str(i) for i in range(num_nodes)]
    name = path.name.removeprefix("ogbl_")
    graph = build_graph(name, ids, positives, features=features, times=times)
    metric = METRICS.get(name, "mrr" if pairs.get("test_negatives", positives).ndim == 3 else "hits_at_50")
    return graph, Parts(tuple(ids), pairs, metric)


def _csv(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path, header=None)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint="fetch it again") from error
    except Exception as error:  # of pandas, gzip and zlib
        raise InputError(f"{path} is not a whole table: {error}", hint="fetch it again") from error


def _stored(path: Path) -> dict[str, Any]:
    """What OGB saved: a dict of tensors, or of numpy arrays, whose parts the restricted unpickler has to be told."""
    import torch

    rebuild = np.empty(0).__reduce__()[0]
    admitted: list[Any] = [np.ndarray, np.dtype, *{type(np.dtype(kind)) for kind in ("i8", "i4", "f8", "f4", "u1")}]
    admitted += [(rebuild, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]
    try:
        with torch.serialization.safe_globals(admitted):
            found = torch.load(path, map_location="cpu", weights_only=True)
        return {name: np.asarray(value) for name, value in found.items()}
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint="fetch it again") from error
    except Exception as error:
        raise InputError(
            f"{path} holds something else than arrays, or is torn: {error}", hint="fetch it again"
        ) from error


def _positives(path: Path, found: dict[str, Any]) -> np.ndarray:
    if "edge" in found:
        return _pairs(path, found["edge"])
    if "source_node" in found and "target_node" in found:
        return np.stack([found["source_node"], found["target_node"]], axis=1).astype(np.int64)
    raise InputError(f"{path} holds no pairs but {', '.join(found)}", hint="link data sets alone are read")


def _pairs(path: Path, array: Any) -> np.ndarray:
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise InputError(f"{path} holds pairs of shape {array.shape}", hint="fetch it again")
    return array.astype(np.int64)

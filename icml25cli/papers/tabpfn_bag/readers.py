"""A table from whatever the user has: a file of any usual format, a TALENT folder, standard input, or a known name.

Knows formats and chooses by name. Does not know what a column means. Nothing is unpickled.
"""

import csv
import gzip
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icml25cli.core.errors import InputError, UsageError, about
from icml25cli.core.files import expand
from icml25cli.core.plain_text import check_text, check_text_stream
from icml25cli.core.progress import warn
from icml25cli.core.tables import read_arrays
from icml25cli.papers.tabpfn_bag.labels import check_classes, labelled
from icml25cli.papers.tabpfn_bag.suites import is_known, read_known

TARGETS = ("target", "class", "label", "y")  # names that a target has if nothing else is said
PARTS = ("train", "val", "test")
SAMPLE = 2**16  # bytes at the beginning, by which the form of a text is told
SEPARATORS = (",", ";", "\t", "|")
SHOWN = 20  # names of columns in a message


def read_table(source: str) -> pd.DataFrame:
    """The table that ``source`` names, at least one row and one column, column names as text.

    ``FOLDER:train`` is one part of a TALENT folder, the folder alone all of them; ``-`` is standard input, CSV or JSON
    lines; ``builtin:NAME`` and ``keel:NAME`` are known sets.

    Raises:
        InputError: there is nothing of that name, or it is torn, empty, or of another kind.
        MissingError: it is an asset that is not fetched.
    """
    frame = _read(source)
    frame.columns = [str(name) for name in frame.columns]
    frame = _without_nesting(frame)
    if not len(frame.columns) or not len(frame):
        raise InputError(
            f"{source} holds no {'row' if len(frame.columns) else 'column'}", hint="give a table with rows"
        )
    return frame


def target_of(frame: pd.DataFrame, named: str | None) -> str:
    """The column to predict: the one named, else the only one with a target's usual name.

    Raises:
        UsageError: there is none of that name, or none to be guessed.
    """
    columns = list(frame.columns)
    shown = ", ".join(columns[:SHOWN]) + (" ..." if len(columns) > SHOWN else "")
    if named is not None:
        if named not in columns:
            raise UsageError(f"the table has no column '{named}'", hint=f"its columns are {shown}")
        return named
    found = [name for name in columns if name.lower() in TARGETS]
    if len(found) != 1:
        raise UsageError("which column is to be predicted?", hint=f"name it with --target; columns are {shown}")
    return found[0]


def separated(frame: pd.DataFrame, target: str) -> tuple[pd.DataFrame, pd.Series]:
    """All columns but the target, and the target."""
    return frame.drop(columns=target), frame.loc[:, target]


def read_classes(source: str, target: str | None) -> tuple[pd.DataFrame, pd.Series]:
    """A table to fit: all columns but the target, and the target, which has its column's name.

    Raises:
        ToolboxError: as ``read_table``, ``target_of`` and ``check_classes``.
    """
    frame = read_table(source)
    features, classes = separated(frame, target_of(frame, target))
    with about(source):
        check_classes(classes)
    return features, classes


def read_tables(sources: Sequence[str], target: str | None = None) -> dict[str, tuple[pd.DataFrame, np.ndarray]]:
    """Features and class numbers of each table, once of one that is named twice.

    Raises:
        ToolboxError: as ``read_classes`` and ``labelled``.
    """
    found = {}
    for source in dict.fromkeys(sources):
        features, classes = read_classes(source, target)
        with about(source):
            frame, _, labels = labelled(features, classes)
        found[source] = (frame, labels)
    return found


def _without_nesting(frame: pd.DataFrame) -> pd.DataFrame:
    """Lists and objects, which JSON lines and Parquet may hold, as text."""
    for i, name in enumerate(frame.columns):
        if not pd.api.types.is_object_dtype(frame.dtypes.iloc[i]):
            continue
        values = frame.iloc[:, i].tolist()
        nested = [isinstance(value, list | dict | np.ndarray) for value in values]
        if any(nested):
            warn(f"column '{name}' holds lists or objects, which are taken as text")
            text = [str(value) if within else value for value, within in zip(values, nested, strict=True)]
            frame.isetitem(i, pd.Series(text, index=frame.index, dtype=object))
    return frame


def _read(source: str) -> pd.DataFrame:
    if source == "-":
        return _text(sys.stdin.buffer.read(), "standard input")
    path = expand(source)
    folder, _, part = source.rpartition(":")
    if not path.exists() and part in PARTS and expand(folder).is_dir():
        return _talent(expand(folder), (part,))
    if not path.exists():
        if is_known(source):
            return read_known(source, _read)
        raise InputError(
            f"{source} is no file, folder or known set",
            hint="known sets are builtin:iris, builtin:wine, builtin:breast_cancer, builtin:digits, keel:NAME, "
            "mlbench:NAME and weka:NAME",
        )
    if path.is_dir():
        return _talent(path, PARTS)
    kind = next((suffix.lower() for suffix in reversed(path.suffixes) if suffix.lower() != ".gz"), "")
    reader = _READERS.get(kind)
    if reader is None:
        pickled = kind in (".pkl", ".pickle", ".joblib")
        raise InputError(
            f"{path} is {'a pickle, which is never loaded' if pickled else 'of a kind that is not known here'}",
            hint=f"known are {', '.join(_READERS)}, folders of TALENT, and - for standard input",
        )
    try:
        if kind in DELIMITED and path.suffix.lower() != ".gz":
            check_text(path)
        return reader(path)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint="check the path") from error
    except Exception as error:  # each parser has its own
        first = (str(error).splitlines() or [type(error).__name__])[0]
        hint = "save it as UTF-8" if isinstance(error, UnicodeError) else "check that it is whole"
        raise InputError(f"{path} cannot be read as {kind[1:]}: {first}", hint=hint) from error


def _text(content: bytes, name: str) -> pd.DataFrame:
    """CSV, tab-separated values or JSON lines, told by their first line."""
    check_text_stream(io.BytesIO(content), name)
    try:
        if content[:SAMPLE].lstrip().startswith(b"{"):
            return pd.read_json(io.BytesIO(content), lines=True)
        return pd.read_csv(io.BytesIO(content), **_form(content[:SAMPLE]))
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{name} is empty", hint="pipe a table into the command") from error
    except ValueError as error:
        first = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"{name} cannot be read as a table: {first}", hint="give CSV with a header, or JSON lines"
        ) from error


def _csv(path: Path, separators: Sequence[str] = SEPARATORS) -> pd.DataFrame:
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        sample = file.read(SAMPLE)
    return pd.read_csv(path, **_form(sample, separators))


def _form(sample: bytes, separators: Sequence[str] = SEPARATORS) -> dict[str, Any]:
    """How pandas is to read a text that begins so: with commas, unless its header is one field that others part.

    With semicolons numbers may have decimal commas: they are read as such where no number has a point.
    """
    text = sample.decode("utf-8-sig", errors="replace").lstrip("\r\n")
    head = re.split(r"[\r\n]", text, maxsplit=1)[0]

    fields = {separator: next(csv.reader([head], delimiter=separator), []) for separator in separators}
    # Of equal ones the first, which is the comma.
    separator = max(separators, key=lambda s: len(fields[s]))
    if len(fields[separators[0]]) > 1:
        separator = separators[0]
    names = fields[separator] if len(head) < len(text) else fields[separator][:-1]  # the last may be cut
    twice = [name for name, times in Counter(names).items() if times > 1 and name]
    if twice:  # pandas would give the second another name
        raise InputError(
            f"the table has more than one column '{twice[0]}'", hint="give each a name of its own in the first line"
        )
    commas, points = (re.search(rf"(^|;)\s*-?\d+{mark}\d+\s*(;|$)", text, re.MULTILINE) for mark in (",", r"\."))
    return {"sep": separator, "decimal": "," if separator == ";" and commas and not points else "."}


ATTRIBUTE = re.compile(r"@attribute\s+(?:'([^']+)'|\"([^\"]+)\"|(\S+))\s+(.+)", re.IGNORECASE)


def _arff(path: Path) -> pd.DataFrame:
    """Attributes and comma-separated rows; scipy's reader refuses labels with spaces around their quotes."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("%")]
    start = next((i for i, line in enumerate(lines) if line.lower().startswith("@data")), None)
    found = [m for line in lines[:start] if (m := ATTRIBUTE.match(line))]
    if start is None or not found:
        raise InputError(f"{path} has no @data after its @attribute lines", hint="check that it is whole")
    if any(line.startswith("{") for line in lines[start + 1 : start + 2]):
        raise InputError(f"{path} is a sparse ARFF file, which is not read", hint="write it with all values")
    quote = '"' if '"' in lines[min(start + 1, len(lines) - 1)] else "'"
    rows = list(csv.reader(lines[start + 1 :], quotechar=quote, skipinitialspace=True, escapechar="\\"))
    uneven = next((i for i, row in enumerate(rows) if len(row) != len(found)), None)
    if uneven is not None:
        raise InputError(
            f"{path}: row {uneven + 1} has {len(rows[uneven])} values for {len(found)} columns",
            hint="check that it is whole",
        )
    frame = pd.DataFrame(rows, columns=[m[1] or m[2] or m[3] for m in found], dtype=object)
    for name, m in zip(frame.columns, found, strict=True):
        frame[name] = frame[name].str.strip().replace("?", None)
        if m[4].split()[0].lower() in ("numeric", "real", "integer"):
            frame[name] = pd.to_numeric(frame[name], errors="coerce")
    return frame


def _npz(path: Path) -> pd.DataFrame:
    """One array of rows and columns, and any number of single columns beside it."""
    columns: dict[str, np.ndarray] = {}
    for name, array in read_arrays(path).items():
        if array.ndim == 1:
            columns[name or "x"] = array
        elif array.ndim == 2:
            columns |= {f"{name or 'x'}{i}": array[:, i] for i in range(array.shape[1])}
        else:
            raise InputError(f"{path}: the array '{name}' has shape {array.shape}", hint="give rows and columns")
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise InputError(f"{path}: its arrays have {sorted(lengths)} rows", hint="give each as many rows")
    return pd.DataFrame(columns)


def _talent(folder: Path, parts: tuple[str, ...]) -> pd.DataFrame:
    """N_, C_ and y_ arrays of each part: numbers, categories, and the class in the column ``target``."""
    try:
        info = json.loads((folder / "info.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{folder} is no folder of TALENT: it has no info.json", hint="name a file") from error
    except ValueError as error:
        raise InputError(f"{folder / 'info.json'} is no JSON: {error}", hint="check that it is whole") from error
    if str(info.get("task_type", "binclass")).startswith("reg"):
        raise InputError(f"{folder} is a regression task", hint="give a classification task")
    frames = []
    for part in parts:
        columns: dict[str, np.ndarray] = {}
        for letter, prefix in (("N", "n"), ("C", "c"), ("y", "target")):
            file = folder / f"{letter}_{part}.npy"
            if file.exists():
                array = read_arrays(file)[""]
                wide = array.reshape(len(array), -1)
                names = [prefix] if letter == "y" else [f"{prefix}{i}" for i in range(wide.shape[1])]
                columns |= {name: wide[:, i] for i, name in enumerate(names)}
        if "target" in columns:
            frame = pd.DataFrame(columns)
            for name in columns:
                if name.startswith("c"):
                    frame[name] = frame[name].astype(str).astype("category")
            frames.append(frame)
    if not frames:
        raise InputError(f"{folder} has no y_{parts[0]}.npy", hint="give the whole folder")
    return pd.concat(frames, ignore_index=True)


def _dat(path: Path) -> pd.DataFrame:
    """KEEL's format: a header of lines with @, or none at all, then comma-separated values, the class last."""
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    names = [m[1] for line in lines if (m := re.match(r"@attribute\s+['\"]?([^'\"\s{]+)", line, re.IGNORECASE))]
    body = "\n".join(line for line in lines if not line.startswith("@"))
    missing = ["?", "<null>"]
    frame = pd.read_csv(io.StringIO(body), header=None, skipinitialspace=True, na_values=missing)
    width = frame.shape[1]
    frame.columns = names if len(names) == width else [*(f"x{i}" for i in range(width - 1)), "target"]
    return frame


DELIMITED = (".csv", ".txt", ".tsv")
_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": _csv,
    ".txt": lambda path: pd.read_csv(path, sep=None, engine="python"),  # whatever separates
    ".tsv": lambda path: _csv(path, ["\t"]),
    ".parquet": pd.read_parquet,
    ".feather": pd.read_feather,
    ".arrow": pd.read_feather,
    ".arff": _arff,
    ".jsonl": lambda path: pd.read_json(path, lines=True),
    ".ndjson": lambda path: pd.read_json(path, lines=True),
    ".npz": _npz,
    ".dat": _dat,
}

"""A label a row, from a CSV file; words, one a line. Knows text files. Does not know what labels mean."""

from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.core.embeddings import Embeddings
from icml25cli.core.errors import InputError

LABEL = "label"


def read_labels(path: Path, x: Embeddings) -> tuple[Int64[ndarray, "N"], tuple[str, ...]]:
    """The class of every row of ``x``, and the names of classes in order; rows that were left out have none.

    Raises:
        InputError: the file cannot be read, has empty cells, one class, or another number of rows.
    """
    import pandas as pd

    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as CSV: {error}", hint="a header, then a label a line") from error
    column = LABEL if LABEL in table else table.columns[-1]
    values = table[column].str.strip().to_numpy(str)
    if len(values) != len(x.stored):
        raise InputError(f"{path} has {len(values)} labels, {x.name} has {len(x.stored)} rows")
    if x.chosen is not None:
        values = values[x.chosen]
    if (empty := np.flatnonzero(values == "")).size:
        raise InputError(f"{path}: the label of row {empty[0]} is empty")
    names, classes = np.unique(values, return_inverse=True)
    if len(names) < 2:
        raise InputError(f"{path}: all labels are {names[0]}", hint="labels must differ")
    return classes, tuple(str(name) for name in names)


def one_class(
    labels: tuple[Int64[ndarray, "N"], tuple[str, ...]], target: str | None
) -> tuple[Int64[ndarray, "N"], str]:
    """1 for rows of the class ``target``, by default the last of two, else 0; and its name.

    Raises:
        InputError: there is no such class, or none is named and there are several.
    """
    classes, names = labels
    if target is None and len(names) > 2:
        raise InputError(f"the labels have {len(names)} classes", hint=f"--target names one: {', '.join(names[:8])}")
    if target is not None and target not in names:
        raise InputError(f"no label is {target}", hint=f"labels: {', '.join(names[:8])}")
    asked = target or names[len(names) - 1]
    return (classes == names.index(asked)).astype(np.int64), asked


def read_words(path: Path, count: int, what: str) -> list[str]:
    """``count`` lines.

    Raises:
        InputError: the file cannot be read or has another number of lines.
    """
    try:
        words = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as text: {error}") from error
    if len(words) != count:
        raise InputError(f"{path} has {len(words)} lines, {what} {count} rows", hint="one line a row, in its order")
    return words

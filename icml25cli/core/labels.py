"""A label a row, from a CSV file. Knows text files. Does not know what labels mean."""

from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.core.embeddings import Embeddings
from icml25cli.core.errors import InputError
from icml25cli.core.plain_text import check_text

LABEL = "label"


def read_labels(path: Path, x: Embeddings, *, least: int = 1) -> tuple[Int64[ndarray, "N"], tuple[str, ...]]:
    """The class of every row of ``x``, and the names of classes in order; rows that were left out have none.

    Raises:
        InputError: the file cannot be read, holds NUL characters or empty cells, has one class, or another number of
            rows, or a class has fewer rows than ``least``.
    """
    import pandas as pd

    try:
        check_text(path)
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
    if (counts := np.bincount(classes)).min() < least:
        rare = counts.argmin()
        raise InputError(
            f"{path}: rows with the label {names[rare]} are {counts[rare]}, every label needs {least}",
            hint="merge or leave out rare labels",
        )
    return classes, tuple(str(name) for name in names)

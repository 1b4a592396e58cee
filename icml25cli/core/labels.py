"""A label a row, from a CSV file. Knows text files. Does not know what labels mean."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64, Shaped
from numpy import ndarray

from icml25cli.core.embeddings import Embeddings
from icml25cli.core.errors import InputError
from icml25cli.core.plain_text import check_text

if TYPE_CHECKING:
    import pandas as pd

LABEL = "label"


def read_labels(
    path: Path, x: Embeddings, *, least: int = 1, ids: tuple[str, Shaped[ndarray, "rows"]] | None = None
) -> tuple[Int64[ndarray, "N"], tuple[str, ...]]:
    """The class of every row of ``x``, and the names of classes in order; rows that were left out have none.

    Args:
        least: rows that every class needs.
        ids: a name, and the ids of the rows in ``x``'s file: where the table has a column of that name, rows are found
            by it, else by their number.

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
    if ids and ids[0] in table and len(table.columns) > 1:
        table = _in_order(table, *ids, path)
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


def _in_order(table: "pd.DataFrame", name: str, ids: Shaped[ndarray, "rows"], path: Path) -> "pd.DataFrame":
    """The rows that ids name, in their order, without the column of ids."""
    known = table.assign(**{name: table[name].str.strip()}).set_index(name)
    if (twice := known.index[known.index.duplicated()]).size:
        raise InputError(f"{path} has the {name} {twice[0]} more than once", hint="give every item one label")
    asked = ids.astype(str)
    if (missing := asked[~np.isin(asked, known.index.to_numpy(str))]).size:
        raise InputError(f"{path} has no label of {len(missing)} items: {name} {missing[0]}", hint="label every item")
    return known.loc[asked]

"""Columns of a user's table: which are numbers, categories or dates, and how a row of them is prepared.

What was seen in training is remembered by column name, so that other tables may have their columns in another order,
or more of them. Knows data frames. Does not know files, classes or networks.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64
from numpy import ndarray
from torch import Tensor

from icml25cli.core.errors import InputError
from icml25cli.core.progress import note, warn
from icml25cli.papers.tabpfn_bag.encoders import Rows
from icml25cli.papers.tabpfn_bag.preprocess import Scaling

MOST_LEVELS = 100  # of a category; rarer ones are as if never seen
IDENTIFIER = 0.5  # share of different values from which a column of text names its rows
FEWEST_FOR_IDENTIFIER = 20  # rows: in fewer, a high share says little
NUMERIC = 0.9  # share of values that read as numbers from which a column is one, the others being missing
DATE_PARTS = ("day", "month", "weekday", "hour")
ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")
SHOWN = 5  # names in a message
CONSTANT = "it has one value only"

Kind = Literal["number", "category", "date", "dropped"]


@dataclass(frozen=True)
class Column:
    """A column of the training table.

    Attributes:
        levels: of a category, the commonest first; None is a missing value, where training had one.
        gaps: whether a number was missing in training, so that missing is told apart.
        reason: why it was dropped.
    """

    name: str
    kind: Kind
    levels: tuple[str | None, ...] = ()
    gaps: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Schema:
    """The columns of a training table, and the statistics of its numbers."""

    columns: tuple[Column, ...]
    scaling: Scaling

    @classmethod
    def of(cls, frame: pd.DataFrame) -> "Schema":
        """What the training table's columns are.

        Raises:
            InputError: no column is left that can be used.
        """
        columns = tuple(_column(str(name), frame.iloc[:, i]) for i, name in enumerate(frame.columns))
        if constant := [column.name for column in columns if column.reason == CONSTANT]:
            note(f"not used, being of one value only: {_names(constant)}")
        for column in columns:
            if column.kind == "dropped" and column.reason != CONSTANT:
                warn(f"column '{column.name}' is not used: {column.reason}")
        if all(column.kind == "dropped" for column in columns):
            raise InputError(
                "no column of the table can be used", hint="give columns that differ from row to row beside the target"
            )
        numbers = _numbers(columns, _by_name(frame), len(frame))
        return cls(columns, Scaling.of(torch.from_numpy(numbers).double()))

    @property
    def numbers(self) -> int:
        """Numeric inputs: numbers, and parts of dates."""
        return sum({"number": 1, "date": len(DATE_PARTS)}.get(column.kind, 0) for column in self.columns)

    @property
    def levels(self) -> list[int]:
        """Widths of one-hot blocks: categories, then one place for each number that may be missing."""
        categories = [len(column.levels) for column in self.columns if column.kind == "category"]
        return categories + [1 for column in self.columns if column.gaps]

    @property
    def categories(self) -> int:
        return sum(column.kind == "category" for column in self.columns)

    def rows(self, frame: pd.DataFrame) -> Rows:
        """Rows of another table, their columns found by name; what is not known is ignored.

        Raises:
            InputError: a column of the training table is missing.
        """
        named = _by_name(frame)
        used = [column for column in self.columns if column.kind != "dropped"]
        if missing := [column.name for column in used if column.name not in named]:
            raise InputError(
                f"the table lacks {_names(missing)} that the model was fitted on", hint="give all of its columns"
            )
        if other := [name for name in named if name not in {column.name for column in self.columns}]:
            note(f"the model was not fitted on {_names(other)}: not used")
        raw = torch.from_numpy(_numbers(self.columns, named, len(frame)))
        numbers = self.scaling(raw.double()).float()
        codes = [_codes(column, named[column.name]) for column in used if column.kind == "category"]
        gaps = [~np.isfinite(_as_number(named[column.name])) for column in used if column.gaps]
        codes += [gap.astype(np.int64) - 1 for gap in gaps]
        table = np.stack(codes, 1) if codes else np.empty((len(frame), 0), np.int64)
        return Rows(numbers, torch.from_numpy(table))

    def note_unknown_values(self, frame: pd.DataFrame) -> None:
        """Say which columns of another table have values that count as none: other levels, or no number or date."""
        named = _by_name(frame)
        for column in self.columns:
            if column.kind == "dropped" or column.name not in named:
                continue
            values = named[column.name]
            if column.kind == "category":
                what, unknown = "a value unknown to the model", _codes(column, values) < 0
            elif column.kind == "number":
                what, unknown = "what is no finite number and counts as missing", ~np.isfinite(_as_number(values))
            else:
                what, unknown = "what is no date and counts as missing", np.isnan(_date_parts(values)).any(1)
            if count := int((unknown & values.notna().to_numpy()).sum()):
                note(f"{count:,} of {len(frame):,} rows have in column '{column.name}' {what}")

    def document(self) -> dict[str, Any]:
        """Columns as JSON; the statistics are tensors, ``tensors`` has them."""
        return {"columns": [asdict(column) for column in self.columns]}

    def tensors(self) -> dict[str, Tensor]:
        return {f"schema.{name}": part for name, part in vars(self.scaling).items()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "Schema":
        columns = tuple(Column(**{**c, "levels": tuple(c["levels"])}) for c in document["columns"])
        names = ("mean", "deviation", "varies", "low", "high")
        return cls(columns, Scaling(**{name: tensors[f"schema.{name}"] for name in names}))


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{'column' if len(names) == 1 else 'columns'} {shown}{more}"


def _by_name(frame: pd.DataFrame) -> dict[str, pd.Series]:
    named = {str(name): frame.iloc[:, i] for i, name in enumerate(frame.columns)}
    if len(named) < frame.shape[1]:
        twice = [name for name, times in Counter(map(str, frame.columns)).items() if times > 1]
        raise InputError(f"the table has more than one of {_names(twice)}", hint="rename them")
    return named


def _column(name: str, values: pd.Series) -> Column:
    present = values.dropna()
    if not len(present):
        return Column(name, "dropped", reason="it has no value")
    if pd.api.types.is_datetime64_any_dtype(values) or _reads_as_dates(present):
        return Column(name, "date")
    if pd.api.types.is_complex_dtype(values):
        return Column(name, "dropped", reason="complex numbers have no order")
    numbers = _as_number(values)
    finite = np.isfinite(numbers)
    text = not (pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values))
    if isinstance(values.dtype, pd.CategoricalDtype) or (text and finite.sum() < NUMERIC * len(present)):
        return _category(name, values)
    if text and finite.sum() < len(present):
        warn(f"column '{name}' holds numbers and {len(present) - finite.sum()} other values, which count as missing")
    if not finite.any():
        return Column(name, "dropped", reason="it has no finite value")
    gaps = bool((~finite).any())
    if numbers[finite].min() == numbers[finite].max() and not gaps:
        return Column(name, "dropped", reason=CONSTANT)
    return Column(name, "number", gaps=gaps)


def _category(name: str, values: pd.Series) -> Column:
    counts = Counter(_levels(values))
    known = [level for level in counts if level is not None]
    rows = len(values) - counts[None]
    if rows >= FEWEST_FOR_IDENTIFIER and len(known) > IDENTIFIER * rows:
        return Column(name, "dropped", reason=f"{len(known):,} different values in {rows:,} rows name rows, not kinds")
    if len(counts) < 2:
        return Column(name, "dropped", reason=CONSTANT)
    ordered = sorted(counts, key=lambda level: (-counts[level], level is None, level or ""))
    if len(ordered) > MOST_LEVELS:
        warn(f"column '{name}' has {len(ordered):,} levels, of which the {MOST_LEVELS} commonest are used")
    return Column(name, "category", tuple(ordered[:MOST_LEVELS]))


def _levels(values: pd.Series) -> list[str | None]:
    """Values as text, whole numbers without a point, so that 1 and 1.0 of different files are one level."""
    codes, levels = pd.factorize(values)
    names = [_level(level) for level in levels]
    return [None if code < 0 else names[code] for code in codes]


def _level(value: Any) -> str:
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def _codes(column: Column, values: pd.Series) -> ndarray:
    known = {level: code for code, level in enumerate(column.levels)}
    return np.array([known.get(level, -1) for level in _levels(values)], np.int64)


def _reads_as_dates(present: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(present) or isinstance(present.dtype, pd.CategoricalDtype):
        return False
    return all(isinstance(v, str) and ISO.fullmatch(v) for v in present.head(1000))


def _as_number(values: pd.Series) -> Float64[ndarray, "n"]:
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object)
    numbers: Any = pd.to_numeric(values, errors="coerce")
    return numbers.to_numpy(np.float64, na_value=np.nan)


def _date_parts(values: pd.Series) -> Float64[ndarray, "n parts"]:
    when = pd.to_datetime(values, errors="coerce", utc=True, format="ISO8601")
    day = (when - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    parts = [day, when.dt.month, when.dt.day_of_week, when.dt.hour]
    return np.stack([part.to_numpy(np.float64, na_value=np.nan) for part in parts], 1)


def _numbers(columns: Sequence[Column], named: Mapping[str, pd.Series], rows: int) -> Float64[ndarray, "rows numbers"]:
    parts = [np.empty((rows, 0))]
    for column in columns:
        if column.kind == "number":
            parts.append(_as_number(named[column.name])[:, None])
        elif column.kind == "date":
            parts.append(_date_parts(named[column.name]))
    return np.concatenate(parts, 1)

"""A linear model: columns, rows and an objective over exact numbers, named as the user named them.

Knows numbers and names. Does not know where a model came from, nor how it is solved.
"""

import keyword
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from icml25cli.papers.formulate.rationals import Number, text

Sense = Literal["min", "max"]
SHOWN = 12  # terms of a sum
Terms = tuple[tuple[int, Number], ...]  # column and coefficient, by ascending column, no coefficient zero


@dataclass(frozen=True)
class Column:
    """A variable: ``lower <= name <= upper``, where None is no bound."""

    name: str  # as the user wrote it, with its index: ``ship[mill, 3]``
    lower: Number | None = 0
    upper: Number | None = None
    integer: bool = False
    description: str = ""

    def admits(self, value: Number | float, tolerance: Number | float = 0) -> bool:
        return _between(self.lower, value, self.upper, tolerance)


@dataclass(frozen=True)
class Row:
    """A constraint: ``lower <= terms <= upper``, where None is no bound and equal bounds are an equation."""

    name: str  # the label, with the index where one label stands for many rows
    terms: Terms
    lower: Number | None
    upper: Number | None
    text: str = ""  # the constraint as the user wrote it

    def admits(self, value: Number | float, tolerance: Number | float = 0) -> bool:
        return _between(self.lower, value, self.upper, tolerance)


@dataclass(frozen=True)
class LinearModel:
    """``sense`` of ``objective + constant`` over ``columns`` such that all ``rows`` hold.

    ``notes`` say what the text left open and how it was read, for the user to object.
    """

    sense: Sense
    objective: Terms
    constant: Number
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """A name a column of letters, digits and ``_``, in the order of ``columns``, all different."""
        return sanitised(column.name for column in self.columns)

    @cached_property
    def row_names(self) -> tuple[str, ...]:
        """A name a row of letters, digits and ``_``, in the order of ``rows``, all different."""
        return sanitised(row.name for row in self.rows)

    @property
    def size(self) -> dict[str, int]:
        """Numbers of variables and constraints, as a report shows them."""
        return {"variables": len(self.columns), "constraints": len(self.rows)}

    @property
    def is_integer(self) -> bool:
        """Whether any column has to be whole."""
        return any(column.integer for column in self.columns)

    def value(self, terms: Terms, point: Sequence[Number | float]) -> Any:
        """The sum of ``terms`` at a point, a number a column; exact where the point is."""
        return sum(coefficient * point[column] for column, coefficient in terms)

    def objective_at(self, point: Sequence[Number | float]) -> Any:
        """The objective at a point, a number a column."""
        return self.value(self.objective, point) + self.constant

    def violations(self, point: Sequence[Number | float], tolerance: Number | float = 0) -> list[str]:
        """Names of the rows, bounds and integralities that a point breaks by more than ``tolerance``."""
        broken = [row.name for row in self.rows if not row.admits(self.value(row.terms, point), tolerance)]
        for column, value in zip(self.columns, point, strict=True):
            if not column.admits(value, tolerance):
                broken.append(f"the bounds of {column.name}")
            elif column.integer and abs(value - round(value)) > tolerance:
                broken.append(f"{column.name} is whole")
        return broken

    def written(self, terms: Terms, constant: Number = 0) -> str:
        """A sum as a person writes it, cut where nobody would read on: ``20 wheat + 30 corn``."""
        parts = []
        for column, coefficient in terms[:SHOWN]:
            size = "" if abs(coefficient) == 1 else f"{text(abs(coefficient))} "
            parts += ["-" if coefficient < 0 else "+", f"{size}{self.columns[column].name}"]
        if len(terms) > SHOWN:
            parts += ["+", f"… {len(terms) - SHOWN} more"]
        if constant or not terms:
            parts += ["-" if constant < 0 else "+", text(abs(constant))]
        return " ".join(parts[1:] if parts[0] == "+" else [f"-{parts[1]}", *parts[2:]])

    def row_text(self, row: Row) -> str:
        """A row as a person writes it: ``wheat + corn <= 10``."""
        return between(self.written(row.terms), row.lower, row.upper)


def between(inner: str, lower: Number | None, upper: Number | None) -> str:
    """``inner`` with its bounds: ``inner <= 3``, ``1 <= inner <= 3``, ``inner == 2``, or ``inner is free``."""
    if lower is not None and lower == upper:
        return f"{inner} == {text(lower)}"
    if lower is not None and upper is not None:
        return f"{text(lower)} <= {inner} <= {text(upper)}"
    if lower is not None:
        return f"{inner} >= {text(lower)}"
    return f"{inner} is free" if upper is None else f"{inner} <= {text(upper)}"


def _between(lower: Number | None, value: Any, upper: Number | None, tolerance: Any) -> bool:
    return (lower is None or value >= lower - tolerance) and (upper is None or value <= upper + tolerance)


# Words of the LP format, and of the script that `export` writes; a name that begins like an exponent reads as one.
_RESERVED = {
    *("min", "max", "minimize", "minimise", "maximize", "maximise", "minimum", "maximum", "subject", "such", "st"),
    *("free", "inf", "infinity", "bounds", "bound", "general", "generals", "gen", "integer", "integers", "int"),
    *("binary", "binaries", "bin", "semi", "semis", "sec", "sos", "sos1", "sos2", "end", "pulp", "problem", "json"),
    *("obj", "rhs_v", "print", "variable", "warnings"),
}
_LONGEST = 200  # characters: readers of LP files take 255


def sanitised(names: Iterable[str]) -> tuple[str, ...]:
    """Names as every solver and Python take them: ``[A-Za-z_][A-Za-z0-9_]*``, no reserved word, no two alike."""
    taken: dict[str, int] = {}  # how often a name was wanted
    clean = []
    for position, name in enumerate(names, 1):
        ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        base = re.sub(r"\W+", "_", ascii_name).strip("_")[:_LONGEST] or f"v{position}"
        if not base[0].isalpha() or re.fullmatch(r"[eE]\d*(_.*)?", base):
            base = f"v_{base}"
        if keyword.iskeyword(base) or keyword.issoftkeyword(base) or base.lower() in _RESERVED:
            base += "_"
        unique = base
        while unique.lower() in taken:
            taken[base.lower()] += 1
            unique = f"{base}_{taken[base.lower()]}"
        taken[unique.lower()] = 1
        clean.append(unique)
    return tuple(clean)

"""What expressions are worth besides numbers, texts, lists and objects: linear sums and families of columns.

Knows columns by number. Does not know syntax.
"""

from fractions import Fraction
from typing import Any

from icml25cli.papers.formulate import rationals
from icml25cli.papers.formulate.expressions import FormulaError
from icml25cli.papers.formulate.linear import Terms
from icml25cli.papers.formulate.rationals import Number


class Linear:
    """A sum of columns times coefficients, and a constant."""

    __slots__ = ("constant", "terms")

    def __init__(self, terms: dict[int, Number], constant: Number = 0) -> None:
        self.terms = terms
        self.constant = constant

    def add(self, other: "Linear | Number", factor: Number = 1) -> None:
        """Add ``factor * other``, in place."""
        if not isinstance(other, Linear):
            self.constant += factor * other
            return
        for column, coefficient in other.terms.items():
            self.terms[column] = self.terms.get(column, 0) + factor * coefficient
        self.constant += factor * other.constant

    def sorted_terms(self) -> Terms:
        return tuple(sorted((c, rationals.exact(a)) for c, a in self.terms.items() if a))


class Family:
    """The columns of one declared variable by index; ``()`` is the index of a variable without index set."""

    __slots__ = ("columns", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.columns: dict[tuple, int] = {}


def times(left: Linear | Number, right: Linear | Number) -> Linear | Number | None:
    """The product; None where it is not linear. A factor whose variables cancel out is a number."""
    left, right = _without_variables(left), _without_variables(right)
    if isinstance(right, Linear):
        left, right = right, left
    if isinstance(right, Linear):
        return None
    if isinstance(left, Linear):
        return Linear({column: right * value for column, value in left.terms.items()}, right * left.constant)
    return left * right


def _without_variables(value: Linear | Number) -> Linear | Number:
    return value.constant if isinstance(value, Linear) and not any(value.terms.values()) else value


def element(value: Any, index: tuple[Any, ...]) -> Any:
    """An element of a parameter: of an object by the whole index, else part by part; of a list by position.

    Raises:
        FormulaError: there is no such element.
    """
    for position, part in enumerate(index):
        if isinstance(value, dict):
            whole = index[position:] if position + 1 < len(index) else part
            if whole in value:
                return value[whole]
            if part not in value:
                raise FormulaError(f"there is no {shown_index(whole)} in it", hint="give it a value")
            value = value[part]
        elif isinstance(value, (list, tuple, range)):
            # -1 would be the last element: in `stock[t - 1]` a silent mistake at the first t
            if not isinstance(part, int) or not 0 <= part < len(value):
                raise FormulaError(
                    f"there is no position {shown_index(part)} in a list of {len(value)}", hint="positions begin at 0"
                )
            value = value[part]
        else:
            raise FormulaError("it is given an index and has none", hint="leave out the brackets")
    return value


def shown_index(index: Any) -> str:
    """An index as a person reads it: ``mill, 3``."""
    if isinstance(index, tuple | list):
        return ", ".join(shown_index(part) for part in index)
    if isinstance(index, int | Fraction) and not isinstance(index, bool):
        return rationals.text(index)
    return str(index)

"""One form for models that say the same in other words: scaled, reordered, repeated, or with bounds as rows.

Every row, bound and equation becomes ``sum of whole coefficients times variables <= number``, divided by the greatest
common divisor of the coefficients; a sum of whole variables has its number rounded down; of two rows with the same sum
the tighter one stays; a maximum becomes a minimum. Knows exact numbers. Does not know logic: models that are equal for
deeper reasons have different forms (`equivalence`).
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from icml25cli.core.errors import InputError
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.rationals import Number, exact

Sum = tuple[tuple[str, int], ...]  # variables by name, in order of names


@dataclass(frozen=True)
class Canonical:
    """A model by the names of its variables: two of the same form have the same points and the same objective."""

    variables: frozenset[tuple[str, bool]]  # with whether it is whole
    rows: frozenset[tuple[Sum, Number]]  # each: the sum is at most the number
    objective: tuple[tuple[str, Number], ...]  # to be made small
    constant: Number

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) of the form, the same in every process."""
        parts = (sorted(self.variables), sorted(self.rows, key=repr), self.objective, self.constant)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.variables)


def canonical(model: LinearModel, names: Mapping[str, str] | None = None) -> Canonical:
    """The form of a model; ``names`` are other names for its variables.

    Raises:
        InputError: two variables have one name.
    """
    names = names or {}
    called = [names.get(column.name, column.name) for column in model.columns]
    if len(set(called)) < len(called):
        twice = next(name for name in called if called.count(name) > 1)
        raise InputError(f"two variables are called '{twice}'", hint="give them different names")
    whole = {name for name, column in zip(called, model.columns, strict=True) if column.integer}
    tightest: dict[Sum, Number] = {}
    for terms, bound in _halves(model, called):
        divided, limit = _primitive(terms, bound, whole)
        if divided or limit < 0:
            tightest[divided] = min(limit, tightest.get(divided, limit))
    sign = 1 if model.sense == "min" else -1
    return Canonical(
        frozenset((name, name in whole) for name in called),
        frozenset(tightest.items()),
        tuple(sorted((called[j], exact(sign * coefficient)) for j, coefficient in model.objective)),
        exact(sign * model.constant),
    )


def _halves(model: LinearModel, called: list[str]) -> Iterator[tuple[dict[str, Number], Number]]:
    """Every row and bound as one or two upper bounds on a sum."""
    limited: list[tuple[dict[str, Number], Number | None, Number | None]]
    limited = [({called[j]: a for j, a in row.terms}, row.lower, row.upper) for row in model.rows]
    for name, column in zip(called, model.columns, strict=True):
        limited.append(({name: 1}, column.lower, column.upper))
    for terms, lower, upper in limited:
        if upper is not None:
            yield terms, upper
        if lower is not None:
            yield {name: -coefficient for name, coefficient in terms.items()}, -lower


def _primitive(terms: dict[str, Number], bound: Number, whole: set[str]) -> tuple[Sum, Number]:
    """A bounded sum with whole coefficients that have no common divisor; the bound may be a fraction."""
    if not terms:
        return (), 0 if bound >= 0 else -1
    scale = math.lcm(*(coefficient.denominator for coefficient in terms.values()))
    numbers = {name: int(coefficient * scale) for name, coefficient in terms.items()}
    divisor = math.gcd(*numbers.values())
    limit = exact(Fraction(bound) * scale / divisor)
    if numbers.keys() <= whole:
        limit = math.floor(limit)
    return tuple(sorted((name, number // divisor) for name, number in numbers.items())), limit

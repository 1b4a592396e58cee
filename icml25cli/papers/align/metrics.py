"""Names of metrics, how they are measured, and what two sides share while they are (sections 3.1 to 3.3).

Knows prepared rows. Does not know how a metric is computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.core.claims import Interval
from icml25cli.core.errors import InputError
from icml25cli.core.runs import Run
from icml25cli.papers.align import hsic
from icml25cli.papers.align.indexes import Index
from icml25cli.papers.align.lists import Lists, checked_k, kept, neighbour_lists, width_for
from icml25cli.papers.align.prepared import Prepared
from icml25cli.papers.align.resampling import Null, orders, parts

LINEAR = ("ucka", "cka", "cmd")
NEIGHBOURS = ("mknn", "cknna", "cknna_sym", "cycle", "cycle_swapped", "lcs", "edit")
SUBSPACES = ("svcca", "cca", "cca_square", "pwcca", "procrustes")
PAIRS = ("cka_rbf", "rsa")
METRICS = (*LINEAR[:1], "mknn", *LINEAR[1:], *NEIGHBOURS[1:], *SUBSPACES, *PAIRS)
SQUARE_ROWS = 5000  # up to which n x n numbers are held, and linear metrics are permuted
PAIR_ROWS = 1024  # drawn for metrics of all pairs
QUERY_ROWS, ALL_QUERIES = 4096, 50_000  # neighbours of so many rows are sought where there are more than so many


@dataclass(frozen=True)
class Settings:
    """How metrics are measured.

    Attributes:
        permutations: B, orders of rows of the null.
        queries: rows whose neighbours are sought; 0 for all, None for 4096 where there are more than 50,000 rows.
        rank: singular vectors of SVCCA.
        sigma: width of the Gaussian kernel; None for the median distance.
        groups: rows are permuted inside these for a second null.
    """

    k: int = 10
    permutations: int = 200
    intervals: bool = True
    seed: int = 0
    queries: int | None = None
    index: Index = "exact"
    rank: int = 10
    sigma: float | None = 1.0
    groups: Int64[ndarray, "n"] | None = None

    def query_rows(self, count: int) -> Int64[ndarray, "m"] | None:
        """Drawn rows, ascending; None for all."""
        asked = self.queries if self.queries is not None else (QUERY_ROWS if count > ALL_QUERIES else 0)
        if not asked or asked >= count:
            return None
        return np.sort(np.random.default_rng((self.seed, 5)).choice(count, asked, replace=False))


@dataclass(frozen=True)
class Measured:
    """A metric with what chance gives and how sure it is; where it is not defined, ``why`` says so."""

    metric: str
    value: float | None
    null: Null | None = None
    interval: Interval | None = None
    within: Null | None = None  # permuted inside groups
    why: str | None = None

    def row(self) -> dict[str, Any]:
        value, null = self.value, self.null
        judged = null if value is not None else None
        return {
            "metric": self.metric,
            "value": value,
            "null_mean": null.mean if null else None,
            "z": judged.z(value) if judged and value is not None else None,
            "p_value": judged.p_value(value) if judged and value is not None else None,
            "ci_low": self.interval.low if self.interval else None,
            "ci_high": self.interval.high if self.interval else None,
        }


@dataclass
class Pair:
    """Two prepared sides of the same rows and what metrics of them share."""

    x: Prepared
    y: Prepared
    settings: Settings
    run: Run | None = None  # which keeps neighbours for a later call
    units: tuple[str, str] = ("a.npz", "b.npz")  # their names there
    cached: dict[str, Lists] = field(default_factory=dict)  # by unit

    @property
    def count(self) -> int:
        return self.x.rows

    @cached_property
    def queries(self) -> Int64[ndarray, "m"] | None:
        return self.settings.query_rows(self.count)

    def orders(self, *, grouped: bool = False) -> list[Int64[ndarray, "n"]]:
        s = self.settings
        groups = s.groups if grouped else None
        return orders(self.count, s.permutations, s.seed, queries=self.queries, groups=groups)

    @cached_property
    def parts(self) -> list[Int64[ndarray, "m"]]:
        return parts(self.count, self.settings.seed)

    @cached_property
    def sums(self) -> tuple[hsic.Triple, list[hsic.Triple] | None]:
        """Sums over all rows, and without each part where intervals are wanted and they fit in a GiB."""
        return self._sums(self.x, self.y)

    def _sums(self, x: Prepared, y: Prepared) -> tuple[hsic.Triple, list[hsic.Triple] | None]:
        if not self.settings.intervals:
            return hsic.triple(x, y), None
        if 8 * (x.columns + y.columns) ** 2 * len(self.parts) > 2**30:
            return hsic.triple(x, y), None
        found = [hsic.triple(x, y, part) for part in self.parts]
        total = sum(found[1:], found[0])
        return total, [total - part for part in found]

    def lists(self) -> tuple[Lists, Lists]:
        s = self.settings
        k = checked_k(s.k, self.count)
        width = width_for(k, self.count) if s.intervals and self.queries is None else k
        for unit, side in zip(self.units, (self.x, self.y), strict=True):
            if unit not in self.cached:
                find = partial(neighbour_lists, side, width, self.queries, s.index)
                self.cached[unit] = kept(self.run, unit, find)
        return self.cached[self.units[0]], self.cached[self.units[1]]


def refuse_undefined(found: Sequence[Measured]) -> None:
    """
    Raises:
        InputError: a metric that was asked for by name is not defined here.
    """
    for measured in found:
        if measured.value is None:
            raise InputError(f"{measured.metric} is not defined here", hint=measured.why)

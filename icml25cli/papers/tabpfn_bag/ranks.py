"""Methods compared over many tables by their ranks (Demšar 2006). Knows arrays of figures."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from jaxtyping import Float64
from numpy import ndarray
from scipy.stats import friedmanchisquare, rankdata, studentized_range

LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class Ranks:
    """Mean ranks, 1 the best.

    Attributes:
        critical_difference: two mean ranks that are further apart differ at 5 % (Nemenyi); NaN for one table.
        p: that no method differs from another (Friedman); NaN for fewer than three methods or two tables.
    """

    mean: Float64[ndarray, " methods"]
    critical_difference: float
    p: float

    def cliques(self) -> list[tuple[int, ...]]:
        """Largest groups of methods, the best first, none of which differs from another of its group."""
        order = np.argsort(self.mean, kind="stable")
        groups: list[tuple[int, ...]] = []
        for first in range(len(order)):
            apart = self.mean[order[first:]] - self.mean[order[first]]
            group = tuple(order[first:][apart <= self.critical_difference].tolist())
            if len(group) > 1 and not (groups and set(group) <= set(groups[-1])):
                groups.append(group)
        return groups


def mean_ranks(figures: Float64[ndarray, "tables methods"], *, higher_is_better: bool = False) -> Ranks:
    """Ranks of methods on each table, equal figures sharing theirs, and their means."""
    tables, methods = figures.shape
    ranks = rankdata(-figures if higher_is_better else figures, axis=1)
    p = float("nan")
    if methods > 2 and tables > 1 and (np.ptp(ranks, axis=1) > 0).any():
        p = float(friedmanchisquare(*ranks.T).pvalue)
    return Ranks(ranks.mean(0), critical_difference(methods, tables), p)


def critical_difference(methods: int, tables: int) -> float:
    """Nemenyi's q sqrt(k (k + 1) / 6 N), q the 95 % point of the studentised range over the square root of two."""
    if methods < 2 or tables < 2:
        return float("nan")
    q = float(studentized_range.ppf(1 - LEVEL, methods, np.inf)) / sqrt(2)
    return q * sqrt(methods * (methods + 1) / (6 * tables))

"""Orders of rows for a null, and intervals from leaving out parts of the rows (section 3.3).

Knows numbers of rows. Does not know metrics.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from numpy import ndarray
from numpy.typing import ArrayLike

from icml25cli.core.claims import Interval

PARTS = 20  # of a jackknife


@dataclass(frozen=True)
class Null:
    """What chance gives: mean and standard deviation, and values of permutations where there are any.

    Attributes:
        exact: whether the two moments are those of all permutations.
    """

    mean: float
    sd: float
    values: Float[ndarray, "B"] | None = None
    exact: bool = False

    def z(self, value: float) -> float | None:
        return (value - self.mean) / self.sd if self.sd > 0 else None

    def p_value(self, value: float) -> float | None:
        """(1 + #>=)/(1 + B); without permutations Cantelli's bound 1/(1 + z²), where the moments are exact."""
        if self.values is not None and len(self.values):
            return float((1 + np.sum(self.values >= value)) / (1 + len(self.values)))
        z = self.z(value)
        if not self.exact or z is None:
            return None
        return 1 / (1 + z**2) if z > 0 else 1.0


def of_permutations(values: ArrayLike, exact: tuple[float, float] | None = None, mean: float | None = None) -> Null:
    """A null by its permutations; its moments, or its mean alone, by a formula that is exact where there is one."""
    found = np.asarray(values, np.float64)
    if exact:
        return Null(*exact, found, True)
    sd = float(found.std(ddof=1)) if len(found) > 1 else 0.0
    return Null(float(found.mean()) if mean is None else mean, sd, found)


def orders(
    count: int,
    number: int,
    seed: int,
    *,
    queries: Int64[ndarray, "m"] | None = None,
    groups: Int64[ndarray, "n"] | None = None,
) -> list[Int64[ndarray, "n"]]:
    """``number`` random orders of rows, which keep ``queries``, and each group, to itself."""
    rng = np.random.default_rng((seed, 1))
    kind = np.zeros(count, np.int64) if groups is None else 2 * groups
    if queries is not None and len(queries) < count:
        kind[queries] += 1
    by_kind = np.argsort(kind, kind="stable")
    found = []
    for _ in range(number):
        drawn = np.lexsort((rng.random(count), kind))
        order = np.empty(count, np.int64)
        order[by_kind] = drawn
        found.append(order)
    return found


def parts(count: int, seed: int, number: int = PARTS) -> list[Int64[ndarray, "m"]]:
    """Rows in as many random parts of equal size, each in ascending order."""
    drawn = np.random.default_rng((seed, 2)).permutation(count)
    return [np.sort(part) for part in np.array_split(drawn, min(number, count))]


def jackknife(value: float, without: Sequence[float]) -> Interval | None:
    """The 95 % interval from values without each part (Student's t), cut off at 1, which no metric exceeds.

    Of neighbours a bootstrap over rows would make copies of a row its nearest; leaving rows out does not.
    """
    from scipy.special import stdtrit

    left = np.asarray(without, np.float64)
    g = len(left)
    if g < 2 or not np.isfinite(left).all() or not np.isfinite(value):
        return None
    error = np.sqrt((g - 1) / g * np.square(left - left.mean()).sum())
    width = float(stdtrit(g - 1, 0.975) * error)
    return Interval(value, value - width, max(value, min(1.0, value + width)))


def of_queries(scores: Float[ndarray, "m"]) -> Interval | None:
    """The mean over rows drawn, with its interval over them; None of a single one."""
    return Interval.of_mean(scores) if len(scores) > 1 else None


def bca(statistic, rows: ndarray, seed: int, number: int = 2000) -> Interval | None:
    """Bias-corrected and accelerated bootstrap interval (Efron 1987) of a statistic of rows; None where undefined."""
    from scipy.stats import norm

    value = statistic(rows)
    rng = np.random.default_rng((seed, 4))
    n = len(rows)
    drawn = np.array([statistic(rows[rng.integers(0, n, n)]) for _ in range(number)])
    drawn = drawn[np.isfinite(drawn)]
    left = np.array([statistic(np.delete(rows, i, axis=0)) for i in range(n)])
    if not np.isfinite(value) or len(drawn) < number / 2 or not np.isfinite(left).all():
        return None
    below = np.mean(drawn < value) + np.mean(drawn == value) / 2
    apart = left.mean() - left
    spread = np.square(apart).sum() ** 1.5
    if not 0 < below < 1 or spread == 0:
        return Interval(value, float(drawn.min()), float(drawn.max()))
    z0, a = norm.ppf(below), np.power(apart, 3).sum() / (6 * spread)
    ends = [norm.cdf(z0 + (z0 + z) / (1 - a * (z0 + z))) for z in norm.ppf([0.025, 0.975])]
    low, high = np.quantile(drawn, ends)
    return Interval(float(value), float(min(low, value)), float(max(high, value)))

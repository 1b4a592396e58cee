"""Kernel alignment of linear kernels from sums over rows, for any number of rows (section 3.2).

With X: n x p, Y: n x q, K = X Xᵀ and L = Y Yᵀ, every HSIC follows from Xᵀ Y and a few vectors, which add up over rows:
parts of the rows can be summed apart, added, or taken off again. HSIC does not change when a constant is taken off the
rows, and one near the mean is, so that nothing cancels. Knows prepared rows. Does not know other kernels or nulls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray
from scipy.linalg import blas

from icml25cli.core.progress import Progress
from icml25cli.papers.align.prepared import STEP, Prepared

_ssyrk: Any = getattr(blas, "ssyrk")  # noqa: B009 -- compiled, and unknown to type checkers


@dataclass(frozen=True)
class Terms:
    """All that HSIC needs of two kernels: sums with the diagonal in.

    Attributes:
        product: Σij Kij Lij.
        diagonal: Σi Kii Lii.
        rows: Σi (row sum of K)(row sum of L).
        rows_k, rows_l: Σi (row sum of K) Lii, and Σi Kii (row sum of L).
        sum_k, sum_l: of all entries.
        trace_k, trace_l: of the diagonals.
    """

    n: int
    product: float
    diagonal: float
    rows: float
    rows_k: float
    rows_l: float
    sum_k: float
    sum_l: float
    trace_k: float
    trace_l: float

    def biased(self) -> float:
        """tr(KHLH), H = I - 11ᵀ/n."""
        return self.product - 2 * self.rows / self.n + self.sum_k * self.sum_l / self.n**2

    def unbiased(self) -> float:
        """Song and others 2012, equation 5; may be negative; NaN of fewer than four rows, where it is not defined."""
        n = self.n
        if n < 4:
            return float("nan")
        product = self.product - self.diagonal
        rows = self.rows - self.rows_k - self.rows_l + self.diagonal
        sums = (self.sum_k - self.trace_k) * (self.sum_l - self.trace_l)
        return (product + sums / ((n - 1) * (n - 2)) - 2 * rows / (n - 2)) / (n * (n - 3))


@dataclass(frozen=True)
class Moments:
    """Sums over rows of X - a and Y - b, a and b constants: Xᵀ Y, each one's sum, and what the diagonals need."""

    n: int
    cross: Float64[ndarray, "p q"]
    sum_x: Float64[ndarray, "p"]
    sum_y: Float64[ndarray, "q"]
    x_by_y: Float64[ndarray, "p"]  # Σ x |y|²
    y_by_x: Float64[ndarray, "q"]
    diagonal: float
    trace_x: float
    trace_y: float

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(*(a + b for a, b in zip(self._parts(), other._parts(), strict=True)))

    def __sub__(self, other: "Moments") -> "Moments":
        return Moments(*(a - b for a, b in zip(self._parts(), other._parts(), strict=True)))

    def _parts(self) -> tuple:
        return tuple(vars(self).values())

    def terms(self) -> Terms:
        sx, sy = self.sum_x, self.sum_y
        return Terms(
            self.n,
            float(np.vdot(self.cross, self.cross)),
            self.diagonal,
            float(sx @ self.cross @ sy),
            float(sx @ self.x_by_y),
            float(sy @ self.y_by_x),
            float(sx @ sx),
            float(sy @ sy),
            self.trace_x,
            self.trace_y,
        )

    def uncentred(self, a: Float64[ndarray, "p"], b: Float64[ndarray, "q"]) -> float:
        """Σij Kij Lij of the rows as they are, a and b added back."""
        whole = self.cross + np.outer(self.sum_x, b) + np.outer(a, self.sum_y) + self.n * np.outer(a, b)
        return float(np.vdot(whole, whole))


@dataclass(frozen=True)
class Triple:
    """Moments of X with Y, X with X and Y with Y."""

    xy: Moments
    xx: Moments
    yy: Moments
    shift_x: Float64[ndarray, "p"]
    shift_y: Float64[ndarray, "q"]

    def __sub__(self, other: "Triple") -> "Triple":
        return Triple(self.xy - other.xy, self.xx - other.xx, self.yy - other.yy, self.shift_x, self.shift_y)

    def __add__(self, other: "Triple") -> "Triple":
        return Triple(self.xy + other.xy, self.xx + other.xx, self.yy + other.yy, self.shift_x, self.shift_y)

    def values(self) -> dict[str, float]:
        """Biased and unbiased CKA, the latter with its sign, and the cosine of uncentred kernels (cmd)."""
        xy, xx, yy = self.xy.terms(), self.xx.terms(), self.yy.terms()
        kk = self.xx.uncentred(self.shift_x, self.shift_x)
        ll = self.yy.uncentred(self.shift_y, self.shift_y)
        return {
            "ucka": ratio(xy.unbiased(), xx.unbiased(), yy.unbiased()),
            "cka": ratio(xy.biased(), xx.biased(), yy.biased()),
            "cmd": ratio(self.xy.uncentred(self.shift_x, self.shift_y), kk, ll),
        }


def ratio(between: float, own: float, other: float) -> float:
    """between / sqrt(own · other); NaN where a side does not vary."""
    return between / float(np.sqrt(own * other)) if own > 0 and other > 0 else float("nan")


def triple(x: Prepared, y: Prepared, rows: Int64[ndarray, "m"] | None = None) -> Triple:
    """Moments of the given rows, of all by default, read once."""

    a, b = (side[: min(side.rows, STEP)].mean(axis=0, dtype=np.float64) for side in (x, y))
    a32, b32 = a.astype(np.float32), b.astype(np.float32)
    p, q, count = x.columns, y.columns, x.rows if rows is None else len(rows)
    cross, own_x, own_y = np.zeros((p, q)), np.zeros((p, p)), np.zeros((q, q))
    sum_x, sum_y, x_by_x, y_by_y, x_by_y, y_by_x = (np.zeros(size) for size in (p, q, p, q, p, q))
    scalars = np.zeros(5)
    with Progress("sums over rows", count) as progress:
        for start in range(0, count, STEP):
            which = slice(start, min(count, start + STEP)) if rows is None else rows[start : start + STEP]
            u, v = x[which] - a32, y[which] - b32
            cross += u.T @ v
            own_x += _ssyrk(1, u.T)  # the upper triangle, twice as fast; u.T is in Fortran's order, as it wants
            own_y += _ssyrk(1, v.T)
            squares_u = np.einsum("ij,ij->i", u, u).astype(np.float64)
            squares_v = np.einsum("ij,ij->i", v, v).astype(np.float64)
            weights = np.stack([np.ones_like(squares_u), squares_u, squares_v]).astype(np.float32)
            for total, part in zip((sum_x, x_by_x, x_by_y), weights @ u, strict=True):
                total += part
            for total, part in zip((sum_y, y_by_x, y_by_y), weights @ v, strict=True):
                total += part
            scalars += (
                squares_u @ squares_v,
                squares_u @ squares_u,
                squares_v @ squares_v,
                squares_u.sum(),
                squares_v.sum(),
            )
            progress.advance(len(u))
    for own in (own_x, own_y):
        own += np.triu(own, 1).T
    xy, xx, yy, trace_x, trace_y = (float(s) for s in scalars)
    return Triple(
        Moments(count, cross, sum_x, sum_y, x_by_y, y_by_x, xy, trace_x, trace_y),
        Moments(count, own_x, sum_x, sum_x, x_by_x, x_by_x, xx, trace_x, trace_x),
        Moments(count, own_y, sum_y, sum_y, y_by_y, y_by_y, yy, trace_y, trace_y),
        a32.astype(np.float64),
        b32.astype(np.float64),
    )


def permutation_moments(xx: Moments, yy: Moments) -> tuple[float, float]:
    """Mean and standard deviation of biased CKA over all permutations of rows (Kazi-Aoual and others 1995), exact.

    With W the centred kernel, both follow from tr W, tr W² and Σ Wii².
    """
    n = xx.n
    betas, skews = [], []
    for own in (xx, yy):
        terms, mean = own.terms(), own.sum_x / own.n
        m2, square = float(mean @ mean), terms.biased()
        # Wii = |x - m|² = |x|² - 2 x·m + |m|², summed, and squared and summed
        trace = own.trace_x - n * m2
        diagonal = own.diagonal + 4 * float(mean @ own.cross @ mean) + n * m2**2
        diagonal += 2 * m2 * own.trace_x - 4 * float(own.x_by_y @ mean) - 4 * m2 * float(own.sum_x @ mean)
        beta = trace**2 / square
        betas.append(beta)
        skews.append(n * (n + 1) * diagonal / square - (n - 1) * (beta + 2))
    bx, by = betas
    variance = 2 * (n - 1 - bx) * (n - 1 - by) / ((n + 1) * (n - 1) ** 2 * (n - 2))
    variance += skews[0] * skews[1] / (n * (n + 1) * (n - 1) * (n - 2) * (n - 3))
    return float(np.sqrt(bx * by)) / (n - 1), float(np.sqrt(max(variance, 0.0)))


def unbiased_null(n: int) -> tuple[float, float]:
    """Mean and standard deviation of unbiased CKA over all permutations of rows: 0 and sqrt(2/(n(n-3))), exact.

    Unbiased HSIC is the product of kernels with empty diagonals and rows that sum to 0 (Székely and Rizzo 2014). Of
    such A and B, the expectation over permutations of (Σ Aij Bπ(i)π(j))² is 2 ΣA² ΣB² / (n(n-3)), whatever they are.
    """
    return 0.0, float(np.sqrt(2 / (n * (n - 3))))


def without_each(x: Prepared, y: Prepared, parts: Sequence[Int64[ndarray, "m"]]) -> tuple[dict[str, float], list]:
    """Values on all rows, and without each part of them, the parts being all rows together.

    Sums of the parts are kept where they fit in a GiB, else made twice.
    """
    bytes_each = 8 * (x.columns + y.columns) ** 2
    keep = bytes_each * len(parts) <= 2**30
    kept = []
    total = None
    for part in parts:
        found = triple(x, y, part)
        total = found if total is None else total + found
        kept += [found] * keep
    assert total is not None
    rest = [(total - (kept[i] if keep else triple(x, y, part))).values() for i, part in enumerate(parts)]
    return total.values(), rest

"""What no quantiser can beat: distortion of a Gaussian source, and of a product of Gaussian matrices.

Knows closed forms. Does not know any code.
"""

from functools import cache
from math import log
from typing import cast

from scipy.optimize import brentq


def distortion_bound(rate: float) -> float:
    """Least mean squared error per entry of N(0, 1) at ``rate`` bits per entry, D = 2^(−2R) (Shannon 1959)."""
    return 4.0**-rate


def matmul_bound(rate: float) -> float:
    """Γ(R): least error of an entry of AᵀB over n, when both factors are N(0, 1) and cost ``rate`` bits per entry.

    Lower convex envelope of f(R) = 2·2^(−2R) − 2^(−4R) with (0, 1): time sharing with nothing sent is best below the
    critical rate (Ordentlich and Polyanskiy, Optimal Quantization for Matrix Multiplication, 2024, theorem 1).
    """
    critical = critical_rate()
    if rate >= critical:
        return _product_error(rate)
    return 1 - (1 - _product_error(critical)) * rate / critical


@cache
def critical_rate() -> float:
    """R*: the rate in bits where the tangent of f passes through (0, 1)."""

    def gap(rate: float) -> float:
        slope = -4 * log(2) * (4.0**-rate - 16.0**-rate)
        return _product_error(rate) - slope * rate - 1

    return float(cast(float, brentq(gap, 0.5, 2.0, xtol=1e-14)))


def _product_error(rate: float) -> float:
    return 2 * 4.0**-rate - 16.0**-rate

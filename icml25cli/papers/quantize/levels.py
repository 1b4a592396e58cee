"""Scalar quantisers of numbers whose distribution is known: uniform, Lloyd-Max, and uniform with coded indices.

What a lattice has to beat on a Gaussian. Knows numbers of about unit variance. Does not know matrices, or side
information.
"""

import numpy as np
from jaxtyping import Float, Float32, Float64
from numpy import ndarray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtri

_ROUNDS = 2000  # of Lloyd's iteration, which at 64 levels has then moved by less than 1e-4 of the error


def uniform_step(sample: Float32[ndarray, "n"], levels: int) -> float:
    """Step of the uniform grid of this many levels, symmetric about zero, of least squared error on a sample."""

    def error(step: float) -> float:
        return float(np.square(sample - to_uniform(sample, step, levels)).mean(dtype=np.float64))

    found = minimize_scalar(error, bounds=(1e-3 / levels, 4.0), method="bounded", options={"xatol": 1e-5})
    return float(found.x)  # type: ignore[union-attr]


def to_uniform(x: Float32[ndarray, "*n"], step: float, levels: int) -> Float32[ndarray, "*n"]:
    """The nearest of ``levels`` values, which are the odd multiples of half a step for an even number of them."""
    shift = np.float32((levels - 1) / 2)
    index = np.clip(np.rint(x / np.float32(step) + shift), 0, levels - 1)
    return (index - shift) * np.float32(step)


def lloyd_max(sample: Float32[ndarray, "n"], levels: int) -> Float64[ndarray, "levels"]:
    """Values of least squared error on a sample (Lloyd 1957, Max 1960), from those that are best for many levels.

    There the density of values is that of the data to the power of a third, for a Gaussian a Gaussian of three times
    the variance (Panter and Dite 1951).
    """
    ordered = np.sort(sample.astype(np.float64))
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    values = np.sqrt(3) * ordered.std() * ndtri((np.arange(levels) + 0.5) / levels)
    for _ in range(_ROUNDS):
        edges = np.concatenate([[0], np.searchsorted(ordered, _middles(values)), [len(ordered)]])
        held = np.diff(edges)
        means = np.diff(sums[edges]) / np.maximum(held, 1)
        moved = np.where(held > 0, means, values)
        if np.array_equal(moved, values):
            break
        values = moved
    return values


def to_nearest(x: Float32[ndarray, "*n"], values: Float64[ndarray, "levels"]) -> Float32[ndarray, "*n"]:
    """The nearest of increasing values."""
    return values.astype(np.float32)[np.searchsorted(_middles(values), x)]


def entropy_coded_bits(x: Float32[ndarray, "rows n"], distortion: float, weights: Float[ndarray, "rows"]) -> float:
    """Rate of the uniform quantiser of unlimited levels whose error on ``x`` is ``distortion``.

    The rate is the empirical entropy of its indices, in bits a number: what an ideal variable-length code takes.

    Args:
        distortion: Σ weight·error², above 0.
        weights: of the squared errors of a row.
    """

    def excess(step: float) -> float:
        error = x - np.rint(x / np.float32(step)) * np.float32(step)
        return float(np.square(error).sum(axis=1, dtype=np.float64) @ weights) - distortion

    # A step s costs s²/12 while it is small, and where it is large, and all is 0, the energy of x.
    total = float(weights.sum() * x.shape[1])
    low, high = np.sqrt(12 * distortion / total) / 4, 2.5 * float(np.abs(x).max()) + 1e-30
    if excess(high) <= 0:
        return 0.0
    step = float(brentq(excess, low, high, xtol=1e-7 * low, rtol=1e-7))  # type: ignore[arg-type]
    index = np.rint(x / np.float32(step)).astype(np.int64)
    counts = np.bincount((index - index.min()).ravel())
    share = counts[counts > 0] / index.size
    return float(-(share * np.log2(share)).sum()) + 0.0


def _middles(values: Float64[ndarray, "levels"]) -> Float64[ndarray, "between"]:
    return (values[1:] + values[:-1]) / 2

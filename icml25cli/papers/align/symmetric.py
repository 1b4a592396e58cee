"""Association of two symmetric matrices of pairs of rows, and of their permutations: kernels and ranks of distances.

For as many rows as n x n numbers fit. Knows matrices. Does not know which metric they make.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray

from icml25cli.core.jit import compiled

Square = Float32[ndarray, "n n"]


def linear_kernel(x: Float32[ndarray, "n d"]) -> Square:
    import torch

    rows = torch.from_numpy(x)
    return (rows @ rows.T).numpy()


def rbf_kernel(x: Float32[ndarray, "n d"], sigma: float | None = 1.0) -> Square:
    """exp(-|x_i - x_j|² / (2 sigma²)); sigma None is the median distance."""
    square = squared_distances(x)
    if sigma is None:
        sigma = float(np.sqrt(np.median(square[np.triu_indices(len(x), 1)])))
    return np.exp(-square / (2 * sigma**2)) if sigma > 0 else np.ones_like(square)


def squared_distances(x: Float32[ndarray, "n d"]) -> Square:
    x = x - x.mean(axis=0)  # distances stay, and less cancels
    product = linear_kernel(x)
    own = np.diagonal(product)
    square = np.maximum(own[:, None] + own - 2 * product, 0)
    np.fill_diagonal(square, 0)
    return square


def centred(k: Square) -> Square:
    """Rows and columns sum to 0."""
    rows = k.mean(axis=1, dtype=np.float64)
    return _normed(k - rows[:, None] - rows + rows.mean())


def unit(k: Square) -> Square:
    """As it is."""
    return _normed(k.astype(np.float64))


def u_centred(k: Square) -> Square:
    """An empty diagonal, and rows and columns that sum to 0 (Székely and Rizzo 2014)."""
    n = len(k)
    k = k.astype(np.float64)
    np.fill_diagonal(k, 0)
    rows = k.sum(axis=1)
    k -= rows[:, None] / (n - 2) + rows / (n - 2) - rows.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(k, 0)
    return _normed(k)


def distance_ranks(x: Float32[ndarray, "n d"]) -> Square:
    """Ranks of the distances of pairs, equal ones sharing theirs, on either side of an empty diagonal."""
    from scipy.stats import rankdata

    above = np.triu_indices(len(x), 1)
    out = np.zeros((len(x), len(x)), np.float32)
    out[above] = rankdata(squared_distances(x)[above])
    return out + out.T


def about_their_mean(ranks: Square) -> Square:
    """Such that the product of two is the correlation of ranks: Spearman's, of all pairs."""
    n = len(ranks)
    out = ranks - ranks.sum(dtype=np.float64) / (n * (n - 1))
    np.fill_diagonal(out, 0)
    return _normed(out)


def _normed(a: Float64[ndarray, "n n"]) -> Square:
    length = np.sqrt(np.einsum("ij,ij->", a, a))
    return (a / length if length > 0 else np.full_like(a, np.nan)).astype(np.float32)


def association(a: Square, b: Square) -> float:
    """Σ aij bij: the cosine of two matrices of length 1."""
    return _product(a, b)


def permuted(a: Square, b: Square, orders: Sequence[Int64[ndarray, "n"]]) -> Float64[ndarray, "B"]:
    """The cosine once row i of the second side holds what row order[i] held, for each order."""
    return np.array([_permuted(a, b, order) for order in orders])


@compiled
def _product(a, b):
    total = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            total += np.float64(a[i, j]) * np.float64(b[i, j])
    return total


@compiled
def _permuted(a, b, order):
    total = 0.0
    for i in range(a.shape[0]):
        row = b[order[i]]
        part = 0.0
        for j in range(i):
            part += a[i, j] * row[order[j]]
        total += 2 * part + a[i, i] * row[order[i]]
    return total

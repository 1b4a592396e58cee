"""Nearest neighbours of every row, and agreement of two representations on them, without n × n matrices.

Knows arrays. Does not know files or what rows mean.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from numpy import ndarray
from scipy import sparse

BLOCK = 1024  # rows whose inner products with all others are in memory at once


@dataclass(frozen=True)
class Neighbours:
    """The k rows of the largest inner product with each row, itself left out, nearest first."""

    index: Int64[ndarray, "n k"]
    product: Float32[ndarray, "n k"]


def nearest(x: Float[ndarray, "n d"], k: int) -> Neighbours:
    """Exact neighbours by inner product; of equal ones any.

    Raises:
        ValueError: k is not below the number of rows.
    """
    if not 1 <= k < len(x):
        raise ValueError(f"{len(x)} rows have no {k} neighbours")
    rows = torch.as_tensor(np.ascontiguousarray(x, dtype=np.float32))
    index, product = np.empty((len(x), k), np.int64), np.empty((len(x), k), np.float32)
    for start in range(0, len(x), BLOCK):
        products = rows[start : start + BLOCK] @ rows.T
        own = torch.arange(len(products))
        products[own, start + own] = -torch.inf
        found = torch.topk(products, k)
        index[start : start + len(own)], product[start : start + len(own)] = found.indices, found.values
    return Neighbours(index, product)


def unit_rows(x: Float[ndarray, "n d"]) -> Float32[ndarray, "n d"]:
    """Rows over their length; rows of zeros stay."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x / np.where(length == 0, 1, length), np.float32)


def cknna(x: Neighbours, y: Neighbours) -> float:
    """Centred kernel alignment over mutual nearest neighbours (Huh and others 2024), unbiased, of linear kernels.

    Each of the three HSIC (Song and others 2012, equation 5) is of kernels that are zero but at pairs which are
    neighbours on both sides; only those n·k entries exist here. The masked kernels are not symmetric, so exchanging x
    and y changes the figure in the third digit.
    """
    k, l = _masked(x), _masked(y)  # noqa: E741 -- K and L of the papers
    both = _ones(k).multiply(_ones(l)).tocsr()
    between = _hsic(k.multiply(both).tocsr(), l.multiply(both).tocsr())
    return between / (float(np.sqrt(max(_hsic(k, k), 0.0) * max(_hsic(l, l), 0.0))) + 1e-6)


def _masked(x: Neighbours) -> sparse.csr_array:
    n, k = x.index.shape
    order = np.argsort(x.index, axis=1)  # products of matrices whose columns are out of order are wrong
    columns = np.take_along_axis(x.index, order, 1).ravel()
    values = np.take_along_axis(x.product, order, 1).ravel().astype(np.float64)
    return sparse.csr_array((values, columns, np.arange(0, n * k + 1, k)), (n, n))


def _ones(kernel: sparse.csr_array) -> sparse.csr_array:
    return sparse.csr_array((np.ones_like(kernel.data), kernel.indices, kernel.indptr), kernel.shape)


def _hsic(k: sparse.csr_array, l: sparse.csr_array) -> float:  # noqa: E741
    n = len(k.indptr) - 1
    diagonal = float(k.multiply(l.T).sum())
    product = float(k.sum()) * float(l.sum()) / ((n - 1) * (n - 2))
    mixed = 2 * float(np.asarray(k.sum(axis=0)).ravel() @ np.asarray(l.sum(axis=1)).ravel()) / (n - 2)
    return (diagonal + product - mixed) / (n * (n - 3))

"""Nearest neighbours of rows and how far two sets of them agree, without n × n matrices.

Knows arrays. Does not know files or what rows mean.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from numpy import ndarray

from icml25cli.core.jit import compiled

QUERIES, BASE = 1024, 4096  # rows on either side whose inner products are in memory at once


@dataclass(frozen=True)
class Neighbours:
    """The k rows of the largest inner product with each row, itself left out, nearest first."""

    index: Int64[ndarray, "n k"]
    product: Float32[ndarray, "n k"]


def nearest(x: Float[ndarray, "n d"], k: int) -> Neighbours:
    """Exact neighbours by inner product; of equal ones those of lower index.

    Raises:
        ValueError: k is not below the number of rows.
    """
    if not 1 <= k < len(x):
        raise ValueError(f"{len(x)} rows have no {k} neighbours")
    rows = np.ascontiguousarray(x, dtype=np.float32)
    own = np.arange(len(x))
    parts = [
        nearest_to(rows[s : s + QUERIES], own[s : s + QUERIES], _slices(rows), k) for s in range(0, len(x), QUERIES)
    ]
    return Neighbours(np.concatenate([p.index for p in parts]), np.concatenate([p.product for p in parts]))


def _slices(rows: Float32[ndarray, "n d"]) -> Iterable[tuple[int, ndarray]]:
    return ((start, rows[start : start + BASE]) for start in range(0, len(rows), BASE))


def nearest_to(
    queries: Float32[ndarray, "q d"],
    own: Int64[ndarray, "q"],
    base: Iterable[tuple[int, Float32[ndarray, "b d"]]],
    k: int,
) -> Neighbours:
    """The nearest rows of ``base``, which comes in ascending blocks with the number of their first row.

    Args:
        own: the number that each query has in ``base``, where it is not its own neighbour; -1 for none.
    """
    index = np.full((len(queries), k), -1, np.int64)
    product = np.full((len(queries), k), -np.inf, np.float32)
    rows = torch.from_numpy(queries)
    for start, block in base:
        _merge((rows @ torch.from_numpy(block).T).numpy(), start, own, index, product)
    return Neighbours(index, product)


@compiled
def _merge(products, start, own, index, product):
    """Put what is nearer than the farthest so far in its place; columns ascend, so equal ones stay in order."""
    k = index.shape[1]
    for row in range(products.shape[0]):
        farthest, itself = product[row, k - 1], own[row] - start
        for column in range(products.shape[1]):
            value = products[row, column]
            if value > farthest and column != itself:
                place = k - 1
                while place > 0 and product[row, place - 1] < value:
                    product[row, place], index[row, place] = product[row, place - 1], index[row, place - 1]
                    place -= 1
                product[row, place], index[row, place] = value, start + column
                farthest = product[row, k - 1]


def unit_rows(x: Float[ndarray, "n d"]) -> Float32[ndarray, "n d"]:
    """Rows over their length; rows of zeros stay."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x / np.where(length == 0, 1, length), np.float32)


# --- agreement ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """Inner products with neighbours alone, each row's in ascending order of the neighbours' numbers.

    Attributes:
        own: HSIC of this kernel with itself, which does not depend on the order of rows.
    """

    index: Int64[ndarray, "n k"]
    product: Float64[ndarray, "n k"]
    own: float


def masked_kernel(x: Neighbours) -> Kernel:
    """The kernel of ``x``, zero but at neighbours.

    Raises:
        ValueError: there are fewer than four rows, or less than two neighbours.
    """
    n, k = x.index.shape
    if n < 4 or k < 2:
        raise ValueError(f"{n} rows with {k} neighbours have no CKNNA")
    order = np.argsort(x.index, axis=1)
    index = np.ascontiguousarray(np.take_along_axis(x.index, order, 1))
    product = np.take_along_axis(x.product, order, 1).astype(np.float64)
    return Kernel(index, product, _both_ways(index, product, index, product)[0])


def cknna(x: Neighbours, y: Neighbours) -> float:
    """Centred kernel alignment over mutual nearest neighbours (Huh and others 2024), unbiased, of linear kernels.

    Each of the three HSIC (Song and others 2012, equation 5) is of kernels that are zero but at pairs which are
    neighbours on both sides; only those n·k entries exist here. The masked kernels are not symmetric, so exchanging x
    and y changes the figure in the third digit.
    """
    return kernel_alignment(masked_kernel(x), masked_kernel(y))[0]


def kernel_alignment(x: Kernel, y: Kernel) -> tuple[float, float]:
    """CKNNA of x with y, and of y with x."""
    one, other = _both_ways(x.index, x.product, y.index, y.product)
    scale = float(np.sqrt(max(x.own, 0.0) * max(y.own, 0.0))) + 1e-6
    return one / scale, other / scale


@compiled
def _both_ways(index_x, product_x, index_y, product_y):
    """HSIC of two kernels over their common entries, in both orders."""
    n, k = index_x.shape
    columns_x, columns_y = np.zeros(n), np.zeros(n)
    sum_x, sum_y, diagonal, mixed_xy, mixed_yx = 0.0, 0.0, 0.0, 0.0, 0.0
    rows_x, rows_y = np.zeros(n), np.zeros(n)
    for i in range(n):
        a = b = 0
        while a < k and b < k:
            j = index_x[i, a]
            if j < index_y[i, b]:
                a += 1
            elif j > index_y[i, b]:
                b += 1
            else:
                x, y = product_x[i, a], product_y[i, b]
                rows_x[i] += x
                rows_y[i] += y
                columns_x[j] += x
                columns_y[j] += y
                back_x, back_y = np.searchsorted(index_x[j], i), np.searchsorted(index_y[j], i)
                if back_x < k and back_y < k and index_x[j, back_x] == i and index_y[j, back_y] == i:
                    diagonal += x * product_y[j, back_y]
                a += 1
                b += 1
    for i in range(n):
        sum_x += rows_x[i]
        sum_y += rows_y[i]
        mixed_xy += columns_x[i] * rows_y[i]
        mixed_yx += columns_y[i] * rows_x[i]
    common = diagonal + sum_x * sum_y / ((n - 1) * (n - 2))
    scale = n * (n - 3)
    return (common - 2 * mixed_xy / (n - 2)) / scale, (common - 2 * mixed_yx / (n - 2)) / scale

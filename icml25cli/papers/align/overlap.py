"""Agreement of neighbour lists row by row: mutual neighbours, cycles, ordered lists (section 3.1).

Knows lists of numbers. Does not know where they come from.
"""

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from icml25cli.core.jit import compiled

Scores = Float64[ndarray, "m"]
Index = Int64[ndarray, "m k"]


def mutual(x: Index, y: Index, count: int) -> Scores:
    """Share of the k neighbours that both sides have; ``count`` rows are there in all."""
    return _mutual(x, y, np.full(count, -1, np.int64)) / x.shape[1]


@compiled
def _mutual(x, y, mark):
    shared = np.zeros(x.shape[0])
    for row in range(x.shape[0]):
        for place in range(x.shape[1]):
            mark[x[row, place]] = row
        for place in range(y.shape[1]):
            shared[row] += mark[y[row, place]] == row
    return shared


@compiled
def cycle(x: Index, y: Index) -> Scores:
    """Whether a row is a neighbour by x of one of its neighbours by y; every row needs a list."""
    found = np.zeros(x.shape[0])
    for row in range(x.shape[0]):
        for place in range(y.shape[1]):
            for back in x[y[row, place]]:
                if back == row:
                    found[row] = 1.0
    return found


@compiled
def longest_common(x: Index, y: Index) -> Scores:
    """Length of the longest common subsequence of the ordered lists, over k."""
    k = x.shape[1]
    length = np.zeros(x.shape[0])
    best = np.zeros(k + 1, np.int64)
    for row in range(x.shape[0]):
        best[:] = 0
        for a in range(k):
            corner = 0
            for b in range(k):
                above = best[b + 1]
                if x[row, a] == y[row, b]:
                    best[b + 1] = corner + 1
                else:
                    best[b + 1] = max(above, best[b])
                corner = above
        length[row] = best[k] / k
    return length


@compiled
def edit_similarity(x: Index, y: Index) -> Scores:
    """1 - the Levenshtein distance of the ordered lists over k."""
    k = x.shape[1]
    similarity = np.zeros(x.shape[0])
    cost = np.zeros(k + 1, np.int64)
    for row in range(x.shape[0]):
        for b in range(k + 1):
            cost[b] = b
        for a in range(k):
            corner, cost[0] = cost[0], a + 1
            for b in range(k):
                above = cost[b + 1]
                cost[b + 1] = min(above + 1, cost[b] + 1, corner + (x[row, a] != y[row, b]))
                corner = above
        similarity[row] = 1 - cost[k] / k
    return similarity


def mutual_null(k: int, count: int, rows: int) -> tuple[float, float]:
    """Mean and standard deviation of the mean share over ``rows`` when one side's rows are permuted.

    A row's overlap is hypergeometric. Rows depend on each other a little: the true deviation is up to 1.2 times this.
    """
    q = k / (count - 1)
    variance = k * q * (1 - q) * (count - 1 - k) / max(1, count - 2)
    return q, float(np.sqrt(variance / rows) / k)

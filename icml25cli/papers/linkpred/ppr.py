"""Personalised PageRank by forward push (Andersen, Chung and Lang 2006), local in large graphs.

Knows sparse matrices. Does not know what the ranks are for.
"""

from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray
from scipy import sparse

from icml25cli.core.jit import compiled
from icml25cli.core.progress import note, track
from icml25cli.papers.linkpred.graph import CSR

RESTART = 0.15
TOLERANCE = 1e-7  # error of π_u(v) over the degree of v
WORK = 1e10  # steps of all pushes together, beyond which the tolerance is relaxed
_SOURCES = 1000  # of one step of the progress that a person sees


def by_source(pairs: Int64[ndarray, "k 2"]) -> tuple[Int64[ndarray, "k 2"], Int64[ndarray, "s"], Int64[ndarray, "k"]]:
    """Pairs in groups of one first node, where each group begins (the end included), and their rows before.

    Scores here are symmetric, so a pair is turned to begin with the node that more pairs have.
    """
    uses = np.bincount(pairs.ravel())[pairs] if len(pairs) else pairs
    turned = np.where((uses[:, 1] > uses[:, 0])[:, None], pairs[:, ::-1], pairs)
    order = np.argsort(turned[:, 0], kind="stable")
    grouped = np.ascontiguousarray(turned[order])
    first = np.flatnonzero(np.diff(grouped[:, 0], prepend=-1))
    return grouped, np.append(first, len(pairs)), order


def ungrouped(scores: Float64[ndarray, "k"], order: Int64[ndarray, "k"]) -> Float64[ndarray, "k"]:
    """Scores of grouped pairs in the order that the pairs had before."""
    result = np.empty_like(scores)
    result[order] = scores
    return result


def ppr(adjacency: CSR, pairs: Int64[ndarray, "k 2"], tolerance: float | None = None) -> Float64[ndarray, "k"]:
    """Personalised PageRank of v from u plus that of u from v, with restart probability ``RESTART``.

    One push from u gives both, since d(u) π_u(v) = d(v) π_v(u) in an undirected graph.

    Args:
        tolerance: the error is at most this times d(u) + d(v); by default ``TOLERANCE``, or as much more as keeps
            the work for all sources together within ``WORK``.
    """
    grouped, first, order = by_source(pairs)
    if tolerance is None:
        tolerance = affordable(len(first) - 1, adjacency.nnz)
    reached = np.empty(len(pairs))
    for begin in track(range(0, len(first) - 1, _SOURCES), "personalised PageRank"):
        bounds = first[begin : begin + _SOURCES + 1]
        rows = slice(bounds[0], bounds[-1])
        _ppr_of_pairs(
            adjacency.indptr, adjacency.indices, grouped[rows], bounds - bounds[0], RESTART, tolerance, reached[rows]
        )
    degrees = np.diff(adjacency.indptr).astype(np.float64)
    of_u, of_v = degrees[grouped].T
    return ungrouped(reached * (1 + of_u / np.maximum(of_v, 1)), order)


def affordable(sources: int, stored: int) -> float:
    """The tolerance of pushes from that many sources: each takes at most 1/(tolerance · restart) steps."""
    sweeps = np.log(TOLERANCE) / np.log(1 - RESTART)  # of the whole graph, after which little is left to push
    if sources * sweeps * stored <= WORK:
        return TOLERANCE
    relaxed = max(TOLERANCE, sources / (RESTART * WORK))
    if relaxed > TOLERANCE:
        note(f"personalised PageRank from {sources:,} nodes is exact to {relaxed:.0e} of a node's degree")
    return relaxed


def ppr_rows(adjacency: CSR, sources: Int64[ndarray, "s"], tolerance: float = TOLERANCE) -> CSR:
    """Personalised PageRank from each of ``sources`` to all nodes v, sparse (s, n), to ``tolerance`` · d(v)."""
    n = adjacency.shape[0]
    rows = []
    for source in sources:
        nodes, values = _ppr_row(adjacency.indptr, adjacency.indices, int(source), RESTART, tolerance)
        rows.append(sparse.csr_array((values, (np.zeros(len(nodes), np.int64), nodes)), shape=(1, n)))
    return sparse.csr_array(sparse.vstack(rows)) if rows else sparse.csr_array((0, n))


@compiled
def push(
    indptr: Any, indices: Any, source: int, restart: float, tolerance: float, rank: Any, rest: Any, queue: Any, met: Any
) -> int:
    """Forward push (Andersen, Chung and Lang 2006) without laziness; ``rank`` and ``rest`` come and stay zero outside
    the first nodes of ``met``, whose number is returned. ``queue`` is a ring of n places: no node stands in it twice.
    """
    n = len(indptr) - 1
    rest[source] = 1.0
    met[0], count = source, 1
    queue[0], head, waiting = source, 0, 1
    while waiting:
        w = queue[head]
        head = (head + 1) % n
        waiting -= 1
        mass = rest[w]
        rest[w] = 0.0
        begin, end = indptr[w], indptr[w + 1]
        if begin == end:  # a walker that cannot leave
            rank[w] += mass
            continue
        rank[w] += restart * mass
        share = (1 - restart) * mass / (end - begin)
        for i in range(begin, end):
            x = indices[i]
            before = rest[x]
            if before == 0.0 and rank[x] == 0.0:
                met[count] = x
                count += 1
            rest[x] = before + share
            bar = tolerance * (indptr[x + 1] - indptr[x])
            if before < bar <= rest[x]:
                queue[(head + waiting) % n] = x
                waiting += 1
    return count


@compiled
def _ppr_of_pairs(
    indptr: Any, indices: Any, pairs: Any, first: Any, restart: float, tolerance: float, reached: Any
) -> None:
    n = len(indptr) - 1
    rank, rest, queue, met = np.zeros(n), np.zeros(n), np.empty(n, np.int64), np.empty(n, np.int64)
    for group in range(len(first) - 1):
        count = push(indptr, indices, pairs[first[group], 0], restart, tolerance, rank, rest, queue, met)
        for row in range(first[group], first[group + 1]):
            reached[row] = rank[pairs[row, 1]]
        for i in range(count):
            rank[met[i]] = 0.0
            rest[met[i]] = 0.0


@compiled
def _ppr_row(indptr: Any, indices: Any, source: int, restart: float, tolerance: float) -> Any:
    n = len(indptr) - 1
    rank, rest, queue, met = np.zeros(n), np.zeros(n), np.empty(n, np.int64), np.empty(n, np.int64)
    count = push(indptr, indices, source, restart, tolerance, rank, rest, queue, met)
    nodes = met[:count]
    nodes = nodes[rank[nodes] > 0]
    return nodes, rank[nodes]

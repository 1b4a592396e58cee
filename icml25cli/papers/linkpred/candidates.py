"""Pairs without an edge that are worth scoring: two steps apart, or near by personalised PageRank. Never all n².

Knows sparse matrices. Does not know scores of models.
"""

from typing import Any

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.core.jit import compiled
from icml25cli.core.progress import track
from icml25cli.papers.linkpred.graph import CSR, canonical, codes
from icml25cli.papers.linkpred.ppr import RESTART, affordable, push

TOLERANCE = 1e-5  # of PageRank: to tell near from far takes no more
HUB = 1000  # neighbours of a common neighbour beyond which it says next to nothing about any two of them


def candidate_pairs(
    adjacency: CSR, nodes: Int64[ndarray, "s"] | None = None, per_node: int = 100
) -> Int64[ndarray, "k 2"]:
    """Canonical pairs in ascending order, none of them an edge: for each node its ``per_node`` best partners by
    resource allocation, all of them two steps away, and as many by personalised PageRank.

    Args:
        adjacency: symmetric (n, n), indices sorted.
        nodes: whose partners are asked for; all nodes by default. Common neighbours of more than ``HUB`` neighbours
            count only where at most ``HUB`` nodes are asked about: the work is the sum of their squares.
    """
    n = adjacency.shape[0]
    sources = np.arange(n) if nodes is None else np.unique(nodes)
    hub = n if len(sources) <= HUB else HUB
    partners = np.empty((len(sources), 2 * per_node), np.int64)
    tolerance = max(TOLERANCE, affordable(len(sources), adjacency.nnz))
    for begin in track(range(0, len(sources), 1000), "candidates, a thousand nodes each"):
        rows = slice(begin, begin + 1000)
        _partners(adjacency.indptr, adjacency.indices, sources[rows], per_node, hub, RESTART, tolerance, partners[rows])
    rows, columns = np.nonzero(partners >= 0)
    pairs = canonical(np.stack([sources[rows], partners[rows, columns]], axis=1))
    found = np.unique(codes(pairs, n))
    return np.stack([found // n, found % n], axis=1)


@compiled
def _partners(
    indptr: Any, indices: Any, sources: Any, per_node: int, hub: int, restart: float, tolerance: float, partners: Any
) -> None:
    n = len(indptr) - 1
    rank, rest, queue, met = np.zeros(n), np.zeros(n), np.empty(n, np.int64), np.empty(n, np.int64)
    resource = np.zeros(n)
    near = np.zeros(n, np.bool_)  # the source and its neighbours
    two_steps = np.empty(n, np.int64)
    for place in range(len(sources)):
        u = sources[place]
        partners[place] = -1
        near[u] = True
        for i in range(indptr[u], indptr[u + 1]):
            near[indices[i]] = True
        count = 0
        for i in range(indptr[u], indptr[u + 1]):
            w = indices[i]
            degree = indptr[w + 1] - indptr[w]
            if degree > hub:
                continue
            for j in range(indptr[w], indptr[w + 1]):
                x = indices[j]
                if near[x]:
                    continue
                if resource[x] == 0.0:
                    two_steps[count] = x
                    count += 1
                resource[x] += 1.0 / degree
        found = two_steps[:count]
        best = found[np.argsort(-resource[found], kind="mergesort")[:per_node]]
        partners[place, : len(best)] = best
        resource[found] = 0.0

        count = push(indptr, indices, u, restart, tolerance, rank, rest, queue, met)
        reached = met[:count]
        far = reached[(rank[reached] > 0) & ~near[reached]]
        best = far[np.argsort(-rank[far], kind="mergesort")[:per_node]]
        partners[place, per_node : per_node + len(best)] = best
        rank[reached] = 0.0
        rest[reached] = 0.0

        near[u] = False
        for i in range(indptr[u], indptr[u + 1]):
            near[indices[i]] = False

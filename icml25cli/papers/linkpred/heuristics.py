"""Scores of node pairs by the neighbourhoods and walks around them, without learning.

    common_neighbors         |N(u) ∩ N(v)|
    jaccard                  |N(u) ∩ N(v)| / |N(u) ∪ N(v)|
    preferential_attachment  d(u) d(v)
    adamic_adar              Σ over common neighbours w of 1 / ln d(w)   (Adamic and Adar 2003)
    resource_allocation      Σ over common neighbours w of 1 / d(w)      (Zhou, Lü and Zhang 2009)
    katz                     Σ over l of β^l (A^l)_uv                    (Katz 1953)
    ppr                      π_u(v) + π_v(u), random walks that restart at u or v
    shortest_path            1 / distance, 1/999 where there is no path
    feature_cosine           of the feature rows, 0 where a row is zero

An edge between the two nodes of a pair counts like any other: take the edges to be foretold out of the graph first.
Knows sparse matrices. Does not know splits, learning or files.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray
from scipy import sparse
from scipy.sparse.linalg import eigsh

from icml25cli.core.errors import InputError
from icml25cli.core.jit import compiled
from icml25cli.papers.linkpred.graph import CSR, Features
from icml25cli.papers.linkpred.ppr import by_source, ppr, ungrouped

LOCAL = ("common_neighbors", "jaccard", "preferential_attachment", "adamic_adar", "resource_allocation")
HEURISTICS = (*LOCAL, "katz", "ppr", "shortest_path", "feature_cosine")
KATZ_BETA = 0.005
KATZ_EXACT = 3000  # nodes below which walks of every length count, else those of up to three steps
UNREACHABLE = 1 / 999
_BATCH = 2**22  # stored numbers of two feature slices


def score_pairs(
    adjacency: CSR,
    pairs: Int64[ndarray, "*k 2"],
    methods: Sequence[str] = HEURISTICS,
    features: Features | None = None,
) -> dict[str, Float64[ndarray, "*k"]]:
    """Scores of ``pairs`` by each of ``methods``, higher for a likelier link.

    Args:
        adjacency: symmetric (n, n), without a diagonal, indices sorted.
        features: needed by feature_cosine alone, which is left out without them.

    Raises:
        InputError: a method is unknown.
    """
    unknown = [name for name in methods if name not in HEURISTICS]
    if unknown:
        raise InputError(f"no heuristic is called '{unknown[0]}'", hint=f"choose of {', '.join(HEURISTICS)}")
    shape = pairs.shape[:-1]
    flat = np.ascontiguousarray(pairs.reshape(-1, 2))
    scores: dict[str, ndarray] = {}
    if any(name in LOCAL for name in methods):
        scores |= _local(adjacency, flat, methods)
    for name, score in (("katz", katz), ("ppr", ppr), ("shortest_path", shortest_path)):
        if name in methods:
            scores[name] = score(adjacency, flat)
    if "feature_cosine" in methods and features is not None:
        scores["feature_cosine"] = feature_cosine(features, flat)
    return {name: scores[name].reshape(shape) for name in methods if name in scores}


# --- common neighbours -------------------------------------------------------------------------------------------


def _local(adjacency: CSR, pairs: Int64[ndarray, "k 2"], methods: Sequence[str]) -> dict[str, Float64[ndarray, "k"]]:
    """Those of ``methods`` that are of ``LOCAL``, from one pass over the neighbours of each pair."""
    degrees = np.diff(adjacency.indptr).astype(np.float64)
    of_u, of_v = degrees[pairs[:, 0]], degrees[pairs[:, 1]]
    scores = {"preferential_attachment": of_u * of_v}
    if any(name in LOCAL and name not in scores for name in methods):
        logarithms = np.log(np.maximum(degrees, 2))  # a common neighbour of two nodes has degree two at least
        common, adamic, resource = (np.empty(len(pairs)) for _ in range(3))
        _common_neighbors(
            *(adjacency.indptr, adjacency.indices, pairs),
            *(1 / logarithms, 1 / np.maximum(degrees, 1)),
            *(common, adamic, resource),
        )
        scores |= {
            "common_neighbors": common,
            "jaccard": common / np.maximum(of_u + of_v - common, 1),
            "adamic_adar": adamic,
            "resource_allocation": resource,
        }
    return scores


@compiled
def _common_neighbors(
    indptr: Any,
    indices: Any,
    pairs: Any,
    adamic_weight: Any,
    resource_weight: Any,
    common: Any,
    adamic: Any,
    resource: Any,
) -> None:
    """Neighbours of u are marked, those of v looked up: no comparison that a processor could guess wrongly, unlike a
    walk along both lists. Where one list is far longer, the members of the other are searched for in it."""
    marks = np.full(len(indptr) - 1, -1, np.int32)
    marked, mark = -1, -1
    for row in range(len(pairs)):
        u, v = pairs[row, 0], pairs[row, 1]
        if indptr[u + 1] - indptr[u] < indptr[v + 1] - indptr[v]:
            u, v = v, u
        theirs, ours = indices[indptr[u] : indptr[u + 1]], indices[indptr[v] : indptr[v + 1]]
        count, a, r = 0, 0.0, 0.0
        if len(theirs) <= 16 * len(ours) or u == marked:
            if u != marked:
                marked = u
                mark += 1
                for w in theirs:
                    marks[w] = mark
            for w in ours:
                if marks[w] == mark:
                    count += 1
                    a += adamic_weight[w]
                    r += resource_weight[w]
        else:
            for w in ours:
                place = np.searchsorted(theirs, w)
                if place < len(theirs) and theirs[place] == w:
                    count += 1
                    a += adamic_weight[w]
                    r += resource_weight[w]
        common[row], adamic[row], resource[row] = count, a, r


# --- walks -------------------------------------------------------------------------------------------------------


def katz(adjacency: CSR, pairs: Int64[ndarray, "k 2"], beta: float = KATZ_BETA) -> Float64[ndarray, "k"]:
    """Walks between the two nodes, those of l steps weighted by β^l.

    Walks of every length, (I − βA)⁻¹ − I, below ``KATZ_EXACT`` nodes if the series converges there (β times the
    largest eigenvalue is below 1); else walks of up to three steps.
    """
    grouped, first, order = by_source(pairs)
    scores = np.empty(len(pairs))
    if adjacency.shape[0] < KATZ_EXACT and beta * _largest_eigenvalue(adjacency) < 1:
        _all_walks(adjacency, grouped, first, beta, scores)
    else:
        _short_walks(adjacency.indptr, adjacency.indices, grouped, first, beta, scores)
    return ungrouped(scores, order)


def _largest_eigenvalue(adjacency: CSR) -> float:
    if adjacency.shape[0] < 100:
        return float(np.linalg.eigvalsh(adjacency.toarray()).max())
    lanczos: Any = eigsh  # annotated to take whole tolerances only
    start = np.ones(adjacency.shape[0])  # it would begin at random
    return float(lanczos(adjacency.astype(np.float64), 1, which="LA", v0=start, return_eigenvectors=False, tol=1e-6)[0])


def _all_walks(adjacency: CSR, pairs: ndarray, first: ndarray, beta: float, scores: ndarray) -> None:
    """The series βA + (βA)² + ... from each source until its terms are nothing beside the sum."""
    step = adjacency.astype(np.float64) * beta
    for begin in range(0, len(first) - 1, 256):
        bounds = first[begin : begin + 257]
        rows = slice(bounds[0], bounds[-1])
        term = step[:, pairs[bounds[:-1], 0]].toarray()
        total = term.copy()
        while term.max() > 1e-12 * total.max():
            term = step @ term
            total += term
        source = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        scores[rows] = total[pairs[rows, 1], source]


@compiled
def _short_walks(indptr: Any, indices: Any, pairs: Any, first: Any, beta: float, scores: Any) -> None:
    one = np.zeros(len(indptr) - 1)  # walks of one step from the source, to each node
    two = np.zeros(len(indptr) - 1)
    for group in range(len(first) - 1):
        u = pairs[first[group], 0]
        for i in range(indptr[u], indptr[u + 1]):
            one[indices[i]] = 1
            for j in range(indptr[indices[i]], indptr[indices[i] + 1]):
                two[indices[j]] += 1
        for row in range(first[group], first[group + 1]):
            v = pairs[row, 1]
            three = 0.0
            for i in range(indptr[v], indptr[v + 1]):
                three += two[indices[i]]
            scores[row] = beta * one[v] + beta**2 * two[v] + beta**3 * three
        for i in range(indptr[u], indptr[u + 1]):
            one[indices[i]] = 0
            for j in range(indptr[indices[i]], indptr[indices[i] + 1]):
                two[indices[j]] = 0


# --- distance and features ---------------------------------------------------------------------------------------


def shortest_path(adjacency: CSR, pairs: Int64[ndarray, "k 2"]) -> Float64[ndarray, "k"]:
    """1 over the number of steps from u to v, ``UNREACHABLE`` where there is no path."""
    _, component = sparse.csgraph.connected_components(adjacency, directed=False)
    distances = np.zeros(len(pairs), np.int64)
    joined = np.flatnonzero(component[pairs[:, 0]] == component[pairs[:, 1]])
    _distances(adjacency.indptr, adjacency.indices, pairs, joined, distances)
    return np.where(distances > 0, 1 / np.maximum(distances, 1), UNREACHABLE)


@compiled
def _distances(indptr: Any, indices: Any, pairs: Any, rows: Any, distances: Any) -> None:
    """Breadth-first search from both ends, the smaller front first; the first node both have met closes the path."""
    n = len(indptr) - 1
    met_by = np.zeros(n, np.int8)
    lists = np.empty((2, n), np.int64)  # nodes met from u and from v, each a list whose tail is the front
    for row in rows:
        u, v = pairs[row, 0], pairs[row, 1]
        lists[0, 0], lists[1, 0] = u, v
        met_by[u], met_by[v] = 1, 2
        begin0, end0, begin1, end1 = 0, 1, 0, 1
        steps, found = 0, False
        while not found:
            side = 0 if end0 - begin0 <= end1 - begin1 else 1
            begin, end = (begin0, end0) if side == 0 else (begin1, end1)
            last = end
            steps += 1
            for place in range(begin, end):
                x = lists[side, place]
                for i in range(indptr[x], indptr[x + 1]):
                    y = indices[i]
                    if met_by[y] == 0:
                        met_by[y] = side + 1
                        lists[side, last] = y
                        last += 1
                    elif met_by[y] == 2 - side:
                        found = True
                        break
                if found:
                    break
            if side == 0:
                begin0, end0 = end0, last
            else:
                begin1, end1 = end1, last
        distances[row] = steps
        for i in range(end0):
            met_by[lists[0, i]] = 0
        for i in range(end1):
            met_by[lists[1, i]] = 0


def feature_cosine(features: Features, pairs: Int64[ndarray, "k 2"]) -> Float64[ndarray, "k"]:
    """Cosine of the feature rows of both nodes, 0 where a row is zero."""
    dense = isinstance(features, np.ndarray)
    squares = features**2 if dense else features.multiply(features)
    norms = np.sqrt(np.asarray(squares.sum(axis=1), np.float64))
    norms[norms == 0] = 1
    width = max(1, features.shape[1] if dense else features.nnz // features.shape[0])
    step = max(1, _BATCH // width)
    scores = np.empty(len(pairs))
    for start in range(0, len(pairs), step):
        u, v = pairs[start : start + step].T
        product = features[u] * features[v] if dense else features[u].multiply(features[v])
        scores[start : start + step] = product.sum(axis=1) / (norms[u] * norms[v])
    return scores

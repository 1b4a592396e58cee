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
from icml25cli.core.progress import note
from icml25cli.papers.linkpred.graph import Features

LOCAL = ("common_neighbors", "jaccard", "preferential_attachment", "adamic_adar", "resource_allocation")
HEURISTICS = (*LOCAL, "katz", "ppr", "shortest_path", "feature_cosine")
KATZ_BETA = 0.005
KATZ_EXACT = 3000  # nodes below which walks of every length count, else those of up to three steps
PPR_RESTART = 0.15
PPR_TOLERANCE = 1e-7  # error of π_u(v) over the degree of v
PPR_WORK = 2e10  # steps of all pushes together, beyond which the tolerance is relaxed
UNREACHABLE = 1 / 999
_BATCH = 2**22  # stored numbers of two feature slices


def score_pairs(
    adjacency: sparse.csr_array,
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
        scores |= _local(adjacency, flat)
    for name, score in (("katz", katz), ("ppr", ppr), ("shortest_path", shortest_path)):
        if name in methods:
            scores[name] = score(adjacency, flat)
    if "feature_cosine" in methods and features is not None:
        scores["feature_cosine"] = feature_cosine(features, flat)
    return {name: scores[name].reshape(shape) for name in methods if name in scores}


# --- common neighbours -------------------------------------------------------------------------------------------


def _local(adjacency: sparse.csr_array, pairs: Int64[ndarray, "k 2"]) -> dict[str, Float64[ndarray, "k"]]:
    """All of ``LOCAL`` from one pass over the common neighbours of each pair."""
    degrees = np.diff(adjacency.indptr).astype(np.float64)
    logarithms = np.log(np.maximum(degrees, 2))  # a common neighbour of two nodes has degree two at least
    common, adamic, resource = (np.empty(len(pairs)) for _ in range(3))
    _common_neighbors(
        adjacency.indptr, adjacency.indices, pairs, 1 / logarithms, 1 / np.maximum(degrees, 1), common, adamic, resource
    )
    of_u, of_v = degrees[pairs[:, 0]], degrees[pairs[:, 1]]
    return {
        "common_neighbors": common,
        "jaccard": common / np.maximum(of_u + of_v - common, 1),
        "preferential_attachment": of_u * of_v,
        "adamic_adar": adamic,
        "resource_allocation": resource,
    }


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
    for row in range(len(pairs)):
        u, v = pairs[row, 0], pairs[row, 1]
        if indptr[u + 1] - indptr[u] > indptr[v + 1] - indptr[v]:
            u, v = v, u
        i, i_end = indptr[u], indptr[u + 1]
        j, j_end = indptr[v], indptr[v + 1]
        hub = j_end - j > 16 * (i_end - i)  # far longer than the other list: search it instead of walking along
        count, a, r = 0, 0.0, 0.0
        while i < i_end and j < j_end:
            w = indices[i]
            if hub:
                j += np.searchsorted(indices[j:j_end], w)
            else:
                while j < j_end and indices[j] < w:
                    j += 1
            if j < j_end and indices[j] == w:
                count += 1
                a += adamic_weight[w]
                r += resource_weight[w]
            i += 1
        common[row], adamic[row], resource[row] = count, a, r


# --- walks -------------------------------------------------------------------------------------------------------


def katz(adjacency: sparse.csr_array, pairs: Int64[ndarray, "k 2"], beta: float = KATZ_BETA) -> Float64[ndarray, "k"]:
    """Walks between the two nodes, those of l steps weighted by β^l.

    Walks of every length, (I − βA)⁻¹ − I, below ``KATZ_EXACT`` nodes if the series converges there (β times the
    largest eigenvalue is below 1); else walks of up to three steps.
    """
    grouped, first, order = _by_source(pairs)
    scores = np.empty(len(pairs))
    if adjacency.shape[0] < KATZ_EXACT and beta * _largest_eigenvalue(adjacency) < 1:
        _all_walks(adjacency, grouped, first, beta, scores)
    else:
        _short_walks(adjacency.indptr, adjacency.indices, grouped, first, beta, scores)
    return _ungrouped(scores, order)


def _largest_eigenvalue(adjacency: sparse.csr_array) -> float:
    if adjacency.shape[0] < 100:
        return float(np.linalg.eigvalsh(adjacency.toarray()).max())
    start = np.ones(adjacency.shape[0])  # Lanczos would begin at random
    return float(eigsh(adjacency.astype(np.float64), k=1, which="LA", v0=start, return_eigenvectors=False, tol=1e-6)[0])


def _by_source(pairs: Int64[ndarray, "k 2"]) -> tuple[Int64[ndarray, "k 2"], Int64[ndarray, "s"], Int64[ndarray, "k"]]:
    """Pairs in groups of one first node, where each group begins (the end included), and their rows before.

    Scores here are symmetric, so a pair is turned to begin with the node that more pairs have.
    """
    uses = np.bincount(pairs.ravel())[pairs] if len(pairs) else pairs
    turned = np.where((uses[:, 1] > uses[:, 0])[:, None], pairs[:, ::-1], pairs)
    order = np.argsort(turned[:, 0], kind="stable")
    grouped = np.ascontiguousarray(turned[order])
    first = np.flatnonzero(np.diff(grouped[:, 0], prepend=-1))
    return grouped, np.append(first, len(pairs)), order


def _ungrouped(scores: Float64[ndarray, "k"], order: Int64[ndarray, "k"]) -> Float64[ndarray, "k"]:
    result = np.empty_like(scores)
    result[order] = scores
    return result


def _all_walks(adjacency: sparse.csr_array, pairs: ndarray, first: ndarray, beta: float, scores: ndarray) -> None:
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


def ppr(
    adjacency: sparse.csr_array, pairs: Int64[ndarray, "k 2"], tolerance: float | None = None
) -> Float64[ndarray, "k"]:
    """Personalised PageRank of v from u plus that of u from v, with restart probability ``PPR_RESTART``.

    One push from u gives both, since d(u) π_u(v) = d(v) π_v(u) in an undirected graph.

    Args:
        tolerance: the error is at most this times d(u) + d(v); by default ``PPR_TOLERANCE``, or as much more as keeps
            the work for all sources together within ``PPR_WORK``.
    """
    grouped, first, order = _by_source(pairs)
    if tolerance is None:
        tolerance = _affordable(len(first) - 1, adjacency.nnz)
    reached = np.empty(len(pairs))
    _ppr_of_pairs(adjacency.indptr, adjacency.indices, grouped, first, PPR_RESTART, tolerance, reached)
    degrees = np.diff(adjacency.indptr).astype(np.float64)
    of_u, of_v = degrees[grouped].T
    return _ungrouped(reached * (1 + of_u / np.maximum(of_v, 1)), order)


def _affordable(sources: int, stored: int) -> float:
    """The tolerance of pushes from that many sources: each takes at most 1/(tolerance · restart) steps."""
    sweeps = np.log(PPR_TOLERANCE) / np.log(1 - PPR_RESTART)  # of the whole graph, after which little is left to push
    if sources * sweeps * stored <= PPR_WORK:
        return PPR_TOLERANCE
    relaxed = max(PPR_TOLERANCE, sources / (PPR_RESTART * PPR_WORK))
    if relaxed > PPR_TOLERANCE:
        note(f"personalised PageRank from {sources:,} nodes is computed to {relaxed:.0e} of a node's degree")
    return relaxed


def ppr_rows(
    adjacency: sparse.csr_array, sources: Int64[ndarray, "s"], tolerance: float = PPR_TOLERANCE
) -> sparse.csr_array:
    """Personalised PageRank from each of ``sources`` to all nodes v, sparse (s, n), to ``tolerance`` · d(v)."""
    n = adjacency.shape[0]
    rows = []
    for source in sources:
        nodes, values = _ppr_row(adjacency.indptr, adjacency.indices, int(source), PPR_RESTART, tolerance)
        rows.append(sparse.csr_array((values, (np.zeros(len(nodes), np.int64), nodes)), shape=(1, n)))
    return sparse.csr_array(sparse.vstack(rows)) if rows else sparse.csr_array((0, n))


@compiled
def _push(
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
        count = _push(indptr, indices, pairs[first[group], 0], restart, tolerance, rank, rest, queue, met)
        for row in range(first[group], first[group + 1]):
            reached[row] = rank[pairs[row, 1]]
        for i in range(count):
            rank[met[i]] = 0.0
            rest[met[i]] = 0.0


@compiled
def _ppr_row(indptr: Any, indices: Any, source: int, restart: float, tolerance: float) -> Any:
    n = len(indptr) - 1
    rank, rest, queue, met = np.zeros(n), np.zeros(n), np.empty(n, np.int64), np.empty(n, np.int64)
    count = _push(indptr, indices, source, restart, tolerance, rank, rest, queue, met)
    nodes = met[:count]
    nodes = nodes[rank[nodes] > 0]
    return nodes, rank[nodes]


# --- distance and features ---------------------------------------------------------------------------------------


def shortest_path(adjacency: sparse.csr_array, pairs: Int64[ndarray, "k 2"]) -> Float64[ndarray, "k"]:
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
    squares = features.multiply(features).sum(axis=1) if sparse.issparse(features) else (features**2).sum(axis=1)
    norms = np.sqrt(np.asarray(squares, np.float64))
    norms[norms == 0] = 1
    width = max(1, features.nnz // features.shape[0] if sparse.issparse(features) else features.shape[1])
    step = max(1, _BATCH // width)
    scores = np.empty(len(pairs))
    for start in range(0, len(pairs), step):
        u, v = pairs[start : start + step].T
        product = features[u].multiply(features[v]) if sparse.issparse(features) else features[u] * features[v]
        scores[start : start + step] = product.sum(axis=1) / (norms[u] * norms[v])
    return scores

"""Hard negatives of HeaRT (Li et al., NeurIPS 2023): pairs that heuristics take for edges.

For each end of a positive pair all nodes are ranked as partners by resource allocation, personalised PageRank and,
where there are attributes, their cosine; a node's rank is the best of these, and the best 250 nodes replace the other
end. Known are training edges for validation, and validation edges too for test, so that a negative of validation may be
a test edge, and one of a positive may be another positive, as in HeaRT.

Knows graphs and splits. Does not know models.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray
from scipy import sparse
from scipy.stats import rankdata

from icml25cli.core.errors import InputError
from icml25cli.core.progress import track
from icml25cli.papers.linkpred.graph import CSR, Features, Graph, adjacency, canonical
from icml25cli.papers.linkpred.ppr import affordable, ppr_rows
from icml25cli.papers.linkpred.splits import Split, with_negatives

PER_END = 250


def with_hard_negatives(graph: Graph, split: Split, rng: np.random.Generator, per_end: int = PER_END) -> Split:
    """The same split with hard negatives of both parts; fewer than 2 · ``per_end`` each where the graph is small.

    Raises:
        InputError: a node of a positive pair is linked to all others.
    """
    # Bounded by the graph and not by the split: figures of several splits are of equally many negatives.
    per_end = min(per_end, max(1, graph.num_nodes - 1 - int(graph.degrees.max(initial=0))))
    late = np.concatenate([split.train, split.valid.positives])
    return with_negatives(
        split,
        hard_negatives(adjacency(split.train, graph.num_nodes), split.valid.positives, graph.features, rng, per_end),
        hard_negatives(adjacency(late, graph.num_nodes), split.test.positives, graph.features, rng, per_end),
    )


def hard_negatives(
    known: CSR,
    positives: Int64[ndarray, "p 2"],
    features: Features | None,
    rng: np.random.Generator,
    per_end: int = PER_END,
) -> Int64[ndarray, "p k 2"]:
    """For each positive (u, v) first the pairs that keep u, then those that keep v, half of k each.

    Args:
        known: symmetric adjacency of the edges known by then, which are never negatives.
        per_end: most pairs that keep one end; where a node has fewer possible partners, all positives get as many.

    Raises:
        InputError: a node of a positive pair is linked to all others.
    """
    n = known.shape[0]
    free = n - 1 - np.diff(known.indptr)[positives]  # neither the node itself nor its neighbours ...
    free = free - (~_linked(known, positives)).astype(int)[:, None]  # ... nor the partner
    per_end = min(per_end, int(free.min(initial=per_end)))
    if per_end < 1:
        node = positives[free.min(axis=1) < 1][0]
        raise InputError(
            f"the nodes {node[0]} and {node[1]} leave no pair without an edge", hint="give a sparser graph"
        )
    ends, users = np.unique(positives.ravel(), return_inverse=True)
    tolerance = affordable(len(ends), known.nnz)
    rows = _Rows(known, features)
    chosen = np.empty((len(positives), 2, per_end), np.int64)
    order = np.argsort(users, kind="stable")
    bounds = np.searchsorted(users[order], np.arange(len(ends) + 1))
    for place, node in enumerate(track(ends.tolist(), "hard negatives of nodes")):
        scores = rows.of(node, tolerance)
        taken = np.zeros(n, bool)
        taken[known.indices[known.indptr[node] : known.indptr[node + 1]]] = True
        taken[node] = True
        for use in order[bounds[place] : bounds[place + 1]]:
            row, side = divmod(int(use), 2)
            partner = positives[row, 1 - side]
            before, taken[partner] = taken[partner], True
            chosen[row, side] = _hardest(scores, taken, per_end, rng)
            taken[partner] = before
    kept = np.broadcast_to(positives[:, :, None], chosen.shape)
    return canonical(np.stack([kept, chosen], axis=-1).reshape(len(positives), 2 * per_end, 2))


def _linked(known: CSR, pairs: Int64[ndarray, "p 2"]) -> Bool[ndarray, "p"]:
    return np.asarray(known[pairs[:, 0], pairs[:, 1]]).ravel() > 0


class _Rows:
    """Scores of one node with all others, by each heuristic."""

    def __init__(self, known: CSR, features: Features | None) -> None:
        self.known = known
        degrees = np.diff(known.indptr)
        self.weights = 1 / np.maximum(degrees, 1)
        self.unit: Features | None = None
        if features is not None:
            dense = isinstance(features, np.ndarray)
            norms = np.sqrt(np.asarray((features**2 if dense else features.multiply(features)).sum(axis=1)))
            scale = 1 / np.where(norms > 0, norms, 1)
            self.unit = features * scale[:, None] if dense else sparse.diags_array(scale) @ features

    def of(self, node: int, tolerance: float) -> Float64[ndarray, "h n"]:
        neighbours = self.known[[node], :]
        resource = (neighbours * self.weights) @ self.known
        found = [resource.toarray().ravel(), ppr_rows(self.known, np.array([node]), tolerance).toarray().ravel()]
        if self.unit is not None:
            row = self.unit[[node], :]
            cosine: Any = self.unit @ row.T
            found.append((cosine if isinstance(cosine, np.ndarray) else cosine.toarray()).ravel())
        return np.stack(found).astype(np.float64)


def _hardest(
    scores: Float64[ndarray, "h n"], taken: Bool[ndarray, "n"], count: int, rng: np.random.Generator
) -> Int64[ndarray, "count"]:
    """The ``count`` best ranked nodes that are not taken; ties, and nodes without any score, in random order.

    Among scores above 0 the highest has rank 1, and equal ones share the worst rank of theirs. A score of 0 ranks one
    below all those. A heuristic that knows no node at all has no say.
    """
    found = (scores > 0) & ~taken
    best = np.full(scores.shape[1], np.inf)
    for row, above in zip(scores, found, strict=True):
        if above.any():
            ascending = rankdata(row[above], method="min")
            ranks = ascending.max() - ascending + 1
            best[above] = np.minimum(best[above], ranks)
            best[~above] = np.minimum(best[~above], ranks.max() + 1)
    best[~found.any(axis=0)] = np.inf
    free = rng.permutation(np.flatnonzero(~taken))
    return free[np.argsort(best[free], kind="stable")[:count]]

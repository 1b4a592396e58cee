"""One order for the nodes of a small graph, so that graphs alike give one picture, drawn and looked at once.

Targets come first, then nodes by colour-refinement class, then by breadth-first search from the targets. Graphs that
come out the same are the same. Of isomorphic ones some may come out different, where refinement cannot tell nodes
apart: they are then drawn twice, which costs time alone.

Knows graphs. Does not know how they are drawn.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64, UInt64
from numpy import ndarray

from icml25cli.core.jit import compiled
from icml25cli.papers.linkpred.subgraphs import Subgraphs, concatenate, mixed

ROUNDS = 3  # of colour refinement


@dataclass(frozen=True, eq=False)
class Distinct:
    """The different graphs among many.

    Attributes:
        graphs: one of each kind, in the order of first appearance, nodes in canonical order.
        kind: of each of the many, a row of ``graphs``.
        cut: how many of the many are samples.
    """

    graphs: Subgraphs
    kind: Int64[ndarray, "b"]
    cut: int


def canonical_graphs(graphs: Subgraphs) -> tuple[Subgraphs, UInt64[ndarray, "b 2"]]:
    """The same graphs with nodes in canonical order and edges sorted, and a 128-bit hash of each."""
    nodes, edges, hashes = _ordered(graphs.node_start, graphs.nodes, graphs.edge_start, graphs.edges, graphs.targets)
    return replace(graphs, nodes=nodes, edges=edges), hashes


def distinct(batches: Iterable[Subgraphs]) -> Distinct:
    """Keep one of each kind of graph of one or more batches, of which there is at least one."""
    known: dict[bytes, int] = {}
    kept, kinds, cut = [], [], 0
    for batch in batches:
        ordered, hashes = canonical_graphs(batch)
        kind, new = np.empty(len(batch), np.int64), []
        for i, row in enumerate(hashes):
            before = len(known)
            kind[i] = known.setdefault(row.tobytes(), before)
            if kind[i] == before:
                new.append(i)
        kept.append(ordered.take(np.array(new, np.int64)))
        kinds.append(kind)
        cut += int(batch.cut.sum())
    return Distinct(concatenate(kept), np.concatenate(kinds), cut)


@compiled
def _ordered(node_start, nodes, edge_start, edges, targets):
    count = len(node_start) - 1
    new_nodes, new_edges = np.empty_like(nodes), np.empty_like(edges)
    hashes = np.empty((count, 2), np.uint64)
    for b in range(count):
        here, there = node_start[b], edge_start[b]
        n, m = node_start[b + 1] - here, edge_start[b + 1] - there
        pairs = edges[there : there + m]
        start = np.zeros(n + 1, np.int64)
        for e in range(m):
            start[pairs[e, 0] + 1] += 1
            start[pairs[e, 1] + 1] += 1
        start = np.cumsum(start)
        fill, around = start[:-1].copy(), np.empty(2 * m, np.int64)
        for e in range(m):
            i, j = pairs[e]
            around[fill[i]], around[fill[j]] = j, i
            fill[i] += 1
            fill[j] += 1

        distance = _distances(start, around, targets)
        colour = np.empty(n, np.uint64)
        for i in range(n):
            colour[i] = mixed(np.uint64(2 * (start[i + 1] - start[i]) + (i < targets)))
        for _ in range(ROUNDS):
            before = colour.copy()
            for i in range(n):
                total = np.uint64(0)  # a sum does not depend on the order of neighbours
                for at in range(start[i], start[i + 1]):
                    total += mixed(before[around[at]])
                colour[i] = mixed(before[i] ^ mixed(total))
        # Classes stand by distance from the targets, then by degree, hubs first, and only then by their hash.
        key = np.empty(n, np.uint64)
        for i in range(n):
            degree = min(start[i + 1] - start[i], 2047)
            key[i] = (
                (np.uint64(i >= targets) << np.uint64(63))
                | (np.uint64(min(distance[i], 3)) << np.uint64(61))
                | (np.uint64(2047 - degree) << np.uint64(50))
                | (colour[i] >> np.uint64(14))
            )
        by_key = np.argsort(key, kind="mergesort")
        seen = _breadth_first(start, around, by_key, targets)
        order = by_key[np.argsort(key[by_key], kind="mergesort")]
        # Within a class in the order of the search; classes are runs of equal keys.
        begin = 0
        for end in range(1, n + 1):
            if end == n or key[order[end]] != key[order[begin]]:
                run = order[begin:end]
                order[begin:end] = run[np.argsort(seen[run])]
                begin = end

        place = np.empty(n, np.int64)
        for i in range(n):
            place[order[i]] = i
            new_nodes[here + i] = nodes[here + order[i]]
        code = np.empty(m, np.int64)
        for e in range(m):
            i, j = place[pairs[e, 0]], place[pairs[e, 1]]
            code[e] = min(i, j) * n + max(i, j)
        code.sort()
        low, high = mixed(np.uint64(n)), mixed(np.uint64(targets) ^ mixed(np.uint64(m)))
        for e in range(m):
            new_edges[there + e, 0], new_edges[there + e, 1] = code[e] // n, code[e] % n
            low = mixed(low ^ np.uint64(code[e]))
            high = mixed(high + mixed(np.uint64(code[e])))
        hashes[b, 0], hashes[b, 1] = low, high
    return new_nodes, new_edges, hashes


@compiled
def _distances(start, around, targets):
    """Edges from the nearest target to each node; n where none leads there."""
    n = len(start) - 1
    distance, queue = np.full(n, n, np.int64), np.empty(n, np.int64)
    for i in range(targets):
        distance[i], queue[i] = 0, i
    done, known = 0, targets
    while done < known:
        i = queue[done]
        done += 1
        for at in range(start[i], start[i + 1]):
            j = around[at]
            if distance[j] == n:
                distance[j] = distance[i] + 1
                queue[known] = j
                known += 1
    return distance


@compiled
def _breadth_first(start, around, by_key, targets):
    """When each node is met in a search that takes targets and the neighbours of a node in the order of ``by_key``."""
    n = len(start) - 1
    rank = np.empty(n, np.int64)
    for i in range(n):
        rank[by_key[i]] = i
    seen, queue = np.full(n, -1, np.int64), np.empty(n, np.int64)
    done, known = 0, 0
    for root in by_key:  # targets stand first; roots after them are what no target reaches
        if seen[root] == -1 and (root < targets or done == known):
            seen[root], queue[known] = known, root
            known += 1
        if root < targets and known < targets:
            continue
        while done < known:
            i = queue[done]
            done += 1
            ranks = np.sort(rank[around[start[i] : start[i + 1]]])
            for r in ranks:
                j = by_key[r]
                if seen[j] == -1:
                    seen[j], queue[known] = known, j
                    known += 1
    return seen

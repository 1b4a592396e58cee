"""The part of a graph that a picture shows: around a pair of nodes (GVN) or around one node (E-GVN). Section 3.1.

Around a pair: all nodes within k hops of either end and all observed edges between them, without the edge between the
ends itself. So the picture of a pair is the same whether or not the pair is an edge. Around a node: neighbours drawn
without replacement, once. Whatever is drawn at random depends on the seed and on the pair or node alone, never on what
else is asked for in the same call.

Knows adjacency matrices. Does not know how a picture is drawn, nor what is training or test.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int32, Int64, Integer
from numpy import ndarray
from scipy import sparse

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.jit import compiled, inline

MAX_NODES = 100  # of a picture; beyond, boxes are too small to tell apart
FANOUT = 5  # neighbours drawn of a node and hop, the authors' default
NODE_SEED = 11  # the authors', fixed there


@dataclass(frozen=True, eq=False)
class Subgraphs:
    """Small graphs one after another.

    Graph i has the nodes ``nodes[node_start[i]:node_start[i + 1]]``, rows of the whole graph, its targets first, and
    the edges ``edges[edge_start[i]:edge_start[i + 1]]``, places among these nodes, each once with the smaller first.

    Attributes:
        targets: of each graph: 2 around pairs, 1 around nodes.
        cut: which graphs are samples, since all their nodes would have been too many.
    """

    node_start: Int64[ndarray, "b+1"]
    nodes: Int32[ndarray, "n"]
    edge_start: Int64[ndarray, "b+1"]
    edges: Int32[ndarray, "m 2"]
    targets: int
    cut: Bool[ndarray, "b"]

    def __len__(self) -> int:
        return len(self.cut)

    def edges_of(self, i: int) -> Int32[ndarray, "m 2"]:
        return self.edges[self.edge_start[i] : self.edge_start[i + 1]]

    def nodes_of(self, i: int) -> Int32[ndarray, "n"]:
        return self.nodes[self.node_start[i] : self.node_start[i + 1]]

    def take(self, chosen: Integer[ndarray, "c"]) -> "Subgraphs":
        """The graphs ``chosen``, in that order."""
        node_start, node_rows = _ranges(self.node_start, chosen)
        edge_start, edge_rows = _ranges(self.edge_start, chosen)
        return Subgraphs(
            node_start, self.nodes[node_rows], edge_start, self.edges[edge_rows], self.targets, self.cut[chosen]
        )


def concatenate(parts: Sequence[Subgraphs]) -> Subgraphs:
    """The graphs of one or more parts, all with as many targets, in order."""
    node_sizes = np.concatenate([np.diff(part.node_start) for part in parts])
    edge_sizes = np.concatenate([np.diff(part.edge_start) for part in parts])
    return Subgraphs(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(node_sizes)]),
        np.concatenate([part.nodes for part in parts]),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(edge_sizes)]),
        np.concatenate([part.edges for part in parts]),
        parts[0].targets,
        np.concatenate([part.cut for part in parts]),
    )


def _ranges(start: ndarray, chosen: ndarray) -> tuple[ndarray, ndarray]:
    """New starts of the chosen ranges laid one after another, and the rows that they take."""
    sizes = start[chosen + 1] - start[chosen]
    new = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return new, np.arange(new[-1]) + np.repeat(start[chosen] - new[:-1], sizes)


def link_subgraphs(
    adjacency: sparse.csr_array,
    pairs: Integer[ndarray, "b 2"],
    *,
    hops: int = 1,
    max_nodes: int = MAX_NODES,
    seed: int = 0,
) -> Subgraphs:
    """What lies within ``hops`` of each pair in the graph of observed edges, without the pair's own edge.

    A pair whose surroundings hold more than ``max_nodes`` nodes gets its ends, their common neighbours, and of the
    other neighbours a sample that keeps the proportion of the two degrees; where one hop fills the picture nothing
    farther away is in it. Both orders of a pair give the same graph.

    Args:
        adjacency: (n, n), symmetric, indices sorted, without diagonal.
        pairs: rows of two different nodes.

    Raises:
        InputError: a pair is a node with itself or names a node that is not there.
        UsageError: ``hops`` or ``max_nodes`` is too small.
    """
    n = len(adjacency.indptr) - 1
    if hops < 1 or max_nodes < 3:
        raise UsageError(f"--hops {hops} and --max-nodes {max_nodes} draw nothing", hint="at least 1 hop and 3 nodes")
    if (outside := pairs[(pairs < 0) | (pairs >= n)]).size:
        raise InputError(f"a pair names node {outside[0]}, the graph has {n}")
    if (bad := np.flatnonzero(pairs[:, 0] == pairs[:, 1])).size:
        raise InputError(f"pair {bad[0]} is node {pairs[bad[0], 0]} with itself", hint="leave such pairs out")
    arrays = _csr(adjacency)
    return Subgraphs(*_around_pairs(*arrays, np.sort(pairs.astype(np.int64), axis=1), hops, max_nodes, seed))


def node_subgraphs(
    adjacency: sparse.csr_array,
    nodes: Integer[ndarray, "b"],
    *,
    hops: int = 2,
    fanout: int = FANOUT,
    max_nodes: int = MAX_NODES,
    seed: int = NODE_SEED,
) -> Subgraphs:
    """What E-GVN draws of each node.

    Two hops: at most ``fanout`` neighbours of the node are drawn without replacement, then at most ``fanout``
    neighbours of it and of each of them; these last, outermost, edges make the picture. One hop: a star with a leaf for
    each neighbour, which tells the degree and nothing else.

    Raises:
        UsageError: ``hops`` is neither 1 nor 2, or another size is too small.
    """
    if hops not in (1, 2) or fanout < 1 or max_nodes < 3:
        raise UsageError(f"no picture of a node with --hops {hops} and --fanout {fanout}", hint="1 or 2 hops")
    arrays = _csr(adjacency)
    centres = nodes.astype(np.int64)
    if hops == 1:
        return Subgraphs(*_stars(*arrays, centres, max_nodes))
    return Subgraphs(*_sampled(*arrays, centres, fanout, seed))


def _csr(adjacency: sparse.csr_array) -> tuple[Int64[ndarray, "n+1"], Int32[ndarray, "m"]]:
    return adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int32)


# --- kernels -----------------------------------------------------------------------------------------------------


@inline
def mixed(x):
    """A bijection of 64-bit numbers that looks random (the finaliser of SplitMix64; Steele, Lea and Flood 2014)."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def _sample(items, count, wanted, state):
    """Bring ``wanted`` of the first ``count`` items to the front, every choice as likely as any other."""
    for i in range(wanted):
        state = mixed(state)
        j = i + np.int64(state % np.uint64(count - i))
        items[i], items[j] = items[j], items[i]
    return state


@compiled
def grown(array, needed):
    """The array, or a larger one with the same beginning, of at least ``needed`` rows."""
    if needed <= array.shape[0]:
        return array
    larger = np.empty((max(needed, 2 * array.shape[0]), *array.shape[1:]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


@compiled
def _is_neighbour(indptr, indices, node, other):
    low, high = indptr[node], indptr[node + 1]
    while low < high:
        middle = (low + high) >> 1
        if indices[middle] < other:
            low = middle + 1
        else:
            high = middle
    return low < indptr[node + 1] and indices[low] == other


@compiled
def _around_pairs(indptr, indices, pairs, hops, max_nodes, seed):
    count, n = len(pairs), len(indptr) - 1
    node_start, edge_start = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    nodes, edges = np.empty(count * 16 + max_nodes, np.int32), np.empty((count * 16 + 16, 2), np.int32)
    cut = np.zeros(count, np.bool_)
    place = np.full(n, -1, np.int32)  # of a node in the graph being made
    common, left, right = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    for b in range(count):
        first, m = node_start[b], edge_start[b]
        nodes = grown(nodes, first + max_nodes)
        here = nodes[first : first + max_nodes]
        u, v = pairs[b]
        here[0], here[1] = u, v
        place[u], place[v] = 0, 1
        size, begin = 2, 0
        state = mixed(mixed(mixed(np.uint64(seed)) ^ np.uint64(u)) ^ np.uint64(v))
        for hop in range(hops):
            # New nodes, in three heaps for the first hop: common neighbours, those of u alone, those of v alone.
            commons, lefts, rights = 0, 0, 0
            for i in range(begin, size):
                w = here[i]
                for at in range(indptr[w], indptr[w + 1]):
                    x = indices[at]
                    if place[x] == -1:
                        place[x] = -2
                        if hop == 0 and i == 0 and _is_neighbour(indptr, indices, v, x):
                            common[commons] = x
                            commons += 1
                        elif i == 0 or hop > 0:
                            left[lefts] = x
                            lefts += 1
                        else:
                            right[rights] = x
                            rights += 1
            begin = size
            room = max_nodes - size
            keep_common, keep_left, keep_right = commons, lefts, rights
            if commons + lefts + rights > room:
                cut[b] = True
                keep_common = min(commons, room)
                rest = room - keep_common
                if lefts + rights > 0:
                    keep_left = min(lefts, max(rest - rights, np.int64(np.rint(rest * lefts / (lefts + rights)))))
                    keep_right = rest - keep_left
                state = _sample(common, commons, keep_common, state)
                state = _sample(left, lefts, keep_left, state)
                state = _sample(right, rights, keep_right, state)
            for i in range(commons):
                place[common[i]] = -1
            for i in range(lefts):
                place[left[i]] = -1
            for i in range(rights):
                place[right[i]] = -1
            for i in range(keep_common):
                here[size] = common[i]
                size += 1
            for i in range(keep_left):
                here[size] = left[i]
                size += 1
            for i in range(keep_right):
                here[size] = right[i]
                size += 1
            for i in range(begin, size):
                place[here[i]] = i
            if cut[b] or size == begin:
                break
        for i in range(size):
            w = here[i]
            edges = grown(edges, m + size)
            if indptr[w + 1] - indptr[w] < 16 * size:
                for at in range(indptr[w], indptr[w + 1]):
                    j = place[indices[at]]
                    if j > i and not (i == 0 and j == 1):
                        edges[m, 0], edges[m, 1] = i, j
                        m += 1
            else:  # a hub: its neighbours are many more than the nodes to be asked about
                for j in range(i + 1, size):
                    if not (i == 0 and j == 1) and _is_neighbour(indptr, indices, w, here[j]):
                        edges[m, 0], edges[m, 1] = i, j
                        m += 1
        for i in range(size):
            place[here[i]] = -1
        node_start[b + 1], edge_start[b + 1] = first + size, m
    return node_start, nodes[: node_start[count]].copy(), edge_start, edges[: edge_start[count]].copy(), 2, cut


@compiled
def _stars(indptr, indices, centres, max_nodes):
    count = len(centres)
    node_start, edge_start = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    cut = np.zeros(count, np.bool_)
    for b in range(count):
        degree = indptr[centres[b] + 1] - indptr[centres[b]]
        leaves = min(degree, max_nodes - 1)
        cut[b] = leaves < degree
        node_start[b + 1], edge_start[b + 1] = node_start[b] + 1 + leaves, edge_start[b] + leaves
    nodes, edges = np.empty(node_start[count], np.int32), np.zeros((edge_start[count], 2), np.int32)
    for b in range(count):
        nodes[node_start[b]] = centres[b]
        for i in range(edge_start[b + 1] - edge_start[b]):
            nodes[node_start[b] + 1 + i] = indices[indptr[centres[b]] + i]
            edges[edge_start[b] + i, 1] = i + 1
    return node_start, nodes, edge_start, edges, 1, cut


@compiled
def _sampled(indptr, indices, centres, fanout, seed):
    count, n = len(centres), len(indptr) - 1
    widest = 0
    for i in range(n):
        widest = max(widest, indptr[i + 1] - indptr[i])
    most = (1 + fanout) * fanout  # edges, and nodes but for the centre and its first neighbours
    node_start, edge_start = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    nodes, edges = np.empty(count * 16 + most, np.int32), np.empty((count * 16 + most, 2), np.int32)
    place = np.full(n, -1, np.int32)
    around = np.empty(widest, np.int32)
    for b in range(count):
        first, m = node_start[b], edge_start[b]
        nodes, edges = grown(nodes, first + most + fanout + 1), grown(edges, m + most)
        here = nodes[first : first + most + fanout + 1]
        centre = centres[b]
        here[0], place[centre], size = centre, 0, 1
        state = mixed(mixed(np.uint64(seed)) ^ np.uint64(centre))
        seeds = 1
        for layer in range(2):
            for i in range(seeds):
                w = here[i]
                degree = indptr[w + 1] - indptr[w]
                drawn = min(degree, fanout)
                around[:degree] = indices[indptr[w] : indptr[w + 1]]
                if drawn < degree:
                    state = _sample(around, degree, drawn, state)
                for at in range(drawn):
                    x = around[at]
                    if place[x] == -1:
                        place[x], here[size] = size, x
                        size += 1
                    if layer == 1:
                        low, high = min(i, place[x]), max(i, place[x])
                        known = False
                        for e in range(edge_start[b], m):
                            known |= edges[e, 0] == low and edges[e, 1] == high
                        if not known:  # either end may have drawn it
                            edges[m, 0], edges[m, 1] = low, high
                            m += 1
            seeds = size
        for i in range(size):
            place[here[i]] = -1
        node_start[b + 1], edge_start[b + 1] = first + size, m
    return (
        node_start,
        nodes[: node_start[count]].copy(),
        edge_start,
        edges[: edge_start[count]].copy(),
        1,
        np.zeros(count, np.bool_),
    )

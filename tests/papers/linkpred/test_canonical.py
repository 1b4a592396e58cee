"""Graphs alike get one order; different ones are never taken for one another."""

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.papers.linkpred.canonical import canonical_graphs, distinct
from icml25cli.papers.linkpred.graph import adjacency
from icml25cli.papers.linkpred.subgraphs import Subgraphs, link_subgraphs


def packed(graphs, targets=2):
    """``Subgraphs`` of (number of nodes, edges)."""
    edges = [np.array(sorted((min(e), max(e)) for e in edges), np.int32).reshape(-1, 2) for _, edges in graphs]
    sizes, counts = [n for n, _ in graphs], [len(e) for e in edges]
    start = lambda sizes: np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)  # noqa: E731
    nodes = np.concatenate([np.arange(n, dtype=np.int32) for n in sizes])
    return Subgraphs(start(sizes), nodes, start(counts), np.concatenate(edges), targets, np.zeros(len(sizes), bool))


def renamed(n, edges, seed, targets=2):
    """The same graph with the targets in either order and all other nodes in any."""
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(targets), targets + rng.permutation(n - targets)])
    return n, [(int(order[u]), int(order[v])) for u, v in edges]


def test_names_of_nodes_and_the_order_of_the_pair_do_not_matter():
    #  a path from 0 to 1 over 2 and 3, a leaf 4 at 1 and a tail 5-6 at 0: no two nodes are alike
    graph = (7, [(0, 2), (2, 3), (1, 3), (1, 4), (0, 5), (5, 6)])
    found = distinct([packed([graph, *(renamed(*graph, seed) for seed in range(20))])])
    assert found.kind.tolist() == [0] * 21
    assert len(found.graphs) == 1


def test_targets_come_first_then_the_near_ones_then_hubs():
    graphs, _ = canonical_graphs(packed([(6, [(0, 5), (1, 5), (1, 4), (4, 2), (4, 3)])]))
    # 1 has two edges and comes before 0; of their neighbours 4 has three edges and 5 two; 2 and 3 are farther away
    assert graphs.nodes.tolist()[:4] == [1, 0, 4, 5]
    assert graphs.edges.tolist() == sorted(graphs.edges.tolist())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 9), p=st.floats(0.1, 0.9))
def test_the_reordered_graph_is_the_same_graph(seed, n, p):
    edges = list(nx.fast_gnp_random_graph(n, p, seed=seed).edges)
    before = packed([(n, edges)])
    after, _ = canonical_graphs(before)
    assert set(after.nodes[:2].tolist()) == {0, 1}
    named = {tuple(sorted(map(int, after.nodes[edge]))) for edge in after.edges}
    assert named == {tuple(sorted(edge)) for edge in edges}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_one_kind_is_one_graph_and_isomorphic_ones_mostly_one_kind(seed):
    rng = np.random.default_rng(seed)
    graphs = [(6, list(nx.gnm_random_graph(6, 6, seed=int(rng.integers(2**31))).edges)) for _ in range(40)]
    kinds = distinct([packed(graphs)]).kind

    def marked(graph):
        n, edges = graph
        made = nx.Graph(edges)
        made.add_nodes_from((i, {"target": i < 2}) for i in range(n))
        return made

    same = lambda a, b: nx.is_isomorphic(marked(a), marked(b), node_match=lambda x, y: x == y)  # noqa: E731
    for kind in set(kinds.tolist()):
        first, *others = (graphs[i] for i in np.flatnonzero(kinds == kind))
        assert all(same(first, other) for other in others)


def test_kinds_come_in_the_order_of_first_appearance():
    star, path = (4, [(0, 1), (0, 2), (0, 3)]), (4, [(0, 2), (2, 3), (1, 3)])
    found = distinct([packed([path, star, path, star])])
    assert found.kind.tolist() == [0, 1, 0, 1]
    assert np.diff(found.graphs.edge_start).tolist() == [3, 3]
    assert found.graphs.edges_of(1).tolist() == [[0, 1], [0, 2], [0, 3]]


def test_graphs_without_edges_and_of_other_sizes_are_told_apart():
    found = distinct([packed([(2, []), (3, []), (2, [(0, 1)]), (2, [])])])
    assert found.kind.tolist() == [0, 1, 2, 0]


def test_pairs_on_a_ring_are_few_kinds():
    n = 30
    ring = adjacency(np.sort(np.array([(i, (i + 1) % n) for i in range(n)]), axis=1), n)
    pairs = np.array([(i, j) for i in range(n) for j in range(i)])
    # neighbours, then distances 2, 3, and farther, where two paths do not meet within a hop
    assert len(distinct([link_subgraphs(ring, pairs)]).graphs) == 4

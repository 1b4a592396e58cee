"""What a picture shows: known answers, a plain search as reference, and what must not leave a trace."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.linkpred.graph import adjacency
from icml25cli.papers.linkpred.subgraphs import Subgraphs, link_subgraphs, node_subgraphs


def graph_of(edges, n):
    return adjacency(np.array(edges, np.int64).reshape(-1, 2), n)


def shown(graphs: Subgraphs, i: int):
    """Nodes, and edges between them as nodes of the whole graph."""
    nodes = graphs.nodes_of(i)
    return nodes.tolist(), {tuple(sorted(map(int, nodes[edge]))) for edge in graphs.edges_of(i)}


def random_edges(seed: int, n: int = 30, m: int = 60):
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.integers(n, size=(m, 2)), axis=1)
    return np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0).astype(np.int64)


seeds = st.integers(0, 2**32 - 1)


def test_two_triangles_on_one_edge():
    #   0-1 is the pair; 2 and 3 are its common neighbours and linked; 4 hangs on 2, two hops away
    edges = [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3), (2, 4)]
    near = link_subgraphs(graph_of(edges, 5), np.array([[0, 1]]))
    assert shown(near, 0) == ([0, 1, 2, 3], {(0, 2), (1, 2), (0, 3), (1, 3), (2, 3)})
    far = link_subgraphs(graph_of(edges, 5), np.array([[0, 1]]), hops=2)
    assert shown(far, 0) == ([0, 1, 2, 3, 4], {(0, 2), (1, 2), (0, 3), (1, 3), (2, 3), (2, 4)})


def test_ends_that_nothing_is_linked_to_are_there():
    graphs = link_subgraphs(graph_of([(0, 1)], 4), np.array([[2, 3], [1, 0]]))
    assert shown(graphs, 0) == ([2, 3], set())
    assert shown(graphs, 1) == ([0, 1], set())
    assert graphs.edges.dtype == np.int32
    assert len(graphs.edges) == 0


@settings(max_examples=40, deadline=None)
@given(seed=seeds, hops=st.integers(1, 3))
def test_it_is_what_a_plain_search_finds(seed, hops):
    edges = random_edges(seed)
    whole = nx.Graph(edges.tolist())
    whole.add_nodes_from(range(30))
    u, v = map(int, np.random.default_rng(seed).choice(30, 2, replace=False))
    nodes, found = shown(link_subgraphs(graph_of(edges, 30), np.array([[u, v]]), hops=hops), 0)
    if whole.has_edge(u, v):
        whole.remove_edge(u, v)
    ends = (nx.single_source_shortest_path_length(whole, end, cutoff=hops) for end in (u, v))
    within = set().union(*ends)
    assert set(nodes) == within
    assert len(nodes) == len(within)
    assert set(nodes[:2]) == {u, v}
    assert found == {tuple(sorted(edge)) for edge in whole.subgraph(within).edges}


@settings(max_examples=40, deadline=None)
@given(seed=seeds, hops=st.integers(1, 2), max_nodes=st.integers(3, 40))
def test_a_pair_looks_the_same_whether_it_is_an_edge_or_not(seed, hops, max_nodes):
    edges = random_edges(seed)
    for pair in edges[:5]:
        without = edges[(edges != pair).any(axis=1)]
        seen = [
            shown(link_subgraphs(graph_of(e, 30), pair[None], hops=hops, max_nodes=max_nodes), 0)
            for e in (edges, without)
        ]
        assert seen[0] == seen[1]


@settings(max_examples=20, deadline=None)
@given(seed=seeds, max_nodes=st.integers(3, 12))
def test_neither_the_order_of_a_pair_nor_its_company_leaves_a_trace(seed, max_nodes):
    matrix = graph_of(random_edges(seed, m=120), 30)
    pairs = np.array([(u, v) for u in range(6) for v in range(u)])
    together = link_subgraphs(matrix, pairs, max_nodes=max_nodes, seed=3)
    for i in (0, 7, 14):
        for pair in (pairs[i], pairs[i][::-1]):
            alone = link_subgraphs(matrix, pair[None], max_nodes=max_nodes, seed=3)
            assert shown(alone, 0) == shown(together, i)


def test_a_hub_is_sampled_and_common_neighbours_stay():
    # 0 has 100,000 neighbours, 1 has 20,000; the last three of each are the same
    left, right = np.arange(2, 100_002), np.arange(99_999, 119_999)
    edges = np.array([*((0, x) for x in left), *((1, x) for x in right)])
    graphs = link_subgraphs(graph_of(edges, 119_999), np.array([[0, 1]]), max_nodes=63)
    nodes, found = shown(graphs, 0)
    assert graphs.cut.tolist() == [True]
    assert len(nodes) == len(set(nodes)) == 63
    assert {99_999, 100_000, 100_001} <= set(nodes)
    alone = np.array(nodes[5:])
    assert (alone < 99_999).sum() == round(58 * 99_997 / (99_997 + 19_997))  # in the proportion of what is left
    assert len(found) == 3 * 2 + 58
    other, _ = shown(link_subgraphs(graph_of(edges, 119_999), np.array([[0, 1]]), max_nodes=63, seed=1), 0)
    assert set(other) != set(nodes)


def test_more_common_neighbours_than_fit():
    edges = [(end, x) for x in range(2, 50) for end in (0, 1)] + [(0, 50)]
    nodes, found = shown(link_subgraphs(graph_of(edges, 51), np.array([[0, 1]]), max_nodes=12), 0)
    assert len(nodes) == 12
    assert 50 not in nodes
    assert len(found) == 20


@pytest.mark.parametrize(
    ("pairs", "message"), [([[0, 1], [2, 2]], "pair 1 is node 2 with itself"), ([[0, 9]], "names node 9")]
)
def test_pairs_that_are_none_are_named(pairs, message):
    with pytest.raises(InputError, match=message):
        link_subgraphs(graph_of([(0, 1)], 3), np.array(pairs))


def test_pictures_that_show_nothing_are_refused():
    with pytest.raises(UsageError, match="--hops 0"):
        link_subgraphs(graph_of([(0, 1)], 3), np.array([[0, 1]]), hops=0)
    with pytest.raises(UsageError, match="--hops 3"):
        node_subgraphs(graph_of([(0, 1)], 3), np.array([0]), hops=3)


# --- around one node ---------------------------------------------------------------------------------------------


def test_a_star_shows_the_degree_and_nothing_else():
    graphs = node_subgraphs(graph_of([(0, 1), (0, 2), (1, 2), (2, 3)], 5), np.arange(5), hops=1)
    assert [shown(graphs, i) for i in (0, 2, 4)] == [
        ([0, 1, 2], {(0, 1), (0, 2)}),
        ([2, 0, 1, 3], {(0, 2), (1, 2), (2, 3)}),
        ([4], set()),
    ]


@settings(max_examples=30, deadline=None)
@given(seed=seeds, fanout=st.integers(1, 5))
def test_two_hops_are_sampled_edges_of_the_node_and_of_neighbours(seed, fanout):
    edges = random_edges(seed, m=90)
    there = set(map(tuple, edges.tolist()))
    degree = np.bincount(edges.ravel(), minlength=30)
    graphs = node_subgraphs(graph_of(edges, 30), np.arange(30), fanout=fanout, seed=seed)
    for i in range(30):
        nodes, found = shown(graphs, i)
        assert nodes[0] == i
        assert found <= there
        assert len(found) == len(graphs.edges_of(i)) <= fanout * (1 + fanout)
        own = sum(i in edge for edge in found)
        assert own >= min(degree[i], fanout)  # all it drew itself, and some of those whom it drew
        near = {x for edge in there if i in edge for x in edge} | {i}
        assert all(near & set(edge) for edge in found)


def test_with_room_for_all_two_hops_are_all_edges_of_neighbours():
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]
    nodes, found = shown(node_subgraphs(graph_of(edges, 5), np.array([0])), 0)
    assert (set(nodes), found) == ({0, 1, 2, 3}, {(0, 1), (0, 2), (1, 3), (2, 3)})


def test_the_draw_depends_on_the_seed_and_the_node_alone():
    matrix = graph_of(random_edges(0, n=40, m=400), 40)
    together = node_subgraphs(matrix, np.arange(40), fanout=3)
    assert shown(node_subgraphs(matrix, np.array([7]), fanout=3), 0) == shown(together, 7)
    other = node_subgraphs(matrix, np.arange(40), fanout=3, seed=12)
    assert any(shown(other, i) != shown(together, i) for i in range(40))


def test_chosen_graphs_are_the_same_graphs():
    graphs = link_subgraphs(graph_of(random_edges(5), 30), np.array([(i, i + 1) for i in range(10)]))
    chosen = graphs.take(np.array([8, 0, 8]))
    assert [shown(chosen, i) for i in range(3)] == [shown(graphs, i) for i in (8, 0, 8)]

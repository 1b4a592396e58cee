"""Candidates are near, are no edges, and are few."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.papers.linkpred import candidates as c
from icml25cli.papers.linkpred.candidates import candidate_pairs
from icml25cli.papers.linkpred.graph import adjacency


def matrix_of(graph):
    return adjacency(np.array(graph.edges, dtype=np.int64), len(graph))


def as_set(pairs):
    return set(map(tuple, pairs.tolist()))


def test_a_path_by_pencil():
    a = matrix_of(nx.path_graph(5))
    assert as_set(candidate_pairs(a, np.array([0]), per_node=1)) == {(0, 2)}
    assert as_set(candidate_pairs(a, np.array([0]), per_node=2)) == {(0, 2), (0, 3)}  # the second by PageRank
    assert as_set(candidate_pairs(a, per_node=1)) == {(0, 2), (1, 3), (2, 4)}


def test_partners_with_more_weight_between_come_first():
    graph = nx.Graph([(0, 1), (0, 2), (1, 3), (2, 3), (2, 4), (4, 5)])
    assert as_set(candidate_pairs(matrix_of(graph), np.array([0]), per_node=1)) == {(0, 3)}


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_with_room_for_all_they_are_all_pairs_that_a_path_joins(seed):
    graph = nx.gnm_random_graph(25, 30, seed=seed)
    found = as_set(candidate_pairs(matrix_of(graph), per_node=25))
    lengths = dict(nx.all_pairs_shortest_path_length(graph))
    near = {(u, v) for u in range(25) for v in range(u + 1, 25) if lengths[u].get(v, 0) == 2}
    joined = {(u, v) for u in range(25) for v in range(u + 1, 25) if lengths[u].get(v, 0) >= 2}
    assert near <= found <= joined
    assert found >= {pair for pair in joined if lengths[pair[0]][pair[1]] <= 4}


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), per_node=st.integers(1, 5))
def test_they_are_few_in_order_and_no_edges(seed, per_node):
    graph = nx.gnm_random_graph(60, 150, seed=seed)
    found = candidate_pairs(matrix_of(graph), per_node=per_node)
    assert len(found) <= 2 * per_node * 60
    assert (found[:, 0] < found[:, 1]).all()
    assert found.tolist() == sorted(map(list, as_set(found)))
    assert not as_set(found) & {tuple(sorted(edge)) for edge in graph.edges}


def test_a_hub_between_two_counts_only_where_few_nodes_are_asked_about(monkeypatch):
    graph = nx.star_graph(range(10, 22))  # the hub 10 and its leaves 11 to 21
    graph.add_edges_from([(0, 10), (0, 1), (1, 2), (2, 3), *((i, i + 1) for i in range(3, 9))])
    matrix = matrix_of(nx.relabel.convert_node_labels_to_integers(graph, ordering="sorted"))
    few = as_set(candidate_pairs(matrix, np.array([0]), per_node=2))
    assert few == {
        (0, 2),
        (0, 11),
        (0, 3),
    }  # two by resource allocation, the second through the hub; 2 and 3 by PageRank
    monkeypatch.setattr(c, "HUB", 1)
    two = as_set(candidate_pairs(matrix, np.array([0, 9]), per_node=2))
    assert {pair for pair in two if pair[0] == 0} == {(0, 2), (0, 3)}


@pytest.mark.parametrize("node", [0, 3])
def test_a_node_without_partners_has_none(node):
    graph = nx.complete_graph(3)
    graph.add_node(3)
    assert len(candidate_pairs(matrix_of(graph), np.array([node]))) == 0

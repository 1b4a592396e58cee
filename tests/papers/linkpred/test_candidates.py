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


def test_a_hub_between_all_counts_for_one_node_and_not_for_everyone(monkeypatch):
    monkeypatch.setattr(c, "HUB", 8)
    a = matrix_of(nx.star_graph(10))
    assert len(candidate_pairs(a, np.array([1]), per_node=3)) >= 3
    reached = candidate_pairs(a, per_node=3)  # by PageRank alone
    assert 0 < len(reached) <= 30


@pytest.mark.parametrize("node", [0, 3])
def test_a_node_without_partners_has_none(node):
    graph = nx.complete_graph(3)
    graph.add_node(3)
    assert len(candidate_pairs(matrix_of(graph), np.array([node]))) == 0

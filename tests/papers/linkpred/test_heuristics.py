"""Heuristics: closed forms, independent references on random graphs, and known AUC on the graphs of SEAL."""

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import roc_auc_score

from icml25cli.core.errors import InputError
from icml25cli.papers.linkpred import heuristics as h
from icml25cli.papers.linkpred.graph import adjacency, codes
from icml25cli.papers.linkpred.heuristics import HEURISTICS, score_pairs
from icml25cli.papers.linkpred.ppr import RESTART, by_source, ppr, ppr_rows
from icml25cli.papers.linkpred.readers import read_graph
from icml25cli.papers.linkpred.splits import sample_negatives


def matrix_of(graph: nx.Graph) -> sparse.csr_array:
    return adjacency(np.array(graph.edges, dtype=np.int64).reshape(-1, 2), len(graph))


def random_graph(seed: int, n: int = 40, m: int = 90) -> nx.Graph:
    return nx.gnm_random_graph(n, m, seed=seed)


def all_pairs(n: int) -> np.ndarray:
    return np.stack(np.triu_indices(n, 1), axis=1).astype(np.int64)


seeds = st.integers(0, 2**31 - 1)


def test_complete_graph_by_pencil():
    scores = score_pairs(matrix_of(nx.complete_graph(5)), np.array([[0, 1]]))
    assert scores["common_neighbors"] == [3]
    assert scores["jaccard"] == [3 / 5]
    assert scores["resource_allocation"] == pytest.approx([0.75])
    assert scores["adamic_adar"] == pytest.approx([2.16404], abs=1e-5)
    assert scores["preferential_attachment"] == [16]
    assert scores["shortest_path"] == [1]


def test_complete_graph_without_the_edge_in_question_by_pencil():
    graph = nx.complete_graph(5)
    graph.remove_edge(0, 1)
    scores = score_pairs(matrix_of(graph), np.array([[0, 1]]))
    assert scores["common_neighbors"] == [3]
    assert scores["jaccard"] == [1]  # both know the same three
    assert scores["resource_allocation"] == pytest.approx([0.75])
    assert scores["adamic_adar"] == pytest.approx([3 / math.log(4)])
    assert scores["preferential_attachment"] == [9]
    assert scores["shortest_path"] == [0.5]


def test_path_by_pencil():
    scores = score_pairs(matrix_of(nx.path_graph(3)), np.array([[0, 2]]))
    assert scores["common_neighbors"] == [1]
    assert scores["resource_allocation"] == [0.5]
    assert scores["adamic_adar"] == pytest.approx([1.4427], abs=1e-4)
    # One walk of two steps, and two of four: 0-1-0-1-2 and 0-1-2-1-2; λ² = 2, so the series is β² / (1 - 2β²).
    assert scores["katz"] == pytest.approx([0.005**2 / (1 - 2 * 0.005**2)], rel=1e-9)


def test_two_nodes_by_pencil():
    """From u a walk stands on v after an odd number of steps: π_u(v) = α(1-α) / (1 - (1-α)²)."""
    stay = 1 - RESTART
    expected = 2 * RESTART * stay / (1 - stay**2)
    assert score_pairs(matrix_of(nx.path_graph(2)), np.array([[0, 1]]))["ppr"] == pytest.approx([expected], abs=1e-6)


def test_nodes_without_edges_score_nothing():
    graph = nx.empty_graph(3)
    graph.add_edge(0, 1)
    scores = score_pairs(matrix_of(graph), np.array([[1, 2]]))
    assert {name: float(values[0]) for name, values in scores.items()} == {
        **dict.fromkeys(("common_neighbors", "jaccard", "preferential_attachment", "adamic_adar"), 0),
        **dict.fromkeys(("resource_allocation", "katz", "ppr"), 0),
        "shortest_path": 1 / 999,
    }


@settings(max_examples=25, deadline=None)
@given(seed=seeds, m=st.integers(0, 400))
def test_neighbourhoods_are_those_of_networkx(seed, m):
    graph = random_graph(seed, m=m)
    pairs = all_pairs(len(graph))
    scores = score_pairs(matrix_of(graph), pairs, h.LOCAL)
    listed = pairs.tolist()
    reference = {
        "jaccard": nx.jaccard_coefficient(graph, listed),
        "preferential_attachment": nx.preferential_attachment(graph, listed),
        "adamic_adar": nx.adamic_adar_index(graph, listed),
        "resource_allocation": nx.resource_allocation_index(graph, listed),
    }
    for name, found in reference.items():
        np.testing.assert_allclose(scores[name], [value for *_, value in found], rtol=1e-12, err_msg=name)
    common = [len(list(nx.common_neighbors(graph, u, v))) for u, v in listed]
    np.testing.assert_array_equal(scores["common_neighbors"], common)


def test_a_hub_is_searched_as_well_as_walked():
    graph = nx.star_graph(500)
    graph.remove_edge(0, 100)  # a node among the leaves that is none
    graph.add_edges_from([(501, i) for i in (3, 100, 250, 499)] + [(502, 500), (502, 1), (502, 100)])
    scores = score_pairs(matrix_of(graph), np.array([[0, 501], [501, 0], [0, 502]]), h.LOCAL)
    assert scores["common_neighbors"].tolist() == [3, 3, 2]
    assert scores["resource_allocation"].tolist() == [1.5, 1.5, 1]


@settings(max_examples=25, deadline=None)
@given(seed=seeds, m=st.integers(0, 150))
def test_distances_are_those_of_a_plain_search(seed, m):
    graph = random_graph(seed, m=m)
    pairs = all_pairs(len(graph))
    lengths = dict(nx.all_pairs_shortest_path_length(graph))
    expected = [1 / lengths[u][v] if v in lengths[u] else 1 / 999 for u, v in pairs.tolist()]
    np.testing.assert_allclose(score_pairs(matrix_of(graph), pairs, ["shortest_path"])["shortest_path"], expected)


@settings(max_examples=20, deadline=None)
@given(seed=seeds, m=st.integers(1, 300))
def test_pagerank_is_the_solution_of_its_equation(seed, m):
    graph = random_graph(seed, m=m)
    a = matrix_of(graph)
    dense = a.toarray().astype(np.float64)
    degrees = dense.sum(axis=1)
    step = np.where(degrees[:, None] > 0, dense / np.maximum(degrees, 1)[:, None], np.eye(len(dense)))
    exact = RESTART * np.linalg.inv(np.eye(len(dense)) - (1 - RESTART) * step)
    pairs = all_pairs(len(graph))
    u, v = pairs.T
    for tolerance in (1e-7, 1e-3):
        found = ppr(a, pairs, tolerance)
        assert (np.abs(found - exact[u, v] - exact[v, u]) <= tolerance * (degrees[u] + degrees[v]) + 1e-12).all()
    rows = ppr_rows(a, np.array([3, 0])).toarray()
    assert (np.abs(rows - exact[[3, 0]]) <= 1e-7 * np.maximum(degrees, 1)).all()


@settings(max_examples=20, deadline=None)
@given(seed=seeds, m=st.integers(1, 300))
def test_katz_is_its_series_whole_or_of_three_steps(seed, m):
    graph = random_graph(seed, m=m)
    a = matrix_of(graph)
    dense = a.toarray().astype(np.float64)
    pairs = all_pairs(len(graph))
    whole = np.linalg.inv(np.eye(len(dense)) - 0.005 * dense) - np.eye(len(dense))
    np.testing.assert_allclose(h.katz(a, pairs), whole[tuple(pairs.T)], rtol=1e-9, atol=1e-15)
    short = np.sum([0.4**power * np.linalg.matrix_power(dense, power) for power in (1, 2, 3)], axis=0)
    divergent = h.katz(a, pairs, beta=0.4)
    if np.linalg.eigvalsh(dense).max() * 0.4 > 1.01:
        np.testing.assert_allclose(divergent, short[tuple(pairs.T)], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_cosine_of_attributes(form):
    x = np.array([[3, 4], [4, 3], [0, 0], [-3, -4]], np.float32)
    scores = score_pairs(matrix_of(nx.path_graph(4)), np.array([[0, 1], [0, 2], [0, 3]]), features=form(x))
    np.testing.assert_allclose(scores["feature_cosine"], [24 / 25, 0, -1], rtol=1e-6)


def test_many_attributes_are_taken_in_slices(monkeypatch):
    x = np.random.default_rng(0).standard_normal((30, 7)).astype(np.float32)
    pairs = all_pairs(30)
    whole = h.feature_cosine(x, pairs)
    monkeypatch.setattr(h, "_BATCH", 50)
    np.testing.assert_array_equal(h.feature_cosine(x, pairs), whole)
    np.testing.assert_allclose(h.feature_cosine(sparse.csr_array(x), pairs), whole, rtol=1e-5)


@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_scores_know_no_direction_order_or_shape(seed):
    graph = random_graph(seed)
    a, pairs = matrix_of(graph), np.random.default_rng(seed).permutation(all_pairs(40))[:60]
    there, back = score_pairs(a, pairs), score_pairs(a, pairs[:, ::-1])
    stacked = score_pairs(a, pairs.reshape(6, 10, 2))
    for name, values in there.items():
        # The push from the other end meets the same tolerance, not the same digits.
        np.testing.assert_allclose(back[name], values, rtol=1e-9, atol=1e-5 if name == "ppr" else 1e-15)
        assert stacked[name].shape == (6, 10)
        np.testing.assert_array_equal(stacked[name].ravel(), values)
    permuted = np.random.default_rng(seed).permutation(60)
    for name, values in score_pairs(a, pairs[permuted]).items():
        np.testing.assert_array_equal(values, there[name][permuted])


def test_grouping_loses_no_pair():
    pairs = np.array([[4, 1], [2, 3], [1, 2], [1, 0]])
    grouped, first, order = by_source(pairs)
    np.testing.assert_array_equal(np.sort(grouped, axis=1), np.sort(pairs[order], axis=1))
    assert [len(set(part[:, 0].tolist())) for part in np.split(grouped, first[1:-1])] == [1] * (len(first) - 1)


def test_no_pairs_have_no_scores():
    scores = score_pairs(matrix_of(nx.path_graph(3)), np.empty((0, 2), np.int64))
    assert all(values.shape == (0,) for values in scores.values())


def test_an_unknown_heuristic_is_named():
    with pytest.raises(InputError, match="'magic'"):
        score_pairs(matrix_of(nx.path_graph(3)), np.array([[0, 2]]), ["magic"])


KNOWN_AUC = {
    "USAir": {"CN": 93.4, "Jac": 89.7, "PA": 88.6, "AA": 94.4, "RA": 94.9, "Katz": 91.9},
    "NS": {"CN": 93.6, "PA": 66.9, "AA": 93.7},
    "PB": {"CN": 91.7, "Jac": 87.3, "PA": 90.0, "AA": 92.0, "RA": 92.1, "Katz": 92.8},
    "Yeast": {"CN": 89.1, "PA": 82.0, "Katz": 92.1},
    "Celegans": {"CN": 85.2, "Jac": 79.7, "PA": 74.6, "AA": 86.7, "RA": 87.0},
    "Power": {"CN": 58.7, "PA": 44.4},
    "Router": {"CN": 55.9, "PA": 46.8},
    "Ecoli": {"CN": 93.4, "Jac": 80.7, "AA": 95.3, "RA": 96.0},
}
NAMES = {
    "CN": "common_neighbors",
    "Jac": "jaccard",
    "PA": "preferential_attachment",
    "AA": "adamic_adar",
    "RA": "resource_allocation",
    "Katz": "katz",
}


@pytest.mark.parametrize("name", KNOWN_AUC)
def test_known_auc_on_real_graphs(development_data, name):
    """Mean of ten splits, 90/10, as many random negatives. 1.5 points would be agreement; CN and AA differ by less."""
    graph = read_graph(str(development_data / "linkpred" / f"seal_{name}.npz"))
    n, expected = graph.num_nodes, KNOWN_AUC[name]
    methods = [NAMES[short] for short in expected]
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        test, train = np.split(rng.permutation(graph.edges), [len(graph.edges) // 10])
        negatives = sample_negatives(n, len(test), codes(graph.edges, n), rng)
        scores = score_pairs(adjacency(train, n), np.concatenate([test, negatives]), methods)
        truth = np.arange(2 * len(test)) < len(test)
        found.append([100 * roc_auc_score(truth, scores[method]) for method in methods])
    np.testing.assert_allclose(np.mean(found, axis=0), list(expected.values()), atol=0.5)


def test_all_heuristics_are_scored_where_there_are_attributes():
    graph = nx.path_graph(4)
    assert tuple(score_pairs(matrix_of(graph), all_pairs(4), features=np.eye(4, dtype=np.float32))) == HEURISTICS

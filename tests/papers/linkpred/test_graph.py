"""A graph is simple and undirected whatever was given, says what it merged, and keeps names."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from icml25cli.core.errors import InputError
from icml25cli.papers.linkpred.array_files import read_npz, write_graph
from icml25cli.papers.linkpred.graph import build_graph, codes, contains, pack_ids, unpack_ids


def test_loops_repetitions_and_directions_are_merged_and_said():
    pairs = np.array([[0, 1], [1, 0], [1, 2], [1, 2], [2, 2]])
    graph = build_graph("g", ["x", "y", "z"], pairs)
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.notes == (
        "1 self loop dropped",
        "1 edge given in both directions, taken once",
        "1 repeated edge merged",
    )
    assert graph.degrees.tolist() == [1, 2, 1]
    assert graph.adjacency.toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_a_list_that_gives_every_edge_twice_needs_no_remark():
    graph = build_graph("g", ["0", "1", "2"], np.array([[0, 1], [1, 0], [2, 1], [1, 2]]))
    assert (graph.edges.tolist(), graph.notes) == ([[0, 1], [1, 2]], ())


def test_a_directed_input_is_taken_as_undirected_and_said():
    graph = build_graph("g", ["0", "1", "2"], np.array([[1, 0], [0, 1], [2, 1]]), directed=True)
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.notes == ("directed edges taken as undirected; 1 were there in both directions",)


def test_of_an_edge_given_twice_the_earliest_time_and_the_sum_of_weights_stay():
    pairs, times, weights = np.array([[1, 0], [0, 2], [0, 1]]), np.array([5.0, 9.0, 3.0]), np.array([1.0, 2.0, 4.0])
    graph = build_graph("g", ["0", "1", "2"], pairs, times=times, weights=weights)
    assert graph.times is not None
    assert graph.weights is not None
    assert (graph.times.tolist(), graph.weights.tolist()) == ([3, 9], [5, 2])


def test_no_edge_is_refused():
    with pytest.raises(InputError, match="no edge"):
        build_graph("g", ["0", "1"], np.array([[0, 0], [1, 1]]))


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1))
def test_edges_are_the_set_of_unordered_pairs(pairs):
    expected = sorted({(min(p), max(p)) for p in pairs if p[0] != p[1]})
    if not expected:
        return
    graph = build_graph("g", [str(i) for i in range(8)], np.array(pairs))
    assert list(map(tuple, graph.edges.tolist())) == expected
    a = graph.adjacency
    assert (a != a.T).nnz == 0
    assert a.has_sorted_indices


@given(st.sets(st.integers(0, 99)), st.lists(st.integers(0, 99)))
def test_contains_is_membership(known, asked):
    found = contains(np.array(sorted(known), np.int64), np.array(asked, np.int64))
    assert found.tolist() == [value in known for value in asked]


def test_codes_order_like_pairs():
    pairs = np.array([[0, 4], [1, 2], [1, 3], [2, 3]])
    assert (np.diff(codes(pairs, 5)) > 0).all()


@given(st.lists(st.text(), unique=True))
def test_any_names_survive_packing(ids):
    assert unpack_ids(pack_ids(ids)) == ids


@pytest.mark.parametrize("features", [None, np.array([[1.5], [0], [2]], np.float32), "csr"])
def test_a_written_graph_comes_back_whole(tmp_path, features):
    if isinstance(features, str):
        features = sparse.csr_array(np.array([[0, 1.5], [0, 0], [2, 0]], np.float32))
    ids, pairs = ["a\nb", "ü", ""], np.array([[0, 1], [2, 1], [2, 2]])
    given = build_graph("named", ids, pairs, features=features, times=np.array([1.0, 2, 3]))
    write_graph(tmp_path / "graph.npz", given)
    back = read_npz(tmp_path / "graph.npz")
    assert (back.name, back.ids, back.notes) == ("named", ("a\nb", "ü", ""), given.notes)
    assert back.fingerprint == given.fingerprint


def test_the_fingerprint_tells_names_edges_times_and_features_apart():
    ids, pairs = ["a", "b", "c"], np.array([[0, 1], [1, 2]])
    graphs = [
        build_graph("g", ids, pairs),
        build_graph("g", ["a", "b", "d"], pairs),
        build_graph("g", ids, pairs[:1]),
        build_graph("g", ids, pairs, times=np.array([1.0, 2.0])),
        build_graph("g", ids, pairs, features=np.eye(3, dtype=np.float32)),
        build_graph("g", ids, pairs, features=sparse.csr_array(np.eye(3, dtype=np.float32))),
    ]
    assert len({graph.fingerprint for graph in graphs}) == len(graphs)
    assert build_graph("another name", ids, pairs).fingerprint == graphs[0].fingerprint

"""Attributes are put beside the right nodes, and what does not fit is named."""

import numpy as np
import pytest
from scipy import sparse

from icml25cli.core.errors import InputError
from icml25cli.papers.linkpred.features import with_features
from icml25cli.papers.linkpred.graph import build_graph

NUMBERED = build_graph("g", ["1", "2", "4"], np.array([[0, 1], [1, 2]]))
NAMED = build_graph("g", ["ann", "bob", "cid"], np.array([[0, 1], [1, 2]]))


def test_a_row_a_node_number_and_rows_beyond_are_isolated_nodes(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12).reshape(6, 2))
    graph = with_features(NUMBERED, tmp_path / "x.npy")
    assert graph.ids == ("0", "1", "2", "3", "4", "5")
    assert graph.edges.tolist() == [[1, 2], [2, 4]]
    assert graph.degrees.tolist() == [0, 1, 2, 0, 1, 0]
    np.testing.assert_array_equal(graph.features, np.arange(12).reshape(6, 2))
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.dtype == np.float32


@pytest.mark.parametrize("prefix", ["", "x_"])
def test_a_sparse_matrix_by_either_naming(tmp_path, prefix):
    x = sparse.csr_array(np.array([[0, 1.0], [0, 0], [2, 0], [0, 0], [3, 4]]))
    parts = {"data": x.data, "indices": x.indices, "indptr": x.indptr, "shape": np.array(x.shape)}
    np.savez(tmp_path / "x.npz", **{prefix + name: part for name, part in parts.items()})
    graph = with_features(NUMBERED, tmp_path / "x.npz")
    assert isinstance(graph.features, sparse.csr_array)
    np.testing.assert_array_equal(graph.features.toarray(), x.toarray())


@pytest.mark.parametrize(
    "text", ["id,age,pay\ncid,3,0.5\nann,1,2\n", "cid,3,0.5\nann,1,2\n", "id,age,pay\n cid , 3,0.5\nann,1,2\n"]
)
def test_a_table_names_its_nodes(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    graph = with_features(NAMED, tmp_path / "x.csv")
    np.testing.assert_array_equal(graph.features, [[1, 2], [0, 0], [3, 0.5]])
    assert graph.notes == ("1 nodes have no row in x.csv, their attributes are zero",)


def test_ids_that_the_graph_lacks_are_left_out_and_said(tmp_path):
    (tmp_path / "x.csv").write_text("id,age\nann,1\nbob,2\ncid,3\nzoe,9\n")
    graph = with_features(NAMED, tmp_path / "x.csv")
    np.testing.assert_array_equal(graph.features, [[1], [2], [3]])
    assert graph.notes == ("1 ids of x.csv are not in the graph, left out",)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_attributes_that_tell_nothing_are_said(tmp_path, form):
    x = form(np.array([[2.0, 0, 1], [2, 0, 0], [2, 0, 5], [2, 0, 0], [2, 0, 0]]))
    if isinstance(x, np.ndarray):
        np.savez(tmp_path / "x.npz", x)
    else:
        sparse.save_npz(tmp_path / "x.npz", x)
    assert with_features(NUMBERED, tmp_path / "x.npz").notes == ("2 attributes are the same for all nodes",)


def bad_csr(**changed):
    x = sparse.csr_array(np.eye(5))
    return {"data": x.data, "indices": x.indices, "indptr": x.indptr, "shape": np.array(x.shape)} | changed


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.ones((4, 2))}, "4 rows, the graph has a node 4"),
        ({"x": np.array([[0, 1], [0, np.inf], [0, 0], [0, 0], [0, 0]])}, "node 1 has an attribute that is not finite"),
        ({"x": np.ones(5)}, "shape"),
        ({"x": np.array([["a"]] * 5)}, "type"),
        ({"a": np.ones((5, 2)), "b": np.ones((5, 2))}, "neither one matrix nor a CSR matrix but a, b"),
        (bad_csr(indices=np.array([0, 1, 2, 3, 77])), "damaged"),
        (bad_csr(indptr=np.array([0, 1, 2])), "damaged"),
        (bad_csr(data=np.array([1, 1, np.nan, 1, 1])), "node 2 has an attribute that is not finite"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(tmp_path, arrays, said):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(InputError, match=said):
        with_features(NUMBERED, tmp_path / "x.npz")


def test_rows_by_number_are_no_use_to_named_nodes(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    with pytest.raises(InputError, match="a node is called 'ann'"):
        with_features(NAMED, tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,age\nann,1\nann,2\n", "'ann' twice"),
        ("id,age\nann,old\n", "attribute 1 of the node ann is no number: 'old'"),
        ("id,age\nann,\n", "attribute 1 of the node ann is no number: ''"),
        ("id,age\nann,inf\n", "node ann has an attribute that is not finite"),
        ("id,age\nzoe,1\n", "names no node"),
        ("id\nann\n", "holds no attributes"),
        ("id,age\nann,1,2,3\n", "no table"),
        ("", "no table"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path, text, said):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        with_features(NAMED, tmp_path / "x.csv")

"""Graphs of every format: known counts of real data, one graph through all formats, and files that are refused."""

import gzip
import pickle
import struct

import networkx as nx
import numpy as np
import pytest
import scipy.io
from scipy import sparse

from icml25cli.core.errors import InputError, MissingError
from icml25cli.papers.linkpred.edge_list import Columns
from icml25cli.papers.linkpred.names import graph_names
from icml25cli.papers.linkpred.readers import read_graph

KARATE = sorted(tuple(sorted(map(int, edge))) for edge in nx.karate_club_graph().edges)


def edges_of(graph):
    return sorted(tuple(sorted((int(graph.ids[u]), int(graph.ids[v])))) for u, v in graph.edges.tolist())


@pytest.mark.parametrize(
    ("name", "nodes", "edges"), [("karate", 34, 78), ("davis", 32, 89), ("florentine", 15, 20), ("lesmis", 77, 254)]
)
def test_networkx_graphs_are_there_by_name(name, nodes, edges):
    graph = read_graph(name)
    assert (graph.name, graph.num_nodes, len(graph.edges), graph.notes) == (name, nodes, edges, ())


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "stored", "largest", "isolated"),
    [
        ("cora", 2708, 5278, 1433, 49216, 168, 0),
        ("citeseer", 3327, 4552, 3703, 105165, 99, 48),
        ("pubmed", 19717, 44324, None, None, 171, 0),
        ("seal_USAir", 332, 2126, None, None, 139, 0),
        ("seal_NS", 1589, 2742, None, None, 34, 128),
        ("seal_PB", 1222, 16714, None, None, 351, 0),
        ("seal_Yeast", 2375, 11693, None, None, 118, 0),
        ("seal_Celegans", 297, 2148, None, None, 134, 0),
        ("seal_Power", 4941, 6594, None, None, 19, 0),
        ("seal_Router", 5022, 6258, None, None, 106, 0),
        ("seal_Ecoli", 1805, 14660, None, None, None, 0),
        ("seal_facebook", 4039, 88234, None, None, 1045, 0),
    ],
)
def test_real_data_has_its_known_counts(development_data, name, nodes, edges, features, stored, largest, isolated):
    graph = read_graph(str(development_data / "linkpred" / f"{name}.npz"))
    assert (graph.num_nodes, len(graph.edges)) == (nodes, edges)
    assert int((graph.degrees == 0).sum()) == isolated
    if largest is not None:
        assert graph.degrees.max() == largest
    if features is None:
        assert graph.features is None
    else:
        assert isinstance(graph.features, sparse.csr_array)
        assert (graph.features.shape, graph.features.nnz) == ((nodes, features), stored)


def test_planetoid_originals_are_what_was_converted_from_them(development_data):
    converted = read_graph(str(development_data / "linkpred" / "cora.npz"))
    for source in ("ind.cora.graph", "ind.cora.test.index", "."):
        graph = read_graph(str(development_data / "linkpred" / source))
        assert graph.name == "cora"
        assert graph.fingerprint == converted.fingerprint


def test_seals_matlab_file_is_its_array(development_data):
    matlab = read_graph(str(development_data / "linkpred" / "USAir.mat"))
    array = read_graph(str(development_data / "linkpred" / "seal_USAir.npz"))
    assert matlab.fingerprint == array.fingerprint
    assert matlab.notes == ()


@pytest.mark.assets
@pytest.mark.parametrize(
    ("name", "nodes", "edges"), [("netscience", 1589, 2742), ("power-grid", 4941, 6594), ("polblogs", 1490, 16715)]
)
def test_graphs_of_the_asset_store(fetched_cache, monkeypatch, name, nodes, edges):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(fetched_cache))
    try:
        graph = read_graph(name)
    except MissingError as error:
        pytest.skip(error.message)
    assert (graph.name, graph.num_nodes, len(graph.edges)) == (name, nodes, edges)
    if name == "netscience":
        assert "BARABASI, A" in graph.index


def test_an_asset_that_is_not_fetched_says_how(tmp_path, monkeypatch):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    with pytest.raises(MissingError) as caught:
        read_graph("netscience")
    assert "icml25 assets fetch netscience" in (caught.value.hint or "")
    assert {"karate", "netscience"} <= set(graph_names())


# --- one graph through every format


def as_edges(path):
    path.write_text("".join(f"{u},{v}\n" for u, v in KARATE))


def as_arrays(path):
    np.savez(path, edges=np.array(KARATE), num_nodes=np.array(34))


def as_edge_index(path):
    np.savez(path, edge_index=np.array([*KARATE, *((v, u) for u, v in KARATE)]).T)


def as_sparse(path):
    sparse.save_npz(path, nx.to_scipy_sparse_array(nx.from_edgelist(KARATE), nodelist=range(34)))


def as_matlab(path):
    scipy.io.savemat(path, {"net": nx.to_scipy_sparse_array(nx.from_edgelist(KARATE), nodelist=range(34))})


def as_dense_matlab(path):
    scipy.io.savemat(
        path, {"A": nx.to_numpy_array(nx.from_edgelist(KARATE), nodelist=range(34)), "x": np.ones((34, 2))}
    )


def as_gt(path, names=None):
    """By the format's documentation, each edge with its smaller end; two properties before the names."""
    lists = [[v for u, v in KARATE if u == node] for node in range(34)]
    raw = b"\xe2\x9b\xbe gt\x01\x00" + struct.pack("<Q", 2) + b"hi" + b"\0" + struct.pack("<Q", 34)
    raw += b"".join(struct.pack("<Q", len(out)) + bytes(out) for out in lists)
    maps = [b"\x00" + string("readme") + b"\x06" + string("text"), b"\x02" + string("w") + b"\x04" + bytes(8 * 78)]
    if names:
        maps.append(b"\x01" + string("pos") + b"\x0a" + struct.pack("<Qd", 1, 0.5) * 34)
        maps.append(b"\x01" + string("label") + b"\x06" + b"".join(map(string, names)))
    raw += struct.pack("<Q", len(maps)) + b"".join(maps)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def as_torch(path):
    import torch

    both = np.array([*KARATE, *((v, u) for u, v in KARATE)]).T
    torch.save({"edge_index": torch.tensor(both), "x": torch.ones(34, 2), "num_nodes": 34}, path)


WRITERS = {
    "g.csv": as_edges,
    "arrays.npz": as_arrays,
    "index.npz": as_edge_index,
    "sparse.npz": as_sparse,
    "g.mat": as_matlab,
    "dense.mat": as_dense_matlab,
    "g.gt": as_gt,
    "g.gt.gz": as_gt,
    "g.pt": as_torch,
    "g.graphml": lambda path: nx.write_graphml(nx.from_edgelist(KARATE), path),
    "g.graphml.gz": lambda path: nx.write_graphml(nx.from_edgelist(KARATE), path),
    "g.gml": lambda path: nx.write_gml(nx.from_edgelist(KARATE), path),
    "g.gexf": lambda path: nx.write_gexf(nx.from_edgelist(KARATE), path),
    "g.net": lambda path: nx.write_pajek(nx.from_edgelist(KARATE), path),
    "g.adjlist": lambda path: nx.write_adjlist(nx.from_edgelist(KARATE), path),
}


@pytest.mark.parametrize("file", WRITERS)
def test_the_karate_club_is_itself_in_every_format(tmp_path, file):
    WRITERS[file](tmp_path / file)
    graph = read_graph(str(tmp_path / file))
    assert edges_of(graph) == KARATE
    assert (graph.num_nodes, graph.notes, graph.name) == (34, (), file.partition(".")[0])


def test_names_in_a_gt_file_are_kept_if_they_tell_all_apart(tmp_path):
    as_gt(tmp_path / "g.gt", names=[f"member {i}" for i in range(34)])
    assert read_graph(str(tmp_path / "g.gt")).ids[:2] == ("member 0", "member 1")
    as_gt(tmp_path / "g.gt", names=["same"] * 34)
    assert read_graph(str(tmp_path / "g.gt")).ids[:2] == ("0", "1")


def test_a_directed_graph_with_attributes_of_edges(tmp_path):
    given = nx.DiGraph()
    given.add_edge("b", "a", year=2001, w=2.0)
    given.add_edge("a", "b", year=1999, w=1.0)
    given.add_edge("c", "c", year=2000, w=1.0)
    given.add_node("alone")
    nx.write_graphml(given, tmp_path / "g.graphml")
    graph = read_graph(str(tmp_path / "g.graphml"), columns=Columns(time="year", weight="w"))
    assert graph.times is not None
    assert graph.weights is not None
    assert (graph.ids, graph.times.tolist(), graph.weights.tolist()) == (("b", "a", "c", "alone"), [1999], [3])
    assert graph.notes[0] == "1 self loop dropped"
    assert graph.notes[1].startswith("directed edges taken as undirected; 1 ")
    with pytest.raises(InputError, match="no number called day"):
        read_graph(str(tmp_path / "g.graphml"), columns=Columns(time="day"))


def test_gml_whose_labels_are_not_unique_is_named_by_id(tmp_path):
    (tmp_path / "g.gml").write_text(
        'graph [ node [ id 3 label "x" ] node [ id 5 label "x" ] edge [ source 3 target 5 ] ]'
    )
    assert read_graph(str(tmp_path / "g.gml")).ids == ("3", "5")


def test_an_unsymmetric_matrix_is_directed(tmp_path):
    sparse.save_npz(tmp_path / "g.npz", sparse.csr_array(np.array([[0, 1, 0], [0, 0, 1], [0, 1, 0]])))
    graph = read_graph(str(tmp_path / "g.npz"))
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.notes == ("directed edges taken as undirected; 1 were there in both directions",)


def test_a_file_wins_over_a_known_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "karate").mkdir()
    with pytest.raises(InputError, match="karate is a folder"):
        read_graph("karate")


# --- PyTorch Geometric without PyTorch Geometric


def save_as_pyg(path, monkeypatch, fields):
    """What PyTorch Geometric's Data looks like to pickle: an object with a storage that holds the fields."""
    import sys
    import types

    import torch

    def module(name, **classes):
        made = types.ModuleType(name)
        for label, cls in classes.items():
            cls.__module__, cls.__qualname__ = name, label
            setattr(made, label, cls)
        monkeypatch.setitem(sys.modules, name, made)

    storage, data = type("GlobalStorage", (), {}), type("Data", (), {})
    module("torch_geometric")
    module("torch_geometric.data")
    module("torch_geometric.data.data", Data=data)
    module("torch_geometric.data.storage", GlobalStorage=storage)
    saved, stored = data(), storage()
    vars(stored)["_mapping"] = fields
    vars(saved)["_store"] = stored
    torch.save(saved, path)


def test_a_data_object_is_read_without_its_library(tmp_path, monkeypatch):
    import torch

    fields = {"edge_index": torch.tensor([[0, 1], [1, 2]]), "x": torch.eye(4), "y": torch.zeros(4)}
    with monkeypatch.context() as patched:
        save_as_pyg(tmp_path / "g.pt", patched, fields)
    graph = read_graph(str(tmp_path / "g.pt"))
    assert (graph.edges.tolist(), graph.num_nodes) == ([[0, 1], [1, 2]], 4)
    np.testing.assert_array_equal(graph.features, np.eye(4))


# --- refused


class Trap:
    """Unpickled by an ordinary unpickler, it leaves a file behind."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (type(self.target).touch, (self.target,))


def test_pickles_are_refused_and_run_nothing(tmp_path):
    import torch

    trap = Trap(tmp_path / "sprung")
    for name in ("g.pkl", "g.gpickle"):
        (tmp_path / name).write_bytes(pickle.dumps(trap))
        with pytest.raises(InputError, match="never loaded"):
            read_graph(str(tmp_path / name))
    torch.save({"edge_index": trap}, tmp_path / "g.pt")
    with pytest.raises(InputError, match="something else than tensors"):
        read_graph(str(tmp_path / "g.pt"))
    np.savez(tmp_path / "g.npz", edges=np.array([trap], dtype=object))
    with pytest.raises(InputError, match="never loaded"):
        read_graph(str(tmp_path / "g.npz"))
    assert not (tmp_path / "sprung").exists()


def planetoid(folder, **changed):
    """A set of three training nodes and two test nodes, the fourth number left out as in Citeseer."""
    links = {0: [1, 2], 1: [0], 2: [0, 5], 3: [4], 4: [3], 5: [2]}
    parts = {
        "graph": links,
        "allx": sparse.csr_matrix(np.array([[1, 0], [0, 1], [1, 1]], np.float32)),
        "tx": sparse.csr_matrix(np.array([[0, 5], [7, 0]], np.float32)),
    }
    for part, value in (parts | changed).items():
        (folder / f"ind.toy.{part}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / "ind.toy.test.index").write_text("5\n3\n")


def test_planetoids_test_rows_go_where_the_index_says(tmp_path):
    planetoid(tmp_path)
    graph = read_graph(str(tmp_path))
    assert isinstance(graph.features, sparse.csr_array)
    assert graph.features.toarray().tolist() == [[1, 0], [0, 1], [1, 1], [7, 0], [0, 0], [0, 5]]
    assert graph.edges.tolist() == [[0, 1], [0, 2], [2, 5], [3, 4]]


def test_a_planetoid_file_that_names_anything_else_is_refused(tmp_path):
    for part in ("graph", "allx"):
        planetoid(tmp_path, **{part: Trap(tmp_path / "sprung")})
        with pytest.raises(InputError, match="not admitted"):
            read_graph(str(tmp_path))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "changed",
    [{"graph": [1, 2]}, {"graph": {0: ["x"]}}, {"allx": [[1, 2]]}, {"tx": sparse.csr_matrix(np.ones((3, 2)))}],
)
def test_planetoid_files_of_another_content_are_refused(tmp_path, changed):
    planetoid(tmp_path, **changed)
    with pytest.raises(InputError, match=r"ind\.toy"):
        read_graph(str(tmp_path))


def test_a_planetoid_matrix_with_indices_beyond_it_is_refused(tmp_path):
    broken = sparse.csr_matrix(np.ones((3, 2), np.float32))
    broken.indices[0] = 99
    planetoid(tmp_path, allx=broken)
    with pytest.raises(InputError, match=r"allx holds no sparse matrix"):
        read_graph(str(tmp_path))


@pytest.mark.parametrize("file", [name for name in WRITERS if name not in ("g.csv", "g.adjlist", "g.net")])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.8])
def test_a_torn_file_is_named(tmp_path, file, share):
    path = tmp_path / file
    WRITERS[file](path)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    with pytest.raises(InputError, match=file):
        read_graph(str(path))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"labels": np.ones(3)}, "holds no edges but labels"),
        ({"edges": np.ones((3, 2))}, "holds no edges"),
        ({"edges": np.array([[0, 9]]), "num_nodes": np.array(5)}, "node 9, there are 5"),
        ({"edges": np.array([[0, -1]])}, "node -1"),
        ({"edges": np.array([[0, 1]]), "x": np.ones((3, 2)), "num_nodes": np.array(2)}, "3 rows of attributes for 2"),
        ({"edges": np.array([[0, 1]]), "x": np.array([[1.0], [np.nan]])}, "node 1 has an attribute that is not finite"),
        ({"edges": np.array([[0, 1]]), "ids": np.array(["a", "a"])}, "1 different ids for 2"),
        ({"edges": np.array([[0, 1]]), "times": np.array([np.inf])}, "times is not one finite number"),
        ({"edges": np.array([[0, 1]]), "times": np.ones(2)}, "times is not one finite number"),
        ({"edges": np.array([[1, 1]])}, "no edge between two different nodes"),
        ({"edges": np.array([[0, 1]]), "num_nodes": np.array(-3)}, "num_nodes"),
    ],
)
def test_arrays_that_are_no_graph_are_refused(tmp_path, arrays, said):
    np.savez(tmp_path / "g.npz", **arrays)
    with pytest.raises(InputError, match=said):
        read_graph(str(tmp_path / "g.npz"))


def test_a_matlab_file_without_an_adjacency_matrix_is_refused(tmp_path):
    scipy.io.savemat(tmp_path / "g.mat", {"x": np.ones((3, 2)), "name": "text"})
    with pytest.raises(InputError, match="0 square matrices"):
        read_graph(str(tmp_path / "g.mat"))


def test_the_shape_of_what_is_no_edges_is_told(tmp_path):
    np.savez(tmp_path / "g.npz", edges=np.zeros((2, 78), int))
    with pytest.raises(InputError, match=r"no edges but edges \(2, 78\) of int64"):
        read_graph(str(tmp_path / "g.npz"))


def test_an_adjacency_matrix_with_nan_is_no_graph(tmp_path):
    scipy.io.savemat(tmp_path / "g.mat", {"net": np.full((5, 5), np.nan)})
    with pytest.raises(InputError, match="holds NaN"):
        read_graph(str(tmp_path / "g.mat"))


def test_a_torn_matlab_file_is_torn_and_an_absent_one_absent(tmp_path):
    scipy.io.savemat(tmp_path / "g.mat", {"net": np.eye(40)})
    raw = (tmp_path / "g.mat").read_bytes()
    (tmp_path / "g.mat").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(InputError, match="not a whole MATLAB file"):
        read_graph(str(tmp_path / "g.mat"))


def test_an_early_end_is_said_where_a_parser_says_nothing(tmp_path):
    (tmp_path / "g.net").write_text("*vertices 3\n1 a\n2 b\n3 ")
    with pytest.raises(InputError, match=r"as \.net: \S"):
        read_graph(str(tmp_path / "g.net"))


@pytest.mark.filterwarnings("error")
def test_a_refused_pickle_brings_no_warning_of_its_reader(tmp_path):
    import pickle

    (tmp_path / "g.pt").write_bytes(pickle.dumps({"edge_index": object()}, protocol=4))
    with pytest.raises(InputError, match="something else than tensors"):
        read_graph(str(tmp_path / "g.pt"))


@pytest.mark.parametrize("source", ["nowhere.csv", "carate"])
def test_what_is_not_there_is_named_with_what_is_known(source):
    with pytest.raises(InputError, match=source) as caught:
        read_graph(source)
    assert "karate" in (caught.value.hint or "")


def test_a_kind_that_is_not_known_is_named(tmp_path):
    (tmp_path / "g.docx").write_text("x")
    with pytest.raises(InputError, match=r"g\.docx is of a kind"):
        read_graph(str(tmp_path / "g.docx"))

"""Graphs as arrays: NumPy's `.npz`, MATLAB's `.mat`, PyTorch Geometric's `.pt`; and `.npz` written so that all is kept.

Knows these formats. Does not know tables of edges or attributes. Nodes without ids are named by their row, from 0.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.io import loadmat

from icml25cli.core.errors import InputError
from icml25cli.core.files import atomic_path
from icml25cli.core.tables import read_arrays
from icml25cli.papers.linkpred.features import CSR_PARTS, check_features, features_of
from icml25cli.papers.linkpred.graph import Graph, build_graph, pack_ids, unpack_ids


def read_npz(path: Path) -> Graph:
    """Read ``edges`` (m, 2) or ``edge_index`` (2, m), with ``num_nodes``, ``ids``, ``times``, ``weights`` and the
    attributes ``x``, or ``x_data``, ``x_indices``, ``x_indptr`` and ``x_shape``, where they are there; or a matrix
    that ``scipy.sparse.save_npz`` wrote.

    Raises:
        InputError: the file is absent, torn, holds objects, or its arrays are no graph.
    """
    arrays = read_arrays(path)
    if "format" in arrays and "shape" in arrays:
        try:
            return _of_matrix(path, sparse.coo_array(sparse.load_npz(path)))
        except (ValueError, KeyError, NotImplementedError, IndexError) as error:
            raise InputError(f"{path} is a damaged sparse matrix: {error}", hint="save it again") from error
    return _of_arrays(path, arrays)


def write_graph(path: Path, graph: Graph, *, force: bool = False) -> None:
    """Write ``graph`` as ``.npz``, whole or not at all; ``read_npz`` brings all of it back.

    Raises:
        OutputError: the file exists (without ``force``) or cannot be written.
    """
    arrays: dict[str, Any] = {
        "name": np.array(graph.name),
        "notes": np.array(graph.notes, dtype=np.str_),
        "edges": graph.edges,
        "num_nodes": np.array(graph.num_nodes),
        **pack_ids(graph.ids),
        "times": graph.times,
        "weights": graph.weights,
    }
    if isinstance(graph.features, np.ndarray):
        arrays["x"] = graph.features
    elif graph.features is not None:
        arrays |= {f"x_{part}": np.asarray(getattr(graph.features, part)) for part in CSR_PARTS}
    there = {name: array for name, array in arrays.items() if array is not None}
    with atomic_path(path, force=force) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **there)


def _of_arrays(path: Path, arrays: dict[str, np.ndarray]) -> Graph:
    edges = arrays["edges"] if "edges" in arrays else arrays.get("edge_index", np.empty(0)).T
    if edges.ndim != 2 or edges.shape[-1] != 2 or edges.dtype.kind not in "iu":
        held = [f"{name or 'an array'} {array.shape} of {array.dtype}" for name, array in arrays.items()]
        raise InputError(
            f"{path} holds no edges but {', '.join(held) or 'nothing'}",
            hint="whole numbers called edges, of shape (m, 2), or edge_index, of shape (2, m), are expected",
        )
    features = features_of(arrays, str(path))
    num_nodes = int(edges.max(initial=-1)) + 1
    if "num_nodes" in arrays:
        num_nodes = _whole_number(path, arrays["num_nodes"])
    elif features is not None:
        num_nodes = features.shape[0]
    if edges.size and not 0 <= int(edges.min()) <= int(edges.max()) < num_nodes:
        wrong = int(edges.min() if edges.min() < 0 else edges.max())
        raise InputError(f"{path}: an edge leads to node {wrong}, there are {num_nodes} from 0", hint="count from 0")
    ids = _ids(path, arrays, num_nodes)
    if features is not None:
        if features.shape[0] != num_nodes:
            raise InputError(
                f"{path} has {features.shape[0]} rows of attributes for {num_nodes} nodes", hint="one each"
            )
        check_features(features, ids, str(path))
    more: dict[str, Any] = {name: arrays[name] for name in ("times", "weights") if name in arrays}
    for name, values in more.items():
        if values.shape != edges.shape[:1] or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise InputError(f"{path}: {name} is not one finite number an edge", hint="give one each, or leave it out")
    return build_graph(
        str(arrays.get("name", path.stem)),
        ids,
        edges.astype(np.int64),
        features=features,
        notes=[str(text) for text in arrays.get("notes", ())],
        **{name: values.astype(np.float64) for name, values in more.items()},
    )


def _whole_number(path: Path, array: np.ndarray) -> int:
    if array.size != 1 or array.dtype.kind not in "iu" or not 0 < int(array.reshape(-1)[0]) < 2**31:
        raise InputError(f"{path}: num_nodes is no number of nodes", hint="give one whole number")
    return int(array.reshape(-1)[0])


def _ids(path: Path, arrays: dict[str, np.ndarray], num_nodes: int) -> list[str]:
    if "ids_utf8" in arrays and "ids_end" in arrays:
        try:
            ids = unpack_ids(arrays)
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: the ids are damaged", hint="write the file again") from error
    elif "ids" in arrays:
        ids = [str(name) for name in arrays["ids"].reshape(-1)]
    else:
        ids = [str(i) for i in range(num_nodes)]
    if not len(set(ids)) == len(ids) == num_nodes:
        raise InputError(f"{path} has {len(set(ids))} different ids for {num_nodes} nodes", hint="one each")
    return ids


def read_mat(path: Path) -> Graph:
    """Read a MATLAB file with a square matrix called ``net``, as SEAL's are, or with just one square matrix.

    Raises:
        InputError: the file is absent, torn, of version 7.3, or holds no such matrix.
    """
    try:
        variables = {name: value for name, value in loadmat(path).items() if not name.startswith("__")}
    except NotImplementedError as error:
        raise InputError(f"{path} is a MATLAB 7.3 file", hint="save it with -v7") from error
    except Exception as error:  # a torn file raises whatever zlib, struct and numpy do
        if isinstance(error, OSError) and error.strerror:
            raise InputError(f"{path} cannot be read: {error.strerror}", hint="check the path") from error
        raise InputError(f"{path} is not a whole MATLAB file: {error}", hint="save it again") from error
    square = {
        name: value
        for name, value in variables.items()
        if getattr(value, "ndim", 0) == 2 and value.shape[0] == value.shape[1] > 1 and value.dtype.kind in "fiub"
    }
    chosen = square.get("net", next(iter(square.values())) if len(square) == 1 else None)
    if chosen is None:
        raise InputError(
            f"{path} holds {len(square)} square matrices and none called net",
            hint=f"it holds {', '.join(variables) or 'nothing'}; save the adjacency matrix as net",
        )
    return _of_matrix(path, sparse.coo_array(chosen))


def _of_matrix(path: Path, matrix: Any) -> Graph:
    """The graph of an adjacency matrix: an edge wherever it is not zero."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"{path} has shape {matrix.shape}, an adjacency matrix is square", hint="save another")
    if not np.isfinite(matrix.data).all():
        raise InputError(f"{path}: the adjacency matrix holds NaN or infinity", hint="write 0 where there is no edge")
    rows, columns = (axis[matrix.data != 0].astype(np.int64) for axis in matrix.coords)
    ones = np.ones(len(rows))
    here: Any = sparse.csr_array((ones, (rows, columns)), matrix.shape)
    there: Any = sparse.csr_array((ones, (columns, rows)), matrix.shape)
    pairs = np.stack([rows, columns], axis=1)
    directed = (here != there).nnz > 0
    return build_graph(path.stem, [str(i) for i in range(matrix.shape[0])], pairs, directed=directed)


# Classes that a saved ``Data`` names. Stand-ins take their state and nothing else, so what is loaded runs no code of
# PyTorch Geometric's, which need not be installed.
_PYG = (
    "torch_geometric.data.data.Data",
    "torch_geometric.data.data.DataEdgeAttr",
    "torch_geometric.data.data.DataTensorAttr",
    "torch_geometric.data.storage.GlobalStorage",
)


def read_pt(path: Path) -> Graph:
    """Read PyTorch Geometric's ``Data``, a dict with its fields, or the first of a tuple of such, as data sets keep it.

    Raises:
        InputError: the file is absent, torn, names other classes, or holds no homogeneous graph.
    """
    import torch

    admitted: list[Any] = [(type(name.rpartition(".")[2], (_Stored,), {}), name) for name in _PYG]
    try:
        with torch.serialization.safe_globals(admitted), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickles that are refused anyway
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint="check the path") from error
    except Exception as error:
        raise InputError(
            f"{path} holds something else than tensors, or is torn", hint="save data.to_dict() with torch.save"
        ) from error
    first = loaded[0] if isinstance(loaded, tuple) and loaded else loaded
    if isinstance(first, _Stored):
        first = getattr(first.__dict__.get("_store"), "__dict__", {}).get("_mapping")
    if not isinstance(first, dict) or not isinstance(first.get("edge_index"), torch.Tensor):
        raise InputError(f"{path} holds no edge_index", hint="save one homogeneous graph, data.to_dict()")
    names = {"edge_index": "edge_index", "x": "x", "num_nodes": "num_nodes", "time": "times", "edge_weight": "weights"}
    arrays = {
        ours: value.to_dense().numpy() if isinstance(value, torch.Tensor) else np.array(value)
        for theirs, ours in names.items()
        if (value := first.get(theirs)) is not None
    }
    return _of_arrays(path, arrays)


class _Stored:
    """Takes the place of an object: its state, and nothing that acts on it."""

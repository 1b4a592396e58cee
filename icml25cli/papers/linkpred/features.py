"""Attributes of nodes from a file, put beside a graph.

A matrix (.npy, .npz, dense or CSR) has a row for each node number, so the graph's nodes must be named by whole numbers;
a table (.csv, .tsv, .parquet) names the node in its first column. Knows files and graphs, not what attributes mean.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from icml25cli.core.errors import InputError
from icml25cli.core.tables import read_arrays
from icml25cli.papers.linkpred.edge_list import are_numbers, is_number
from icml25cli.papers.linkpred.graph import CSR, Features, Graph

CSR_PARTS = ("data", "indices", "indptr", "shape")


def with_features(graph: Graph, path: Path) -> Graph:
    """The graph with the attributes in ``path``, float32.

    A matrix may have rows beyond the largest node of an edge: those nodes are isolated and are added. Nodes that a
    table leaves out get zeros, and those that it alone knows are left out: both are noted.

    Raises:
        InputError: the file is absent, torn or of another kind, has another number of rows, names a node twice, fits no
            node, or holds something else than finite numbers.
    """
    if path.suffix.lower() in (".npy", ".npz"):
        found = _matrix(path)
        graph = _numbered(graph, found.shape[0], path)
        names, notes = graph.ids, []
    else:
        found, notes = _table(path, graph)
        names = graph.ids
    check_features(found, names, str(path))
    return replace(graph, features=found, notes=(*graph.notes, *notes, *_constant(found)))


def features_of(arrays: dict[str, np.ndarray], where: str) -> Features | None:
    """A matrix stored as ``x`` or as ``x_data``, ``x_indices``, ``x_indptr`` and ``x_shape``; None where there is none.

    Raises:
        InputError: its parts do not fit together.
    """
    if "x" in arrays:
        return _dense(arrays["x"], where)
    if all(f"x_{part}" in arrays for part in CSR_PARTS):
        return _csr({part: arrays[f"x_{part}"] for part in CSR_PARTS}, where)
    return None


def check_features(found: Features, names: Any, where: str) -> None:
    """Refuse values that are not finite, naming the node.

    Raises:
        InputError: there is one.
    """
    dense = isinstance(found, np.ndarray)
    wrong = np.flatnonzero(~np.isfinite(found.reshape(-1) if dense else found.data))
    if wrong.size:
        row = wrong[0] // found.shape[1] if dense else np.searchsorted(found.indptr, wrong[0], side="right") - 1
        raise InputError(
            f"{where}: the node {names[int(row)]} has an attribute that is not finite",
            hint="fill or drop such attributes",
        )


def _constant(found: Features) -> list[str]:
    if isinstance(found, np.ndarray):
        constant = found.min(axis=0) == found.max(axis=0)
    else:
        filled = np.bincount(found.indices, found.data != 0, minlength=found.shape[1])
        low, high = (extreme(axis=0).toarray().ravel() for extreme in (found.min, found.max))
        constant = (filled == 0) | ((filled == found.shape[0]) & (low == high))
    count = int(constant.sum())
    return [f"{count:,} attribute{'s are' if count > 1 else ' is'} the same for all nodes"] if count else []


def _matrix(path: Path) -> Features:
    arrays = read_arrays(path)
    if all(part in arrays for part in CSR_PARTS):
        return _csr({part: arrays[part] for part in CSR_PARTS}, str(path))
    found = features_of(arrays, str(path))
    if found is not None:
        return found
    if len(arrays) != 1:
        raise InputError(
            f"{path} holds neither one matrix nor a CSR matrix but {', '.join(arrays)}",
            hint="save one with numpy.save or scipy.sparse.save_npz",
        )
    return _dense(next(iter(arrays.values())), str(path))


def _dense(array: np.ndarray, where: str) -> np.ndarray:
    if array.ndim != 2 or array.dtype.kind not in "fiub" or not array.size:
        raise InputError(
            f"{where}: attributes have shape {array.shape} and type {array.dtype}",
            hint="a row of numbers a node is expected",
        )
    return np.ascontiguousarray(array, dtype=np.float32)


def _csr(parts: dict[str, np.ndarray], where: str) -> CSR:
    try:
        shape = tuple(int(size) for size in parts["shape"])
        data = parts["data"].astype(np.float32)
        matrix = sparse.csr_array((data, parts["indices"].astype(np.int64), parts["indptr"].astype(np.int64)), shape)
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise InputError(f"{where}: the CSR matrix of attributes is damaged: {error}", hint="save it again") from error
    matrix.sum_duplicates()
    return matrix


def _numbered(graph: Graph, rows: int, path: Path) -> Graph:
    """The graph with the nodes 0 to ``rows`` - 1, some of them isolated."""
    if not are_numbers(graph.ids):
        strange = next(name for name in graph.ids if not are_numbers([name]))
        raise InputError(
            f"{path} has a row for each node number, and a node is called '{strange}'",
            hint="give attributes as a CSV whose first column is the node's id",
        )
    numbers = np.array(graph.ids, dtype=np.int64)
    if numbers.max() >= rows:
        raise InputError(
            f"{path} has {rows:,} rows, the graph has a node {numbers.max()}",
            hint="rows count from 0, one for every node",
        )
    return replace(graph, ids=tuple(str(i) for i in range(rows)), edges=numbers[graph.edges])


def _table(path: Path, graph: Graph) -> tuple[np.ndarray, list[str]]:
    try:
        if path.suffix.lower() == ".parquet":
            table = pd.read_parquet(path)
        else:
            separator = "\t" if ".tsv" in path.suffixes else ","
            table = pd.read_csv(path, sep=separator, header=None, dtype=str, na_filter=False, skipinitialspace=True)
            if not all(map(is_number, table.iloc[0, 1:])):  # else a table without a header
                table = table.iloc[1:]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint="check the path") from error
    except Exception as error:  # of pandas, pyarrow, gzip, csv
        raise InputError(f"{path} is no table of attributes: {error}", hint="first column id, then numbers") from error
    if table.shape[1] < 2 or not len(table):
        raise InputError(
            f"{path} holds no attributes", hint="lines of an id and numbers are expected, under a header or not"
        )
    names = table.iloc[:, 0].astype(str).str.strip()
    if names.duplicated().any():
        raise InputError(f"{path} names the node '{names[names.duplicated()].iloc[0]}' twice", hint="one row a node")
    columns = []
    for place in range(1, table.shape[1]):
        column = table.iloc[:, place]
        values: Any = pd.to_numeric(column, errors="coerce")
        if values.isna().any():
            row = int(np.flatnonzero(values.isna())[0])
            raise InputError(
                f"{path}: attribute {place} of the node {names.iloc[row]} is no number: '{column.iloc[row]}'",
                hint="fill what is missing, and code categories as numbers",
            )
        columns.append(values.to_numpy(np.float32))
    rows = names.map(graph.index)
    inside = rows.notna().to_numpy()
    if not inside.any():
        raise InputError(f"{path} names no node of the graph", hint="its first column has to hold ids as in the edges")
    found = np.zeros((graph.num_nodes, len(columns)), np.float32)
    found[rows[inside].astype(int)] = np.stack(columns, axis=1)[inside]
    notes = []
    if outside := int((~inside).sum()):
        notes.append(f"{outside:,} ids of {path.name} are not in the graph, left out")
    if bare := graph.num_nodes - int(inside.sum()):
        notes.append(f"{bare:,} nodes have no row in {path.name}, their attributes are zero")
    return found, notes

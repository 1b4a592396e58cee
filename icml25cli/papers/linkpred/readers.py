"""A graph from whatever the user has: a file of any usual format, a folder of a benchmark, a built-in or fetched graph.

Knows formats and chooses by name. Does not know splits. Nothing is unpickled but Planetoid's own files, by a reader
that admits arrays alone.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from icml25cli.core import store
from icml25cli.core.errors import InputError
from icml25cli.core.files import expand
from icml25cli.papers.linkpred.array_files import read_mat, read_npz, read_pt
from icml25cli.papers.linkpred.edge_list import TEXT, USUAL, Columns, in_natural_order, read_parquet, read_text
from icml25cli.papers.linkpred.features import with_features
from icml25cli.papers.linkpred.graph import Graph, build_graph
from icml25cli.papers.linkpred.gt_file import read_gt
from icml25cli.papers.linkpred.names import BUILTIN, graph_names
from icml25cli.papers.linkpred.ogb import is_ogb, read_ogb
from icml25cli.papers.linkpred.planetoid import is_planetoid, read_planetoid

NETWORKX = {
    ".graphml": "read_graphml",
    ".gml": "read_gml",
    ".gexf": "read_gexf",
    ".net": "read_pajek",
    ".adjlist": "read_adjlist",
}


def read_graph(source: str, *, columns: Columns = USUAL, features: Path | None = None) -> Graph:
    """The graph that ``source`` names: a file, a folder, ``-`` for edges on standard input, or one of ``graph_names``.

    Args:
        columns: of tables of edges; for other formats ``weight`` and ``time`` name an attribute of edges.
        features: a file of attributes that replaces those in the graph's own file.

    Raises:
        InputError: there is nothing of that name, or it is torn, or no graph, or has no edge.
        MissingError: it is an asset that is not fetched, or needs a package that is not installed.
        UsageError: a column does not exist.
    """
    graph = _read(source, columns)
    return with_features(graph, features) if features is not None else graph


def _read(source: str, columns: Columns) -> Graph:
    if source == "-":
        return read_text(None, columns).graph()
    path = expand(source)
    if not path.exists():
        if source in BUILTIN:
            return _builtin(source, columns)
        if source in graph_names():
            return replace(read_gt(store.path(source)), name=source)
        raise InputError(
            f"{source} is no file, folder or known graph", hint=f"known graphs: {', '.join(graph_names())}"
        )
    if is_planetoid(path):
        return read_planetoid(path)
    if is_ogb(path):
        return read_ogb(path)[0]
    if path.is_dir():
        raise InputError(
            f"{path} is a folder, and neither one of Planetoid's nor of OGB's", hint="name a file of edges"
        )
    kind = next((suffix.lower() for suffix in reversed(path.suffixes) if suffix.lower() != ".gz"), "")
    reader = _READERS.get(kind)
    if reader is None:
        pickled = kind in (".pkl", ".pickle", ".gpickle", ".p")
        raise InputError(
            f"{path} is {'a pickle, which is never loaded' if pickled else 'of a kind that is not known here'}",
            hint=f"known are {', '.join(_READERS)}, folders of Planetoid and OGB, and - for edges on standard input",
        )
    return reader(path, columns)


def _builtin(name: str, columns: Columns) -> Graph:
    import networkx

    return _of_networkx(name, name, getattr(networkx, BUILTIN[name])(), columns)


def _networkx(path: Path, columns: Columns) -> Graph:
    import networkx

    kind = next(suffix.lower() for suffix in reversed(path.suffixes) if suffix.lower() != ".gz")
    read = getattr(networkx, NETWORKX[kind])
    try:
        try:
            found = read(path)
        except networkx.NetworkXError as error:
            if kind != ".gml" or "label" not in str(error):
                raise
            found = read(path, label="id")  # a label that is absent or not unique names no node
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint="check the path") from error
    except Exception as error:  # each parser has its own
        raise InputError(
            f"{path} cannot be read as {kind}: {str(error) or 'it ends too early'}", hint="write it again with networkx"
        ) from error
    return _of_networkx(re.sub(r"(\.gz)$", "", path.name).rpartition(".")[0], str(path), found, columns)


def _of_networkx(name: str, where: str, found: Any, columns: Columns) -> Graph:
    ids = [str(node) for node in found.nodes]
    row = {node: place for place, node in enumerate(found.nodes)}
    edges = list(found.edges(data=True))
    pairs = np.array([(row[u], row[v]) for u, v, _ in edges], dtype=np.int64).reshape(-1, 2)
    ids, pairs = in_natural_order(ids, pairs)
    times, weights = (_attribute(where, edges, asked) for asked in (columns.time, columns.weight))
    return build_graph(name, ids, pairs, directed=found.is_directed(), times=times, weights=weights)


def _attribute(where: str, edges: list[tuple[Any, Any, dict[str, Any]]], asked: str | None) -> np.ndarray | None:
    """The edge attribute called ``asked``, of every edge."""
    if asked is None:
        return None
    values = np.empty(len(edges))
    for place, (u, v, data) in enumerate(edges):
        try:
            values[place] = float(data[asked])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{where}: the edge {u} - {v} has no number called {asked}") from error
        if not np.isfinite(values[place]) or values[place] < 0:
            raise InputError(
                f"{where}: the edge {u} - {v} has {asked} {values[place]}", hint="numbers from 0 are expected"
            )
    return values


_READERS: dict[str, Callable[[Path, Columns], Graph]] = {
    **dict.fromkeys(TEXT, lambda path, columns: read_text(path, columns).graph()),
    ".parquet": lambda path, columns: read_parquet(path, columns).graph(),
    ".npz": lambda path, _: read_npz(path),
    ".mat": lambda path, _: read_mat(path),
    **dict.fromkeys(NETWORKX, _networkx),
    ".gt": lambda path, _: read_gt(path),
    ".pt": lambda path, _: read_pt(path),
}

"""Pairs and nodes as the user names them, and pictures of them as files.

Knows ids and files. Does not know models.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.core.files import expand
from icml25cli.core.progress import warn
from icml25cli.papers.linkpred.canonical import canonical_graphs
from icml25cli.papers.linkpred.edge_list import USUAL, Columns, read_parquet, read_text
from icml25cli.papers.linkpred.graph import Graph
from icml25cli.papers.linkpred.graphviz import available
from icml25cli.papers.linkpred.pictures import Look, draw
from icml25cli.papers.linkpred.raster import to_rgb
from icml25cli.papers.linkpred.subgraphs import Subgraphs, link_subgraphs, node_subgraphs


def read_pairs(source: str, graph: Graph, columns: Columns = USUAL) -> Int64[ndarray, "b 2"]:
    """Pairs of nodes in the order given, from a table of two columns or standard input (``-``).

    Raises:
        InputError: the table cannot be read, names a node that is not in the graph, or a node with itself.
    """
    if source == "-":
        found = read_text(None, columns)
    else:
        path = expand(source)
        found = read_parquet(path, columns) if path.suffix.lower() == ".parquet" else read_text(path, columns)
    shown = "standard input" if source == "-" else source
    rows = np.array([graph.index.get(name, -1) for name in found.ids], np.int64)
    pairs = rows[found.pairs]
    if (bad := np.flatnonzero((pairs < 0).any(axis=1))).size:
        hint = "check its ids"
        if bad[0] == 0:
            hint = "if that line is a header, name its columns: --src NAME --dst NAME"
        strange = next(found.ids[i] for i in found.pairs[bad[0]] if rows[i] < 0)
        raise InputError(f"{shown}, pair {bad[0] + 1}: '{strange}' is no node of {graph.name}", hint=hint)
    if (own := np.flatnonzero(pairs[:, 0] == pairs[:, 1])).size:
        node = graph.ids[pairs[own[0], 0]]
        raise InputError(f"{shown}, pair {own[0] + 1}: '{node}' with itself", hint="leave it out")
    return pairs


def rows_of_nodes(graph: Graph, names: Sequence[str]) -> Int64[ndarray, "s"]:
    """Rows of the nodes with these names.

    Raises:
        InputError: there is no such node.
    """
    for name in names:
        if name not in graph.index:
            raise InputError(f"'{name}' is no node of {graph.name}", hint=f"its first are {', '.join(graph.ids[:3])}")
    return np.array([graph.index[name] for name in names], np.int64)


def pairs_of(graph: Graph, texts: Sequence[str]) -> Int64[ndarray, "b 2"]:
    """Pairs written as ID,ID.

    Raises:
        InputError: a text is no pair, or names no node.
    """
    pairs = []
    for text in texts:
        words = text.split(",")
        cuts = [(",".join(words[:i]).strip(), ",".join(words[i:]).strip()) for i in range(1, len(words))]
        if len(cuts) > 1:  # ids may hold commas: the one that parts two nodes is meant
            cuts = [cut for cut in cuts if all(name in graph.index for name in cut)]
        if len(cuts) != 1 or cuts[0][0] == cuts[0][1]:
            raise InputError(f"'{text}' is no pair of two nodes", hint="write it as ID,ID")
        names = cuts[0]
        pairs.append(rows_of_nodes(graph, names))
    return np.array(pairs, np.int64).reshape(-1, 2)


def write_pictures(
    directory: Path, graph: Graph, pairs: ndarray, nodes: ndarray, looks: tuple[Look, Look], size: int
) -> list[dict[str, str | int | bool]]:
    """A PNG file for each pair and node; what is on each.

    Args:
        looks: of pairs, of nodes.
    """
    pair_look, node_look = (_drawable(look) for look in looks)
    rows: list[dict[str, str | int | bool]] = []
    around_pairs = link_subgraphs(
        graph.adjacency, pairs, hops=pair_look.hops, max_nodes=pair_look.max_nodes, seed=pair_look.seed
    )
    around_nodes = node_subgraphs(graph.adjacency, nodes, hops=node_look.hops, fanout=node_look.fanout)
    for graphs, look, names in (
        (around_pairs, pair_look, [(graph.ids[u], graph.ids[v]) for u, v in pairs.tolist()]),
        (around_nodes, node_look, [(graph.ids[u],) for u in nodes.tolist()]),
    ):
        rows += _written(directory, graphs, look, names, size, len(rows))
    return rows


def _written(
    directory: Path, graphs: Subgraphs, look: Look, names: list[tuple[str, ...]], size: int, before: int
) -> list[dict[str, str | int | bool]]:
    from PIL import Image

    ordered, _ = canonical_graphs(graphs)
    pictures = to_rgb(draw(ordered, size, look.renderer)) if len(graphs) else np.empty(0)
    rows = []
    for i, (picture, of) in enumerate(zip(pictures, names, strict=True)):
        # Ids may be anything; in names of files only what is harmless everywhere.
        label = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", name)[:40] for name in of)
        file = f"{before + i:03}-{label}.png"
        Image.fromarray(picture).save(directory / file)
        rows.append(
            {
                "file": file,
                "of": " – ".join(of),
                "nodes": len(graphs.nodes_of(i)),
                "edges": len(graphs.edges_of(i)),
                "sampled": bool(graphs.cut[i]),
            }
        )
    return rows


def _drawable(look: Look) -> Look:
    """The look, by our own renderer where Graphviz's program is not installed."""
    if look.renderer == "native" or available(look.renderer):
        return look
    warn(f"Graphviz's program {look.renderer} is not installed: pictures are laid out by the native renderer")
    return replace(look, renderer="native")

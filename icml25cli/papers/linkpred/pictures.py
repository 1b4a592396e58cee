"""From pairs or nodes to features of their pictures: cut out, put in order, drawn once a kind, looked at, kept.

Features are kept in a run directory whose key is everything that they depend on: the observed edges, the split, what is
asked for, hops, sampling and seed, renderer with version, size, encoder and its weights. A second split never sees the
first one's pictures, and a picture is never taken for another of the same name.

Knows graphs, pictures, encoders and the cache. Does not know what features are used for.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float16, Float32, Int64, Integer, UInt8
from numpy import ndarray
from scipy import sparse

from icml25cli.core.errors import InputError, MissingError, UsageError
from icml25cli.core.progress import Progress, warn
from icml25cli.core.runs import Run, fingerprint, run_directory
from icml25cli.core.tables import read_array
from icml25cli.papers.linkpred import layout, raster
from icml25cli.papers.linkpred.canonical import distinct
from icml25cli.papers.linkpred.encoders import Encoder
from icml25cli.papers.linkpred.graphviz import ENGINES, graphviz_layout
from icml25cli.papers.linkpred.subgraphs import FANOUT, MAX_NODES, NODE_SEED, Subgraphs, link_subgraphs, node_subgraphs

SHARD = 512  # pictures drawn, looked at and written at once
AT_ONCE = 8192  # pairs or nodes cut out at once
Renderer = Literal["native", "sfdp", "neato", "dot", "fdp", "circo", "twopi"]
RENDERERS = ("native", *ENGINES)


@dataclass(frozen=True)
class Look:
    """What a picture shows and who lays it out.

    Attributes:
        hops: from the pair (1 in the paper but for Pubmed) or the node (2).
        fanout: neighbours drawn of a node and hop, for pictures of nodes.
        seed: of what is sampled.
        renderer: ``native`` or a program of Graphviz, which lays out and does not paint.
    """

    hops: int = 1
    fanout: int = FANOUT
    max_nodes: int = MAX_NODES
    seed: int = NODE_SEED
    renderer: Renderer = "native"


@dataclass(frozen=True, eq=False)
class PictureFeatures:
    """Features of the pictures of many pairs or nodes: one row a kind of picture, and the kind of each.

    Attributes:
        table: (k, s) float16.
        kind: of each pair or node, a row of ``table``.
        cut: how many pictures show a sample, since the whole would have been too large.
    """

    table: Float16[ndarray, "k s"]
    kind: Int64[ndarray, "b"]
    cut: int

    def rows(self, chosen: Integer[ndarray, "c"] | slice = slice(None)) -> Float32[ndarray, "c s"]:
        return self.table[self.kind[chosen]].astype(np.float32)


def draw(graphs: Subgraphs, size: int, renderer: Renderer = "native") -> UInt8[ndarray, "b size size"]:
    """Pictures of graphs in canonical order.

    Raises:
        MissingError: Graphviz is wanted and not there, or fails.
    """
    positions = layout.spring_layout(graphs) if renderer == "native" else graphviz_layout(graphs, renderer)
    return raster.paint(graphs, positions, size)


def pair_features(
    adjacency: sparse.csr_array,
    pairs: Integer[ndarray, "b 2"],
    encoder: Encoder,
    look: Look = Look(),
    *,
    split: str = "",
) -> PictureFeatures:
    """Features of the picture around each pair (GVN) in the graph of observed edges.

    Args:
        split: identifies what ``adjacency`` was split from, for the cache's key.

    Raises:
        InputError: a pair is none, or another process is drawing the same pictures.
        OutputError: the cache cannot be written.
    """

    def cut_out(chosen: ndarray) -> Subgraphs:
        return link_subgraphs(adjacency, chosen, hops=look.hops, max_nodes=look.max_nodes, seed=look.seed)

    return _features(adjacency, pairs, cut_out, encoder, look, "pairs", split)


def node_features(
    adjacency: sparse.csr_array,
    nodes: Integer[ndarray, "b"],
    encoder: Encoder,
    look: Look = Look(hops=2),
    *,
    split: str = "",
) -> PictureFeatures:
    """Features of the picture around each node (E-GVN); otherwise as ``pair_features``."""

    def cut_out(chosen: ndarray) -> Subgraphs:
        return node_subgraphs(
            adjacency, chosen, hops=look.hops, fanout=look.fanout, max_nodes=look.max_nodes, seed=look.seed
        )

    return _features(adjacency, nodes, cut_out, encoder, look, "nodes", split)


def cache_inputs(
    adjacency: sparse.csr_array, asked: ndarray, encoder: Encoder, look: Look, kind: str, split: str
) -> dict[str, object]:
    """Everything that the features of pictures depend on, for the cache's key."""
    version = [layout.VERSION if look.renderer == "native" else 0, raster.VERSION]
    return {
        "edges": [adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int64)],
        "split": split,
        "kind": kind,
        "asked": asked.astype(np.int64),
        "look": asdict(look),
        "version": version,
        "encoder": encoder.identity,
    }


def _features(
    adjacency: sparse.csr_array,
    asked: ndarray,
    cut_out: Callable[[ndarray], Subgraphs],
    encoder: Encoder,
    look: Look,
    kind: str,
    split: str,
) -> PictureFeatures:
    if look.renderer not in RENDERERS:
        raise UsageError(f"no renderer is called '{look.renderer}'", hint=f"one of {', '.join(RENDERERS)}")
    found = distinct(cut_out(asked[begin : begin + AT_ONCE]) for begin in range(0, max(1, len(asked)), AT_ONCE))
    inputs = cache_inputs(adjacency, asked, encoder, look, kind, split)
    try:
        with Run.open(run_directory("linkpred-pictures", fingerprint(inputs), None), inputs) as run:
            table = _looked_at(found.graphs, encoder, look.renderer, run, kind)
    except MissingError as error:
        if look.renderer == "native":
            raise
        warn(f"{error.message}: pictures are laid out by the native renderer")
        return _features(adjacency, asked, cut_out, encoder, replace(look, renderer="native"), kind, split)
    return PictureFeatures(table, found.kind, found.cut)


def _looked_at(
    graphs: Subgraphs, encoder: Encoder, renderer: Renderer, run: Run, kind: str
) -> Float16[ndarray, "k width"]:
    """Features of the graphs; shards that ``run`` has are read."""
    table = np.empty((len(graphs), encoder.width), np.float16)
    with Progress(f"pictures of {kind}", len(graphs)) as progress:
        for number, begin in enumerate(range(0, len(graphs), SHARD)):
            unit, rows = f"{number:06}.npy", np.arange(begin, min(begin + SHARD, len(graphs)))
            if not run.has(unit):
                seen = encoder(draw(graphs.take(rows), encoder.size, renderer))
                run.write(unit, lambda path, seen=seen: np.save(path, seen, allow_pickle=False))
            kept = read_array(run.path(unit))
            if kept.shape != (len(rows), encoder.width):
                raise InputError(f"{run.path(unit)} does not hold these features", hint="remove its folder")
            table[rows] = kept
            progress.advance(len(rows))
    return table

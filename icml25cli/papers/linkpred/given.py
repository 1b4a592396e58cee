"""Splits by any protocol, whoever makes the parts: the protocol, the user or OGB.

Knows graphs, parts and splits. Does not know models.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.files import expand
from icml25cli.core.progress import warn
from icml25cli.papers.linkpred.graph import Graph, canonical, codes, contains
from icml25cli.papers.linkpred.ogb import is_ogb, read_ogb
from icml25cli.papers.linkpred.parts import Parts, read_parts
from icml25cli.papers.linkpred.splits import Split, is_split, make_split, read_split, split_of


def split_by(
    graph: Graph,
    protocol: str,
    *,
    source: str = "",
    parts: Path | None = None,
    seed: int = 0,
    disjoint: float = 0.0,
) -> Split:
    """The split of ``graph`` by any of ``splits.PROTOCOLS``.

    Args:
        source: where the graph was read from; the protocol ogb finds its parts there.
        parts: what the protocol given takes: a split that ``write_split`` wrote, or anything ``read_parts`` reads.

    Raises:
        UsageError: the protocol is unknown, or lacks or does not take parts.
        InputError: the graph or the parts do not do for it.
    """
    if graph.times is not None and protocol in ("planetoid", "heart85", "heart"):
        warn(f"times are read and not used: the protocol {protocol} draws at random, --protocol time splits by them")
    if (protocol == "given") != (parts is not None):
        raise UsageError(
            f"the protocol {protocol} {'takes parts that were not named' if parts is None else 'makes its own parts'}",
            hint="--protocol given --parts FOLDER belong together",
        )
    if parts is not None:
        file = parts / "split.npz" if parts.is_dir() else parts
        if is_split(file):
            if parts.is_dir():
                read_parts(parts)  # refuses lists beside it that say something else
            return read_split(file, graph)
        return given_split(graph, read_parts(parts), seed=seed, disjoint=disjoint)
    if protocol == "ogb":
        if not source or not is_ogb(expand(source)):
            raise UsageError("the protocol ogb is for a folder of OGB's", hint="other graphs take --protocol planetoid")
        return given_split(graph, read_ogb(expand(source))[1], protocol="ogb", seed=seed, disjoint=disjoint)
    return make_split(graph, protocol, seed=seed, disjoint=disjoint)


def given_split(graph: Graph, parts: Parts, *, protocol: str = "given", seed: int = 0, disjoint: float = 0.0) -> Split:
    """The split with these parts, each as undirected edges given once. Negatives that are missing are drawn.

    Parts that share edges are refused, but for OGB's own, where a pair may be linked again (collab): those are noted.

    Raises:
        InputError: a node is not in the graph, a part is missing or empty, or parts share an edge.
    """
    unknown = [name for name in parts.ids if name not in graph.index]
    if unknown:
        raise InputError(
            f"{len(unknown)} nodes of the parts are not in {graph.name}, the first is {unknown[0]}",
            hint="name nodes as in the graph",
        )
    rows = np.array([graph.index[name] for name in parts.ids], dtype=np.int64)
    n = graph.num_nodes
    positives: dict[str, Int64[ndarray, "k 2"]] = {}
    negatives: dict[str, Int64[ndarray, "q 2"] | Int64[ndarray, "k r 2"]] = {}
    for part in ("train", "valid", "test"):
        pairs = canonical(rows[parts.pairs.get(part, np.empty((0, 2), np.int64))])
        kept = np.unique(codes(pairs, n), return_index=True)[1]
        kept = kept[pairs[kept, 0] != pairs[kept, 1]]
        if not len(kept):
            raise InputError(f"there are no {part} edges", hint="train, valid and test are all needed")
        positives[part] = pairs[kept]
        if (name := f"{part}_negatives") in parts.pairs:
            found = canonical(rows[parts.pairs[name]])
            if not found.size or (found.ndim == 3 and len(found) != len(pairs)):
                raise InputError(
                    f"{part} has {len(found)} rows of negatives for {len(pairs)} edges",
                    hint="give a list of pairs that all edges share, or as many for each edge",
                )
            negatives[part] = found[kept] if found.ndim == 3 else found
    notes = []
    for early, later in (("train", "valid"), ("train", "test"), ("valid", "test")):
        shared = int(contains(codes(positives[early], n), codes(positives[later], n)).sum())
        if shared and protocol != "ogb":
            raise InputError(
                f"{shared:,} {later} edges are {early} edges, too", hint="icml25 linkpred audit shows all such leaks"
            )
        if shared:
            notes.append(f"{shared:,} {later} edges are {early} edges, too, in OGB's own split")
    used = np.sort(np.concatenate([codes(edges, n) for edges in positives.values()]))
    if unused := int((~contains(used, codes(graph.edges, n))).sum()):
        notes.append(f"{unused:,} edges of {graph.name} are in no part and not used")
    return split_of(
        graph,
        positives["train"],
        positives["valid"],
        positives["test"],
        valid_negatives=negatives.get("valid"),
        test_negatives=negatives.get("test"),
        protocol=protocol,
        metric=parts.metric,
        seed=seed,
        disjoint=disjoint,
        notes=notes,
    )

"""Splits of a graph's edges into training, validation and test parts with negatives, by protocol.

    planetoid   70/10/20 at random, as many random negatives as positives; Hits@100 (the paper)
    heart85     85/5/10, the same (HeaRT's "existing setting"; Li et al., NeurIPS 2023)
    heart       the positives of heart85, 500 hard negatives for each (``heart``); MRR
    time        the oldest 70 %, the next 10, the newest 20; random negatives; Hits@100
    given, ogb  parts that the user or OGB made

Negatives of an evaluation part are pairs without an edge in that part or an earlier one: those of validation may be
test edges, since avoiding them would tell where test edges are. Training negatives (``sample_negatives``,
``structured_negatives``) avoid training edges alone, for the same reason.

Knows graphs and arrays. Does not know models, scores or pictures.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.files import atomic_path
from icml25cli.core.runs import fingerprint
from icml25cli.core.tables import read_arrays
from icml25cli.papers.linkpred.graph import Edges, Graph, canonical, codes, contains, pack_ids

FORMAT = "icml25/split/1"
FRACTIONS = {  # validation and test; the rest is training
    "planetoid": (0.10, 0.20),
    "heart85": (0.05, 0.10),
    "heart": (0.05, 0.10),
    "time": (0.10, 0.20),
}
METRICS = {"planetoid": "hits_at_100", "heart85": "hits_at_100", "heart": "mrr", "time": "hits_at_100"}
PROTOCOLS = (*FRACTIONS, "given", "ogb")


@dataclass(frozen=True, eq=False)
class Part:
    """Pairs to be told apart.

    Attributes:
        positives: (p, 2) edges.
        negatives: (q, 2) that all positives are compared with, or (p, k, 2), each positive's own.
    """

    positives: Edges
    negatives: Int64[ndarray, "q 2"] | Int64[ndarray, "p k 2"]


@dataclass(frozen=True, eq=False)
class Split:
    """Training, validation and test edges of one graph.

    Attributes:
        protocol: one of ``PROTOCOLS``.
        metric: the protocol's own: hits_at_K or mrr.
        seed: of everything random in it.
        graph: fingerprint of names and edges that were split.
        num_nodes: of that graph.
        train: (m, 2) edges known in training.
        hidden: which of them serve as supervision only and are never drawn or propagated; none by default, as in the
            paper, where a training edge is visible in the pictures that should foretell it.
        valid, test: the parts to evaluate on.
        notes: what a reader of figures on this split should know.
    """

    protocol: str
    metric: str
    seed: int
    graph: str
    num_nodes: int
    train: Edges
    hidden: Bool[ndarray, "m"]
    valid: Part
    test: Part
    notes: tuple[str, ...] = ()

    @property
    def observed(self) -> Edges:
        """Training edges that may be drawn, propagated and counted."""
        return self.train[~self.hidden]

    @property
    def supervised(self) -> Edges:
        """Training edges that serve as positive examples: the hidden ones, or all where none is hidden."""
        return self.train[self.hidden] if self.hidden.any() else self.train

    @cached_property
    def id(self) -> str:
        """SHA-256 (hex) of all pairs: a cache of pictures is keyed by it."""
        parts = [self.valid.positives, self.valid.negatives, self.test.positives, self.test.negatives]
        return fingerprint([self.graph, self.num_nodes, self.train, self.hidden, *parts])


def make_split(graph: Graph, protocol: str = "planetoid", *, seed: int = 0, disjoint: float = 0.0) -> Split:
    """Split the edges of ``graph`` by a protocol that makes its parts itself.

    Args:
        disjoint: share of training edges that serve as supervision only, in [0, 1).

    Raises:
        UsageError: the protocol is another, or needs times and the graph has none.
        InputError: the graph has too few edges, or too few pairs without one.
    """
    if protocol not in FRACTIONS:
        raise UsageError(f"the protocol '{protocol}' does not make its parts itself", hint=", ".join(FRACTIONS))
    rng = np.random.default_rng(seed)
    notes: list[str] = []
    if protocol == "time":
        sizes, order = _by_time(graph, notes)
    else:
        sizes, order = _sizes(graph, protocol), rng.permutation(len(graph.edges))
    test, valid, train = np.split(graph.edges[order], np.cumsum(sizes))
    split = split_of(graph, train, valid, test, protocol=protocol, seed=seed, disjoint=disjoint, rng=rng, notes=notes)
    if protocol == "heart":
        from icml25cli.papers.linkpred.heart import with_hard_negatives

        return with_hard_negatives(graph, split, rng)
    return split


def split_of(
    graph: Graph,
    train: Edges,
    valid: Edges,
    test: Edges,
    *,
    valid_negatives: ndarray | None = None,
    test_negatives: ndarray | None = None,
    protocol: str = "given",
    metric: str | None = None,
    seed: int = 0,
    disjoint: float = 0.0,
    rng: np.random.Generator | None = None,
    notes: Sequence[str] = (),
) -> Split:
    """The split with these canonical edges; negatives that are not given are drawn, as many as positives.

    Raises:
        InputError: there are too few pairs without an edge, or nothing is left of the training edges.
    """
    rng = rng or np.random.default_rng(seed)
    n = graph.num_nodes
    known = np.sort(codes(np.concatenate([train, valid]), n))
    if valid_negatives is None:
        valid_negatives = sample_negatives(n, len(valid), known, rng)
    if test_negatives is None:
        known = np.sort(np.concatenate([known, codes(test, n)]))
        test_negatives = sample_negatives(n, len(test), known, rng)
    return Split(
        protocol=protocol,
        metric=metric or METRICS.get(protocol, "hits_at_100"),
        seed=seed,
        graph=graph.structure,
        num_nodes=n,
        train=train,
        hidden=_hidden(len(train), disjoint, rng),
        valid=Part(valid, valid_negatives),
        test=Part(test, test_negatives),
        notes=tuple(notes),
    )


def _sizes(graph: Graph, protocol: str) -> tuple[int, int]:
    """Edges for test and validation."""
    valid, test = FRACTIONS[protocol]
    least = round(1 / valid)
    if (m := len(graph.edges)) < least:
        raise InputError(
            f"{graph.name} has {m} edge{'s' * (m != 1)}, the protocol {protocol} needs at least {least}",
            hint="give a larger graph",
        )
    return int(test * len(graph.edges)), int(valid * len(graph.edges))


def _by_time(graph: Graph, notes: list[str]) -> tuple[tuple[int, int], ndarray]:
    """Sizes of test and validation, and the edges from the newest to the oldest; no moment is cut in two."""
    if graph.times is None:
        raise UsageError("the protocol time needs a time of each edge", hint="name its column with --time")
    m = len(graph.edges)
    order = np.argsort(-graph.times, kind="stable")
    moments = graph.times[order]
    changes = np.flatnonzero(np.diff(moments)) + 1  # an edge before which one moment ends and an older one begins
    if len(changes) < 2:
        raise InputError(
            f"{graph.name} has {len(changes) + 1} different times, the protocol time needs at least 3",
            hint="give finer times, or split at random with --protocol planetoid",
        )
    valid, test = FRACTIONS["time"]
    first = changes[np.argmin(np.abs(changes[:-1] - test * m))]
    later = changes[changes > first]
    second = later[np.argmin(np.abs(later - (test + valid) * m))]
    sizes = (int(first), int(second - first))
    asked = (int(test * m), int(valid * m))
    if sizes != asked:
        shares = " / ".join(f"{100 * part / m:.0f}" for part in (m - second, sizes[1], sizes[0]))
        notes.append(f"edges of one time stay together: training, validation and test hold {shares} % of the edges")
    return sizes, order


def _hidden(count: int, disjoint: float, rng: np.random.Generator) -> Bool[ndarray, "m"]:
    hidden = np.zeros(count, bool)
    wanted = round(disjoint * count)
    if not 0 <= disjoint < 1 or (disjoint and not 0 < wanted < count):
        raise InputError(
            f"--disjoint {disjoint} of {count} training edges leaves none to observe or none to learn from",
            hint="choose a share between 0 and 1, or 0 for none",
        )
    hidden[rng.choice(count, wanted, replace=False)] = True
    return hidden


# --- negatives ---------------------------------------------------------------------------------------------------


def sample_negatives(
    num_nodes: int, count: int, known: Int64[ndarray, "m"], rng: np.random.Generator
) -> Int64[ndarray, "count 2"]:
    """``count`` different canonical pairs, uniform among those whose codes are not among the sorted ``known`` ones.

    Raises:
        InputError: there are fewer such pairs.
    """
    possible = num_nodes * (num_nodes - 1) // 2 - len(known)
    if count > possible:
        raise InputError(
            f"{count:,} pairs without an edge are needed and the graph has {possible:,}", hint="give a sparser graph"
        )
    if 2 * count > possible or 2 * len(known) > possible:  # dense: drawing would mostly miss, listing costs no more
        u, v = np.triu_indices(num_nodes, k=1)
        free = np.setdiff1d(u * num_nodes + v, known, assume_unique=True)
        chosen = rng.choice(free, count, replace=False)
    else:
        chosen = np.empty(0, np.int64)
        while len(chosen) < count:
            drawn = rng.integers(num_nodes, size=(2 * (count - len(chosen)) + 16, 2))
            drawn = drawn[drawn[:, 0] != drawn[:, 1]]
            drawn = codes(canonical(drawn), num_nodes)
            drawn = np.concatenate([chosen, drawn[~contains(known, drawn)]])
            first = np.sort(np.unique(drawn, return_index=True)[1])  # in the order drawn: cutting keeps them uniform
            chosen = drawn[first][:count]
    return np.stack([chosen // num_nodes, chosen % num_nodes], axis=1)


def structured_negatives(
    positives: Edges, num_nodes: int, known: Int64[ndarray, "m"], rng: np.random.Generator
) -> Int64[ndarray, "p 2"]:
    """A pair for each positive that keeps one of its ends, drawn at random, and is not among the sorted known codes.

    The new end is uniform. A node that all others are linked to has no such pair: its positive gets one of
    ``sample_negatives``.

    Raises:
        InputError: no pair is free.
    """
    side = rng.integers(2, size=len(positives))
    kept = positives[np.arange(len(positives)), side]
    result = np.empty_like(positives)
    open_rows = np.arange(len(positives))
    for _ in range(64):
        pairs = np.stack([kept[open_rows], rng.integers(num_nodes, size=len(open_rows))], axis=1)
        result[open_rows] = canonical(pairs)
        bad = (pairs[:, 0] == pairs[:, 1]) | contains(known, codes(result[open_rows], num_nodes))
        open_rows = open_rows[bad]
        if not len(open_rows):
            return result
    for row in open_rows:  # hubs that nearly every node is linked to
        result[row] = sample_negatives(num_nodes, 1, known, rng)[0]
    return result


# --- files -------------------------------------------------------------------------------------------------------


def write_split(path: Path, split: Split, ids: Sequence[str] = (), *, force: bool = False) -> None:
    """Write ``split`` as ``.npz``, whole or not at all, with the names of its nodes, if given, for who audits it.

    Raises:
        OutputError: the file exists (without ``force``) or cannot be written.
    """
    arrays = {
        "format": np.array(FORMAT),
        "protocol": np.array(split.protocol),
        "metric": np.array(split.metric),
        "seed": np.array(split.seed),
        "graph": np.array(split.graph),
        "num_nodes": np.array(split.num_nodes),
        "train": split.train,
        "hidden": split.hidden,
        "valid": split.valid.positives,
        "valid_negatives": split.valid.negatives,
        "test": split.test.positives,
        "test_negatives": split.test.negatives,
        "notes": np.array(split.notes, dtype=np.str_),
        **(pack_ids(ids) if ids else {}),
    }
    with atomic_path(path, force=force) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def is_split(path: Path) -> bool:
    """Whether ``path`` is a file that ``write_split`` wrote."""
    return path.suffix == ".npz" and path.is_file() and str(read_arrays(path).get("format")) == FORMAT


def read_split(path: Path, graph: Graph) -> Split:
    """Read what ``write_split`` wrote, for the graph that it was made of.

    Raises:
        InputError: the file is absent, torn, of another format, of another graph, or does not agree with itself.
    """
    found = read_arrays(path)
    if str(found.get("format")) != FORMAT:
        raise InputError(f"{path} is no split of this toolbox", hint="make one with `icml25 linkpred split -o`")
    try:
        split = Split(
            protocol=str(found["protocol"]),
            metric=str(found["metric"]),
            seed=int(found["seed"]),
            graph=str(found["graph"]),
            num_nodes=int(found["num_nodes"]),
            train=found["train"],
            hidden=found["hidden"],
            valid=Part(found["valid"], found["valid_negatives"]),
            test=Part(found["test"], found["test_negatives"]),
            notes=tuple(map(str, found["notes"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is a damaged split: {error} is missing or of another kind") from error
    if split.graph != graph.structure:
        raise InputError(f"{path} is a split of another graph than {graph.name}", hint="give the graph it was made of")
    _check(path, split)
    return split


def _check(path: Path, split: Split) -> None:
    """Refuse arrays that are no pairs of nodes."""
    pairs = {
        "train": split.train,
        "valid": split.valid.positives,
        "test": split.test.positives,
        "valid_negatives": split.valid.negatives,
        "test_negatives": split.test.negatives,
    }
    for name, array in pairs.items():
        shaped = array.dtype == np.int64 and array.shape[-1:] == (2,) and array.ndim in (2, 3)
        if not shaped or (array.size and not 0 <= array.min() <= array.max() < split.num_nodes):
            raise InputError(f"{path} is a damaged split: {name} does not hold pairs of nodes")
    if split.hidden.dtype != bool or split.hidden.shape != split.train.shape[:1]:
        raise InputError(f"{path} is a damaged split: hidden is not one truth value a training edge")


def with_negatives(split: Split, valid: ndarray, test: ndarray) -> Split:
    """The same split with other negatives."""
    return replace(split, valid=Part(split.valid.positives, valid), test=Part(split.test.positives, test))

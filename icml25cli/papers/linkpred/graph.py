"""An undirected simple graph whose nodes keep the names that the user gave them.

Knows arrays. Does not know files, splits or what an edge means.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Integer
from numpy import ndarray
from scipy import sparse

from icml25cli.core.errors import InputError
from icml25cli.core.runs import fingerprint

Edges = Int64[ndarray, "m 2"]
if TYPE_CHECKING:
    CSR: TypeAlias = Any  # by scipy's own annotations a matrix may have no shape and no parts
else:
    CSR = sparse.csr_array
Features = Float32[ndarray, "n f"] | CSR


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph without self loops or repeated edges.

    Attributes:
        name: for reports.
        ids: of the n nodes as the user wrote them, all different.
        edges: (m, 2), each once with u < v, in ascending order.
        features: a row a node, dense or CSR, float32; None where there are none.
        times: of each edge, float64: the earliest where an edge was given several times.
        weights: of each edge, float64, positive: the sum where an edge was given several times.
        notes: what of the input was dropped or merged, a sentence each.
    """

    name: str
    ids: tuple[str, ...]
    edges: Edges
    features: Features | None = None
    times: Float64[ndarray, "m"] | None = None
    weights: Float64[ndarray, "m"] | None = None
    notes: tuple[str, ...] = ()

    @property
    def num_nodes(self) -> int:
        return len(self.ids)

    @cached_property
    def index(self) -> dict[str, int]:
        """Row of each node by its name."""
        return {name: row for row, name in enumerate(self.ids)}

    @cached_property
    def adjacency(self) -> CSR:
        """Symmetric (n, n) matrix of float32 ones."""
        return adjacency(self.edges, self.num_nodes)

    @cached_property
    def degrees(self) -> Int64[ndarray, "n"]:
        return np.bincount(self.edges.ravel(), minlength=self.num_nodes)

    @cached_property
    def structure(self) -> str:
        """SHA-256 (hex) of names and edges alone: what a split is of."""
        return fingerprint([list(self.ids), self.edges])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of names, edges, times and features."""
        features: Any = self.features
        if sparse.issparse(features):
            features = [features.indptr.astype(np.int64), features.indices.astype(np.int64), features.data]
        return fingerprint([list(self.ids), self.edges, self.times, features])


def adjacency(edges: Edges, num_nodes: int) -> CSR:
    """The symmetric (n, n) CSR matrix of float32 ones of undirected edges, each given once; indices sorted."""
    rows = np.concatenate([edges[:, 0], edges[:, 1]])
    columns = np.concatenate([edges[:, 1], edges[:, 0]])
    ones = np.ones(len(rows), np.float32)
    return sparse.csr_array(sparse.coo_array((ones, (rows, columns)), shape=(num_nodes, num_nodes)))


def canonical(pairs: Integer[ndarray, "*k 2"]) -> Int64[ndarray, "*k 2"]:
    """The same pairs with the smaller node first, in the same order."""
    return np.sort(pairs.astype(np.int64, copy=False), axis=-1)


def codes(pairs: Integer[ndarray, "*k 2"], num_nodes: int) -> Int64[ndarray, "*k"]:
    """One number a canonical pair, u·n + v, whose order is that of the pairs."""
    return pairs[..., 0].astype(np.int64, copy=False) * num_nodes + pairs[..., 1]


def contains(known: Int64[ndarray, "m"], asked: Int64[ndarray, "*k"]) -> Bool[ndarray, "*k"]:
    """Which of the ``asked`` codes are among the ``known`` ones, which are sorted."""
    if not len(known):
        return np.zeros(asked.shape, bool)
    place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return known[place] == asked


def pack_ids(ids: Sequence[str]) -> dict[str, ndarray]:
    """Names as two arrays, their text and where each ends: an array of strings gives each the room of the longest."""
    encoded = [name.encode("utf-8", "surrogatepass") for name in ids]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return {"ids_utf8": np.frombuffer(b"".join(encoded), np.uint8), "ids_end": ends}


def unpack_ids(arrays: Mapping[str, ndarray]) -> list[str]:
    """What ``pack_ids`` packed, from among other arrays.

    Raises:
        ValueError: they are damaged.
    """
    text, ends = arrays["ids_utf8"].tobytes(), arrays["ids_end"].tolist()
    return [text[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise([0, *ends])]


def build_graph(
    name: str,
    ids: Sequence[str],
    pairs: Integer[ndarray, "k 2"],
    *,
    features: Features | None = None,
    times: Float64[ndarray, "k"] | None = None,
    weights: Float64[ndarray, "k"] | None = None,
    directed: bool = False,
    notes: Sequence[str] = (),
) -> Graph:
    """The undirected simple graph of ``pairs``, rows of ``ids``: loops dropped, repetitions and directions merged.

    Args:
        directed: the input said of itself that its edges have a direction.
        notes: what was dropped before.

    Raises:
        InputError: no edge between two different nodes is left.
    """
    notes = list(notes)
    between = pairs[:, 0] != pairs[:, 1]
    if loops := int(len(pairs) - between.sum()):
        notes.append(f"{loops:,} self loop{'s' * (loops > 1)} dropped")
    pairs = pairs[between]
    if not len(pairs):
        raise InputError(f"{name} has no edge between two different nodes", hint="check what was read")
    given = codes(canonical(pairs), len(ids))
    kept, inverse, count = np.unique(given, return_inverse=True, return_counts=True)
    forward = np.bincount(inverse, pairs[:, 0] < pairs[:, 1], minlength=len(kept))
    both_ways = int(((forward > 0) & (forward < count)).sum())
    if directed:
        notes.append(f"directed edges taken as undirected; {both_ways:,} were there in both directions")
    elif 0 < both_ways < len(kept):  # all of them, and it is how the file lists an edge
        notes.append(f"{both_ways:,} edge{'s' * (both_ways > 1)} given in both directions, taken once")
    if repeated := len(given) - len(kept) - both_ways:
        notes.append(f"{repeated:,} repeated edge{'s' * (repeated > 1)} merged")
    if times is not None:
        earliest = np.full(len(kept), np.inf)
        np.minimum.at(earliest, inverse, times[between])
        times = earliest
    if weights is not None:
        weights = np.bincount(inverse, weights[between], minlength=len(kept))
    edges = np.stack([kept // len(ids), kept % len(ids)], axis=1)
    return Graph(name, tuple(ids), edges, features, times, weights, tuple(notes))

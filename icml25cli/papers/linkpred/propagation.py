"""Message passing over a graph from which edges can be hidden for the time of one batch (target masking, section 3.5).

The pattern of the matrix stays; hiding an edge sets its two entries to zero and takes one off two degrees, so a batch
costs no rebuilding. Products are scipy's; gradients go to what is multiplied and never to the matrix, whose entries are
symmetric.

Knows matrices and tensors. Does not know models.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64
from numpy import ndarray
from scipy import sparse
from torch import Tensor

from icml25cli.core.jit import compiled
from icml25cli.papers.linkpred.graph import codes, contains
from icml25cli.papers.linkpred.subgraphs import grown, mixed


class Product(torch.autograd.Function):
    """``matrix @ x`` for a scipy CSR matrix and a dense tensor, with gradient in x."""

    @staticmethod
    def forward(ctx: Any, matrix: sparse.csr_array, transposed: sparse.csr_array, x: Tensor) -> Tensor:
        ctx.transposed = transposed
        return torch.from_numpy(matrix @ x.detach().numpy())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, Tensor]:
        return None, None, torch.from_numpy(ctx.transposed @ grads[0].numpy())


def product(matrix: sparse.csr_array, transposed: sparse.csr_array, x: Float[Tensor, "m h"]) -> Float[Tensor, "n h"]:
    """``matrix @ x``; ``transposed`` is the transpose, which the gradient is multiplied with."""
    return Product.apply(matrix, transposed, x)  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Context:
    """The edges that a model may use in one forward pass.

    ``entries`` are those of the symmetric adjacency without diagonal: 1 for an edge, 0 for a hidden one, and in edge
    dropout 1/(1-p) for one that was kept.
    """

    pattern: sparse.csr_array  # of all observed edges, entries ones, indices sorted
    entries: Float32[ndarray, "m"]

    @cached_property
    def matrix(self) -> sparse.csr_array:
        return sparse.csr_array((self.entries, self.pattern.indices, self.pattern.indptr), self.pattern.shape)

    @cached_property
    def degrees(self) -> Float32[ndarray, "n"]:
        return np.asarray(self.matrix.sum(axis=1), np.float32)

    @cached_property
    def _scale(self) -> Float[Tensor, "n 1"]:
        return torch.from_numpy(1 / np.sqrt(self.degrees + 1))[:, None]

    def normalised(self, x: Float[Tensor, "n h"]) -> Float[Tensor, "n h"]:
        """Â x with Â = D̃^(-1/2) (A + I) D̃^(-1/2) (Kipf and Welling 2017)."""
        y = x * self._scale
        return (product(self.matrix, self.matrix, y) + y) * self._scale

    def summed(self, x: Float[Tensor, "n h"]) -> Float[Tensor, "n h"]:
        """A x."""
        return product(self.matrix, self.matrix, x)

    def mean(self, x: Float[Tensor, "n h"]) -> Float[Tensor, "n h"]:
        """Mean over neighbours, zero where there are none."""
        return self.summed(x) / torch.from_numpy(np.maximum(self.degrees, 1))[:, None]


class Observed:
    """The observed edges of a split: makes contexts of all of them, or of all but some."""

    def __init__(self, adjacency: sparse.csr_array) -> None:
        self.pattern = sparse.csr_array(adjacency, dtype=np.float32)
        self.pattern.sort_indices()
        self.everything = Context(self.pattern, np.ones(self.pattern.nnz, np.float32))
        self._nodes = n = len(self.pattern.indptr) - 1
        rows = np.repeat(np.arange(n), np.diff(self.pattern.indptr))
        self._codes = codes(np.stack([rows, self.pattern.indices], axis=1), n)  # ascending

    def without(self, pairs: Int64[ndarray, "b 2"]) -> Context:
        """All observed edges but ``pairs``, of which those that are not observed are ignored."""
        entries = self.everything.entries.copy()
        wanted = codes(np.concatenate([pairs, pairs[:, ::-1]]), self._nodes)
        entries[np.searchsorted(self._codes, wanted[contains(self._codes, wanted)])] = 0
        return Context(self.pattern, entries)

    def contains(self, pairs: Int64[ndarray, "b 2"]) -> Bool[ndarray, "b"]:
        """Which of ``pairs`` are observed edges."""
        return contains(self._codes, codes(pairs, self._nodes))

    @cached_property
    def _mirror(self) -> tuple[Int64[ndarray, "m/2"], Int64[ndarray, "m/2"]]:
        """Entries above the diagonal, and for each the same edge's entry below."""
        n = self._nodes
        rows = np.repeat(np.arange(n), np.diff(self.pattern.indptr))
        above = np.flatnonzero(rows < self.pattern.indices)
        below = np.stack([self.pattern.indices[above].astype(np.int64), rows[above]], axis=1)
        return above, np.searchsorted(self._codes, codes(below, n))

    def dropped(self, context: Context, p: float) -> Context:
        """``context`` with each edge left out with probability p, the others counting 1/(1-p), by torch's generator."""
        if p == 0:
            return context
        above, below = self._mirror
        kept = (torch.rand(len(above)) >= p).numpy() / np.float32(1 - p)
        entries = context.entries.copy()
        entries[above] *= kept
        entries[below] *= kept
        return Context(self.pattern, entries)


# --- neighbours of pairs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Common neighbours of pairs, and neighbours of one end alone that may turn out to be common.

    Attributes:
        common_start, common: of pair i the nodes ``common[common_start[i]:common_start[i + 1]]``.
        owner, end, node, weight: an end of pair ``owner``, a neighbour ``node`` of the other end that is not the end's,
            and for how many such neighbours it stands.
    """

    common_start: Int64[ndarray, "b+1"]
    common: Int64[ndarray, "c"]
    owner: Int64[ndarray, "r"]
    end: Int64[ndarray, "r"]
    node: Int64[ndarray, "r"]
    weight: Float32[ndarray, "r"]


def neighbours(context: Context, pairs: Int64[ndarray, "b 2"], most: int = 0, seed: int = 0) -> Neighbours:
    """Common neighbours of each pair, and for each end up to ``most`` neighbours that the other end has not.

    Of more than ``most`` of them that many are drawn with replacement, each standing for its share; none for 0.
    """
    start = context.pattern.indptr
    found = _neighbours(start, context.pattern.indices, context.entries, pairs, most, np.uint64(seed))
    return Neighbours(*found)


def collected(
    start: Int64[ndarray, "b+1"], nodes: Int64[ndarray, "c"], weights: Float32[ndarray, "c"], x: Float[Tensor, "n h"]
) -> Float[Tensor, "b h"]:
    """Σ of weight times row of ``x`` over the nodes of each pair."""
    matrix = sparse.csr_array((weights, nodes, start), (len(start) - 1, len(x)))
    return product(matrix, matrix.T.tocsr(), x)


@compiled
def _neighbours(start, indices, entries, pairs, most, seed):
    count = len(pairs)
    common_start = np.zeros(count + 1, np.int64)
    common = np.empty(4 * count + 16, np.int64)
    size = 4 * count if most else 0
    owner, end, node = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    weight = np.empty(size, np.float32)
    widest = 0
    for i in range(len(start) - 1):
        widest = max(widest, start[i + 1] - start[i])
    alone = np.empty((2, widest), np.int64)
    m, r = 0, 0
    for b in range(count):
        u, v = pairs[b, 0], pairs[b, 1]
        i, j, i_end, j_end = start[u], start[v], start[u + 1], start[v + 1]
        common = grown(common, m + min(i_end - i, j_end - j))
        lefts, rights = 0, 0
        while i < i_end or j < j_end:
            if i < i_end and entries[i] == 0:
                i += 1
            elif j < j_end and entries[j] == 0:
                j += 1
            elif j == j_end or (i < i_end and indices[i] < indices[j]):
                if indices[i] != v:
                    alone[0, lefts] = indices[i]
                    lefts += 1
                i += 1
            elif i == i_end or indices[j] < indices[i]:
                if indices[j] != u:
                    alone[1, rights] = indices[j]
                    rights += 1
                j += 1
            else:
                common[m] = indices[i]
                m += 1
                i += 1
                j += 1
        common_start[b + 1] = m
        if most == 0:
            continue
        state = mixed(mixed(mixed(seed) ^ np.uint64(u)) ^ np.uint64(v))
        for side in range(2):
            there = lefts if side == 0 else rights
            drawn = min(there, most)
            owner, end = grown(owner, r + drawn), grown(end, r + drawn)
            node, weight = grown(node, r + drawn), grown(weight, r + drawn)
            for k in range(drawn):
                at = k
                if there > most:
                    state = mixed(state)
                    at = np.int64(state % np.uint64(there))
                owner[r], end[r], node[r] = b, v if side == 0 else u, alone[side, at]
                weight[r] = there / drawn
                r += 1
    return common_start, common[:m].copy(), owner[:r].copy(), end[:r].copy(), node[:r].copy(), weight[:r].copy()

"""Message-passing encoders and what makes a score of two nodes: the base models that pictures are added to.

    gcn    H ← Â H W (Kipf and Welling 2017)
    sage   H ← H W₁ + mean of neighbours W₂ (Hamilton, Ying and Leskovec 2017)
    gin    H ← MLP((1 + ε) H + Σ of neighbours) (Xu and others 2019)

each with ReLU and dropout between layers and none after the last, and an MLP on h_u ⊙ h_v. ``ncn`` has the two models
on common neighbours. A model embeds all nodes in a context, then scores pairs; whoever fuses pictures in may hand it
other rows for the two ends.

Knows tensors and contexts. Does not know pictures, training or files.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy import ndarray
from scipy import sparse
from torch import Tensor, nn

from icml25cli.papers.linkpred.graph import Features
from icml25cli.papers.linkpred.propagation import Context, product

Ends = tuple[Float[Tensor, "b h"], Float[Tensor, "b h"]]


class LinkModel(Protocol):
    """What can be trained and fused with pictures."""

    hidden: int

    def embed(self, context: Context) -> Float[Tensor, "n h"]:
        """A row a node."""
        ...

    def score(
        self, context: Context, h: Float[Tensor, "n h"], pairs: Int64[ndarray, "b 2"], ends: Ends | None = None
    ) -> Float[Tensor, "b"]:
        """A logit a pair; ``ends`` stand for the rows of ``h`` at its two nodes."""
        ...


# --- what nodes bring --------------------------------------------------------------------------------------------


class Rows(Protocol):
    """What nodes bring to the first layer, to be multiplied and no more, so that sparse rows stay sparse."""

    def product(self, weight: Float[Tensor, "h f"], dropout: float = 0.0) -> Float[Tensor, "n h"]:
        """Rows times the transpose of ``weight``, after dropout on the rows."""
        ...


@dataclass(frozen=True, eq=False)
class DenseRows:
    x: Float[Tensor, "n f"]

    def product(self, weight: Float[Tensor, "h f"], dropout: float = 0.0) -> Float[Tensor, "n h"]:
        return nn.functional.dropout(self.x, dropout) @ weight.T


@dataclass(frozen=True, eq=False)
class SparseRows:
    matrix: sparse.csr_array
    transposed: sparse.csr_array

    def product(self, weight: Float[Tensor, "h f"], dropout: float = 0.0) -> Float[Tensor, "n h"]:
        matrix, transposed = self.matrix, self.transposed
        if dropout:  # of a row only what is not zero can be dropped
            kept = (torch.rand(matrix.nnz) >= dropout).numpy() / np.float32(1 - dropout)
            matrix = sparse.csr_array((matrix.data * kept, matrix.indices, matrix.indptr), matrix.shape)
            transposed = sparse.csr_array(matrix.T)
        return product(matrix, transposed, weight.T)


class NodeInput(nn.Module):
    """Attributes, dense ones standardised by column, or where there are none a learnt row for each node."""

    def __init__(self, features: Features | None, num_nodes: int, hidden: int) -> None:
        super().__init__()
        self.embedding: nn.Parameter | None = None
        if features is None:
            self.embedding = nn.Parameter(nn.init.orthogonal_(torch.empty(num_nodes, hidden)))
            self.width = hidden
            return
        self.width = features.shape[1]
        if sparse.issparse(features):
            matrix = sparse.csr_array(features, dtype=np.float32)
            self.rows = SparseRows(matrix, sparse.csr_array(matrix.T))
        else:
            x = torch.from_numpy(np.asarray(features, np.float32))
            # A column that is the same everywhere becomes zero.
            self.rows = DenseRows((x - x.mean(0)) / x.std(0, correction=0).clamp(min=1e-6))

    def forward(self) -> Rows:
        return self.rows if self.embedding is None else DenseRows(self.embedding)


# --- encoders and decoder ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Of a base model with a Hadamard decoder; the authors' for Cora and Citeseer."""

    hidden: int = 128
    layers: int = 1
    decoder_layers: int = 3
    dropout: float = 0.3


class HadamardModel(nn.Module):
    """One of gcn, sage and gin, with an MLP on h_u ⊙ h_v."""

    def __init__(self, kind: str, nodes: nn.Module, width: int, sizes: Sizes = Sizes()) -> None:
        super().__init__()
        self.kind, self.nodes, self.dropout = kind, nodes, sizes.dropout
        self.hidden = sizes.hidden
        widths = [width, *[sizes.hidden] * sizes.layers]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(widths))
        if kind == "sage":
            self.of_neighbours = nn.ModuleList(nn.Linear(i, o, bias=False) for i, o in pairwise(widths))
        elif kind == "gin":
            self.epsilon = nn.Parameter(torch.zeros(sizes.layers))
            self.after = nn.ModuleList(nn.Linear(sizes.hidden, sizes.hidden) for _ in range(sizes.layers))
        self.decoder = mlp(sizes.hidden, sizes.hidden, sizes.decoder_layers, sizes.dropout)

    def embed(self, context: Context) -> Float[Tensor, "n h"]:
        rows: Rows = self.nodes()
        h = torch.empty(0)
        for i in range(len(self.layers)):
            if i:
                rows = DenseRows(nn.functional.dropout(h.relu(), self.dropout, self.training))
            h = self._layer(i, rows, context)
        return h

    def _layer(self, i: int, rows: Rows, context: Context) -> Float[Tensor, "n h"]:
        """Linear maps come first: they are narrower than attributes, and neighbours may be summed after them."""
        layer: nn.Linear = self.layers[i]  # type: ignore[assignment]
        y = rows.product(layer.weight)
        if self.kind == "sage":
            return y + layer.bias + context.mean(rows.product(self.of_neighbours[i].weight))  # type: ignore[arg-type]
        if self.kind == "gcn":
            return context.normalised(y) + layer.bias
        return self.after[i](((1 + self.epsilon[i]) * y + context.summed(y) + layer.bias).relu())

    def score(
        self, context: Context, h: Float[Tensor, "n h"], pairs: Int64[ndarray, "b 2"], ends: Ends | None = None
    ) -> Float[Tensor, "b"]:
        u, v = ends or ends_of(h, pairs)
        return self.decoder(u * v).squeeze(1)


def ends_of(h: Float[Tensor, "n h"], pairs: Int64[ndarray, "b 2"]) -> Ends:
    rows = torch.from_numpy(np.ascontiguousarray(pairs))
    return h[rows[:, 0]], h[rows[:, 1]]


def mlp(inputs: int, hidden: int, layers: int, dropout: float) -> nn.Sequential:
    """To one number, with ReLU and dropout between its linear maps."""
    parts: list[nn.Module] = []
    for _ in range(layers - 1):
        parts += [nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(dropout)]
        inputs = hidden
    return nn.Sequential(*parts, nn.Linear(inputs, 1))

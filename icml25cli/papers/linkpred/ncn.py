"""Neural common neighbour (NCN) and its completion (NCNC): Wang, Yang and Zhang, ICLR 2024. Section 3.4.

The score of a pair comes from its two ends and from the sum over its common neighbours. NCNC adds neighbours of one end
alone, weighted by how likely NCN itself takes their missing edge to be.

Knows tensors and contexts. Does not know pictures, training or files.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy import ndarray
from scipy import sparse
from torch import Tensor, nn

from icml25cli.papers.linkpred.models import Ends, ends_of
from icml25cli.papers.linkpred.propagation import Context, Observed, collected, neighbours


@dataclass(frozen=True)
class Completion:
    """How a logit r of a missing edge becomes a weight: p₀ = σ(scale (r - offset)), then
    p = α pt p₀ / (pt p₀ + 1 - p₀); the authors' constants for Cora. So many neighbours of one end count at most."""

    alpha: float = 1.0
    pt: float = 0.75
    scale: float = 4.3
    offset: float = 2.8
    most_training: int = 8
    most_evaluation: int = 128


@dataclass(frozen=True)
class NcnSizes:
    """The authors' for Cora."""

    hidden: int = 128
    layers: int = 2  # propagations, without weights of their own
    dropout: float = 0.1  # in the predictor and after the input's linear map
    input_dropout: float = 0.7
    edge_dropout: float = 0.3  # of propagated edges
    neighbour_dropout: float = 0.4  # of edges that make neighbours common


class NcnModel(nn.Module):
    """NCN, or NCNC with ``completion``."""

    def __init__(
        self,
        nodes: nn.Module,
        width: int,
        observed: Observed,
        sizes: NcnSizes = NcnSizes(),
        completion: Completion | None = None,
    ) -> None:
        super().__init__()
        self.nodes, self.sizes, self.completion = nodes, sizes, completion
        self._observed = observed  # drops edges; not a module, so that it stays out of the state
        self.hidden = h = sizes.hidden
        p = sizes.dropout
        self.first = nn.Linear(width, h)
        self.jk = nn.Parameter(torch.randn(sizes.layers))
        self.xlin = nn.Sequential(
            nn.Linear(h, h), nn.Dropout(p), nn.ReLU(), nn.Linear(h, h), nn.LayerNorm(h), nn.Dropout(p), nn.ReLU()
        )
        self.xcnlin = nn.Sequential(
            nn.Linear(h, h), nn.Dropout(p), nn.ReLU(), nn.Linear(h, h), nn.LayerNorm(h), nn.Dropout(p), nn.ReLU()
        )
        self.xijlin = nn.Sequential(nn.Linear(h, h), nn.LayerNorm(h), nn.Dropout(p), nn.ReLU())
        self.lin = nn.Sequential(nn.Linear(h, h), nn.LayerNorm(h), nn.Dropout(p), nn.ReLU(), nn.Linear(h, 1))
        self.beta = nn.Parameter(torch.ones(1))

    def embed(self, context: Context) -> Float[Tensor, "n h"]:
        if self.training:
            context = self._observed.dropped(context, self.sizes.edge_dropout)
        rows = self.nodes()
        x = rows.product(self.first.weight, self.sizes.input_dropout if self.training else 0.0) + self.first.bias
        x = nn.functional.dropout(x, self.sizes.dropout, self.training)
        total = torch.zeros_like(x)
        for weight in self.jk:
            x = context.normalised(x)
            total = total + weight * x
        return total

    def score(
        self, context: Context, h: Float[Tensor, "n h"], pairs: Int64[ndarray, "b 2"], ends: Ends | None = None
    ) -> Float[Tensor, "b"]:
        if self.training:
            context = self._observed.dropped(context, self.sizes.neighbour_dropout)
        if self.completion is None:
            return self._logits(h, pairs, self._common(context, h, pairs), ends)
        return self._logits(h, pairs, self._completed(context, h, pairs, self.completion), ends)

    def _common(self, context: Context, h: Float[Tensor, "n h"], pairs: Int64[ndarray, "b 2"]) -> Float[Tensor, "b h"]:
        """Σ of x̃ over common neighbours."""
        found = neighbours(context, pairs)
        return self._collected(h, found.common_start, found.common, np.ones(len(found.common), np.float32))

    def _collected(
        self, h: Float[Tensor, "n h"], start: ndarray, nodes: ndarray, weights: ndarray
    ) -> Float[Tensor, "b h"]:
        """Σ of weight times x̃ = x + xlin(x) over the nodes of each pair; x̃ is made of these nodes alone."""
        used, place = np.unique(nodes, return_inverse=True)
        x = h[torch.from_numpy(used.astype(np.int64))]
        return collected(start, place, weights, x + self.xlin(x))

    def _completed(
        self,
        context: Context,
        h: Float[Tensor, "n h"],
        pairs: Int64[ndarray, "b 2"],
        completion: Completion,
    ) -> Float[Tensor, "b h"]:
        """Σ over common neighbours, and over those of one end by how likely the other end's edge is."""
        most = completion.most_training if self.training else completion.most_evaluation
        seed = int(torch.randint(2**62, ())) if self.training else 0
        found = neighbours(context, pairs, most, seed)
        with torch.no_grad():
            missing = np.stack([found.end, found.node], axis=1)
            logits = self._logits(h, missing, self._common(context, h, missing), None)
            likely = torch.sigmoid(completion.scale * (logits - completion.offset))
            share = completion.pt * likely
            weight = completion.alpha * share / (share + 1 - likely)
        rows = np.repeat(np.arange(len(pairs)), np.diff(found.common_start))
        ones = np.ones(len(rows), np.float32)
        matrix = sparse.coo_array(
            (
                np.concatenate([ones, weight.numpy() * found.weight]),
                (np.concatenate([rows, found.owner]), np.concatenate([found.common, found.node])),
            ),
            (len(pairs), len(h)),
        ).tocsr()  # which adds up the weights of a node drawn several times
        return self._collected(h, matrix.indptr, matrix.indices, matrix.data)

    def _logits(
        self,
        h: Float[Tensor, "n h"],
        pairs: Int64[ndarray, "b 2"],
        common: Float[Tensor, "b h"],
        ends: Ends | None,
    ) -> Float[Tensor, "b"]:
        u, v = ends or ends_of(h, pairs)
        return self.lin(self.beta * self.xcnlin(common) + self.xijlin(u * v)).squeeze(1)

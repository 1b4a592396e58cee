"""How pictures and message passing are put together. Section 3.3.

    node fusion   before message passing: x'ᵢ = g xᵢ + (1-g) αᵢ W vᵢ, vᵢ the features of the node's picture (E-GVN)
    link fusion   after it: h'_u = f h_u + (1-f) α_u W v_uv, h'_v = g h_v + (1-g) α_v W v_uv (GVN)
    moe           score = g s_base + (1-g) s_vision
    concat        an MLP on (h_u, h_v, v_uv)
    late          a logistic model of the two scores, fitted on validation pairs

f and g start at 1, so at the start a fused model is its base model. In the reference α is a softmax over one number,
always 1 (``constant``); ``sigmoid``, our default, is what was meant, and ``channel`` weighs each dimension.

Knows models and features. Does not know pictures, training or files.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64
from numpy import ndarray
from torch import Tensor, nn

from icml25cli.papers.linkpred.models import LinkModel, NodeInput, Rows, ends_of, mlp
from icml25cli.papers.linkpred.propagation import Context

ATTENTIONS = ("sigmoid", "constant", "channel")
ATTENTION_HIDDEN = 64
VISION_HIDDEN = 128


class Attention(nn.Module):
    """α of what is there, x, and what the picture adds, z: Linear, tanh, Linear, sigmoid."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.first = self.second = None
        if kind != "constant":
            self.first = nn.Linear(2 * width, ATTENTION_HIDDEN)
            self.second = nn.Linear(ATTENTION_HIDDEN, width if kind == "channel" else 1)

    def forward(
        self, of_x: Callable[[Float[Tensor, "h f"]], Tensor], of_z: Callable[[Float[Tensor, "h f"]], Tensor]
    ) -> Float[Tensor, "b f"] | Float[Tensor, "b 1"] | float:
        """α, a weight a row or one for each dimension.

        Args:
            of_x, of_z: x and z times the transpose of what they are given.
        """
        if self.first is None or self.second is None:
            return 1.0
        for_x, for_z = self.first.weight.chunk(2, dim=1)
        return torch.sigmoid(self.second(torch.tanh(of_x(for_x) + of_z(for_z) + self.first.bias)))


class Standardised(nn.Module):
    """Features of pictures with the mean and deviation of those that training sees."""

    def __init__(self, rows: Float32[ndarray, "b s"]) -> None:
        super().__init__()
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.from_numpy(rows.mean(axis=0, dtype=np.float64)).float())
        deviation = torch.from_numpy(rows.std(axis=0, dtype=np.float64)).float()
        # A feature that never changes says nothing, and would be noise blown up.
        self.register_buffer("scale", torch.where(deviation > 1e-6, 1 / deviation.clamp(min=1e-6), 0.0))

    def forward(self, seen: Float[Tensor, "b s"]) -> Float[Tensor, "b s"]:
        return (seen - self.mean) * self.scale


class NodeFusion(nn.Module):
    """Stands where a model's ``NodeInput`` stood.

    x' = g x + (1-g) α z is as wide as attributes are, thousands often; it is never made unless α differs between its
    dimensions: a first layer's weights are multiplied with x and with what z is made of. Dropout falls on these two.
    """

    def __init__(self, nodes: NodeInput, seen: Float32[ndarray, "n s"], attention: str) -> None:
        super().__init__()
        self.nodes = nodes
        self.standardised = Standardised(seen)
        self.seen = torch.from_numpy(seen)
        self.transform = nn.Linear(seen.shape[1], nodes.width)
        self.attention = Attention(attention, nodes.width)
        self.g = nn.Parameter(torch.ones(1))

    def forward(self) -> "FusedRows":
        return FusedRows(self, self.nodes(), self.standardised(self.seen))

    def added(self) -> Iterable[nn.Parameter]:
        """Parameters that fuse, which are trained at a rate of their own."""
        return [*self.transform.parameters(), *self.attention.parameters(), self.g]


class FusedRows:
    """g x + (1-g) α z, to be multiplied."""

    def __init__(self, fusion: NodeFusion, rows: Rows, seen: Float[Tensor, "n s"]) -> None:
        self.fusion, self.rows, self.seen = fusion, rows, seen
        self.alpha = fusion.attention(rows.product, self._z_product)

    def _z_product(self, weight: Float[Tensor, "h f"], dropout: float = 0.0) -> Float[Tensor, "n h"]:
        """z times the transpose of ``weight``, z = W v + b."""
        transform = self.fusion.transform
        seen = nn.functional.dropout(self.seen, dropout)
        return seen @ (weight @ transform.weight).T + transform.bias @ weight.T

    def product(self, weight: Float[Tensor, "h f"], dropout: float = 0.0) -> Float[Tensor, "n h"]:
        """As for any rows of nodes."""
        if isinstance(self.alpha, Tensor) and self.alpha.shape[1] > 1:
            z = self.fusion.transform(nn.functional.dropout(self.seen, dropout))
            added = (self.alpha * z) @ weight.T
        else:
            added = self.alpha * self._z_product(weight, dropout)
        g = self.fusion.g
        return g * self.rows.product(weight, dropout) + (1 - g) * added


class LinkFusion(nn.Module):
    """GVN: a base model, of whose pairs of rows each gets a share of what the pair's picture shows."""

    def __init__(self, base: LinkModel, standardised: Standardised, attention: str) -> None:
        super().__init__()
        self.base: LinkModel = base
        self.standardised = standardised
        self.transform = nn.Linear(len(standardised.mean), base.hidden)
        self.attention = Attention(attention, base.hidden)
        self.f, self.g = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    def embed(self, context: Context) -> Float[Tensor, "n h"]:
        return self.base.embed(context)

    def score(
        self, context: Context, h: Float[Tensor, "n h"], pairs: Int64[ndarray, "b 2"], seen: Float[Tensor, "b s"]
    ) -> Float[Tensor, "b"]:
        u, v = ends_of(h, pairs)
        z = self.transform(self.standardised(seen))

        def fused(x: Float[Tensor, "b h"], share: Tensor) -> Float[Tensor, "b h"]:
            alpha = self.attention(lambda weight: x @ weight.T, lambda weight: z @ weight.T)
            return share * x + (1 - share) * alpha * z

        return self.base.score(context, h, pairs, (fused(u, self.f), fused(v, self.g)))

    def added(self) -> Iterable[nn.Parameter]:
        return [*self.transform.parameters(), *self.attention.parameters(), self.f, self.g]


class VisionHead(nn.Module):
    """A score from the picture alone."""

    def __init__(self, standardised: Standardised, dropout: float = 0.5) -> None:
        super().__init__()
        self.standardised = standardised
        self.layers = mlp(len(standardised.mean), VISION_HIDDEN, 2, dropout)

    def embed(self, context: Context) -> Float[Tensor, "0"]:
        return torch.empty(0)

    def score(
        self, context: Context, h: Tensor, pairs: Int64[ndarray, "b 2"], seen: Float[Tensor, "b s"]
    ) -> Float[Tensor, "b"]:
        return self.layers(self.standardised(seen)).squeeze(1)


class MixtureOfScores(nn.Module):
    """Base and vision scores in proportion g, trained together."""

    def __init__(self, base: LinkModel, standardised: Standardised) -> None:
        super().__init__()
        self.base: LinkModel = base
        self.vision = VisionHead(standardised)
        self.g = nn.Parameter(torch.ones(1))

    def embed(self, context: Context) -> Float[Tensor, "n h"]:
        return self.base.embed(context)

    def score(
        self, context: Context, h: Float[Tensor, "n h"], pairs: Int64[ndarray, "b 2"], seen: Float[Tensor, "b s"]
    ) -> Float[Tensor, "b"]:
        base = self.base.score(context, h, pairs)
        return self.g * base + (1 - self.g) * self.vision.score(context, h, pairs, seen)

    def added(self) -> Iterable[nn.Parameter]:
        return [*self.vision.parameters(), self.g]


class Concatenation(nn.Module):
    """An MLP on both rows and the picture; the mean over both orders of the pair, which has none."""

    def __init__(self, base: LinkModel, standardised: Standardised, dropout: float = 0.3) -> None:
        super().__init__()
        self.base: LinkModel = base
        self.standardised = standardised
        self.layers = mlp(2 * base.hidden + len(standardised.mean), base.hidden, 3, dropout)

    def embed(self, context: Context) -> Float[Tensor, "n h"]:
        return self.base.embed(context)

    def score(
        self, context: Context, h: Float[Tensor, "n h"], pairs: Int64[ndarray, "b 2"], seen: Float[Tensor, "b s"]
    ) -> Float[Tensor, "b"]:
        u, v = ends_of(h, pairs)
        seen = self.standardised(seen)
        both = self.layers(torch.cat([torch.cat([u, v, seen], dim=1), torch.cat([v, u, seen], dim=1)]))
        return both.view(2, -1).mean(0)

    def added(self) -> Iterable[nn.Parameter]:
        return self.layers.parameters()


# --- late fusion -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LateFusion:
    """Logit of a link: ``base`` and ``vision`` times the two scores, plus ``bias``."""

    base: float
    vision: float
    bias: float

    def __call__(self, base: Float64[ndarray, "*b"], vision: Float64[ndarray, "*b"]) -> Float64[ndarray, "*b"]:
        return self.base * base + self.vision * vision + self.bias


def fit_late(
    positive: tuple[Float64[ndarray, "p"], Float64[ndarray, "p"]],
    negative: tuple[Float64[ndarray, "*q"], Float64[ndarray, "*q"]],
) -> LateFusion:
    """Logistic regression of being an edge on the base score and the vision score, both classes counting alike.

    A score that would count the wrong way round does not count at all: on few validation pairs that is chance. Where
    both would, the base score stands alone.

    Args:
        positive, negative: base and vision scores of validation edges and of validation negatives.
    """
    from sklearn.linear_model import LogisticRegression

    scores = np.concatenate([np.stack(part, axis=-1).reshape(-1, 2) for part in (positive, negative)])
    truth = np.arange(len(scores)) < len(positive[0])
    centre = scores.mean(axis=0)
    scale = np.maximum(scores.std(axis=0), 1e-12)  # so that regularisation does not depend on a model's temperature
    scaled = (scores - centre) / scale
    for used in ([0, 1], [0], [1]):
        fitted = LogisticRegression(class_weight="balanced").fit(scaled[:, used], truth)
        if (fitted.coef_ > 0).all():
            weights = np.zeros(2)
            weights[used] = fitted.coef_[0] / scale[used]
            return LateFusion(float(weights[0]), float(weights[1]), float(fitted.intercept_[0] - weights @ centre))
    return LateFusion(1.0, 0.0, 0.0)

"""Which channels of a feed-forward network go: SlimLLM's score, and the rule that keeps some of the lowest.

SlimLLM's score: how a channel's down vector lies in the feature space of the network's output counts
with its size and with the inputs of gate and up. Knows matrices and sums. Does not know tokens or models.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from icml25cli.core.progress import warn
from icml25cli.papers.prune.heads import drop_order


def feature_scores(
    inward: Sequence[Float[Tensor, "f d"]],
    down: Float[Tensor, "d f"],
    input_norms: Float64[Tensor, " d"],
    inner_norms: Float64[Tensor, " f"],
    basis: tuple[Float64[Tensor, " d"], Float[Tensor, "d d"]] | None,
) -> Float64[Tensor, " f"]:
    """Importance of every channel: of its rows of gate and up by their inputs, of its column of down by feature space.

    |z_j| |omega * (V' W_down[:,j])|, and for gate and up |W[j,:] * a|, where a and |z_j| are norms over tokens.

    Args:
        inward: gate and up, or up alone.
        input_norms: over tokens, of the network's inputs.
        inner_norms: of down's inputs.
        basis: omega and V from ``feature_basis``; None is LoRAP's score, omega = 1 and V = I.
    """
    scores = inner_norms * _down_norms(down, basis)
    for weight in inward:
        scores += (weight.square().double() @ input_norms.square()).sqrt()
    return scores


def feature_basis(
    scatter: Float64[Tensor, "d d"], name: str = "outputs"
) -> tuple[Float64[Tensor, " d"], Float[Tensor, "d d"]] | None:
    """omega_k = sigmoid(|lambda_k| / mean |lambda|) and the eigenvectors, as columns, of the centred outputs' scatter.

    Its scale does not matter. None, with a warning, where no decomposition is found even in float64.
    """
    for dtype in (torch.float32, torch.float64):
        try:
            values, vectors = torch.linalg.eigh(scatter.to(dtype))
        except RuntimeError:  # which torch.linalg.LinAlgError is
            continue
        if values.isfinite().all() and vectors.isfinite().all():
            size = values.double().abs()
            mean = size.mean()
            return torch.sigmoid(size / mean if mean > 0 else size), vectors
    warn(f"the feature space of {name} could not be found, and its channels are scored without it")
    return None


def keep_channels(scores: Float[Tensor, " f"], count: int, keep_low: float) -> tuple[int, ...]:
    """The ``count`` channels that stay, ascending: round(keep_low f) of the lowest scores and the rest of the highest.

    That some of the lowest stay is in the authors' code and in LoRAP, not in the paper's text.
    """
    order = drop_order(scores)
    low = min(round(keep_low * len(scores)), count)
    kept = torch.cat([order[:low], order[len(order) - (count - low) :]])
    return tuple(sorted(kept.tolist()))


def _down_norms(
    down: Float[Tensor, "d f"], basis: tuple[Float64[Tensor, " d"], Float[Tensor, "d d"]] | None
) -> Float64[Tensor, " f"]:
    if basis is None:
        return down.norm(dim=0).double()
    omega, vectors = basis
    return (omega.to(down.dtype)[:, None] * (vectors.to(down.dtype).T @ down)).norm(dim=0).double()

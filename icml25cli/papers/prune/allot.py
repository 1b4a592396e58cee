"""What every layer of a model is to lose under a method: a number of heads and channels, or which ones, or all of it.

Knows cosines and scores of the dense model. Does not know the tensors of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float64
from torch import Tensor

from icml25cli.papers.prune.anatomy import Anatomy
from icml25cli.papers.prune.channels import keep_channels
from icml25cli.papers.prune.heads import drop_order, split
from icml25cli.papers.prune.methods import Options
from icml25cli.papers.prune.plan import Layer, dense_layer, removed_layer
from icml25cli.papers.prune.ratios import Quotas, ratio_quotas, threshold_quotas, whole_layers
from icml25cli.papers.prune.units import head_units

Scores = tuple[Float64[Tensor, "layers heads"], Float64[Tensor, "layers inner"]]


@dataclass(frozen=True)
class Quota:
    """What a layer, whose parts are still to be chosen, is to lose."""

    index: int
    cosine: float
    ratio: float
    dropped_units: int  # of heads, see ``HeadUnits``
    channels: int  # kept


def allot(
    anatomy: Anatomy, options: Options, cosines: Sequence[float], total: int, scores: Scores | None = None
) -> list[Quota | Layer]:
    """One entry a layer; layers that lose nothing, or whose loss follows from the dense model, are complete.

    Args:
        total: parameters that the target is a share of.
        scores: of all query heads and channels, comparable between layers, for methods with one threshold.

    Raises:
        UsageError: the target is out of reach.
    """
    if options.chosen.layer_ratio == "whole":
        gone = whole_layers(anatomy, options, cosines, total)
        return [
            removed_layer(i, cosine) if i in gone else dense_layer(anatomy, i, cosine)
            for i, cosine in enumerate(cosines)
        ]
    biases = options.chosen.repair != "none"
    if scores is None:
        quotas = ratio_quotas(anatomy, options, cosines, total, biases=biases)
    else:
        steps = _step_scores(anatomy, options, scores[0]).numpy()
        quotas = threshold_quotas(anatomy, options, steps, scores[1].numpy(), total, biases=biases)
    entries = [_entry(anatomy, quotas, i, cosine) for i, cosine in enumerate(cosines)]
    if scores is None:
        return entries
    return [
        _lowest_gone(anatomy, options, entry, scores[0][i], scores[1][i]) if isinstance(entry, Quota) else entry
        for i, entry in enumerate(entries)
    ]


def _entry(anatomy: Anatomy, quotas: Quotas, index: int, cosine: float) -> Quota | Layer:
    ratio, dropped = float(quotas.ratios[index]), int(quotas.dropped_units[index])
    channels = int(quotas.channels[index])
    if not dropped and channels == anatomy.inner:
        return replace(dense_layer(anatomy, index, cosine), ratio=ratio)
    return Quota(index, cosine, ratio, dropped, channels)


def _lowest_gone(anatomy: Anatomy, options: Options, quota: Quota, of_heads: Tensor, of_channels: Tensor) -> Layer:
    units = head_units(anatomy, options.gqa)
    of_parts = of_heads.view(units.scored(anatomy), -1).mean(1)
    _, kept = split(drop_order(of_parts).tolist(), quota.dropped_units, units.partition(anatomy))
    heads, kv = units.heads(anatomy, sorted(kept))
    channels = keep_channels(of_channels, quota.channels, 0.0)
    return Layer(quota.index, quota.cosine, quota.ratio, heads, kv, channels)


def _step_scores(anatomy: Anatomy, options: Options, heads: Float64[Tensor, "layers heads"]) -> Tensor:
    """A score for every step in which a layer can lose its heads: means over what goes at that step."""
    units = head_units(anatomy, options.gqa)
    parts = heads.view(len(heads), units.scored(anatomy), -1).mean(2)
    if units.kind != "query":
        return parts
    # The least of every group goes first, then the next of every group.
    return torch.sort(parts.view(len(heads), anatomy.kv_heads, units.count), dim=2).values.mean(1)

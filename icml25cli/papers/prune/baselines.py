"""Scores of other methods, of parts of the inputs of a matrix: heads of attention, channels of a feed-forward network.

Wanda-sp, magnitude-sp and FLAP as in FLAP's reference implementation (An, Zhao, Yu, Tang, Wang: Fluctuation-based
Adaptive Structured Pruning for Large Language Models, AAAI 2024). Knows a matrix and moments of its inputs. Does not
know models.
"""

from __future__ import annotations

from jaxtyping import Float, Float64
from torch import Tensor, zeros_like


def wanda_scores(weight: Float[Tensor, "d n"], rms: Float64[Tensor, " n"], parts: int) -> Float64[Tensor, " parts"]:
    """Sum over the columns of each of ``parts`` equal parts of mean |W| times the root mean square of the input."""
    return (weight.abs().mean(0).double() * rms).view(parts, -1).sum(1)


def magnitude_scores(weight: Float[Tensor, "d n"], parts: int) -> Float64[Tensor, " parts"]:
    """Sum over the columns of a part of their norms."""
    return weight.double().norm(dim=0).view(parts, -1).sum(1)


def fluctuation(
    weight: Float[Tensor, "d n"], variance: Float64[Tensor, " n"], *, squared: bool = False
) -> Float64[Tensor, " n"]:
    """FLAP's WIFV of every column, var(x_j) |W_j|^2, standardised over the layer.

    Args:
        squared: before it is standardised, as FLAP does in attention.
    """
    metric = variance * weight.double().square().sum(0)
    metric = metric.square() if squared else metric
    deviation = metric.std()
    return (metric - metric.mean()) / deviation if deviation > 0 else zeros_like(metric)

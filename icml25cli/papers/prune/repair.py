"""Making what is left of a matrix give what the whole gave: two numbers for each output column.

SlimLLM's linear regression, and simpler and stronger repairs to compare it with. Knows a matrix and moments of its
outputs. Does not know models, or how columns were chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from icml25cli.papers.prune.statistics import Moments, Pair

FLAT = 1e-12  # a variance below which a column has no slope to fit
RIDGE = 0.01  # of the mean of the diagonal


@dataclass(frozen=True)
class Repaired:
    """The new matrix, and the bias to add to the one that there was; None is none."""

    weight: Float[Tensor, "d kept"]
    bias: Float64[Tensor, " d"] | None


def repair(
    kind: str, weight: Float[Tensor, "d n"], kept: Tensor, pair: Pair, inputs: Moments | None = None
) -> Repaired:
    """The kept columns of ``weight``, repaired so that outputs come near those of all columns.

    Args:
        kind: ``linear``, o = a y + b by least squares in every column, the paper's; ``bias``, means alone (FLAP's);
            ``none``; ``ridge``, all kept numbers anew, the inputs' second moments being known.
        kept: indices of columns.
        pair: moments of the outputs o of all columns and y of the kept ones.
        inputs: with ``cross``, for ``ridge``.
    """
    cut = weight[:, kept]
    if kind == "none":
        return Repaired(cut, None)
    if kind == "bias":
        return Repaired(cut, pair.mean_o - pair.mean_y)
    if kind == "linear":
        slope, offset = linear_fit(pair)
        return Repaired((slope[:, None] * cut).to(weight.dtype), offset)
    assert inputs is not None
    solved = ridge_fit(weight, kept, inputs.covariance)
    return Repaired(solved.to(weight.dtype), weight.double() @ inputs.mean - solved @ inputs.mean[kept])


def linear_fit(pair: Pair) -> tuple[Float64[Tensor, " d"], Float64[Tensor, " d"]]:
    """a = cov(y, o) / var(y) and b = mean(o) - a mean(y), the least squares of o on y in every column.

    What is left over is var(o) (1 - rho^2). Where y does not vary, a = 1.
    """
    sound = pair.var_y > pair.rounding.clamp(min=FLAT)
    slope = torch.where(sound, pair.cov / torch.where(sound, pair.var_y, 1.0), 1.0)
    return slope, pair.mean_o - slope * pair.mean_y


def ridge_fit(
    weight: Float[Tensor, "d n"], kept: Tensor, covariance: Float64[Tensor, "n n"]
) -> Float64[Tensor, "d kept"]:
    """The matrix on the kept inputs nearest in mean square to all of ``weight`` on all inputs, held near its own.

    W_K + W_D C_DK (C_KK + r I)^-1 with r a hundredth of the mean of the diagonal: no part of the paper.
    """
    gone = torch.ones(weight.shape[1], dtype=torch.bool, device=weight.device)
    gone[kept] = False
    own = covariance[kept][:, kept].clone()
    own.diagonal().add_((RIDGE * own.diagonal().mean()).clamp(min=1e-30))  # all inputs may be constant
    lost = weight[:, gone].double() @ covariance[gone][:, kept]
    return weight[:, kept].double() + torch.linalg.solve(own, lost.T).T

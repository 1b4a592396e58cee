"""Scalar quantisers of a matrix: integers on a grid by group, symmetric integers by row, and NF4.

Baselines that every paper compares with. Scales are rounded to their stored precision before use, so that values are
exactly what a reader of the stored numbers gets. Knows a matrix. Does not know Hessians, rotations or files.
"""

from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, UInt8
from scipy.special import ndtri
from torch import Tensor

NF4_BLOCK = 64


@dataclass(frozen=True)
class ScalarCode:
    """A matrix as small integers with side information by row and group of columns."""

    values: Float[Tensor, "m n"]
    codes: UInt8[Tensor, "m n"]
    scale: Float[Tensor, "m groups"]  # float16 or float32, as stored
    zero_point: UInt8[Tensor, "m groups"] | None


def storable(scale: Float[Tensor, "*shape"]) -> torch.dtype:
    """float16 while it keeps every scale to 3 % (5 bits, deep in its subnormals), else float32 for all of them."""
    return torch.float16 if ((scale.half() - scale).abs() <= scale / 32).all() else torch.float32


def groups(n: int, group_size: int | None) -> list[slice]:
    """Column ranges of ``group_size`` (all of them if None); the last may be shorter."""
    size = group_size or n
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def grid_scale(weight: Float[Tensor, "m g"], bits: int) -> Float[Tensor, "m"]:
    """Step of the finest integer grid of 2^bits points that covers zero and the range of each row."""
    low, high = weight.amin(dim=1).clamp(max=0), weight.amax(dim=1).clamp(min=0)
    return (high - low) / (2**bits - 1)


def grid_zero(weight: Float[Tensor, "m g"], scale: Float[Tensor, "m"], bits: int) -> UInt8[Tensor, "m"]:
    """The integer that stands for zero on a grid of this step, 0 .. 2^bits - 1."""
    return _divide(-weight.amin(dim=1).clamp(max=0), scale).round().clamp(0, 2**bits - 1).to(torch.uint8)


def to_grid(
    weight: Float[Tensor, "m g"], scale: Float[Tensor, "m"], zero: UInt8[Tensor, "m"], bits: int
) -> UInt8[Tensor, "m g"]:
    """Nearest integers on each row's grid."""
    steps = _divide(weight, scale[:, None]).round() + zero[:, None]
    return steps.clamp(0, 2**bits - 1).to(torch.uint8)


def from_grid(codes: UInt8[Tensor, "m g"], scale: Float[Tensor, "m"], zero: UInt8[Tensor, "m"]) -> Float[Tensor, "m g"]:
    """The values of integers on each row's grid."""
    return (codes.float() - zero[:, None]) * scale[:, None]


def rtn(weight: Float[Tensor, "m n"], bits: int = 4, group_size: int | None = 128) -> ScalarCode:
    """Round to nearest on asymmetric integer grids, a scale and a ``bits``-bit zero point a row and group."""
    ranges = groups(weight.shape[1], group_size)
    wanted = torch.stack([grid_scale(weight[:, g], bits) for g in ranges], dim=1)
    scale = wanted.to(storable(wanted))
    zero = torch.empty_like(scale, dtype=torch.uint8)
    codes = torch.empty_like(weight, dtype=torch.uint8)
    values = torch.empty_like(weight)
    for i, g in enumerate(ranges):
        step = scale[:, i].float()
        zero[:, i] = grid_zero(weight[:, g], step, bits)
        codes[:, g] = to_grid(weight[:, g], step, zero[:, i], bits)
        values[:, g] = from_grid(codes[:, g], step, zero[:, i])
    return ScalarCode(values, codes, scale, zero)


def absmax(weight: Float[Tensor, "m n"], bits: int = 4) -> ScalarCode:
    """Round to nearest on a symmetric grid of 2^bits - 1 points up to each row's largest magnitude."""
    top = 2 ** (bits - 1) - 1
    wanted = weight.abs().amax(dim=1, keepdim=True) / top
    scale = wanted.to(storable(wanted))
    steps = _divide(weight, scale.float()).round().clamp(-top, top)
    return ScalarCode(steps * scale.float(), (steps + top).to(torch.uint8), scale, None)


def nf4(weight: Float[Tensor, "m n"]) -> ScalarCode:
    """4-bit NormalFloat with one absolute maximum a row and 64 columns (Dettmers et al. 2023, section 3)."""
    ranges = groups(weight.shape[1], NF4_BLOCK)
    wanted = torch.stack([weight[:, g].abs().amax(dim=1) for g in ranges], dim=1)
    scale = wanted.to(storable(wanted))
    levels = torch.tensor(nf4_levels()).to(weight)
    boundaries = (levels[1:] + levels[:-1]) / 2
    codes = torch.empty_like(weight, dtype=torch.uint8)
    values = torch.empty_like(weight)
    for i, g in enumerate(ranges):
        step = scale[:, i, None].float()
        nearest = torch.bucketize(_divide(weight[:, g], step), boundaries)
        codes[:, g] = nearest.to(torch.uint8)
        values[:, g] = levels[nearest] * step
    return ScalarCode(values, codes, scale, None)


@cache
def nf4_levels() -> tuple[float, ...]:
    """The sixteen levels in [-1, 1]: quantiles of a Gaussian, seven below zero, zero, and eight above.

    The outermost probability is half way between those of 15 and 16 equal intervals, so that the largest quantile is
    finite; each side is cut evenly from there to one half, and all are divided by the largest.
    """
    edge = 1 - (1 / 30 + 1 / 32) / 2
    below = [-ndtri(edge + (0.5 - edge) * i / 7) for i in range(7)]
    above = [ndtri(edge + (0.5 - edge) * i / 8) for i in range(8)]
    levels = sorted([*below, 0.0, *above])
    return tuple(float(level / max(levels)) for level in levels)


def _divide(weight: Float[Tensor, "*shape"], scale: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """weight / scale, zero where the scale is: a group of zeros has no grid and needs none."""
    return torch.where(scale > 0, weight / scale, 0.0)

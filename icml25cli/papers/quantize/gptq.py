"""GPTQ (Frantar et al. 2023): integers on grids by group, each column's error fed into all columns to come.

Knows a weight matrix and a factor of its Hessian. Does not know rotations, lattices or files.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from icml25cli.papers.quantize.hessian import DAMPING, Factor, damped_cholesky
from icml25cli.papers.quantize.scalar import ScalarCode, from_grid, grid_scale, grid_zero, groups, storable, to_grid

BLOCK = 128  # columns whose feedback on all later ones is one matrix product


def inverse_factor(hessian: Float[Tensor, "n n"], damping: float = DAMPING) -> Factor | None:
    """Upper T with T^T T the inverse of the damped Hessian, each row divided by its diagonal: all that GPTQ needs.

    Args:
        hessian: as for :func:`~icml25cli.papers.quantize.hessian.damped_cholesky`, which says what is overwritten.

    Returns:
        None where that returns None, or where rounding left the inverse indefinite.
    """
    factor = damped_cholesky(hessian, damping)
    del hessian  # where the caller keeps it not either, two tensors of this size are held at a time, not three
    if factor is None:
        return None
    damping, inverse = factor.damping, torch.cholesky_inverse(factor.matrix)
    del factor
    upper, info = torch.linalg.cholesky_ex(inverse, upper=True)
    return None if info else Factor(upper.div_(upper.diagonal()[:, None].clone()), damping)


def gptq(weight: Float[Tensor, "m n"], feedback: Float[Tensor, "n n"], bits: int, group_size: int | None) -> ScalarCode:
    """Quantise columns in order; the error of column j, times row j of the factor, is taken from the columns after it.

    The grid of a group is chosen when its first column is reached, from weights that carry the feedback so far.

    Args:
        weight: float32.
        feedback: from :func:`inverse_factor`.
        bits: of a weight and of a zero point, 2 to 8.
        group_size: columns that share a grid, None for all; the last group may be shorter.
    """
    ranges = groups(weight.shape[1], group_size)
    dtype = storable(torch.stack([grid_scale(weight[:, g], bits) for g in ranges], dim=1))
    scale = torch.empty(len(weight), len(ranges), dtype=dtype, device=weight.device)
    zero_point = torch.empty_like(scale, dtype=torch.uint8)
    codes = torch.empty_like(weight, dtype=torch.uint8)
    values = torch.empty_like(weight)
    target = weight.clone()  # columns to come already carry the feedback of finished blocks
    for i, g in enumerate(ranges):
        scale[:, i] = grid_scale(target[:, g], bits)
        step = scale[:, i].float()
        zero_point[:, i] = zero = grid_zero(target[:, g], step, bits)
        for start in range(g.start, g.stop, BLOCK):
            block = slice(start, min(start + BLOCK, g.stop))
            columns = target[:, block].T.contiguous()  # a row for each column, so that a column is contiguous
            error = torch.empty_like(columns)
            for j in range(len(columns)):
                column = columns[j] - feedback[start : start + j, start + j] @ error[:j]
                codes[:, start + j] = to_grid(column[:, None], step, zero, bits)[:, 0]
                values[:, start + j] = from_grid(codes[:, start + j, None], step, zero)[:, 0]
                error[j] = column - values[:, start + j]
            target[:, block.stop :].addmm_(error.T, feedback[block, block.stop :], alpha=-1)
    return ScalarCode(values, codes, scale, zero_point)

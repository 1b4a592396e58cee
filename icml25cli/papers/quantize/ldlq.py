"""LDLQ: quantise a matrix block column by block column, feeding each error into what is still to come.

Chee et al. 2023 (QuIP), in blocks of eight as Tseng et al. 2024 (QuIP#) and NestQuant use it. Optimal among adaptive
rounding with linear feedback. Knows weights, a block LDL factor and a function that quantises one block column.
Does not know codes, scales or rotations.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

BLOCK = 8


def ldlq(
    weight: Float[Tensor, "m n"],
    lower: Float[Tensor, "n n"],
    quantize: Callable[[int, Float[Tensor, "m 8"]], Float[Tensor, "m 8"]],
) -> Float[Tensor, "m n"]:
    """Quantised values W' that nearly minimise tr((W - W')H(W - W')^T) with H = L D L^T.

    From the last block c to the first, W'_c = quantize(c, W_c + sum over j > c of (W_j - W'_j) L_jc).

    Args:
        weight: n a multiple of 8.
        lower: L of the block LDL with 8 x 8 blocks.
        quantize: takes the index of a block column and its target, contiguous, and returns the quantised values.
    """
    values = torch.empty_like(weight)
    _solve(weight, weight.clone(), values, lower, 0, quantize)
    return values


def _solve(
    weight: Float[Tensor, "m k"],
    work: Float[Tensor, "m k"],
    values: Float[Tensor, "m k"],
    lower: Float[Tensor, "k k"],
    first: int,
    quantize: Callable[[int, Tensor], Tensor],
) -> None:
    """Quantise the columns from block ``first`` on into ``values``.

    ``work`` holds targets that carry the feedback of all columns after these, and is left holding W - W'.
    """
    k = weight.shape[1]
    if k == BLOCK:
        values.copy_(quantize(first, work.contiguous()))
        torch.sub(weight, values, out=work)
        return
    # The right half, its feedback on the left half, the left half: m n^2 flops, most of them in large products.
    half = k // (2 * BLOCK) * BLOCK
    left, right = slice(0, half), slice(half, k)
    _solve(weight[:, right], work[:, right], values[:, right], lower[right, right], first + half // BLOCK, quantize)
    work[:, left].addmm_(work[:, right], lower[right, left])
    _solve(weight[:, left], work[:, left], values[:, left], lower[left, left], first, quantize)

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
GROUP = 128  # columns whose feedback from finished groups is one matrix product


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
    n = weight.shape[1]
    error = weight.clone()  # columns still to come hold W, finished ones W - W'
    values = torch.empty_like(weight)
    for stop in range(n, 0, -GROUP):
        start = max(0, stop - GROUP)
        target = torch.addmm(error[:, start:stop], error[:, stop:], lower[stop:, start:stop])
        for first in range(stop - BLOCK, start - 1, -BLOCK):
            block = slice(first, first + BLOCK)
            inner = target[:, first - start : first - start + BLOCK]
            inner = torch.addmm(inner, error[:, block.stop : stop], lower[block.stop : stop, block])
            values[:, block] = quantize(first // BLOCK, inner.contiguous())
            error[:, block] -= values[:, block]
    return values

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
    work = weight.clone()  # targets of columns to come, W - W' of finished ones
    values = torch.empty_like(weight)

    def solve(start: int, stop: int) -> None:
        """Quantise these columns, whose targets hold the feedback of all columns after them."""
        if stop - start == BLOCK:
            columns = slice(start, stop)
            values[:, columns] = quantize(start // BLOCK, work[:, columns].contiguous())
            torch.sub(weight[:, columns], values[:, columns], out=work[:, columns])
            return
        # The right half, its feedback on the left half, the left half: m n^2 flops, most of them in large products.
        middle = start + (stop - start) // (2 * BLOCK) * BLOCK
        solve(middle, stop)
        work[:, start:middle].addmm_(work[:, middle:stop], lower[middle:stop, start:middle])
        solve(start, middle)

    solve(0, weight.shape[1])
    return values

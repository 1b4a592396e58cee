"""The layer Hessian H = E[x x^T]: streamed from activations, damped, factorised in blocks.

Minimising tr((W - W')H(W - W')^T) minimises the mean squared error of the layer's outputs (section 4.5 of the paper).
Knows activations as tensors. Does not know models, weights, or what is quantised.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from icml25cli.core.errors import InputError

DAMPING = 0.01  # relative to the mean of the diagonal
MAX_ESCALATIONS = 3  # each multiplies the damping by ten
_PANEL = 512  # columns of H updated by one product; only the part on and below the diagonal is computed


class HessianAccumulator:
    """Running mean of x x^T over tokens.

    Products and mean are float32. Rounding perturbs H by at most about 1e-7 of its norm, which is at most n times the
    mean of its diagonal: for n = 16384 that is 0.001 of the mean, a tenth of the damping that is added anyway, so
    float64 would cost twice the memory and time for digits that are then covered.

    Args:
        n: width of the activations.
        name: of the layer, for messages.
    """

    def __init__(self, n: int, name: str = "layer", device: torch.device | str = "cpu") -> None:
        self.name = name
        self.tokens = 0
        self._mean = torch.zeros(n, n, device=device)

    def add(self, x: Float[Tensor, "*batch n"]) -> None:
        """Count one token for each vector of the last axis, in any floating dtype.

        Raises:
            InputError: an activation is not finite, or the width is wrong.
        """
        n = len(self._mean)
        if x.shape[-1] != n:
            raise InputError(f"the inputs of {self.name} are {x.shape[-1]} wide, its Hessian is {n} wide")
        x = x.reshape(-1, n).to(self._mean)
        if len(x) == 0:
            return
        if not is_finite(x):
            raise InputError(f"an input of {self.name} is not finite", hint="run the model in float32 or bfloat16")
        total = self.tokens + len(x)
        for start in range(0, n, _PANEL):
            below = self._mean[start:, start : start + _PANEL]
            below.addmm_(x[:, start:].T, x[:, start : start + _PANEL], beta=self.tokens / total, alpha=1 / total)
        self.tokens = total

    def hessian(self) -> Float[Tensor, "n n"]:
        """H so far, float32, symmetric; zeros before the first token. The accumulator's own storage, not a copy."""
        for start in range(0, len(self._mean), _PANEL):
            stop = start + _PANEL
            square = self._mean[start:stop, start:stop]
            square.copy_(square.tril() + square.tril(-1).T)  # a product x^T x need not be symmetric in the last bit
            self._mean[start:stop, stop:] = self._mean[stop:, start:stop].T
        return self._mean

    @property
    def undersampled(self) -> bool:
        """Fewer than two tokens a dimension: H is then so noisy that feedback fits the sample, not the data."""
        return self.tokens < 2 * len(self._mean)


@dataclass(frozen=True)
class Factor:
    """A triangular factor of H + damping * mean(diag H) * I."""

    matrix: Float[Tensor, "n n"]
    damping: float


def damped_cholesky(hessian: Float[Tensor, "n n"], damping: float = DAMPING) -> Factor | None:
    """Lower C with C C^T the damped Hessian.

    Args:
        hessian: symmetric; its diagonal is **overwritten** by the damped one (a copy would be the largest tensor here).
        damping: multiplied by ten up to ``MAX_ESCALATIONS`` times while the matrix is not positive definite.

    Returns:
        The factor with the damping that was needed, or None when even the largest failed.
    """
    diagonal = hessian.diagonal().clone()
    mean = diagonal.mean()  # of the undamped diagonal: taken anew at each attempt it would compound
    for _ in range(MAX_ESCALATIONS + 1):
        hessian.diagonal().copy_(diagonal + damping * mean)
        cholesky, info = torch.linalg.cholesky_ex(hessian)
        if info == 0:
            return Factor(cholesky, damping)
        damping *= 10
    return None


def block_ldl(hessian: Float[Tensor, "n n"], block: int, damping: float = DAMPING) -> Factor | None:
    """L of the damped Hessian L D L^T, with identity blocks on the diagonal of L and D block diagonal.

    From Cholesky H = C C^T, L = C blockdiag(C_ii)^-1.

    Args:
        hessian: as for :func:`damped_cholesky`, which says what is overwritten and returned.
        block: size of the diagonal blocks, a divisor of n.
    """
    factor = damped_cholesky(hessian, damping)
    if factor is None:
        return None
    lower = factor.matrix
    diagonal = lower.unflatten(0, (-1, block)).unflatten(2, (-1, block)).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    eye = torch.eye(block, dtype=lower.dtype, device=lower.device).expand_as(diagonal)
    inverses = torch.linalg.solve_triangular(diagonal, eye, upper=False)
    step = max(1, 128 // block)
    for start in range(0, len(inverses), step):
        # One product with a block-diagonal matrix instead of sixteen thin ones.
        panel = lower[start * block :, start * block : (start + step) * block]
        panel.copy_(panel @ torch.block_diag(*inverses[start : start + step]))
    return factor


def is_finite(x: Tensor) -> bool:
    """Whether every value is finite, without a mask as large as ``x``."""
    return x.numel() == 0 or bool(torch.isfinite(torch.stack(torch.aminmax(x))).all())

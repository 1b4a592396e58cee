"""Sums over calibration tokens from which every score and every repair is computed.

All are sums of products in float64, so that they add up over batches of any size and lose nothing to large means. What
attention heads contribute to an output column follows from second moments of the output matrix's inputs: no token is
looked at again for any choice of heads. Knows tensors. Does not know models or methods.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from icml25cli.core.errors import InputError

# A variance is taken for rounding below this share of the second moment: float32 inputs have seven digits.
ROUNDING = 1e-12


class Moments:
    """First and second moments of vectors, over any number of batches.

    Args:
        n: width of the vectors.
        cross: keep products of different numbers too.
        name: of what they are, for messages.
    """

    def __init__(
        self, n: int, *, cross: bool = False, name: str = "vectors", device: torch.device | str = "cpu"
    ) -> None:
        self.name = name
        self.tokens = 0
        self._total = torch.zeros(n, dtype=torch.float64, device=device)
        self._second = torch.zeros((n, n) if cross else n, dtype=torch.float64, device=device)

    def add(self, x: Float[Tensor, "tokens n"]) -> None:
        """Count every row as one token.

        Raises:
            InputError: a number is not finite.
        """
        x = x.double()
        total = x.sum(0)
        if not total.isfinite().all():
            raise InputError(f"{self.name} are not finite", hint="run the model in float32")
        self.tokens += len(x)
        self._total += total
        if self._second.ndim == 2:
            self._second.addmm_(x.T, x)
        else:
            self._second += x.square().sum(0)

    @property
    def mean(self) -> Float64[Tensor, " n"]:
        return self._total / self.tokens

    @property
    def norms(self) -> Float64[Tensor, " n"]:
        """Of every number over all tokens."""
        return self._squares.sqrt()

    @property
    def rms(self) -> Float64[Tensor, " n"]:
        return (self._squares / self.tokens).sqrt()

    @property
    def variance(self) -> Float64[Tensor, " n"]:
        return (self._squares / self.tokens - self.mean.square()).clamp_(min=0)

    @property
    def covariance(self) -> Float64[Tensor, "n n"]:
        """Needs ``cross``."""
        return self._second / self.tokens - torch.outer(self.mean, self.mean)

    @property
    def _squares(self) -> Float64[Tensor, " n"]:
        return self._second.diagonal() if self._second.ndim == 2 else self._second


class PairMoments:
    """Column by column, moments of two outputs of the same tokens: the dense one o and what is left of it, y."""

    def __init__(self, n: int, device: torch.device | str = "cpu") -> None:
        self.tokens = 0
        self._sums = torch.zeros(5, n, dtype=torch.float64, device=device)

    def add(self, o: Float[Tensor, "tokens n"], y: Float[Tensor, "tokens n"]) -> None:
        o, y = o.double(), y.double()
        self.tokens += len(o)
        for total, part in zip(self._sums, (o, y, o * o, y * y, o * y), strict=True):
            total += part.sum(0)

    def fit(self) -> Pair:
        """Raises ZeroDivisionError where no token was added."""
        mean_o, mean_y, oo, yy, oy = self._sums / self.tokens
        return Pair(
            mean_o,
            mean_y,
            (oo - mean_o.square()).clamp(min=0),
            (yy - mean_y.square()).clamp(min=0),
            oy - mean_o * mean_y,
            (oo - 2 * oy + yy).clamp(min=0),
            ROUNDING * yy,
        )


@dataclass(frozen=True)
class Pair:
    """Means over tokens, a number a column."""

    mean_o: Float64[Tensor, " n"]
    mean_y: Float64[Tensor, " n"]
    var_o: Float64[Tensor, " n"]
    var_y: Float64[Tensor, " n"]
    cov: Float64[Tensor, " n"]
    error: Float64[Tensor, " n"]  # of (o - y)^2
    rounding: Float64[Tensor, " n"]  # below which a variance of y is none

    @property
    def correlation(self) -> Float64[Tensor, " n"]:
        """Pearson's, 0 where either is constant."""
        product = self.var_o * self.var_y
        sound = (self.var_y > self.rounding) & (self.var_o > 0)
        return torch.where(sound, self.cov / torch.where(sound, product, 1.0).sqrt(), 0.0)

    def relative(self, error: float) -> float:
        """A mean square error, summed over columns, over the variance of o."""
        variance = self.var_o.sum().item()
        return error / variance if variance else 0.0


@dataclass(frozen=True)
class HeadSums:
    """How the contributions of heads (or of units of heads) to each output column vary together.

    ``covariance[c, i, j]`` is between units i and j in column c, over tokens.
    """

    covariance: Float64[Tensor, "d units units"]
    second: Float64[Tensor, " d"]  # scale of rounding: sum over units of the mean square

    @property
    def units(self) -> int:
        return self.covariance.shape[1]


def head_sums(inputs: Moments, weight: Float[Tensor, "d n"], units: int) -> HeadSums:
    """What ``units`` equal parts of the inputs of ``weight`` contribute to its outputs: T_i = X_i W_i^T.

    2 d n^2 operations, whatever the number of tokens.

    Args:
        inputs: with ``cross``, of width n.
    """
    d, n = weight.shape
    parts = weight.double().view(d, units, n // units)
    cov, mean = inputs.covariance, inputs.mean
    covariance = torch.empty(d, units, units, dtype=torch.float64, device=weight.device)
    flat = weight.double()
    for i in range(units):
        rows = slice(i * n // units, (i + 1) * n // units)
        covariance[:, i] = ((flat[:, rows] @ cov[rows]) * flat).view(d, units, -1).sum(2)
    means = torch.einsum("dun,un->du", parts, mean.view(units, -1))
    second = covariance.diagonal(dim1=1, dim2=2).sum(1) + means.square().sum(1)
    return HeadSums(covariance, second)

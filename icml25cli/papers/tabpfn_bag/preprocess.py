"""What a column goes through on its way into the network, in training on the prior and in use alike.

Knows tensors of numbers with gaps. Does not know categories, ensembles or the network.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

OUTLIER = 4.0  # standard deviations, measured without the outliers themselves
LARGEST = 100.0  # standard deviations


@dataclass(frozen=True)
class Scaling:
    """Mean and deviation of columns in a context, and where their tails begin once they are standardised."""

    mean: Float[Tensor, "*tables 1 used"]
    deviation: Float[Tensor, "*tables 1 used"]
    varies: Bool[Tensor, "*tables 1 used"]
    low: Float[Tensor, "*tables 1 used"]
    high: Float[Tensor, "*tables 1 used"]

    @classmethod
    def of(cls, context: Float[Tensor, "*tables rows used"]) -> "Scaling":
        """The statistics of rows; a value that is not finite counts as missing."""
        observed = torch.isfinite(context)
        mean, deviation = _moments(context, observed)
        varies = deviation > 1e-6 * mean.abs()
        z = _z_scored(context, mean, deviation, varies)
        middle, spread = _moments(z, observed & varies & (z.abs() <= OUTLIER))
        return cls(mean, deviation, varies, middle - OUTLIER * spread, middle + OUTLIER * spread)

    def __call__(self, x: Float[Tensor, "*tables rows used"]) -> Float[Tensor, "*tables rows used"]:
        """Standardised rows with tails drawn in, zero where a value is missing or its column constant."""
        z = _z_scored(x, self.mean, self.deviation, self.varies)
        tail = torch.log1p(z.abs())
        z = torch.maximum(z, self.low - tail)
        z = torch.minimum(z, self.high + tail)
        return torch.where(torch.isfinite(x) & self.varies, z, 0)


def standardise(
    x: Float[Tensor, "*tables rows used"], context: int, columns: int, spread: float = 0.5
) -> Float[Tensor, "*tables rows c"]:
    """Rows as the network takes them: z-scored, with tails drawn in, scaled and padded to ``columns``.

    Statistics are those of the first ``context`` rows. A missing value (not finite) becomes the mean. Beyond four
    deviations values grow with their logarithm. Columns that are constant in the context become zero; what is left is
    scaled by (columns / number left) ** spread: at a half, a row's norm does not tell how many columns there were.
    (TabPFN v1 scales by the ratio itself.)
    """
    scaling = Scaling.of(x[..., :context, :])
    return padded(scaling(x), scaling.varies, columns, spread)


def padded(
    z: Float[Tensor, "*tables rows used"], varies: Bool[Tensor, "*tables 1 used"], columns: int, spread: float = 0.5
) -> Tensor:
    """Standardised rows scaled by (columns / columns that vary) ** spread, with zeros up to ``columns``."""
    return pad(z * (columns / varies.sum(-1, keepdim=True).clamp(min=1)) ** spread, (0, columns - z.shape[-1]))


def _z_scored(x: Tensor, mean: Tensor, deviation: Tensor, varies: Tensor) -> Tensor:
    z = ((x - mean) / torch.where(varies, deviation, 1)).clamp(-LARGEST, LARGEST)
    return torch.where(torch.isfinite(x) & varies, z, 0)


def _moments(x: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of what is counted; zero where nothing is."""
    number = counted.sum(-2, keepdim=True).clamp(min=1)
    mean = torch.where(counted, x, 0).sum(-2, keepdim=True) / number
    square = torch.where(counted, x - mean, 0).square().sum(-2, keepdim=True)
    return mean, (square / number).sqrt()

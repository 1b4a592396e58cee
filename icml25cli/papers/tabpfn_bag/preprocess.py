"""What a column goes through on its way into the network, in training on the prior and in use alike.

Knows tensors of numbers with gaps. Does not know categories, ensembles or the network.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

OUTLIER = 4.0  # standard deviations, measured without the outliers themselves
LARGEST = 100.0  # standard deviations


def standardise(x: Float[Tensor, "*tables rows used"], context: int, columns: int) -> Float[Tensor, "*tables rows c"]:
    """Rows as the network takes them: z-scored, with tails drawn in, scaled and padded to ``columns``.

    Statistics are those of the first ``context`` rows. A missing value (not finite) becomes the mean. Beyond four
    deviations values grow with their logarithm. Columns that are constant in the context become zero; what is left is
    scaled by sqrt(columns / number left), so that a row's norm does not tell how many columns there were. (TabPFN v1
    scales by the ratio itself.)
    """
    observed = torch.isfinite(x)
    mean, deviation = _moments(x, observed, context)
    varies = deviation > 1e-6 * mean.abs()
    z = ((x - mean) / torch.where(varies, deviation, 1)).clamp(-LARGEST, LARGEST)
    observed &= varies
    z = torch.where(observed, z, 0)
    mean, deviation = _moments(z, observed & (z.abs() <= OUTLIER), context)
    tail = torch.log1p(z.abs())
    z = torch.maximum(z, mean - OUTLIER * deviation - tail)
    z = torch.minimum(z, mean + OUTLIER * deviation + tail)
    z = torch.where(observed, z, 0) * (columns / varies.sum(-1, keepdim=True).clamp(min=1)).sqrt()
    return pad(z, (0, columns - x.shape[-1]))


def _moments(x: Tensor, counted: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of what is counted in the first rows; zero where nothing is."""
    x, counted = x[..., :context, :], counted[..., :context, :]
    number = counted.sum(-2, keepdim=True).clamp(min=1)
    mean = torch.where(counted, x, 0).sum(-2, keepdim=True) / number
    square = torch.where(counted, x - mean, 0).square().sum(-2, keepdim=True)
    return mean, (square / number).sqrt()

"""Whether two trainings found the same dictionary (section 3.8). Knows matrices."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from icml25cli.core.errors import InputError
from icml25cli.papers.sae.model import SparseAutoencoder

EXACT = 4096  # latents up to which the best matching is found; it takes their number cubed


@dataclass(frozen=True)
class Stability:
    """Mean cosine of matched latents, by decoder rows and by encoder columns, each under its own matching.

    ``matched`` is the share that has a partner: 1 when ``exact``, else that of mutually best pairs, in which others
    count as cosine 0.
    """

    decoder: float
    encoder: float
    matched: float
    exact: bool
    close_share: float  # of decoder rows with a partner of cosine 0.9 or more


def stability(a: SparseAutoencoder, b: SparseAutoencoder) -> Stability:
    """Match the latents of two models of one shape.

    Raises:
        InputError: their shapes differ.
    """
    if (a.config.n, a.config.d) != (b.config.n, b.config.d):
        raise InputError(
            f"the models have {a.config.n} x {a.config.d} and {b.config.n} x {b.config.d} latents and columns",
            hint="compare trainings that differ in their seed",
        )
    decoder = matched_cosines(a.parameters.W_dec, b.parameters.W_dec)
    encoder = matched_cosines(a.parameters.W_enc.T, b.parameters.W_enc.T)
    n = a.config.n
    return Stability(
        float(decoder.sum() / n),
        float(encoder.sum() / n),
        len(decoder) / n,
        n <= EXACT,
        float((decoder >= 0.9).sum() / n),
    )


def matched_cosines(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"]) -> Float32[ndarray, "pairs"]:
    """Cosines of pairs of the matching with the largest sum; above 4096 rows those of mutually best pairs."""
    one, other = torch.nn.functional.normalize(a), torch.nn.functional.normalize(b)
    if len(one) <= EXACT:
        cosines = (one @ other.T).numpy()
        rows, columns = linear_sum_assignment(cosines, maximize=True)
        return cosines[rows, columns]
    best = [(part @ other.T).max(dim=1) for part in one.split(1024)]
    value, partner = torch.cat([v.values for v in best]), torch.cat([v.indices for v in best])
    back = torch.cat([(part @ one.T).argmax(dim=1) for part in other.split(1024)])
    return value[back[partner] == torch.arange(len(one))].numpy().astype(np.float32)

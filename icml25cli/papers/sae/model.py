"""The sparse autoencoder itself: parameters, scaling of the input, codes at inference (section 3 of the paper).

    x' = (x − m)·c,   pre = (x' − b_pre) W_enc + b_enc,   z = act(pre),   x̂' = z W_dec + b_pre

Knows tensors. Does not know training or files.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64
from numpy import ndarray
from torch import Tensor

from icml25cli.core.survey import Survey
from icml25cli.papers.sae.config import Config

ROW_NORM = 0.1  # of decoder rows at the start, before they are made unit rows
SMALLEST = 1e-8  # a decoder row below this length points nowhere


@dataclass(frozen=True)
class Scaling:
    """m and c of one modality; c makes the mean squared norm of x' equal d.

    (The reference divides √d by the mean squared norm, without its root, and so ends at another norm.)
    """

    mean: Float64[ndarray, "d"]
    scale: float

    @classmethod
    def of(cls, found: Survey, center: bool = True) -> "Scaling":
        """From the rows of a survey."""
        mean = found.mean if center else np.zeros_like(found.mean)
        square = found.mean_square + (0.0 if center else float(found.mean @ found.mean))
        return cls(mean, float(np.sqrt(len(mean) / square)) if square > 0 else 1.0)

    def forward(self, x: Float[ndarray, "B d"]) -> Float32[Tensor, "B d"]:
        return torch.from_numpy(np.asarray((x - self.mean.astype(np.float32)) * np.float32(self.scale), np.float32))

    def inverse(self, x: Float32[Tensor, "B d"]) -> Float32[ndarray, "B d"]:
        return x.numpy() / np.float32(self.scale) + self.mean.astype(np.float32)


@dataclass
class Parameters:
    """W_enc (d, n), b_enc (n), W_dec (n, d), b_pre (d); thresholds θ (n) of jumprelu alone."""

    W_enc: Float32[Tensor, "d n"]
    b_enc: Float32[Tensor, "n"]
    W_dec: Float32[Tensor, "n d"]
    b_pre: Float32[Tensor, "d"]
    theta: Float32[Tensor, "n"] | None = None

    def named(self) -> dict[str, Tensor]:
        return {name: x for name, x in vars(self).items() if x is not None}

    def clone(self) -> "Parameters":
        return Parameters(**{name: x.detach().clone() for name, x in self.named().items()})


def initial(config: Config, generator: torch.Generator) -> Parameters:
    """Decoder rows uniform (Kaiming) at norm 0.1, made unit as in every checkpoint; the encoder is its transpose."""
    bound = (6 / config.d) ** 0.5
    W_dec = (torch.rand(config.n, config.d, generator=generator) * 2 - 1) * bound
    W_dec *= ROW_NORM / W_dec.norm(dim=1, keepdim=True).clamp_min(SMALLEST)
    zeros = torch.zeros(config.n)
    theta = torch.full((config.n,), 1e-3) if config.method == "jumprelu" else None
    return Parameters(W_dec.T.clone().contiguous(), zeros, W_dec, torch.zeros(config.d), theta)


def geometric_median(x: Float32[Tensor, "B d"], *, eps: float = 1e-5, most: int = 1000) -> Float32[Tensor, "d"]:
    """The point of least summed distance, by Weiszfeld's iteration."""
    point = x.mean(dim=0)
    for _ in range(most):
        weight = 1 / (x - point).norm(dim=1).clamp_min(eps)
        new = weight @ x / weight.sum()
        if float((new - point).norm()) < eps:
            return new
        point = new
    return point


@dataclass(frozen=True)
class SparseAutoencoder:
    """A trained model. ``scaling`` is the training data's; ``threshold`` is what batchtopk keeps values above."""

    config: Config
    parameters: Parameters
    scaling: Scaling
    threshold: float = 0.0

    def with_scaling(self, scaling: Scaling) -> "SparseAutoencoder":
        """The same dictionary for another modality."""
        return replace(self, scaling=scaling)

    def pre(self, x: Float32[Tensor, "B d"]) -> Float32[Tensor, "B n"]:
        """Pre-activations of scaled rows."""
        p = self.parameters
        return torch.addmm(p.b_enc, x - p.b_pre, p.W_enc)

    def codes(self, x: Float[ndarray, "B d"], *, full: bool = True) -> Float32[Tensor, "B n"]:
        """Non-negative codes of rows as they come. ``full`` is ReLU of all pre-activations, in any method.

        Else the method's own at inference: batchtopk's above its running threshold, jumprelu's above its thresholds;
        what a row gets never depends on other rows.
        """
        z = self.pre(self.scaling.forward(x)).relu_()
        if not full and self.config.method == "batchtopk":
            z *= z > self.threshold
        elif self.parameters.theta is not None:
            z *= z > self.parameters.theta
        return z

    def capped(self, z: Float32[Tensor, "..."]) -> Float32[Tensor, "..."]:
        """The soft cap of values that are decoded."""
        c = self.config.soft_cap
        return z if not c else c * torch.tanh(z / c)

    def decoded(self, sums: Float32[Tensor, "B d"]) -> Float32[ndarray, "B d"]:
        """Embeddings from Σ z·W_dec: bias added, scaling undone."""
        return self.scaling.inverse(sums + self.parameters.b_pre)

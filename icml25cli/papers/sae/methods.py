"""The loss of each method on a batch with its gradients (sections 3.2 to 3.4 of the paper; baselines as published).

msae goes by shells and has its gradient written out; the others are short in torch and leave it to autograd. Knows
tensors. Does not know optimisers, epochs or files.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float32
from torch import Tensor

from icml25cli.papers.sae.config import Config, level_weights
from icml25cli.papers.sae.model import Parameters
from icml25cli.papers.sae.nested import decode, gradients, split, topk_code

CHUNK = 1024  # rows of a batch whose shells are in memory at once
BANDWIDTH = 1e-3  # of jumprelu's rectangle kernel
CLAMP = 1e-6  # nmse: least energy of a row, over the median


@dataclass(frozen=True)
class Step:
    """A batch's loss, gradients by name, which latents were active, and the smallest kept value (of batchtopk)."""

    loss: float
    gradients: dict[str, Tensor]
    active: Tensor
    smallest: float | None = None
    clamped: int = 0


def row_weights(config: Config, x: Float32[Tensor, "B d"]) -> tuple[Float32[Tensor, "B"], int]:
    """What a row's squared error counts: 1/(B·d), in nmse over the row's mean energy; and how many were clamped."""
    uniform = torch.full((len(x),), 1 / x.numel())
    if config.loss == "mse":
        return uniform, 0
    # In nmse the reference has m0 = 0 where rows are centred, and their mean elsewhere.
    energy = (x if config.center else x - x.mean(dim=0)).square().mean(dim=1)
    least = CLAMP * energy.median()
    return uniform / energy.clamp_min(least), int((energy < least).sum())


def step(config: Config, p: Parameters, x: Float32[Tensor, "B d"]) -> Step:
    """Loss and gradients of one batch of scaled rows."""
    weight, clamped = row_weights(config, x)
    nested = config.method == "msae" and x.device.type == "cpu" and not config.soft_cap
    loss, grads, active, smallest = (_by_shells if nested else _by_autograd)(config, p, x, weight)
    return Step(loss, grads, active, smallest, clamped)


def _by_shells(
    config: Config, p: Parameters, x: Tensor, weight: Tensor
) -> tuple[float, dict[str, Tensor], Tensor, Any]:
    a = level_weights(config)
    grads = {name: torch.zeros_like(value) for name, value in p.named().items()}
    active = torch.zeros(config.n, dtype=torch.bool)
    loss = 0.0
    for rows, w in zip(x.split(CHUNK), weight.split(CHUNK), strict=True):
        shifted = rows - p.b_pre
        pre = torch.addmm(p.b_enc, shifted, p.W_enc)
        shells = split(pre, config.levels)
        shares = torch.zeros(len(shells.ks))
        for share, level in zip(a, shells.level, strict=True):
            shares[level] += share
        errors = decode(shells, p.W_dec).sub_(shifted)  # x̂_i − x, as b_pre stands on both sides
        squares = errors.square().sum(dim=2) @ w
        loss += float(squares @ shares)
        errors *= (2 * shares)[:, None, None] * w[:, None]
        for s in range(len(errors) - 2, -1, -1):  # shell s is in every reconstruction from s on
            errors[s] += errors[s + 1]
        dpre = gradients(shells, errors, p.W_dec, grads["W_dec"])
        grads["W_enc"].addmm_(shifted.T, dpre)
        total = dpre.sum(dim=0)
        grads["b_enc"] += total
        grads["b_pre"] += errors[0].sum(dim=0) - p.W_enc @ total
        active |= (pre > 0).any(dim=0)
    return loss, grads, active, None


@torch.enable_grad()
def _by_autograd(
    config: Config, p: Parameters, x: Tensor, weight: Tensor
) -> tuple[float, dict[str, Tensor], Tensor, float | None]:
    leaves = Parameters(**{name: value.detach().requires_grad_() for name, value in p.named().items()})
    pre = torch.addmm(leaves.b_enc, x - leaves.b_pre, leaves.W_enc)
    smallest = None

    def error(z: Tensor, latents: int | None = None) -> Tensor:
        if config.soft_cap:
            z = config.soft_cap * torch.tanh(z / config.soft_cap)
        return ((z[:, :latents] @ leaves.W_dec[:latents] + leaves.b_pre - x).square().sum(dim=1) * weight).sum()

    if config.method == "msae":
        z = pre.relu()
        loss = sum(a * error(topk_code(pre, k)) for a, k in zip(level_weights(config), config.levels, strict=True))
    elif config.method == "relu":
        z = pre.relu()
        loss = error(z) + config.l1 * (z.sum(dim=1) / x.norm(dim=1).clamp_min(1e-6)).mean()
    elif config.method == "jumprelu":
        z, l0 = _jump(pre, leaves.theta)
        loss = error(z) + config.l1 * l0.mean()
    elif config.method == "batchtopk":
        kept = min(config.k * len(x), pre.numel())
        values, places = torch.topk(pre.flatten(), kept, sorted=False)
        z = torch.zeros_like(pre).flatten().scatter(0, places, values.relu()).view_as(pre)
        positive = values.detach()[values > 0]
        smallest = float(positive.min()) if len(positive) else None
        loss = error(z)
    else:
        z = topk_code(pre, config.k)
        loss = error(z)
        if config.method == "prefix-matryoshka":
            loss = (loss + sum(error(z, m) for m in prefixes(config.n))) / (1 + len(prefixes(config.n)))
    total: Any = loss
    named = leaves.named()
    found = torch.autograd.grad(total, list(named.values()), allow_unused=True)
    grads = {
        name: torch.zeros_like(value) if gradient is None else gradient
        for (name, value), gradient in zip(named.items(), found, strict=True)
    }
    return float(total.detach()), grads, (z.detach() > 0).any(dim=0), smallest


def prefixes(n: int) -> tuple[int, ...]:
    """Latents of the nested dictionaries of prefix-matryoshka below the whole: n/16, n/8, n/4, n/2."""
    return tuple(dict.fromkeys(max(1, n // part) for part in (16, 8, 4, 2)))


def _jump(pre: Tensor, theta: Tensor | None) -> tuple[Tensor, Tensor]:
    assert theta is not None
    return _JumpReLU.apply(pre, theta), _Step.apply(pre, theta).sum(dim=1)  # type: ignore[return-value]


class _JumpReLU(torch.autograd.Function):
    """z = pre·[pre > θ] (Rajamanoharan and others 2024), with the straight-through gradient by θ."""

    @staticmethod
    def forward(ctx: Any, pre: Tensor, theta: Tensor) -> Tensor:
        ctx.save_for_backward(pre, theta)
        return pre * (pre > theta)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        pre, theta = ctx.saved_tensors
        near = ((pre - theta).abs() < BANDWIDTH / 2).float()
        return grad * (pre > theta), (-theta / BANDWIDTH * near * grad).sum(dim=0)


class _Step(torch.autograd.Function):
    """[pre > θ], with the straight-through gradient by θ alone."""

    @staticmethod
    def forward(ctx: Any, pre: Tensor, theta: Tensor) -> Tensor:
        ctx.save_for_backward(pre, theta)
        return (pre > theta).float()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:  # type: ignore[override]
        pre, theta = ctx.saved_tensors
        near = ((pre - theta).abs() < BANDWIDTH / 2).float()
        return None, (-near / BANDWIDTH * grad).sum(dim=0)

"""Many small classifiers trained side by side, as one stack of matrices (spec 3.5).

Each is ``depth`` times a linear map and LeakyReLU(0.1), then a linear head; its representations are what follows every
activation. A stack takes the steps that each would take alone: losses, clipping and Adam do not mix its members. Knows
tensors. Does not know where data comes from.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

SLOPE, CLIP = 0.1, 8.0
BETAS, EPSILON = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Training:
    """How stacks are trained."""

    epochs: int
    batch: int = 512
    rate: float = 0.01
    decay: float = 1e-4


@dataclass(frozen=True)
class Stack:
    """Weights of E classifiers of one depth."""

    layers: tuple[tuple[Float[Tensor, "E i o"], Float[Tensor, "E 1 o"]], ...]  # the head last

    def representations(self, x: Float[Tensor, "E N d"]) -> list[Float[Tensor, "E N w"]]:
        """After every activation."""
        out = []
        for weight, bias in self.layers[:-1]:
            x = torch.nn.functional.leaky_relu(torch.baddbmm(bias, x, weight), SLOPE)
            out.append(x)
        return out

    def logits(self, x: Float[Tensor, "E N d"]) -> Float[Tensor, "E N c"]:
        weight, bias = self.layers[-1]
        return torch.baddbmm(bias, self.representations(x)[-1], weight)


@dataclass(frozen=True)
class Split:
    """Rows of every member of a stack."""

    x: Float[Tensor, "E N d"]
    label: Int[Tensor, "E N"]


def started(members: int, width: int, classes: int, depth: int, seed: int) -> Stack:
    """Torch's own start of linear maps: uniform within ±1/sqrt(inputs)."""
    draw = torch.Generator().manual_seed(seed)
    bound = width**-0.5

    def uniform(*shape: int) -> Tensor:
        return (2 * torch.rand(*shape, generator=draw) - 1) * bound

    sizes = [width] * (depth + 1) + [classes]
    return Stack(tuple((uniform(members, i, o), uniform(members, 1, o)) for i, o in pairwise(sizes)))


def train(start: Stack, training: Split, validation: Split, how: Training, seed: int) -> Stack:
    """Each member as it was after the epoch of its best accuracy on validation rows."""
    parameters = [part.clone().requires_grad_() for layer in start.layers for part in layer]
    first, second = [torch.zeros_like(p) for p in parameters], [torch.zeros_like(p) for p in parameters]
    best = [p.detach().clone() for p in parameters]
    members, rows, _ = training.x.shape
    best_accuracy = torch.full((members,), -1.0)
    draw = torch.Generator().manual_seed(seed)
    taken = 0
    for _ in range(how.epochs):
        order = torch.randperm(rows, generator=draw)
        for begin in range(0, rows, how.batch):
            which = order[begin : begin + how.batch]
            logits = _stack(parameters).logits(training.x[:, which])
            flat = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), training.label[:, which].flatten(), reduction="sum"
            )
            gradients = torch.autograd.grad(flat / len(which), parameters)
            taken += 1
            _step(parameters, gradients, first, second, how, taken)
        with torch.no_grad():
            found = accuracy(_stack(parameters), validation)
            better = found > best_accuracy
            best_accuracy = torch.where(better, found, best_accuracy)
            for kept, now in zip(best, parameters, strict=True):
                kept[better] = now.detach()[better]
    return _stack(best)


def accuracy(stack: Stack, rows: Split) -> Float[Tensor, "E"]:
    return (stack.logits(rows.x).argmax(dim=2) == rows.label).float().mean(dim=1)


def _stack(parts: list[Tensor]) -> Stack:
    return Stack(tuple(zip(parts[::2], parts[1::2], strict=True)))


@torch.no_grad()
def _step(parameters, gradients, first, second, how: Training, taken: int) -> None:
    """AdamW, each member's gradient clipped to length 8."""
    length = torch.stack([g.square().sum(dim=(1, 2)) for g in gradients]).sum(dim=0).sqrt()
    clip = (CLIP / (length + 1e-6)).clamp(max=1)[:, None, None]
    one, two = 1 - BETAS[0] ** taken, 1 - BETAS[1] ** taken
    for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
        g = g * clip
        m.lerp_(g, 1 - BETAS[0])
        v.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
        p.mul_(1 - how.rate * how.decay)
        p.addcdiv_(m, (v / two).sqrt_().add_(EPSILON), value=-how.rate / one)

"""Exact gradients of every row's loss with respect to adapters, many rows at once, and what is made of them.

Of a linear map y = W x the gradient of row i's loss is the sum over its tokens of (dL/dy) x', so hooks that see x and
dL/dy of a padded batch give every row's own gradient for about the price of one ordinary backward pass. Each is turned
into a feature (Adam's direction, for rows to train on) and projected at once, matrix by matrix: no full gradient of
more than one matrix is ever in memory. Knows adapters and projections. Does not know where rows come from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icml25cli.core.errors import MissingError
from icml25cli.core.progress import warn
from icml25cli.papers.select_data.adapters import Checkpoint, linear_maps
from icml25cli.papers.select_data.projection import Projection
from icml25cli.papers.select_data.tokens import Example
from icml25cli.papers.select_data.training import BETAS, EPS, batches, row_losses

Feature = Callable[[str, Float[Tensor, "rows n"]], Float[Tensor, "rows n"]]


def adam_direction(
    gradient: Float[Tensor, "... n"], first: Float[Tensor, " n"], second: Float[Tensor, " n"]
) -> Float[Tensor, "... n"]:
    """The update that Adam would make on this gradient: the moments with it, ε inside the root, no bias correction.

    As LESS and the authors' code have it (section 3.3 of the method as published there).
    """
    moved = BETAS[0] * first + (1 - BETAS[0]) * gradient
    return moved / torch.sqrt(BETAS[1] * second + (1 - BETAS[1]) * gradient.square() + EPS)


def feature_of(kind: str, checkpoint: Checkpoint | None = None, device: torch.device | str = "cpu") -> Feature:
    """What a row's gradient becomes: ``adam`` with the checkpoint's moments, ``sgd`` itself, or its ``sign``."""
    if kind == "sgd":
        return lambda _, g: g
    if kind == "sign":
        return lambda _, g: g.sign()
    assert checkpoint is not None
    first, second = ({name: x.to(device) for name, x in part.items()} for part in checkpoint.moments())
    return lambda name, g: adam_direction(g, first[name], second[name])


def row_features(
    model: Any,
    examples: Sequence[Example],
    projection: Projection,
    feature: Feature,
    *,
    mean: bool,
    batch_tokens: int = 2048,
) -> Float[Tensor, "rows k"]:
    """The projected feature of every row's loss gradient, float32, in order.

    Args:
        model: with adapters, in evaluation mode.
        mean: of a row's answer tokens, else their sum.
        batch_tokens: of a batch with its padding; halved where memory does not suffice.
    """
    found = torch.empty(len(examples), projection.width)
    waiting = list(batches(examples, batch_tokens))
    with _Hooks(model, projection, feature) as hooks:
        while waiting:
            places = waiting.pop(0)
            try:
                found[places] = hooks.features([examples[i] for i in places], mean=mean).cpu()
            except (MemoryError, RuntimeError) as error:
                if "memory" not in f"{type(error).__name__} {error}".lower():
                    raise
                if len(places) == 1:
                    raise MissingError(
                        f"memory does not suffice for a row of {len(examples[places[0]].tokens)} tokens",
                        hint="use a shorter --max-length",
                    ) from error
                warn("memory did not suffice for --batch-tokens, which was halved")
                waiting[:0] = [places[: len(places) // 2], places[len(places) // 2 :]]
    return found


class _Hooks:
    """Hooks on all trained linear maps, which hand every row's gradient to the projection during the backward pass."""

    def __init__(self, model: Any, projection: Projection, feature: Feature) -> None:
        self._model, self._projection, self._feature = model, projection, feature
        self._sums: Tensor | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> _Hooks:
        maps = linear_maps(self._model)
        for name, module in maps.items():
            # Autograd then leaves out the sum over rows, which is not wanted here.
            module.weight.requires_grad_(False)
            self._stack.callback(module.weight.requires_grad_, True)
            self._stack.callback(module.register_forward_hook(self._watching(name)).remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def features(self, examples: Sequence[Example], *, mean: bool) -> Float[Tensor, "rows k"]:
        self._sums = self._projection.zeros(len(examples), self._model.device)
        losses = row_losses(self._model, examples, mean=mean)
        losses.sum().backward()
        return self._projection.finish(self._sums)

    def _watching(self, name: str) -> Callable[..., None]:
        def see(_: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            x = inputs[0].detach()
            if not output.requires_grad:  # in the first layer: what lies before it needs no gradient at all
                output.requires_grad_()

            def take(delta: Tensor) -> None:
                with torch.no_grad():
                    gradient = torch.bmm(delta.float().transpose(1, 2), x.float()).flatten(1)
                    assert self._sums is not None
                    self._projection.add(self._sums, name, self._feature(name, gradient))

            output.register_hook(take)

        return see

"""Random projections of gradients, matrix by matrix, that keep inner products: what makes a store of gradients small.

One and the same projection serves all checkpoints, rows to train on and validation rows. Its random bits come from the
seed and a matrix's place alone, never from threads or batches. Knows tensors. Does not know what they are gradients of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icml25cli.core.errors import MissingError, UsageError

KINDS = ("auto", "none", "countsketch", "rademacher", "trak")
_CACHED = 2**29  # bytes of random signs that are kept rather than drawn again
_BLOCK = 4096  # rows of a Rademacher matrix that are drawn at once


class Projection(Protocol):
    """Linear, from gradients of ``sizes`` numbers a matrix to ``width`` numbers."""

    kind: str
    width: int

    def zeros(self, rows: int, device: torch.device | str) -> Float[Tensor, "rows width"]:
        """What ``add`` adds to."""
        ...

    def add(self, sums: Float[Tensor, "rows width"], name: str, gradient: Float[Tensor, "rows n"]) -> None:
        """Add the projected gradients of one matrix, in place; every matrix once."""
        ...

    def finish(self, sums: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]:
        """The projection, once all are added."""
        ...


def make_projection(kind: str, sizes: Mapping[str, int], width: int = 8192, seed: int = 0) -> Projection:
    """A projection of matrices of ``sizes`` numbers, by name.

    Args:
        kind: ``none`` lays gradients side by side; ``countsketch`` adds every number with a random sign to one of
            ``width`` sums (Charikar, Chen and Farach-Colton 2002); ``rademacher`` multiplies by random signs; ``trak``
            is traker's own, on a GPU its kernel; ``auto`` is none up to four times the width, else a count-sketch.

    Raises:
        UsageError: there is no such kind, or the width is below one.
        MissingError: traker is not installed.
    """
    if kind not in KINDS:
        raise UsageError(f"--projector {kind} is none", hint=f"one of {', '.join(KINDS)}")
    if width < 1:
        raise UsageError(f"--proj-dim {width} is below 1", hint="the paper's is 8192")
    total = sum(sizes.values())
    if kind == "auto":
        kind = "none" if total <= 4 * width else "countsketch"
    made: dict[str, Any] = {"none": Whole, "countsketch": CountSketch, "rademacher": Rademacher, "trak": Trak}
    return made[kind](sizes, width, seed)


class Whole:
    """No projection: all numbers side by side."""

    kind = "none"

    def __init__(self, sizes: Mapping[str, int], width: int = 0, seed: int = 0) -> None:
        self.width = sum(sizes.values())
        ends = np.cumsum([0, *sizes.values()]).tolist()
        self._places = {name: slice(*ends[i : i + 2]) for i, name in enumerate(sizes)}

    def zeros(self, rows: int, device: torch.device | str) -> Float[Tensor, "rows width"]:
        return torch.zeros(rows, self.width, device=device)

    def add(self, sums: Float[Tensor, "rows width"], name: str, gradient: Float[Tensor, "rows n"]) -> None:
        sums[:, self._places[name]] += gradient

    def finish(self, sums: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]:
        return sums


class CountSketch:
    """Every number goes to one of ``width`` sums with a random sign.

    Numbers lie in blocks of ``width``, and a block is shifted round by a random number of places: within a block no two
    meet, across blocks any two meet with chance 1/width, and signs are independent, so inner products have the mean
    and no more than the variance of the textbook sketch; a shift is two additions of whole rows instead of a scatter.
    """

    kind = "countsketch"

    def __init__(self, sizes: Mapping[str, int], width: int, seed: int = 0) -> None:
        self.width = width
        self._seed = seed
        self._index = {name: i for i, name in enumerate(sizes)}
        self._signs: dict[str, Tensor] = {}

    def zeros(self, rows: int, device: torch.device | str) -> Float[Tensor, "rows width"]:
        return torch.zeros(rows, self.width, device=device)

    def add(self, sums: Float[Tensor, "rows width"], name: str, gradient: Float[Tensor, "rows n"]) -> None:
        n, k = gradient.shape[1], self.width
        signed = gradient * self._sign(name, n, gradient.device)
        shifts = np.random.default_rng([self._seed, 1, self._index[name]]).integers(0, k, -(-n // k)).tolist()
        for block, shift in enumerate(shifts):
            part = signed[:, block * k : (block + 1) * k]
            first = min(part.shape[1], k - shift)
            sums[:, shift : shift + first] += part[:, :first]
            sums[:, : part.shape[1] - first] += part[:, first:]

    def finish(self, sums: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]:
        return sums

    def _sign(self, name: str, n: int, device: torch.device) -> Tensor:
        if name not in self._signs:
            self._signs[name] = _signs([self._seed, 0, self._index[name]], n).to(device)
        return self._signs[name]


class Rademacher:
    """The product with a matrix of random signs, over the root of ``width``."""

    kind = "rademacher"

    def __init__(self, sizes: Mapping[str, int], width: int, seed: int = 0) -> None:
        self.width = width
        self._seed = seed
        self._index = {name: i for i, name in enumerate(sizes)}
        self._keep = sum(sizes.values()) * width <= _CACHED
        self._kept: dict[tuple[str, int], Tensor] = {}

    def zeros(self, rows: int, device: torch.device | str) -> Float[Tensor, "rows width"]:
        return torch.zeros(rows, self.width, device=device)

    def add(self, sums: Float[Tensor, "rows width"], name: str, gradient: Float[Tensor, "rows n"]) -> None:
        for first in range(0, gradient.shape[1], _BLOCK):
            part = gradient[:, first : first + _BLOCK]
            sums += part @ self._block(name, first, part.shape[1]).to(part) / self.width**0.5

    def finish(self, sums: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]:
        return sums

    def _block(self, name: str, first: int, rows: int) -> Tensor:
        if (held := self._kept.get((name, first))) is not None:
            return held
        signs = _signs([self._seed, 2, self._index[name], first], rows * self.width).view(rows, self.width)
        if self._keep:
            self._kept[name, first] = signs
        return signs


class Trak(Whole):
    """traker's projector on the whole gradient, with the settings of LESS: Rademacher, blocks of 128."""

    kind = "trak"

    def __init__(self, sizes: Mapping[str, int], width: int, seed: int = 0) -> None:
        super().__init__(sizes)
        self._inner = self.width
        self.width = width
        self._seed = seed
        self._made: Any = None
        try:
            import trak  # noqa: F401  # pyright: ignore[reportMissingImports] -- extra peers
        except ImportError as error:
            raise MissingError("traker is not installed", hint="pip install traker, or --projector auto") from error

    def zeros(self, rows: int, device: torch.device | str) -> Float[Tensor, "rows width"]:
        return torch.zeros(rows, self._inner, device=device)

    def finish(self, sums: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]:
        from trak.projectors import (  # pyright: ignore[reportMissingImports]
            BasicProjector,
            CudaProjector,
            ProjectionType,
        )

        if self._made is None:
            cuda = sums.device.type == "cuda"
            self._made = (CudaProjector if cuda else BasicProjector)(
                grad_dim=self._inner,
                proj_dim=self.width,
                seed=self._seed,
                proj_type=ProjectionType("rademacher"),
                device=sums.device,
                dtype=sums.dtype,
                block_size=128,
                **({"max_batch_size": 16} if cuda else {}),
            )
        return self._made.project(sums, model_id=0)


def _signs(seed: list[int], n: int) -> Tensor:
    """``n`` random values of -1 and 1, int8."""
    bits = np.random.default_rng(seed).bytes(-(-n // 8))
    return torch.from_numpy(np.unpackbits(np.frombuffer(bits, np.uint8), count=n).view(np.int8) * 2 - 1)

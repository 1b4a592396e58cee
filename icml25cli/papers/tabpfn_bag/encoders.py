"""Encoders of rows: K paths with one set of shared weights, told apart by elementwise scales (section 3 of the paper).

BatchEnsemble (Wen, Tran and Ba 2020): path k's weight is W * (s_k r_k^T), for a rank-one factor of its own.
TabM (Gorishniy, Kotelnikov and Babenko 2025): which factors a path keeps, and how they start.
PLR-lite (Gorishniy, Rubachev and Babenko 2022): a number by cosines and sines of learned frequencies.

Knows tensors. Does not know tables, networks that read the encoded rows, or training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from typing import cast

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor, nn
from torch.nn.functional import selu

KINDS = ("tabm-mini", "tabm", "tabm-naive", "vanilla")
BLOCKS = 2
WIDE = 512  # numbers above which there is no embedding: it would make the first map as wide as it has numbers


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of an encoder.

    Attributes:
        numbers: numeric columns.
        levels: widths of one-hot blocks, one for each categorical column.
        paths: K; 1 for ``vanilla``.
        width: of the hidden layers and of an encoded row, the columns of the network.
        frequencies: m, of the embedding of a number; 0 for none.
        embedding: de, the width of an embedded number.
    """

    numbers: int
    levels: tuple[int, ...]
    paths: int = 8
    kind: str = "tabm-mini"
    width: int = 64
    frequencies: int = 24
    embedding: int = 16
    sigma: float = 0.04
    dropout: float = 0.15

    @property
    def sections(self) -> list[int]:
        """Widths of what the paths scale as one at the start: an embedded number, or one-hot block."""
        return [self.embedding if self.frequencies else 1] * self.numbers + list(self.levels)


@dataclass(frozen=True)
class Rows:
    """Rows of a table, prepared.

    Attributes:
        numbers: standardised, NaN where missing.
        codes: of categories, -1 for a level that was not there in training.
    """

    numbers: Float[Tensor, "rows numbers"]
    codes: Int64[Tensor, "rows categories"]

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, index: Tensor | slice) -> "Rows":
        return Rows(self.numbers[index], self.codes[index])


class PathLinear(nn.Module):
    """A linear map with, for each path, optional scales of its input and output and a bias of its own."""

    def __init__(self, inputs: int, outputs: int, *, scale_in: Tensor | None, scale_out: Tensor | None) -> None:
        super().__init__()
        plain = nn.Linear(inputs, outputs)
        self.weight = plain.weight
        own_bias = scale_out is not None  # a path that scales its output has a bias of its own, equal at first
        self.bias = nn.Parameter(plain.bias.detach().repeat(len(scale_out), 1)) if own_bias else plain.bias
        self.scale_in = nn.Parameter(scale_in) if scale_in is not None else None
        self.scale_out = nn.Parameter(scale_out) if scale_out is not None else None

    def of_path(self, path: slice) -> tuple[Float[Tensor, "paths outputs inputs"], Float[Tensor, "paths 1 outputs"]]:
        """Weights W * (s_k r_k^T) and biases of some paths; one for all where paths do not differ."""
        weight = self.weight[None]
        if self.scale_in is not None:
            weight = weight * self.scale_in[path, None]
        if self.scale_out is not None:
            weight = weight * self.scale_out[path, :, None]
        return weight, self.bias[path, None] if self.bias.ndim == 2 else self.bias[None, None]

    def forward(self, x: Float[Tensor, "paths rows inputs"], path: slice) -> Float[Tensor, "paths rows outputs"]:
        """Of rows that paths share (first axis 1), or that are each path's own."""
        weight, bias = self.of_path(path)
        if len(x) == 1 and len(weight) > 1:  # one product instead of one a path
            y = (x[0] @ weight.flatten(0, 1).T).unflatten(1, (len(weight), -1)).transpose(0, 1)
        else:
            y = x @ weight.transpose(1, 2)
        return y + bias


class PathEncoder(nn.Module):
    """Rows to ``width`` numbers, in K ways."""

    def __init__(self, config: EncoderConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if config.frequencies:
                self.frequency = nn.Parameter(torch.randn(config.numbers, config.frequencies) * config.sigma)
                self.lift = nn.Linear(2 * config.frequencies, config.embedding)
            sections = config.sections
            inputs = sum(sections)
            layers, size = [], config.width
            for block in range(BLOCKS):
                first = block == 0
                scale_in = first_scales(config, sections) if first else inner_scales(config, size)
                scale_out = inner_scales(config, size)
                layers.append(PathLinear(inputs if first else size, size, scale_in=scale_in, scale_out=scale_out))
            self.blocks = cast(Sequence[PathLinear], nn.ModuleList(layers))

    def embed(self, rows: Rows) -> Float[Tensor, "rows inputs"]:
        """Numbers embedded (a missing one as the mean), and one-hot categories."""
        numbers = rows.numbers.nan_to_num(nan=0.0)
        parts = [numbers]
        if self.config.frequencies:
            angle = 2 * pi * self.frequency * numbers[:, :, None]
            parts = [torch.relu(self.lift(torch.cat([angle.cos(), angle.sin()], -1))).flatten(1)]
        levels = self.config.levels
        if levels:
            offsets = torch.tensor((0, *levels[:-1])).cumsum(0)
            place = torch.where(rows.codes >= 0, rows.codes + offsets, sum(levels))
            hot = numbers.new_zeros(len(rows), sum(levels) + 1).scatter_(1, place, 1.0)
            parts.append(hot[:, :-1])  # the last place took what is unknown
        return torch.cat(parts, 1)

    def forward(
        self, rows: Rows, path: slice = slice(None), generator: Generator | None = None
    ) -> Float[Tensor, "paths rows width"]:
        """Rows as the chosen paths see them; with dropout, drawn from ``generator``, where one is given."""
        x = self.embed(rows)[None]
        for layer in self.blocks:
            x = selu(layer(x, path))
            if generator is not None and self.config.dropout:
                keep = 1 - self.config.dropout
                x = x * (torch.rand(x.shape, generator=generator) < keep) / keep
        return x.expand(len(range(*path.indices(self.config.paths))), -1, -1)


def first_scales(config: EncoderConfig, sections: Sequence[int]) -> Tensor | None:
    """r of the first map: one draw for each path and section, a normal deviate, or a sign without an embedding."""
    if config.kind == "vanilla":
        return None
    if config.kind == "tabm-naive":
        return signs(config.paths, sum(sections))
    shape = (config.paths, len(sections))
    draws = torch.randn(shape) if config.frequencies else signs(*shape)
    return draws.repeat_interleave(torch.tensor(sections, dtype=torch.long), 1)


def inner_scales(config: EncoderConfig, size: int) -> Tensor | None:
    """All other scales: none, ones, or signs."""
    if config.kind == "tabm":
        return torch.ones(config.paths, size)
    return signs(config.paths, size) if config.kind == "tabm-naive" else None


def signs(*shape: int) -> Tensor:
    return torch.randint(0, 2, shape).float() * 2 - 1


def encoder_config(numbers: int, levels: Sequence[int], *, paths: int, kind: str, **sizes: float) -> EncoderConfig:
    """The sizes for a table: no embedding of very many numbers, one path for ``vanilla``."""
    if numbers > WIDE:
        sizes["frequencies"] = 0
    return EncoderConfig(numbers, tuple(levels), 1 if kind == "vanilla" else paths, kind, **sizes)  # type: ignore[arg-type]

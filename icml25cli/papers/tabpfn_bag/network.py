"""The prior-fitted network: a transformer over the rows of a table that predicts labels from labelled rows.

Form of TabPFN v1 (Hollmann, Müller, Eggensperger and Hutter 2023): one token a row, no positions; rows of the context
attend to the context, queries attend to the context only. So what queries need of a context is its keys and values,
one pair a layer: they are computed once (``encode``) and asked often (``predict``).

Knows tensors. Does not know columns, missing values, ensembles or training.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import cast

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

CONTEXT_UNIT = 256  # rows of a context at which attention is scaled as usual


@dataclass(frozen=True)
class Sizes:
    """Columns and classes that a network can take."""

    columns: int = 64
    classes: int = 10


@dataclass(frozen=True)
class PfnConfig(Sizes):
    """With the widths of one whose tokens are rows."""

    width: int = 160
    heads: int = 4
    layers: int = 6
    hidden: int = 320


@dataclass(frozen=True)
class Context:
    """What queries need of a context: keys and values of its rows, from the first layer to the last.

    Attributes:
        rows: of the context, each as often as it stands there.
        bias: logarithms of how often each does; none where each stands there once.
    """

    keys: tuple[Float[Tensor, "batch heads distinct head_width"], ...]
    values: tuple[Float[Tensor, "batch heads distinct head_width"], ...]
    rows: int
    bias: Float[Tensor, "batch 1 1 distinct"] | None = None


def attend(
    queries: Float[Tensor, "batch heads queries head_width"],
    keys: Float[Tensor, "batch heads rows head_width"],
    values: Float[Tensor, "batch heads rows head_width"],
    bias: Float[Tensor, "batch 1 1 rows"] | None = None,
) -> Float[Tensor, "batch heads queries head_width"]:
    """Softmax attention; ``bias`` is added to the scores of keys."""
    if bias is None and queries.dtype == torch.bfloat16 and torch.is_grad_enabled():
        # The fused kernel's backward is thrice as slow.
        return (queries * queries.shape[-1] ** -0.5 @ keys.transpose(-1, -2)).softmax(-1) @ values
    mask = None if bias is None else bias.expand(*queries.shape[:3], -1)  # the fused kernel takes it whole alone
    return scaled_dot_product_attention(queries, keys, values, mask)


class Layer(nn.Module):
    """Pre-norm attention to the context and an MLP; both start as the identity, their last map being zero."""

    def __init__(self, config: PfnConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm_attention = nn.LayerNorm(config.width)
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key_value = nn.Linear(config.width, 2 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        # Over more rows a softmax is flatter: queries grow with the logarithm of their number (Nakanishi 2025).
        self.sharpening = nn.Parameter(torch.full((config.heads, 1, 1), 1 / log(CONTEXT_UNIT)))
        self.norm_mlp = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, config.hidden)
        self.down = nn.Linear(config.hidden, config.width)
        for last in (self.out.weight, self.down.weight, self.down.bias):
            nn.init.zeros_(last)

    def split(self, x: Float[Tensor, "batch rows width"]) -> Float[Tensor, "batch heads rows head_width"]:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def keys_values(self, normed: Float[Tensor, "batch rows width"]) -> tuple[Tensor, Tensor]:
        keys, values = self.key_value(normed).chunk(2, dim=-1)
        return self.split(keys), self.split(values)

    def forward(
        self,
        x: Float[Tensor, "batch rows width"],
        normed: Tensor,
        keys: Tensor,
        values: Tensor,
        shown: int,
        bias: Tensor | None = None,
    ) -> Float[Tensor, "batch rows width"]:
        queries = self.split(self.query(normed)) * (1 + self.sharpening * log(shown / CONTEXT_UNIT))
        seen = attend(queries, keys, values, bias)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.norm_mlp(x))))


class Pfn(nn.Module, ABC):
    """q(y | row, context): logits of classes for query rows, given labelled rows.

    A row is ``columns`` numbers, unused ones zero. The batch axis holds tables, or paths of one table, that know
    nothing of each other.

    Attributes:
        form: which network it is, by name.
        sizes: of which ``config`` is one.
        spread: columns of a table without an encoder are scaled by (columns of the network / used ones) ** spread.
    """

    form: str
    spread: float
    sizes: type[Sizes] = PfnConfig

    def __init__(self, config: Sizes) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def encode(
        self,
        rows: Float[Tensor, "batch context columns"],
        labels: Int64[Tensor, "batch context"],
        counts: Int64[Tensor, "batch context"] | None = None,
    ) -> Context:
        """Keys and values of labelled rows in every layer. Labels are in [0, classes).

        Args:
            counts: how often each row stands in the context, where it is more than once; 0 for one that fills up a
                batch. Rows that are the same have the same keys and values, which count that many times.
        """

    @abstractmethod
    def predict(
        self, context: Context, rows: Float[Tensor, "batch queries columns"]
    ) -> Float[Tensor, "batch queries classes"]:
        """Logits of queries, each independent of the others; of C classes in use the first C columns count."""

    def forward(
        self,
        rows: Float[Tensor, "batch context columns"],
        labels: Int64[Tensor, "batch context"],
        queries: Float[Tensor, "batch queries columns"],
    ) -> Float[Tensor, "batch queries classes"]:
        """Logits of ``queries`` given labelled ``rows``."""
        return self.predict(self.encode(rows, labels), queries)


class NanoPfn(Pfn):
    """Our own: a label is embedded by a table with one entry more than classes, that of queries."""

    form = "nano"
    spread = 0.5  # so that a row's norm does not tell how many columns there were
    config: PfnConfig

    def __init__(self, config: PfnConfig) -> None:
        super().__init__(config)
        self.row = nn.Linear(config.columns, config.width)
        self.label = nn.Embedding(config.classes + 1, config.width)
        self.layers = cast(Sequence[Layer], nn.ModuleList(Layer(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head_hidden = nn.Linear(config.width, config.hidden)
        self.head = nn.Linear(config.hidden, config.classes)

    def encode(
        self,
        rows: Float[Tensor, "batch context columns"],
        labels: Int64[Tensor, "batch context"],
        counts: Int64[Tensor, "batch context"] | None = None,
    ) -> Context:
        shown = rows.shape[1] if counts is None else int(counts[0].sum())
        bias = None if counts is None else counts.to(rows.dtype).log()[:, None, None]
        x = self.row(rows) + self.label(labels)
        keys, values = [], []
        for i, layer in enumerate(self.layers):
            normed = layer.norm_attention(x)
            k, v = layer.keys_values(normed)
            keys.append(k.contiguous())
            values.append(v.contiguous())
            if i + 1 < len(self.layers):  # nobody reads what the context's rows become in the last layer
                x = layer(x, normed, k, v, shown, bias)
        return Context(tuple(keys), tuple(values), shown, bias)

    def predict(
        self, context: Context, rows: Float[Tensor, "batch queries columns"]
    ) -> Float[Tensor, "batch queries classes"]:
        x = self.row(rows) + self.label.weight[-1]
        for layer, keys, values in zip(self.layers, context.keys, context.values, strict=True):
            x = layer(x, layer.norm_attention(x), keys, values, context.rows, context.bias)
        return self.head(gelu(self.head_hidden(self.norm(x)))).float()

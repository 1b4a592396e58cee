"""TabPFN v1 (Hollmann, Müller, Eggensperger and Hutter 2023): its network, filled from a checkpoint as it is published.

A checkpoint is what ``torch.save`` makes of (state dict, state of the optimiser, settings). Nothing in it is run: it is
read with ``weights_only``, which takes tensors and plain values alone.

Knows tensors and one file. Does not know tables or training.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import gelu, linear
from torch.serialization import safe_globals

from icml25cli.core.errors import InputError
from icml25cli.papers.tabpfn_bag.network import Context, Pfn, PfnConfig, attend

TEMPERATURE = 0.8  # by which its classifier divides logits
SIZES = ("num_features", "max_num_classes", "emsize", "nhead", "nlayers", "nhid_factor")
# Settings of other networks that the same program trained: a query that attends to itself, another scale of columns.
OTHERWISE = {"efficient_eval_masking": False, "normalize_with_sqrt": True}


class Layer(nn.Module):
    """Post-norm attention to the context and an MLP. Names of tensors are those of the checkpoint."""

    def __init__(self, config: PfnConfig) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(config.width, config.heads)  # its tensors: ``forward`` is not used
        self.norm1 = nn.LayerNorm(config.width)
        self.linear1 = nn.Linear(config.width, config.hidden)
        self.linear2 = nn.Linear(config.hidden, config.width)
        self.norm2 = nn.LayerNorm(config.width)

    def _projected(self, x: Tensor, part: int) -> Float[Tensor, "batch heads rows head_width"]:
        """Queries (part 0), keys (1) or values (2) of rows."""
        weights, biases = cast(Tensor, self.self_attn.in_proj_weight), self.self_attn.in_proj_bias
        projected = linear(x, weights.chunk(3)[part], biases.chunk(3)[part])
        return projected.unflatten(-1, (self.self_attn.num_heads, -1)).transpose(1, 2)

    def keys_values(self, x: Float[Tensor, "batch rows width"]) -> tuple[Tensor, Tensor]:
        return self._projected(x, 1), self._projected(x, 2)

    def forward(
        self, x: Float[Tensor, "batch rows width"], keys: Tensor, values: Tensor, bias: Tensor | None
    ) -> Float[Tensor, "batch rows width"]:
        seen = attend(self._projected(x, 0), keys, values, bias).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.self_attn.out_proj(seen))
        return self.norm2(x + self.linear2(gelu(self.linear1(x))))


class TabPfnV1(Pfn):
    """A label goes in as a number, by a linear map; a query has none. Logits are at the classifier's temperature."""

    form = "tabpfn-v1"
    spread = 1.0

    def __init__(self, config: PfnConfig) -> None:
        super().__init__(config)
        self.encoder = nn.Linear(config.columns, config.width)
        self.y_encoder = nn.Linear(1, config.width)
        self.transformer_encoder = nn.ModuleDict({"layers": nn.ModuleList(Layer(config) for _ in range(config.layers))})
        self.decoder = nn.Sequential(
            nn.Linear(config.width, config.hidden), nn.GELU(), nn.Linear(config.hidden, config.classes)
        )

    @property
    def layers(self) -> Sequence[Layer]:
        return cast(Sequence[Layer], self.transformer_encoder["layers"])

    def encode(
        self,
        rows: Float[Tensor, "batch context columns"],
        labels: Int64[Tensor, "batch context"],
        counts: Int64[Tensor, "batch context"] | None = None,
    ) -> Context:
        shown = rows.shape[1] if counts is None else int(counts[0].sum())
        bias = None if counts is None else counts.to(rows.dtype).log()[:, None, None]
        x = self.encoder(rows) + self.y_encoder(labels[..., None].to(rows.dtype))
        keys, values = [], []
        for i, layer in enumerate(self.layers):
            k, v = layer.keys_values(x)
            keys.append(k)
            values.append(v)
            if i + 1 < len(self.layers):
                x = layer(x, k, v, bias)
        return Context(tuple(keys), tuple(values), shown, bias)

    def predict(
        self, context: Context, rows: Float[Tensor, "batch queries columns"]
    ) -> Float[Tensor, "batch queries classes"]:
        x = self.encoder(rows)
        for layer, keys, values in zip(self.layers, context.keys, context.values, strict=True):
            x = layer(x, keys, values, context.bias)
        return self.decoder(x).float() / TEMPERATURE


def load_tabpfn_v1(path: Path) -> TabPfnV1:
    """The network of a checkpoint, in float32 and evaluation mode, its weights frozen.

    Raises:
        InputError: the file is absent or torn, holds more than tensors and plain values, or another network.
    """
    loaded = _read(path)
    if not (isinstance(loaded, tuple | list) and len(loaded) == 3 and all(isinstance(loaded[i], dict) for i in (0, 2))):
        raise InputError(
            f"{path} is no checkpoint of TabPFN v1", hint="one is a tuple of state dict, optimiser and settings"
        )
    state, settings = loaded[0], loaded[2]
    for name, other in OTHERWISE.items():
        if settings.get(name) == other:
            raise InputError(
                f"{path} was trained with {name} = {other}, which TabPFN v1 was not", hint="name another one"
            )
    # Of training alone are ``module.``, on several devices, and the weights that the loss gave to classes.
    weights = {str(name).removeprefix("module."): value for name, value in state.items()}
    weights.pop("criterion.weight", None)
    with torch.device("meta"):
        net = TabPfnV1(_sizes(path, settings, weights))
    wanted = net.state_dict()
    for name in wanted | weights:
        found = weights.get(name)
        if name not in wanted or not isinstance(found, Tensor):
            what = "is missing" if name in wanted else "is none of TabPFN v1's"
            raise InputError(f"{path}: the tensor '{name}' {what}", hint="is it a checkpoint of version 1?")
        if found.shape != wanted[name].shape:
            raise InputError(
                f"{path}: the tensor '{name}' has shape {tuple(found.shape)}, and by the settings beside it "
                f"{tuple(wanted[name].shape)}",
                hint="the file is damaged",
            )
    net.load_state_dict({name: value.float() for name, value in weights.items()}, assign=True)
    return net.eval().requires_grad_(False)


def _read(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"{path} is no file", hint="--pfn tabpfn-v1:FILE names a checkpoint of TabPFN v1")
    # Settings may be numbers of numpy, which are made of a type and bytes: one function and types, which do no harm.
    scalar = np.float64(0).__reduce__()[0]
    numbers: list[Any] = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    numbers += [np.dtype, *(type(np.dtype(code)) for code in "?ilqfd")]
    try:
        with safe_globals(numbers):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torn zip files and refused pickles raise whatever torch's reader does
        if named := re.search(r"GLOBAL (\S+)", str(error)):
            raise InputError(
                f"{path} holds {named[1]}, and only tensors and plain values are read",
                hint="where you trust the file, load it with torch and save (state dict, None, settings) without it",
            ) from error
        raise InputError(f"{path} is no whole checkpoint", hint="get it again") from error


def _sizes(path: Path, settings: Mapping[str, Any], weights: Mapping[str, Any]) -> PfnConfig:
    """The sizes that the settings give.

    Raises:
        InputError: one is missing, or impossible.
    """
    for name in SIZES:
        size = settings.get(name)
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 0 < size < 2**16:
            raise InputError(f"{path}: its settings give no size {name}", hint="is it a checkpoint of version 1?")
    columns, classes, width, heads, layers, factor = (int(settings[name]) for name in SIZES)
    found = {name.split(".")[2] for name in weights if name.startswith("transformer_encoder.layers.")}
    if layers != len(found) or width % heads:
        raise InputError(
            f"{path}: {len(found)} layers are there, and by the settings {layers} of width {width} with {heads} heads",
            hint="the file is damaged",
        )
    return PfnConfig(columns, classes, width, heads, layers, factor * width)

"""Cutting a block's tensors down to what a plan keeps, and running a live block on them.

Attention of these families shapes its heads by what its matrices give, so that only the number of queries that share a
key-value head has to be told to it (GPT-2: the number of heads). Knows tensors and modules of one block. Does not know
how what is kept was chosen, or how outputs are repaired.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from icml25cli.papers.prune.anatomy import Anatomy
from icml25cli.papers.prune.plan import Layer


def cut_block(anatomy: Anatomy, tensors: Mapping[str, Tensor], layer: Layer) -> dict[str, Tensor]:
    """The tensors of a block without what ``layer`` drops; other tensors, and those that lose nothing, as they are.

    Query, key and value keep the rows (and biases) of kept heads, gate and up those of kept channels; output and down
    keep columns.

    Args:
        tensors: of the dense block by name within it, as ``self_attn.q_proj.weight``, any dtype.
        layer: not a removed one.
    """
    names, width = anatomy.names, anatomy.head_dim
    heads, kv, channels = spread(layer.heads, width), spread(layer.kv, width), torch.tensor(layer.channels)
    rows: dict[str, Tensor] = {}
    columns: dict[str, Tensor] = {}
    if not layer.keeps_heads(anatomy):
        if len(names.qkv) == 1:
            inner = anatomy.heads * width
            rows[names.qkv[0]] = torch.cat([heads, kv + inner, kv + 2 * inner])
        else:
            rows |= dict(zip(names.qkv, (heads, kv, kv), strict=True))
        columns[names.output] = heads
    if not layer.keeps_channels(anatomy):
        rows |= {name: channels for name in (names.gate, names.up) if name}
        columns[names.down] = channels
    cut = dict(tensors)
    for name, kept in rows.items():
        for part in ("weight", "bias"):
            if (tensor := tensors.get(f"{name}.{part}")) is not None:
                out_axis = int(anatomy.transposed and part == "weight")
                cut[f"{name}.{part}"] = tensor.index_select(out_axis, kept.to(tensor.device))
    for name, kept in columns.items():
        weight = tensors[f"{name}.weight"]
        cut[f"{name}.weight"] = weight.index_select(int(not anatomy.transposed), kept.to(weight.device))
    return cut


def spread(units: Sequence[int], width: int) -> Int64[Tensor, " n"]:
    """The rows of units that are ``width`` rows each: heads as rows of a matrix."""
    return (torch.tensor(units, dtype=torch.int64)[:, None] * width + torch.arange(width)).flatten()


def put(block: nn.Module, anatomy: Anatomy, tensors: Mapping[str, Tensor]) -> None:
    """Give ``block`` the matrices and biases in ``tensors``, by name within it, whatever their widths.

    A bias that the family has not is added. Other tensors of the block are left alone.
    """
    names = anatomy.names
    for name in (*names.inward, names.output, names.down):
        module: Any = block.get_submodule(name)
        for part in ("weight", "bias"):
            if (tensor := tensors.get(f"{name}.{part}")) is not None:
                module._parameters[part] = nn.Parameter(tensor, requires_grad=False)
        if anatomy.transposed:
            module.nx, module.nf = module.weight.shape
        else:
            module.out_features, module.in_features = module.weight.shape
    attention: Any = block.get_submodule(names.attention)
    if anatomy.transposed:
        attention.split_size = attention.c_attn.nf // 3
        attention.num_heads = attention.split_size // anatomy.head_dim
    else:
        attention.num_key_value_groups = attention.q_proj.out_features // attention.k_proj.out_features


@contextlib.contextmanager
def installed(block: nn.Module, anatomy: Anatomy, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """``put`` for the length of the section; the block is then as it was."""
    names = anatomy.names
    modules: list[nn.Module] = [block.get_submodule(name) for name in (*names.inward, names.output, names.down)]
    attention = block.get_submodule(names.attention)
    before = [(module, dict(module.__dict__), dict(module._parameters)) for module in (*modules, attention)]
    try:
        put(block, anatomy, tensors)
        yield
    finally:
        for module, attributes, parameters in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._parameters.clear()
            module._parameters.update(parameters)

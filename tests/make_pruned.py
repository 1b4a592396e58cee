"""Pruned directories made by hand from random models, and what they must compute, by the dense model itself.

Layer 0 stays as it is, layer 1 keeps one key-value head with its query heads, layer 2 keeps three query heads with a
copy of keys and values for each; layers 1 and 2 lose channels and get biases.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from icml25cli.core import modeling_pruned
from tests.make_models import make_model

FAMILIES = ("llama", "llama-tied", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gpt2")
HEADS, KV, WIDTH = ((0, 1, 2, 3), (2, 3), (0, 1, 3)), ((0, 1), (1,), (0, 0, 1)), 8
CLASSES = {"gpt2": "PrunedGPT2LMHeadModel", "gemma3_text": "PrunedGemma3ForCausalLM"}


def channels(layer: int, count: int) -> Tensor:
    return torch.arange(count) if layer == 0 else torch.arange(count)[layer::3]


def rows(heads: tuple[int, ...]) -> Tensor:
    return torch.cat([torch.arange(h * WIDTH, (h + 1) * WIDTH) for h in heads])


def make_pruned(directory: Path, family: str, **changes: Any) -> tuple[Path, Any]:
    """The directory of a pruned random model, and the dense transformers model that computes the same."""
    source = make_model(directory / f"{family}-dense", family, **changes)
    target = directory / f"{family}-pruned"
    shutil.copytree(source, target)
    dense: Any = AutoModelForCausalLM.from_pretrained(source, local_files_only=True)
    weights = load_file(target / "model.safetensors")
    config = json.loads((target / "config.json").read_text())
    generator = torch.Generator().manual_seed(1)
    widths = []
    for i in range(3):
        cut = _cut_fused if family == "gpt2" else _cut
        widths.append(cut(weights, dense, i, generator))
    save_file({name: x.contiguous() for name, x in weights.items()}, target / "model.safetensors", {"format": "pt"})
    kind = config["model_type"]
    name = CLASSES.get(kind, f"Pruned{config['architectures'][0]}")
    config |= {"model_type": f"pruned_{kind}", "architectures": [name], "pruned_layers": widths}
    classes = {"AutoConfig": getattr(modeling_pruned, name).config_class.__name__, "AutoModelForCausalLM": name}
    config["auto_map"] = {auto: f"modeling_pruned.{cls}" for auto, cls in classes.items()}
    (target / "config.json").write_text(json.dumps(config))
    shutil.copyfile(modeling_pruned.__file__, target / "modeling_pruned.py")
    return target, dense.eval()


def _cut(weights: dict[str, Tensor], dense: Any, i: int, generator: torch.Generator) -> dict[str, Any]:
    prefix, block = f"model.layers.{i}.", dense.model.layers[i]
    kept = channels(i, 48)
    for name, index, dim in (
        ("self_attn.q_proj", rows(HEADS[i]), 0),
        ("self_attn.k_proj", rows(KV[i]), 0),
        ("self_attn.v_proj", rows(KV[i]), 0),
        ("self_attn.o_proj", rows(HEADS[i]), 1),
        ("mlp.gate_proj", kept, 0),
        ("mlp.up_proj", kept, 0),
        ("mlp.down_proj", kept, 1),
    ):
        weights[f"{prefix}{name}.weight"] = weights[f"{prefix}{name}.weight"].index_select(dim, index)
        if dim == 0 and f"{prefix}{name}.bias" in weights:
            weights[f"{prefix}{name}.bias"] = weights[f"{prefix}{name}.bias"][index]
    biases = ["o_proj", "down_proj"] if i else []
    for name, module, index in (
        ("self_attn.o_proj", block.self_attn.o_proj, rows(HEADS[i])),
        ("mlp.down_proj", block.mlp.down_proj, kept),
    ):
        _drop(module.weight, 1, index)
        if i:
            bias = torch.randn(module.out_features, generator=generator) * 0.3
            weights[f"{prefix}{name}.bias"] = bias
            module.bias = torch.nn.Parameter(bias)
    return {"heads": len(HEADS[i]), "kv_heads": len(KV[i]), "channels": len(kept), "biases": biases}


def _cut_fused(weights: dict[str, Tensor], dense: Any, i: int, generator: torch.Generator) -> dict[str, Any]:
    """GPT-2: matrices are stored (in, out), query, key and value in one, and there are biases already."""
    prefix = next(name for name in weights if name.endswith(f"h.{i}.attn.c_attn.weight")).removesuffix(
        "attn.c_attn.weight"
    )
    block, kept, heads = dense.transformer.h[i], channels(i, 128), rows(HEADS[i])
    fused = torch.cat([heads, heads + 32, heads + 64])
    for name, index, dim in (
        ("attn.c_attn", fused, 1),
        ("attn.c_proj", heads, 0),
        ("mlp.c_fc", kept, 1),
        ("mlp.c_proj", kept, 0),
    ):
        weights[f"{prefix}{name}.weight"] = weights[f"{prefix}{name}.weight"].index_select(dim, index)
        if dim == 1:
            weights[f"{prefix}{name}.bias"] = weights[f"{prefix}{name}.bias"][index]
    for name, module, index in (("attn.c_proj", block.attn.c_proj, heads), ("mlp.c_proj", block.mlp.c_proj, kept)):
        _drop(module.weight, 0, index)
        bias = torch.randn(32, generator=generator)
        weights[f"{prefix}{name}.bias"] = bias
        module.bias = torch.nn.Parameter(bias)
    return {"heads": len(HEADS[i]), "kv_heads": len(HEADS[i]), "channels": len(kept), "biases": []}


def _drop(weight: torch.nn.Parameter, dim: int, kept: Tensor) -> None:
    """Zeros for all inputs of a matrix but the kept ones."""
    mask = torch.zeros(weight.shape[dim]).index_fill(0, kept, 1.0)
    with torch.no_grad():
        weight.mul_(mask.unsqueeze(1 - dim))

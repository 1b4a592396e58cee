"""A pruned model as a directory that other programs load.

``custom``: every layer as wide as it is now, by a modelling file in the directory. ``uniform``: all layers alike, by
the stock classes of transformers. ``padded``: zeros where something was cut, by the stock classes, in the original
shape; no smaller, and the same function. Knows plans, tensors of blocks and config.json. Does not know how either was
found.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig

from icml25cli.core import modeling_pruned
from icml25cli.core.errors import UsageError
from icml25cli.core.files import output_errors
from icml25cli.core.models import PRUNED, ModelSource, load_model, load_tokenizer, resolve
from icml25cli.core.streaming import StreamedModel, write_checkpoint
from icml25cli.papers.prune.anatomy import Anatomy
from icml25cli.papers.prune.plan import Layer, Plan
from icml25cli.papers.prune.surgery import spread

KINDS = ("custom", "uniform", "padded")
FILE = Path(modeling_pruned.__file__)
LayerTensors = Callable[[int], Mapping[str, Tensor]]


def check_kind(kind: str, source: ModelSource, anatomy: Anatomy, *, biases: bool) -> None:
    """Refuse a form whose classes have no place for what repair makes, before anything is chosen.

    Args:
        biases: repair gives a bias to outward matrices that have none.

    Raises:
        UsageError: the stock classes of the family have no such biases.
    """
    outward = (anatomy.names.output, anatomy.names.down) if biases and kind != "custom" else ()
    for name in outward:
        if name not in anatomy.biased and not hasattr(_stock(source), _flag(anatomy, name)):
            raise UsageError(
                f"--export {kind}: {anatomy.family} models have no bias for {name}, and repair gives it one",
                hint="use --export custom, or --repair none",
            )


def check_export(kind: str, source: ModelSource, anatomy: Anatomy, plan: Plan) -> None:
    """Refuse a plan that ``write_export`` cannot write in that form.

    Raises:
        UsageError: layers differ where all must be alike, the stock class takes no such number of heads, or a layer
            cannot be removed.
    """
    kept = [layer for layer in plan.layers if not layer.removed]
    if source.config.get("scale_attn_by_inverse_layer_idx") and len(kept) < len(plan.layers):
        raise UsageError(
            f"{source.name} scales attention by the number of the layer, so no layer can be removed",
            hint="cut heads and channels",
        )
    if kind != "uniform":
        return
    if len({(len(layer.heads), len(layer.kv), len(layer.channels)) for layer in kept}) > 1:
        raise UsageError(
            "--export uniform needs equal numbers of heads and channels in every layer, and the plan has others",
            hint="use --export custom, or a plan made with --export uniform",
        )
    if not anatomy.takes_heads(len(kept[0].heads)):
        taken = [str(n) for n in range(1, anatomy.heads + 1) if anatomy.takes_heads(n)]
        raise UsageError(
            f"--export uniform: {anatomy.family} models of this size take no {len(kept[0].heads)} heads",
            hint=f"keep {' or '.join(taken)}, or use --export custom",
        )


def write_export(
    directory: Path, model: StreamedModel, anatomy: Anatomy, plan: Plan, tensors: LayerTensors, kind: str = "custom"
) -> None:
    """Write the pruned model into ``directory``, which exists and is the caller's to commit or throw away.

    Floating-point numbers stay in the type they were stored in; tokenizer and generation settings are copied.

    Args:
        plan: ``check_kind`` and ``check_export`` passed it.
        tensors: of each layer that is not removed, by its index in the dense model: names within the block.
        kind: one of ``KINDS``.

    Raises:
        OutputError: the disk is full.
    """
    kept = [layer for layer in plan.layers if not layer.removed or kind == "padded"]
    biases = {layer.index: _new_biases(anatomy, tensors(layer.index)) for layer in kept if not layer.removed}
    config = dict(model.source.config)
    config.pop("auto_map", None)
    if len(kept) < len(plan.layers):
        config[_depth_field(config)] = len(kept)
        if types := getattr(_stock(model.source), "layer_types", None):
            config["layer_types"] = [types[layer.index] for layer in kept]
    if kind == "custom":
        config |= _custom_fields(anatomy, kept, biases)
    else:
        if kind == "uniform":
            config |= _uniform_fields(anatomy, kept[0])
        config |= {_flag(anatomy, name): True for added in biases.values() for name in added}
    with output_errors(directory, directory):
        write_checkpoint(
            directory,
            model.source,
            _blocks(model, anatomy, kept, tensors, kind, config),
            dtype=None,
            config=config,
            block_count=len(kept),
        )
        if kind == "custom":
            shutil.copyfile(FILE, directory / FILE.name)
            _name_tokenizer(model.source, directory)


def load(directory: Path | str) -> Any:
    """The model that ``prune`` wrote into ``directory``, in float32, without running the code beside it.

    Raises:
        InputError: as ``models.resolve`` and ``models.load_model``.
    """
    return load_model(resolve(directory))


# --- config.json -------------------------------------------------------------------------------------------------


def _stock(source: ModelSource) -> Any:
    return AutoConfig.from_pretrained(str(source.path), local_files_only=True)


def _depth_field(config: Mapping[str, Any]) -> str:
    return "n_layer" if "n_layer" in config else "num_hidden_layers"


def _custom_fields(anatomy: Anatomy, kept: list[Layer], biases: Mapping[int, list[str]]) -> dict[str, Any]:
    kind = PRUNED + anatomy.family
    classes: Any = modeling_pruned.Pruned.__subclasses__()
    (model,) = (cls for cls in classes if cls.config_class.model_type == kind)
    return {
        "model_type": kind,
        "architectures": [model.__name__],
        "auto_map": {
            "AutoConfig": f"{FILE.stem}.{model.config_class.__name__}",
            "AutoModelForCausalLM": f"{FILE.stem}.{model.__name__}",
        },
        "pruned_layers": [
            {
                "heads": len(layer.heads),
                "kv_heads": len(layer.kv),
                "channels": len(layer.channels),
                "biases": [name.rpartition(".")[2] for name in biases[layer.index]],
            }
            for layer in kept
        ],
    }


def _uniform_fields(anatomy: Anatomy, layer: Layer) -> dict[str, Any]:
    if anatomy.family == "gpt2":
        return {"n_inner": len(layer.channels)}
    return {
        "num_attention_heads": len(layer.heads),
        "num_key_value_heads": len(layer.kv),
        "head_dim": anatomy.head_dim,
        "intermediate_size": len(layer.channels),
    }


# --- tensors -----------------------------------------------------------------------------------------------------


def _new_biases(anatomy: Anatomy, tensors: Mapping[str, Tensor]) -> list[str]:
    """Outward matrices that have a bias although those of the family have none."""
    outward = (anatomy.names.output, anatomy.names.down)
    return [name for name in outward if name not in anatomy.biased and f"{name}.bias" in tensors]


def _flag(anatomy: Anatomy, name: str) -> str:
    """The field of config.json by which the family has a bias for an outward matrix."""
    return "attention_bias" if name == anatomy.names.output else "mlp_bias"


def _blocks(
    model: StreamedModel,
    anatomy: Anatomy,
    kept: list[Layer],
    tensors: LayerTensors,
    kind: str,
    config: Mapping[str, Any],
) -> Iterator[dict[str, Tensor]]:
    """The tensors of every layer that is written, by checkpoint name, numbered anew."""
    for number, layer in enumerate(kept):
        prefix = model.block_prefix(layer.index)
        written = dict(_emptied(model, anatomy, layer) if layer.removed else tensors(layer.index))
        if kind == "padded" and not layer.removed:
            written |= _padded(anatomy, layer, written)
        if kind != "custom":
            written |= _zero_biases(anatomy, written, config)
        place = prefix.removesuffix(f"{layer.index}.") + f"{number}."
        yield {place + name: tensor for name, tensor in written.items()}


def _emptied(model: StreamedModel, anatomy: Anatomy, layer: Layer) -> dict[str, Tensor]:
    """A removed layer in the original shape: zeros on both ways out, so that the hidden state passes unchanged."""
    prefix = model.block_prefix(layer.index)
    tensors = {name.removeprefix(prefix): tensor for name, tensor in model.block_tensors(layer.index).items()}
    out = tuple(f"{name}." for name in (anatomy.names.output, anatomy.names.down))
    return {name: torch.zeros_like(x) if name.startswith(out) else x for name, x in tensors.items()}


def _padded(anatomy: Anatomy, layer: Layer, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The cut matrices of a layer in their original shape, zero where something was cut."""
    names, width = anatomy.names, anatomy.head_dim
    heads, kv, channels = spread(layer.heads, width), spread(layer.kv, width), torch.tensor(layer.channels)
    places = {names.output: (heads, anatomy.heads * width), names.down: (channels, anatomy.inner)}
    places |= {name: (channels, anatomy.inner) for name in (names.gate, names.up) if name}
    if len(names.qkv) == 1:
        each = anatomy.heads * width
        places[names.qkv[0]] = torch.cat([heads, kv + each, kv + 2 * each]), 3 * each
    else:
        sizes = (anatomy.heads, anatomy.kv_heads, anatomy.kv_heads)
        indices = zip(names.qkv, (heads, kv, kv), sizes, strict=True)
        places |= {name: (index, count * width) for name, index, count in indices}
    padded = {}
    for name, (index, size) in places.items():
        inward = name in names.inward
        for part in ("weight", "bias") if inward else ("weight",):
            tensor = tensors.get(f"{name}.{part}")
            if tensor is not None:
                axis = 0 if part == "bias" else int(inward == anatomy.transposed)
                shape = list(tensor.shape)
                shape[axis] = size
                # Copies of a key-value head (GQA expand) meet in the place of the one they are of, and are equal.
                padded[f"{name}.{part}"] = tensor.new_zeros(shape).index_copy(axis, index, tensor)
    return padded


def _zero_biases(anatomy: Anatomy, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Zeros for the biases that a flag of config.json brings for all matrices of one kind, used or not."""
    names = anatomy.names
    flagged = {"attention_bias": (*names.qkv, names.output), "mlp_bias": (names.gate, names.up, names.down)}
    out_axis = int(anatomy.transposed)
    return {
        f"{name}.bias": (weight := tensors[f"{name}.weight"]).new_zeros(weight.shape[out_axis])
        for flag, matrices in flagged.items()
        if config.get(flag)
        for name in matrices
        if name and f"{name}.bias" not in tensors
    }


def _name_tokenizer(source: ModelSource, directory: Path) -> None:
    """Say which class the tokenizer is of: transformers may have chosen it by a model type that the copy has not."""
    file = directory / "tokenizer_config.json"
    described = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    described["tokenizer_class"] = type(load_tokenizer(source)).__name__
    file.write_text(json.dumps(described, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

"""Low-rank adapters (LoRA) on a model: made, brought back from a checkpoint, and their trainable linear maps by name.

Everything differentiated in this paper is a matrix of an adapter. Knows models and peft. Does not know rows, losses or
what is done with a gradient.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.models import ModelSource, first_line, load_model, quiet_transformers

# Names that attention's projections have in models of one kind or another; `attention` takes those that a model has.
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "query_key_value", "c_attn", "out_proj", "dense")


@dataclass(frozen=True)
class Adapter:
    """What is trained; the paper's settings (its scripts: r 128, alpha 512, dropout 0.1 on attention)."""

    rank: int = 128
    alpha: float = 512.0
    dropout: float = 0.1
    targets: str = "attention"  # names with commas between, attention, or all-linear
    seed: int = 0


def adapted(source: ModelSource, adapter: Adapter, *, dtype: str = "float32", device: str = "cpu") -> Any:
    """The model with new adapters, which leave it as it is until they are trained.

    Raises:
        InputError: as ``load_model``; or the model has no map of the names.
    """
    import peft

    model: Any = load_model(source, dtype=dtype, device=device)
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=adapter.rank,
        lora_alpha=adapter.alpha,  # type: ignore[arg-type] -- a float as well
        lora_dropout=adapter.dropout,
        target_modules=_targets(model, adapter.targets, source),
        fan_in_fan_out=source.config["model_type"] == "gpt2",
    )
    with quiet_transformers(), torch.random.fork_rng(), warnings.catch_warnings(action="ignore"):
        torch.manual_seed(adapter.seed)
        try:
            return peft.get_peft_model(model, config)
        except ValueError as error:
            raise InputError(f"{source.name}: {first_line(error)}", hint="name others with --lora-targets") from error


def _targets(model: Any, named: str, source: ModelSource) -> str | list[str]:
    if named == "all-linear":
        return named
    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    if named == "attention":
        found = [name for name in ATTENTION if name in names]
        if found:
            return found
    else:
        found = [name.strip() for name in named.split(",") if name.strip()]
        if not found:
            raise UsageError(f"--lora-targets '{named}' names no module", hint="such as q_proj,v_proj, or all-linear")
        if missing := [name for name in found if name not in names]:
            raise InputError(f"{source.name} has no module {missing[0]}", hint="--lora-targets all-linear takes all")
        return found
    raise InputError(f"{source.name} has no attention of a known name", hint="--lora-targets all-linear takes all")


def trained(model: Any) -> dict[str, nn.Parameter]:
    """Trainable parameters by name, in the one order that gradients and moments are laid out in."""
    return {name: x for name, x in model.named_parameters() if x.requires_grad}


def linear_maps(model: Any) -> dict[str, nn.Linear]:
    """The linear maps whose weights are trained, by the name of the weight, in order.

    Raises:
        InputError: something else is trained too: its gradient would be left out.
    """
    maps = {f"{name}.weight": module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    for name in trained(model):
        if name not in maps or maps[name].bias is not None:
            raise InputError(f"the adapter trains {name}, which is no plain LoRA matrix", hint="train plain LoRA")
    return {name: maps[name] for name in trained(model)}


# --- checkpoints -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """A trained adapter with Adam's moments, on disk."""

    folder: Path  # peft's own layout, and moments.safetensors
    weight: float  # of the checkpoint among all: its share of the learning rate

    def moments(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """First and second moment of every trained parameter, by name, flat."""
        held = _read(self.folder / "moments.safetensors")
        first = {key.removesuffix("|exp_avg"): x.flatten() for key, x in held.items() if key.endswith("|exp_avg")}
        second = {key.removesuffix("|exp_avg_sq"): x.flatten() for key, x in held.items() if key.endswith("_sq")}
        return first, second


def save_adapter(model: Any, folder: Path) -> None:
    """In peft's layout, without the model card that names paths of this machine."""
    with quiet_transformers(), warnings.catch_warnings(action="ignore"):
        model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)


def save_moments(folder: Path, first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> None:
    parts = {f"{name}|exp_avg": x for name, x in first.items()} | {
        f"{name}|exp_avg_sq": x for name, x in second.items()
    }
    save_file({key: x.detach().cpu().contiguous() for key, x in parts.items()}, folder / "moments.safetensors")


def load_adapter(source: ModelSource, folder: Path, *, dtype: str = "float32", device: str = "cpu") -> Any:
    """The model with the adapter of a checkpoint, trainable, in evaluation mode: without dropout.

    Raises:
        InputError: the folder holds no adapter of this model.
    """
    import peft

    if not (folder / "adapter_config.json").is_file():
        raise InputError(f"{folder} holds no adapter", hint="a folder that peft's save_pretrained wrote")
    model: Any = load_model(source, dtype=dtype, device=device)
    with quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("error", category=UserWarning)  # peft only warns of weights that are missing
        warnings.simplefilter("ignore", category=FutureWarning)
        try:
            ready = peft.PeftModel.from_pretrained(model, str(folder), is_trainable=True)
        except Exception as error:  # each mismatch raises its own
            raise InputError(
                f"{folder} is no adapter of {source.name}: {first_line(error)}",
                hint="it is damaged or of another model; --fresh makes a warm-up's anew",
            ) from error
    return ready.eval()


def foreign_moments(model: Any, path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Moments out of an ``optimizer.pt`` that transformers' Trainer wrote, by the names of ``model``'s parameters.

    Raises:
        InputError: the file cannot be read, or is of another adapter: the first parameter that differs is named.
    """
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
        states, order = held["state"], [i for group in held["param_groups"] for i in group["params"]]
    except Exception as error:  # torch raises pickle's, zip's and its own
        raise InputError(
            f"{path} is no optimizer state: {first_line(error)}", hint="give Trainer's optimizer.pt"
        ) from error
    parameters = trained(model)
    first, second = {}, {}
    if len(order) != len(parameters):
        raise InputError(f"{path} is of {len(order)} parameters, the adapter has {len(parameters)}", hint=_OTHER)
    for (name, x), i in zip(parameters.items(), order, strict=True):
        parts = states.get(i) or {}
        shapes = [tuple(parts[key].shape) if key in parts else None for key in ("exp_avg", "exp_avg_sq")]
        if shapes != [tuple(x.shape)] * 2:
            raise InputError(
                f"{path}: the moments of {name} have shape {shapes[0]}, it has {tuple(x.shape)}", hint=_OTHER
            )
        first[name], second[name] = parts["exp_avg"], parts["exp_avg_sq"]
    return first, second


_OTHER = "the optimizer state belongs to another adapter"


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}", hint="--fresh starts anew") from error

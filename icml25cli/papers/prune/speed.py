"""Measured speed of models that take each other's place: prefill and decoding, in one run, turn by turn.

Turns alternate, so that what else the machine does falls on all models alike. Knows loaded models. Does not know how
they were made, nor what is done with the figures.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import torch
from transformers import PreTrainedModel

from icml25cli.core.errors import InputError
from icml25cli.core.progress import track


@dataclass(frozen=True)
class Rate:
    """Tokens a second of every turn."""

    turns: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.turns)

    @property
    def low(self) -> float:
        return min(self.turns)

    @property
    def high(self) -> float:
        return max(self.turns)


@dataclass(frozen=True)
class Speed:
    """How fast one model reads a prompt and continues it, one text at a time."""

    prefill: Rate
    decode: Rate


def measure_speed(
    models: Mapping[str, PreTrainedModel], *, prompt: int = 512, continuation: int = 32, turns: int = 5
) -> dict[str, Speed]:
    """Speed of every model, on the same tokens, after one turn that does not count.

    Args:
        models: in evaluation mode, by name.
        prompt: tokens read at once.
        continuation: tokens made one by one from the cache of the prompt.
        turns: how often each model is measured.

    Raises:
        InputError: prompt and continuation are longer than a model's window.
    """
    for name, model in models.items():
        longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        if longest and prompt + continuation > longest:
            raise InputError(
                f"{prompt} tokens and {continuation} more do not fit {name}'s window of {longest}",
                hint="measure with fewer",
            )
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    for turn in track(turns + 1, "measuring speed"):
        order = list(models)[:: 1 if turn % 2 else -1]  # whoever is first in a turn is so every second
        for name in order:
            rate = _turn(models[name], prompt, continuation)
            if turn:  # the first turn pays for what is made once: threads, caches, compiled code
                rates[name].append(rate)
    return {name: Speed(*(Rate(kind) for kind in zip(*seen, strict=True))) for name, seen in rates.items()}


def speedup(pruned: Rate, dense: Rate) -> float:
    """Median over turns of how many times as fast the first is as the second in the same turn."""
    return median(a / b for a, b in zip(pruned.turns, dense.turns, strict=True))


@torch.inference_mode()
def footprint(model: PreTrainedModel) -> dict[str, float]:
    """Memory of the weights, in MiB, and of keys and values, in bytes a token, in the dtype the model is in."""
    cache = model(input_ids=torch.zeros(1, 2, dtype=torch.long, device=model.device), use_cache=True).cache
    held = sum(x.nbytes for layer in cache.layers for x in (layer.keys, layer.values))
    return {"weights_mib": sum(x.nbytes for x in model.parameters()) / 2**20, "kv_bytes_per_token": held / 2}


@torch.inference_mode()
def _turn(model: PreTrainedModel, prompt: int, continuation: int) -> tuple[float, float]:
    tokens = torch.arange(prompt, device=model.device)[None] % model.config.get_text_config().vocab_size
    started = _now(model.device)
    out = model(input_ids=tokens, use_cache=True, logits_to_keep=1)
    read = _now(model.device)
    for _ in range(continuation):
        out = model(input_ids=out.logits[:, -1].argmax(-1, keepdim=True), cache=out.cache, use_cache=True)
    return prompt / (read - started), continuation / (_now(model.device) - read)


def _now(device: torch.device) -> float:
    """The clock, once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()

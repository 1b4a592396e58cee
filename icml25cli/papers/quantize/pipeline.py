"""A whole model quantised by several methods at once, one decoder block in memory.

For every block: one pass of the float model over the calibration windows gives the Hessians all methods share; then
each candidate quantises the block's linears and carries its own hidden states of the evaluation windows on. What a
block hands to the next is in its unit of the run, so a run cut short continues bit for bit.

Hessians come from the float model, not from the quantised prefix: all candidates then see the same calibration, and
no candidate's error steers another's. Knows models and runs. Does not know the command line, or how results are saved.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from icml25cli.core.errors import InputError
from icml25cli.core.progress import Progress
from icml25cli.core.runs import Run
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.quantize.hessian import DAMPING, HessianAccumulator
from icml25cli.papers.quantize.matrix import Method, QuantizedMatrix, quantize_matrix
from icml25cli.papers.quantize.rotation import Rotation

FLOAT = "float"
# Tokens in one forward of a block: enough to keep the processor busy, few enough that the widest activation is small.
TOKENS_PER_FORWARD = 1024


@dataclass(frozen=True)
class Candidate:
    """One row of the comparison: a method under a rotation."""

    method: Method
    rotation: str

    @property
    def key(self) -> str:
        return f"{self.method.name}.{self.rotation}"


@dataclass(frozen=True)
class Plan:
    """What is quantised, by whom, on which tokens.

    The first candidate is the main one, whose codes are kept. ``calibration`` and ``evaluation`` are windows of token
    ids; ``include`` and ``exclude`` are regular expressions on full tensor names.
    """

    candidates: tuple[Candidate, ...]
    calibration: Int64[Tensor, "windows length"]
    evaluation: Int64[Tensor, "windows length"]
    seed: int = 0
    damping: float = DAMPING
    include: str = ""
    exclude: str | None = None

    def covers(self, tensor: str) -> bool:
        """Whether the linear called ``tensor`` is quantised."""
        return bool(re.search(self.include, tensor)) and not (self.exclude and re.search(self.exclude, tensor))


def quantize_blocks(model: StreamedModel, plan: Plan, run: Run) -> None:
    """Quantise every decoder block that ``run`` does not hold yet, one unit a block.

    Raises:
        InputError: a weight or an activation is not finite (named).
    """
    first = next((i for i in range(model.block_count) if not run.has(unit_name(i))), model.block_count)
    with Progress("quantising", model.block_count) as progress:
        progress.advance(first)
        if first == model.block_count:
            return
        with whole(run):
            resumed = load_file(_state_file(run, first - 1)) if first else None
        states = resumed or _embed(model, plan)
        for index in range(first, model.block_count):
            started = time.monotonic()
            states, codes, records = _quantize_block(model, plan, index, states)
            seconds = time.monotonic() - started

            def write(unit: Path, states=states, codes=codes, records=records, seconds=seconds) -> None:
                unit.mkdir()
                save_file(codes, unit / "codes.safetensors")
                save_file({key: state.contiguous() for key, state in states.items()}, unit / "states.safetensors")
                (unit / "records.json").write_text(json.dumps({"seconds": seconds, "candidates": records}))

            run.write(unit_name(index), write)
            if index:
                _state_file(run, index - 1).unlink(missing_ok=True)
            progress.advance()


def unit_name(index: int) -> str:
    return f"block-{index:04d}"


def final_states(model: StreamedModel, run: Run) -> dict[str, Float[Tensor, "windows length d"]]:
    """Hidden states of the evaluation windows after the last block: the float model's and each candidate's."""
    with whole(run):
        return load_file(_state_file(run, model.block_count - 1))


def forget_states(model: StreamedModel, run: Run) -> None:
    """Give back the room of the last hidden states, once they are scored."""
    _state_file(run, model.block_count - 1).unlink(missing_ok=True)


def codes(run: Run, index: int) -> dict[str, Tensor]:
    """What the main candidate stores for block ``index``, by tensor name."""
    with whole(run):
        return load_file(run.path(unit_name(index)) / "codes.safetensors")


def records(run: Run, block_count: int) -> list[dict[str, Any]]:
    """Per block: ``seconds`` and, per candidate key, ``calibration_seconds``, ``seconds`` and ``tensors``."""
    with whole(run):
        return [json.loads((run.path(unit_name(i)) / "records.json").read_text()) for i in range(block_count)]


@contextlib.contextmanager
def whole(run: Run) -> Iterator[None]:
    """Units are written whole, so one that cannot be read was damaged later."""
    try:
        yield
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise InputError(f"the finished work in {run.directory} is damaged", hint="--fresh starts anew") from error


def _state_file(run: Run, index: int) -> Path:
    return run.path(unit_name(index)) / "states.safetensors"


def _embed(model: StreamedModel, plan: Plan) -> dict[str, Tensor]:
    evaluation = model.embed(plan.evaluation)
    keys = [FLOAT, *(candidate.key for candidate in plan.candidates)]
    return {"calibration": model.embed(plan.calibration)} | {key: evaluation.clone() for key in keys}


def _batches(windows: Tensor) -> Iterator[slice]:
    size = max(1, TOKENS_PER_FORWARD // windows.shape[1])
    return (slice(start, start + size) for start in range(0, len(windows), size))


def _forward(model: StreamedModel, block: torch.nn.Module, index: int, states: Tensor) -> None:
    """Carry ``states`` through ``block`` in place: the states before it are needed no more."""
    for batch in _batches(states):
        states[batch] = model.run_block(block, index, states[batch])


def _quantize_block(
    model: StreamedModel, plan: Plan, index: int, states: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    kept: dict[str, Tensor] = {}
    records: dict[str, Any] = {}
    prefix = model.block_prefix(index)
    started = time.monotonic()
    with model.block(index) as block:
        covered = [name for name in model.linears(block) if plan.covers(prefix + name)]
        sums, group_of = _hessians(model, block, index, states["calibration"], prefix, covered)
        _forward(model, block, index, states[FLOAT])
    calibration_seconds = time.monotonic() - started
    for number, candidate in enumerate(plan.candidates):
        seconds, tensors = 0.0, []
        # Each candidate starts from the checkpoint's weights, read again: cheaper than keeping a second copy of them.
        with model.block(index) as block:
            linears = model.linears(block)
            for name in covered:
                started = time.monotonic()
                weight, sum_ = linears[name].weight, sums[group_of[name]]
                done = quantize_matrix(
                    weight.contiguous(),
                    sum_.hessian(),
                    candidate.method,
                    Rotation(candidate.rotation, weight.shape[1], plan.seed),
                    damping=plan.damping,
                    name=f"{prefix}{name}.weight",
                )
                linears[name].set_weight(done.weight)
                seconds += time.monotonic() - started
                tensors.append(_record(prefix + name, tuple(weight.shape), sum_, done))
                if number == 0:
                    # A scalar baseline as the main method has no packed form: what it decodes to is kept instead.
                    parts = done.stored or {"weight": done.weight.bfloat16()}
                    kept |= {f"{prefix}{name}.{part}": tensor.cpu() for part, tensor in parts.items()}
            _forward(model, block, index, states[candidate.key])
        records[candidate.key] = {
            "seconds": seconds,
            "calibration_seconds": calibration_seconds if candidate.method.calibrated else 0.0,
            "tensors": tensors,
        }
    return states, kept, records


def _hessians(
    model: StreamedModel, block: torch.nn.Module, index: int, states: Tensor, prefix: str, covered: Sequence[str]
) -> tuple[dict[str, HessianAccumulator], dict[str, str]]:
    """A Hessian for each input of ``covered`` linears, from ``states``, and which linear reads which input."""
    sums: dict[str, HessianAccumulator] = {}

    def record(group: str, inputs: Tensor) -> None:
        if group not in sums:
            sums[group] = HessianAccumulator(inputs.shape[-1], name=prefix + group, device=inputs.device)
        sums[group].add(inputs)

    with model.record_inputs(block, record) as group_of:
        _forward(model, block, index, states)
    needed = {group_of[name] for name in covered}
    return {group: sum_ for group, sum_ in sums.items() if group in needed}, group_of


def _record(name: str, shape: tuple[int, ...], sum_: HessianAccumulator, done: QuantizedMatrix) -> dict[str, Any]:
    return {
        "tensor": name,
        "shape": list(shape),
        "bits": dict(done.bits),
        "relative_proxy_loss": done.relative_proxy_loss,
        "relative_mse": done.relative_mse,
        "overloads": done.overloads,
        "scale_histogram": list(done.beta_histogram) if done.beta_histogram is not None else None,
        "calibration_tokens": sum_.tokens,
        "undersampled": sum_.undersampled,
        "damping": done.damping,
        "fallback": done.fallback,
    }

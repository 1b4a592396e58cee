"""A whole model quantised by several methods at once, one decoder block in memory.

For every block: one pass of the float model over the calibration windows gives the Hessians all methods share; then
each candidate quantises the block's linears and carries its own hidden states of the evaluation windows on. What a
block hands to the next is in its unit of the run, so a run cut short continues bit for bit.

Hessians come from the float model, not from the quantised prefix: all candidates then see the same calibration, and
no candidate's error steers another's. Only the measured noise of activations follows a candidate's own prefix. Knows
models and runs. Does not know the command line, or how results are saved.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from safetensors.torch import load_file, save_file
from torch import Tensor

from icml25cli.core.blockwise import States, Write, forget_states, states_after, whole, work_through
from icml25cli.core.errors import InputError
from icml25cli.core.runs import Run
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.quantize.hessian import DAMPING, HessianAccumulator
from icml25cli.papers.quantize.matrix import Method, Noise, QuantizedMatrix, quantize_matrix
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.vectors import VectorQuantizer

FLOAT = "float"
# Tokens in one forward of a block: enough to keep the processor busy, few enough that the widest activation is small.
TOKENS_PER_FORWARD = 1024


@dataclass(frozen=True)
class Scope:
    """What is quantised beside the weights: keys and values, and the activations that weights are multiplied with."""

    name: str = "w"
    keys_values: tuple[VectorQuantizer, VectorQuantizer] | None = None
    activations: VectorQuantizer | None = None


WEIGHTS = Scope()


@dataclass(frozen=True)
class Tally:
    """Numbers that were quantised on their way through a model."""

    numbers: int = 0
    bits: float = 0.0
    overloads: int = 0  # blocks of eight that no scale could hold

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.numbers + other.numbers, self.bits + other.bits, self.overloads + other.overloads)

    @property
    def bits_each(self) -> float | None:
        return self.bits / self.numbers if self.numbers else None


NOTHING = Tally()


@dataclass(frozen=True)
class NoiseModel:
    """What QA-LDLQ takes the covariance J of activation noise to be (section 4.5 of the paper).

    ``white``: J = D·mean(diag H)·I. ``normalized``: the same with each token divided by its norm before H is summed, as
    noise scales with a token's own norm and few tokens hold most of H. ``diagonal`` and ``full``: measured on the
    activations that really come out of the quantised blocks before, what quantising them changes.
    """

    kind: str
    distortion: float  # D of the activations' code: 1/D is the signal-to-noise ratio

    @property
    def measured(self) -> bool:
        return self.kind in ("diagonal", "full")


@dataclass(frozen=True)
class Candidate:
    """One row of the comparison: a method under a rotation, at a scope, knowing of activation noise or not."""

    method: Method
    rotation: str
    scope: Scope = WEIGHTS
    noise: NoiseModel | None = None

    @property
    def key(self) -> str:
        return f"{self.method.name}.{self.rotation}.{self.scope.name}"

    def spec(self) -> dict[str, Any]:
        """What determines it, as JSON types."""
        vectors = (*(self.scope.keys_values or ()), *((self.scope.activations,) if self.scope.activations else ()))
        return {
            "method": self.method.spec(),
            "rotation": self.rotation,
            "scope": [self.scope.name, *(quantizer.spec() for quantizer in vectors)],
            "noise": self.noise and asdict(self.noise),
        }

    @property
    def weights_key(self) -> str:
        """Candidates of equal keys share their quantised weights."""
        return self.key if self.noise else f"{self.method.name}.{self.rotation}"


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

    def step(index: int, states: States) -> tuple[States, Write]:
        started = time.monotonic()
        states, codes, records = _quantize_block(model, plan, index, states)
        seconds = time.monotonic() - started

        def write(unit: Path) -> None:
            save_file(codes, unit / "codes.safetensors")
            (unit / "records.json").write_text(json.dumps({"seconds": seconds, "candidates": records}))

        return states, write

    units = [unit_name(index) for index in range(model.block_count)]
    work_through(run, units, lambda: _embed(model, plan), step, "quantising")


def unit_name(index: int) -> str:
    return f"block-{index:04d}"


def final_states(model: StreamedModel, run: Run) -> dict[str, Float[Tensor, "windows length d"]]:
    """Hidden states of the evaluation windows after the last block: the float model's and each candidate's."""
    return states_after(run, unit_name(model.block_count - 1))


def forget_final_states(model: StreamedModel, run: Run) -> None:
    """Give back their room, once they are scored."""
    forget_states(run, unit_name(model.block_count - 1))


def codes(run: Run, index: int) -> dict[str, Tensor]:
    """What the main candidate stores for block ``index``, by tensor name."""
    with whole(run):
        return load_file(run.path(unit_name(index)) / "codes.safetensors")


def records(run: Run, block_count: int) -> list[dict[str, Any]]:
    """Per block: ``seconds`` and, per candidate key, ``calibration_seconds``, ``seconds`` and ``tensors``."""
    with whole(run):
        return [json.loads((run.path(unit_name(i)) / "records.json").read_text()) for i in range(block_count)]


def _embed(model: StreamedModel, plan: Plan) -> dict[str, Tensor]:
    evaluation = model.embed(plan.evaluation)
    keys = [FLOAT, *(candidate.key for candidate in plan.candidates)]
    calibration = model.embed(plan.calibration)
    own = {_calibration(c): calibration.clone() for c in plan.candidates if c.noise and c.noise.measured}
    return {"calibration": calibration} | own | {key: evaluation.clone() for key in keys}


def _calibration(candidate: Candidate) -> str:
    return f"calibration.{candidate.key}"


def _batches(windows: Tensor) -> Iterator[slice]:
    size = max(1, TOKENS_PER_FORWARD // windows.shape[1])
    return (slice(start, start + size) for start in range(0, len(windows), size))


class _Roundtrip:
    """Stands for a block's cache in one pass over whole windows: keys and values are quantised and decoded."""

    def __init__(self, keys: VectorQuantizer, values: VectorQuantizer) -> None:
        self._keys, self._values = keys, values
        self.tally = Tally()

    def update(self, keys: Tensor, values: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        keys, of_keys = _roundtrip(self._keys, keys)
        values, of_values = _roundtrip(self._values, values)
        self.tally += of_keys + of_values
        return keys, values


class _Quantized:
    """Activations on their way into a matrix."""

    def __init__(self, quantizer: VectorQuantizer) -> None:
        self._quantizer = quantizer
        self.tally = Tally()

    def __call__(self, x: Tensor) -> Tensor:
        x, tally = _roundtrip(self._quantizer, x)
        self.tally += tally
        return x


def _roundtrip(quantizer: VectorQuantizer, x: Tensor) -> tuple[Tensor, Tally]:
    values, overloads = quantizer.roundtrip(x)
    return values, Tally(x.numel(), quantizer.bits(x.shape[-1]) * x.numel(), overloads)


@contextlib.contextmanager
def scoped(
    model: StreamedModel, block: torch.nn.Module, scope: Scope, covered: Sequence[str]
) -> Iterator[tuple[_Roundtrip | None, _Quantized | None]]:
    """What a block's passes need at a scope: a cache to give it, and activations changed on their way."""
    cache = _Roundtrip(*scope.keys_values) if scope.keys_values else None
    if scope.activations is None:
        yield cache, None
        return
    change = _Quantized(scope.activations)
    with model.changed_inputs(block, covered, change):
        yield cache, change


def _forward(
    model: StreamedModel,
    block: torch.nn.Module,
    index: int,
    states: Tensor,
    scope: Scope = WEIGHTS,
    covered: Sequence[str] = (),
) -> tuple[Tally, Tally]:
    """Carry ``states`` through ``block`` in place: the states before it are needed no more.

    Returns what became of keys and values, and of activations.
    """
    with scoped(model, block, scope, covered) as (cache, change):
        for batch in _batches(states):
            try:
                states[batch] = model.run_block(block, index, states[batch], cache)
            except InputError as error:
                raise InputError(f"{model.block_prefix(index)}*: {error.message}", hint=error.hint) from error
    if cache and not cache.tally.numbers:
        raise InputError(
            f"{model.block_prefix(index)}* keeps no keys and values that could be quantised", hint="use --scope w"
        )
    return cache.tally if cache else NOTHING, change.tally if change else NOTHING


def _quantize_block(
    model: StreamedModel, plan: Plan, index: int, states: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    kept: dict[str, Tensor] = {}
    records: dict[str, Any] = {}
    prefix = model.block_prefix(index)
    started = time.monotonic()
    with model.block(index) as block:
        covered = [name for name in model.linears(block) if plan.covers(prefix + name)]
        inputs = _observe(model, block, index, plan, states, covered)
        _forward(model, block, index, states[FLOAT])
    calibration_seconds = time.monotonic() - started
    shared: dict[str, list[Candidate]] = {}
    for candidate in plan.candidates:
        shared.setdefault(candidate.weights_key, []).append(candidate)
    for number, candidates in enumerate(shared.values()):
        first = candidates[0]
        seconds, tensors = 0.0, []
        # Each starts from the checkpoint's weights, read again: cheaper than keeping a second copy of them.
        with model.block(index) as block:
            linears = model.linears(block)
            for name in covered:
                started = time.monotonic()
                weight, seen = linears[name].weight, inputs.of(name)
                done = quantize_matrix(
                    weight.contiguous(),
                    seen.plain.hessian(),
                    first.method,
                    Rotation(first.rotation, weight.shape[1], plan.seed),
                    noise=seen.noise(first),
                    damping=plan.damping,
                    name=f"{prefix}{name}.weight",
                )
                linears[name].set_weight(done.weight)
                seconds += time.monotonic() - started
                tensors.append(_record(prefix + name, tuple(weight.shape), seen.plain, done))
                if number == 0:
                    # A scalar baseline as the main method has no packed form: what it decodes to is kept instead.
                    parts = done.stored or {"weight": done.weight.bfloat16()}
                    kept |= {f"{prefix}{name}.{part}": tensor.cpu() for part, tensor in parts.items()}
            for candidate in candidates:
                kv, activations = _forward(model, block, index, states[candidate.key], candidate.scope, covered)
                if _calibration(candidate) in states:
                    _forward(model, block, index, states[_calibration(candidate)], candidate.scope, covered)
                records[candidate.key] = {
                    "seconds": seconds,
                    "calibration_seconds": calibration_seconds if candidate.method.calibrated else 0.0,
                    "kv": asdict(kv),
                    "activations": asdict(activations),
                    "tensors": tensors,
                }
    return states, kept, records


class _Input:
    """Second moments of one input of a block's matrices: the float model's, and of the noise that candidates add."""

    def __init__(self, name: str, width: int, device: torch.device, plan: Plan) -> None:
        def accumulator() -> HessianAccumulator:
            return HessianAccumulator(width, name=name, device=device)

        kinds = {c.noise.kind for c in plan.candidates if c.noise}
        self.plain = accumulator()
        self.normalized = accumulator() if "normalized" in kinds else None
        self.measured = {c.key: accumulator() for c in plan.candidates if c.noise and c.noise.measured}

    def add(self, x: Tensor) -> None:
        self.plain.add(x)
        if self.normalized:
            rms = x.float().square().mean(dim=1, keepdim=True).sqrt()
            self.normalized.add(torch.where(rms > 0, x / rms, 0.0))

    def noise(self, candidate: Candidate) -> Noise | None:
        model = candidate.noise
        if model is None:
            return None
        signal = (self.normalized or self.plain).hessian() if model.kind == "normalized" else self.plain.hessian()
        if model.measured:
            covariance = self.measured[candidate.key].hessian()
            return Noise(signal, covariance if model.kind == "full" else covariance.diagonal())
        return Noise(signal, (model.distortion * signal.diagonal().mean()).expand(len(signal)))


@dataclass(frozen=True)
class _Inputs:
    by_group: dict[str, _Input]
    group_of: dict[str, str]

    def of(self, matrix: str) -> _Input:
        return self.by_group[self.group_of[matrix]]


def _observe(
    model: StreamedModel,
    block: torch.nn.Module,
    index: int,
    plan: Plan,
    states: dict[str, Tensor],
    covered: Sequence[str],
) -> _Inputs:
    """Second moments of every input of ``covered`` matrices, while the calibration windows go through the block."""
    prefix = model.block_prefix(index)
    by_group: dict[str, _Input] = {}
    measuring = [c for c in plan.candidates if c.noise and c.noise.measured]

    def see(group: str, x: Tensor) -> None:
        if group not in by_group:
            by_group[group] = _Input(prefix + group, x.shape[-1], x.device, plan)
        by_group[group].add(x)

    def see_noise(candidate: Candidate, group: str, x: Tensor) -> None:
        assert candidate.scope.activations
        by_group[group].measured[candidate.key].add(candidate.scope.activations.roundtrip(x)[0] - x)

    groups: dict[str, str] = {}
    for batch in _batches(states["calibration"]):
        with model.record_inputs(block, see) as group_of:
            after = model.run_block(block, index, states["calibration"][batch])
        groups |= group_of
        for candidate in measuring:
            # Hooks run in the order they were made: what the first one sees is not yet quantised.
            with (
                model.record_inputs(block, partial(see_noise, candidate)),
                scoped(model, block, candidate.scope, covered) as (cache, _),
            ):
                model.run_block(block, index, states[_calibration(candidate)][batch], cache)
        states["calibration"][batch] = after
    needed = {groups[name] for name in covered}
    return _Inputs({group: seen for group, seen in by_group.items() if group in needed}, groups)


def _record(name: str, shape: tuple[int, ...], sum_: HessianAccumulator, done: QuantizedMatrix) -> dict[str, Any]:
    return {
        "tensor": name,
        "shape": list(shape),
        "bits": dict(done.bits),
        "relative_proxy_loss": done.relative_proxy_loss,
        "relative_noisy_loss": done.relative_noisy_loss,
        "relative_mse": done.relative_mse,
        "overloads": done.overloads,
        "scale_histogram": list(done.beta_histogram) if done.beta_histogram is not None else None,
        "calibration_tokens": sum_.tokens,
        "undersampled": sum_.undersampled,
        "damping": done.damping,
        "fallback": done.fallback,
    }

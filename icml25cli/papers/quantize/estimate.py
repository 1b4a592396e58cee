"""What a plan will take before it is carried out: seconds by stage, memory and disk.

Seconds come from a rehearsal on this machine: each kind of matrix of one block is quantised with few rows, a few tokens
go through the block and through the head, and the rest is multiplication. Memory and disk are counted. Knows models and
plans. Does not know how results are shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from icml25cli.core.likelihood import kl_divergence, token_nll
from icml25cli.core.progress import track
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.quantize.hessian import HessianAccumulator
from icml25cli.papers.quantize.matrix import Method, quantize_matrix
from icml25cli.papers.quantize.packing import block_bits
from icml25cli.papers.quantize.pipeline import Candidate, Plan, scoped
from icml25cli.papers.quantize.rotation import Rotation

FEW_ROWS, MORE_ROWS = 64, 256  # time is linear in rows: two counts give its slope and what is spent once
WIDEST = 4096  # beyond, factorising is rehearsed at this width, and scaled by the cube
TOKENS = 256


@dataclass(frozen=True)
class Stage:
    """A part of the work, over all blocks."""

    stage: str
    seconds: float


@dataclass(frozen=True)
class Estimate:
    """What carrying out a plan takes.

    Attributes:
        stages: in the order in which a block goes through them.
        memory_bytes: peak of anonymous memory beyond what the program takes when it has loaded its libraries.
        run_bytes: of disk for finished work while it runs.
        bf16_bytes, packed_bytes: of disk for what ``-o`` writes.
    """

    stages: tuple[Stage, ...]
    memory_bytes: int
    run_bytes: int
    bf16_bytes: int
    packed_bytes: int


def estimate(model: StreamedModel, plan: Plan) -> Estimate:
    """Rehearse ``plan`` on the first block that it covers.

    Raises:
        InputError: as ``quantize_blocks``.
    """
    index = next(i for i in range(model.block_count) if _covered(model, plan, i))
    windows = plan.calibration[: max(1, TOKENS // plan.calibration.shape[1])]
    states = model.embed(windows)
    tokens = windows.numel()
    calibration, evaluation = plan.calibration.numel(), plan.evaluation.numel()
    blocks = model.block_count
    prefix = model.block_prefix(index)
    seconds: dict[str, float] = {}

    def add(stage: str, spent: float) -> None:
        seconds[stage] = seconds.get(stage, 0.0) + spent

    started = time.monotonic()
    with model.block(index) as block:
        loading = time.monotonic() - started
        names = [name for name in model.linears(block) if plan.covers(prefix + name)]
        sums: dict[str, HessianAccumulator] = {}

        def record(group: str, x: Tensor) -> None:
            sums.setdefault(group, HessianAccumulator(x.shape[1], device=x.device)).add(x)

        with model.record_inputs(block, record):
            observing = _timed(lambda: model.run_block(block, index, states))
        add("calibration", observing / tokens * calibration * blocks)
        shared: dict[str, Candidate] = {c.weights_key: c for c in plan.candidates}
        add("reading blocks", loading * (1 + len(shared)) * blocks)
        plain = _timed(lambda: model.run_block(block, index, states))
        add("evaluation", plain / tokens * evaluation * blocks)
        weights = {name: model.linears(block)[name].weight for name in names}
        hessians = {sum_.hessian().shape[0]: sum_.hessian() for sum_ in sums.values()}
        for candidate in track(list(shared.values()), "rehearsing"):
            for weight in weights.values():
                hessian = hessians[weight.shape[1]]
                add("quantising", blocks * _matrix_seconds(weight, hessian, candidate.method, candidate.rotation, plan))
        for candidate in plan.candidates:
            with scoped(model, block, candidate.scope, names) as (cache, _):
                passing = _timed(lambda cache=cache: model.run_block(block, index, states, cache))
            add("evaluation", passing / tokens * evaluation * blocks)
    with model.head():
        few = states[:1, :TOKENS]

        def score() -> None:
            logits = model.logits(few)[0]
            token_nll(logits, torch.zeros(len(logits), dtype=torch.int64, device=logits.device))
            kl_divergence(logits, logits)

        scoring = _timed(score)
    add("scoring", scoring / few.shape[1] * evaluation * (1 + len(plan.candidates)))
    add("writing", loading * 3 * blocks)
    return Estimate(
        tuple(Stage(name, spent) for name, spent in seconds.items()), _memory(model, plan, index), *_disk(model, plan)
    )


def _covered(model: StreamedModel, plan: Plan, index: int) -> bool:
    return any(plan.covers(model.block_prefix(index) + name) for name in model.matrix_shapes(index))


def _memory(model: StreamedModel, plan: Plan, index: int) -> int:
    """The larger of two peaks, in float32: a block with its Hessians while its widest matrix is worked on; the head."""
    width, vocabulary = model.embedding_shape[1], model.embedding_shape[0]
    shapes = list(model.matrix_shapes(index).values())
    weights = sum(rows * columns for rows, columns in shapes)
    groups: dict[int, int] = {}
    for _, columns in shapes:
        groups[columns] = groups.get(columns, 0) + 1
    kinds = 1 + any(c.noise and c.noise.kind == "normalized" for c in plan.candidates)
    measured = sum(bool(c.noise and c.noise.measured) for c in plan.candidates)
    # Query, key and value share a Hessian, so do gate and up: about three groups of the width of the hidden state.
    moments = sum(min(count, 3) * columns**2 for columns, count in groups.items()) * (kinds + measured)
    rows, columns = max(shapes, key=lambda shape: shape[1])
    working = 3 * columns**2 + 6 * rows * columns
    states = width * (plan.calibration.numel() * (1 + measured) + plan.evaluation.numel() * (1 + len(plan.candidates)))
    return 4 * (states + max(weights + moments + working, 2 * vocabulary * width))


def _disk(model: StreamedModel, plan: Plan) -> tuple[int, int, int]:
    """Bytes of the run, of the bfloat16 directory and of the packed one."""
    everything, coded, packed_bits = model.parameter_count, 0, 0.0
    spec = plan.candidates[0].method.options
    each = block_bits(spec["q"], len(spec["betas"])) / 8 if "betas" in spec else 16.0
    for index in range(model.block_count):
        prefix = model.block_prefix(index)
        for name, shape in model.matrix_shapes(index).items():
            if plan.covers(prefix + name):
                coded += shape[0] * shape[1]
                packed_bits += each * shape[0] * shape[1] + 16 * shape[0]
    packed = int(packed_bits / 8) + 2 * (everything - coded)
    states = (
        4 * model.embedding_shape[1] * (plan.calibration.numel() + plan.evaluation.numel() * (1 + len(plan.candidates)))
    )
    return int(packed_bits / 8) + 2 * states, 2 * everything, packed


def _timed(work: Callable[[], object]) -> float:
    """Seconds of ``work``, the better of two: what else the machine does only adds to them."""
    spent = []
    for _ in range(2):
        started = time.monotonic()
        work()
        spent.append(time.monotonic() - started)
    return min(spent)


def _matrix_seconds(weight: Tensor, hessian: Tensor, method: Method, rotation: str, plan: Plan) -> float:
    """Of quantising a matrix as large as ``weight``."""
    m, n = weight.shape
    width = min(n, WIDEST)
    weight, hessian = weight[:, :width].contiguous(), hessian[:width, :width].contiguous()
    turn = Rotation(rotation, width, plan.seed)

    def spent(rows: int) -> float:
        return _timed(lambda: quantize_matrix(weight[:rows], hessian, method, turn, damping=plan.damping))

    few, more = min(m, FEW_ROWS), min(m, MORE_ROWS)
    first, second = spent(few), spent(more)
    a_row = max(0.0, second - first) / max(1, more - few)
    once = max(0.0, first - few * a_row)
    return once * (n / width) ** 3 + a_row * m * (n / width) ** 2

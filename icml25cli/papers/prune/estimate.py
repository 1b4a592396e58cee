"""What pruning will take before it is done: seconds by stage, memory and disk.

Seconds come from a rehearsal on this machine: one layer runs on all the text there is, and is pruned by every method;
the rest is multiplication. Memory and disk are counted. Knows models, methods and texts. Does not know how results are
shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from icml25cli.core.likelihood import token_nll
from icml25cli.core.models import ModelSource
from icml25cli.core.progress import track
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.prune.allot import Quota, allot
from icml25cli.papers.prune.anatomy import Anatomy, check_family, examine
from icml25cli.papers.prune.block import prune_block
from icml25cli.papers.prune.dense import carry
from icml25cli.papers.prune.job import Texts, windows_of
from icml25cli.papers.prune.methods import Options, check_options
from icml25cli.papers.prune.plan import Layer
from icml25cli.papers.prune.units import head_units

MEAN_COSINE = 0.9  # of all layers: each that loses anything then loses as much as the mean one


@dataclass(frozen=True)
class Stage:
    """A part of the work, over all layers."""

    stage: str
    seconds: float


@dataclass(frozen=True)
class Estimate:
    """What pruning takes.

    Attributes:
        stages: in order.
        memory_bytes: peak of anonymous memory beyond what the program takes when it has loaded its libraries.
        run_bytes: of disk for finished work while it runs.
        export_bytes: of disk for what ``-o`` writes.
    """

    stages: tuple[Stage, ...]
    memory_bytes: int
    run_bytes: int
    export_bytes: int


def estimate(
    source: ModelSource, options: Sequence[Options], texts: Texts, device: torch.device | str = "cpu"
) -> Estimate:
    """Rehearse ``options`` on the layer in the middle.

    Raises:
        ToolboxError: as ``prune_models`` and ``held_out``.
    """
    check_family(source)
    for option in options:
        check_options(option)
    model = StreamedModel(source, device)
    anatomy = examine(model)
    calibration, evaluation, _ = windows_of(source, texts)
    index, count = model.block_count // 2, model.block_count
    states = model.embed(calibration), model.embed(evaluation)
    # Blocks are opened anew each time, as the dense pass and every method do.
    dense = _seconds(lambda: _carry(model, index, states[0]))
    judging = _seconds(lambda: _carry(model, index, states[1]))
    stages, stored = [Stage("dense model", count * (dense + judging))], 0
    for option in track(list(options), "rehearsing"):
        steps = _steps(anatomy, option)
        cut = [step for step in steps if isinstance(step, Quota)]
        gone = sum(isinstance(step, Layer) and step.removed for step in steps)
        spent = (count - gone - len(cut)) * (dense + judging)
        if cut:
            wanted = replace(cut[len(cut) // 2], index=index)
            pruning = _seconds(lambda option=option, wanted=wanted: _prune(model, anatomy, option, wanted, states[0]))
            spent += len(cut) * (pruning + (1 - option.target) * judging)
        stages.append(Stage(f"pruning by {option.method}", spent))
        stored += round((1 - option.target) * count * anatomy.block_parameters)
    with model.head():
        few = states[1][:1]

        def score() -> None:
            logits = model.logits(few)[0]
            token_nll(logits, torch.zeros(len(logits), dtype=torch.int64, device=logits.device))

        scoring = _seconds(score) / few.shape[1] * evaluation.numel()
    stages.append(Stage("scoring", scoring * (1 + len(options))))
    width = 4 * anatomy.hidden
    kept = width * (calibration.numel() + evaluation.numel())
    size = max(x.element_size() for x in model.block_tensors(0).values())
    share = 1 - options[0].target * count * anatomy.block_parameters / model.parameter_count
    return Estimate(
        tuple(stages),
        _memory(model, anatomy, calibration.numel(), kept),
        2 * kept + stored * size,
        round(share * model.parameter_count) * size,
    )


def _carry(model: StreamedModel, index: int, states: Tensor) -> None:
    with model.block(index) as block:
        carry(model, block, index, states.clone())


def _prune(model: StreamedModel, anatomy: Anatomy, options: Options, wanted: Quota, states: Tensor) -> None:
    with model.block(wanted.index) as block:
        units = head_units(anatomy, options.gqa)
        method = _steady(options).chosen
        prune_block(model, block, anatomy, method, units, wanted, states.clone(), seed=options.seed)


def _steady(options: Options) -> Options:
    """The same, but where one threshold for all layers chooses, every layer chooses for itself at the same cost."""
    if options.chosen.layer_ratio != "threshold":
        return options
    return replace(options, method="wanda-sp", repair=options.repair or options.chosen.repair)


def _steps(anatomy: Anatomy, options: Options) -> list[Quota | Layer]:
    """What layers that are equally redundant would lose."""
    total = anatomy.layers * anatomy.block_parameters
    return allot(anatomy, _steady(options), [MEAN_COSINE] * anatomy.layers, total)


def _memory(model: StreamedModel, anatomy: Anatomy, tokens: int, states: int) -> int:
    """The larger of two peaks: a block in float32 with what is held of its calibration; the head."""
    attended, hidden, inner = anatomy.heads * anatomy.head_dim, anatomy.hidden, anatomy.inner
    held = 4 * tokens * (3 * hidden + max(attended, inner))
    moments = 8 * (attended**2 + hidden**2 + hidden * anatomy.heads**2)
    vocabulary, width = model.embedding_shape
    return states + max(4 * anatomy.block_parameters + held + moments, 8 * vocabulary * width)


def _seconds(work: Callable[[], object]) -> float:
    """Of ``work``, the better of two: what else the machine does only adds to them."""
    spent = []
    for _ in range(2):
        started = time.monotonic()
        work()
        spent.append(time.monotonic() - started)
    return min(spent)

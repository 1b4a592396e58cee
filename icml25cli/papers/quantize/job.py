"""From what a user asks for to a plan: which methods at which rate, on which tokens of which text.

Knows options as words and numbers. Does not know the command line, or how a plan is carried out.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from numpy import ndarray
from torch import Tensor

from icml25cli.core.errors import CheckFailed, UsageError
from icml25cli.core.files import remove
from icml25cli.core.models import ModelSource, load_tokenizer
from icml25cli.core.progress import warn
from icml25cli.core.runs import Run, fingerprint, run_directory
from icml25cli.core.streaming import StreamedModel
from icml25cli.core.text import find_text, shares_text, token_stream, windows
from icml25cli.papers.quantize.arrays import sample_blocks
from icml25cli.papers.quantize.matrix import gptq, nestquant, nf4, rtn
from icml25cli.papers.quantize.model import Judged, quantize_model
from icml25cli.papers.quantize.packing import block_bits
from icml25cli.papers.quantize.pipeline import Candidate, Plan
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.scales import code_for
from icml25cli.papers.quantize.voronoi import LatticeCode

MODEL_SUFFIXES = (".safetensors", ".json", ".model", ".txt", ".jinja", ".py")
SAMPLED_BLOCKS = 4  # decoder blocks whose weights choose the scales
SAMPLE = 65_536  # blocks of eight weights
MOST_SHARED = 0.1  # of the evaluation windows may share text with calibration, and are left out; beyond, it is a leak


@dataclass(frozen=True)
class Options:
    """What a user asks for; see the help of ``icml25 quantize``."""

    method: str = "nestquant"
    baselines: tuple[str, ...] = ("rtn", "gptq")
    q: int = 14
    k: int = 4
    betas: str = "auto"
    ldlq: bool = True
    rotations: tuple[str, ...] = ("random-hadamard",)
    scalar_bits: int | None = None
    group_size: int = 64
    include: str = ""
    exclude: str | None = None
    calibration: str = "builtin"
    calibration_tokens: int = 16_384
    evaluation: str = "builtin"
    evaluation_tokens: int = 16_384
    window: int = 512
    damping: float = 0.01
    seed: int = 0


@dataclass(frozen=True)
class Job:
    """A model quantised and judged, with what is needed to write it out."""

    model: StreamedModel
    plan: Plan
    run: Run
    facts: dict[str, Any]
    judged: tuple[Judged, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences a report on this job must show."""
        said = [*self.model.source.notes]
        if any(c.method.name == "nestquant" and not c.method.calibrated for c in self.plan.candidates):
            said.append(
                "Without LDLQ the lattice code has one scale a row against one a group for RTN, and need not beat it."
            )
        said.append(
            "Calibration is the same for all methods: Hessians of the float model. Bits count codes, scales, zero "
            "points and padding as stored; embedding, head and norms stay as they are. KL and NLL are in nats a token, "
            "± one standard error over windows; lower is better."
        )
        return tuple(said)


@contextlib.contextmanager
def carry_out(
    source: ModelSource,
    options: Options,
    *,
    device: torch.device | str = "cpu",
    output: Path | None = None,
    resume: bool = False,
    fresh: bool = False,
) -> Iterator[Job]:
    """Quantise and judge ``source``, continuing what an earlier call with the same inputs finished.

    Finished blocks live in ``output/.run``, or without ``output`` in the user's cache.

    Raises:
        ToolboxError: as ``make_plan``, ``Run.open`` and ``quantize_model``.
    """
    model = StreamedModel(source, device)
    plan, facts = make_plan(model, options)
    inputs = {
        "model": _files(source.path),
        "options": asdict(options),
        "methods": [candidate.method.spec() for candidate in plan.candidates],
        "calibration text": plan.calibration,
        "evaluation text": plan.evaluation,
    }
    with Run.open(run_directory("quantize", fingerprint(inputs), output), inputs, resume=resume, fresh=fresh) as run:
        yield Job(model, plan, run, facts, quantize_model(model, plan, run))
    if output:  # what was finished is in the output now
        remove(output / ".run")


def _files(model: Path) -> dict[str, Path]:
    """What a model directory is of: configuration, weights, tokenizer, code; not an output that was put into it."""
    return {file.name: file for file in sorted(model.iterdir()) if file.suffix in MODEL_SUFFIXES}


def make_plan(model: StreamedModel, options: Options) -> tuple[Plan, dict[str, Any]]:
    """The plan, and the facts about it that a report shows: texts, windows, scales, bits of the scalar methods.

    Raises:
        CheckFailed: evaluation text occurs in the calibration text.
        InputError: a text is too short or unreadable, or the model has no tokenizer.
        UsageError: an option does not fit the others.
    """
    calibration, evaluation, text_facts = _windows(model.source, options)
    plan = Plan(
        candidates=(),
        calibration=torch.from_numpy(calibration),
        evaluation=torch.from_numpy(evaluation),
        seed=options.seed,
        damping=options.damping,
        include=options.include,
        exclude=options.exclude,
    )
    blocks = _covered_blocks(model, plan)
    names = dict.fromkeys((options.method, *options.baselines))  # each once, the main one first
    candidates: list[Candidate] = []
    for rotation in dict.fromkeys(
        options.rotations
    ):  # what a rotation does to one method it should be seen to do to all
        code = _code(model, plan, blocks, rotation, options)
        bits = options.scalar_bits or _matching_bits(model, plan, blocks, code, options.group_size)
        methods = {
            "nestquant": nestquant(code, ldlq=options.ldlq),
            "rtn": rtn(bits, options.group_size),
            "gptq": gptq(bits, options.group_size),
            "nf4": nf4(),
        }
        candidates += [Candidate(methods[name], rotation) for name in names]
    specs = [candidate.method.spec() for candidate in candidates]
    facts = {
        "q": options.q,
        "scales_times_q": [
            [round(beta * options.q, 4) for beta in spec["betas"]] for spec in specs if spec["name"] == "nestquant"
        ],
        "scalar_bits": options.scalar_bits or bits,
        "group_size": options.group_size,
        **text_facts,
    }
    return replace(plan, candidates=tuple(candidates)), facts


def _windows(source: ModelSource, options: Options) -> tuple[ndarray, ndarray, dict[str, Any]]:
    tokenizer = load_tokenizer(source)
    longest = source.config.get("max_position_embeddings")
    length = min(options.window, longest) if isinstance(longest, int) and longest > 1 else options.window
    texts = {
        "calibration": find_text(options.calibration, "calibration"),
        "evaluation": find_text(options.evaluation, "test"),
    }
    # Calibration is a sample, drawn by the seed; evaluation is the beginning of the text, the same for every seed.
    calibration = windows(
        token_stream(texts["calibration"], tokenizer),
        length,
        count=max(1, options.calibration_tokens // length),
        seed=options.seed,
        name=texts["calibration"].name,
    )
    evaluation = windows(
        token_stream(texts["evaluation"], tokenizer),
        length,
        count=max(2, options.evaluation_tokens // length),
        name=texts["evaluation"].name,
    )
    shared = shares_text(evaluation, calibration)
    if shared.mean() > MOST_SHARED:
        raise CheckFailed(
            f"{shared.mean():.0%} of the evaluation windows contain text of the calibration windows",
            hint="give --eval a text that is not in --calib",
        )
    if shared.any():  # a licence or a quotation that both texts hold
        warn(f"{shared.sum()} of {len(shared)} evaluation windows were left out: they share text with calibration")
        evaluation = evaluation[~shared]
    return (
        calibration,
        evaluation,
        {
            "calibration": f"{texts['calibration'].origin}, {calibration.size} tokens",
            "evaluation": f"{texts['evaluation'].origin}, {evaluation.size} tokens",
            "window": length,
        },
    )


def _covered_blocks(model: StreamedModel, plan: Plan) -> list[int]:
    """Decoder blocks with something to quantise.

    Raises:
        UsageError: an expression is malformed, or there are none.
    """
    for option, pattern in (("--include", plan.include), ("--exclude", plan.exclude)):
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise UsageError(f"{option} {pattern!r} is no regular expression: {error}") from error
    covered = [
        index
        for index in range(model.block_count)
        if any(
            plan.covers(name.removesuffix(".weight")) and tensor.ndim == 2
            for name, tensor in model.block_tensors(index).items()
        )
    ]
    if not covered:
        raise UsageError("--include and --exclude leave no tensor to quantise", hint="widen one or narrow the other")
    return covered


def _code(model: StreamedModel, plan: Plan, blocks: list[int], rotation: str, options: Options) -> LatticeCode:
    return code_for(options.betas, options.q, options.k, lambda: _weight_sample(model, plan, blocks, rotation))


def _weight_sample(model: StreamedModel, plan: Plan, blocks: list[int], rotation: str) -> Float32[ndarray, "n 8"]:
    chosen = [blocks[i] for i in np.unique(np.linspace(0, len(blocks) - 1, SAMPLED_BLOCKS).astype(int))]
    sample: list[ndarray] = []
    for index in chosen:
        with model.block(index) as block:
            covered = _covered_weights(model, plan, index, block)
            for weight in covered:
                turn = Rotation(rotation, weight.shape[1], plan.seed)
                count = SAMPLE // (len(chosen) * len(covered))
                sample.append(sample_blocks(weight.cpu().numpy(), turn, count=count, seed=plan.seed))
    return np.concatenate(sample)


def _covered_weights(model: StreamedModel, plan: Plan, index: int, block: torch.nn.Module) -> list[Tensor]:
    prefix = model.block_prefix(index)
    return [linear.weight for name, linear in model.linears(block).items() if plan.covers(prefix + name)]


def _matching_bits(model: StreamedModel, plan: Plan, blocks: list[int], code: LatticeCode, group_size: int) -> int:
    """The least bits at which a scalar group quantiser stores no fewer than the lattice code with a scale a row."""
    with model.block(blocks[0]) as block:
        width = min(weight.shape[1] for weight in _covered_weights(model, plan, blocks[0], block))
    stored = block_bits(code.q, len(code.betas)) / 8 + 16 / width
    return next(bits for bits in range(2, 17) if bits + (16 + bits) / min(group_size, width) >= stored)

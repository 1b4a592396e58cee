"""From what a user asks for to a plan: which methods at which rate, on which tokens of which text.

Knows options as words and numbers. Does not know the command line, or how a plan is carried out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from torch import Tensor

from icml25cli.core.errors import UsageError
from icml25cli.core.held_out import Sample, calibration_sample, evaluation_sample
from icml25cli.core.models import ModelSource, load_tokenizer
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.quantize.arrays import sample_blocks
from icml25cli.papers.quantize.matrix import Method, absmax, gptq, nestquant, nf4, rtn
from icml25cli.papers.quantize.packing import block_bits
from icml25cli.papers.quantize.peers import PEERS, peer, usable
from icml25cli.papers.quantize.pipeline import WEIGHTS, Candidate, NoiseModel, Plan, Scope
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.samples import ModelSamples, sample_vectors
from icml25cli.papers.quantize.scales import ChosenScales, choose_rate, choose_scales, code_for, scales_asked
from icml25cli.papers.quantize.vectors import AbsmaxVectors, LatticeVectors, normalised
from icml25cli.papers.quantize.voronoi import LatticeCode

LATTICE = ("nestquant", "nestquant-m")
KINDS = ("weights", "keys", "values", "activations")
AUTO_NOISE = "normalized"  # lowers the divergence of a real model where the white model raises it
SCOPES = ("w", "w+kv", "w+kv+a")
SAMPLED_BLOCKS = 4  # decoder blocks whose weights choose the scales
SAMPLE = 65_536  # blocks of eight numbers that choose scales
SAMPLED_TOKENS = 2048  # of calibration, whose keys, values and activations choose theirs


@dataclass(frozen=True)
class Options:
    """What a user asks for; see the help of ``icml25 quantize``."""

    method: str = "nestquant"
    baselines: tuple[str, ...] = ("rtn", "gptq")
    scopes: tuple[str, ...] = ("w",)
    q: int = 14
    k: int = 4
    rate: float | None = None  # most raw bits a number, which then choose q and k
    betas: str = "auto"
    beta_rule: str = "opt"
    entropy: bool = False
    ldlq: bool = True
    qa: str = "auto"
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
class Facts:
    """What a report says of a plan."""

    params: dict[str, Any]  # texts, windows, bits of the scalar methods
    codes: list[dict[str, Any]]  # one row a lattice code


def make_plan(model: StreamedModel, options: Options) -> tuple[Plan, Facts]:
    """The plan, and the facts about it that a report shows.

    Raises:
        CheckFailed: evaluation text occurs in the calibration text.
        InputError: a text is too short or unreadable, or the model has no tokenizer.
        UsageError: an option does not fit the others.
    """
    _check_fit(options)
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
    chooser = _Chooser(model, plan, options)
    names = dict.fromkeys((options.method, *usable(options.baselines)))  # each once, the main one first
    # What a rotation, or a scope, does to one method it should be seen to do to all.
    candidates = [
        chooser.candidate(name, rotation, scope)
        for rotation in dict.fromkeys(options.rotations)
        for name in names
        for scope in dict.fromkeys(options.scopes)
    ]
    codes = [
        {
            "method": c.method.name,
            "rotation": c.rotation,
            "for": kind,
            "q": code.q,
            "scales_times_q": ", ".join(f"{beta * code.q:.4g}" for beta in code.betas),
            "raw_bits": code.rate_raw,
        }
        for c in candidates
        if c.method.name in LATTICE and c.scope.name == options.scopes[-1]
        for kind, code in chooser.codes(c)
    ]
    params = {
        "scalar_bits": chooser.scalar_bits(options.rotations[-1]),
        "group_size": options.group_size,
        **text_facts,
    }
    return replace(plan, candidates=tuple(candidates)), Facts(params, codes)


def fit_scales(model: StreamedModel, options: Options, kinds: Sequence[str]) -> dict[str, tuple[ChosenScales, int]]:
    """For each kind of data of a model the scales of least error, and the number of blocks that chose them.

    They are those that a run with ``--betas auto`` and the same options fits to itself.

    Args:
        options: method, q, k, rotation (the first), calibration, seed, and what is covered.
        kinds: of ``KINDS``; text is read only for other kinds than weights.

    Raises:
        InputError: as ``make_plan``, or a kind has no use for so many scales.
        UsageError: as ``make_plan``.
    """
    calibration = np.empty((0, 1), np.int64)
    if any(kind != "weights" for kind in kinds):
        calibration = _calibration(model.source, options, load_tokenizer(model.source)).windows
    plan = Plan(
        candidates=(),
        calibration=torch.from_numpy(calibration),
        evaluation=torch.empty(0, 1, dtype=torch.int64),
        seed=options.seed,
        include=options.include,
        exclude=options.exclude,
    )
    chooser, rotation, simplified = _Chooser(model, plan, options), options.rotations[0], options.method == LATTICE[1]
    fitted = {}
    for kind in kinds:
        blocks = chooser.sample(kind, rotation)
        fitted[kind] = choose_scales(blocks, options.q, options.k, simplified=simplified), len(blocks)
    return fitted


class _Chooser:
    """Codes fitted to a model, each once; made when a candidate asks for them."""

    def __init__(self, model: StreamedModel, plan: Plan, options: Options) -> None:
        self._model, self._plan, self._options = model, plan, options
        self._blocks = _covered_blocks(model, plan)
        self._codes: dict[tuple[str, str, bool], LatticeCode] = {}
        self._samples: ModelSamples | None = None

    def candidate(self, name: str, rotation: str, scope: str) -> Candidate:
        vectors = self._vectors(name, rotation)
        beside = WEIGHTS
        if scope != "w":
            beside = Scope(
                scope, (vectors("keys"), vectors("values")), vectors("activations") if "a" in scope else None
            )
        noise = None
        if name in LATTICE and self._options.qa != "off" and beside.activations and self._options.ldlq:
            kind = AUTO_NOISE if self._options.qa == "auto" else self._options.qa
            noise = NoiseModel(kind, self._distortion(beside.activations))
        return Candidate(self._method(name, rotation), rotation, beside, noise)

    def codes(self, candidate: Candidate) -> list[tuple[str, LatticeCode]]:
        """The codes of a lattice candidate by what they are for."""
        kinds = {"w": ("weights",), "w+kv": ("weights", "keys", "values")}.get(candidate.scope.name, KINDS)
        return [(kind, self._code(kind, candidate.rotation, candidate.method.name)) for kind in kinds]

    def scalar_bits(self, rotation: str) -> int:
        """Of rtn and gptq: as asked, or the least at which a group quantiser stores no fewer than the lattice code."""
        if self._options.scalar_bits:
            return self._options.scalar_bits
        code, group_size = self._code("weights", rotation, "nestquant"), self._options.group_size
        with self._model.block(self._blocks[0]) as block:
            width = min(weight.shape[1] for weight in self._weights(self._blocks[0], block))
        stored = block_bits(code.q, len(code.betas)) / 8 + 16 / width
        return next(bits for bits in range(2, 17) if bits + (16 + bits) / min(group_size, width) >= stored)

    def _method(self, name: str, rotation: str) -> Method:
        options = self._options
        if name in LATTICE:
            code = self._code("weights", rotation, name)
            return replace(nestquant(code, ldlq=options.ldlq, entropy=options.entropy), name=name)
        if name in PEERS:
            return peer(name)
        if name == "nf4":
            return nf4()
        if name == "absmax":
            return absmax(self._absmax_bits(rotation))
        return {"rtn": rtn, "gptq": gptq}[name](self.scalar_bits(rotation), options.group_size)

    def _absmax_bits(self, rotation: str) -> int:
        """The whole number of bits nearest to the rate of the lattice code: the scheme that is called by as many."""
        return self._options.scalar_bits or round(self._code("weights", rotation, "nestquant").rate_raw)

    def _vectors(self, name: str, rotation: str) -> Callable[[str], LatticeVectors | AbsmaxVectors]:
        def make(kind: str) -> LatticeVectors | AbsmaxVectors:
            turn = "none" if kind == "values" else rotation  # as the paper has it
            if name in LATTICE:
                return LatticeVectors(self._code(kind, rotation, name), turn, self._plan.seed)
            return AbsmaxVectors(self._absmax_bits(rotation), turn, self._plan.seed)

        return make

    def _distortion(self, activations: Any) -> float:
        found = [activations.distortion(x) for x in self._model_samples().activations.tensors()]
        return float(np.mean(found))

    def _code(self, kind: str, rotation: str, name: str) -> LatticeCode:
        key = (kind, rotation, name == "nestquant-m")
        if key not in self._codes:
            options, simplified = self._options, key[2]

            def sample() -> Float32[ndarray, "n 8"]:
                return self.sample(kind, rotation)

            if options.rate is not None:
                code = choose_rate(sample(), options.rate, simplified=simplified).code
            else:
                code = code_for(
                    scales_asked(options.betas, kind), options.q, options.k, sample, kind=kind, simplified=simplified
                )
            self._codes[key] = replace(code, rule=options.beta_rule)
        return self._codes[key]

    def sample(self, kind: str, rotation: str) -> Float32[ndarray, "n 8"]:
        """Blocks of a kind, normalised and rotated."""
        return self._weight_sample(rotation) if kind == "weights" else self._vector_sample(kind, rotation)

    def _weight_sample(self, rotation: str) -> Float32[ndarray, "n 8"]:
        blocks = self._blocks
        chosen = [blocks[i] for i in np.unique(np.linspace(0, len(blocks) - 1, SAMPLED_BLOCKS).astype(int))]
        sample: list[ndarray] = []
        for index in chosen:
            with self._model.block(index) as block:
                covered = self._weights(index, block)
                for weight in covered:
                    turn = Rotation(rotation, weight.shape[1], self._plan.seed)
                    count = SAMPLE // (len(chosen) * len(covered))
                    sample.append(sample_blocks(weight.cpu().numpy(), turn, count=count, seed=self._plan.seed))
        return np.concatenate(sample)

    def _vector_sample(self, kind: str, rotation: str) -> Float32[ndarray, "n 8"]:
        vectors: list[Float[Tensor, "rows n"]] = getattr(self._model_samples(), kind).tensors()
        turn = "none" if kind == "values" else rotation
        blocks = torch.cat([normalised(x, turn, self._plan.seed)[0].view(-1, 8) for x in vectors]).numpy()
        drawn = np.random.default_rng(self._plan.seed).permutation(len(blocks))[:SAMPLE]
        return blocks[drawn]

    def _model_samples(self) -> ModelSamples:
        if self._samples is None:
            calibration = self._plan.calibration
            count = max(1, SAMPLED_TOKENS // calibration.shape[1])
            self._samples = sample_vectors(
                self._model, calibration[:count], self._plan.covers, values=16 * SAMPLE, seed=self._plan.seed
            )
        return self._samples

    def _weights(self, index: int, block: torch.nn.Module) -> list[Tensor]:
        prefix = self._model.block_prefix(index)
        return [
            linear.weight for name, linear in self._model.linears(block).items() if self._plan.covers(prefix + name)
        ]


def _check_fit(options: Options) -> None:
    """Raise UsageError where an option would change nothing because of another."""
    if options.rate is not None and options.betas != "auto":
        raise UsageError("--bits fits scales itself, --betas gives them", hint="leave out one of them")
    if options.qa in ("auto", "off"):
        return
    lattice = any(name in LATTICE for name in (options.method, *options.baselines))
    if not (options.ldlq and lattice and "w+kv+a" in options.scopes):
        raise UsageError(
            f"--qa {options.qa} is for LDLQ of a lattice method where activations are quantised",
            hint="add --scope w+kv+a, or leave out --qa",
        )


def _windows(source: ModelSource, options: Options) -> tuple[ndarray, ndarray, dict[str, Any]]:
    tokenizer = load_tokenizer(source)
    calibration = _calibration(source, options, tokenizer)
    evaluation = evaluation_sample(
        tokenizer, options.evaluation, tokens=options.evaluation_tokens, calibration=calibration
    )
    facts = {
        "calibration": calibration.origin,
        "evaluation": evaluation.origin,
        "window": calibration.windows.shape[1],
    }
    return calibration.windows, evaluation.windows, facts


def _calibration(source: ModelSource, options: Options, tokenizer: Any) -> Sample:
    return calibration_sample(
        source,
        tokenizer,
        options.calibration,
        tokens=options.calibration_tokens,
        window=options.window,
        seed=options.seed,
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

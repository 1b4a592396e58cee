"""Quantise a model and judge every candidate on text that none of them saw.

Knows how blocks, scores and figures fit together. Does not know where text comes from, or how results are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float64
from safetensors.torch import load_file, save_file
from torch import Tensor

from icml25cli.core.blockwise import whole
from icml25cli.core.likelihood import Estimate, estimate, paired_difference, perplexity
from icml25cli.core.runs import Run
from icml25cli.core.scoring import score_states
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.quantize import pipeline
from icml25cli.papers.quantize.pipeline import FLOAT, NOTHING, Candidate, Plan, Tally

SCORES = "scores.safetensors"


@dataclass(frozen=True)
class Score:
    """Fit to the evaluation windows, one figure a window."""

    nll: Float64[Tensor, " windows"]  # summed over the window's predicted tokens, nats
    kl: Float64[Tensor, " windows"]  # KL(float || this), mean over the same tokens, nats
    tokens: int  # predicted in each window

    @property
    def perplexity(self) -> Estimate:
        return perplexity(self.nll, torch.full((len(self.nll),), self.tokens))

    @property
    def mean_kl(self) -> Estimate:
        return estimate(self.kl)


@dataclass(frozen=True)
class Judged:
    """What became of the model under one candidate; ``candidate`` is None for the float model."""

    candidate: Candidate | None
    score: Score
    seconds: float  # of quantising, the shared calibration included where the method uses it
    weights: int  # quantised weights
    bits: dict[str, float]  # stored bits of those weights by component
    tensors: tuple[dict[str, Any], ...]  # one record a tensor, see ``pipeline``
    kv: Tally = NOTHING  # of keys and values while the evaluation windows went through
    activations: Tally = NOTHING

    @property
    def bits_per_weight(self) -> float:
        return sum(self.bits.values()) / self.weights

    @property
    def proxy_loss(self) -> float:
        """Mean over tensors of the relative error of the layer's outputs."""
        return sum(tensor["relative_proxy_loss"] for tensor in self.tensors) / len(self.tensors)


def quantize_model(model: StreamedModel, plan: Plan, run: Run) -> tuple[Judged, ...]:
    """Quantise, score, and return the candidates in the plan's order, the float model last.

    Finished blocks and scores stay in ``run``: a second call with the same arguments only reads them.

    Raises:
        InputError: a weight or an activation is not finite.
    """
    pipeline.quantize_blocks(model, plan, run)
    if not run.has(SCORES):
        _write_scores(model, plan, run)
    pipeline.forget_final_states(model, run)
    with whole(run):
        scores = load_file(run.path(SCORES))
    tokens = plan.evaluation.shape[1] - 1

    def score(key: str) -> Score:
        return Score(scores[f"{key}.nll"], scores[f"{key}.kl"], tokens)

    blocks = pipeline.records(run, model.block_count)
    judged = [_judge(candidate, score(candidate.key), blocks) for candidate in plan.candidates]
    weights = judged[0].weights
    stored = sum(
        tensor.numel() * tensor.element_size() * 8
        for i in range(model.block_count)
        for name, tensor in model.block_tensors(i).items()
        if name.removesuffix(".weight") in {record["tensor"] for record in judged[0].tensors}
    )
    return (*judged, Judged(None, score(FLOAT), 0.0, weights, {"float": float(stored)}, ()))


def differences(judged: tuple[Judged, ...]) -> list[dict[str, Any]]:
    """Every other candidate against the main one, paired over windows, as report rows.

    ``kl_more`` is how much further from the float model the other is; ``nll_more`` how much worse it predicts.
    """
    main, *others = (j for j in judged if j.candidate)
    rows = []
    for other in others:
        kl = paired_difference(other.score.kl, main.score.kl)
        nll = paired_difference(other.score.nll / other.score.tokens, main.score.nll / main.score.tokens)
        rows.append(
            {
                **label(other),
                "kl_more": kl.mean,
                "kl_more_se": kl.standard_error,
                "nll_more": nll.mean,
                "nll_more_se": nll.standard_error,
                "kl_beyond_two_se": kl.mean > 2 * kl.standard_error,
            }
        )
    return rows


def comparison(judged: tuple[Judged, ...]) -> list[dict[str, Any]]:
    """One report row a candidate and one for the float model, the main one first."""
    beyond_weights = any(j.candidate and j.candidate.scope.name != "w" for j in judged)
    float_nll = next(j.score for j in judged if not j.candidate).nll
    rows = []
    for j in judged:
        ppl, kl = j.score.perplexity, j.score.mean_kl
        nll = paired_difference(j.score.nll / j.score.tokens, float_nll / j.score.tokens)
        rows.append(
            {
                **label(j),
                "bits_per_weight": j.bits_per_weight,
                **(
                    {"bits_per_kv": j.kv.bits_each, "bits_per_activation": j.activations.bits_each}
                    if beyond_weights
                    else {}
                ),
                "perplexity": ppl.mean,
                "perplexity_se": ppl.standard_error,
                "kl": kl.mean,
                "kl_se": kl.standard_error,
                "nll_more": nll.mean,
                "nll_more_se": nll.standard_error,
                "proxy_loss": j.proxy_loss if j.tensors else None,
                "seconds": round(j.seconds, 3),
            }
        )
    return rows


def rate(judged: tuple[Judged, ...]) -> list[dict[str, Any]]:
    """Where the stored bits of each candidate go, in bits per quantised weight."""
    return [
        {**label(j), **{name: bits / j.weights for name, bits in j.bits.items()}, "total": j.bits_per_weight}
        for j in judged
        if j.candidate
    ]


def by_block(main: Judged) -> list[dict[str, Any]]:
    """The main candidate's tensors gathered by decoder block, the worst of each named."""
    blocks: dict[int, list[dict[str, Any]]] = {}
    for tensor in main.tensors:
        blocks.setdefault(tensor["block"], []).append(tensor)
    rows = []
    for block, tensors in blocks.items():
        worst = max(tensors, key=lambda tensor: tensor["relative_proxy_loss"])
        rows.append(
            {
                "block": block,
                "proxy_loss": sum(t["relative_proxy_loss"] for t in tensors) / len(tensors),
                "worst": worst["tensor"].partition(f".{block}.")[2],
                "worst_proxy_loss": worst["relative_proxy_loss"],
                "relative_mse": sum(t["relative_mse"] for t in tensors) / len(tensors),
                "overloads": sum(t["overloads"] or 0 for t in tensors),
            }
        )
    return rows


def cautions(judged: tuple[Judged, ...]) -> list[str]:
    """What a reader of the figures must know: layers that fell back, were overloaded, or saw too little text."""
    said = []
    for j in judged:
        name = " ".join(str(value) for value in label(j).values())
        fallen = [t for t in j.tensors if t["fallback"]]
        if fallen:
            said.append(f"{name}: {len(fallen)} tensors fell back, {fallen[0]['tensor']}: {fallen[0]['fallback']}")
        if overloads := sum(t["overloads"] or 0 for t in j.tensors):
            said.append(f"{name}: {overloads} blocks of weights overloaded their largest scale")
        for tally, of in ((j.kv, "keys and values"), (j.activations, "activations")):
            if tally.overloads:
                said.append(f"{name}: {tally.overloads} of {tally.numbers // 8} blocks of {of} overloaded their scales")
    thin = [t for t in judged[0].tensors if t["undersampled"]]
    if thin:
        widest = max(thin, key=lambda t: t["shape"][1])
        said.append(
            f"{len(thin)} of {len(judged[0].tensors)} tensors saw fewer than two calibration tokens per dimension "
            f"({widest['calibration_tokens']} for {widest['shape'][1]} in {widest['tensor']}); "
            "more with --calib-tokens make LDLQ and GPTQ better"
        )
    return said


def label(j: Judged) -> dict[str, str]:
    """The keys of a report row."""
    if j.candidate is None:
        return {"method": FLOAT, "rotation": "none", "scope": "none"}
    return {
        "method": j.candidate.method.name,
        "rotation": j.candidate.rotation,
        "scope": j.candidate.scope.name,
    }


def _judge(candidate: Candidate, score: Score, blocks: list[dict[str, Any]]) -> Judged:
    tensors, seconds, bits = [], 0.0, {}
    kv, activations = NOTHING, NOTHING
    for number, block in enumerate(blocks):
        record = block["candidates"][candidate.key]
        seconds += record["seconds"] + record["calibration_seconds"]
        kv += Tally(**record["kv"])
        activations += Tally(**record["activations"])
        tensors += [{"block": number, **tensor} for tensor in record["tensors"]]
    for tensor in tensors:
        for component, count in tensor["bits"].items():
            bits[component] = bits.get(component, 0) + count
    weights = sum(rows * columns for rows, columns in (tensor["shape"] for tensor in tensors))
    return Judged(candidate, score, seconds, weights, bits, tuple(tensors), kv, activations)


def _write_scores(model: StreamedModel, plan: Plan, run: Run) -> None:
    states = pipeline.final_states(model, run)
    keys = [FLOAT, *(candidate.key for candidate in plan.candidates)]
    scores = score_states(model, {key: states[key] for key in keys}, plan.evaluation, reference=FLOAT)

    def write(path: Path) -> None:
        save_file(scores, path)

    run.write(SCORES, write)

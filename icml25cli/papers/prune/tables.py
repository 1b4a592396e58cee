"""Pruned models as rows of a report. Knows jobs and what was measured. Does not know how rows are shown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from icml25cli.core.likelihood import Estimate, paired_difference
from icml25cli.papers.prune.job import Job, Measured
from icml25cli.papers.prune.pipeline import LayerRecord, Pruned, Score
from icml25cli.papers.prune.sizes import CONTEXT, Sizes
from icml25cli.papers.prune.speed import Speed, speedup

DENSE = "dense"
EXPLAINED = (
    "Perplexity is of held-out windows, ± one standard error over windows; nll more is nats a token more than "
    "the dense model's on the same windows. Shares are what is left: of all parameters, and of the decoder's. Speeds "
    "are of whole models in float32, turn by turn with the dense one. A correlation is of a layer's outputs with and "
    "without what was cut; a gain is the share of that error which repair takes away."
)


def export_notes(job: Job) -> list[str]:
    """What the form of the export does to the figures."""
    notes = []
    if job.pruned[0].options.alike:
        notes.append("For --export uniform every layer loses the same share, whatever its cosine.")
    if job.kind == "padded":
        notes.append("A padded export has zeros where something was cut: it saves neither memory nor time.")
    return notes


def comparison(job: Job, measured: Sequence[Measured | None]) -> list[dict[str, Any]]:
    """A row a method, the main one first, and the dense model last."""
    several = len({pruned.options.target for pruned in job.pruned}) > 1
    dense = next((m.dense for m in measured if m), None)
    rows = [
        {
            "method": pruned.options.method,
            **({"target": pruned.options.target} if several else {}),
            **_figures(pruned.score, pruned.dense_score, job.sizes(pruned), job.dense, m and m.pruned),
            "prefill_speedup": speedup(m.pruned.prefill, m.dense.prefill) if m else None,
            "seconds": round(pruned.seconds, 3),
        }
        for pruned, m in zip(job.pruned, measured, strict=True)
    ]
    score = job.pruned[0].dense_score
    return [
        *rows,
        {
            "method": DENSE,
            **({"target": 0.0} if several else {}),
            **_figures(score, score, job.dense, job.dense, dense),
            "prefill_speedup": 1.0 if dense else None,
            "seconds": 0.0,
        },
    ]


def differences(job: Job) -> list[dict[str, Any]]:
    """Every other method as large as the main one of its target against it, paired over windows, in nats a token."""
    rows = []
    firsts: dict[float, Pruned] = {}
    for pruned in job.pruned:
        first = firsts.setdefault(pruned.options.target, pruned)
        if pruned is first or not (pruned.score and first.score):
            continue
        if not _as_large(pruned, first):
            continue
        more = _more(pruned.score, first.score)
        rows.append(
            {
                "method": pruned.options.method,
                "target": pruned.options.target,
                "against": first.options.method,
                "nll_more": more.mean,
                "nll_more_se": more.standard_error,
                "beyond_two_se": abs(more.mean) > 2 * more.standard_error,
            }
        )
    return rows


def _as_large(pruned: Pruned, first: Pruned) -> bool:
    """Whether they removed as much; whole layers, for one, come in large steps."""
    return abs(pruned.share_removed - first.share_removed) < 0.01


def comparison_notes(job: Job) -> list[str]:
    """Which methods are not comparable with the main one, and which are better than it."""
    first = job.pruned[0]
    notes = [
        f"{pruned.options.method} comes in large steps: it removed {pruned.share_removed:.1%} of the "
        f"{pruned.options.target:.1%} wanted, so it is not among the differences."
        for pruned in job.pruned
        if not _as_large(pruned, next(p for p in job.pruned if p.options.target == pruned.options.target))
    ]
    return notes + [
        f"{row['method']} did better than {row['against']} by {-row['nll_more']:.3f} nats a token, beyond two standard "
        f"errors: --method {row['method']} takes it."
        for row in differences(job)
        if row["beyond_two_se"] and row["nll_more"] < 0 and row["target"] == first.options.target
    ]


def totals(job: Job) -> list[dict[str, Any]]:
    """What the main method's model costs, and the dense one: by shapes."""
    named = {job.pruned[0].options.method: job.sizes(job.pruned[0]), DENSE: job.dense}
    return [
        {
            "method": name,
            "decoder_parameters": sizes.decoder_parameters,
            "decoder_share": sizes.decoder_parameters / job.dense.decoder_parameters,
            f"gflops_per_token_at_{CONTEXT}": sizes.flops_per_token / 1e9,
            "kv_bytes_per_token": sizes.kv_bytes_per_token,
            "weights_mib": sizes.weight_bytes / 2**20,
        }
        for name, sizes in named.items()
    ]


def speeds(job: Job, measured: Sequence[Measured | None]) -> list[dict[str, Any]]:
    """Prefill and decoding of every method that was measured, each before the dense model in the same turns."""
    rows = []
    for pruned, m in zip(job.pruned, measured, strict=True):
        if m:
            turns = {"target": pruned.options.target, "turns_with": pruned.options.method}
            for name, speed in ((pruned.options.method, m.pruned), (DENSE, m.dense)):
                rows.append({"method": name, **turns, **speed_figures(speed, m.dense)})
    return rows


def speed_figures(speed: Speed, reference: Speed) -> dict[str, Any]:
    """Median, lowest and highest of the turns, and how many times as fast as ``reference``."""
    figures: dict[str, Any] = {}
    for kind in ("prefill", "decode"):
        rate, other = getattr(speed, kind), getattr(reference, kind)
        figures |= {
            f"{kind}_tokens_per_second": rate.median,
            f"{kind}_low": rate.low,
            f"{kind}_high": rate.high,
            f"{kind}_speedup": speedup(rate, other),
        }
    return figures


def by_layer(pruned: Pruned) -> list[dict[str, Any]]:
    """The plan, layer by layer, and what cutting and repair did to each layer's two outputs."""
    return [
        {
            "layer": layer.index,
            "cosine": layer.cosine,
            "ratio": layer.ratio,
            "heads": len(layer.heads),
            "kv_heads": len(layer.kv),
            "channels": len(layer.channels),
            **_losses(record),
            "kept_heads": ranges(layer.heads),
        }
        for layer, record in zip(pruned.plan.layers, pruned.records, strict=True)
    ]


def stages(pruned: Pruned) -> list[dict[str, Any]]:
    """Where the seconds of a method went."""
    named = {f"{what}_seconds": sum(getattr(r, f"{what}_seconds") for r in pruned.records) for what in _STAGES}
    static, kept = (
        [x for r in pruned.records if (x := getattr(r, name)) is not None] for name in ("pearson_static", "pearson")
    )
    return [
        {
            "method": pruned.options.method,
            **named,
            "search_share": named["search_seconds"] / pruned.seconds if pruned.seconds else 0.0,
            "head_sets_tried": sum(record.evaluations for record in pruned.records),
            "correlation_by_score": sum(static) / len(static) if static else None,
            "correlation_after_search": sum(kept) / len(kept) if kept else None,
        }
    ]


_STAGES = ("scoring", "search", "repair")


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as a person writes them: 0-3 5 8-9."""
    breaks = [i + 1 for i, (a, b) in enumerate(pairwise(numbers)) if b != a + 1]
    parts = [numbers[start:stop] for start, stop in pairwise([0, *breaks, len(numbers)])]
    return " ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts if part)


def _figures(
    score: Score | None, dense_score: Score | None, sizes: Sizes, dense: Sizes, speed: Speed | None
) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if score and dense_score:
        fit, more = score.perplexity, _more(score, dense_score)
        figures = {
            "perplexity": fit.mean,
            "perplexity_se": fit.standard_error,
            "nll_more": more.mean,
            "nll_more_se": more.standard_error,
        }
    return figures | {
        "parameters": sizes.parameters,
        "parameter_share": sizes.parameters / dense.parameters,
        "decoder_share": sizes.decoder_parameters / dense.decoder_parameters,
        "prefill_tokens_per_second": speed.prefill.median if speed else None,
    }


def _more(score: Score, other: Score) -> Estimate:
    """Loss a token, over that of another model on the same windows."""
    return paired_difference(score.nll / score.tokens, other.nll / other.tokens)


def _losses(record: LayerRecord) -> dict[str, Any]:
    return {
        f"{name}_{what}": getattr(loss, field) if loss else None
        for name, loss in (("attention", record.attention), ("ffn", record.ffn))
        for what, field in (("correlation", "correlation"), ("gain", "gain"))
    }

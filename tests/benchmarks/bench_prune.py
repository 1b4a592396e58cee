"""Time of pruning a model, and of the greedy search for heads against the same search over tokens, in one run.

    python tests/benchmarks/bench_prune.py [MODEL]

MODEL is smollm2-135m, where it is fetched, or tiny. The search over tokens is as the paper's authors have it: it sums
the kept heads' contributions and correlates them with all heads' for every exchange. Both search from the same order;
the kept sets are compared. Pruning is timed by the clock and by the processor's, which others' load distorts less.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from bench_codec import cpu_model  # first: it sets one thread before torch starts its pool

# isort: split
import torch

from icml25cli.core.errors import MissingError
from icml25cli.core.models import ModelSource, load_tokenizer, resolve
from icml25cli.core.runs import Run
from icml25cli.core.streaming import StreamedModel
from icml25cli.core.text import find_text, token_stream, windows
from icml25cli.papers.prune.heads import drop_order, removal_correlations, search, split
from icml25cli.papers.prune.methods import Options
from icml25cli.papers.prune.pipeline import prune_model
from icml25cli.papers.prune.statistics import Moments, head_sums

WINDOW, CALIBRATION, EVALUATION = 128, 32, 24
# Heads, width of a head, width of the model, tokens, heads to drop: like SmolLM2-135M, and of 32 heads.
SHAPES = ((9, 64, 576, 4096, 2), (32, 64, 2048, 2048, 8))


def prune(source: ModelSource, options: Options) -> None:
    model, tokenizer = StreamedModel(source), load_tokenizer(source)

    def text(part, count: int) -> torch.Tensor:
        return torch.from_numpy(windows(token_stream(find_text("builtin", part), tokenizer), WINDOW, count=count))

    calibration, evaluation = text("calibration", CALIBRATION), text("test", EVALUATION)
    clock, processor = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory() as folder, Run.open(Path(folder) / "run", {}) as run:
        pruned = prune_model(model, options, calibration, evaluation, run)
    seconds = {
        what: sum(getattr(record, f"{what}_seconds") for record in pruned.records)
        for what in ("scoring", "search", "repair")
    }
    layers = sum(record.seconds for record in pruned.records)
    print(
        f"\n{source.name}, {options.gqa}, {options.target:.0%}, {CALIBRATION} x {WINDOW} tokens: "
        f"{time.monotonic() - clock:.1f} s, of the processor {time.process_time() - processor:.1f} s"
    )
    print(f"  dense pass {pruned.seconds - layers:6.1f} s\n  layers     {layers:6.1f} s, of them")
    for what, spent in seconds.items():
        print(f"    {what:8} {spent:6.2f} s, {spent / pruned.seconds:.1%} of all")
    assert pruned.score
    assert pruned.dense_score
    print(f"  perplexity {pruned.dense_score.perplexity.mean:.2f} -> {pruned.score.perplexity.mean:.2f}")


def over_tokens(contributions: torch.Tensor, dropped: list[int], kept: list[int]) -> tuple[int, ...]:
    """Greedy search; contributions are (tokens, d, heads)."""
    whole = contributions.sum(2)
    centred, deviation = whole - whole.mean(0), whole.std(0, correction=0)

    def pearson(heads: list[int]) -> float:
        some = contributions[:, :, heads].sum(2)
        covariance = ((some - some.mean(0)) * centred).mean(0)
        return (covariance / (some.std(0, correction=0) * deviation)).abs().sum().item()

    best = pearson(kept)
    for head in dropped:
        trials = [[*kept[:place], head, *kept[place + 1 :]] for place in range(len(kept))]
        values = [pearson(trial) for trial in trials]
        if max(values) > best:
            best, kept = max(values), trials[values.index(max(values))]
    return tuple(sorted(kept))


def greedy(units: int, width: int, d: int, tokens: int, drop: int) -> None:
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(units * width, units * width, generator=generator) / (units * width) ** 0.5
    inputs = torch.randn(tokens, units * width, generator=generator) @ mixing
    weight = torch.randn(d, units * width, generator=generator)
    spent = {}

    started = time.thread_time()
    moments = Moments(units * width, cross=True)
    for part in inputs.split(1024):
        moments.add(part)
    sums = head_sums(moments, weight, units)
    dropped, kept = split(drop_order(-removal_correlations(sums)).tolist(), drop, [0] * units)
    spent["ours, sums"] = time.thread_time() - started
    started = time.thread_time()
    ours = search(sums, dropped, kept, [0] * units)
    spent["ours, search"] = time.thread_time() - started

    started = time.thread_time()
    parts = zip(inputs.chunk(units, 1), weight.chunk(units, 1), strict=True)
    contributions = torch.stack([x @ w.T for x, w in parts], dim=2)
    spent["over tokens, sums"] = time.thread_time() - started
    started = time.thread_time()
    theirs = over_tokens(contributions, dropped, kept)
    spent["over tokens, search"] = time.thread_time() - started

    print(f"\ngreedy search, {drop} of {units} heads go, d = {d}, {tokens} tokens, {ours.evaluations} exchanges")
    for what, seconds in spent.items():
        print(f"  {what:20} {seconds:8.3f} s")
    searching = spent["over tokens, search"] / spent["ours, search"]
    ours_all, theirs_all = (sum(seconds for what, seconds in spent.items() if who in what) for who in ("ours", "over"))
    same = "equal" if ours.kept == theirs else "DIFFERENT"
    print(f"  ratio {searching:.0f} of the search, {theirs_all / ours_all:.1f} with the sums; {same} sets")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"{cpu_model()}, {args.threads} threads, load {os.getloadavg()[0]:.1f}")
    for shape in SHAPES:
        greedy(*shape)
    try:
        source = resolve(args.model)
    except MissingError as error:
        print(f"\n{error.message}; tiny instead")
        source = resolve("tiny")
    for gqa in ("group", "expand"):
        prune(source, Options(gqa=gqa))


if __name__ == "__main__":
    main()

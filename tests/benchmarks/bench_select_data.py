"""Gradients and projections of `select-data` beside the plain form in the same run.

    python tests/benchmarks/bench_select_data.py

Gradients of 64 rows of 64 tokens, tiny with adapters on attention: by hooks in batches, and row by row by autograd, as
LESS's scripts do. Projection of 64 gradients of 32,768 numbers to 8,192: our count-sketch beside traker's
BasicProjector, where it is installed, and Spearman's correlation of scores with those without projection. Seconds are
of the processor, one thread, best of three.
"""

import os
import time
from collections.abc import Callable

from bench_codec import cpu_model  # first: it sets one thread before torch starts its pool

# isort: split
import numpy as np
import torch
from scipy.stats import spearmanr

from icml25cli.core.errors import MissingError
from icml25cli.core.models import resolve
from icml25cli.papers.select_data.adapters import Adapter, adapted, linear_maps, trained
from icml25cli.papers.select_data.gradients import feature_of, row_features
from icml25cli.papers.select_data.projection import make_projection
from icml25cli.papers.select_data.scoring import normalized
from icml25cli.papers.select_data.tokens import Example
from icml25cli.papers.select_data.training import row_losses

ROWS, LENGTH, PROMPTS = 64, 64, 8
WIDE, WIDTH = 32_768, 8_192


def best(work: Callable[[], object], turns: int = 3) -> float:
    seconds = []
    for _ in range(turns):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def gradients() -> np.ndarray:
    rng = np.random.default_rng(0)
    # Words come from small pieces of the vocabulary, so that rows are alike and unlike, as rows of real pools are.
    rows = []
    for i in range(ROWS + PROMPTS):
        first = 500 * (i % 7)
        rows.append(
            Example(rng.integers(first, first + 300, LENGTH).astype(np.int32), np.arange(LENGTH) >= LENGTH // 2)
        )
    model = adapted(resolve("tiny"), Adapter(rank=32, alpha=128)).eval()
    with torch.no_grad():
        for x in trained(model).values():
            x.add_(0.02 * torch.randn_like(x))
    sizes = {name: module.weight.numel() for name, module in linear_maps(model).items()}
    whole = make_projection("none", sizes)
    pool = rows[:ROWS]

    def loop() -> torch.Tensor:
        found = []
        for row in pool:
            grads = torch.autograd.grad(row_losses(model, [row], mean=True).sum(), list(trained(model).values()))
            found.append(torch.cat([g.flatten() for g in grads]))
        return torch.stack(found)

    hooked = row_features(model, pool, whole, feature_of("sgd"), mean=True)
    off = ((hooked - loop()).norm(dim=1) / hooked.norm(dim=1)).max().item()
    ours = best(lambda: row_features(model, pool, whole, feature_of("sgd"), mean=True))
    theirs = best(loop)
    print(f"gradients of {ROWS} rows of {LENGTH} tokens, {whole.width} numbers each: hooks {ours:.2f} s, ", end="")
    print(f"one row at a time {theirs:.2f} s, {theirs / ours:.1f} times; largest relative error {off:.1e}")
    exact = row_features(model, rows, whole, feature_of("sgd"), mean=True).numpy()
    small = row_features(
        model, rows, make_projection("countsketch", sizes, WIDTH), feature_of("sgd"), mean=True
    ).numpy()
    scores = [(normalized(x[:ROWS]) @ normalized(x[ROWS:]).T).mean(1) for x in (exact, small)]
    print(
        f"Spearman's correlation of scores, {whole.width} numbers against {WIDTH}: {spearmanr(*scores).statistic:.4f}"
    )
    return exact


def projections() -> None:
    torch.manual_seed(0)
    rows = torch.randn(ROWS, WIDE)
    ours = make_projection("countsketch", {"x": WIDE}, WIDTH)

    def sketch() -> torch.Tensor:
        sums = ours.zeros(ROWS, "cpu")
        ours.add(sums, "x", rows)
        return ours.finish(sums)

    sketch()
    quick = best(sketch)
    try:
        peer = make_projection("trak", {"x": WIDE}, WIDTH)
    except MissingError as error:
        print(f"projection {quick:.4f} s; {error.message}")
        return
    slow = best(lambda: peer.finish(rows), turns=1)
    found = sketch()
    errors = []
    for projected in (found, peer.finish(rows)):
        cosines = [torch.nn.functional.normalize(x, dim=1) for x in (projected, rows)]
        errors.append((cosines[0] @ cosines[0].T - cosines[1] @ cosines[1].T).abs().sum().item() / ROWS / (ROWS - 1))
    print(
        f"projection of {ROWS} x {WIDE} to {WIDTH}: count-sketch {quick:.4f} s, BasicProjector {slow:.2f} s, ", end=""
    )
    print(f"{slow / quick:.0f} times; mean error of a cosine {errors[0]:.4f} and {errors[1]:.4f}")


if __name__ == "__main__":
    print(f"{cpu_model()}, load {os.getloadavg()[0]:.1f}")
    gradients()
    projections()

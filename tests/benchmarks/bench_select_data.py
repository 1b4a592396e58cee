"""Gradients and projections of `select-data` beside the plain form in the same run.

    python tests/benchmarks/bench_select_data.py

Gradients of 64 rows of 64 tokens, of a model of a million parameters and of tiny, with adapters on attention: by hooks
in batches; row by row by autograd with the same loss, whose logits are those of answers alone; and row by row with the
model's own loss, as LESS's scripts do. Projection of 64 gradients of 32,768 numbers to 8,192: our
count-sketch beside traker's BasicProjector, where it is installed; and Spearman's correlation of scores on tiny with
those without projection. Seconds are of the processor, one thread, best of three.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench_codec import cpu_model  # first: it sets one thread before torch starts its pool

# isort: split
import numpy as np
import torch
from scipy.stats import rankdata
from transformers import LlamaConfig, LlamaForCausalLM

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


def examples(vocabulary: int) -> list[Example]:
    """Rows of words from small pieces of the vocabulary: alike and unlike, as rows of real pools are."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(ROWS + PROMPTS):
        first = vocabulary // 8 * (i % 7)
        tokens = rng.integers(first, first + vocabulary // 8, LENGTH).astype(np.int32)
        rows.append(Example(tokens, np.arange(LENGTH) >= LENGTH // 2))
    return rows


def gradients(name: str | Path, rank: int, *, projected: bool = False) -> None:
    model = adapted(resolve(name), Adapter(rank=rank, alpha=4.0 * rank)).eval()
    with torch.no_grad():
        for x in trained(model).values():
            x.add_(0.02 * torch.randn_like(x))
    sizes = {name: module.weight.numel() for name, module in linear_maps(model).items()}
    whole = make_projection("none", sizes)
    rows = examples(model.config.vocab_size)
    pool = rows[:ROWS]

    def loop() -> torch.Tensor:
        found = []
        for row in pool:
            grads = torch.autograd.grad(row_losses(model, [row], mean=True).sum(), list(trained(model).values()))
            found.append(torch.cat([g.flatten() for g in grads]))
        return torch.stack(found)

    def less() -> torch.Tensor:
        found = []
        for row in pool:
            tokens = torch.from_numpy(row.tokens).long()[None]
            labels = tokens.masked_fill(~torch.from_numpy(row.answer)[None], -100)
            model(input_ids=tokens, labels=labels, use_cache=False).loss.backward()
            found.append(torch.cat([x.grad.flatten() for x in trained(model).values() if x.grad is not None]))
            model.zero_grad()
        return torch.stack(found)

    hooked = row_features(model, pool, whole, feature_of("sgd"), mean=True)
    off = max(((hooked - plain()).norm(dim=1) / hooked.norm(dim=1)).max().item() for plain in (loop, less))
    ours = best(lambda: row_features(model, pool, whole, feature_of("sgd"), mean=True))
    theirs, scripts = best(loop), best(less)
    parameters = sum(x.numel() for x in model.parameters())
    print(f"{parameters / 1e6:.1f} million parameters, gradients of {ROWS} rows of {LENGTH} tokens, ", end="")
    print(f"{whole.width} numbers each: hooks {ours:.2f} s, one row at a time {theirs:.2f} s, ", end="")
    print(f"{theirs / ours:.2f} times, ", end="")
    print(f"as LESS's scripts {scripts:.2f} s, {scripts / ours:.2f} times; largest relative error {off:.1e}")
    if projected:
        features = [row_features(model, rows, whole, feature_of("sgd"), mean=True)]
        sketch = make_projection("countsketch", sizes, WIDTH)
        features.append(row_features(model, rows, sketch, feature_of("sgd"), mean=True))
        scores = [(normalized(x[:ROWS]) @ normalized(x[ROWS:]).T).mean(1) for x in (f.numpy() for f in features)]
        correlation = np.corrcoef(*(rankdata(x) for x in scores))[0, 1]
        print(f"Spearman's correlation of scores, {whole.width} numbers against {WIDTH}: {correlation:.4f}")


def small_llama(folder: Path) -> Path:
    """A model of a million parameters whose adapters of rank 8 have 32,768."""
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


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
    with tempfile.TemporaryDirectory() as folder:
        gradients(small_llama(Path(folder)), rank=8)
    gradients("tiny", rank=32, projected=True)
    projections()

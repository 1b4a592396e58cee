"""Speed of `sae` beside the plain form in the same run, and memory by number of rows.

    python tests/benchmarks/bench_sae.py [EMBEDDINGS]

EMBEDDINGS are smollm2-135m's token embeddings, where it is fetched, or tiny's. A training step goes by shells and, as
its rival, level by level: a TopK, a product and an error each, gradients by autograd. Decoding at k = 64 goes row by
row of the decoder and, as its rival, as one dense product. Seconds are of the processor, one thread, best of several,
which load distorts less than the clock. Memory is the most anonymous memory while rows of a file are split, trained on
for one epoch and judged; a block of them is at most 2^18 rows.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench_codec import cpu_model  # first: it sets one thread before torch starts its pool

# isort: split
import numpy as np
import torch

from icml25cli.core.embeddings import Embeddings, open_embeddings
from icml25cli.core.errors import MissingError
from icml25cli.core.survey import survey
from icml25cli.papers.sae.codes import sparse_product
from icml25cli.papers.sae.config import Budget, Config, auto_levels, level_weights
from icml25cli.papers.sae.job import carry_out
from icml25cli.papers.sae.methods import step
from icml25cli.papers.sae.model import Parameters, Scaling, SparseAutoencoder, initial
from icml25cli.papers.sae.nested import topk_code

BATCH, EXPANSION, K = 2048, 8, 64
MEMORY_ROWS, MEMORY_SHAPE = (50_000, 500_000, 2_000_000), (64, 128)


def best(work: Callable[[], object], turns: int = 3) -> float:
    work()
    seconds = []
    for _ in range(turns):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


@torch.enable_grad()
def level_by_level(config: Config, p: Parameters, x: torch.Tensor) -> tuple[float, torch.Tensor]:
    leaves = {name: value.detach().requires_grad_() for name, value in p.named().items()}
    pre = (x - leaves["b_pre"]) @ leaves["W_enc"] + leaves["b_enc"]
    losses = [
        a * ((topk_code(pre, k) @ leaves["W_dec"] + leaves["b_pre"] - x) ** 2).mean()
        for a, k in zip(level_weights(config), config.levels, strict=True)
    ]
    loss = torch.stack(losses).sum()
    loss.backward()
    gradient = leaves["W_dec"].grad
    assert gradient is not None
    return float(loss.detach()), gradient


def training_step(x: Embeddings, scaling: Scaling) -> None:
    n = EXPANSION * x.columns
    config = Config("msae", x.columns, n, levels=auto_levels(n))
    p = initial(config, torch.Generator().manual_seed(0))
    p.W_dec /= 0.1
    p.W_enc *= 0.1
    rows = scaling.forward(x[np.sort(np.random.default_rng(0).choice(x.rows, min(BATCH, x.rows), replace=False))])
    loss, gradient = level_by_level(config, p, rows)
    found = step(config, p, rows)
    apart = float((found.gradients["W_dec"] - gradient).norm() / gradient.norm())
    ours, plain = best(lambda: step(config, p, rows)), best(lambda: level_by_level(config, p, rows))
    print(f"\nloss and gradients of one batch, {len(rows)} x {x.columns}, n = {n}, {len(config.levels)} levels")
    print(f"  by shells      {ours:7.3f} s\n  level by level {plain:7.3f} s   {plain / ours:.2f} times")
    print(f"  loss {found.loss:.6f} and {loss:.6f}, gradients apart {apart:.1e}")


def decoding(x: Embeddings, scaling: Scaling) -> None:
    n = EXPANSION * x.columns
    config = Config("topk", x.columns, n, k=K)
    model = SparseAutoencoder(config, initial(config, torch.Generator().manual_seed(0)), scaling)
    z = topk_code(model.codes(x[:BATCH]), K)
    row, column = torch.nonzero(z, as_tuple=True)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row.numpy(), minlength=len(z)))])
    indices, data, W = column.to(torch.int32).numpy(), z[row, column].numpy(), model.parameters.W_dec
    sparse = best(lambda: sparse_product(indptr, indices, data, W, model), 5)
    dense = best(lambda: z @ W, 5)
    apart = float((sparse_product(indptr, indices, data, W, model) - z @ W).abs().max())
    print(f"\ndecoding {len(z)} rows at k = {K}, n = {n}")
    print(f"  row by row {sparse * 1e3:6.1f} ms\n  dense      {dense * 1e3:6.1f} ms   {dense / sparse:.2f} times")
    print(f"  largest difference {apart:.1e}")


def anonymous() -> int:
    """KiB of this process's memory that no file backs."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")))


def peak_of_training(file: str) -> None:
    """Print the growth of anonymous memory in MiB over the main job, one epoch of TopK and its evaluation."""
    x = open_embeddings(file)
    began, peak, done = anonymous(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    d, n = MEMORY_SHAPE
    with carry_out(x, [Config("topk", d, n, k=8)], Budget(epochs=1), (8, n), output=Path(file).parent / "out"):
        done.set()
    watcher.join()
    print((peak[0] - began) / 1024)


def memory() -> None:
    print(f"\nanonymous memory beyond what libraries take, training and evaluation, {MEMORY_SHAPE[0]} columns")
    for rows in MEMORY_ROWS:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "x.npy"
            x = np.lib.format.open_memmap(file, "w+", np.float32, (rows, MEMORY_SHAPE[0]))
            rng = np.random.default_rng(0)
            for start in range(0, rows, 50_000):
                x[start : start + 50_000] = rng.standard_normal((50_000, MEMORY_SHAPE[0]), np.float32)
            x.flush()
            del x
            command = [sys.executable, __file__, "--peak", str(file)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"  {rows:9,} rows, {file.stat().st_size / 2**20:5.0f} MiB: {float(done.stdout):6.1f} MiB")


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--peak"]:
        peak_of_training(arguments[1])
        return
    try:
        x = open_embeddings(arguments[0] if arguments else "smollm2-135m")
    except MissingError:
        x = open_embeddings("tiny")
    print(f"{cpu_model()}, 1 thread, load {os.getloadavg()[0]:.1f} before; {x.name}, {x.rows:,} x {x.columns}")
    scaling = Scaling.of(survey(x))
    training_step(x, scaling)
    decoding(x, scaling)
    memory()


if __name__ == "__main__":
    main(sys.argv[1:])

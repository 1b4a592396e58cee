"""Speed of `align` beside a straightforward dense form in the same run, and what many rows take.

    python tests/benchmarks/bench_align.py [--million]

The dense form holds n x n matrices, as published metrics do: neighbours by a full sort and two masks, HSIC by products
of matrices. Seconds are of the processor, one thread, best of several, which load distorts less than the clock. Memory
is the most anonymous memory of the program on 100,000 x 384 by all metrics, of which 4096 rows seek neighbours.
--million also times linear CKA on 1,000,000 x 768, from files of 3 GB each that are made in the temporary folder first.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_codec import cpu_model  # first: it sets one thread before torch starts its pool
from bench_sae import best

# isort: split
import numpy as np
import torch

from icml25cli.core.embeddings import of_array
from icml25cli.core.neighbours import cknna, nearest
from icml25cli.papers.align import hsic, overlap
from icml25cli.papers.align.prepared import Prepared, prepare

N, D, K = 4096, 384, 10


# --- the dense form ----------------------------------------------------------------------------------------------


def dense_mask(x: torch.Tensor) -> torch.Tensor:
    products = x @ x.T
    products.fill_diagonal_(-torch.inf)
    near = products.argsort(dim=1, descending=True)[:, :K]
    return torch.zeros_like(products).scatter_(1, near, 1.0)


def dense_mutual(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((dense_mask(x) * dense_mask(y)).sum(dim=1).mean() / K)


def dense_biased(k: torch.Tensor, l: torch.Tensor) -> torch.Tensor:  # noqa: E741
    h = torch.eye(len(k)) - 1 / len(k)
    return torch.trace(k @ h @ l @ h)


def dense_unbiased(k: torch.Tensor, l: torch.Tensor) -> torch.Tensor:  # noqa: E741
    n = len(k)
    k, l = k.clone().fill_diagonal_(0), l.clone().fill_diagonal_(0)  # noqa: E741
    total = (k * l.T).sum() + k.sum() * l.sum() / ((n - 1) * (n - 2)) - 2 * (k @ l).sum() / (n - 2)
    return total / (n * (n - 3))


def dense_cka(form, x: torch.Tensor, y: torch.Tensor) -> float:
    k, l = x @ x.T, y @ y.T  # noqa: E741
    return float(form(k, l) / (form(k, k) * form(l, l)).sqrt())


def dense_cknna(x: torch.Tensor, y: torch.Tensor) -> float:
    k, l, a, b = x @ x.T, y @ y.T, dense_mask(x), dense_mask(y)  # noqa: E741
    both = a * b
    between = dense_unbiased(both * k, both * l)
    return float(between / ((dense_unbiased(a * k, a * k) * dense_unbiased(b * l, b * l)).sqrt() + 1e-6))


# --- ours --------------------------------------------------------------------------------------------------------


def ours_mutual(x: Prepared, y: Prepared) -> float:
    return float(overlap.mutual(nearest(x[:], K).index, nearest(y[:], K).index, x.rows).mean())


def ours_cknna(x: Prepared, y: Prepared) -> float:
    return cknna(nearest(x[:], K), nearest(y[:], K))


def beside_dense() -> None:
    rng = np.random.default_rng(0)
    z = rng.standard_normal((N, 40))
    rows = [z @ rng.standard_normal((40, D)) + 6 * rng.standard_normal((N, D)) for _ in range(2)]
    x, y = (prepare(of_array("x", side)) for side in rows)
    u, v = torch.from_numpy(x[:]), torch.from_numpy(y[:])
    print(f"\n{N} x {D}, k = {K}")
    print("  metric    ours s   dense s    times   ours      dense")
    for name, ours, dense in (
        ("mknn", lambda: ours_mutual(x, y), lambda: dense_mutual(u, v)),
        ("ucka", lambda: hsic.triple(x, y).values()["ucka"], lambda: dense_cka(dense_unbiased, u, v)),
        ("cka", lambda: hsic.triple(x, y).values()["cka"], lambda: dense_cka(dense_biased, u, v)),
        ("cknna", lambda: ours_cknna(x, y), lambda: dense_cknna(u, v)),
    ):
        quick, slow = best(ours, 5), best(dense, 1)
        print(f"  {name:6} {quick:9.3f} {slow:9.3f} {slow / quick:8.1f}   {ours():.6f}  {dense():.6f}")


# --- many rows ---------------------------------------------------------------------------------------------------


def made(file: Path, rows: int, columns: int, seed: int) -> None:
    """Rows with a part that files of other seeds share."""
    x = np.lib.format.open_memmap(file, "w+", np.float32, (rows, columns))
    own = np.random.default_rng(seed)
    turn = own.standard_normal((16, columns), np.float32)
    for start in range(0, rows, 50_000):
        shared = np.random.default_rng((9, start)).standard_normal((50_000, 16), np.float32)[: rows - start]
        x[start : start + 50_000] = shared @ turn + own.standard_normal((len(shared), columns), np.float32)
    x.flush()


def timed(files: list[Path], *options: str) -> None:
    """Run the program on files; say what it found, its seconds and its most memory."""
    command = [sys.executable, __file__, "--run", "align", *map(str, files), *options, "--json", "--quiet"]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wall = time.perf_counter() - began
    report, used = done.stdout.rsplit("\n", 2)[:2]
    found = {row["metric"]: row["value"] for row in json.loads(report)["rows"] if row["value"] is not None}
    processor, memory = json.loads(used)
    print(f"  {', '.join(f'{name} {value:.4f}' for name, value in found.items())}")
    print(f"  {wall:.1f} s by the clock, {processor:.1f} s of the processor, {memory:.0f} MiB anonymous at most")


def most_anonymous(work) -> float:
    """MiB of memory that no file backs, at most, while ``work`` runs."""
    import threading

    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            status = Path("/proc/self/status").read_text()
            peak[0] = max(peak[0], int(next(s.split()[1] for s in status.splitlines() if s.startswith("RssAnon"))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return peak[0] / 1024


def run_program(arguments: list[str]) -> None:
    from icml25cli.main import main as program

    memory = most_anonymous(lambda: program(arguments))
    spent = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([spent.ru_utime + spent.ru_stime, memory]))


def many(rows: int, columns: int, *runs: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{name}.npy" for name in "ab"]
        for seed, file in enumerate(files):
            made(file, rows, columns, seed)
        os.environ["ICML25_CACHE_DIR"] = str(Path(folder) / "cache")
        for options in runs:
            print(f"\n{rows:,} x {columns}, {' '.join(options) or 'all metrics'}")
            timed(files, *options)


def linear_alone(rows: int, columns: int) -> None:
    """The sums and the figure alone, without reading rows for what is wrong with them."""
    from icml25cli.core.embeddings import open_embeddings

    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{name}.npy" for name in "ab"]
        for seed, file in enumerate(files):
            made(file, rows, columns, seed)
        x, y = (prepare(open_embeddings(str(file))) for file in files)
        wall, processor = time.perf_counter(), time.process_time()
        value = hsic.triple(x, y).values()["cka"]
        print(f"\n{rows:,} x {columns}, linear CKA from files: {value:.4f}")
        seconds = time.perf_counter() - wall, time.process_time() - processor
        print(f"  {seconds[0]:.1f} s by the clock, {seconds[1]:.1f} s of the processor")


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--run"]:
        run_program(arguments[1:])
        return
    torch.set_num_threads(1)
    print(f"{cpu_model()}, 1 thread, load {os.getloadavg()[0]:.1f} before")
    beside_dense()
    many(100_000, 384, ("--null", "50"))
    if "--million" in arguments:
        linear_alone(1_000_000, 768)
        many(1_000_000, 768, ("--metric", "cka,ucka", "--no-ci"), ("--metric", "ucka,mknn", "--null", "20"))


if __name__ == "__main__":
    main(sys.argv[1:])

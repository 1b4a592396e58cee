"""Where the time of LDLQ and GPTQ on one matrix goes, against a plain matrix product of the same flops in the same run.

    python tests/benchmarks/bench_matrix.py

Feedback of LDLQ and GPTQ takes m n^2 flops each. Times are CPU seconds of the one thread that works, which load on the
machine distorts less than it does the clock, the best of several runs that take turns.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from bench_codec import cpu_model  # first: it sets one thread before torch starts its pool

# isort: split
import os

import torch

from icml25cli.papers.quantize.gptq import gptq, inverse_factor
from icml25cli.papers.quantize.hessian import block_ldl
from icml25cli.papers.quantize.ldlq import ldlq
from icml25cli.papers.quantize.matrix import nestquant, quadratic, quantize_matrix
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.scales import reference_code

SHAPES = ((2048, 2048), (2048, 5632))
REPEATS = 3
CODE = reference_code("weights", 14)


def once(m: int, n: int, seed: int) -> dict[str, float]:
    """Seconds of every part, on one problem."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(m, n, generator=generator)
    x = torch.randn(n, n, generator=generator)
    hessian = (x.T @ x).div_(n)
    rotation = Rotation("random-hadamard", n)
    seconds: defaultdict[str, float] = defaultdict(float)

    def timed(part: str, task: Callable[..., Any], *arguments: Any) -> Any:
        start = time.thread_time()
        result = task(*arguments)
        seconds[part] += time.thread_time() - start
        return result

    def encode(_block: int, target: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(timed("encode", CODE.quantize, target.numpy()).values)

    timed("plain", torch.matmul, weight, hessian[:, : n // 2])
    factor = timed("ldl", block_ldl, hessian.clone(), 8)
    timed("ldlq", ldlq, weight, factor.matrix, encode)
    factor = timed("inverse", inverse_factor, hessian.clone())
    timed("gptq", gptq, weight, factor.matrix, 4, 128)
    timed("conjugate", rotation.conjugate, hessian)
    timed("loss", quadratic, weight, hessian)
    timed("matrix", quantize_matrix, weight, hessian, nestquant(CODE), rotation)
    return dict(seconds)


def main() -> None:
    torch.set_num_threads(1)
    once(64, 64, 0)  # compiles the lattice code
    print(f"{cpu_model()}, 1 thread, load {os.getloadavg()[0]:.1f} before")
    for m, n in SHAPES:
        runs = [once(m, n, seed) for seed in range(REPEATS)]
        best = {part: min(run[part] for run in runs) for part in runs[0]}
        plain, encode, feedback = best["plain"], best["encode"], best["ldlq"] - best["encode"]
        total = best["ldl"] + best["ldlq"]
        print(f"\n{m} x {n}, best of {REPEATS}, load {os.getloadavg()[0]:.1f}")
        print(f"  plain product {plain:6.2f} s, {m * n * n / plain / 1e9:.1f} Gflop/s")
        print(f"  LDLQ          {total:6.2f} s, {total / plain:.2f} of the product")
        print(f"    Cholesky    {best['ldl']:6.2f} s, {best['ldl'] / total:.0%}")
        print(f"    feedback    {feedback:6.2f} s, {feedback / total:.0%}, {m * n * n / feedback / 1e9:.1f} Gflop/s")
        print(f"    encode      {encode:6.2f} s, {encode / total:.0%}, {m * n / encode / 1e6:.0f} million values/s")
        total = best["inverse"] + best["gptq"]
        print(f"  GPTQ          {total:6.2f} s, {total / plain:.2f} of the product")
        print(f"    Cholesky    {best['inverse']:6.2f} s, {best['inverse'] / total:.0%}, two and an inverse")
        print(f"    columns     {best['gptq']:6.2f} s, {best['gptq'] / total:.0%}")
        print(f"  whole matrix  {best['matrix']:6.2f} s by LDLQ, of it")
        print(f"    rotating H  {best['conjugate']:6.2f} s")
        print(f"    loss        {2 * best['loss']:6.2f} s")


if __name__ == "__main__":
    main()

"""Speed of the lattice code on one thread, against its plain numpy form and scalar rounding in torch, in the same run.

    python tests/benchmarks/bench_codec.py

Rates are millions of values a second, best of several runs that take turns, so that load on the machine falls on all.
Targets on a quiet core: encode 30, decode 100, unpack 300, 20 times numpy, half of torch RTN.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch start their pools

import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from icml25cli.papers.quantize import torch_codec
from icml25cli.papers.quantize.lattice import union_encode, voronoi_decode
from icml25cli.papers.quantize.packing import pack, pack_entropy, unpack, unpack_entropy
from icml25cli.papers.quantize.scales import reference_code

ROWS, COLUMNS, GROUP = 2048, 2048, 128
PLAIN_ROWS = 128  # numpy is slow, as are torch and zstandard here: a sixteenth of the work tells their rate
REPEATS = 7


def round_to_nearest(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Asymmetric int4 in groups of 128: codes, scale and zero point."""
    groups = x.view(ROWS, -1, GROUP)
    low, high = groups.aminmax(dim=-1, keepdim=True)
    scale = (high - low).clamp_(min=1e-12) / 15
    zero = (-low / scale).round_()
    return (groups / scale).round_().add_(zero).clamp_(0, 15).to(torch.uint8), scale, zero


def cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def main() -> None:
    torch.set_num_threads(1)
    code = reference_code("weights", 14)
    q, k = code.q, len(code.betas)
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    tensor, blocks = torch.from_numpy(x), x.reshape(-1, 8)
    digits, index = code.encode(blocks)
    rows = digits.reshape(ROWS, -1, 8), index.reshape(ROWS, -1)
    packed, compressed = pack(*rows, q, k), pack_entropy(*rows, q)
    simplified, first = replace(code, simplified=True), replace(code, rule="first")
    few = slice(0, PLAIN_ROWS * COLUMNS // 8)
    slow = torch.from_numpy(blocks[few])
    betas = np.array(code.betas, np.float32)

    def decode_packed() -> None:
        unpacked, indices = unpack(packed, q, k)
        code.decode(unpacked.reshape(-1, 8), indices.ravel())

    tasks: dict[str, tuple[int, Callable[[], object]]] = {
        "encode": (x.size, lambda: code.encode(blocks)),
        "encode simplified": (x.size, lambda: simplified.encode(blocks)),
        "encode first": (x.size, lambda: first.encode(blocks)),
        "decode": (x.size, lambda: code.decode(digits, index)),
        "pack": (x.size, lambda: pack(*rows, q, k)),
        "unpack": (x.size, lambda: unpack(packed, q, k)),
        "unpack entropy": (x.size, lambda: unpack_entropy(compressed, q, k, COLUMNS // 8)),
        "decode packed": (x.size, decode_packed),
        "torch RTN int4 g128": (x.size, lambda: round_to_nearest(tensor)),
        "pack entropy": (blocks[few].size, lambda: pack_entropy(rows[0][:PLAIN_ROWS], rows[1][:PLAIN_ROWS], q)),
        "torch encode": (blocks[few].size, lambda: torch_codec.quantize(slow, q, betas, False, "opt")),
        "numpy encode": (blocks[few].size, lambda: union_encode(blocks[few], q, code.betas)),
        "numpy decode": (blocks[few].size, lambda: betas[index[few], None] * voronoi_decode(digits[few], q)),
    }
    load_before = os.getloadavg()[0]
    seconds = dict.fromkeys(tasks, float("inf"))
    for _ in range(REPEATS):
        for name, (_, task) in tasks.items():
            start = time.perf_counter()
            task()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    rate = {name: size / seconds[name] / 1e6 for name, (size, _) in tasks.items()}

    print(f"{cpu_model()}, 1 thread, load {load_before:.1f} before and {os.getloadavg()[0]:.1f} after")
    print(f"q = {q}, k = {k}, {ROWS} x {COLUMNS} float32, best of {REPEATS}")
    for name, (size, _) in tasks.items():
        print(f"{name:20} {rate[name]:8.1f} Mvalues/s   {size} values in {seconds[name]:.4f} s")
    for name, other in (
        ("encode", "torch RTN int4 g128"),
        ("encode", "numpy encode"),
        ("decode", "numpy decode"),
    ):
        ratio = rate[name] / rate[other]
        print(f"{name} / {other}: {ratio:.2f}x   ({rate[name]:.1f} against {rate[other]:.1f} Mvalues/s)")


if __name__ == "__main__":
    main()

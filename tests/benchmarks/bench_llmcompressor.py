"""NestQuant and our GPTQ against llm-compressor's GPTQ W4A16: same model, calibration windows and evaluation windows.

    python tests/benchmarks/bench_llmcompressor.py --build DIR [MODEL] [--tokens N]

Off by default, as it installs packages: --build makes a virtual environment in DIR, or uses the one that is there, with
llm-compressor and what it needs, and with the torch that this runs on. MODEL is an alias or a directory, --calib and
--eval name other texts than the built-in ones. What it decodes to is judged by our code, on Hessians of the float model
like all others; its own are of the model quantised so far. Bits are of codes and scales as it saves them. Seconds are
CPU seconds of one thread, which load distorts less than the clock: of fitting, calibrating and coding with the model
loaded, and of a whole process from start to files, which with us also judges two windows.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch start their pools

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from bench_codec import cpu_model
from safetensors.torch import load_file, save_file
from torch import Tensor

from icml25cli.core.models import ModelSource, resolve
from icml25cli.core.runs import Run
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.quantize.matrix import Coded, Hessian, Method
from icml25cli.papers.quantize.model import Judged, quantize_model
from icml25cli.papers.quantize.pipeline import Candidate, Plan
from icml25cli.papers.quantize.plan import Options, fit_scales, make_plan

RELEASE = "0.14.0.1"
PEER = "llm-compressor"
ROTATION = "random-hadamard"
OURS = {"nestquant": ("nestquant", 14), "nestquant q=13": ("nestquant", 13), "gptq": ("gptq", 14)}  # method and q
TARGET = 1.5  # times its seconds
CLI = """
import time, types
from icml25cli.papers.quantize import pipeline
pipeline.time = types.SimpleNamespace(monotonic=time.process_time)  # its seconds are then CPU seconds
from icml25cli.__main__ import entry_point
entry_point()
"""


@dataclass(frozen=True)
class Timing:
    coding: float
    whole: float


def main(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    python = build(arguments.build)
    source = resolve(arguments.model)
    model = StreamedModel(source)
    options = Options(
        baselines=("gptq",),
        calibration=arguments.calib,
        evaluation=arguments.eval,
        calibration_tokens=arguments.tokens,
        evaluation_tokens=arguments.tokens,
    )
    plan, facts = make_plan(model, options)
    widths = {shape[1] for i in range(model.block_count) for shape in model.matrix_shapes(i).values()}
    group = next(size for size in (128, 64, 32, 16, 8) if all(width % size == 0 for width in widths))
    print(f"{cpu_model()}, 1 thread, load {os.getloadavg()[0]:.1f} before")
    print(f"{arguments.model}: calibration {facts.params['calibration']}; evaluation {facts.params['evaluation']}")
    print(f"{PEER} {RELEASE} takes a group that divides every width, {sorted(widths)}: {group} columns")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        peer, timing = run_peer(python, source, plan, group, place)
        judged = judge(model, plan, options, peer, place / "run")
        timings = {PEER: timing} | time_ours(model, options, arguments.model, place)
    table(judged, timings)
    print(f"load {os.getloadavg()[0]:.1f} after")


def build(directory: Path) -> Path:
    """The interpreter of the environment in ``directory``, which is made if it is not there."""
    python = directory / "bin" / "python"
    if not python.exists():
        venv.create(directory, with_pip=False)
        base = {"base": str(directory), "platbase": str(directory)}
        packages = Path(sysconfig.get_path("purelib", "venv", base))
        # After its own, the packages of this environment: the same torch, and not another of several gigabytes.
        (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"llmcompressor=={RELEASE}"], check=True)
    return python


def run_peer(python: Path, source: ModelSource, plan: Plan, group: int, place: Path) -> tuple[Method, Timing]:
    """Let it quantise the model, and make a method of what comes out: each weight has its answer."""
    save_file({"calibration": plan.calibration.contiguous()}, place / "windows.safetensors")
    script = Path(__file__).with_name("llmcompressor_gptq.py")
    out = place / PEER
    command = [python, script, source.path, place / "windows.safetensors", str(group), out]
    printed, whole = run(command)
    stored = {file: load_file(file) for file in (out / "saved").glob("*.safetensors")}
    parts = {name: tensor for tensors in stored.values() for name, tensor in tensors.items()}
    answers: dict[bytes, Coded] = {}
    decoded = load_file(out / "decoded.safetensors")
    original = StreamedModel(source)
    for i in range(original.block_count):
        for name, weight in original.block_tensors(i).items():
            if name not in decoded:
                continue
            linear = name.removesuffix(".weight")
            packed, scale = parts[f"{linear}.weight_packed"], parts[f"{linear}.weight_scale"]
            check_decoded(decoded[name], packed, scale, group)
            answers[key(weight.float())] = Coded(decoded[name], {"code": 8 * packed.nbytes, "scale": 8 * scale.nbytes})

    def look_up(weight: Tensor, _hessian: Hessian, _damping: float) -> Coded:
        return answers[key(weight)]

    method = Method(PEER, False, {"version": RELEASE, "group_size": group}, look_up)
    return method, Timing(json.loads(printed.splitlines()[-1])["seconds"], whole)


def check_decoded(weight: Tensor, packed: Tensor, scale: Tensor, group: int) -> None:
    """What is judged is what was saved: eight codes of four bits in a word, the first lowest, less 8."""
    codes = torch.stack([(packed >> (4 * i)) & 15 for i in range(8)], dim=-1).flatten(1) - 8
    torch.testing.assert_close(codes * scale.float().repeat_interleave(group, dim=1), weight, rtol=2**-7, atol=0)


def key(weight: Tensor) -> bytes:
    return hashlib.sha256(weight.contiguous().numpy().tobytes()).digest()


def judge(model: StreamedModel, plan: Plan, options: Options, peer: Method, directory: Path) -> dict[str, Judged]:
    """Everything in one run, by name."""
    coarser, _ = make_plan(model, replace(options, q=13, baselines=()))
    q13 = replace(coarser.candidates[0], method=replace(coarser.candidates[0].method, name="nestquant q=13"))
    candidates = (plan.candidates[0], q13, plan.candidates[1], Candidate(peer, "none"))
    with Run.open(directory, {}) as held:
        judged = quantize_model(model, replace(plan, candidates=candidates), held)
    return {j.candidate.method.name if j.candidate else "float": j for j in judged}


def time_ours(model: StreamedModel, options: Options, name: str, place: Path) -> dict[str, Timing]:
    timings = {}
    for label, (method, q) in OURS.items():
        fitting = 0.0
        if method == "nestquant":
            started = time.process_time()
            fit_scales(model, replace(options, q=q), ["weights"])
            fitting = time.process_time() - started
        command = [sys.executable, "-c", CLI, "quantize", "run", name, "--method", method, "--q", str(q)]
        command += ["--baseline", "none", "--calib", options.calibration, "--eval", options.evaluation]
        command += ["--calib-tokens", str(options.calibration_tokens), "--eval-tokens", "2", "--format", "bf16"]
        printed, whole = run([*command, "-o", place / label, "--json"])
        timings[label] = Timing(fitting + json.loads(printed)["rows"][0]["seconds"], whole)
    return timings


def run(command: Sequence[str | Path]) -> tuple[str, float]:
    """What a process prints, and the CPU seconds it takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stderr[-4000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def table(judged: dict[str, Judged], timings: dict[str, Timing]) -> None:
    print(
        f"\n{'':16}{'bits':>7}{'coding s':>10}{'whole s':>9}{'proxy loss':>12}{'perplexity':>17}{'KL, 1e-3 nats':>17}"
    )
    for name, j in judged.items():
        ppl, kl = j.score.perplexity, j.score.mean_kl
        line = f"{name:16}{j.bits_per_weight:7.3f}"
        line += f"{timings[name].coding:10.1f}{timings[name].whole:9.1f}{j.proxy_loss:12.6f}" if j.tensors else " " * 31
        line += f"{ppl.mean:10.3f} ± {ppl.standard_error:<4.2f}{1e3 * kl.mean:11.3f} ± {1e3 * kl.standard_error:.3f}"
        print(line)
    ours, theirs = judged["nestquant"], judged[PEER]
    ratios = timings["nestquant"].coding / timings[PEER].coding, timings["nestquant"].whole / timings[PEER].whole
    met = (
        ours.proxy_loss < theirs.proxy_loss and ours.bits_per_weight <= theirs.bits_per_weight and max(ratios) <= TARGET
    )
    print(
        f"nestquant over {PEER}: proxy loss {ours.proxy_loss / theirs.proxy_loss:.3f}, KL "
        f"{ours.score.mean_kl.mean / theirs.score.mean_kl.mean:.3f}, bits "
        f"{ours.bits_per_weight / theirs.bits_per_weight:.3f}, time {ratios[0]:.2f} coding and {ratios[1]:.2f} whole; "
        f"the target, less loss at no more bits in at most {TARGET} times its time, is {'met' if met else 'not met'}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="tiny")
    parser.add_argument("--build", type=Path, metavar="DIR", help="where its environment is, or is to be made")
    parser.add_argument("--tokens", type=int, default=16_384, help="of calibration, and of evaluation")
    parser.add_argument("--calib", default="builtin")
    parser.add_argument("--eval", default="builtin")
    given = parser.parse_args()
    if given.build is None:
        print(f"Nothing done: llm-compressor {RELEASE} needs an environment of its own. Ask for it with --build DIR.")
    else:
        main(given)

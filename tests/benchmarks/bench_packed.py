"""Speed and memory of inference from packed codes, against the same model in float32 and in bfloat16, in the same run.

    python tests/benchmarks/bench_packed.py [MODEL]

MODEL is an alias or a directory; without one it is a random Llama of 66 million parameters. One thread. Rates are the
best of several turns that the three take one after another, so that load on the machine falls on all. Memory is what
loading and 32 generated tokens add to RssAnon in a process of its own, pages mapped from the files beside it.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch start their pools

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

import icml25cli.hf  # noqa: F401  registers the packed format
from icml25cli.papers.quantize.multiply import multiply
from icml25cli.papers.quantize.packing import pack
from icml25cli.papers.quantize.scales import reference_code

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.benchmarks.bench_codec import cpu_model
from tests.make_models import make_large_llama
from tests.make_packed import make_packed

TURNS = 5
NEW_TOKENS = 32
FORMS = {"packed": ("packed", torch.float32), "float32": ("bf16", torch.float32), "bfloat16": ("bf16", torch.bfloat16)}
MEASURE = """
import re, sys, torch
import icml25cli.hf
from transformers import AutoModelForCausalLM, GenerationMixin, LlamaForCausalLM

def memory(kind):
    return int(re.search(kind + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1e3

before = memory("RssAnon"), memory("RssFile")
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=getattr(torch, sys.argv[2]))
model.generate(torch.arange(16)[None], max_new_tokens=32, min_new_tokens=32, do_sample=False, pad_token_id=0)
print(memory("RssAnon") - before[0], memory("RssFile") - before[1])
"""


def seconds(tasks: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least time of each task, after one run that does not count."""
    best = dict.fromkeys(tasks, float("inf"))
    for turn in range(TURNS + 1):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            if turn:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def products() -> None:
    """One matrix of a large model, by the number of tokens."""
    rows, width = 4096, 4096
    code = reference_code("weights", 14)
    rng = np.random.default_rng(0)
    blocks = (rows, width // 8)
    digits = rng.integers(0, code.q, (*blocks, 8), dtype=np.uint8)
    packed = pack(digits, rng.integers(0, len(code.betas), blocks, dtype=np.uint8), code.q, len(code.betas))
    codes, high = torch.from_numpy(packed["codes"]), torch.from_numpy(packed["codes_high"])
    weight = torch.randn(rows, width)
    half = weight.bfloat16()
    size = codes.nbytes + high.nbytes
    print(f"{rows} x {width}: {size / 1e6:.1f} MB of codes, {weight.nbytes / 1e6:.0f} MB in float32")
    for tokens in (1, 4, 16, 64, 256):
        x = torch.randn(tokens, width)
        y = x.bfloat16()
        taken = seconds({
            "packed": lambda x=x: multiply(x, codes, high, code),
            "float32": lambda x=x: x @ weight.T,
            "bfloat16": lambda y=y: y @ half.T,
        })  # fmt: skip
        rates = "".join(f"{name} {weight.numel() / t / 1e6:>7.0f} Mweights/s   " for name, t in taken.items())
        ratio = taken["packed"] / taken["float32"]
        print(f"  {tokens:>3} tokens   {rates}packed takes {ratio:.1f} times float32's time")
        if tokens == 1:
            print(f"              as fast as float32 weights read at {weight.nbytes / taken['packed'] / 1e9:.1f} GB/s")


@torch.no_grad()
def generation(place: Path) -> None:
    models = {
        name: AutoModelForCausalLM.from_pretrained(place / directory, dtype=dtype)
        for name, (directory, dtype) in FORMS.items()
    }
    prompt = torch.arange(16)[None]

    def generate(model) -> Callable[[], object]:
        settings = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": 0}
        return lambda: model.generate(prompt, **settings)

    taken = seconds({name: generate(model) for name, model in models.items()})
    for name, t in taken.items():
        directory, dtype = FORMS[name]
        command = [sys.executable, "-c", MEASURE, place / directory, str(dtype).removeprefix("torch.")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        anonymous, mapped = map(float, done.stdout.split())
        print(
            f"  {name:<9}{NEW_TOKENS / t:>8.1f} tokens/s{t / taken['float32']:>8.2f} of float32's time"
            f"{anonymous:>8.0f} MB anonymous{mapped:>8.0f} MB mapped"
        )


def main(model: str | None) -> None:
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    print(f"{cpu_model()}, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    products()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source = model or make_large_llama(place / "llama", layers=6, width=1024, inner=2816, vocabulary=257)
        make_packed(place / "packed", source)
        make_packed(place / "bf16", source, decoded=True)
        print(f"{model or 'random Llama'}, greedy generation of {NEW_TOKENS} tokens")
        generation(place)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    main(parser.parse_args().model)

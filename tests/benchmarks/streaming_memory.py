"""Peak anonymous memory of running a large random model block by block, beyond what imports take.

    python tests/benchmarks/streaming_memory.py --layers 11 22

Each depth runs in a process of its own; RssAnon is polled, since maps of the weights' files are no memory of ours.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path


def anonymous() -> float:
    """RssAnon of this process in MiB."""
    return int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024  # pyright: ignore


def measure(directory: Path) -> None:
    import torch

    from icml25cli.core.models import resolve
    from icml25cli.core.streaming import StreamedModel

    source = resolve(directory)  # imports what is left
    before, peak, done = anonymous(), [0.0], threading.Event()

    def poll() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], anonymous())

    watcher = threading.Thread(target=poll)
    watcher.start()
    start = time.perf_counter()
    model = StreamedModel(source)
    ids = torch.randint(0, source.config["vocab_size"], (2, 256), generator=torch.Generator().manual_seed(0))
    stages = {}
    hidden = model.embed(ids)
    stages["embed"] = peak[0] - before
    for i in range(model.block_count):
        with model.block(i) as block:
            hidden = model.run_block(block, i, hidden)
    stages["blocks"] = peak[0] - before
    after_blocks = anonymous() - before
    with model.head():
        total = sum(float(model.logits(hidden, slice(a, a + 64)).logsumexp(-1).sum()) for a in range(0, 256, 64))
    stages["logits"] = peak[0] - before
    done.set()
    watcher.join()
    parts = ", ".join(f"{name} {value:.0f}" for name, value in stages.items())
    print(
        f"{model.block_count} layers: peak {peak[0] - before:.0f} MiB beyond {before:.0f} of imports (running maximum: "
        f"{parts}; left after blocks {after_blocks:.0f}, at the end {anonymous() - before:.0f}), "
        f"{time.perf_counter() - start:.0f} s, checksum {total:.3f}",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[11, 22])
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.directory:
        measure(arguments.directory)
        sys.exit()
    for layers in arguments.layers:
        with tempfile.TemporaryDirectory() as scratch:
            model = Path(scratch) / "model"
            maker = Path(__file__).parents[1] / "make_models.py"
            subprocess.run([sys.executable, maker, model, "--layers", str(layers)], check=True)
            subprocess.run([sys.executable, __file__, "--directory", model], check=True, env={**os.environ})

"""Anonymous memory of quantising a large random Llama, at two depths: `python tests/benchmarks/bench_memory.py`.

Each depth runs in a process of its own. Counted is the peak of RssAnon beyond its value after all imports, less the
hidden states of the calibration and evaluation windows, which grow with the text and not with the model. Mapped files
do not count. Takes minutes and 2.5 GB of disk.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WINDOW, CALIBRATION, EVALUATION = 512, 2048, 1024
LIMIT_MIB = 1.2 * 1024


def anonymous_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def measure(model: Path, width: int, baselines: tuple[str, ...]) -> dict[str, float]:
    """Quantise ``model`` and return the peak in MiB."""
    from icml25cli.core.models import resolve
    from icml25cli.core.parallel import set_threads
    from icml25cli.papers.quantize import export  # noqa: F401 -- imports count as imports
    from icml25cli.papers.quantize.job import carry_out
    from icml25cli.papers.quantize.plan import Options

    set_threads(2)
    before, peak, done = anonymous_mib(), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, anonymous_mib())

    thread = threading.Thread(target=watch)
    thread.start()
    started = time.monotonic()
    options = Options(baselines=baselines, window=WINDOW, calibration_tokens=CALIBRATION, evaluation_tokens=EVALUATION)
    with tempfile.TemporaryDirectory() as output, carry_out(resolve(model), options, output=Path(output) / "out"):
        pass
    seconds = time.monotonic() - started
    done.set()
    thread.join()
    # Float32: the calibration windows, and the evaluation windows of the float model and of every method.
    states = 4 * width * (CALIBRATION + (2 + len(baselines)) * EVALUATION) / 2**20
    return {"peak_mib": peak - before, "states_mib": states, "net_mib": peak - before - states, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[11, 22])
    parser.add_argument("--baselines", nargs="*", default=["rtn", "gptq"])
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--width", type=int, default=2048)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.width, tuple(args.baselines))))
        return
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.make_models import make_large_llama

    print(f"load average {os.getloadavg()[0]:.1f}")
    results = []
    for layers in args.layers:
        with tempfile.TemporaryDirectory() as directory:
            model = make_large_llama(Path(directory) / "model", layers=layers, width=args.width)
            done = subprocess.run(
                [
                    sys.executable,
                    __file__,
                    "--one",
                    str(model),
                    "--width",
                    str(args.width),
                    "--baselines",
                    *args.baselines,
                ],
                capture_output=True,
                text=True,
                check=True,
            )
        results.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"{layers} layers: " + ", ".join(f"{key} {value:.0f}" for key, value in results[-1].items()), flush=True)
    if len(results) > 1:
        print(f"growth {results[-1]['net_mib'] / results[0]['net_mib'] - 1:+.1%}, limit {LIMIT_MIB:.0f} MiB")


if __name__ == "__main__":
    main()

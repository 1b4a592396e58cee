"""The same seed is the same answer; a run that is stopped anywhere and repeated is the run that was not stopped."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.faults.jobs import Job
from tests.faults.test_surroundings import VERBS, each

SHORT = "--calib-tokens 2048 --eval-tokens 2048 --window 64"
LONG = (  # seconds of work in units that are kept
    Job("quantize run {x} --baseline rtn --baseline gptq -o {out} --format bf16 " + SHORT, "model"),
    Job("prune run {x} --baseline flap --baseline random --no-speed -o {out} " + SHORT, "model"),
    Job("linkpred run {x} --runs 2 --epochs 60 --baseline base -o {out}", "edges.csv"),
    Job("sae train {x} -o {out} --expansion 4 --levels 2,4,8,16,32,64 --epochs 120 --batch 8 --ks 2,4", "rows.npy"),
    Job("formulate bench {x} -o {out}", "problems.jsonl"),
)
VOLATILE = (
    "second",
    "elapsed",
    "tokens_per",
    "speed",
    "load",
    "host",
    "output",
    "path",
    "date",
    "peak",
    "memory",
    "timings",
)


def settled(report: Any) -> Any:
    """A report without times, paths and places, which may differ."""
    if isinstance(report, dict):
        return {k: settled(v) for k, v in report.items() if not any(word in k for word in VOLATILE)}
    if isinstance(report, list):
        return [settled(item) for item in report]
    return report


def tensors(folder: Path) -> dict[str, np.ndarray]:
    return {
        f"{file.relative_to(folder)}:{name}": array
        for file in sorted(folder.rglob("*.safetensors"))
        for name, array in load_file(file).items()
    }


def answer_of(report: dict[str, Any]) -> Any:
    return settled({key: report[key] for key in ("metrics", "rows", "tables") if key in report})


JUDGED = [job for job in VERBS if job.command != "formulate" or "bench" not in job.words]


@each(JUDGED, "twice the same")
def test_the_same_seed_is_the_same_answer(job: Job, sound: Path, trial, tmp_path):
    at = {path.name: path for path in sound.iterdir()}
    answers = []
    for i in range(2):
        fresh = {"ICML25_CACHE_DIR": str(tmp_path / f"cache-{i}")}
        done = trial([*job.line(at[job.takes], tmp_path / f"out-{i}", at), "--json"], env=fresh).done
        assert done.code == 0, done.err
        answers.append(answer_of(json.loads(done.out)))
    assert answers[0] == answers[1]
    assert str(answers[0]) != "{}"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda stop: stop.name)
@each(list(LONG), "stopped and repeated")
def test_a_run_stopped_anywhere_and_repeated_is_the_run_that_was_not(
    job: Job, stop: signal.Signals, sound: Path, program, environment, tmp_path
):
    at = {path.name: path for path in sound.iterdir()}
    if job.takes == "problems.jsonl":
        lines = (sound / "problems.jsonl").read_text()
        at[job.takes] = tmp_path / "problems.jsonl"
        at[job.takes].write_text(
            "".join(lines.replace("fifty", word) for word in ("fifty", "forty", "thirty", "sixty"))
        )

    def start(name: str) -> subprocess.Popen[str]:
        line = [program, *job.line(at[job.takes], tmp_path / name, at), "--json", "--threads", "1"]
        if job.command == "formulate":
            line = line[:-2]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        own = {"ICML25_CACHE_DIR": str(tmp_path / f"cache-{name}")}
        return subprocess.Popen(line, env=environment | own, cwd=tmp_path, **pipes)

    started = time.monotonic()
    whole = start("whole")
    expected, err = whole.communicate(timeout=300)
    assert whole.returncode == 0, err
    duration = time.monotonic() - started

    chance = random.Random(f"{job.name} {stop.name}")
    for _ in range(3):
        stopped = start("stopped")
        try:
            stopped.wait(timeout=duration * chance.uniform(0.1, 0.9))
        except subprocess.TimeoutExpired:
            stopped.send_signal(stop)
        out, err = stopped.communicate(timeout=300)
        if stopped.returncode == 0:
            break
        # The interpreter itself, before it comes to us, leaves signals to the system.
        assert stopped.returncode in {"SIGINT": (130, -2), "SIGTERM": (143, -15), "SIGKILL": (-9,)}[stop.name], err
        assert "Traceback" not in err
        assert not out
        left = [path.name for path in tmp_path.iterdir() if path.name.startswith(("stopped", ".stopped"))]
        assert left in ([], ["stopped"]), left
    else:
        resumed = start("stopped")
        out, err = resumed.communicate(timeout=300)
        assert resumed.returncode == 0, err
    assert answer_of(json.loads(out)) == answer_of(json.loads(expected))
    ours, theirs = tensors(tmp_path / "stopped"), tensors(tmp_path / "whole")
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


@each(list(LONG[:4]), "two at once")
def test_of_two_runs_in_one_folder_the_second_is_told_of_the_first(
    job: Job, sound: Path, program, environment, tmp_path
):
    at = {path.name: path for path in sound.iterdir()}
    line = [program, *job.line(at[job.takes], tmp_path / "out", at), "--threads", "1"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    first = subprocess.Popen(line, env=environment, cwd=tmp_path, **pipes)
    while not list(tmp_path.rglob("lock")):
        assert first.poll() is None, first.communicate()
        time.sleep(0.02)
    second = subprocess.run(line, env=environment, cwd=tmp_path, **pipes)
    _, err = first.communicate(timeout=300)
    assert first.returncode == 0, err
    assert second.returncode in (3, 74), second.stderr
    assert str(first.pid) in second.stderr
    assert "Traceback" not in second.stderr

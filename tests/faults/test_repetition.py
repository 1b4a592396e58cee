"""The same seed is the same answer, on any number of threads to a tolerance; a run that is stopped anywhere and
repeated is the run that was not stopped."""

import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.answers import answer_of, disagreement, products
from tests.faults.jobs import Job
from tests.faults.test_surroundings import VERBS, each

ROUNDING = 1e-3  # of answers by one thread and by two; measured: 3e-7 on one kind of processor, 2.5e-4 on another
STEPS = {"linkpred": 1 / 15 + 1e-9}  # of figures that count ranks of 15 pairs: one may change places with another
SHORT = "--calib-tokens 2048 --eval-tokens 2048 --window 64"
LONG = (  # seconds of work in units that are kept
    Job("quantize run {x} --baseline rtn --baseline gptq -o {out} --format bf16 " + SHORT, "model"),
    Job("prune run {x} --baseline flap --baseline random --no-speed -o {out} " + SHORT, "model"),
    Job("linkpred run {x} --runs 2 --epochs 60 --baseline base -o {out}", "edges.csv"),
    Job("sae train {x} -o {out} --expansion 4 --levels 2,4,8,16,32,64 --epochs 120 --batch 8 --ks 2,4", "rows.npy"),
    Job("tabpfn-bag fit {x} --target kind --k 2 --epochs 20 --context-size 32 -o {out}", "people.csv"),
    Job("align run {x} {more.npy} --null 20 --no-ci", "many.npy"),
    Job(
        "select-data run {x} --val {ask.jsonl} --budget 3 --baseline bm25 -o {out} --model {model} "
        "--reward regex:^(?:..)*$ --checkpoints all --epochs 4 --batch 2 --lora-r 2 --lora-alpha 4 "
        "--max-length 64 --mc 4 --max-new-tokens 16 --proj-dim 16 --projector countsketch",
        "pool.jsonl",
    ),
    Job("formulate bench {x} -o {out}", "problems.jsonl"),
)

JUDGED = [job for job in VERBS if job.command != "formulate" or "bench" not in job.words]


def place(folder: Path) -> Path:
    """An output in a folder of its own, called as in every other run."""
    folder.mkdir()
    return folder / "out"


def apart(answer: tuple[Any, dict[str, Any]]) -> tuple[Any, dict[str, Any]]:
    """What was told, in the report and in documents, and all else that was written."""
    report, files = answer
    documents = {name: content for name, content in files.items() if name.endswith(".json")}
    return (report, documents), {name: content for name, content in files.items() if name not in documents}


def written(out: Path) -> bool:
    """Whether there is an output, and not only what an unfinished run keeps."""
    return out.is_file() or (out.is_dir() and any(path.name != ".run" for path in out.iterdir()))


@each(JUDGED, "twice the same")
def test_the_same_seed_is_the_same_answer(job: Job, sound: Path, trial, tmp_path):
    at = {path.name: path for path in sound.iterdir()}
    answers = []
    for i in range(2):
        out, fresh = place(tmp_path / f"run-{i}"), {"ICML25_CACHE_DIR": str(tmp_path / f"cache-{i}")}
        done = trial([*job.line(at[job.takes], out, at), "--json"], env=fresh).done
        assert done.code == 0, done.err
        answers.append((answer_of(done.out, out), products(out)))
    assert disagreement(answers[0], answers[1]) == 0
    assert any(answers[0])


THREADED = [job for job in JUDGED if "--threads" in job.words]


@each(THREADED, "other threads")
def test_another_number_of_threads_is_the_same_answer_to_rounding(job: Job, sound: Path, trial, tmp_path):
    """README says how far; only order of summation differs, and by it the order of scores that are all but the same."""
    at = {path.name: path for path in sound.iterdir()}
    answers = []
    for threads in (1, 2):
        out, fresh = place(tmp_path / f"run-{threads}"), {"ICML25_CACHE_DIR": str(tmp_path / f"cache-{threads}")}
        line = job.line(at[job.takes], out, at)
        line[line.index("--threads") + 1] = str(threads)
        done = trial([*line, "--json"], env=fresh).done
        assert done.code == 0, done.err
        answers.append((answer_of(done.out, out), products(out)))
    figures, arrays = zip(*map(apart, answers), strict=True)
    assert disagreement(*figures, step=STEPS.get(job.command, 0.0)) <= ROUNDING
    assert disagreement(*arrays) <= ROUNDING


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

    outs = {name: place(tmp_path / name) for name in ("whole", "stopped")}

    def start(name: str) -> subprocess.Popen[str]:
        line = [program, *job.line(at[job.takes], outs[name], at), "--json", "--threads", "1"]
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
        if stopped.returncode == 0 or out or written(outs["stopped"]):  # done, be it before the process ended
            break
        # The interpreter itself, before it comes to us, leaves signals to the system.
        assert stopped.returncode in {"SIGINT": (130, -2), "SIGTERM": (143, -15), "SIGKILL": (-9,)}[stop.name], err
        assert "Traceback" not in err
        left = {path.name for path in (tmp_path / "stopped").iterdir()}
        unfinished = {".out.new", ".out.lock"} if stop == signal.SIGKILL else set()  # which nobody can clear away
        assert left <= {"out"} | unfinished, left
    else:
        resumed = start("stopped")
        out, err = resumed.communicate(timeout=300)
        assert resumed.returncode == 0, err
        assert {path.name for path in (tmp_path / "stopped").iterdir()} <= {"out"}
    ours, theirs = outs["stopped"], outs["whole"]
    if out:
        assert disagreement(answer_of(out, ours), answer_of(expected, theirs)) == 0
    assert disagreement(products(ours), products(theirs)) == 0


@each(list(LONG[:-1]), "two at once")
def test_of_two_runs_in_one_folder_the_second_is_told_of_the_first(
    job: Job, sound: Path, program, environment, tmp_path
):
    at = {path.name: path for path in sound.iterdir()}
    line = [program, *job.line(at[job.takes], tmp_path / "out", at), "--threads", "1"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    environment["ICML25_CACHE_DIR"] = str(tmp_path / "cache")
    first = subprocess.Popen(line, env=environment, cwd=tmp_path, **pipes)
    while not list(tmp_path.rglob("lock")):
        assert first.poll() is None, first.communicate()
        time.sleep(0.02)
    first.send_signal(signal.SIGSTOP)  # it could be done before the second looks
    second = subprocess.run(line, env=environment, cwd=tmp_path, **pipes)
    first.send_signal(signal.SIGCONT)
    _, err = first.communicate(timeout=300)
    assert first.returncode == 0, err
    assert second.returncode in (3, 74), second.stderr
    assert str(first.pid) in second.stderr
    assert "Traceback" not in second.stderr

"""What is around a run fails: outputs, disks, homes, networks, readers, memory, another run of the same thing."""

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.faults.jobs import JOBS, Job
from tests.faults.test_inputs import cell


def each(jobs: list[Job], kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "job", [pytest.param(job, id=job.name, marks=cell(job.command, kind)) for job in jobs]
    )


def first_of_each_command(jobs: list[Job]) -> list[Job]:
    return list({job.command: job for job in reversed(jobs)}.values())[::-1]


# Verbs once each, however many inputs they take.
VERBS = list({tuple(job.words.split()[:2]): job for job in reversed(JOBS)}.values())[::-1]
WRITERS = [job for job in VERBS if "{out}" in job.words]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one page, so that every output is too large."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", place], check=True)


@each(WRITERS, "output exists")
def test_an_output_that_exists_is_kept(job: Job, sound: Path, trial, tmp_path):
    at = {path.name: path for path in sound.iterdir()}
    line = job.line(at[job.takes], tmp_path / "out", at)
    written = Path(line[line.index("-o") + 1])
    written.write_text("precious")
    trial(line).check_graceful({74}, names=written.name)
    assert written.read_text() == "precious"


@each(WRITERS, "unwritable output")
def test_an_output_that_nobody_can_write_is_named(job: Job, sound: Path, trial):
    at = {path.name: path for path in sound.iterdir()}
    trial(job.line(at[job.takes], "/sys/out", at)).check_graceful({74}, names="/sys")


@each(WRITERS, "full disk")
def test_a_full_disk_is_said_and_left_clean(job: Job, sound: Path, trial, tiny_disk):
    at = {path.name: path for path in sound.iterdir()}
    (tiny_disk / "filler").write_bytes(b"x" * 4096)
    trial(job.line(at[job.takes], tiny_disk / "out", at)).check_graceful({74})
    assert [path.name for path in tiny_disk.iterdir()] == ["filler"]


@each(VERBS, "no home")
def test_without_a_home_the_work_is_done(job: Job, sound: Path, trial):
    at = {path.name: path for path in sound.iterdir()}
    nowhere = {"HOME": "/sys/nobody", "ICML25_CACHE_DIR": "", "XDG_CACHE_HOME": ""}
    trial(job.line(at[job.takes], "out", at), env=nowhere).check_graceful({0, 74})


@each(first_of_each_command(list(JOBS)), "reader leaves")
def test_a_reader_that_leaves_ends_the_run_silently(job: Job, sound: Path, program, environment, tmp_path):
    at = {path.name: path for path in sound.iterdir()}
    read, write = os.pipe()
    os.close(read)
    line = [program, *job.line(at[job.takes], tmp_path / "out", at)]
    done = subprocess.run(line, env=environment, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.returncode == 141, done.stderr
    assert "error" not in done.stderr


@each(first_of_each_command(list(JOBS)), "full standard output")
def test_standard_output_on_a_full_disk_is_said(job: Job, sound: Path, program, environment, tmp_path):
    at = {path.name: path for path in sound.iterdir()}
    line = [program, *job.line(at[job.takes], tmp_path / "out", at), "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(line, env=environment, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 74, done.stderr
    assert "standard output" in done.stderr
    assert "Traceback" not in done.stderr


MODEL_TAKERS = [job for job in JOBS if job.takes == "model"]


@each(MODEL_TAKERS, "no network")
def test_a_model_out_of_reach_is_4_with_what_to_do(job: Job, sound: Path, trial):
    at = {path.name: path for path in sound.iterdir()}
    unreachable = {"HF_HUB_OFFLINE": "0", "HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    done = trial(job.line("some-lab/some-model", "out", at), env=unreachable)
    done.check_graceful({4}, names="some-lab/some-model")
    assert "hint: " in done.done.err


@pytest.mark.cell("sae", "little memory")
def test_too_little_memory_is_a_sentence(sound: Path, program, environment, tmp_path):
    """Rows far beyond the limit, where torch allocates; the limit is on anonymous memory."""
    np.save(tmp_path / "large.npy", np.ones((2_000_000, 64), np.float32))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (600 * 2**20, 600 * 2**20))

    line = [program, "sae", "decode", sound / "sae", sound / "codes.npz", "-o", tmp_path / "out.npy"]
    done = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode in (0, 4), done.stderr
    assert "Traceback" not in done.stderr

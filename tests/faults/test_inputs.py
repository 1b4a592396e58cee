"""Every verb on every kind of damaged input: the right exit code, one sentence that names the input, nothing left."""

from pathlib import Path

import pytest

from tests.faults.damage import Damage, damages
from tests.faults.jobs import JOBS, Job

CASES = [(job, damage) for job in JOBS for damage in damages(job.takes) if damage.kind in (job.only or {damage.kind})]


def cell(command: str, kind: str) -> pytest.MarkDecorator:
    return pytest.mark.cell(command, kind)


@pytest.mark.parametrize("job", [pytest.param(job, id=job.name, marks=cell(job.command, "sound")) for job in JOBS])
def test_the_job_is_done_on_sound_input(job: Job, sound: Path, trial):
    at = {path.name: path for path in sound.iterdir()}
    trial(job.line(at[job.takes], "out", at)).check_graceful({0})


@pytest.mark.parametrize(
    ("job", "damage"),
    [
        pytest.param(job, damage, id=f"{job.name}: {damage.kind}", marks=cell(job.command, damage.kind))
        for job, damage in CASES
    ],
)
def test_damaged_input_is_named_and_refused_or_read_as_meant(
    job: Job, damage: Damage, sound: Path, trial, tmp_path: Path
):
    at = {path.name: path for path in sound.iterdir()}
    place = tmp_path / "input"
    place.mkdir()
    damaged = damage.make(at[job.takes], place)
    codes = job.lives_with.get(damage.kind, damage.codes)
    trial(job.line(damaged, "out", at)).check_graceful(codes, names=damaged.name)

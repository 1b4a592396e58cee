"""Work through blocks: states handed on, work cut short continued, nothing left behind."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from icml25cli.core import blockwise
from icml25cli.core.blockwise import forget_states, states_after, whole, work_through
from icml25cli.core.errors import InputError
from icml25cli.core.runs import Run

UNITS = ["a", "b", "c", "d"]


@pytest.fixture
def run(tmp_path: Path):
    with Run.open(tmp_path / "run", {}) as opened:
        yield opened


def work(run: Run, done: list[int]) -> None:
    """Every step adds its number to the state, and keeps what it found."""

    def step(i, states):
        done.append(i)
        before = states["x"].clone()
        states["x"] += i
        return states, lambda folder: save_file({"before": before}, folder / "found.safetensors")

    work_through(run, UNITS, lambda: {"x": torch.tensor([10.0])}, step, "adding")


def found(run: Run) -> list[float]:
    return [load_file(run.path(unit) / "found.safetensors")["before"].item() for unit in UNITS]


def test_each_step_gets_what_the_one_before_handed_on(run):
    done: list[int] = []
    work(run, done)
    assert done == [0, 1, 2, 3]
    assert found(run) == [10, 10, 11, 13]
    assert states_after(run, "d")["x"].item() == 16
    forget_states(run, "d")
    assert not list(run.directory.rglob("states.safetensors"))
    work(run, done)
    assert done == [0, 1, 2, 3], "nothing is done twice"


@pytest.mark.parametrize(("every", "redone"), [(0.0, 0), (1e9, 4)], ids=["stored at once", "stored at the end"])
@pytest.mark.parametrize("last", UNITS)
def test_work_cut_short_after_a_unit_continues_from_states_that_were_stored(run, monkeypatch, last, every, redone):
    monkeypatch.setattr(blockwise, "EVERY", every)
    write = Run.write

    def killed(self, unit, writer):
        write(self, unit, writer)
        if unit == last:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "write", killed)
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        work(run, done)
    monkeypatch.setattr(Run, "write", write)
    work(run, done)
    again = [] if last == "d" else range(min(redone, UNITS.index(last) + 1))
    assert sorted(done) == sorted([0, 1, 2, 3, *again])
    assert found(run) == [10, 10, 11, 13]
    assert [path.parent.name for path in run.directory.rglob("states.safetensors")] == ["d"]


def test_states_that_were_damaged_later_are_named(run):
    work(run, [])
    (run.path("d") / "states.safetensors").write_bytes(b"short")
    with pytest.raises(InputError, match=r"the finished work in .*run is damaged"):
        states_after(run, "d")
    with pytest.raises(InputError, match="damaged"), whole(run):
        raise ValueError

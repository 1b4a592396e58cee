"""Work that goes through a model's blocks in order, each a unit of a run that hands states on to the next.

Knows runs and tensors. Does not know models, or what is done to a block.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from icml25cli.core.errors import InputError
from icml25cli.core.progress import Progress
from icml25cli.core.runs import Run

States = dict[str, Tensor]
Write = Callable[[Path], object]  # puts files into the folder it is given
_STATES = "states.safetensors"
# Seconds of work that may have to be done again. States outweigh all else in a unit: stored after every block of a
# small model, they would cost more than the block.
EVERY = 10.0


def work_through(
    run: Run,
    units: list[str],
    begin: Callable[[], States],
    step: Callable[[int, States], tuple[States, Write]],
    description: str,
) -> None:
    """Do ``step`` for every one of ``units`` that ``run`` does not hold yet, in order.

    Work cut short at any time continues bit for bit: from the last unit whose states were stored, which is the last
    one wherever a unit takes long.

    Args:
        begin: gives the states before the first unit.
        step: gets the number of a unit and the states before it, which it may overwrite; returns those after it.
    """
    stored = [i for i, unit in enumerate(units) if (run.path(unit) / _STATES).exists()]
    for i in stored[:-1]:  # of work cut short between a unit and this
        forget_states(run, units[i])
    if all(map(run.has, units)):
        return
    first = stored[-1] + 1 if stored else 0
    with Progress(description, len(units)) as progress:
        progress.advance(first)
        states = _load(run, units[first - 1]) if first else begin()
        since = time.monotonic()
        for i in range(first, len(units)):
            states, write = step(i, states)
            due = i == len(units) - 1 or time.monotonic() - since >= EVERY

            def write_all(folder: Path, states: States = states, write: Write = write, due: bool = due) -> None:
                folder.mkdir()
                write(folder)
                if due:
                    save_file({key: state.contiguous() for key, state in states.items()}, folder / _STATES)

            run.write(units[i], write_all)
            if due:
                since = time.monotonic()
                for unit in units[:i]:
                    forget_states(run, unit)
            progress.advance()


def states_after(run: Run, unit: str) -> States:
    """What the last unit of ``work_through`` handed on."""
    return _load(run, unit)


def forget_states(run: Run, unit: str) -> None:
    """Give back their room."""
    (run.path(unit) / _STATES).unlink(missing_ok=True)


@contextlib.contextmanager
def whole(run: Run) -> Iterator[None]:
    """For reading units: they are written whole, so one that cannot be read was damaged later.

    Raises:
        InputError: the body met a file that is absent, cut short or of another form.
    """
    try:
        yield
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise InputError(f"the finished work in {run.directory} is damaged", hint="--fresh starts anew") from error


def _load(run: Run, unit: str) -> States:
    with whole(run):
        # Copied, since products of tensors that lie elsewhere than at a multiple of 64 bytes may differ in a last bit.
        return {key: state.clone() for key, state in load_file(run.path(unit) / _STATES).items()}

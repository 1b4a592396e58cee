"""What a person sees while waiting: progress with time left, notes and warnings, all on standard error.

Silent in library use. The command line installs a display for the time of a command; whoever does the work only says
what it is and how far it has come. Does not know what the work is, nor anything about reports.
"""

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, TypeVar

from icml25cli.core.console import clean, plain, say, stderr
from icml25cli.core.files import output_errors

T = TypeVar("T")

SHORT = 10.0  # seconds of work of which a stream that is no terminal says nothing
EVERY = 60.0  # seconds between its lines


class Progress:
    """One piece of work of ``total`` steps (None: nobody knows), shown from ``with`` to its end."""

    def __init__(self, description: str, total: int | None = None) -> None:
        self.description = clean(description)
        self.total = total
        self.done = 0
        self.began = monotonic()
        shown = _display.get()
        self._sinks = shown.sinks if shown else ()

    def advance(self, steps: int = 1) -> None:
        self.done += steps
        for sink in self._sinks:
            sink.moved(self)

    def __enter__(self) -> "Progress":
        for sink in self._sinks:
            sink.began(self)
        return self

    def __exit__(self, *_: object) -> None:
        for sink in self._sinks:
            sink.ended(self)


def track(work: Iterable[T] | int, description: str, total: int | None = None) -> Iterator[T]:
    """Iterate over ``work`` (or over that many numbers), a step an item; ``total`` where ``len`` cannot tell."""
    items: Any = range(work) if isinstance(work, int) else work
    if total is None and hasattr(items, "__len__"):
        total = len(items)
    with Progress(description, total) as progress:
        for item in items:
            yield item
            progress.advance()


def note(text: str) -> None:
    """Say something by the way; nothing in library use."""
    if shown := _display.get():
        shown.line(clean(text))


def warn(text: str) -> None:
    """Warn, once for each text: on the display, which keeps it for the report, else by Python's ``warnings``."""
    text = clean(text)
    shown = _display.get()
    if shown is None:
        warnings.warn(text, stacklevel=2)
    elif text not in shown.warnings:
        shown.warnings.append(text)
        shown.line(f"warning: {text}", style="yellow")


def warnings_so_far() -> tuple[str, ...]:
    """The warnings of the display, in order, for the report to carry; none in library use."""
    shown = _display.get()
    return tuple(shown.warnings) if shown else ()


@contextlib.contextmanager
def display(quiet: bool = False, log_file: Path | None = None) -> Iterator[None]:
    """Show progress, notes and warnings of the body: bars on a terminal, else a line a minute; nothing if ``quiet``.

    ``NO_COLOR`` and dumb terminals get the lines. The log file, appended to, gets them in any case, with the time.

    Raises:
        OutputError: the log file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        sinks: list[_Sink] = []
        if not quiet:
            sinks.append(stack.enter_context(_Bars()) if _on_terminal() else _Lines(say))
        if log_file is not None:
            sinks.append(_Lines(_append_to(log_file)))
        token = _display.set(_Display(sinks))
        try:
            yield
        finally:
            _display.reset(token)


class _Sink(Protocol):
    def began(self, work: Progress) -> None: ...
    def moved(self, work: Progress) -> None: ...
    def ended(self, work: Progress) -> None: ...
    def line(self, text: str, style: str = "") -> None: ...


@dataclass
class _Display:
    sinks: list[_Sink]
    warnings: list[str] = field(default_factory=list)

    def line(self, text: str, style: str = "") -> None:
        for sink in self.sinks:
            sink.line(text, style)


_display: ContextVar[_Display | None] = ContextVar("display", default=None)


class _Lines:
    """Plain lines. Work that takes long says so after ten seconds and then every minute, whenever it moves."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._due = 0.0

    def began(self, work: Progress) -> None:
        self._due = max(self._due, work.began + SHORT)

    def moved(self, work: Progress) -> None:
        now = monotonic()
        if now < self._due or work.done == work.total:
            return
        self._due = now + EVERY
        spent = now - work.began
        if work.total is None:
            self._write(f"{work.description}: {work.done} in {_clock(spent)}")
        else:
            left = spent / work.done * (work.total - work.done)
            self._write(f"{work.description}: {work.done} of {work.total}, {_clock(left)} left")

    def ended(self, work: Progress) -> None: ...

    def line(self, text: str, style: str = "") -> None:
        self._write(text)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _append_to(path: Path) -> Callable[[str], None]:
    def write(text: str) -> None:
        with output_errors(path, path), open(path, "a", encoding="utf-8") as file:
            file.write(f"{datetime.now().isoformat(timespec='seconds')} {text}\n")

    with output_errors(path, path), open(path, "a"):  # a log that cannot be written is no surprise for later
        pass
    return write


def _on_terminal() -> bool:
    on_terminal = bool(sys.stderr) and sys.stderr.isatty()
    return on_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")


class _Bars:
    """Rich bars, one a piece of work, gone when it ends."""

    def __init__(self) -> None:
        self._bars: Any = None
        self._tasks: dict[Progress, Any] = {}

    def __enter__(self) -> "_Bars":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars:
            self._bars.stop()

    def began(self, work: Progress) -> None:
        from rich import progress as rich

        if not self._bars:
            self._bars = rich.Progress(
                rich.TextColumn("{task.description}", markup=False),
                rich.BarColumn(),
                rich.MofNCompleteColumn(),
                rich.TimeRemainingColumn(),
                console=stderr(),
                transient=True,
            )
            self._bars.start()
        self._tasks[work] = self._bars.add_task(work.description, total=work.total)

    def moved(self, work: Progress) -> None:
        if work in self._tasks:
            self._bars.update(self._tasks[work], completed=work.done)

    def ended(self, work: Progress) -> None:
        if work in self._tasks:
            self._bars.remove_task(self._tasks.pop(work))
        if self._bars and not self._tasks:
            self._bars.stop()
            self._bars = None

    def line(self, text: str, style: str = "") -> None:
        say(plain(text, style))

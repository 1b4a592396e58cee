"""The two streams: standard output carries the answer, standard error everything else.

Knows terminals and Rich. Does not know reports or progress bars.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Without a terminal nothing is cut to a width: a table keeps every column whole, however wide.
UNBOUNDED_WIDTH = 100_000


def clean(text: object) -> str:
    """``text`` on one line without control, format or unassigned characters, safe to print whoever wrote it."""
    return "".join(" " if c in "\n\r\t" else c for c in str(text) if c in "\n\r\t" or unicodedata.category(c)[0] != "C")


def plain(text: object, style: str = "") -> Text:
    """``clean(text)`` as a Rich ``Text``: never read as markup, so a path named ``model[/]dir`` prints as it is."""
    from rich.text import Text

    return Text(clean(text), style=style)


def _console(stderr: bool) -> Console:
    from rich.console import Console

    class Stream(Console):
        def on_broken_pipe(self) -> None:
            # Rich would exit 1; the root command owns exit codes and turns this into 141.
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    on_terminal = bool(stream and stream.isatty()) and os.environ.get("TERM") not in ("dumb", "unknown")
    return Stream(
        stderr=stderr,
        width=None if on_terminal else UNBOUNDED_WIDTH,
        force_terminal=on_terminal and not os.environ.get("NO_COLOR"),  # without: no bold either, plain text
        color_system="auto" if on_terminal and not os.environ.get("NO_COLOR") else None,
        markup=False,
        emoji=False,
        highlight=False,
    )


@cache
def stdout() -> Console:
    """The console of the answer."""
    return _console(stderr=False)


@cache
def stderr() -> Console:
    """The console of progress, notes, warnings and errors."""
    return _console(stderr=True)


def say(text: Text | str) -> None:
    """Print a line on standard error, a plain one without waiting for Rich.

    Where that cannot be written, what is to be said is lost, and nothing else.
    """
    if sys.stderr is None:
        return
    try:
        if isinstance(text, str):
            print(text, file=sys.stderr)
        else:
            stderr().print(text, soft_wrap=True)
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO | None) -> None:
    """Point a broken stream at nothing, so that the interpreter's own flush at exit stays quiet."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

"""Progress is silent in a library, plain lines where there is no terminal, bars where there is one."""

import os
import pty
import subprocess
import sys
import warnings
from collections.abc import Iterable

import pytest

from icml25cli.core import progress
from icml25cli.core.errors import OutputError
from icml25cli.core.progress import Progress, display, note, track, warn, warnings_so_far


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves: ``clock.append(seconds)``."""
    moments = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: moments[-1])
    return moments


def work(clock, seconds: float, items: Iterable[int] = range(1, 101)):
    """Iterate over items of ``seconds`` each, as they are tracked."""
    for item in track(items, "layers"):
        clock.append(clock[-1] + seconds)
        yield item


def test_a_library_prints_nothing(capfd):
    assert list(track([3, 4], "numbers")) == [3, 4]
    assert list(track(3, "numbers")) == [0, 1, 2]
    with Progress("bytes", 10) as bar:
        bar.advance(4)
        bar.advance()
    assert bar.done == 5
    note("by the way")
    assert capfd.readouterr() == ("", "")


def test_a_library_warns_by_pythons_own_means():
    with pytest.warns(UserWarning, match="few samples"):
        warn("few samples")
    assert warnings_so_far() == ()


def test_ten_seconds_of_work_are_silent(capfd, clock):
    with display():
        assert list(work(clock, 0.0999)) == list(range(1, 101))
    assert capfd.readouterr() == ("", "")


def test_long_work_says_how_far_it_is_after_ten_seconds_and_each_minute(capfd, clock):
    with display():
        list(work(clock, 2.5))
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "layers: 4 of 100, 0:04:00 left",
        "layers: 28 of 100, 0:03:00 left",
        "layers: 52 of 100, 0:02:00 left",
        "layers: 76 of 100, 0:01:00 left",
    ]


def test_work_of_unknown_length_says_what_is_done(capfd, clock):
    with display():
        list(work(clock, 15, items=iter(range(3))))
    assert capfd.readouterr().err == "layers: 1 in 0:00:15\n"


def test_notes_and_warnings_go_to_standard_error_and_warnings_are_kept_once(capfd):
    with display(), warnings.catch_warnings(action="error"):
        note("model[/]dir")
        warn("few samples")
        warn("few samples")
        assert warnings_so_far() == ("few samples",)
    assert capfd.readouterr() == ("", "model[/]dir\nwarning: few samples\n")
    assert warnings_so_far() == ()


def test_text_from_outside_cannot_steer_the_terminal(capfd, clock):
    with display():
        note("a\x1b[31mb\rc\nd\x9be\u202ef")
        warn("\x1b]0;title\x07")
        for _ in track(2, "x\x1b[2J\ny"):
            clock.append(clock[-1] + 20)
    err = capfd.readouterr().err
    assert err == "a[31mb c def\nwarning: ]0;title\nx[2J y: 1 of 2, 0:00:20 left\n"


def test_quiet_is_quiet_and_keeps_warnings_for_the_report(capfd, clock):
    with display(quiet=True):
        list(work(clock, 5))
        note("by the way")
        warn("few samples")
        assert warnings_so_far() == ("few samples",)
    assert capfd.readouterr() == ("", "")


def test_the_log_file_has_it_all_even_when_quiet(tmp_path, clock):
    (tmp_path / "log").write_text("before\n")
    with display(quiet=True, log_file=tmp_path / "log"):
        list(work(clock, 30, items=range(2)))
        note("by the way")
        warn("few samples")
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0] == "before"
    assert [line.partition(" ")[2] for line in lines[1:]] == [
        "layers: 1 of 2, 0:00:30 left",
        "by the way",
        "warning: few samples",
    ]
    assert lines[1][:2] == "20", "a line begins with its time"


def test_a_log_that_cannot_be_written_is_said_at_once(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="log cannot be written"), display(log_file=tmp_path / "file" / "log"):
        pass


def test_an_exception_ends_the_display_and_passes():
    with pytest.raises(ZeroDivisionError), display():
        next(1 / item for item in track(3, "numbers"))
    note("outside, so nowhere")


SCRIPT = """
from icml25cli.core.progress import display, note, track, warn
with display():
    for outer in track(2, "outer[/]"):
        note(f"note {outer}: " + "word " * 40)
        for inner in track(iter("ab"), "inner"):
            pass
    warn("careful")
print("answer")
"""


def on_terminal(**environment):
    """What SCRIPT shows on a terminal of its own, and what it writes to standard output, which is a pipe."""
    ours, theirs = pty.openpty()
    variables = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm", "COLUMNS": "60"}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=theirs, env=variables | environment
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 2**16):
            shown += part
    except OSError:  # a terminal whose other side is closed reads as an error on Linux
        pass
    os.close(ours)
    out, _ = process.communicate()
    assert process.returncode == 0
    return shown.decode(), out.decode()


def test_a_terminal_shows_bars_and_whole_notes_between_them():
    shown, out = on_terminal()
    assert out == "answer\n"
    assert "\x1b[" in shown
    assert "━" in shown
    assert "outer[/]" in shown
    assert "note 1: " + "word " * 40 in shown, "notes are neither cut nor broken at the width"
    assert "careful" in shown
    assert shown.rstrip().endswith("careful\x1b[0m"), "bars are gone at the end"


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_plain_terminal_shows_plain_lines(environment):
    shown, _ = on_terminal(**environment)
    assert (
        shown.replace("\r\n", "\n") == "".join(f"note {i}: {'word ' * 40}\n" for i in range(2)) + "warning: careful\n"
    )


def test_help_and_short_commands_do_not_wait_for_rich():
    script = "import sys\nfrom icml25cli.core.progress import *\n"
    script += "with display():\n  list(track(3, 'x')); note('n'); warn('w')\n"
    script += "print(*(m for m in ('rich', 'torch', 'numpy', 'joblib') if m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "\n"

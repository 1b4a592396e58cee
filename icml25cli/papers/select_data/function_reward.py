"""A user's own function as a reward, in a process of its own, which is ended when it takes too long.

Knows processes. Does not know what rewards are used for.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.select_data.rewards import Asked


class Function:
    """A function called with prompt, answer and row; its module is looked for in the current folder first.

    Args:
        named: ``MODULE:FUNCTION``.
        seconds: that importing it, and judging the answers to one prompt, may take.

    Raises:
        UsageError: no module and function are named.
        InputError: the module cannot be imported in time, or has no such function.
    """

    note, needs_reference = None, False

    def __init__(self, named: str, seconds: float) -> None:
        self.spec, self._seconds = f"py:{named}", seconds
        module, _, name = named.partition(":")
        if not module or not name:
            raise UsageError(f"--reward {self.spec} names no function", hint="py:MODULE:FUNCTION")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "icml25cli.papers.select_data.function_child", module, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,  # what the function starts ends with it; Ctrl-C is answered here for all
        )
        weakref.finalize(self, _end, self._process)
        self._replies: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(self._process, self._replies), daemon=True).start()
        found = self._reply(time.monotonic() + seconds, "importing it")
        if "error" in found:
            raise InputError(found["error"], hint=found["hint"])
        self.files = (Path(found["file"]),) if found["file"] else ()

    def __call__(self, asked: Sequence[Asked]) -> list[float]:
        lines = [json.dumps({"prompt": o.question, "response": o.answer, "row": dict(o.record)}) for o in asked]
        threading.Thread(target=_ask, args=(self._process, lines), daemon=True).start()
        end = time.monotonic() + self._seconds
        return [self._reply(end, f"judging {len(asked)} answers to a prompt") for _ in asked]

    def _reply(self, end: float, doing: str) -> Any:
        try:
            line = self._replies.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            _end(self._process)
            raise InputError(
                f"--reward {self.spec} ran out of time: {doing} took more than {self._seconds:g} seconds",
                hint="does the function come to an end? Try it by hand",
            ) from None
        if not line:
            _end(self._process)
            raise InputError(
                f"--reward {self.spec} ended its own process (status {self._process.returncode}) while {doing}",
                hint="try the function by hand",
            )
        return json.loads(line)


def _ask(process: subprocess.Popen[str], lines: Sequence[str]) -> None:
    assert process.stdin
    with contextlib.suppress(OSError, ValueError):  # of a process that has ended: the missing reply says so
        process.stdin.write("\n".join([*lines, ""]))
        process.stdin.flush()


def _listen(process: subprocess.Popen[str], replies: queue.SimpleQueue[str]) -> None:
    """Pass every line on, and at the end an empty one."""
    assert process.stdout
    with contextlib.suppress(OSError, ValueError):
        for line in process.stdout:
            replies.put(line)
    replies.put("")


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

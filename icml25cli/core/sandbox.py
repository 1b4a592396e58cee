"""Python code that nobody vouches for, run where it can do no harm, and whether it came to its end.

Each program runs in user, PID, network, mount, IPC and host-name namespaces of its own: a file system of a few folders
of the system and the Python that runs this, all read-only, with a small writable ``/tmp`` that is gone afterwards; no
network; limits on CPU time, memory, processes and the size of files; and an end of wall time. Of libraries only the
standard one is there. Knows processes. Does not know what the program is for.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from icml25cli.core.errors import MissingError

NAMESPACES = "namespaces (user, pid, net, mount, ipc, uts) with limits"
UNSAFE = "none but limits (--unsafe-local)"
_CHILD = Path(__file__).with_name("sandbox_child.py")
_STARTING = 10.0  # seconds beyond the program's own that starting may take on a busy machine


@dataclass(frozen=True)
class Limits:
    wall_seconds: float = 3.0
    cpu_seconds: int = 3
    memory_bytes: int = 512 * 2**20  # private anonymous memory of each process
    processes: int = 16
    file_bytes: int = 8 * 2**20  # of one file; /tmp holds twice that


@dataclass(frozen=True)
class Ended:
    """How a program ended: at its last line (``passed``), or why not."""

    passed: bool
    reason: str = ""


def run_python(source: str, limits: Limits = Limits(), *, unsafe_local: bool = False) -> Ended:
    """Run ``source`` as a program; it passes when control reaches its last line.

    Leaving early with status 0 is no pass: a word that only the end of the program says must arrive. Its output is
    thrown away.

    Args:
        unsafe_local: without namespaces, where these are refused: the program may then read and write what you may.

    Raises:
        MissingError: namespaces are refused here.
    """
    if not unsafe_local:
        check_sandbox()
    return _run(source, limits, unsafe_local)


def _run(source: str, limits: Limits, unsafe_local: bool) -> Ended:
    word = secrets.token_hex(16)
    asked = {"source": source, "word": word, "isolated": not unsafe_local, "prefix": sys.base_prefix, **asdict(limits)}
    python = getattr(sys, "_base_executable", sys.executable)
    with subprocess.Popen(
        [python, "-I", "-S", "-B", str(_CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
    ) as child:
        try:
            out, err = child.communicate(json.dumps(asked).encode(), timeout=limits.wall_seconds + _STARTING)
        except subprocess.TimeoutExpired:
            child.kill()  # the program's first process is told to die with it, and with that all others
            child.communicate()
            return Ended(False, "ran out of time")
        except BaseException:
            child.kill()
            raise
    try:
        told = json.loads(out)
        return Ended(told["word"] == word, str(told["reason"]))
    except (ValueError, KeyError, TypeError):
        last = err.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return Ended(False, f"the sandbox did not start: {last or child.returncode}")


@lru_cache(maxsize=1)
def check_sandbox() -> None:
    """Refuse early where namespaces are not to be had.

    Raises:
        MissingError: they are refused, with what the system said.
    """
    ended = _run("pass", Limits(wall_seconds=10), unsafe_local=False)
    if not ended.passed:
        raise MissingError(
            f"this system gives no namespaces to run untrusted code in: {ended.reason}",
            hint="allow user namespaces (sysctl user.max_user_namespaces), or use --unsafe-local",
        )

"""Untrusted programs: what they can and cannot do, and what counts as coming to the end."""

import os
import time
from pathlib import Path

import pytest

from icml25cli.core import sandbox
from icml25cli.core.errors import MissingError
from icml25cli.core.sandbox import Limits, run_python

QUICK = Limits(wall_seconds=1.0, cpu_seconds=2)


@pytest.fixture(autouse=True, scope="module")
def _namespaces():
    try:
        sandbox.check_sandbox()
    except MissingError as error:
        pytest.skip(error.message)


def test_a_program_that_comes_to_its_end_passes():
    assert run_python("import json, math, collections\nassert math.sqrt(4) == 2").passed


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("assert 1 == 2", "AssertionError"),
        ("def f(:", "SyntaxError"),
        ("import os; os._exit(0)", "left before its end"),
        ("import sys; sys.exit(0)", "left with 0"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
        ("while True: pass", "time"),
        ("import time; time.sleep(100)", "time"),
        ("import os; os.closerange(3, 100)\nwhile True: pass", "time"),
        ("import os\nwhile True: os.fork()", "BlockingIOError"),
        ("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", "time"),
        ("x = bytearray(10**9)", "MemoryError"),
        ("open('/tmp/x', 'wb').write(bytes(10**8))", "too large"),
        ("open('/usr/x', 'w')", "Read-only"),
        ("open('/x', 'w')", "Read-only"),
        ("import socket; socket.create_connection(('127.0.0.1', 22), timeout=1)", "unreachable"),
        ("import os; os.chroot('/tmp')", "not permitted"),
        ("import os; os.kill(1, 9)", "not permitted"),
    ],
)
def test_what_a_program_may_not_do(source, reason):
    began = time.monotonic()
    ended = run_python(source, QUICK)
    assert not ended.passed
    assert reason in ended.reason
    assert time.monotonic() - began < 8


def test_it_sees_no_file_and_no_process_of_ours(tmp_path):
    (tmp_path / "secret").write_text("x")
    seen = f"import os\nassert not os.path.exists({str(tmp_path / 'secret')!r})\nassert not os.path.exists('/proc/1')\n"
    assert run_python(seen + "assert len(os.environ.get('HOME', '')) == 0").passed


def test_what_it_writes_is_gone(tmp_path):
    name = f"/tmp/left-{os.getpid()}"
    assert run_python(f"open({name!r}, 'w').write('x')").passed
    assert not Path(name).exists()
    assert run_python(f"import os; assert not os.path.exists({name!r})").passed


def test_nothing_outlives_it():
    before = _processes()
    run_python("import os, time\nfor _ in range(5):\n  if os.fork() == 0: time.sleep(60)", QUICK)
    run_python("import os, time\nos.setsid()\nif os.fork() == 0: time.sleep(60)\ntime.sleep(60)", QUICK)
    assert _processes() <= before


def _processes() -> set[str]:
    return {path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if b"sandbox_child" in _bytes(path)}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_without_namespaces_limits_hold_and_it_has_to_be_asked_for(monkeypatch):
    assert run_python("assert True", unsafe_local=True).passed
    assert not run_python("while True: pass", QUICK, unsafe_local=True).passed
    sandbox.check_sandbox.cache_clear()
    monkeypatch.setattr(sandbox, "_CHILD", Path("/dev/null"))
    with pytest.raises(MissingError, match="no namespaces") as refused:
        run_python("pass")
    assert "--unsafe-local" in str(refused.value.hint)
    sandbox.check_sandbox.cache_clear()

"""Faults for the core's tests: other processes, another user, a small disk."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from icml25cli.core.errors import ToolboxError

NOBODY = 65534


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a Python script in a process of its own, with pipes; it is killed when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def begin(script: str, *args: object, **environment: str) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, "-c", script, *map(str, args)]
        process = subprocess.Popen(command, text=True, env=os.environ | environment, **pipes)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def in_child(action: Callable[[], Any], before: Callable[[], None]) -> dict[str, Any]:
    """Run ``before`` and ``action`` in a forked process; the toolbox error it met, or ``{"done": what it returned}``.

    Forked, since another user may not be able to read the interpreter.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            before()
            met = {"done": action()}
        except ToolboxError as error:
            met = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
        except BaseException as error:
            met = {"error": type(error).__name__, "message": repr(error)}
        os.write(write, json.dumps(met).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        met = json.load(pipe)
    os.waitpid(child, 0)
    return met


@pytest.fixture
def as_user() -> Callable[[Callable[[], Any]], dict[str, Any]]:
    """Run something as a user without privileges, who is bound by the permissions of folders."""

    def drop() -> None:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)

    return lambda action: in_child(action, drop)


@pytest.fixture
def with_small_files() -> Callable[[Callable[[], Any]], dict[str, Any]]:
    """Run something that may not write a file of more than 64 KiB."""
    return lambda action: in_child(action, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16)))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can enter, which those of ``tmp_path`` are not."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)
        os.chmod(name, 0o755)  # a test may have closed it


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", place], check=True)

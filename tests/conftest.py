"""What every test may use: the installed program as a user runs it, and a cache of the test's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell starts background jobs with SIGINT ignored, and every child inherits that; tests of Ctrl-C need it answered.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Answers to signals as they were: an interrupted main leaves them ignored, which later children would inherit."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, answer in before.items():
        signal.signal(number, answer)


@dataclass(frozen=True)
class Done:
    """A finished run of the program."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)


@pytest.fixture(scope="session")
def program() -> str:
    """The console script of the environment the tests run in."""
    return str(Path(sys.executable).with_name("icml25"))


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def environment(session_cache: Path) -> dict[str, str]:
    """A user's environment: no network for hubs, no terminal, one thread, a cache that the tests own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ICML25_")}
    return kept | {
        "ICML25_CACHE_DIR": str(session_cache),
        "ICML25_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TERM": "dumb",
    }


@pytest.fixture
def icml25(program: str, environment: dict[str, str], tmp_path: Path) -> Callable[..., Done]:
    """Run the installed program: ``icml25("papers", "--json").json``."""

    def run(*args: object, input: str | None = None, env: dict[str, str] | None = None, timeout: float = 300) -> Done:
        done = subprocess.run(
            [program, *map(str, args)],
            input=input,
            env=environment | (env or {}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def fetched_cache() -> Path:
    """A cache that the check filled with fetched assets, or where a developer keeps theirs."""
    named = os.environ.get("ICML25_FETCHED_CACHE")
    if not named or not (Path(named) / "assets").is_dir():
        pytest.skip("ICML25_FETCHED_CACHE names no cache with fetched assets")
    return Path(named)


@pytest.fixture(scope="session")
def development_data() -> Path:
    """The folder of data that development uses and the repository does not carry."""
    named = os.environ.get("ICML25_TEST_DATA")
    if not named or not Path(named).is_dir():
        pytest.skip("ICML25_TEST_DATA names no folder of development data")
    return Path(named)

"""Sound inputs shared by all workers, trials in a place of their own, and the table of what happened."""

import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from tests.conftest import Done
from tests.faults.inputs import make_inputs


@pytest.fixture(scope="session")
def sound(program: str, session_cache: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of sound inputs."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "sound"

    def run(*args: object) -> None:
        environment = os.environ | {"ICML25_CACHE_DIR": str(session_cache), "TERM": "dumb", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run([program, *map(str, args), "-q"], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, (args, done.stderr)

    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make_inputs(unfinished, run)
            unfinished.rename(folder)
    return folder


@dataclass(frozen=True)
class Trial:
    """A run in an empty working folder, beside which inputs, temporary files and the cache have their own places."""

    done: Done
    work: Path
    temporary: Path

    def check_graceful(self, codes: frozenset[int] | set[int], names: str | None = None) -> None:
        """The exit code is right; a failure is one sentence that names the thing and leaves nothing behind."""
        done = self.done
        assert done.code in codes, (done.code, done.err)
        assert "Traceback" not in done.err, done.err
        assert not (self.work / "executed").exists(), "content of the input was executed"
        # torch makes an empty folder for kernels that it might compile, the same one in every process.
        assert not [path for path in self.temporary.iterdir() if "torchinductor" not in path.name]
        left = sorted(path.name for path in self.work.iterdir())
        assert not [name for name in left if name.startswith(".")], left
        if done.code in (0, 1):
            return
        assert not left, "an output is left"
        assert not done.out, done.out[:500]
        errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1, done.err
        assert len(errors[0]) < 1500
        if names is not None:
            assert names in errors[0], errors[0]


@pytest.fixture
def trial(program: str, environment: dict[str, str], tmp_path: Path) -> Callable[..., Trial]:
    """Run the program in a working folder of its own."""
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()

    def run(line: list[str], *, timeout: float = 300, env: dict[str, str] | None = None) -> Trial:
        done = subprocess.run(
            [program, *line],
            env=environment | {"TMPDIR": str(temporary)} | (env or {}),
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
        return Trial(Done(done.returncode, done.stdout, done.stderr), work, temporary)

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.faults)


# --- the table ---------------------------------------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """Carry the cell of a case from its parameters to the report, which travels between processes."""
    report = (yield).get_result()
    if report.when == "call" and (cell := item.get_closest_marker("cell")):
        item.user_properties.append(("cell", cell.args))
        report.user_properties = list(item.user_properties)


def pytest_terminal_summary(terminalreporter) -> None:
    """Command x kind of fault: how many cases held, and which did not."""
    cells: dict[tuple[str, str], list[str]] = defaultdict(list)
    for outcome in ("passed", "failed", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, cell in getattr(report, "user_properties", []):
                if name == "cell":
                    cells[tuple(cell)].append(outcome)
    if not cells:
        return
    commands = sorted({command for command, _ in cells})
    kinds = sorted({kind for _, kind in cells})
    width = max(map(len, kinds))
    terminalreporter.section(f"faults: {sum(map(len, cells.values()))} cases")
    terminalreporter.line(" " * width + "".join(f"  {command:>12}" for command in commands))
    for kind in kinds:
        shown = []
        for command in commands:
            outcomes = cells.get((command, kind), [])
            bad = outcomes.count("failed")
            shown.append("" if not outcomes else f"{bad} of {len(outcomes)} bad" if bad else f"{len(outcomes)} ok")
        terminalreporter.line(f"{kind:<{width}}" + "".join(f"  {cell:>12}" for cell in shown))

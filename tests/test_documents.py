"""README's commands run, manual pages are what the program says, and the wheel holds one package."""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from icml25cli.catalog import COMMANDS, Paper

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SET_UP = ("make quickstart", "make test", "git clone", "pipx install", "man ")  # the check itself, or another machine


def shell_lines() -> list[str]:
    """Every command of README's console blocks."""
    blocks = re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def commands(*, assets: bool) -> list[str]:
    lines = [line for line in shell_lines() if not line.startswith(SET_UP)]
    return [line for line in lines if any(name in line for name in ("smollm2", "sotu", "assets fetch")) == assets]


def run_in_order(lines: list[str], environment: dict[str, str], directory: Path, program: str) -> None:
    bin_path = f"{Path(program).parent}:{environment['PATH']}"
    for line in lines:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            env=environment | {"PATH": bin_path},
            cwd=directory,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def test_readme_has_commands_and_they_are_ours():
    assert len(shell_lines()) >= 8
    assert all(shlex.split(line) for line in shell_lines())


def test_every_readme_command_runs(environment, tmp_path, program):
    run_in_order(commands(assets=False), environment, tmp_path, program)


@pytest.mark.assets
def test_every_readme_command_on_assets_runs(environment, tmp_path, program, fetched_cache):
    run_in_order(commands(assets=True), environment | {"ICML25_CACHE_DIR": str(fetched_cache)}, tmp_path, program)


def test_readme_lists_exactly_the_commands_that_run():
    listed = set(re.findall(r"^\| `icml25 ([a-z0-9-]+)", README, flags=re.MULTILINE))
    assert listed == {name for name, command in COMMANDS.items() if command.module}


def script(path: str) -> Any:
    """A script of the repository that is in no package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_claims_is_what_was_measured():
    assert script("assets/recipes/claims_table.py").rewritten(README) == README


def test_manual_pages_are_what_the_program_says():
    pages = script("man/generate.py").pages()
    there = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "man").glob("*.1")}
    assert there == pages, "run `make man`"


@pytest.mark.skipif(not shutil.which("man"), reason="needs man")
@pytest.mark.parametrize("page", sorted((ROOT / "man").glob("*.1")), ids=lambda page: page.name)
def test_a_manual_page_renders_without_a_warning(page):
    done = subprocess.run(
        ["man", "--warnings", "-l", str(page)],
        env={"LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "EXAMPLES" in done.stdout


def test_every_manual_page_has_examples_that_name_its_command():
    for name, command in COMMANDS.items():
        if command.module:
            text = (ROOT / "man" / f"icml25-{name}.1").read_text(encoding="utf-8")
            assert f"icml25 {name}".replace("-", "\\-") in text.partition(".SH EXAMPLES")[2]


def first_columns(name: str) -> list[str]:
    """Columns of the first table that README shows of a command."""
    section = README.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    header = re.search(r"\n  (.+)\n ─+\n", section)
    assert header is not None, name
    return re.split(r" {2,}", header[1].strip())


@pytest.mark.parametrize(
    "name", [*(name for name, command in COMMANDS.items() if command.module and isinstance(command, Paper)), "evaluate"]
)
def test_the_manual_explains_the_columns_that_readme_shows(name):
    explained = (ROOT / "man" / f"icml25-{name}.1").read_text(encoding="utf-8").partition(".SH COLUMNS")[2]
    missing = [column for column in first_columns(name) if f"\\fB{column}\\fR" not in explained]
    assert not [column for column in missing if column not in ("method", "model")]


def test_the_wheel_holds_one_package_with_its_data(tmp_path):
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {"icml25cli"}
    assert "icml25cli/commands/quantize.py" in names
    shipped = [
        file
        for file in (ROOT / "assets").rglob("*")
        if file.is_file() and not {"recipes", "__pycache__"} & {*file.parts}
    ]
    assert {f"icml25cli/assets/{file.relative_to(ROOT / 'assets').as_posix()}" for file in shipped} <= {*names}
    assert any(name.endswith("share/man/man1/icml25-quantize.1") for name in names)
    assert not any("recipes" in name for name in names)

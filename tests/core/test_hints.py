"""Every error that the command line and the core's shared parts raise says what to do about it."""

import ast
from pathlib import Path

import pytest

import icml25cli.main

ROOT = Path(icml25cli.main.__file__).parent
CORE = (
    "config",
    "fetch",
    "files",
    "gguf_cache",
    "likelihood",
    "parallel",
    "plots",
    "report",
    "runs",
    "store",
    "tables",
    "unpack",
    "usage",
    "verbs",
)
FILES = [*ROOT.glob("commands/*.py"), ROOT / "main.py", *(ROOT / "core" / f"{name}.py" for name in CORE)]
ERRORS = {"CheckFailed", "UsageError", "InputError", "MissingError", "OutputError"}
REASONS = {"fetch.py": {"MissingError"}}  # which the store gathers, to raise one with a hint


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_error_has_a_hint(file):
    errors = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", None) in ERRORS - REASONS.get(file.name, set())
        and not any(keyword.arg == "hint" for keyword in node.keywords)
    ]
    assert [ast.unparse(error) for error in errors] == []

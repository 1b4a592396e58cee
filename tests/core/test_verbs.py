"""The default verb, and where the values of options come from."""

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from icml25cli.core import verbs
from icml25cli.core.errors import UsageError
from icml25cli.core.verbs import Settings, paper_group


@pytest.fixture
def call(monkeypatch, tmp_path):
    """Parse words as ``icml25 quantize`` would and return the verb that ran with its arguments."""
    monkeypatch.chdir(tmp_path)
    app = paper_group("quantize", known_inputs=lambda: ["encoder"])
    seen: list = []

    @app.command()
    def run(model: Annotated[str, typer.Argument()] = "tiny", method: str = "nestquant", q: int = 14) -> None:
        seen.append(("run", model, method, q))

    @app.command()
    def encode(array: Path, q: int = 14) -> None:
        seen.append(("encode", str(array), q))

    def parse(*words: str):
        root = TyperGroup(name="icml25", commands={"quantize": get_command(app)})
        seen.clear()
        with root.make_context("icml25", ["quantize", *words], auto_envvar_prefix="ICML25", obj=Settings()) as ctx:
            root.invoke(ctx)
        return seen[0] if seen else None

    return parse


@pytest.mark.parametrize(
    ("words", "ran"),
    [
        (["llama3-8b"], ("run", "llama3-8b", "nestquant", 14)),
        (["--method", "rtn", "llama3-8b"], ("run", "llama3-8b", "rtn", 14)),
        (["--q", "8"], ("run", "tiny", "nestquant", 8)),
        (["run"], ("run", "tiny", "nestquant", 14)),
        (["run", "encode"], ("run", "encode", "nestquant", 14)),
        (["encode", "x.npy"], ("encode", "x.npy", 14)),
        (["--", "encode"], ("run", "encode", "nestquant", 14)),
        (["./encod"], ("run", "./encod", "nestquant", 14)),
        (["en-code"], ("run", "en-code", "nestquant", 14)),
        (["encoder"], ("run", "encoder", "nestquant", 14)),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_a_first_word_that_is_no_verb_is_the_input_of_run(call, words, ran):
    assert call(*words) == ran


def test_a_word_near_a_verb_is_refused_unless_such_a_file_is_there(call, tmp_path):
    with pytest.raises(UsageError, match="encod") as refused:
        call("encod")
    assert "did you mean 'encode'" in (refused.value.hint or "")
    (tmp_path / "encod").mkdir()
    assert call("encod") == ("run", "encod", "nestquant", 14)


@pytest.mark.parametrize("typed", [True, False])
def test_who_is_to_type_the_input_is_told_how_to_end_it(call, monkeypatch, capsys, typed):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: typed))
    assert call("--method", "-")[2] == "-"
    assert ("Ctrl-D" in capsys.readouterr().err) == typed


def test_no_words_show_help_and_run_nothing(call, capsys):
    with pytest.raises(typer.Exit):
        call()
    out = capsys.readouterr().out
    assert "encode" in out
    assert "--method" in out


def test_command_line_over_environment_over_shared_environment_over_file_over_default(call, monkeypatch, tmp_path):
    (tmp_path / "c.toml").write_text("[quantize]\nmethod = 'from-file'\nq = 7\n[quantize.encode]\nq = 5\n")
    config = ("--config", "c.toml")
    assert call("m") == ("run", "m", "nestquant", 14)
    assert call("m", *config) == ("run", "m", "from-file", 7)
    assert call("encode", "x", *config) == ("encode", "x", 5)
    monkeypatch.setenv("ICML25_METHOD", "from-shared")
    assert call("m", *config) == ("run", "m", "from-shared", 7)
    monkeypatch.setenv("ICML25_QUANTIZE_METHOD", "from-env")
    assert call("m", *config) == ("run", "m", "from-env", 7)
    assert call("m", *config, "--method", "from-line") == ("run", "m", "from-line", 7)
    monkeypatch.setenv("ICML25_QUANTIZE_ENCODE_Q", "3")
    assert call("encode", "x", *config) == ("encode", "x", 3)


def test_completion_offers_verbs_and_what_run_takes(call):
    app = paper_group("quantize")

    @app.command()
    def run(
        model: Annotated[str, typer.Argument(autocompletion=lambda: ["tiny"])] = "tiny", method: str = "x"
    ) -> None: ...

    @app.command()
    def encode() -> None: ...

    group = get_command(app)
    with group.make_context("quantize", [], resilient_parsing=True) as ctx:
        assert {item.value for item in group.shell_complete(ctx, "")} >= {"run", "encode", "tiny"}
        assert {item.value for item in group.shell_complete(ctx, "--me")} == {"--method"}


def test_shared_names_are_options_that_commands_really_have():
    from icml25cli.commands.quantize import app

    group: Any = get_command(app)
    names = {param.name for command in group.commands.values() for param in command.params}
    assert set(verbs.SHARED) <= names

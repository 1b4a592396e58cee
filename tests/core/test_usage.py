"""What is said about a value that cannot be: which, from where, and what was perhaps meant. The program, in process."""

import os
import signal
import sys
from types import SimpleNamespace

import pytest

from icml25cli.main import main


@pytest.fixture
def ask(monkeypatch, tmp_path, capsys):
    """Run the program in a folder of its own, with these variables and no others of ours; its code and its words."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("ICML25_")]:
        monkeypatch.delenv(name)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*words, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        code = main(list(words))
        for name in variables:
            monkeypatch.delenv(name)
        done = capsys.readouterr()
        return SimpleNamespace(code=code, out=done.out, err=done.err)

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("option", ["--damp", "--max-perplexity-increase"])
@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e400", "-1"])
def test_a_number_that_is_not_finite_or_out_of_range_is_refused(ask, option, value):
    done = ask("quantize", option, value)
    assert done.code == 2
    assert option in done.err
    assert "finite" in done.err or repr(value) in done.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--mehtod", "rtn"], "did you mean --method?"),
        (["--method", "nestqant"], "did you mean nestquant?"),
        (["--baseline", "GPTG"], "did you mean gptq?"),
        (["--q", "many"], "icml25 quantize run --help"),
    ],
    ids=str,
)
def test_a_mistyped_option_or_choice_names_the_nearest(ask, words, hint):
    done = ask("quantize", *words)
    assert done.code == 2
    assert hint in done.err.splitlines()[-1]


def test_an_option_before_the_command_is_told_where_it_belongs(ask):
    done = ask("--config", "c.toml", "quantize", "tiny")
    assert done.code == 2
    assert "hint: options come behind the command: icml25 COMMAND --config" in done.err


def test_a_list_where_an_option_is_repeated_shows_how(ask):
    done = ask("linkpred", "run", "karate", "--baseline", "base,heuristics")
    assert done.code == 2
    assert "hint: repeat it: --baseline base --baseline heuristics" in done.err


def test_a_bad_value_says_where_it_came_from(ask, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("[quantize]\ndamp = -1.0\n")
    assert f"{file}: Invalid value for '--damp'" in ask("quantize", "run", "--config", str(file)).err
    assert "ICML25_SEED: Invalid value for '--seed'" in ask("quantize", "run", ICML25_SEED="-1").err
    said = ask("quantize", "run", "--config", str(file), ICML25_QUANTIZE_DAMP="-2").err
    assert "ICML25_QUANTIZE_DAMP: Invalid value for '--damp': '-2'" in said
    said = ask("quantize", "--damp", "-3", ICML25_QUANTIZE_DAMP="-2").err
    assert said.startswith("error: Invalid value for '--damp': '-3'")


def test_a_variable_that_nothing_reads_is_one_warning(ask):
    done = ask("papers", ICML25_PAPERS_JSN="1", ICML25_SEEDS="3", ICML25_CACHE_DIR="c", ICML25_QUANTIZE_X="1")
    assert done.code == 0
    assert done.err.splitlines() == [
        "warning: nothing reads the variable ICML25_PAPERS_JSN, did you mean ICML25_PAPERS_JSON?",
        "warning: nothing reads the variable ICML25_SEEDS, did you mean ICML25_SEED?",
    ]
    assert ask("papers", "--quiet", ICML25_PAPERS_JSN="1").err == ""
    known = dict.fromkeys(("ICML25_FETCHED_CACHE", "ICML25_TEST_DATA", "ICML25_CI_CACHE", "ICML25_METHOD"), "x")
    assert ask("papers", ICML25_THREADS="1", **known).err == ""
    said = ask("quantize", "encode", "absent.npy", "-o", "y", ICML25_QUANTIZE_ENCODE_ROTATON="none").err
    assert "did you mean ICML25_QUANTIZE_ENCODE_ROTATION?" in said


def test_every_option_has_the_variable_that_its_own_name_promises(ask):
    assert ask("papers", ICML25_PAPERS_JSON="1").out.startswith("{")


@pytest.mark.parametrize(
    ("output", "plot"), [("pl", "pl/x.svg"), ("x.svg", "x.svg"), ("x.svg/y", "x.svg"), ("pl", "other/../pl/x.svg")]
)
@pytest.mark.parametrize("command", [("prune",), ("prune", "plan"), ("quantize",)])
def test_a_figure_in_the_output_is_refused_before_any_work(ask, tmp_path, command, output, plot):
    done = ask(*command, "-o", output, "--plot", plot)
    assert (done.code, done.err.splitlines()[-1]) == (2, "hint: write the figure to another place")
    assert "--plot" in done.err
    assert not list(tmp_path.iterdir())


def test_only_one_text_can_be_standard_input(ask):
    done = ask("prune", "--calib", "-", "--eval", "-")
    assert done.code == 2
    assert "--calib and --eval cannot both be standard input" in done.err


def test_what_no_path_can_be_is_refused_before_any_work(ask, tmp_path, monkeypatch):
    done = ask("quantize", "~nosuch/x")
    assert (done.code, done.err.splitlines()[1]) == (3, "hint: a file of that name has a whole path, from / on")
    assert ask("assets", "list", ICML25_CACHE_DIR="~nosuch/x").code == 3
    assert ask("prune", "tiny", "-o", "~nosuch/x").code == 3
    assert not list(tmp_path.iterdir())
    (tmp_path / "c.toml").write_text('[quantize]\ncalib = "a\\u0000b"\n')
    done = ask("quantize", "run", "--config", "c.toml")
    assert done.code == 2
    assert "'--calib'" in done.err
    monkeypatch.setattr(sys, "stdin", None)
    done = ask("evaluate", "tiny", "--text", "-")
    assert (done.code, done.err.splitlines()[0]) == (3, "error: standard input is closed")


@pytest.mark.parametrize("words", [["quantize", "tiny", "-o"], ["quantize", "encode", "x.npy", "-o"], ["quantize"]])
def test_a_name_that_is_too_long_is_a_sentence(ask, words):
    done = ask(*words, "a" * 300)
    assert done.code in (3, 74)
    assert "internal" not in done.err


def test_an_output_that_fails_leaves_no_folder_behind(ask, tmp_path):
    (tmp_path / "x.npy").write_text("not an array")
    assert ask("quantize", "encode", "x.npy", "-o", "new/deep/x.nq").code == 3
    assert ask("quantize", "absent", "-o", "new/deep/out", "--plot", "pictures/a.svg").code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_help_shows_a_range_without_saying_so_twice(ask):
    said = ask("quantize", "--help").out
    assert "range>" not in said
    assert "2<=x<=16" in said

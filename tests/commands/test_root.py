"""The program from the outside: help, versions, exit codes, streams."""

import ast
import json
import os
import subprocess
import sys
from importlib.resources import files

import jsonschema
import pytest

import icml25cli.main
from icml25cli.catalog import COMMANDS, PAPERS

RUNNING = [name for name, command in COMMANDS.items() if command.module]
HEAVY = ("torch", "transformers", "numpy", "numba", "scipy", "matplotlib", "huggingface_hub", "safetensors")


@pytest.mark.parametrize("args", [["--help"], *([name, "--help"] for name in RUNNING)], ids=" ".join)
def test_help_imports_nothing_heavy(args, environment):
    script = (
        "import sys\nfrom icml25cli.main import main\n"
        f"code = main({args!r})\nprint(repr(sorted(sys.modules)), file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modules = set(ast.literal_eval(done.stderr.splitlines()[-1]))
    assert not modules & set(HEAVY)
    called = {module.removeprefix("icml25cli.commands.") for module in modules if "icml25cli.commands." in module}
    word = args[0].replace("-", "_")  # a command of many verbs has modules that begin with its name
    assert word in called if len(args) > 1 else not called
    assert all(module == word or module.startswith(f"{word}_") for module in called)


def test_help_names_every_command_that_runs(icml25):
    done = icml25("--help")
    assert done.code == 0
    assert all(f" {name} " in done.out for name in RUNNING)


def test_no_command_shows_help(icml25):
    assert icml25().out == icml25("--help").out


def test_version_names_toolbox_python_and_torch(icml25):
    done = icml25("--version")
    assert done.code == 0
    assert done.out.startswith("icml25 ")
    assert f"Python {sys.version.split()[0]}" in done.out
    assert "torch 2.13" in done.out


def test_python_dash_m_is_the_same_program(environment, icml25):
    done = subprocess.run([sys.executable, "-m", "icml25cli", "papers", "--json"], env=environment, capture_output=True)
    assert json.loads(done.stdout)["rows"] == icml25("papers", "--json").json["rows"]


def test_papers_lists_all_eighteen_and_what_runs(icml25):
    report = icml25("papers", "--json").json
    assert [row["command"] for row in report["rows"]] == [paper.name for paper in PAPERS]
    assert report["metrics"] == {"papers": 18, "running": sum(paper.module is not None for paper in PAPERS)}


@pytest.mark.parametrize("command", ["papers", "doctor"])
def test_json_is_one_document_of_the_documented_schema(icml25, command):
    done = icml25(command, "--json")
    schema = json.loads(files("icml25cli.assets").joinpath("report.schema.json").read_text())
    jsonschema.validate(done.json, schema)
    assert done.code == 0


def test_doctor_says_what_is_amiss(icml25, tmp_path):
    done = icml25("doctor", "--json", env={"PATH": str(tmp_path)})
    assert done.code == 0
    assert done.json["answer"]["status"] == "every package is there"
    assert done.json["metrics"]["memory_gb"] >= done.json["metrics"]["memory_free_gb"] > 0
    assert "npm is not found: no assets from the npm registry" in done.json["warnings"]
    extras = {row["extra"]: row["lacks"] for row in done.json["tables"]["extras"]}
    assert {"tables", "index", "cluster"} <= extras.keys()
    assert extras["tune"] is None


def test_a_planned_paper_says_that_it_does_not_run_yet(icml25):
    done = icml25("ui-bench", "x")
    assert (done.code, done.out) == (4, "")
    assert "'ui-bench' is not built yet" in done.err
    assert "icml25 papers" in done.err


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["quantise"], 2, "quantize"),
        (["papers", "--jsn"], 2, "--json"),
        (["papers", "extra"], 2, "extra"),
        (["quantize", "encoed"], 2, "did you mean 'encode'"),
        (["papers", "--config", "absent.toml"], 3, "absent.toml"),
    ],
)
def test_a_wrong_word_gets_one_sentence_and_a_hint(icml25, args, code, says):
    done = icml25(*args)
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("[quantise]\nq = 8\n", "did you mean 'quantize'?"),
        ("[quantize]\nmethdo = 'rtn'\n", "did you mean 'method'?"),
        ("q = 8\n", "'q' stands outside a table"),
        ("[quantize]\nmodel = 'tiny'\n", "unknown key 'model'"),
    ],
)
def test_an_unknown_table_or_key_in_a_config_file_names_the_nearest(icml25, tmp_path, toml, says):
    (tmp_path / "c.toml").write_text(toml)
    done = icml25("quantize", "run", "absent-model", "--config", "c.toml")
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_an_exception_we_did_not_foresee_is_70(environment):
    script = (
        "import sys, icml25cli.main as m\n"
        "def broken(args, settings): raise ZeroDivisionError('of course')\n"
        "m._run = broken\nsys.exit(m.main(['papers']))"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (70, "")
    assert "ZeroDivisionError: of course" in done.stderr
    assert "--debug" in done.stderr
    assert "Traceback" not in done.stderr
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            script.replace("['papers']", "['papers', '--debug']").replace(
                "settings): ", "settings): settings.debug = True; "
            ),
        ],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert "in broken" in shown.stderr


@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_a_reader_that_leaves_is_141_and_silent(program, environment, flag):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([program, "papers", *flag], env=environment, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_a_full_disk_under_standard_output_is_74(program, environment, flag):
    with open("/dev/full", "w") as full:
        done = subprocess.run([program, "papers", *flag], env=environment, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 74
    assert b"standard output cannot be written" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(("words", "code"), [(["bogus"], 2), (["papers", "--json"], 0)], ids=str)
def test_standard_error_that_cannot_be_written_changes_no_exit_code(program, environment, words, code):
    environment["ICML25_NOBODY"] = "a warning"
    with open("/dev/full", "w") as full:
        done = subprocess.run([program, *words], env=environment, stdout=subprocess.DEVNULL, stderr=full)
    assert done.returncode == code
    closed = f"import os; os.close(2); os.execv({program!r}, {['icml25', *words]!r})"
    done = subprocess.run([sys.executable, "-c", closed], env=environment, stdout=subprocess.DEVNULL)
    assert done.returncode == code


@pytest.mark.parametrize(("ending", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("name", ["icml25cli.main", "icml25cli.core.verbs", "typer.main"])
def test_a_stop_while_the_program_starts_has_its_code_and_is_quiet(environment, name, ending, code):
    script = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {name!r}: os.kill(os.getpid(), signal.{ending})\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from icml25cli.__main__ import entry_point\nentry_point()"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


def test_ctrl_c_while_an_error_is_being_told_is_130(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(icml25cli.main, "_complain", interrupted)
    monkeypatch.setattr(icml25cli.main, "_answer_signals", lambda: None)
    assert icml25cli.main.main(["bogus"]) == 130


def test_a_python_module_that_is_absent_is_4(monkeypatch, capsys):
    def absent(*_):
        import icml25_no_such_module  # type: ignore[import-not-found]  # noqa: F401

    monkeypatch.setattr(icml25cli.main, "_run", absent)
    monkeypatch.setattr(icml25cli.main, "_answer_signals", lambda: None)
    assert icml25cli.main.main(["papers"]) == 4
    assert "icml25_no_such_module" in capsys.readouterr().err


@pytest.mark.parametrize("env", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}, {"TERM": "xterm"}])
def test_without_a_terminal_text_is_plain_and_uncut(icml25, env):
    done = icml25("papers", env=env | {"COLUMNS": "20"})
    assert "\x1b" not in done.out
    longest = max((paper.title for paper in PAPERS), key=len)
    assert longest in done.out


def test_environment_and_config_yield_to_the_command_line(icml25, tmp_path):
    (tmp_path / "c.toml").write_text("[quantize]\nseed = -3\n")
    ask = ("quantize", "absent-model")
    for args, env, code, says in [
        ((*ask, "--config", "c.toml"), {}, 2, "--seed"),
        ((*ask, "--config", "c.toml"), {"ICML25_SEED": "1"}, 3, "absent-model"),
        (ask, {"ICML25_SEED": "-1"}, 2, "--seed"),
        (ask, {"ICML25_SEED": "-1", "ICML25_QUANTIZE_SEED": "5"}, 3, "absent-model"),
        ((*ask, "--seed", "2"), {"ICML25_SEED": "-1", "ICML25_QUANTIZE_SEED": "-1"}, 3, "absent-model"),
        (ask, {"ICML25_QUANTIZE_Q": "300"}, 2, "--q"),
    ]:
        done = icml25(*args, env=env)
        assert done.code == code, done.err
        assert says in done.err


def test_a_folder_that_was_removed_under_us_is_named(program, environment, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    words = ["icml25", "quantize", "encode", "x.npy", "-o", "y"]
    script = f"import os; os.rmdir({str(gone)!r}); os.execv({program!r}, {words!r})"
    done = subprocess.run([sys.executable, "-c", script], cwd=gone, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert "current folder" in done.stderr


@pytest.mark.parametrize("name", ["caf\udce9", "naïve·"])
def test_a_name_that_the_terminal_cannot_show_is_escaped(icml25, name):
    done = icml25("quantize", name, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.code == 3
    assert "internal" not in done.err


def test_options_in_files_and_environment_go_by_their_own_names(icml25, tmp_path):
    (tmp_path / "c.toml").write_text("[quantize]\neval = 'absent.txt'\ndamp = -1.0\n")
    done = icml25("quantize", "tiny", "--config", "c.toml")
    assert done.code == 2
    assert "--damp" in done.err
    assert "--damp" in icml25("quantize", "tiny", env={"ICML25_QUANTIZE_DAMP": "-1"}).err
    # One value for an option that repeats is a list of one; the name is wrong only to end here.
    (tmp_path / "c.toml").write_text("[quantize]\nbaseline = 'rtm'\n")
    assert "'rtm' is not one of" in icml25("quantize", "tiny", "--config", "c.toml").err
    (tmp_path / "c.toml").write_text("[[quantize.encode]]\nq = 8\n")
    done = icml25("quantize", "encode", "x.npy", "-o", "y", "--config", "c.toml")
    assert done.code == 2
    assert "one table" in done.err


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        ('RuntimeError("DefaultCPUAllocator: can\'t allocate memory")', 4),
        ("MemoryError()", 4),
        ("RuntimeError('x')", 70),
    ],
)
def test_what_torch_cannot_allocate_is_no_internal_error(monkeypatch, capsys, raised, code):
    import icml25cli.main as root

    def full(args, settings):
        raise {"M": MemoryError(), "R": RuntimeError(raised)}[raised[0]]

    monkeypatch.setattr(root, "_run", full)
    assert root.main(["papers"]) == code
    assert ("memory is exhausted" in capsys.readouterr().err) == (code == 4)

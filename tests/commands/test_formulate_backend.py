"""`icml25 formulate` with a language model behind it, as a user meets it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from importlib.resources import files

import jsonschema
import pytest

from tests.papers.formulate.backends.scripted import COMPONENTS, FARMER, Scripted, cut, drawn, scripted, status

pytest.importorskip("openai")
SECRET = "sk-very-secret"
SEARCH = ("-H", 8, "-T", 6, "--min-confidence", 0)


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted() as running:
        yield running


def test_recorded_and_replayed_to_the_byte(icml25, server, tmp_path):
    key = {"MY_KEY": SECRET}
    log = ("--log-file", "log.txt", "--debug")
    backend = ("--backend", "openai", "--base-url", server.url, "--api-key-env", "MY_KEY", "--record", "farmer.jsonl")
    first = icml25("formulate", FARMER, *SEARCH, *backend, *log, "-o", "first", "--json", env=key)
    assert first.code == 0, first.err
    report = first.json
    jsonschema.validate(report, json.loads(files("icml25cli.assets").joinpath("report.schema.json").read_text()))
    assert report["params"]["backend"] == "openai"
    assert report["params"]["model"] == "scripted"
    assert report["metrics"]["requests"] == len(server.bodies)
    assert 0 < report["metrics"]["diversity"] < 1
    assert report["answer"]["solution"]
    assert not any("No language model" in note for note in report["notes"])
    assert set(server.keys) == {f"Bearer {SECRET}"}
    asked = len(server.bodies)
    again = icml25("formulate", FARMER, *SEARCH, "--backend", "replay", "--cassette", "farmer.jsonl", "-o", "again")
    assert again.code == 0, again.err
    assert len(server.bodies) == asked
    trees = [(tmp_path / folder / "tree.json").read_bytes() for folder in ("first", "again")]
    assert trees[0] == trees[1]
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 10
    assert not any(SECRET.encode() in path.read_bytes() for path in written)
    assert SECRET not in first.out + first.err


def test_a_spent_budget_keeps_what_was_found(icml25, server, tmp_path):
    args = ("--backend", "openai", "--base-url", server.url, "-o", "part")
    done = icml25("formulate", FARMER, *SEARCH, *args, "--max-calls", 25, "--json")
    assert done.code == 4
    assert "the budget of 25 requests is spent" in done.err
    assert len(server.bodies) == 25
    assert done.json["answer"]["status"] == "optimal"
    assert "cut short" in done.json["warnings"][0]
    assert (tmp_path / "part" / "model.json").exists()
    early = icml25("formulate", FARMER, *SEARCH, *args[:-1], "none", "--max-calls", 3, "--fresh", "--json")
    assert (early.code, early.out) == (4, "")
    assert not (tmp_path / "none").exists()


def test_what_was_cut_short_goes_on_and_grows_the_same_tree(icml25, server, tmp_path):
    args = ("formulate", FARMER, *SEARCH, "--backend", "openai", "--base-url", server.url)
    none = icml25(*args, "--resume", "--json")
    assert (none.code, none.out) == (3, "")
    assert "no run to resume" in none.err
    cut_short = icml25(*args, "--max-calls", 20, "--json")
    assert cut_short.code == 4
    done = icml25(*args, "--resume", "-o", "resumed")
    assert done.code == 0, done.err
    asked = len(server.bodies)
    again = icml25(*args, "-o", "again")  # all is there
    assert again.code == 0, again.err
    assert len(server.bodies) == asked
    icml25(*args, "--fresh", "-o", "anew")
    assert len(server.bodies) == 2 * asked
    trees = {(tmp_path / folder / "tree.json").read_bytes() for folder in ("resumed", "again", "anew")}
    assert len(trees) == 1


@pytest.mark.parametrize("record", [(), ("--record", "kept.jsonl")], ids=["run", "record"])
def test_an_interrupt_amid_the_search_loses_no_answer(icml25, program, environment, server, tmp_path, record):
    environment = environment | {"ICML25_CACHE_DIR": str(tmp_path / "cache")}
    args = ("formulate", FARMER, *SEARCH, "--backend", "openai", "--base-url", server.url)
    command = [program, *map(str, args), *record, "-o", "out"]
    running = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while len(server.bodies) < 8 and running.poll() is None:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    out, err = (stream.decode() for stream in running.communicate(timeout=30))
    assert (running.returncode, out) == (130, ""), err
    assert "interrupted" in err
    assert ("kept.jsonl" if record else "--resume") in err
    assert not (tmp_path / "out").exists()
    before = len(server.bodies)
    again = [*command, *(() if record else ("--resume",))]
    done = subprocess.run(again, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    asked = len(server.bodies) - before
    assert icml25(*args, "--fresh", "-o", "anew").code == 0
    assert asked < len(server.bodies) - before - asked  # what had been answered was not asked again
    assert (tmp_path / "out" / "tree.json").read_bytes() == (tmp_path / "anew" / "tree.json").read_bytes()


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (status(429, "slow down", retry_after_ms="1", Retry_After="1"), 4, "limits the rate (429)"),
        (status(500, "kaput", retry_after_ms="1"), 4, "failed 5 times (500): kaput"),
        (status(401, f"wrong key {SECRET}"), 4, "refuses the key (401): wrong key ..."),
        (status(404, "[red]no model[/red] \x1b[31m"), 4, "(404): [red]no model[/red]"),
        (status(400, "too long"), 3, "refuses the request (400): too long"),
        (cut, 4, "cannot be reached"),
    ],
    ids=["429", "500", "401", "404", "400", "cut"],
)
def test_a_server_that_fails_for_good(icml25, server, fault, code, said):
    server.always = fault
    args = ("--backend", "openai", "--base-url", server.url, "--json")
    done = icml25("formulate", FARMER, *args, env={"OPENAI_API_KEY": SECRET})
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert "hint:" in done.err
    assert SECRET not in done.err
    assert "\x1b" not in done.err
    assert "Traceback" not in done.err


def test_answers_that_are_no_json_and_answers_that_are_all_the_same(icml25, server):
    args = ("formulate", FARMER, *SEARCH, "--backend", "openai", "--base-url", server.url, "--json")
    server.answer = lambda body, place: "I am sorry, Dave."
    done = icml25(*args)
    assert done.code == 1
    assert done.json["answer"]["status"] == "abstained"
    assert "of 16 answers 16 could not be read" in done.err
    assert "a stronger model" in done.err
    firsts = {key: values[:1] for key, values in COMPONENTS.items()}
    server.answer = lambda body, place: drawn(body, place, firsts)
    done = icml25(*args, "--fresh")
    assert done.code == 0
    assert done.json["metrics"]["objective"] == 300
    assert done.json["metrics"]["diversity"] == 0
    assert any("same answer every time" in warning for warning in done.json["warnings"])


def test_a_local_model(icml25):
    done = icml25("formulate", "--backend", "hf", "--max-tokens", 8, "-H", 2, "--json")
    assert done.code == 1, done.err  # tiny writes no formulations
    assert done.json["params"]["model"] == "tiny"
    assert "of 4 answers 4 could not be read" in done.json["answer"]["reason"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--backend", "replay"), 2, "--cassette"),
        (("--cassette", "f"), 2, "--backend replay"),
        (("--record", "f"), 2, "--backend grammar asks none"),
        (("--backend", "openai", "--model", "m"), 4, "neither a server nor a key"),
        (("--backend", "openai", "--base-url", "localhost"), 2, "no address"),
        (("--backend", "hf", "--model", "no-such-model"), 3, "no-such-model"),
        (("--backend", "replay", "--cassette", "gone.jsonl"), 3, "gone.jsonl cannot be read"),
        (("--backend", "magic"), 2, "magic"),
        (("--resume",), 2, "--resume goes with a model's answers"),
    ],
    ids=range(9),
)
def test_options_that_do_not_fit(icml25, args, code, said):
    done = icml25("formulate", FARMER, *args, "--json", env={"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""})
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_who_is_there(icml25, server):
    rows = {row["backend"]: row for row in icml25("formulate", "backends", "--json").json["rows"]}
    assert [*rows] == ["grammar", "openai", "hf", "replay"]
    assert all(row["ready"] for row in rows.values())
    server.models = ["small", "large"]
    done = icml25("formulate", "backends", "--base-url", server.url, "--json")
    assert done.json["rows"][1]["says"] == "models: small, large"


def test_a_model_without_a_back_end_is_warned_of(icml25):
    done = icml25("formulate", "--model", "large", "--json")
    assert done.code == 0
    assert "--model has no effect with --backend grammar" in done.json["warnings"]

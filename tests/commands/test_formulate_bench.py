"""`icml25 formulate bench`, as a user meets it: records, scores, shards, and going on after a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import pytest

from tests.papers.formulate.backends.scripted import COMPONENTS, FARMER, drawn, scripted

BUSES = (
    "A school hires buses and vans for a trip. A bus seats {}0 pupils and costs $400, a van seats ten pupils and costs "
    "$100. At least two hundred pupils travel. At most three buses can be hired. Minimize the cost."
)
DECLARED = {
    "document": BUSES.format(5),
    "vars": ["buses", "vans"],
    "var_mention_to_first_var": {"bus": "buses", "van": "vans"},
    "obj_declaration": {"direction": "Minimize", "terms": {"bus": "400", "van": "100"}},
    "const_declarations": [
        {"type": "linear", "operator": "GREATER_OR_EQUAL", "limit": "two hundred", "terms": {"bus": "50", "van": "10"}},
        {"type": "upperbound", "operator": "LESS_OR_EQUAL", "limit": "three", "var": "bus"},
    ],
}


@pytest.fixture
def data(tmp_path):
    rows = [
        {"en_question": BUSES.format(5), "en_answer": "1700"},
        {"Question": BUSES.format(5), "Answer": 99},  # a wrong label
        {"only": DECLARED},
        {"question": "Minimize the squared distance of 3 shops from 2 roads with 5 bends.", "answer": 4},
        {"question": BUSES.format(6), "answer": "No Best Solution"},
    ]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_scores_are_those_of_the_labels(icml25, data, tmp_path):
    done = icml25("formulate", "bench", data, "-T", 4, "-j", 1, "-o", "out", "--json")
    assert done.code == 0, done.err
    metrics = done.json["metrics"]
    assert (metrics["problems"], metrics["labelled"], metrics["abstained"]) == (5, 4, 0.25)
    assert metrics["best_of_16_5pct"] == metrics["best_of_16_1e6"] == 0.5
    assert metrics["pass_at_1_5pct"] <= metrics["pass_at_3_5pct"] <= metrics["pass_at_16_5pct"]
    assert {row["kind"] for row in done.json["tables"]["kinds"]} == {"linear", "upperbound"}
    assert [row["row"] for row in done.json["tables"]["without_answer"]] == [4]
    records = [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()]
    assert [record["row"] for record in records] == [1, 2, 3, 4, 5]
    assert records[2]["labels"] == [1700, 1700]


def test_shards_make_the_whole(icml25, data, tmp_path):
    rows = []
    for i in (1, 2):
        done = icml25("formulate", "bench", data, "--shard", f"{i}/2", "-T", 2, "-j", 1, "-o", f"s{i}")
        assert done.code == 0, done.err
        rows += [json.loads(line)["row"] for line in (tmp_path / f"s{i}" / "records.jsonl").read_text().splitlines()]
    assert rows == [1, 3, 5, 2, 4]


def test_a_killed_run_goes_on(icml25, program, environment, data, tmp_path):
    cache = tmp_path / "cache"
    environment = environment | {"ICML25_CACHE_DIR": str(cache)}
    data.write_text(data.read_text() * 8)
    command = [program, "formulate", "bench", str(data), "-T", "2", "-j", "1"]
    first = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not (units := [*cache.glob("runs/*/units/row-*.json")]) and first.poll() is None:
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert 0 < len(units) < 40
    before = {path: path.stat().st_mtime_ns for path in units}
    done = subprocess.run(
        [*command, "--resume", "--json"], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert json.loads(done.stdout)["metrics"]["problems"] == 40
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_language_model_is_scored_cut_short_and_replayed(icml25, tmp_path):
    pytest.importorskip("openai")
    data = tmp_path / "farms.jsonl"
    data.write_text(
        "".join(json.dumps({"question": text, "answer": 300}) + "\n" for text in (FARMER, f"{FARMER} Yes."))
    )
    options = ("-H", 6, "-T", 4, "--min-confidence", 0)
    firsts = {key: values[:1] for key, values in COMPONENTS.items()}
    with scripted() as server:
        server.answer = lambda body, place: drawn(body, place, firsts)
        args = ("formulate", "bench", data, *options, "--backend", "openai", "--base-url", server.url)
        cut_short = icml25(*args, "--max-calls", 7, "--json")
        assert (cut_short.code, cut_short.out) == (4, "")
        assert "the budget of 7 requests is spent" in cut_short.err
        asked = len(server.bodies)
        done = icml25(*args, "--resume", "-o", "scores", "--json")
        assert done.code == 0, done.err
        assert done.json["metrics"]["requests"] == len(server.bodies) - asked
        assert done.json["params"]["model"] == "scripted"
        assert done.json["metrics"]["problems"] == 2
        assert done.json["metrics"]["pass_at_1_1e6"] == 1
        fresh = icml25(*args, "--fresh", "--record", "answers.jsonl", "-o", "recorded")
        assert fresh.code == 0, fresh.err
    backend = ("--backend", "replay", "--cassette", "answers.jsonl")
    replayed = icml25("formulate", "bench", data, *options, *backend, "-o", "replayed")
    assert replayed.code == 0, replayed.err
    records = [(tmp_path / folder / "records.jsonl").read_text() for folder in ("scores", "recorded", "replayed")]
    assert len({re.sub(r'"seconds": [\d.]+', "", text) for text in records}) == 1
    assert icml25("formulate", "bench", data, *backend, "-j", 2).code == 2


@pytest.mark.parametrize(
    ("content", "args", "code", "said"),
    [
        ("{}\n", (), 3, "row 1 of data.jsonl has no problem in words"),
        ('{"question": "a"}\n[1]\n', (), 3, "row 2 of data.jsonl is no object"),
        ("words\n", (), 3, "row 1 of data.jsonl is no JSON"),
        ("\n", (), 3, "data.jsonl has no problems"),
        ('{"question": "a"}\n', ("--shard", "3/2"), 2, "--shard 3/2"),
        ('{"question": "a"}\n', ("--resume",), 3, "no run to resume"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(icml25, tmp_path, content, args, code, said):
    (tmp_path / "data.jsonl").write_text(content)
    done = icml25("formulate", "bench", "data.jsonl", "--json", *args)
    assert (done.code, done.out) == (code, "")
    assert said in done.err

"""`icml25 select-data` as a user meets it: a small real selection, what goes into a pipe, and a killed process."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import jsonschema
import pyarrow.parquet as parquet
import pytest

from icml25cli.main import main
from tests.conftest import Done
from tests.make_models import make_model

QUICK = (
    *("--epochs", 2, "--lr", 1e-3, "--batch", 4, "--lora-r", 2, "--lora-alpha", 4, "--warmup-frac", 0.2),
    *("--max-length", 64, "--mc", 4, "--max-new-tokens", 6, "--proj-dim", 64, "--projector", "countsketch"),
)
# Half of what a model of random weights says; a word can have no letter at all.
REWARD = ("--reward", r"regex:^(?:..)*$")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A model, a pool of two files and validation rows, and the work on them, which tests share."""
    folder = tmp_path_factory.mktemp("place")
    make_model(folder / "model")
    # Blanks and escapes that a parser would not write again.
    first = [b'{"prompt":"p%d",  "completion":"\\u00e9%s"}' % (i, b"y" * (i % 7 + 1)) for i in range(20)]
    second = [b'{ "output": "no", "instruction": "q%d" }' % i for i in range(20)]
    (folder / "a.jsonl").write_bytes(b"\n".join(first))
    (folder / "b.jsonl").write_bytes(b"\r\n".join(second) + b"\r\n")
    (folder / "v.jsonl").write_text("".join(json.dumps({"prompt": f"v{i}"}) + "\n" for i in range(4)))
    return folder


@pytest.fixture
def icml25(environment, monkeypatch, capfdbinary, place) -> Callable[..., Done]:
    """Run the program's main function as its console script does, where the files are."""
    monkeypatch.chdir(place)
    for name in ("ICML25_CACHE_DIR", "ICML25_THREADS", "HF_HUB_OFFLINE", "TERM"):
        monkeypatch.setenv(name, environment[name])
    capfdbinary.readouterr()

    def run(verb: str, *args: object) -> Done:
        job = ("a.jsonl", "b.jsonl", "--val", "v.jsonl", "--model", "model", "--work", "work", *QUICK)
        code = main(["select-data", verb, *map(str, (*job, *args))])
        out, err = capfdbinary.readouterr()
        return Done(code, out.decode(), err.decode())

    return run


def lines_of(place: Path) -> set[bytes]:
    return {line.removesuffix(b"\r") for name in "ab" for line in (place / f"{name}.jsonl").read_bytes().split(b"\n")}


def test_a_selection_is_written_whole_and_its_rows_are_untouched(icml25, place):
    done = icml25(
        "run", *REWARD, "--budget", "25%", "--baseline", "random", "--baseline", "bm25", "-o", "out", "--json"
    )
    assert done.code == 0, done.err
    schema = json.loads((files("icml25cli.assets") / "report.schema.json").read_text())
    jsonschema.validate(done.json, schema)
    assert [row["method"] for row in done.json["rows"]] == ["nice", "random", "bm25"]
    assert all({"method", "selected", "metric", "seconds"} <= row.keys() for row in done.json["rows"])
    taken = [row for row in done.json["tables"]["composition"] if row["method"] == "nice"]
    assert sum(row["selected"] for row in taken) == 10
    assert {row["source"] for row in taken} == {"a.jsonl", "b.jsonl"}
    signal_row = done.json["tables"]["signal"][0]
    assert 0 <= signal_row["half_overlap"] <= 1
    if signal_row["half_overlap"] < 0.6:
        assert any("two halves" in text for text in done.json["warnings"])
    assert sorted(file.name for file in (place / "out").iterdir()) == [
        ".icml25",
        "report.json",
        "scores.parquet",
        "scores.png",
        "selected.jsonl",
    ]
    selected = (place / "out" / "selected.jsonl").read_bytes()
    rows = selected.splitlines()
    assert len(rows) == len(set(rows)) == 10
    assert set(rows) <= lines_of(place)
    scores = parquet.read_table(place / "out" / "scores.parquet").to_pylist()
    assert len(scores) == 40
    best = sorted(scores, key=lambda row: -row["score"])[:10]
    files_of = {name: (place / name).read_bytes().replace(b"\r", b"").split(b"\n") for name in ("a.jsonl", "b.jsonl")}
    assert rows == [files_of[row["source"]][row["line"] - 1] for row in best]
    again = icml25("run", *REWARD, "-o", "out")
    assert again.code == 74
    assert "--force" in again.err


def test_the_rows_go_into_a_pipe(icml25, place):
    done = icml25("select", *REWARD, "--budget", 3)
    assert done.code == 0
    assert {line.encode() for line in done.out.splitlines()} <= lines_of(place)
    assert "half overlap" in done.err
    kept = icml25("select", *REWARD, "--budget", 3, "--keep-order", "-o", "three.jsonl", "--force")
    assert kept.out == ""
    assert set((place / "three.jsonl").read_text().splitlines()) == set(done.out.splitlines())


def test_stages_one_by_one(icml25, place):
    warm = icml25("warmup", "--json").json
    assert [row["weight"] for row in warm["rows"]] == pytest.approx([5 / 6, 1 / 6])
    blocks = icml25("grads", "--less", "less", "--force", "--json").json
    assert blocks["metrics"]["blocks"] == 2
    assert (place / "less" / "checkpoint-2" / "all_orig.pt").exists()
    answers = [json.loads(line) for line in icml25("sample", *REWARD).out.splitlines()]
    assert len(answers) == 2 * 4 * 4
    assert {answer["reward"] for answer in answers} == {0.0, 1.0}
    assert icml25("valgrads", *REWARD, "--json").json["rows"][0]["prompts"] == 4
    records = icml25("score", *REWARD).out.splitlines()
    assert records[0].startswith("row,source,line,score")
    assert len(records) == 41
    pulls = icml25("inspect", *REWARD, "--row", 30, "--json").json
    assert pulls["answer"]["row"] == "b.jsonl, row 10"
    assert len(pulls["rows"]) == 4
    assert pulls["metrics"]["influence"] == pytest.approx(float(records[30].split(",")[3]), abs=1e-6)
    stages = icml25("estimate", "--json").json
    assert stages["metrics"]["seconds"] > 0
    assert icml25("run", "--dry-run", "--json").json["rows"][0]["stage"] == "warm-up"


def test_methods_are_judged_by_the_model_tuned_on_their_rows(icml25, place):
    done = icml25(
        "compare", *REWARD, "--budget", 4, "--seeds", 2, "--once", "length", "--plot", "m.svg", "--force", "--json"
    )
    assert done.code == 0, done.err
    rows = {row["method"]: row for row in done.json["rows"]}
    assert list(rows) == ["nice", "random", "length", "base"]
    assert [row["seeds"] for row in rows.values()] == [2, 2, 1, 1]
    assert all(0 <= row["metric"] <= 1 for row in rows.values())
    assert {row["method"] for row in done.json["tables"]["differences"]} == {"random", "length", "base"}
    assert (place / "m.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ((), 2, "needs a --reward"),
        (("--reward", "exactt"), 2, "did you mean exact?"),
        (("--reward", "f1"), 3, "v.jsonl, row 1 has no answer"),
        (("--method", "less"), 3, "LESS is about"),
        ((*REWARD, "--budget", "400"), 3, "larger than the pool of 40"),
        ((*REWARD, "--budget", "-1"), 2, "--budget"),
        ((*REWARD, "--checkpoints", "7"), 2, "--checkpoints 7"),
        ((*REWARD, "--lora-targets", "nothing"), 3, "no module nothing"),
        (("--reward", "length:max=0"), 1, "no reward signal"),
        ((*REWARD, "--samples", "missing.jsonl"), 3, "missing.jsonl does not exist"),
        ((*REWARD, "--optimizer", "v.jsonl"), 2, "--optimizer goes with --adapter"),
        ((*REWARD, "--adapter", "model"), 2, "needs --optimizer"),
        ((*REWARD, "--adapter", "model", "--precond", "sgd"), 3, "holds no adapter"),
        ((*REWARD, "--subtasks", "3"), 2, "does not divide 4"),
        ((*REWARD, "--policy", "rejection", "--reward-baseline", "rloo"), 2, "--policy vanilla"),
        ((*REWARD, "--resume", "--work", "elsewhere"), 3, "no run to resume"),
    ],
)
def test_what_stands_in_the_way(icml25, args, code, said):
    done = icml25("run", *args)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


def test_a_killed_run_continues_to_the_same_scores(icml25, program, environment, place):
    wanted = icml25("score", *REWARD)
    job = ["a.jsonl", "b.jsonl", "--val", "v.jsonl", "--model", "model", "--work", "cut", *map(str, (*QUICK, *REWARD))]
    with subprocess.Popen(
        [program, "select-data", "score", *job, "-q"],
        cwd=place,
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
    ) as process:
        while process.poll() is None and not list(place.glob("cut/select-data-grads-*/units/grads-1-*")):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    again = icml25("score", *REWARD, "--work", "cut", "--resume")
    assert again.code == 0, again.err
    assert again.out == wanted.out


def test_head_may_leave(program, environment, place, icml25):
    assert icml25("select", *REWARD, "--budget", 40).code == 0  # all is done; only reading is left
    job = ["a.jsonl", "b.jsonl", "--val", "v.jsonl", "--model", "model", "--work", "work", *map(str, (*QUICK, *REWARD))]
    line = " ".join(["exec", program, "select-data", "select", *(f"'{word}'" for word in job), "--budget", "40", "-q"])
    done = subprocess.run(
        ["bash", "-c", f"{line} | head -n 1 | python -c 'import json, sys; json.load(sys.stdin)'"],
        cwd=place, env=os.environ | environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (0, "", False)

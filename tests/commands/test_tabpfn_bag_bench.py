"""`icml25 tabpfn-bag bench` and `bias-var`, as a user meets them: tables, ranks, figures, and going on after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from icml25cli.papers.tabpfn_bag.suites import DEVELOPMENT, HELD_OUT

CHEAP = ("--method", "bag", "--method", "frozen", "--method", "logreg")
FIGURES = {"method", "accuracy", "auc", "log_loss", "ece", "fit_seconds", "predict_seconds"}


def test_the_lists_are_named_and_share_nothing():
    assert (len(set(DEVELOPMENT)), len(set(HELD_OUT))) == (10, 12)
    assert not set(DEVELOPMENT) & set(HELD_OUT)


def test_ranks_tables_and_files(icml25, tmp_path):
    args = ("tabpfn-bag", "bench", "builtin:iris", "builtin:wine", *CHEAP, "--splits", 2)
    done = icml25(*args, "-o", "out", "--plot", "ranks.svg", "--json")
    assert done.code == 0, done.err
    found = done.json
    assert [row["method"] for row in found["rows"]] == ["bag", "frozen", "logreg"]
    assert all(row.keys() >= FIGURES for row in found["rows"])
    assert sum(row["rank_log_loss"] for row in found["rows"]) == pytest.approx(6)
    assert found["tables"].keys() == {"builtin:iris", "builtin:wine"}
    assert all(row.keys() >= FIGURES for rows in found["tables"].values() for row in rows)
    assert found["metrics"]["critical_difference"] > 0
    records = [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()]
    assert len(records) == 2 * 2 * 3
    assert json.loads((tmp_path / "out" / "report.json").read_text())["rows"] == found["rows"]
    assert "critical difference" in (tmp_path / "ranks.svg").read_text()
    again = icml25(*args[:-1], 1, "--json")  # what was fitted for two splits serves one
    assert [row["fit_seconds"] for row in again.json["tables"]["builtin:iris"]] == [
        r["fit_seconds"] for r in records if (r["table"], r["split"]) == ("builtin:iris", 0)
    ]


def test_a_method_that_fell_back_is_told(icml25):
    args = ("--method", "beta, frozen", "--splits", 2, "--most-rows", 20, "--test", 0.9)
    done = icml25("tabpfn-bag", "bench", "builtin:iris", *args, "--json")
    assert done.code == 0, done.err
    assert [(row["method"], row["fits"], row["fell_back"]) for row in done.json["rows"]] == [
        ("beta", 2, 2),
        ("frozen", 2, 0),
    ]
    assert done.json["answer"]["best_log_loss"] == "beta, frozen"
    (told,) = done.json["notes"]
    assert told.startswith("beta predicted by the network as it is, as frozen does, in 2 of 2 fits")
    assert done.json["params"]["most_rows"] == 20


def finished(cache):
    """Units that are whole: what is being written has a name that begins with a dot."""
    return [path for path in cache.glob("runs/*/units/*.json") if not path.name.startswith(".")]


def test_a_killed_bench_goes_on(program, environment, tmp_path):
    cache = tmp_path / "cache"
    environment = environment | {"ICML25_CACHE_DIR": str(cache)}
    command = [program, "tabpfn-bag", "bench", "builtin:iris", "builtin:wine", *CHEAP, "--splits", "20"]
    first = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not finished(cache) and first.poll() is None:
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    units = finished(cache)
    assert 0 < len(units) < 120
    before = {path: path.stat().st_mtime_ns for path in units}
    done = subprocess.run(
        [*command, "--resume", "--json"], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in units} == before
    assert len(finished(cache)) == 120


def test_bias_and_variance(icml25, tmp_path):
    args = ("tabpfn-bag", "bias-var", "builtin:wine", *CHEAP[:4], "--size", 30, "--size", 100, "--sets", 3)
    done = icml25(*args, "--plot", "s.svg", "--json")
    assert done.code == 0, done.err
    rows = done.json["rows"]
    assert [(row["training_rows"], row["method"]) for row in rows] == [
        (30, "bag"), (30, "frozen"), (100, "bag"), (100, "frozen")
    ]  # fmt: skip
    for row in rows:
        assert row["log_loss"] == pytest.approx(row["log_loss_bias"] + row["log_loss_variance"], abs=1e-8)
    assert rows[3]["log_loss_variance"] < rows[1]["log_loss_variance"]
    assert "<svg" in (tmp_path / "s.svg").read_text()
    done = icml25("tabpfn-bag", "bias-var", "builtin:wine", *CHEAP[:4], "--size", 5000)
    assert done.code == 3
    assert "training sets of 5,000" in done.err


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("builtin:iris", "--method", "frozen, magic"), 2, "no method is called 'magic'"),
        (("builtin:iris", "--method", ","), 2, "names none"),
        (("moon",), 3, "moon is no file, folder or known set"),
        (("builtin:iris", "--method", "magic"), 2, "no method is called 'magic'"),
        (("builtin:iris", "--plot", "ranks.txt"), 2, "no figure file"),
    ],
)
def test_what_cannot_be_compared_is_refused(icml25, args, code, says):
    done = icml25("tabpfn-bag", "bench", *args)
    assert (done.code, done.out) == (code, "")
    assert says in done.err

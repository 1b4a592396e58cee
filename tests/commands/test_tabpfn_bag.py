"""`icml25 tabpfn-bag` on a user's own table: from the fit to predictions in a pipe, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load

QUICK = ("--k", 2, "--epochs", 2, "--patience", 1)


def people(n: int = 150, seed: int = 0) -> pd.DataFrame:
    """Numbers with gaps, a category, a date and a constant; three classes in words."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    frame = pd.DataFrame(
        {
            "age": 30 + 10 * y + rng.normal(0, 4, n),
            "pay": 2000 * (y == 1) + rng.normal(3000, 500, n),
            "town": rng.choice(["Ulm", "Köln", "Bonn"], n),
            "since": pd.date_range("2021-01-01", periods=n).astype(str),
            "same": 1,
            "kind": np.array(["low", "middle", "high"])[y],
        }
    )
    frame.loc[::11, "age"] = np.nan
    return frame


@pytest.fixture
def table(tmp_path):
    people().to_csv(tmp_path / "people.csv", index=False)
    people(40, seed=1).to_csv(tmp_path / "others.csv", index=False)
    return tmp_path / "people.csv"


@pytest.fixture
def model(icml25, table):
    done = icml25("tabpfn-bag", "fit", table, "--target", "kind", "-o", "m.icml25tab", *QUICK)
    assert done.code == 0, done.err
    assert "wrote m.icml25tab" in done.out
    return table.with_name("m.icml25tab")


def test_from_a_table_to_probabilities_in_a_pipe(icml25, model, tmp_path):
    new = people(40, seed=1).drop(columns="kind")
    done = icml25("tabpfn-bag", "predict", model, "-", "--proba", input=new.to_csv(index=False))
    assert done.code == 0, done.err
    (tmp_path / "p.csv").write_text(done.out)
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found.columns) == ["class", "probability", "p_high", "p_low", "p_middle"]
    assert len(found) == 40
    np.testing.assert_allclose(found[["p_high", "p_low", "p_middle"]].sum(axis=1), 1, atol=1e-9)
    right = people(40, seed=1)["kind"].to_numpy()
    assert (found["class"].to_numpy() == right).mean() > 0.7

    # columns in another order, more of them, a town and a class that were not there: documented to be no matter
    other = new.assign(more=1, town="Rom")[["more", "town", "since", "same", "pay", "age"]]
    done = icml25("tabpfn-bag", "predict", model, "-", "--format", "jsonl", input=other.to_csv(index=False))
    assert done.code == 0, done.err
    assert "the model was not fitted on column 'more': not used" in done.err
    assert f"{len(new)} of {len(new)} rows have in column 'town' a value unknown to the model" in done.err
    assert {json.loads(line)["class"] for line in done.out.splitlines()} <= {"low", "middle", "high"}

    done = icml25("tabpfn-bag", "predict", model, "-", input=new.drop(columns="pay").to_csv(index=False))
    assert (done.code, done.out) == (3, "")
    assert "'pay'" in done.err


def test_a_reader_that_has_enough_ends_it_silently(model, program, environment, tmp_path):
    people(3000, seed=2).drop(columns="kind").to_csv(tmp_path / "new.csv", index=False)
    line = f"cat new.csv | {program} tabpfn-bag predict {model} - --proba 2> err | head -n 3"
    done = subprocess.run(["bash", "-c", line], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 3
    assert "Error" not in (tmp_path / "err").read_text()


def test_eval_and_its_gate_and_figure(icml25, model, tmp_path):
    done = icml25("tabpfn-bag", "eval", model, "others.csv", "--target", "kind", "--plot", "c.svg", "--json")
    assert done.code == 0, done.err
    (row,) = done.json["rows"]
    assert row["accuracy"] > 0.7
    assert "<svg" in (tmp_path / "c.svg").read_text()
    done = icml25("tabpfn-bag", "eval", model, "others.csv", "--target", "kind", "--min-auc", 0.9999)
    assert done.code == 1
    assert "below --min-auc 0.9999" in done.err
    again = icml25("tabpfn-bag", "eval", model, "others.csv", "--json")  # the model knows its target's name
    assert (again.json["rows"], again.json["params"]["target"]) == ([row], "kind")
    people(40, seed=1).rename(columns={"kind": "sort"}).to_csv(tmp_path / "others.csv", index=False)
    done = icml25("tabpfn-bag", "eval", model, "others.csv")
    assert done.code == 2
    assert "no column 'kind'" in done.err


def test_rows_of_one_class_have_no_auc(icml25, model, tmp_path):
    frame = people(40, seed=1)
    frame[frame["kind"] == "low"].to_csv(tmp_path / "low.csv", index=False)
    done = icml25("tabpfn-bag", "eval", model, "low.csv", "--json")
    assert (done.code, done.json["rows"][0]["auc"], done.json["answer"]["status"]) == (0, None, "done")
    people(44).assign(kind=["no"] * 42 + ["yes"] * 2).to_csv(tmp_path / "rare.csv", index=False)
    done = icml25("tabpfn-bag", "rare.csv", "--target", "kind", "--method", "frozen", "--baseline", "logreg", "--json")
    assert done.code == 0, done.err
    assert [row["auc"] for row in done.json["rows"]] == [None, None]
    assert "all of one class" in done.err


@pytest.mark.parametrize("verb", [("run",), ("fit", "-o", "m"), ("bench",), ("bias-var",)])
def test_a_measured_quantity_is_no_class(icml25, table, verb):
    done = icml25("tabpfn-bag", *verb[:1], table, *verb[1:], "--target", "pay")
    assert (done.code, done.out) == (3, "")
    assert "the target 'pay' has 150 different values in 150 rows" in done.err
    assert "hint: this is classification" in done.err


def test_run_judges_all_on_the_same_rows(icml25, table, tmp_path):
    args = ("tabpfn-bag", table, "--target", "kind", *QUICK, "--baseline", "frozen,logreg")
    done = icml25(*args, "--plot", "c.svg", "--json")
    assert done.code == 0, done.err
    rows = done.json["rows"]
    assert [row["method"] for row in rows] == ["beta", "frozen", "logreg"]
    for key in ("accuracy", "auc", "log_loss", "ece", "fit_seconds", "predict_seconds"):
        assert all(isinstance(row[key], float) for row in rows)
    assert (tmp_path / "c.svg").exists()
    again = icml25(*args, "--resume", "--json")
    assert again.json["rows"] == rows  # nothing is fitted twice


def test_integer_labels_and_a_validation_table(icml25, table, tmp_path):
    for file in ("people.csv", "others.csv"):
        frame = pd.read_csv(tmp_path / file)
        frame["kind"] = frame["kind"].replace({"low": 7, "middle": 1, "high": 10}).astype(int)
        frame.to_csv(tmp_path / file, index=False)
    args = ("tabpfn-bag", "fit", "people.csv", "--target", "kind", "-o", "m", *QUICK)
    assert icml25(*args, "--valid", "others.csv", "--json").json["metrics"]["validation_rows"] == 40
    done = icml25("tabpfn-bag", "predict", "m", "others.csv", "--json")
    assert {row["class"] for row in done.json["rows"]} <= {1, 7, 10}
    done = icml25(*args, "--force", "--valid", "0.5", "--json")
    assert done.json["metrics"]["validation_rows"] == pytest.approx(75, abs=2)
    assert icml25(*args, "--force", "--valid", "1.5").code == 2


def test_a_fit_that_was_killed_goes_on_to_the_same_weights(icml25, program, environment, table, tmp_path):
    args = ["tabpfn-bag", "fit", "people.csv", "--target", "kind", "--k", "2", "--epochs", "6", "--no-fallback"]
    assert icml25(*args, "-o", "whole").code == 0
    cache = tmp_path / "cache"
    environment = environment | {"ICML25_CACHE_DIR": str(cache)}
    first = subprocess.Popen([program, *args, "-o", "parts"], env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
    while not [*cache.glob("runs/*/units/training.pt")] and first.poll() is None:
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert not (tmp_path / "parts").exists()
    done = icml25(*args, "-o", "parts", "--resume", env={"ICML25_CACHE_DIR": str(cache)})
    assert done.code == 0, done.err
    whole, parts = (tensors(tmp_path / name) for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(bool((whole[name] == parts[name]).all()) for name in whole)


def tensors(path):
    import zipfile

    with zipfile.ZipFile(path) as archive:
        return load(archive.read("model.safetensors"))


def test_times_and_codes(icml25, table):
    args = ("tabpfn-bag", "fit", table, "--target", "kind", *QUICK, "--json")
    assert icml25(*args, "-o", "a", "--time-limit", "1m30s").code == 0
    done = icml25(*args, "-o", "b", "--time-limit", "soon")
    assert done.code == 2
    assert "give 300, 90s, 5m or 1h" in done.err
    assert icml25(*args, "-o", "c", "--time-limit", "0.001s").json["answer"]["status"] == "done"
    done = icml25("tabpfn-bag", "ecoc", "--classes", 26, "--length", 20, "--json")
    assert done.json["metrics"] == {"distance": 8, "forgiven": 3}
    assert len({row["word"] for row in done.json["rows"]}) == 26


def test_inspect_says_what_became_of_each_column(icml25, model):
    found = icml25("tabpfn-bag", "inspect", model, "--json").json
    kinds = {row["column"]: row["kind"] for row in found["rows"]}
    assert kinds == {"age": "number", "pay": "number", "town": "category", "since": "date", "same": "dropped"}
    assert found["answer"]["classes"] == 3
    assert {row["epoch"] for row in found["tables"]["history"]} == {0, 1}
    assert icml25("tabpfn-bag", "inspect", "nano", "--json").json["metrics"]["parameters"] == 1_302_754


def test_a_network_of_ones_own(icml25, table):
    sizes = ("--width", 16, "--layers", 1, "--rows", 64, "--steps", 2, "--fall", 2)
    done = icml25("tabpfn-bag", "pretrain", "-o", "net", *sizes, "--json")
    assert done.code == 0, done.err
    assert done.json["rows"][-1]["step"] == 4
    args = ("tabpfn-bag", table, "--target", "kind", "--method", "frozen", "--baseline", "bag", "--pfn", "net/network")
    assert icml25(*args).code == 0


@pytest.mark.parametrize(
    ("name", "content", "args", "code", "says"),
    [
        ("a.csv", "x,y\n1,a\n2,a\n", (), 3, "only the class a"),
        ("a.csv", "x,y\n", (), 3, "holds no row"),
        ("a.csv", "", (), 3, "a.csv"),
        ("a.csv", "x,z\n1,a\n", (), 2, "which column is to be predicted"),
        ("a.csv", "x,z\n1,a\n", ("--target", "w"), 2, "no column 'w'"),
        ("a.csv", "x,y\n1,a\n1,b\n1,a\n1,b\n", (), 3, "no column of the table can be used"),
        ("a.pkl", "x", (), 3, "never loaded"),
        ("a.xyz", "x", (), 3, "kind that is not known"),
        ("a.parquet", "PAR1 torn", (), 3, "cannot be read as parquet"),
        ("a.jsonl", '{"x": 1, "y"', (), 3, "cannot be read as jsonl"),
        ("a.csv", "x,y\n1,a\n2,b\n3,a\n4,b\n", ("--pfn", "nowhere"), 3, "no folder of a network"),
        ("a.csv", "x,y\n1,a\n2,b\n3,a\n4,b\n", ("--baseline", "magic"), 2, "no method is called 'magic'"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(icml25, tmp_path, name, content, args, code, says):
    (tmp_path / name).write_text(content)
    done = icml25("tabpfn-bag", name, *args)
    assert (done.code, done.out) == (code, ""), done.err
    assert says in done.err


def test_models_that_are_none(icml25, model, tmp_path):
    (tmp_path / "torn").write_bytes(model.read_bytes()[:3000])
    for name, says in (("torn", "no whole model"), ("absent", "does not exist"), ("people.csv", "no whole model")):
        done = icml25("tabpfn-bag", "predict", name, "people.csv")
        assert (done.code, done.out) == (3, "")
        assert says in done.err
    done = icml25("tabpfn-bag", "fit", "people.csv", "--target", "kind", "-o", model, *QUICK)
    assert done.code == 74
    assert "--force" in done.err


def test_a_missing_library_is_named(icml25, table):
    done = icml25("tabpfn-bag", table, "--target", "kind", *QUICK, "--baseline", "catboost")
    if done.code:
        assert done.code == 4
        assert "pip install catboost" in done.err

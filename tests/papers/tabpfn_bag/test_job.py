"""Splits, comparisons on one table and over many, bias and variance: nothing is lost, nothing is fitted twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.runs import Run
from icml25cli.papers.tabpfn_bag import bench, job
from icml25cli.papers.tabpfn_bag.bench import Protocol, by_table, carry_out, summary
from icml25cli.papers.tabpfn_bag.finetune import Recipe
from icml25cli.papers.tabpfn_bag.job import compare, known_methods, make_split, on_known_classes
from icml25cli.papers.tabpfn_bag.model import Options, fit_model
from icml25cli.papers.tabpfn_bag.readers import read_tables
from icml25cli.papers.tabpfn_bag.spread import Design, sizes_for, spread, training_sets

from .nets import small_net

QUICK = Options(paths=2, frequencies=4, embedding=4, recipe=Recipe(context=40, batch=20, shown=60, epochs=1))


def table(n: int = 120, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return pd.DataFrame({"a": y + rng.normal(0, 0.3, n), "b": rng.normal(size=n)}), y


def test_a_split_holds_out_a_share_of_each_class_and_thins_without_losing_one():
    labels = np.repeat([0, 1, 2], [700, 295, 5])
    frame = pd.DataFrame({"row": np.arange(1000)})
    split = make_split(frame, labels, 0, test=0.3, most_train=100, most_held=50)
    assert (len(split.train), len(split.held)) == (100, 50)
    assert set(split.train_labels) == {0, 1, 2}
    assert not set(split.train["row"]) & set(split.held["row"])
    assert (labels[split.train["row"]] == split.train_labels).all()
    assert (labels[split.held["row"]] == split.held_labels).all()
    again = make_split(frame, labels, 0, test=0.3, most_train=100, most_held=50)
    assert again.train.equals(split.train)
    other = make_split(frame, labels, 1, test=0.3, most_train=100, most_held=50)
    assert not other.train.equals(split.train)
    whole = make_split(frame, labels, 0, test=0.3)
    assert len(whole.held) == pytest.approx(300, abs=2)


def test_a_comparison_goes_on_where_it_was(monkeypatch, tmp_path):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    frame, y = table()
    methods = ["beta", "frozen", "logreg"]
    rows, found, labels = compare(frame, pd.Series(y), small_net(), methods[:2], QUICK)
    monkeypatch.setattr(job, "judge", only(monkeypatch, job.judge, {"logreg"}))
    more, p, same = compare(frame, pd.Series(y), small_net(), methods, QUICK, resume=True)
    assert more[:2] == rows
    assert (labels == same).all()
    assert all((found[name] == p[name]).all() for name in found)
    for row, method in zip(more, methods, strict=True):
        assert row["method"] == method
        assert row["accuracy"] == (p[method].argmax(1) == labels).mean()
    with pytest.raises(UsageError, match="'magic'"):
        known_methods(["beta", "magic"])


def only(monkeypatch, function, allowed):
    def checked(name, *rest):
        assert name in allowed
        return function(name, *rest)

    return checked


def test_a_bench_keeps_every_fit_and_means_are_over_splits(monkeypatch, tmp_path):
    tables = {"one": table(), "two": table(90, 1)}
    protocol = Protocol(splits=2, test=0.3)
    with Run.open(tmp_path / "run", {}) as run:
        half = carry_out(tables, small_net(), ["frozen"], QUICK, run, protocol)
        monkeypatch.setattr(bench, "judge", only(monkeypatch, bench.judge, {"knn"}))
        records = carry_out(tables, small_net(), ["frozen", "knn"], QUICK, run, protocol)
    assert [r for r in records if r["method"] == "frozen"] == half
    assert [(r["table"], r["split"], r["method"]) for r in records] == [
        (t, s, m) for s in (0, 1) for t in ("one", "two") for m in ("frozen", "knn")
    ]
    of_one = by_table(records)["one"][0]
    losses = [r["log_loss"] for r in half if r["table"] == "one"]
    assert of_one["log_loss"] == pytest.approx(np.mean(losses))
    assert of_one["log_loss_sd"] == pytest.approx(np.std(losses, ddof=1))
    rows = {row["method"]: row for row in summary(records)}
    assert rows["frozen"]["rank_log_loss"] + rows["knn"]["rank_log_loss"] == 3
    assert {"accuracy", "auc", "log_loss", "ece", "fit_seconds", "predict_seconds"} <= rows["knn"].keys()


def test_tables_are_read_once_with_the_target_apart():
    read = read_tables(["builtin:iris", "builtin:iris", "builtin:wine"])
    assert list(read) == ["builtin:iris", "builtin:wine"]
    frame, labels = read["builtin:iris"]
    assert (frame.shape, np.bincount(labels).tolist()) == ((150, 4), [50, 50, 50])


def test_rows_of_classes_the_model_does_not_know_are_not_judged():
    frame, y = table()
    model = fit_model(frame, pd.Series(y), small_net(), replace(QUICK, method="frozen"))
    target = pd.Series(["0", "9", *map(str, y[2:])])
    p, labels = on_known_classes(model, frame, target)
    assert (len(p), labels.tolist()) == (119, [0, *y[2:].tolist()])
    with pytest.raises(InputError, match="no row has a class that the model knows: 0, 1, 2"):
        on_known_classes(model, frame, pd.Series(["x"] * 120))


def test_training_sets_are_disjoint_where_there_are_rows_enough():
    labels = np.repeat([0, 1], [80, 40])
    sets, disjoint = training_sets(labels, 24, 5, 0)
    assert disjoint
    assert len(set(np.concatenate(sets).tolist())) == 5 * 24
    assert all(set(labels[index]) == {0, 1} for index in sets)
    sets, disjoint = training_sets(labels, 60, 5, 0)
    assert not disjoint
    assert all(len(index) == 60 for index in sets)
    assert sizes_for(3000, ()) == (256, 512, 1024, 2048)
    assert sizes_for(200, ()) == (50, 100, 200)
    with pytest.raises(InputError, match="100 rows for training sets of 500"):
        sizes_for(100, (500,))


def test_losses_are_bias_and_variance_of_what_was_predicted(tmp_path: Path):
    frame, y = table(200)
    with Run.open(tmp_path / "run", {}) as run:
        rows = spread(frame, y, small_net(), ["frozen", "logreg"], QUICK, run, Design((24, 60), sets=3))
        assert len([*(tmp_path / "run" / "units").iterdir()]) == 2 * 2 * 3
    assert [(row["method"], row["training_rows"]) for row in rows] == [
        (m, n) for n in (24, 60) for m in ("frozen", "logreg")
    ]
    for row in rows:
        for loss in ("log_loss", "brier"):
            assert row[loss] == pytest.approx(row[f"{loss}_bias"] + row[f"{loss}_variance"], abs=1e-8)

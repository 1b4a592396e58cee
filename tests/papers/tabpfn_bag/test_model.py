"""Models end to end with a small network: what is trained and what is not, files, codes, resumption, bad input."""

from __future__ import annotations

import copy
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_blobs

from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.tabpfn_bag.finetune import Recipe
from icml25cli.papers.tabpfn_bag.model import METHODS, Options, fit_model
from icml25cli.papers.tabpfn_bag.nets import load_net
from icml25cli.papers.tabpfn_bag.saved import load_model, save_model

from .nets import small_net

QUICK = Options(paths=3, frequencies=4, embedding=4, recipe=Recipe(context=40, batch=20, shown=60, epochs=3, rate=3e-3))


def table(n: int = 160, classes: int = 3, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Two clear numbers, a category with gaps, a date; the class is text."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    frame = pd.DataFrame(
        {
            "a": np.cos(2 * np.pi * y / classes) * 3 + rng.normal(size=n),
            "b": np.sin(2 * np.pi * y / classes) * 3 + rng.normal(size=n),
            "kind": rng.choice(np.array(["x", "y", "z", None], object), n),
            "day": pd.date_range("2020-01-01", periods=n).astype(str),
        }
    )
    frame.loc[::9, "a"] = np.nan
    return frame, pd.Series([f"class {i}" for i in y])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_predicts_and_comes_back_from_its_file(method, tmp_path):
    frame, y = table()
    model = fit_model(frame, y, small_net(), replace(QUICK, method=method, fallback=False))
    p = model.probabilities(frame)
    assert p.shape == (len(frame), 3)
    np.testing.assert_allclose(p.sum(1), 1)
    save_model(model, tmp_path / "m.icml25tab")
    again = load_model(tmp_path / "m.icml25tab")
    np.testing.assert_allclose(again.probabilities(frame), p, atol=1e-6)
    assert again.classes == ["class 0", "class 1", "class 2"]
    with zipfile.ZipFile(tmp_path / "m.icml25tab") as archive:
        assert set(archive.namelist()) == {"model.safetensors", "model.json"}


def test_training_lowers_the_loss_and_leaves_the_network_as_it_was():
    frame, y = table()
    net = small_net()
    before = copy.deepcopy(net.state_dict())
    model = fit_model(frame, y, net, replace(QUICK, fallback=False, recipe=replace(QUICK.recipe, epochs=12, rate=1e-2)))
    losses = [row[2] for row in model.facts["history"]]
    assert min(losses) < 0.9 * losses[0]
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert all(weight.grad is None for weight in net.parameters())


def test_what_does_not_beat_the_network_falls_back():
    frame, y = table()
    shuffled = y.sample(frac=1, random_state=0).reset_index(drop=True)
    options = replace(QUICK, recipe=replace(QUICK.recipe, epochs=1, rate=1.0))
    model = fit_model(frame, shuffled, small_net(), options)
    worse = model.facts["validation_log_loss"] >= model.facts["frozen_validation_log_loss"]
    assert worse == (model.facts["used"] == "frozen")


@pytest.mark.parametrize("many", ["ecoc", "alphabet"])
def test_more_classes_than_the_shipped_network_has_are_told_apart_on_rows_it_has_not_seen(many):
    blobs: Any = make_blobs(720, n_features=6, centers=12, center_box=(-6, 6), random_state=0)
    frame = pd.DataFrame(blobs[0], columns=[f"x{i}" for i in range(6)])
    names = np.array([f"class {i:02}" for i in blobs[1]])
    seen, unseen = frame.head(480), frame.tail(240).reset_index(drop=True)
    options = replace(QUICK, many_class=many, fallback=False)
    model = fit_model(seen, pd.Series(names[:480]), load_net(), options)
    said = np.array(model.classes)[model.probabilities(unseen).argmax(1)]
    assert model.classes == sorted(set(names))
    assert set(said) == set(names)
    assert (said == names[480:]).mean() >= 0.9


def test_a_code_is_bypassed_where_the_network_has_enough_classes():
    frame, y = table()
    coded, refused = (
        fit_model(frame, y, small_net(), replace(QUICK, many_class=m)).probabilities(frame) for m in ("ecoc", "error")
    )
    assert np.array_equal(coded, refused)
    frame, y = table(320, classes=8)
    with pytest.raises(UsageError, match="8 classes"):
        fit_model(frame, y, small_net(), replace(QUICK, many_class="error"))


def test_a_run_that_was_cut_short_ends_with_the_same_numbers():
    frame, y = table()
    options = replace(QUICK, fallback=False, recipe=replace(QUICK.recipe, epochs=4))
    whole = fit_model(frame, y, small_net(), options)
    kept: dict = {}

    def keep_two(state):
        if state["state"]["epoch"] == 2:
            kept.update(copy.deepcopy(state))

    fit_model(frame, y, small_net(), options, keep=keep_two)
    continued = fit_model(frame, y, small_net(), options, load=lambda: kept)
    assert np.array_equal(whole.probabilities(frame), continued.probabilities(frame))


def test_columns_are_found_by_name_and_others_ignored():
    frame, y = table()
    model = fit_model(frame, y, small_net(), QUICK)
    other = frame[["day", "kind", "b", "a"]].assign(more=1)
    assert np.array_equal(model.probabilities(other), model.probabilities(frame))
    other["kind"] = "never seen"
    assert np.isfinite(model.probabilities(other)).all()
    with pytest.raises(InputError, match="'kind'"):
        model.probabilities(frame.drop(columns="kind"))


def test_integer_labels_stay_integers_and_rows_without_one_are_left_out():
    frame, y = table()
    numbers = pd.Series(y.str[-1].astype(float))
    numbers[3] = np.nan
    with pytest.warns(UserWarning, match="1 rows have no class"):
        model = fit_model(frame, numbers, small_net(), QUICK)
    assert model.classes == [0, 1, 2]


def test_a_table_that_cannot_be_learnt_is_refused():
    frame, y = table()
    with pytest.raises(InputError, match="only the class one"):
        fit_model(frame, pd.Series(["one"] * len(y)), small_net(), QUICK)
    with pytest.raises(InputError, match="no column"):
        fit_model(frame[[]].assign(same=1), y, small_net(), QUICK)


def test_a_torn_file_is_refused(tmp_path):
    frame, y = table()
    save_model(fit_model(frame, y, small_net(), replace(QUICK, method="bag")), tmp_path / "m")
    (tmp_path / "torn").write_bytes((tmp_path / "m").read_bytes()[:2000])
    with pytest.raises(InputError, match="no whole model"):
        load_model(tmp_path / "torn")
    with pytest.raises(InputError, match="does not exist"):
        load_model(tmp_path / "absent")

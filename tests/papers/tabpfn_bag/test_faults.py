"""Tables as they should not be: they are fitted all the same, and what may mislead is said."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from icml25cli.core.errors import InputError
from icml25cli.papers.tabpfn_bag import columns, finetune
from icml25cli.papers.tabpfn_bag.baselines import baseline_probabilities
from icml25cli.papers.tabpfn_bag.columns import Schema
from icml25cli.papers.tabpfn_bag.finetune import Recipe
from icml25cli.papers.tabpfn_bag.labels import check_classes
from icml25cli.papers.tabpfn_bag.model import Options, fit_model

from .nets import small_net

QUICK = Options(
    paths=2, frequencies=4, embedding=4, recipe=Recipe(context=40, batch=20, shown=60, epochs=1), fallback=False
)


def table(n: int = 80, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return pd.DataFrame({"a": y + rng.normal(size=n), "b": rng.normal(size=n)}), pd.Series(y)


def fitted(frame, y, options=QUICK):
    with warnings.catch_warnings(action="ignore"):
        return fit_model(frame, y, small_net(), options)


@pytest.mark.parametrize("method", ["beta", "frozen", "tabm"])
def test_a_class_with_one_row_is_in_every_context_and_has_a_probability(method):
    frame, y = table()
    y[0] = 2
    model = fitted(frame, y, replace(QUICK, method=method))
    assert model.classes == [0, 1, 2]
    assert (model.probabilities(frame)[:, 2] > 0).all()


def test_very_few_rows_are_predicted_by_the_network_as_it_is():
    frame, y = table(12)
    with pytest.warns(UserWarning, match="12 rows are too few to train on"):
        model = fit_model(frame, y, small_net(), QUICK)
    assert model.facts["used"] == "frozen"
    assert model.probabilities(frame).shape == (12, 2)


def test_one_row_of_each_class_and_validation_rows_of_other_classes():
    frame, y = table(24)
    with pytest.warns(UserWarning, match="one row of each class is too few"):
        model = fit_model(frame, pd.Series(range(24)), small_net(), QUICK)
    assert model.probabilities(frame).shape == (24, 24)
    with pytest.raises(InputError, match="no row of the validation table"):
        fit_model(frame, y, small_net(), QUICK, valid=(frame, y + 7))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([1.5 * i for i in range(100)], "100 different values in 100 rows, 100 of them in one row only"),
        ([i % 30 + 0.5 for i in range(100)], "30 different values in 100 rows"),
        ([f"customer {i}" for i in range(100)], "100 different values in 100 rows"),
        (["a", "b"], "2 different values in 2 rows"),
    ],
)
def test_a_target_that_is_no_class_is_refused(values, says):
    with pytest.raises(InputError, match=f"the target 'pay' has {says}.*: these are no classes"):
        check_classes(pd.Series(values, name="pay"))


@pytest.mark.parametrize(
    "values", [["a", "a", "b", "b"], [0.5, 1.5] * 5, [True, False] * 5, [str(i % 50) for i in range(100)]]
)
def test_few_rows_of_a_class_are_still_classes(values):
    check_classes(pd.Series(values))
    check_classes(pd.Series(values, dtype="category").cat.add_categories([f"unused {i}" for i in range(100)]))


def test_many_whole_numbers_are_classes_with_a_doubt():
    with pytest.warns(UserWarning, match="'age' is 50 different numbers, each of which is taken for a class"):
        check_classes(pd.Series([i % 50 for i in range(200)], name="age"))


@pytest.mark.parametrize("name", ["hgb", "knn"])
def test_baselines_stand_a_class_of_one_row_and_few_rows(name):
    rng = np.random.default_rng(0)
    rows, single = (4, 1) if name == "knn" else (10_050, 1)  # beyond 10,000 hgb holds rows out by itself
    labels = np.array([*np.arange(rows - single) % 2, 2])
    frame = pd.DataFrame({"a": labels + rng.normal(size=rows)})
    p = baseline_probabilities(name, frame, labels, 0)(frame)
    assert (p.shape, np.isfinite(p).all()) == ((rows, 3), True)


def test_rows_in_both_parts_and_a_copy_of_the_target_are_warned_of():
    frame, y = table()
    with pytest.warns(UserWarning, match="validation rows are training rows, too"):
        fit_model(pd.concat([frame] * 3), pd.concat([y] * 3), small_net(), QUICK)
    with pytest.warns(UserWarning, match="'copy' alone tells every row's class"):
        fit_model(frame.assign(copy=y * 2 + 1), y, small_net(), QUICK)


def test_a_loss_that_is_not_finite_ends_training_and_leaves_a_model():
    frame, y = table()
    with pytest.warns(UserWarning, match="whose loss was not finite"):
        model = fit_model(
            frame, y, small_net(), replace(QUICK, recipe=replace(QUICK.recipe, rate=1e30, epochs=20, decay=0.0))
        )
    assert model.facts["stopped"] == "failures"
    assert np.isfinite(model.probabilities(frame)).all()


def test_no_time_leaves_a_model_as_it_was_at_the_start():
    frame, y = table()
    model = fitted(frame, y, replace(QUICK, recipe=replace(QUICK.recipe, time_limit=0.0)))
    assert (model.facts["stopped"], model.facts["steps"]) == ("time", 0)
    assert np.isfinite(model.probabilities(frame)).all()


def test_the_last_validation_is_within_the_time_limit(monkeypatch):
    now = 0.0

    def taking(seconds, of):
        def slow(*args):
            nonlocal now
            now += seconds
            return of(*args)

        return slow

    monkeypatch.setattr(Recipe, "clock", lambda _: now)
    monkeypatch.setattr(finetune, "_step", taking(1.0, finetune._step))
    monkeypatch.setattr(finetune, "_validate", taking(5.0, finetune._validate))
    frame, y = table()
    recipe = replace(QUICK.recipe, epochs=50, patience=50, time_limit=48.0)
    facts = fit_model(frame, y, small_net(), replace(QUICK, recipe=recipe), began=-10.0).facts
    # Of the 38 seconds that were left, two times ten steps and a validation, and then what leaves room for a third.
    assert (facts["stopped"], facts["epochs"], facts["steps"], now) == ("time", 3, 24, 39.0)


@pytest.mark.parametrize("method", ["beta", "frozen"])
def test_more_columns_than_rows_go_in_without_an_embedding_or_by_components(method):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 1200)), columns=[f"c{i}" for i in range(1200)])
    y = pd.Series((frame["c0"] > 0).astype(int))
    model = fitted(frame, y, replace(QUICK, method=method))
    assert model.probabilities(frame.head(5)).shape == (5, 2)


def test_numbers_too_far_apart_for_their_difference_are_numbers():
    frame, y = table()
    frame["b"] = np.where(y == 1, 1e308, -1e308)
    with warnings.catch_warnings(action="error", category=RuntimeWarning):
        assert [column.kind for column in Schema.of(frame).columns] == ["number", "number"]


def test_values_that_count_as_missing_are_told(monkeypatch):
    frame, y = table()
    frame["when"] = [f"2026-01-{1 + i % 28:02}" for i in range(len(frame))]
    schema = fitted(frame, y).schema
    other = frame.astype({"a": object})
    other.loc[:2, "a"] = "cheap"
    other.loc[3, "a"] = None  # which is no surprise
    other.loc[5, "when"] = "soon"
    said: list[str] = []
    monkeypatch.setattr(columns, "note", said.append)
    schema.note_unknown_values(other)
    assert said == [
        "3 of 80 rows have in column 'a' what is no finite number and counts as missing",
        "1 of 80 rows have in column 'when' what is no date and counts as missing",
    ]


def test_infinity_text_among_numbers_and_empty_columns_are_no_end():
    frame, y = table()
    frame["b"] = frame["b"].astype(object)
    frame.loc[3, "b"] = "n/a"
    frame.loc[5, "a"] = np.inf
    with pytest.warns(UserWarning, match="'b' holds numbers and 1 other values"):
        model = fit_model(frame.assign(empty=None), y, small_net(), QUICK)
    assert np.isfinite(model.probabilities(frame.assign(empty=1))).all()

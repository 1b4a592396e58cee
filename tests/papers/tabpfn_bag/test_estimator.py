"""`BetaClassifier`: scikit-learn's own checks, and frames as users have them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from icml25cli.papers.tabpfn_bag.estimator import BetaClassifier

EXPECTED = {
    "check_methods_subset_invariance": "products of float32 round by the number of rows, in the seventh digit",
}


def quick(**changes: Any) -> BetaClassifier:
    return BetaClassifier(k=2, epochs=1, batch=32, context_size=100, **changes)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([quick()], expected_failed_checks=lambda _: EXPECTED)
def test_it_is_an_estimator(estimator, check):
    check(estimator)


def table(n: int = 120, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    frame = pd.DataFrame(
        {
            "x": y + rng.normal(0, 0.4, n),
            "town": rng.choice(np.array(["a", "b", None], object), n),
            "size": pd.Categorical(rng.choice(["S", "M"], n)),
            "day": pd.date_range("2020-01-01", periods=n),
        }
    )
    frame.loc[::9, "x"] = np.nan
    return frame, np.array(["low", "middle", "high"])[y]


def test_a_frame_needs_no_work():
    frame, y = table()
    model = quick().fit(frame, y)
    other, right = table(80, 1)
    p = model.predict_proba(other)
    assert model.classes_.tolist() == ["high", "low", "middle"]
    np.testing.assert_allclose(p.sum(1), 1)
    assert (model.predict(other) == model.classes_[p.argmax(1)]).all()
    assert (model.predict(other) == right).mean() > 0.7
    assert list(getattr(model, "feature_names_in_")) == ["x", "town", "size", "day"]  # noqa: B009 (unknown to type stubs)
    assert model.facts_["used"] in ("beta", "frozen")


def test_it_stands_in_a_pipeline():
    frame, y = table()
    with warnings.catch_warnings(action="ignore"):
        scores = cross_val_score(make_pipeline(FunctionTransformer(), quick()), frame[["x", "town"]], y, cv=2)
    assert scores.mean() > 0.6


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"method": "magic"}, "no method is called 'magic'"),
        ({"pfn": "nowhere"}, "no folder of a network"),
        ({"many_class": "error"}, "12 classes"),
    ],
)
def test_what_cannot_be_done_is_a_value_error(changes, says):
    x = np.arange(48.0)[:, None]
    with pytest.raises(ValueError, match=says):
        quick(**changes).fit(x, np.arange(48) % 12)


def test_a_missing_class_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(np.arange(3.0)[:, None], pd.Series(["a", None, "b"]))

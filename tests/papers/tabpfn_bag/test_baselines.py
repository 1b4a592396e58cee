"""Baselines: the same rows, probabilities for every class, what is not installed is named."""

from __future__ import annotations

import importlib.util

import numpy as np
import pandas as pd
import pytest

from icml25cli.core.errors import MissingError, UsageError
from icml25cli.papers.tabpfn_bag.baselines import PACKAGES, baseline_probabilities


def table(n: int = 90, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    town = np.array(["a", "b", "c"], object)[y]
    town[rng.random(n) < 0.2] = None
    frame = pd.DataFrame({"x": y + rng.normal(0, 0.5, n), "town": town})
    frame.loc[::7, "x"] = np.nan
    return frame, y


@pytest.mark.parametrize("name", ["hgb", "rf", "logreg", "knn", *PACKAGES])
def test_a_baseline_learns_categories_and_gaps(name):
    if name in PACKAGES and not importlib.util.find_spec(PACKAGES[name]):
        with pytest.raises(MissingError, match=f"needs the package {PACKAGES[name]}"):
            baseline_probabilities(name, *table(), seed=0)
        return
    predict = baseline_probabilities(name, *table(), seed=0)
    other, y = table(60, 1)
    p = predict(other.loc[:, ["town", "x"]])
    assert p.shape == (60, 3)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)
    assert (p.argmax(1) == y).mean() > 0.7


def test_an_unknown_one_is_refused():
    with pytest.raises(UsageError, match="no baseline is called 'magic'"):
        baseline_probabilities("magic", *table(), seed=0)

"""Identities of losses, bias and variance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.papers.tabpfn_bag.bias_variance import brier_parts, log_parts, zero_one_parts
from icml25cli.papers.tabpfn_bag.metrics import evaluate, expected_calibration_error


@given(seed=st.integers(0, 2**32 - 1), sets=st.integers(1, 6), classes=st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_loss_is_bias_and_variance(seed, sets, classes):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), (sets, 20))
    labels = rng.integers(classes, size=20)
    for parts in (log_parts(p, labels), brier_parts(p, labels)):
        assert parts.loss == pytest.approx(parts.bias + parts.variance, abs=1e-8)
        assert parts.variance >= -1e-12


def test_zero_one_by_hand():
    p = np.eye(2)[[[0, 1], [0, 1], [1, 1]]]  # three sets, two rows
    parts = zero_one_parts(p, np.array([0, 0]))
    assert (parts.loss, parts.bias) == (pytest.approx(4 / 6), 0.5)
    assert parts.variance == pytest.approx(1 / 6)


def test_calibration_by_hand():
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6]])
    assert expected_calibration_error(p, np.array([0, 1, 0, 1])) == pytest.approx(0.5 * 0.4 + 0.5 * 0.4)
    figures = evaluate(p, np.array([0, 1, 0, 1]))
    assert figures["accuracy"] == 0.75
    assert figures["log_loss"] == pytest.approx(-np.log([0.9, 0.1, 0.6, 0.6]).mean())

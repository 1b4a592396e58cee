"""Scores by hand, and what a selection may not do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.select_data.scoring import (
    Subtasks,
    budget_rows,
    diverse,
    influence,
    normalized,
    score,
    top,
)

ROWS = [np.array([[1, 0], [0, 1]], np.float32), np.array([[0, 1], [1, 0]], np.float32)]
PROMPTS = normalized(np.array([[1, 0], [0.6, 0.8]], np.float32))


@pytest.mark.parametrize(("subtasks", "wanted"), [(1, (0.70, 0.50)), (2, (0.75, 0.75))])
def test_the_best_subtask_over_weighted_checkpoints(subtasks, wanted):
    tasks = Subtasks.of_equal_size(2, subtasks)
    parts = [tasks.means(influence(rows, PROMPTS, w)) for rows, w in zip(ROWS, (0.75, 0.25), strict=True)]
    found = score(parts)
    np.testing.assert_allclose(found.total, wanted, atol=1e-6)
    np.testing.assert_allclose(found.parts.sum(1), found.total, atol=1e-6)


# Subnormal numbers have too few digits left to be scaled in float32 at all.
NORMAL = st.floats(-1e4, 1e4, width=32, allow_subnormal=False)


@given(arrays(np.float32, (4, 5), elements=NORMAL), st.floats(0.015625, 1024, width=32))
def test_the_length_of_a_row_does_not_matter(rows, scale):
    np.testing.assert_allclose(normalized(rows * np.float32(scale)), normalized(rows), atol=1e-3)


def test_rows_of_zeros_stay_and_what_is_not_finite_becomes_zeros():
    rows = np.array([[0, 0], [np.nan, 1], [np.inf, 1], [3e38, 3e38], [3, 4]], np.float32)
    wanted = [[0, 0], [0, 0], [0, 0], [0.5**0.5] * 2, [0.6, 0.8]]
    np.testing.assert_allclose(normalized(rows), wanted, atol=1e-6)


def test_a_score_that_is_nan_counts_as_zero():
    tasks = Subtasks.of_equal_size(2, 1)
    np.testing.assert_allclose(tasks.means(np.array([[np.nan, 1.0]], np.float32)), [[0.5]])


def test_of_equal_scores_the_first():
    scores = np.array([1, 2, 2, 0, 2], np.float32)
    assert top(scores, 4).tolist() == [1, 2, 4, 0]
    with pytest.raises(InputError, match="6 rows is larger than the pool of 5"):
        top(scores, 6)


def test_a_source_has_its_cap_and_the_same_row_is_taken_once():
    scores = np.arange(6, 0, -1).astype(np.float32)
    assert top(scores, 4, groups=list("aaaabb"), cap=0.5).tolist() == [0, 1, 4, 5]
    assert top(scores, 3, distinct=[b"x", b"x", b"y", b"y", b"z", b"w"]).tolist() == [0, 2, 4]
    with pytest.raises(InputError, match="only 3 rows are left"):
        top(scores, 4, distinct=[b"x", b"x", b"y", b"y", b"z", b"z"])


@pytest.mark.parametrize(("written", "rows"), [("5%", 5), ("0.1%", 1), ("100%", 100), ("7", 7), (" 2.5% ", 2)])
def test_budgets(written, rows):
    assert budget_rows(written, 100) == rows


@pytest.mark.parametrize("written", ["0", "-3", "0%", "101%", "x", "", "1.5", "nan%", "5%%", "1_0", "9" * 5000])
def test_what_is_no_budget(written):
    with pytest.raises(UsageError, match="--budget"):
        budget_rows(written, 100)


def test_a_budget_beyond_the_pool_is_refused_before_any_work():
    with pytest.raises(InputError, match="300 rows is larger than the pool of 100"):
        budget_rows("300", 100)


def test_subtasks_by_name_and_uneven_ones():
    tasks = Subtasks.by_name(["b", "a", "b"])
    np.testing.assert_allclose(tasks.means(np.array([[1, 5, 3]], np.float32)), [[2, 5]])
    with pytest.raises(UsageError, match="does not divide"):
        Subtasks.of_equal_size(5, 2)


def test_a_diverse_selection_covers_both_directions():
    features = normalized(np.array([[1, 0], [0.99, 0.01], [0.98, 0.02], [0, 1]], np.float32))
    assert set(diverse(features, np.array([1.0, 0.99, 0.98, 0.9], np.float32), 2).tolist()) & {3}

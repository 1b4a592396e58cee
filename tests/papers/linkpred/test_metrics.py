"""Ranking figures: the definition by pencil, a brute-force reference, and the number of negatives never forgotten."""

import numpy as np
import pytest
import sklearn.metrics  # noqa: F401 -- its import is no part of the time that hypothesis allows an example
from hypothesis import given
from hypothesis import strategies as st

from icml25cli.core.errors import InputError
from icml25cli.papers.linkpred.metrics import KS, Evaluation, evaluate, headline_notes, hits_at_k, mrr, summary

few = pytest.mark.filterwarnings("ignore:Hits@")


@pytest.mark.parametrize(("k", "expected"), [(1, 0.25), (2, 0.5), (3, 0.75)])
def test_hits_at_k_by_pencil(k, expected):
    assert hits_at_k(np.array([3.0, 2, 1, 0]), np.array([2.5, 1.5, 0.5]), k) == expected


def test_a_tie_with_the_bar_is_no_hit_and_half_a_rank():
    positive, negative = np.array([1.0]), np.array([1.0, 1.0, 0.0])
    assert hits_at_k(positive, negative, 1) == 0
    assert mrr(positive, negative) == 0.5  # rank ½ (2 + 0) + 1 = 2


def test_each_positive_is_compared_with_its_own_negatives():
    positive, negative = np.array([1.0, 1.0]), np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 0.5]])
    assert hits_at_k(positive, negative, 1) == 0.5
    assert mrr(positive, negative) == pytest.approx((1 / 3 + 1) / 2)


scores = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=20)


@few
@given(scores, scores)
def test_figures_are_what_counting_gives(positive, negative):
    found = evaluate(np.array(positive), np.array(negative))
    for k in KS:
        above = [sum(n >= p for n in negative) < k for p in positive]
        assert found.values[f"hits_at_{k}"] == pytest.approx(1 if k > len(negative) else np.mean(above))
    ranks = [(sum(n >= p for n in negative) + sum(n > p for n in negative)) / 2 + 1 for p in positive]
    assert found.values["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    wins = [(p > n) + (p == n) / 2 for p in positive for n in negative]
    assert found.values["auc"] == pytest.approx(np.mean(wins))
    assert (found.positives, found.negatives) == (len(positive), len(negative))


@few
@given(scores, scores)
def test_shared_negatives_repeated_for_each_positive_change_no_ranking_figure(positive, negative):
    shared = evaluate(np.array(positive), np.array(negative))
    own = evaluate(np.array(positive), np.tile(negative, (len(positive), 1)))
    for name in ("mrr", "auc", *(f"hits_at_{k}" for k in KS)):
        assert own.values[name] == pytest.approx(shared.values[name])
    assert own.negatives == shared.negatives


def test_too_few_negatives_are_warned_of():
    with pytest.warns(UserWarning, match="Hits@50, @100 are 1 by definition: there are only 30 negatives"):
        found = evaluate(np.zeros(3), np.ones(30))
    assert (found.values["hits_at_100"], found.values["hits_at_20"]) == (1, 0)


def test_a_headline_that_is_always_1_is_told_with_its_figures():
    (said,) = headline_notes("hits_at_100", 99)
    assert said.startswith("Hits@100 is 1 for every method here, good or bad, as there are only 99 negatives")
    assert headline_notes("hits_at_100", 100) == headline_notes("mrr", 5) == []


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_score_that_is_not_finite_is_named(wrong):
    with pytest.raises(InputError, match="score 1 of the negatives"):
        evaluate(np.zeros(3), np.array([0, wrong]))
    with pytest.raises(InputError, match="score 0 of the edges"):
        evaluate(np.array([wrong]), np.zeros(3))


def run(value, negatives):
    return Evaluation({"auc": value}, 5, negatives)


def test_a_summary_has_mean_spread_and_negatives():
    assert summary([run(0.5, 9), run(0.7, 9)]) == {
        "auc": pytest.approx(0.6),
        "auc_sd": pytest.approx(0.02**0.5),
        "negatives": 9,
    }
    assert summary([run(0.5, 9)])["auc_sd"] is None


def test_runs_with_other_negatives_are_never_averaged():
    with pytest.raises(InputError, match="9, 10 negatives"):
        summary([run(0.5, 9), run(0.5, 10)])

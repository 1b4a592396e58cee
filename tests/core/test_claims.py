"""What a claim's verdict rests on: intervals, inequalities, controls that must fail, and parts that are missing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icml25cli.core.claims import Claim, Interval, all_hold, at_least, at_most, check, figures
from icml25cli.core.errors import InputError, MissingError


def claim(measure, control):
    return Claim("name", "says", "source", "published", "quantity", at_most(1), measure, control, "the method")


def between(low, high):
    return lambda size: Interval((low + high) / 2, low, high)


def test_the_interval_of_a_mean_is_students():
    # 1..5: mean 3, standard error sqrt(2.5 / 5), and 2.776445 is the 97.5 % point of Student's t with four degrees.
    interval = Interval.of_mean([1, 2, 3, 4, 5])
    assert interval.value == 3
    assert interval.high - 3 == pytest.approx(2.776445 * math.sqrt(0.5), rel=1e-6)
    assert 3 - interval.low == pytest.approx(interval.high - 3)


def test_nineteen_of_twenty_intervals_of_three_values_hold_the_truth():
    # A normal interval of three values would hold it 81 % of the time.
    rng = np.random.default_rng(0)
    covered = np.mean([i.low <= 7 <= i.high for i in (Interval.of_mean(rng.normal(7, 2, 3)) for _ in range(4000))])
    assert covered == pytest.approx(0.95, abs=0.011)  # 3.2 standard errors


@pytest.mark.parametrize("values", [[], [1.0], [[1.0, 2.0]]])
def test_no_interval_without_two_values(values):
    with pytest.raises(ValueError, match="no interval"):
        Interval.of_mean(values)


@given(low=st.floats(0.1, 10), width=st.floats(0, 10))
def test_a_falling_function_swaps_the_ends(low, width):
    interval = Interval(low + width / 2, low, low + width).map(lambda x: 1 / x)
    assert interval == Interval(1 / (low + width / 2), 1 / (low + width), 1 / low)


@pytest.mark.parametrize(
    ("predicts", "low", "high", "verdict"),
    [
        (at_most(1), 0.2, 0.9, "holds"),
        (at_most(1), 0.2, 1.0, "holds"),
        (at_most(1), 0.9, 1.1, "undecided"),
        (at_most(1), 1.0, 1.1, "undecided"),
        (at_most(1), 1.1, 1.2, "does not hold"),
        (at_most(0), 0.0, 0.0, "holds"),
        (at_least(1), 1.1, 1.2, "holds"),
        (at_least(1), 1.0, 1.2, "holds"),
        (at_least(1), 0.9, 1.1, "undecided"),
        (at_least(1), 0.9, 1.0, "undecided"),
        (at_least(1), 0.2, 0.9, "does not hold"),
        (at_most(1), math.nan, math.nan, "undecided"),
        (at_least(1), math.nan, math.nan, "undecided"),
    ],
)
def test_the_whole_interval_decides(predicts, low, high, verdict):
    assert predicts.judge(Interval((low + high) / 2, low, high)) == verdict


@pytest.mark.parametrize(
    ("control", "fails"), [(between(1.5, 1.6), True), (between(0.9, 1.6), False), (between(0.1, 0.2), False)]
)
def test_a_control_must_fail_clearly(control, fails):
    outcome = check(claim(between(0.1, 0.2), control), "quick")
    assert (outcome.verdict, outcome.control_fails) == ("holds", fails)
    assert all_hold([outcome]) == fails
    assert figures(outcome)["control_fails"] == fails


def test_the_control_has_no_say_in_the_verdict():
    assert check(claim(between(2, 3), between(0.1, 0.2)), "quick").verdict == "does not hold"


def test_both_are_measured_at_the_size_asked_for():
    seen = []

    def measure(size):
        seen.append(size)
        return Interval.exact(0)

    check(claim(measure, measure), "full")
    assert seen == ["full", "full"]


def missing(size):
    raise MissingError("the asset 'a' is not fetched", hint="icml25 assets fetch a")


@pytest.mark.parametrize(("measure", "control"), [(missing, between(2, 3)), (between(0, 0), missing)])
def test_a_missing_part_leaves_a_claim_untested_and_says_why(measure, control):
    outcome = check(claim(measure, control), "full")
    assert outcome.verdict == "not testable here"
    assert outcome.reason == "the asset 'a' is not fetched; icml25 assets fetch a"
    assert not outcome.control_fails
    assert not all_hold([outcome])
    assert figures(outcome)["measured"] is figures(outcome)["control_fails"] is None


def test_other_errors_are_not_taken_for_missing_parts():
    def damaged(size):
        raise InputError("the file is damaged")

    with pytest.raises(InputError, match="damaged"):
        check(claim(damaged, between(2, 3)), "quick")

"""Heads by Pearson correlation: covariances against tokens, known redundancies, and searches against each other."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.papers.prune.heads import (
    correlation_sum,
    drop_order,
    removal_correlations,
    search,
    split,
)
from icml25cli.papers.prune.statistics import HeadSums, Moments, head_sums


def summed(inputs: torch.Tensor, weight: torch.Tensor, units: int) -> HeadSums:
    moments = Moments(inputs.shape[1], cross=True)
    for part in inputs.split(100):
        moments.add(part)
    return head_sums(moments, weight, units)


def random_heads(seed: int, units: int = 6, width: int = 4, d: int = 10, tokens: int = 300, offset: float = 0.0):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(units * width, units * width, generator=generator)
    inputs = torch.randn(tokens, units * width, generator=generator) @ mixing / 5 + offset
    return inputs, torch.randn(d, units * width, generator=generator)


def direct(inputs: torch.Tensor, weight: torch.Tensor, units: int, kept: list[int]) -> float:
    """P(K) over tokens, as it is defined."""
    parts = [x.double() @ w.double().T for x, w in zip(inputs.chunk(units, 1), weight.chunk(units, 1), strict=True)]
    whole, some = sum(parts).numpy(), sum(parts[i] for i in kept).numpy()  # type: ignore[union-attr]
    return sum(abs(np.corrcoef(some[:, c], whole[:, c])[0, 1]) for c in range(weight.shape[0]))


# --- covariances -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 30.0])
@settings(max_examples=20)
@given(seed=st.integers(0, 2**31), kept=st.sets(st.integers(0, 5), min_size=1, max_size=6))
def test_correlations_by_covariances_are_those_over_tokens(offset, seed, kept):
    inputs, weight = random_heads(seed, offset=offset)
    sums = summed(inputs, weight, 6)
    assert correlation_sum(sums, sorted(kept)) == pytest.approx(direct(inputs, weight, 6, sorted(kept)), abs=1e-5)


def test_removing_each_head_is_the_sum_over_the_others():
    inputs, weight = random_heads(3)
    expected = [direct(inputs, weight, 6, [j for j in range(6) if j != i]) for i in range(6)]
    np.testing.assert_allclose(removal_correlations(summed(inputs, weight, 6)).numpy(), expected, atol=1e-5)


def test_an_exchange_is_the_set_after_it():
    inputs, weight = random_heads(4)
    sums = summed(inputs, weight, 6)
    found = search(sums, [5, 4], [0, 1, 2, 3], [0] * 6)
    assert found.pearson == pytest.approx(direct(inputs, weight, 6, list(found.kept)), abs=1e-5)


# --- known redundancies ------------------------------------------------------------------------------------------


def test_a_head_that_writes_nothing_goes_first_and_is_not_missed():
    inputs, weight = random_heads(5)
    weight[:, 8:12] = 0
    scores = removal_correlations(summed(inputs, weight, 6))
    assert drop_order(-scores)[0] == 2
    assert scores[2] == pytest.approx(10, abs=1e-9)


def test_of_two_equal_heads_one_goes_before_any_that_says_something_of_its_own():
    # Independent heads of equal size: what is left without one of the twins still holds the other.
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4000, 5 * 4, generator=generator)
    inputs[:, 12:16] = inputs[:, 4:8]
    weight = torch.randn(6, 4, generator=generator).repeat(1, 5)
    scores = removal_correlations(summed(inputs, weight, 5))
    order = drop_order(-scores).tolist()
    assert set(order[:2]) == {1, 3}


def test_a_constant_column_counts_for_nothing():
    inputs, weight = random_heads(6)
    sums = summed(inputs, weight, 6)
    inputs = torch.cat([inputs, torch.ones(len(inputs), 6)], 1).view(len(inputs), -1)
    # A seventh part of constant inputs feeds an eleventh column of its own.
    wide = torch.zeros(11, 30)
    wide[:10, :24], wide[10, 24:] = weight, 1000.0
    with_constant = summed(inputs, wide, 5)  # 6 numbers a part now
    assert correlation_sum(with_constant, range(5)) == pytest.approx(10, abs=1e-9)
    assert not removal_correlations(with_constant).isnan().any()
    assert correlation_sum(sums, range(6)) == pytest.approx(10, abs=1e-9)


# --- searches ----------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_searches_rise_from_static_to_greedy_to_full_to_the_best_of_all(seed):
    inputs, weight = random_heads(seed, d=6, tokens=60)
    sums = summed(inputs, weight, 6)
    dropped, kept = split(drop_order(-removal_correlations(sums)).tolist(), 2, [0] * 6)
    static, greedy, full = (search(sums, dropped, kept, [0] * 6, how) for how in ("none", "greedy", "full"))
    best = max(correlation_sum(sums, four) for four in combinations(range(6), 4))
    assert static.kept == tuple(sorted(kept))
    assert static.pearson <= greedy.pearson <= full.pearson <= best + 1e-9
    assert greedy.pearson_static == static.pearson
    assert greedy.evaluations == 2 * 4


def test_searches_differ_where_it_matters():
    gains = {"greedy": 0, "full": 0}
    for seed in range(30):
        inputs, weight = random_heads(seed, units=12, d=6, tokens=60)
        sums = summed(inputs, weight, 12)
        dropped, kept = split(drop_order(-removal_correlations(sums)).tolist(), 6, [0] * 12)
        values = [search(sums, dropped, kept, [0] * 12, how).pearson for how in ("none", "greedy", "full")]
        gains["greedy"] += values[1] > values[0] + 1e-9
        gains["full"] += values[2] > values[1] + 1e-9
    assert gains["greedy"] >= 10
    assert gains["full"] >= 2


def test_the_greedy_pass_is_the_one_described():
    """Place by place over tokens, as the reference does it."""
    for seed in range(20):
        inputs, weight = random_heads(seed, d=6, tokens=60)
        sums = summed(inputs, weight, 6)
        order = drop_order(-removal_correlations(sums)).tolist()
        dropped, kept = order[:3], order[3:]
        best = direct(inputs, weight, 6, kept)
        for unit in dropped:
            trials = [[unit if j == place else other for j, other in enumerate(kept)] for place in range(len(kept))]
            values = [direct(inputs, weight, 6, trial) for trial in trials]
            if max(values) > best:
                best, kept = max(values), trials[int(np.argmax(values))]
        assert search(sums, dropped, order[3:], [0] * 6).kept == tuple(sorted(kept))


def test_exchanges_stay_within_their_part():
    inputs, weight = random_heads(8)
    sums = summed(inputs, weight, 6)
    parts = [0, 0, 0, 1, 1, 1]
    dropped, kept = split([0, 1, 2, 3, 4, 5], 2, parts)
    assert (dropped, kept) == ([0, 1, 3, 4], [2, 5])
    found = search(sums, dropped, kept, parts, "full")
    assert sorted(parts[unit] for unit in found.kept) == [0, 1]
    best = max(correlation_sum(sums, [a, b]) for a in range(3) for b in range(3, 6))
    assert found.pearson == pytest.approx(best)

"""Preprocessing as in use, and the prior: tables that are sound, varied, repeatable, and whose labels can be learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

from icml25cli.papers.tabpfn_bag.preprocess import standardise
from icml25cli.papers.tabpfn_bag.prior import ACTIVATIONS, FAMILIES, UNKNOWN, _Group, _relabelled, draw_tables

SEEDS = st.integers(0, 2**32 - 1)


# preprocessing


def test_a_column_is_scored_by_the_context_alone():
    x = torch.tensor([[1.0], [3.0], [5.0], [7.0]])  # the first two: mean 2, deviation 1
    z = standardise(x, context=2, columns=1)
    torch.testing.assert_close(z[:3], torch.tensor([[-1.0], [1.0], [3.0]]))


def test_gaps_and_infinities_become_the_mean_of_what_was_observed():
    x = torch.tensor([[1.0], [3.0], [torch.nan], [torch.inf], [-torch.inf], [2.0]])
    z = standardise(x, context=4, columns=1)
    torch.testing.assert_close(z, torch.tensor([[-1.0], [1.0], [0.0], [0.0], [0.0], [0.0]]))


def test_an_outlier_is_drawn_in_and_stays_in_order():
    x = torch.cat([torch.linspace(-1, 1, 99), torch.tensor([60.0])])[:, None]
    z = standardise(torch.cat([x, torch.tensor([[600.0], [1e9]])]), context=100, columns=1)[:, 0]
    # z-scores are -.17 .. 0, 10 and, clipped, 100 twice; without the outlier the deviation is .0948 and the mean -.10
    inside = (x - x.mean()) / x.std(correction=0)
    bound = inside[:99].mean() + 4 * inside[:99].std(correction=0)
    torch.testing.assert_close(z[:99], inside[:99, 0])
    torch.testing.assert_close(z[99], bound + torch.log1p(inside[99, 0]))
    torch.testing.assert_close(z[101], bound + torch.log1p(torch.tensor(100.0)))
    assert z[98] < z[99] < z[100] <= z[101] < 6


def test_constant_and_empty_columns_become_zero_and_do_not_count():
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    alone = standardise(x[:, :2], context=15, columns=8)
    x[:, 2] = 1e6
    x[:, 3] = torch.nan
    x[17, 2] = 5.0  # a query that differs where the context does not
    z = standardise(x, context=15, columns=8)
    torch.testing.assert_close(z, alone)
    assert (z[:, 2:] == 0).all()
    assert (standardise(torch.ones(5, 3), context=3, columns=8) == 0).all()


@given(seed=SEEDS, used=st.integers(1, 10), scale=st.floats(1e-3, 1e3), shift=st.floats(-5, 5))
@settings(max_examples=30, deadline=None)
def test_units_do_not_matter_and_the_norm_does_not_tell_the_number_of_columns(seed, used, scale, shift):
    x = torch.randn(64, used, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    z = standardise(x, context=64, columns=10)
    torch.testing.assert_close(standardise(x * scale + shift * scale, context=64, columns=10), z, rtol=1e-6, atol=1e-6)
    assert z.square().sum(1).mean().item() == pytest.approx(10, rel=0.05)


# the prior


def draw(seed: int, tables: int = 12, rows: int = 64, context: int = 40, **sizes: int):
    return draw_tables(np.random.default_rng(seed), tables, rows, context, **sizes)


@given(seed=SEEDS, rows=st.integers(8, 80), share=st.floats(0.4, 0.9))
@settings(max_examples=25, deadline=None)
def test_tables_are_sound(seed, rows, share):
    context = max(2, int(rows * share))
    tables = draw(seed, rows=rows, context=context)
    assert tables.rows.shape[1:] == (rows, 64)
    assert tables.rows.dtype == torch.float32
    assert torch.isfinite(tables.rows).all()
    assert tables.rows.abs().max() < 64**0.5 * 10
    known, queries = tables.labels[:, :context], tables.labels[:, context:]
    for shown, asked, number in zip(known, queries, tables.classes, strict=True):
        assert sorted(set(shown.tolist())) == list(range(number))
        assert 2 <= number <= 10
        assert set(asked.tolist()) <= {*range(number), UNKNOWN}
        assert (asked != UNKNOWN).any()


def test_a_draw_repeats_and_steps_differ():
    first, again, other = (draw_tables(np.random.default_rng((7, 0, step)), 12, 64, 40) for step in (3, 3, 4))
    assert torch.equal(first.rows, again.rows)
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.rows[:5], other.rows[:5])


def test_a_draw_does_not_touch_the_global_generators():
    torch.manual_seed(5)
    np.random.seed(5)
    numpy_state: Any = np.random.get_state
    before = torch.random.get_rng_state(), numpy_state()[1].tolist()
    draw(0)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert numpy_state()[1].tolist() == before[1]


@pytest.fixture(scope="module")
def many():
    return [draw(seed, tables=48) for seed in range(20)]


def test_few_tables_are_left_out(many):
    assert sum(len(each.rows) for each in many) > 0.97 * 960


def test_class_numbers_and_sizes_are_spread(many):
    number = torch.cat([each.classes for each in many])
    binary = (number == 2).float().mean()
    assert 0.5 < binary < 0.75  # a half by design, and a share of the rest
    assert set(number.tolist()) == set(range(2, 11))
    largest = torch.cat(
        [
            torch.stack([(labels == k).float().mean(1) for k in range(10)]).amax(0)
            for labels in (each.labels[:, : each.context] for each in many)
        ]
    )
    assert (largest < 0.55).float().mean() > 0.35  # many are balanced ...
    assert (largest > 0.8).float().mean() > 0.04  # ... and some far from it
    assert (largest < 1).all()


def test_a_label_number_says_nothing(many):
    """Numbers are given anew in every table: among tables of three classes each number is as frequent as the others."""
    labels = torch.cat([each.labels[each.classes == 3, :40] for each in many])
    shares = torch.stack([(labels == k).float().mean(1) for k in range(3)])
    error = shares.std(1) / len(labels) ** 0.5
    assert ((shares.mean(1) - 1 / 3).abs() < 4 * error).all()


def test_relabelling_keeps_who_belongs_together_and_drops_what_the_context_lacks():
    y = torch.tensor([[7, 7, 2, 9, 2, 7, 5, 9], [4, 4, 4, 4, 0, 1, 4, 4]])
    labels, number = _relabelled(y, 4, 10, torch.Generator().manual_seed(0))
    assert number.tolist() == [3, 1]
    assert labels[0, 6] == UNKNOWN
    assert labels[1].tolist() == [0, 0, 0, 0, UNKNOWN, UNKNOWN, 0, 0]
    a, b, c = labels[0, 0], labels[0, 2], labels[0, 3]
    assert {a.item(), b.item(), c.item()} == {0, 1, 2}
    assert labels[0].tolist() == [a, a, b, c, b, a, UNKNOWN, c]


def test_columns_in_use_range_from_one_to_all(many):
    used = torch.cat([(each.rows != 0).any(1).sum(1) for each in many])
    assert used.min() == 1
    assert used.max() == 64
    assert 5 < used.float().median() < 30
    tables = draw(0, columns=9, classes=3)
    assert tables.rows.shape[2] == 9
    assert tables.classes.max() <= 3


@pytest.mark.parametrize("family", FAMILIES)
def test_labels_of_every_family_can_be_learnt_from_the_columns(family, monkeypatch):
    monkeypatch.setattr("icml25cli.papers.tabpfn_bag.prior.FAMILIES", {family: 1.0})
    gains = []
    for seed in range(6):
        tables = draw(seed, tables=8, rows=256, context=180)
        for x, y in zip(tables.rows.numpy(), tables.labels.numpy(), strict=True):
            known = y[180:] != UNKNOWN
            tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=0).fit(x[:180], y[:180])
            common = np.bincount(y[:180]).argmax()
            gains.append((tree.predict(x[180:])[known] == y[180:][known]).mean() - (y[180:][known] == common).mean())
    assert np.mean(gains) > 4 * np.std(gains) / len(gains) ** 0.5
    assert np.mean(gains) > 0.1


def group(columns: int = 5, tables: int = 3, rows: int = 50, seed: int = 0) -> _Group:
    made = _Group(np.random.default_rng(seed), torch.Generator().manual_seed(seed), tables, rows, 64, 10)
    made.columns = columns
    return made


@given(seed=SEEDS, columns=st.integers(1, 64))
@settings(max_examples=25, deadline=None)
def test_the_target_is_no_column_and_columns_are_different_units(
    seed,
    columns,
):
    made = group(columns, seed=seed)
    units = torch.arange(1 + 2 * columns, dtype=torch.float32).expand(3, 50, -1)
    made._units = lambda causes: units  # each unit is its own number
    x, target = made._causal(torch.empty(0))
    assert x.shape == (3, 50, columns)
    for columns_of, target_of in zip(x[:, 0], target[:, 0], strict=True):
        assert len({*columns_of.tolist(), target_of.item()}) == columns + 1


def test_cuts_make_as_many_classes_as_asked_of_equal_or_random_size():
    made = group(tables=400, rows=100)
    target = made.randn(400, 100)
    y = made._cut(target)
    order = target.argsort(1)
    assert (y.gather(1, order).diff(dim=1) >= 0).all()  # classes are ranges
    assert (y.amax(1) < made.number).all()
    equal = 0
    for labels, number in zip(y, made.number, strict=True):
        counts = torch.bincount(labels, minlength=int(number))
        equal += int(counts.max() - counts.min() <= 2)
    assert 160 < equal < 260  # a half of them, and a few by chance


def test_levels_are_ranges_of_a_columns_ranks_or_a_shuffle_of_them():
    made = group(tables=40, rows=200)
    x = made.randn(40, 200, 6)
    coded = made._with_levels(x)
    changed = (coded != x).any(1)
    assert 0.02 < changed.float().mean() < 0.25
    for table, column in changed.nonzero().tolist():
        values = coded[table, :, column]
        by_rank = values[x[table, :, column].argsort()]
        assert len(values.unique()) <= 51
        assert (by_rank.diff() != 0).sum() == len(values.unique()) - 1  # equal ranks, equal level, each one range


def test_gaps_are_few_and_in_a_third_of_the_tables():
    made = group(tables=300, rows=100)
    gaps = made._with_gaps(torch.zeros(300, 100, 6)).isnan().float().mean((1, 2))
    assert 0.25 < (gaps > 0).float().mean() < 0.42
    assert gaps.max() < 0.13


def test_a_forest_of_one_question_is_a_step(monkeypatch):
    made = group(columns=1, tables=6, rows=80)
    monkeypatch.setattr(made, "rng", ConstantRng())
    monkeypatch.setattr(made, "between", lambda low, high: torch.zeros(6, 1, 1))  # no noise
    x = made.randn(6, 80, 1)
    target = made._forest(x)
    along = target.gather(1, x[:, :, 0].argsort(1))
    assert ((along.diff(dim=1) != 0).sum(1) <= 1).all()
    assert ((along.diff(dim=1) != 0).sum(1) == 1).any()


class ConstantRng:
    """One tree, one level."""

    def uniform(self, low, high):
        return low

    def integers(self, low, high):
        return low


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_finite_and_not_constant(name):
    y = ACTIVATIONS[name](torch.linspace(-300, 300, 1001))
    assert torch.isfinite(y).all()
    assert y.std() > 0

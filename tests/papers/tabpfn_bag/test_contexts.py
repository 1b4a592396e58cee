"""Contexts: every class, no query in its own context, places by share; tasks of codes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.papers.tabpfn_bag.codes import binary_code
from icml25cli.papers.tabpfn_bag.contexts import (
    coded_tasks,
    plain_tasks,
    queries_and_context,
    shares,
    stratified_bootstrap,
)


@given(count=st.lists(st.integers(1, 400), min_size=1, max_size=12), size=st.integers(1, 500))
@settings(deadline=None)
def test_places_are_by_share_and_nobody_is_left_out(count, size):
    wanted = shares(np.array(count), size)
    assert wanted.min() >= 1
    assert wanted.sum() == max(size, len(count))
    if size >= 12 * len(count) and min(count) * size >= sum(count):  # nobody needed a place of grace
        exact = np.array(count) / sum(count) * size
        assert np.abs(wanted - exact).max() <= 1


@pytest.mark.parametrize("replace", [True, False])
def test_a_context_has_every_class_by_its_share(replace):
    labels = np.repeat([0, 1, 2], [600, 300, 3])
    index = stratified_bootstrap(labels, 100, np.random.default_rng(0), replace=replace)
    count = np.bincount(labels[index])
    assert count.tolist() in ([66, 33, 1], [67, 32, 1], [66, 34, 1], [67, 33, 1], [65, 34, 1])
    if not replace:
        assert len(set(index.tolist())) == len(index)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_no_query_is_in_its_own_context(seed):
    labels = np.repeat([0, 1, 2], [50, 20, 2])
    askable = np.arange(72)
    rng = np.random.default_rng(seed)
    asked, shown = queries_and_context(labels, askable, 30, 40, rng)
    assert len(set(asked.tolist())) == 30
    assert not set(asked.tolist()) & set(shown.tolist())


def test_as_the_authors_do_a_query_may_meet_itself():
    rng = np.random.default_rng(0)
    asked, shown = queries_and_context(np.zeros(20, np.int64), np.arange(20), 10, 40, rng, disjoint=False)
    assert set(asked.tolist()) & set(shown.tolist())


def test_tasks_of_a_code_share_the_paths_out():
    code = binary_code(12, 15)
    tasks = coded_tasks(code, 4)
    assert tasks.path.tolist() == [j % 4 for j in range(15)]
    assert (tasks.symbols == code.matrix.T).all()
    assert len(set(tasks.group.tolist())) == 15


def test_rotated_tasks_ask_the_same_by_other_numbers():
    tasks = plain_tasks(3, 4, rotate=True)
    assert tasks.symbols.tolist() == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]

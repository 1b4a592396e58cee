"""Mean ranks, the critical difference of Nemenyi, groups that do not differ."""

from __future__ import annotations

import math

import numpy as np
import pytest

from icml25cli.papers.tabpfn_bag.figures import critical_difference as draw
from icml25cli.papers.tabpfn_bag.ranks import Ranks, critical_difference, mean_ranks


def test_the_critical_difference_is_that_of_demsar():
    # q for four methods is 2.569, for ten 3.164 (Demšar 2006, table 5)
    assert critical_difference(4, 14) == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 14)), abs=1e-3)
    assert critical_difference(10, 12) == pytest.approx(3.164 * math.sqrt(10 * 11 / (6 * 12)), abs=2e-3)
    assert math.isnan(critical_difference(4, 1))


def test_ranks_by_hand():
    losses = np.array([[0.1, 0.2, 0.3], [0.1, 0.3, 0.2], [0.2, 0.2, 0.5]])
    found = mean_ranks(losses)
    assert found.mean.tolist() == pytest.approx([(1 + 1 + 1.5) / 3, (2 + 3 + 1.5) / 3, (3 + 2 + 3) / 3])
    assert mean_ranks(-losses, higher_is_better=True).mean.tolist() == found.mean.tolist()
    assert 0 < found.p < 1
    assert math.isnan(mean_ranks(losses[:1]).p)
    assert math.isnan(mean_ranks(np.ones((3, 3))).p)  # all alike: nothing to tell apart


def test_groups_join_what_is_within_the_difference():
    ranks = Ranks(np.array([3.0, 1.0, 1.8, 4.5]), 1.3, 0.01)
    assert ranks.cliques() == [(1, 2), (2, 0)]
    assert Ranks(np.array([1.0, 2.0]), float("nan"), 1.0).cliques() == []


def test_the_figure_names_every_method():
    figure = draw(["beta", "frozen", "rf"], Ranks(np.array([1.2, 2.0, 2.8]), 1.0, 0.01), "log-loss")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert sum(any(name in text for text in texts) for name in ("beta", "frozen", "rf")) == 3
    assert any("critical difference 1.00" in text for text in texts)

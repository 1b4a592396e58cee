"""Claims: the exact ones hold, their controls fail, and what is paired is paired."""

from __future__ import annotations

import numpy as np
import pytest

from icml25cli.core.claims import check
from icml25cli.core.errors import MissingError
from icml25cli.papers.tabpfn_bag import claims

BY_NAME = {claim.name: claim for claim in claims.CLAIMS}


@pytest.mark.parametrize("name", ["shared-weights", "codes"])
def test_exact_claims_hold_and_their_controls_fail(name):
    outcome = check(BY_NAME[name], "quick")
    assert outcome.verdict == "holds"
    assert outcome.control_fails


def test_a_method_loses_nothing_less_than_itself(monkeypatch):
    found = {"beta": (0.1, 0.3), "frozen": (0.2, 0.5)}
    monkeypatch.setattr(claims, "losses", lambda size, method: found[method])
    gain = claims.less("quick", "beta", "frozen")
    assert gain.value == pytest.approx(0.15)
    assert claims.less("quick", "beta", "beta").value == 0
    assert BY_NAME["tuned"].predicts.judge(claims.less("quick", "frozen", "frozen")) == "does not hold"


def test_parts_of_the_loss_are_compared_on_the_same_split(monkeypatch):
    parts = {
        1: (claims.Spread(0.5, 0.3), claims.Spread(0.6, 0.5)),
        8: (claims.Spread(0.5, 0.1), claims.Spread(0.6, 0.2)),
    }
    monkeypatch.setattr(claims, "spreads", lambda size, rows, paths: parts[paths])
    assert claims.falls("quick", "variance", (64, 1), (64, 8)).value == pytest.approx(np.mean([0.2, 0.3]))
    assert claims.falls("quick", "bias", (64, 1), (64, 8)).value == 0


def test_what_needs_the_papers_weights_says_so():
    with pytest.raises(MissingError, match="TabPFN's own weights"):
        claims.out_of_reach("full")

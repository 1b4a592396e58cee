"""Claims evaluate, and each control fails; which hold is a finding, not a test."""

from __future__ import annotations

import pytest

from icml25cli.core.claims import check
from icml25cli.papers.formulate.bench import solve_one
from icml25cli.papers.formulate.claims import CLAIMS, Labelled, out_of_reach
from icml25cli.papers.formulate.samples import SAMPLES
from icml25cli.papers.formulate.settings import Settings

QUICK = [claim for claim in CLAIMS if "quick" in claim.sizes]


@pytest.mark.parametrize("claim", QUICK, ids=lambda claim: claim.name)
@pytest.mark.xdist_group("formulate claims")
def test_it_evaluates_and_its_control_fails(claim):
    """Twelve searches, without pruning too, shared by three claims: some twenty seconds."""
    outcome = check(claim, "quick")
    assert outcome.verdict in ("holds", "does not hold", "undecided")
    assert outcome.control_fails


@pytest.mark.parametrize(
    "claim", [c for c in CLAIMS if "quick" not in c.sizes and c.measure is not out_of_reach], ids=lambda c: c.name
)
def test_without_its_data_a_claim_says_what_is_missing(claim, monkeypatch):
    from icml25cli.papers.formulate import claims

    for cached in (claims.problems, claims.solved, claims.equal_draws, claims.at_random):
        cached.cache_clear()
    monkeypatch.delenv("ICML25_TEST_DATA", raising=False)
    monkeypatch.chdir("/")
    outcome = check(claim, "full")
    assert outcome.verdict == "not testable here"
    assert "ICML25_TEST_DATA" in str(outcome.reason)


def test_the_built_in_problems_have_the_optima_that_they_say():
    for row, (text, optimum) in enumerate(SAMPLES, 1):
        record = solve_one(Labelled(row, str(row), text, (optimum,)), Settings(rollouts=16))
        assert any(value == pytest.approx(optimum) for value in record["readings"] if value is not None), text

"""The paper's claims evaluate, and their controls fail. Whether the paper is right is not for a test to say."""

import pytest

from icml25cli.core.claims import check
from icml25cli.papers.sae.claims import CLAIMS


@pytest.mark.parametrize("claim", [c for c in CLAIMS if "quick" in c.sizes], ids=lambda c: c.name)
def test_it_evaluates_and_its_control_fails(claim):
    outcome = check(claim, "quick")
    assert outcome.measured is not None
    assert outcome.measured.low <= outcome.measured.value <= outcome.measured.high
    assert outcome.control_fails, outcome.control


def test_what_cannot_be_tested_says_what_is_missing():
    outcome = check(CLAIMS[-1], "full")
    assert outcome.verdict == "not testable here"
    assert "CLIP" in str(outcome.reason)

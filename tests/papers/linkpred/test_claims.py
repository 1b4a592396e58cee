"""The paper's claims evaluate on graphs made here, and every control fails."""

import pytest

from icml25cli.core.claims import check
from icml25cli.papers.linkpred.claims import CLAIMS


@pytest.mark.xdist_group("linkpred claims")
@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if "quick" in claim.sizes], ids=lambda claim: claim.name)
def test_it_evaluates_and_its_control_fails(claim):
    """Models of three splits, shared by the claims: some twenty seconds."""
    outcome = check(claim, "quick")
    assert outcome.verdict in ("holds", "does not hold", "undecided")
    assert outcome.control_fails, outcome.control

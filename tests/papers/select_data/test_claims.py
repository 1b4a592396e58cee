"""Claims evaluate at once where they are exact, and every control fails."""

import pytest

from icml25cli.core.claims import check
from icml25cli.papers.select_data.claims import CLAIMS


@pytest.mark.parametrize("name", ["adam-direction", "checkpoint-weights"])
def test_exact_claims_hold_and_their_controls_fail(name):
    (claim,) = [claim for claim in CLAIMS if claim.name == name]
    outcome = check(claim, "quick")
    assert (outcome.verdict, outcome.control_fails) == ("holds", True)


def test_what_cannot_be_had_says_so():
    (claim,) = [claim for claim in CLAIMS if claim.name == "published-tables"]
    assert check(claim, "full").verdict == "not testable here"

"""The paper's claims evaluate, and their controls fail. Whether the paper is right is not for a test to say."""

from importlib.resources import files

import pytest

from icml25cli.core.claims import check
from icml25cli.papers.prune.claims import CLAIMS, losses, variants
from icml25cli.papers.prune.methods import check_options

QUICK = [claim for claim in CLAIMS if "quick" in claim.sizes]

needs_tiny = pytest.mark.skipif(
    not files("icml25cli.assets").joinpath("tiny").is_dir(), reason="the built-in model is not in this checkout"
)


def parameters():
    return [pytest.param(c, id=c.name, marks=[needs_tiny] if c.name.endswith("-tiny") else []) for c in QUICK]


@pytest.mark.parametrize("claim", parameters())
def test_it_evaluates_and_its_control_fails(claim, monkeypatch, tmp_path):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    outcome = check(claim, "quick")
    assert outcome.reason is None
    assert outcome.measured is not None
    assert outcome.measured.low <= outcome.measured.value <= outcome.measured.high
    assert outcome.control_fails, outcome.control
    assert list(tmp_path.iterdir()) == []


@needs_tiny
def test_all_variants_were_judged_on_the_same_windows():
    found = losses("tiny", "quick", 0.2)
    assert found.keys() == {*variants(0.2, 0), "dense"}
    assert len({x.shape for x in found.values()}) == 1
    assert max(found, key=lambda name: found[name].mean()) == "random"


def test_names_are_unique_and_options_have_a_meaning():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    for target in (0.2, 0.5):
        for options in variants(target, 0).values():
            check_options(options)


@pytest.mark.parametrize("claim", [c for c in CLAIMS if "quick" not in c.sizes], ids=lambda c: c.name)
def test_without_its_assets_a_claim_says_what_is_missing(claim, monkeypatch, tmp_path):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    outcome = check(claim, "full")
    assert outcome.verdict == "not testable here"
    assert "icml25 assets fetch" in str(outcome.reason) or "LLaMA-7B" in str(outcome.reason)

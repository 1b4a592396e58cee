"""The paper's claims evaluate, and their controls fail. Whether the paper is right is not for a test to say."""

from importlib.resources import files

import pytest

from icml25cli.core.claims import check
from icml25cli.papers.quantize.claims import CLAIMS
from icml25cli.papers.quantize.matrix import quantize_matrix
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.weight_claims import GPTQ, LATTICE_LDLQ, LATTICE_NEAREST, judge, layer

QUICK = [claim for claim in CLAIMS if "quick" in claim.sizes]

needs_tiny = pytest.mark.skipif(
    not files("icml25cli.assets").joinpath("tiny").is_dir(), reason="the built-in model is not in this checkout"
)


@needs_tiny
def test_the_model_is_compared_at_no_more_bits_and_leaves_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    judge.cache_clear()  # the claims below then find this run
    judged = judge("tiny", "quick")
    assert judged["nearest"].bits == judged["nestquant"].bits
    assert judged["nestquant"].bits_per_weight <= judged["gptq"].bits_per_weight
    assert list(tmp_path.iterdir()) == []


def parameters():
    return [pytest.param(c, id=c.name, marks=[needs_tiny] if c.name.endswith("-tiny") else []) for c in QUICK]


@pytest.mark.parametrize("claim", parameters())
def test_it_evaluates_and_its_control_fails(claim):
    outcome = check(claim, "quick")
    assert outcome.reason is None
    assert outcome.measured is not None
    assert outcome.measured.low <= outcome.measured.value <= outcome.measured.high
    assert outcome.control_fails, outcome.control


def test_names_are_unique():
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)


def test_the_layer_is_compared_at_equal_bits_but_for_the_codebook():
    weight, hessian = layer(0)
    bits = [
        quantize_matrix(weight, hessian, method, Rotation("none", 512)).bits | {"codebook": 0}
        for method in (LATTICE_LDLQ, LATTICE_NEAREST, GPTQ)
    ]
    assert [sum(b.values()) / weight.numel() for b in bits] == [4.15625] * 3


@pytest.mark.parametrize("claim", [c for c in CLAIMS if "quick" not in c.sizes], ids=lambda c: c.name)
def test_without_its_assets_a_claim_says_what_to_fetch(claim, monkeypatch, tmp_path):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    outcome = check(claim, "full")
    assert outcome.verdict == "not testable here"
    assert "icml25 assets fetch" in str(outcome.reason)

"""The controlled task: exact information (section 10, P4), drawn data, stacks of encoders, a small run, claims."""

import numpy as np
import pytest
import torch

from icml25cli.core.claims import check
from icml25cli.core.errors import InputError
from icml25cli.papers.align import encoders, generator
from icml25cli.papers.align.claims import CLAIMS
from icml25cli.papers.align.encoders import Split, Training
from icml25cli.papers.align.simulate import Design, checked, simulate, summary

TOTAL = 1.158839
TABLE = {  # R: I(X1;Y), I(X2;Y), I(Xc;Y), best accuracy of each view
    8: (1.158839, 1.158839, 1.158839, 0.9063, 0.9063),
    7: (0.971710, 1.158839, 0.971710, 0.7994, 0.9063),
    6: (0.971710, 0.880554, 0.715085, 0.7994, 0.7363),
    5: (0.715085, 0.886691, 0.493503, 0.6663, 0.7446),
    4: (0.715085, 0.733368, 0.366874, 0.6663, 0.7083),
    3: (0.493503, 0.771674, 0.259116, 0.5787, 0.7367),
    2: (0.493503, 0.607597, 0.152023, 0.5787, 0.6512),
    1: (0.366874, 0.618817, 0.088413, 0.5412, 0.6467),
    0: (0.366874, 0.473343, 0.0, 0.5412, 0.5952),
}


@pytest.mark.parametrize("redundant", TABLE)
def test_information_is_exact(redundant):
    found = generator.exact(generator.task(redundant))
    assert found.total == pytest.approx(TOTAL, abs=1e-5)
    assert found.accuracy == pytest.approx(0.9063, abs=1e-4)
    measured = (found.first, found.second, found.shared, found.accuracy_first, found.accuracy_second)
    assert measured == pytest.approx(TABLE[redundant], abs=1e-4)


@pytest.mark.parametrize("redundant", [0, 3, 8])
@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
def test_what_a_view_says_of_the_label(redundant, second):
    of = generator.task(redundant)
    bits, given = generator.view(of, second)
    exact = generator.exact(of)
    best = exact.accuracy_second if second else exact.accuracy_first
    assert given.max(axis=1).mean() == pytest.approx(best, abs=1e-12)
    drawn = generator.draw(of, 60_000, 0)
    rows = ((drawn.x2 if second else drawn.x1) @ (1 << np.arange(12)[::-1])).astype(int)
    np.testing.assert_array_equal(bits[rows], drawn.x2 if second else drawn.x1)
    assert np.mean(given[rows].argmax(axis=1) == drawn.label) == pytest.approx(best, abs=0.006)


def test_classes_are_about_equally_likely():
    marginal = generator.task(3).given.mean(axis=0)
    np.testing.assert_allclose(marginal, [0.2547, 0.2419, 0.2589, 0.2445], atol=1e-4)


def test_drawn_items_follow_the_task():
    of = generator.task(5)
    drawn = generator.draw(of, 40_000, 0)
    assert drawn.x1.shape == drawn.x2.shape == (40_000, 12)
    np.testing.assert_array_equal(drawn.x1[:, :8], drawn.x2[:, :8])
    assert set(np.unique(drawn.x1)) == {0.0, 1.0}
    np.testing.assert_allclose(np.bincount(drawn.label) / 40_000, of.given.mean(axis=0), atol=0.01)
    bits = np.hstack([drawn.x1[:, of.shared], drawn.x1[:, 8 + of.first], drawn.x2[:, 8 + of.second]])
    row = (bits @ (1 << np.arange(8)[::-1])).astype(int)
    assert np.mean(of.given[row].argmax(axis=1) == drawn.label) == pytest.approx(0.9063, abs=0.006)


def test_heterogeneity_is_torchs_own_layers():
    x = generator.draw(generator.task(8), 50, 0).x2
    np.testing.assert_array_equal(generator.heterogeneous(x, -1), x)
    torch.manual_seed(0)
    first, second = torch.nn.Linear(12, 12), torch.nn.Linear(12, 12)
    with torch.no_grad():
        wanted = second(torch.tanh(first(torch.from_numpy(x).float())))
    np.testing.assert_allclose(generator.heterogeneous(x, 1), wanted.numpy(), atol=1e-6)


@pytest.mark.parametrize(("redundant", "temperature"), [(9, 0.05), (-1, 0.05), (4, 0.0)])
def test_impossible_tasks_are_refused(redundant, temperature):
    with pytest.raises(InputError):
        generator.task(redundant, temperature)


def test_a_stack_trains_as_each_of_its_members_would_alone():
    """Against torch's own layers, AdamW and clipping, on the same batches."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 90, 5, generator=draw), torch.randint(0, 3, (2, 90), generator=draw)
    how = Training(epochs=3, batch=30, rate=0.02, decay=0.1)
    start = encoders.started(2, 5, 3, 2, seed=1)
    rows = Split(x, y)
    last = encoders.train(start, rows, rows, how, seed=2)
    for member in range(2):
        layers = [torch.nn.Linear(5, 5), torch.nn.Linear(5, 5), torch.nn.Linear(5, 3)]
        for layer, (weight, bias) in zip(layers, start.layers, strict=True):
            layer.weight.data, layer.bias.data = weight[member].T.clone(), bias[member, 0].clone()
        act = torch.nn.LeakyReLU(0.1)
        model = torch.nn.Sequential(layers[0], act, layers[1], act, layers[2])
        adam = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
        shuffle, best, kept = torch.Generator().manual_seed(2), -1.0, model(x[member]).detach()
        for _ in range(3):
            order = torch.randperm(90, generator=shuffle)
            for begin in range(0, 90, 30):
                which = order[begin : begin + 30]
                adam.zero_grad()
                torch.nn.functional.cross_entropy(model(x[member, which]), y[member, which]).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 8.0)
                adam.step()
            accuracy = float((model(x[member]).argmax(1) == y[member]).float().mean())
            if accuracy > best:
                best, kept = accuracy, model(x[member]).detach()
        torch.testing.assert_close(last.logits(x)[member], kept, rtol=1e-3, atol=1e-4)


def test_alignment_falls_with_uniqueness():
    found = simulate(Design((0, 8), (0,), (1, 2), 2, 8000, (6, 12)))
    rows, _ = summary(found)
    assert [row["unique"] for row in rows] == [0, 8]
    assert rows[0]["max_ucka"] > 0.6
    assert abs(rows[1]["max_ucka"]) < 0.15
    assert rows[1]["mknn"] == pytest.approx(100 / 511, abs=0.03)
    assert rows[0]["accuracy"] > 0.8


def test_designs_outside_are_refused():
    plain = {"heterogeneity": (1,), "depths": (1,), "seeds": 1, "rows": 2000, "epochs": 2, "rate": 0.01}
    with pytest.raises(InputError, match="unique bits 9 is not in 0 to 8"):
        checked(unique=(0, 9), **plain)
    with pytest.raises(InputError, match="encoder depth 0"):
        checked(unique=(0,), **{**plain, "depths": (0,)})


@pytest.mark.parametrize("claim", [c for c in CLAIMS if "quick" in c.sizes], ids=lambda c: c.name)
def test_claims_evaluate_and_their_controls_fail(claim):
    outcome = check(claim, "quick")
    assert outcome.measured is not None
    assert outcome.measured.low <= outcome.measured.value <= outcome.measured.high
    assert outcome.control_fails, outcome.control


def test_what_cannot_be_tested_says_what_is_missing():
    outcome = check(CLAIMS[-1], "full")
    assert outcome.verdict == "not testable here"
    assert "DINOv2" in str(outcome.reason)

"""Training: it learns, it does not see what it should foretell, and it continues as if it had not been stopped."""

from typing import Any

import numpy as np
import pytest
import torch

from icml25cli.core.errors import InputError
from icml25cli.core.runs import Run
from icml25cli.papers.linkpred import training
from icml25cli.papers.linkpred.graph import adjacency
from icml25cli.papers.linkpred.models import HadamardModel, NodeInput, Sizes
from icml25cli.papers.linkpred.ncn import NcnModel, NcnSizes
from icml25cli.papers.linkpred.propagation import Observed
from icml25cli.papers.linkpred.splits import Part
from icml25cli.papers.linkpred.training import Pairs, Recipe, criterion_of, fit, judge, predict

N = 40


def two_camps(seed: int = 0):
    """Edges within two halves of the nodes; positives to learn from, edges and negatives to validate on."""
    rng = np.random.default_rng(seed)
    within = np.array([(u, v) for u in range(N) for v in range(u + 1, N) if (u < N // 2) == (v < N // 2)])
    edges = within[rng.permutation(len(within))[:160]]
    across = np.array([(u, v) for u in range(N // 2) for v in range(N // 2, N)])[rng.permutation(400)[:160]]
    return edges[:120], edges[120:], across[:120], across[120:]


def prepared(kind: str = "gcn"):
    train, valid, negatives, valid_negatives = two_camps()
    observed = Observed(adjacency(train[np.lexsort(train.T[::-1])], N))
    torch.manual_seed(0)
    nodes = NodeInput(None, N, 8)
    if kind == "ncn":
        model = NcnModel(nodes, 8, observed, NcnSizes(8))
    else:
        model = HadamardModel(kind, nodes, 8, Sizes(8, 2, 2, 0.1))

    def draw(rng):
        return Pairs(negatives), rng.permutation(len(negatives))

    return model, observed, Pairs(train), draw, (Pairs(valid), Pairs(valid_negatives))


RECIPE = Recipe(epochs=12, evaluate_every=2, patience=20, batch=30)


@pytest.mark.parametrize("kind", ["gcn", "sage", "gin", "ncn"])
def test_two_camps_are_told_apart(kind):
    model, observed, positives, draw, validation = prepared(kind)
    before = judge("auc", *(predict(model, observed.everything, part) for part in validation))
    fitted = fit(model, observed, positives, draw, validation, "auc", Recipe(epochs=40, batch=30), seed=0)
    after = judge("auc", *(predict(model, observed.everything, part) for part in validation))
    assert after == fitted.best > max(before, 0.9)


def test_the_best_epoch_is_kept():
    model, observed, positives, draw, validation = prepared()
    seen = []
    original = training.judge

    def watched(*args):
        seen.append(original(*args))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "judge", watched)
        fitted = fit(model, observed, positives, draw, validation, "auc", RECIPE, seed=0)
    assert len(seen) == 6
    assert fitted.best == max(seen)
    assert fitted.epoch == 2 * (1 + int(np.argmax(seen)))


def test_it_stops_when_nothing_gets_better():
    model, observed, positives, draw, validation = prepared()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "judge", lambda *_: 0.5)
        fitted = fit(model, observed, positives, draw, validation, "auc", Recipe(evaluate_every=2, patience=3), seed=0)
    assert (fitted.epoch, fitted.epochs) == (2, 8)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("kind", ["gcn", "ncn"])
@pytest.mark.parametrize("after", [1, 3, 6])
def test_stopped_after_an_evaluation_it_comes_to_the_same_bits(tmp_path, kind, after):
    whole, observed, positives, draw, validation = prepared(kind)
    fitted = fit(whole, observed, positives, draw, validation, "auc", RECIPE, seed=3)

    calls = []
    original = Run.write

    def killed(self, unit, writer):
        original(self, unit, writer)
        calls.append(unit)
        if len(calls) == after:
            raise Stopped

    inputs = {"what": "test"}
    model, observed, positives, draw, validation = prepared(kind)
    with Run.open(tmp_path / "run", inputs) as run, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "write", killed)
        with pytest.raises(Stopped):
            fit(model, observed, positives, draw, validation, "auc", RECIPE, seed=3, run=run)
    model, observed, positives, draw, validation = prepared(kind)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7)  # what is not restored would be noticed
    with Run.open(tmp_path / "run", inputs, resume=True) as run:
        again = fit(model, observed, positives, draw, validation, "auc", RECIPE, seed=3, run=run)
    assert (again.best, again.epoch, again.epochs) == (fitted.best, fitted.epoch, fitted.epochs)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


def test_another_seed_is_another_model():
    models = []
    for seed in (0, 0, 1):
        model, observed, positives, draw, validation = prepared()
        fit(model, observed, positives, draw, validation, "auc", RECIPE, seed=seed)
        models.append(predict(model, observed.everything, validation[0]))
    assert (models[0] == models[1]).all()
    assert (models[0] != models[2]).any()


def test_training_leaves_the_random_state_of_others_alone():
    model, observed, positives, draw, validation = prepared()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit(model, observed, positives, draw, validation, "auc", Recipe(epochs=1), seed=0)
    assert torch.equal(torch.rand(3), expected)


def test_a_batch_does_not_see_the_edges_that_it_foretells():
    model, observed, positives, draw, validation = prepared()
    contexts = []
    original = Observed.without

    def watched(self, pairs):
        contexts.append((pairs, original(self, pairs)))
        return contexts[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Observed, "without", watched)
        fit(model, observed, positives, draw, validation, "auc", Recipe(epochs=1, batch=50), seed=0)
    assert len(contexts) == 2  # of 120 positives, the last 20 left out
    for pairs, context in contexts:
        assert len(pairs) == 50
        there = context.matrix.toarray()
        assert there[pairs[:, 0], pairs[:, 1]].sum() == there[pairs[:, 1], pairs[:, 0]].sum() == 0
        assert there.sum() == 2 * (120 - 50)


def test_a_loss_that_is_not_finite_is_said():
    model, observed, positives, draw, validation = prepared()
    decoder: Any = model.decoder
    with torch.no_grad():
        decoder[0].bias.fill_(float("nan"))
    with pytest.raises(InputError, match="the loss became nan in epoch 1"):
        fit(model, observed, positives, draw, validation, "auc", RECIPE, seed=0)


def test_scores_keep_the_shape_of_pairs_and_do_not_depend_on_their_company():
    model, observed, *_ = prepared()
    pairs = np.random.default_rng(0).integers(N, size=(6, 5, 2))
    together = predict(model, observed.everything, Pairs(pairs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "AT_ONCE", 7)
        apart = predict(model, observed.everything, Pairs(pairs))
    assert together.shape == (6, 5)
    np.testing.assert_allclose(together, apart, rtol=1e-5)


def test_features_of_pictures_follow_their_pairs():
    pairs = Pairs(np.arange(8).reshape(4, 2), lambda rows: rows[:, None].astype(np.float32))
    flat, (seen,) = pairs.batch(np.array([3, 1]))
    assert flat.tolist() == [[6, 7], [2, 3]]
    assert seen.tolist() == [[3.0], [1.0]]


@pytest.mark.parametrize(
    ("metric", "negatives", "expected"),
    [("hits_at_100", (500, 2), "hits_at_100"), ("hits_at_100", (150, 2), "auc"), ("mrr", (9, 50, 2), "mrr")],
)
def test_an_epoch_is_chosen_by_a_criterion_that_says_something(metric, negatives, expected):
    part = Part(np.zeros((9, 2), np.int64), np.zeros(negatives, np.int64))
    assert criterion_of(metric, part) == expected


def test_criteria_are_the_metrics():
    positive, negative = np.array([3.0, 2, 1, 0]), np.array([2.5, 1.5, 0.5])
    assert judge("hits_at_2", positive, negative) == 0.5
    assert judge("mrr", np.array([1.0]), np.array([1.0, 1.0, 0.0])) == 0.5
    assert judge("auc", positive, negative) == 6 / 12


@pytest.mark.parametrize(("positives", "batch"), [(50, 50), (640, 64), (16_000, 1000), (10**6, 32_768)])
def test_batches_are_a_sixteenth_within_bounds(positives, batch):
    assert Recipe().batch_of(positives) == batch

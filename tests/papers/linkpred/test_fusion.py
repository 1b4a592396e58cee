"""Fusion: at the start nothing changes, and what passes is what the equations say."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from icml25cli.papers.linkpred.fusion import (
    Concatenation,
    LateFusion,
    LinkFusion,
    MixtureOfScores,
    NodeFusion,
    Standardised,
    VisionHead,
    fit_late,
)
from icml25cli.papers.linkpred.models import HadamardModel, NodeInput, Sizes, ends_of
from icml25cli.papers.linkpred.ncn import Completion, NcnModel, NcnSizes
from icml25cli.papers.linkpred.propagation import Observed
from icml25cli.papers.linkpred.readers import read_graph

GRAPHS = ("karate", "lesmis", "florentine")
BASES = ("gcn", "sage", "gin", "ncn", "ncnc")
SEEN = 9


def base_of(kind: str, graph, observed, nodes=None):
    torch.manual_seed(0)
    made = NodeInput(graph.features, graph.num_nodes, 8)
    width = made.width
    made = made if nodes is None else nodes(made)
    if kind.startswith("ncn"):
        return NcnModel(made, width, observed, NcnSizes(8), Completion() if kind == "ncnc" else None).eval()
    return HadamardModel(kind, made, width, Sizes(8, 2, 2, 0.1)).eval()


def setting(name: str):
    graph = read_graph(name)
    observed = Observed(graph.adjacency)
    rng = np.random.default_rng(0)
    pairs = np.array([rng.choice(graph.num_nodes, 2, replace=False) for _ in range(40)])
    seen = torch.from_numpy(rng.standard_normal((40, SEEN)).astype(np.float32))
    return graph, observed, pairs, seen


def scores(model, observed, pairs, *seen):
    context = observed.everything
    return model.score(context, model.embed(context), pairs, *seen)


def standardised():
    return Standardised(np.random.default_rng(1).standard_normal((50, SEEN)).astype(np.float32))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("attention", ["sigmoid", "constant", "channel"])
def test_gvn_at_its_start_is_its_base_model_bit_by_bit(name, kind, attention):
    graph, observed, pairs, seen = setting(name)
    base = base_of(kind, graph, observed)
    alone = scores(base, observed, pairs)
    fused = LinkFusion(base, standardised(), attention).eval()
    assert torch.equal(scores(fused, observed, pairs, seen), alone)
    with torch.no_grad():
        fused.g.fill_(0.9)
    assert not torch.equal(scores(fused, observed, pairs, seen), alone)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("kind", BASES)
def test_e_gvn_at_its_start_is_its_base_model_bit_by_bit(name, kind):
    graph, observed, pairs, _ = setting(name)
    pictures = np.random.default_rng(2).standard_normal((graph.num_nodes, SEEN)).astype(np.float32)
    alone = scores(base_of(kind, graph, observed), observed, pairs)
    fused = base_of(kind, graph, observed)
    nodes: Any = fused.nodes
    fused.nodes = NodeFusion(nodes, pictures, "sigmoid")
    assert torch.equal(scores(fused, observed, pairs), alone)
    with torch.no_grad():
        fused.nodes.g.fill_(0.9)
    assert not torch.equal(scores(fused, observed, pairs), alone)


def test_the_mixture_at_its_start_is_its_base_model():
    graph, observed, pairs, seen = setting("karate")
    base = base_of("ncn", graph, observed)
    mixed = MixtureOfScores(base, standardised()).eval()
    alone = scores(base, observed, pairs)
    assert torch.equal(scores(mixed, observed, pairs, seen), alone)
    with torch.no_grad():
        mixed.g.fill_(0.25)
    expected = 0.25 * alone + 0.75 * scores(mixed.vision, observed, pairs, seen)
    torch.testing.assert_close(scores(mixed, observed, pairs, seen), expected)


def test_the_share_of_the_picture_can_be_learnt_from_the_start():
    graph, observed, pairs, seen = setting("karate")
    fused = LinkFusion(base_of("gcn", graph, observed), standardised(), "sigmoid")
    scores(fused, observed, pairs, seen).sum().backward()
    assert fused.f.grad is not None
    assert fused.g.grad is not None
    assert fused.f.grad.abs().item() > 1e-6
    assert fused.g.grad.abs().item() > 1e-6


def test_link_fusion_is_the_equation():
    graph, observed, pairs, seen = setting("karate")
    base = base_of("gcn", graph, observed)
    fused = LinkFusion(base, standardised(), "sigmoid").eval()
    with torch.no_grad():
        fused.f.fill_(0.3)
        fused.g.fill_(0.8)
    context = observed.everything
    h = base.embed(context)
    u, v = ends_of(h, pairs)
    z = fused.transform(fused.standardised(seen))
    attention: Any = fused.attention
    first, second = attention.first, attention.second

    def weight(x):
        return torch.sigmoid(second(torch.tanh(first(torch.cat([x, z], dim=1)))))

    ends = 0.3 * u + 0.7 * weight(u) * z, 0.8 * v + 0.2 * weight(v) * z
    torch.testing.assert_close(fused.score(context, h, pairs, seen), base.score(context, h, pairs, ends))


@pytest.mark.parametrize("attention", ["sigmoid", "constant", "channel"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_node_fusion_is_the_equation(attention, kind):
    x = np.random.default_rng(3).random((6, 5)).astype(np.float32)
    pictures = np.random.default_rng(4).random((6, SEEN)).astype(np.float32)
    torch.manual_seed(0)
    fused = NodeFusion(NodeInput(sparse.csr_array(x) if kind == "sparse" else x, 6, 5), pictures, attention)
    with torch.no_grad():
        fused.g.fill_(0.75)
    own = fused.nodes().product(torch.eye(5))
    z = fused.transform(torch.from_numpy((pictures - pictures.mean(0)) / pictures.std(0)))
    alpha = torch.ones(6, 1)
    if attention != "constant":
        layers: Any = fused.attention
        first, second = layers.first, layers.second
        alpha = torch.sigmoid(second(torch.tanh(first(torch.cat([own, z], dim=1)))))
    assert alpha.shape == (6, 5 if attention == "channel" else 1)
    weight = torch.randn(3, 5)
    expected = (0.75 * own + 0.25 * alpha * z) @ weight.T
    torch.testing.assert_close(fused().product(weight), expected, rtol=1e-4, atol=1e-5)


def test_dropout_falls_on_attributes_and_on_pictures():
    x, pictures = np.random.default_rng(3).random((2, 400, 8)).astype(np.float32)
    fused = NodeFusion(NodeInput(sparse.csr_array(x), 400, 8), pictures, "constant")
    weight = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    for share in (1.0, 0.0):
        with torch.no_grad():
            fused.g.fill_(share)
            torch.manual_seed(0)
            drawn = torch.stack([fused().product(weight, 0.5) for _ in range(300)])
            still = fused().product(weight)
        assert (drawn.std(0) > 0.05).all()
        assert (drawn.mean(0) - still).abs().max() < 6 * (drawn.std(0) / 300**0.5).max()


def test_concatenation_does_not_know_the_order_of_a_pair():
    graph, observed, pairs, seen = setting("karate")
    model = Concatenation(base_of("gcn", graph, observed), standardised()).eval()
    turned = scores(model, observed, pairs[:, ::-1].copy(), seen)
    torch.testing.assert_close(turned, scores(model, observed, pairs, seen))
    assert not torch.allclose(scores(model, observed, pairs, 2 * seen), turned)


def test_a_feature_that_never_changes_counts_nothing():
    rows = np.stack([np.arange(5.0), np.full(5, 3.0)], axis=1).astype(np.float32)
    found = Standardised(rows)(torch.tensor([[2.0, 9.0], [4.0, 3.0]]))
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0], [2**0.5, 0.0]]))


def test_what_fuses_is_trained_at_its_own_rate():
    graph, observed, _, _ = setting("karate")
    pictures = np.ones((graph.num_nodes, SEEN), np.float32)
    nodes = NodeFusion(NodeInput(None, graph.num_nodes, 8), pictures, "sigmoid")
    inside = {id(p) for p in nodes.nodes.parameters()}
    assert {id(p) for p in nodes.added()} == {id(p) for p in nodes.parameters()} - inside
    for fused in (
        LinkFusion(base_of("gcn", graph, observed), standardised(), "channel"),
        MixtureOfScores(base_of("gcn", graph, observed), standardised()),
        Concatenation(base_of("gcn", graph, observed), standardised()),
    ):
        base: Any = fused.base
        inside = {id(p) for p in base.parameters()}
        assert {id(p) for p in fused.added()} == {id(p) for p in fused.parameters()} - inside


def test_a_batch_of_one_keeps_its_shape():
    graph, observed, pairs, seen = setting("karate")
    for model in (
        LinkFusion(base_of("ncnc", graph, observed), standardised(), "sigmoid"),
        VisionHead(standardised()),
        Concatenation(base_of("gcn", graph, observed), standardised()),
    ):
        assert scores(model.eval(), observed, pairs[:1], seen[:1]).shape == (1,)


# --- late fusion -------------------------------------------------------------------------------------------------


def test_late_fusion_finds_the_better_of_two_scores_whatever_its_scale():
    rng = np.random.default_rng(0)
    truth = np.repeat([1, 0], 400)
    good, noise = 1e-3 * (truth + 0.5 * rng.standard_normal(800)), 1e3 * rng.standard_normal(800)
    late = fit_late((good[:400], noise[:400]), (good[400:], noise[400:]))
    assert late.base * good.std() > 10 * abs(late.vision) * noise.std()
    fused = late(good, noise)
    assert np.corrcoef(fused, truth)[0, 1] > 0.98 * np.corrcoef(good, truth)[0, 1]
    assert ((fused > 0) == truth).mean() > 0.8


def test_late_fusion_takes_two_halves_of_the_truth_together():
    rng = np.random.default_rng(1)
    truth = np.repeat([1, 0], 2000)
    scores = [truth + rng.standard_normal(4000) for _ in range(2)]
    late = fit_late((scores[0][:2000], scores[1][:2000]), (scores[0][2000:], scores[1][2000:]))
    assert late.base == pytest.approx(late.vision, rel=0.15)
    assert late.base == pytest.approx(1, rel=0.15)  # the log-likelihood ratio of two unit Gaussians one apart


def test_a_score_that_would_count_the_wrong_way_round_does_not_count():
    rng = np.random.default_rng(2)
    good = np.array([3.0, 2, 1, 0, -1, -2])
    late = fit_late((good[:3], -good[:3] + rng.random(3)), (good[3:].reshape(1, 3), -good[3:].reshape(1, 3)))
    assert late.vision == 0
    assert late.base > 0
    assert fit_late((-good[:3], -good[:3]), (-good[3:], -good[3:])) == LateFusion(1, 0, 0)

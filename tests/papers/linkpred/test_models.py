"""Base models against dense algebra written out, and hidden edges that must not be seen."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from icml25cli.papers.linkpred.graph import adjacency
from icml25cli.papers.linkpred.models import DenseRows, HadamardModel, NodeInput, Sizes, ends_of
from icml25cli.papers.linkpred.ncn import Completion, NcnModel, NcnSizes
from icml25cli.papers.linkpred.propagation import Observed, collected, neighbours

N = 12


def edges_of(seed: int, m: int = 24) -> np.ndarray:
    pairs = np.sort(np.random.default_rng(seed).integers(N, size=(m, 2)), axis=1)
    return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)


def dense(edges: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(adjacency(edges, N).toarray())


seeds = st.integers(0, 2**32 - 1)


# --- propagation -------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_hiding_edges_is_a_graph_without_them(seed):
    edges = edges_of(seed)
    hidden = np.concatenate([edges[::3, ::-1], [[0, 0], [N - 1, 0]]])  # in either direction; others are ignored
    left = np.array([e for e in edges.tolist() if e not in edges[::3].tolist() and e != [0, N - 1]]).reshape(-1, 2)
    context, other = Observed(adjacency(edges, N)).without(hidden), Observed(adjacency(left, N)).everything
    x = torch.randn(N, 5, generator=torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(context.degrees, other.degrees)
    for name in ("normalised", "summed", "mean"):
        torch.testing.assert_close(getattr(context, name)(x), getattr(other, name)(x))


def test_normalised_propagation_is_the_equation():
    edges = edges_of(0)
    a = dense(edges) + torch.eye(N)
    half = torch.diag(a.sum(1) ** -0.5)
    x = torch.randn(N, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = Observed(adjacency(edges, N)).everything.normalised(x)
    torch.testing.assert_close(y, half @ a @ half @ x)
    weight = torch.randn(N, 3, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad((y * weight).sum(), x)
    torch.testing.assert_close(gradient, half @ a @ half @ weight)


def test_dropped_edges_are_dropped_both_ways_and_the_sum_stays():
    observed = Observed(adjacency(edges_of(1, 60), N))
    torch.manual_seed(0)
    drawn = [observed.dropped(observed.everything, 0.4).matrix for _ in range(400)]
    assert all((d != d.T).nnz == 0 for d in drawn)
    np.testing.assert_allclose(np.unique(drawn[0].data), [0, 1 / 0.6], rtol=1e-6)
    assert np.mean([d.sum() for d in drawn]) == pytest.approx(observed.pattern.sum(), rel=0.02)
    hidden = observed.without(edges_of(1, 60)[:5])
    assert ((observed.dropped(hidden, 0.4).entries > 0) <= (hidden.entries > 0)).all()


def test_observed_pairs_are_known_in_both_directions():
    observed = Observed(adjacency(np.array([[0, 1], [2, 5]]), N))
    assert observed.contains(np.array([[0, 1], [5, 2], [0, 2], [3, 3]])).tolist() == [True, True, False, False]


# --- neighbours --------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_neighbours_of_pairs_are_those_of_sets(seed):
    edges = edges_of(seed, 40)
    context = Observed(adjacency(edges, N)).without(edges[:4])
    around = [set(np.flatnonzero(row)) for row in context.matrix.toarray()]
    pairs = np.array([(u, v) for u in range(5) for v in range(5, 9)])
    found = neighbours(context, pairs, most=100)
    for i, (u, v) in enumerate(pairs.tolist()):
        assert set(found.common[found.common_start[i] : found.common_start[i + 1]]) == around[u] & around[v]
        mine = found.owner == i
        alone = {(v, w) for w in around[u] - around[v] - {v}} | {(u, w) for w in around[v] - around[u] - {u}}
        assert set(zip(found.end[mine].tolist(), found.node[mine].tolist(), strict=True)) == alone
    assert (found.weight == 1).all()


def test_a_sample_of_neighbours_stands_for_all():
    star = adjacency(np.array([(0, i) for i in range(2, 102)]), 102)
    context = Observed(star).everything
    draws = [neighbours(context, np.array([[0, 1]]), most=8, seed=seed) for seed in range(400)]
    assert all(len(d.node) == 8 and (d.end == 1).all() for d in draws)
    assert all(d.weight.sum() == pytest.approx(100) for d in draws)
    counts = np.bincount(np.concatenate([d.node for d in draws]), minlength=102)[2:]
    assert counts.min() > 10  # each is expected 32 times; with a standard deviation under 6
    assert counts.max() < 60


def test_collecting_sums_rows():
    x = torch.arange(8.0).reshape(4, 2).requires_grad_()
    y = collected(np.array([0, 2, 2, 3]), np.array([0, 3, 3]), np.array([1, 2, 0.5], np.float32), x)
    assert y.tolist() == [[12.0, 15.0], [0.0, 0.0], [3.0, 3.5]]
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0, 1.0], [0, 0], [0, 0], [2.5, 2.5]]


# --- models ------------------------------------------------------------------------------------------------------


def features(kind: str):
    x = np.random.default_rng(3).random((N, 7)).astype(np.float32)
    x[x < 0.5] = 0
    return {"dense": x, "sparse": sparse.csr_array(x), "none": None}[kind]


def hadamard(kind: str, layers: int = 2) -> tuple[Any, torch.Tensor]:
    torch.manual_seed(0)
    nodes = NodeInput(features("sparse"), N, 6)
    model = HadamardModel(kind, nodes, nodes.width, Sizes(6, layers, 2, 0.5)).eval()
    if kind == "gin":
        model.epsilon.data.uniform_(-0.5, 0.5)
    return model, torch.from_numpy(features("dense"))


def test_gcn_is_the_equation():
    edges = edges_of(0)
    model, x = hadamard("gcn")
    a = dense(edges) + torch.eye(N)
    a = torch.diag(a.sum(1) ** -0.5) @ a @ torch.diag(a.sum(1) ** -0.5)
    first, second = model.layers
    expected = a @ ((a @ (x @ first.weight.T) + first.bias).relu() @ second.weight.T) + second.bias
    torch.testing.assert_close(model.embed(Observed(adjacency(edges, N)).everything), expected)


def test_sage_is_the_equation():
    edges = edges_of(0)
    model, x = hadamard("sage")
    a = dense(edges)
    mean = a / a.sum(1, keepdim=True).clamp(min=1)
    for i in range(2):
        own, near = model.layers[i], model.of_neighbours[i].weight
        x = x @ own.weight.T + own.bias + mean @ x @ near.T
        x = x.relu() if i == 0 else x
    torch.testing.assert_close(model.embed(Observed(adjacency(edges, N)).everything), x)


def test_gin_is_the_equation():
    edges = edges_of(0)
    model, x = hadamard("gin")
    a = dense(edges)
    for i in range(2):
        summed = (1 + model.epsilon[i]) * x + a @ x
        x = model.after[i](model.layers[i](summed).relu())
        x = x.relu() if i == 0 else x
    torch.testing.assert_close(model.embed(Observed(adjacency(edges, N)).everything), x)


def test_the_decoder_does_not_know_the_order_of_a_pair():
    model, _ = hadamard("gcn")
    context = Observed(adjacency(edges_of(0), N)).everything
    h = model.embed(context)
    pairs = np.array([[0, 1], [4, 7]])
    torch.testing.assert_close(model.score(context, h, pairs), model.score(context, h, pairs[:, ::-1].copy()))
    u, v = ends_of(h, pairs)
    swapped = (2 * u, 2 * v)
    assert not torch.allclose(model.score(context, h, pairs, swapped), model.score(context, h, pairs))


def identity(width: int) -> torch.Tensor:
    return torch.eye(width)


@pytest.mark.parametrize("kind", ["dense", "sparse", "none"])
def test_what_nodes_bring(kind):
    nodes = NodeInput(features(kind), N, 5)
    x = nodes().product(identity(nodes.width))
    weight = torch.randn(3, nodes.width, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(nodes().product(weight), x @ weight.T)
    if kind == "none":
        torch.testing.assert_close(x.T @ x, torch.eye(5), atol=1e-5, rtol=0)
    if kind == "sparse":
        torch.testing.assert_close(x, torch.from_numpy(features("dense")))


def test_dense_columns_are_standardised_and_constant_ones_vanish():
    x = np.stack([np.arange(N), np.full(N, 7.0)], axis=1).astype(np.float32)
    found = NodeInput(x, N, 4)().product(identity(2))
    torch.testing.assert_close(found.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.std(0, correction=0), torch.tensor([1.0, 0.0]))


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_dropout_on_rows_keeps_their_mean(kind):
    x = torch.ones(400, 50)
    nodes = NodeInput(sparse.csr_array(x.numpy()), 400, 4)
    rows = nodes() if kind == "sparse" else DenseRows(x)
    torch.manual_seed(0)
    y = rows.product(torch.ones(1, 50), 0.7)
    assert y.mean().item() == pytest.approx(50, rel=0.03)
    assert y.std().item() == pytest.approx((50 * 0.7 / 0.3) ** 0.5, rel=0.15)


# --- common neighbours -------------------------------------------------------------------------------------------


def ncn(completion: Completion | None = None) -> tuple[NcnModel, Observed]:
    observed = Observed(adjacency(edges_of(2, 40), N))
    torch.manual_seed(1)
    nodes = NodeInput(features("sparse"), N, 6)
    return NcnModel(nodes, nodes.width, observed, NcnSizes(6), completion).eval(), observed


def plain_ncn(model: NcnModel, a: torch.Tensor, pairs: np.ndarray, weights: torch.Tensor | None = None):
    """The score by dense algebra; ``weights`` are those of every node for every pair."""
    n = dense_normalised(a)
    x = model.first(torch.from_numpy(features("dense")))
    h = model.jk[0] * n @ x + model.jk[1] * n @ n @ x
    wide = h + model.xlin(h)
    u, v = pairs.T
    common = a[u] * a[v] if weights is None else weights
    return model.lin(model.beta * model.xcnlin(common @ wide) + model.xijlin(h[u] * h[v])).squeeze(1)


def dense_normalised(a: torch.Tensor) -> torch.Tensor:
    a = a + torch.eye(N)
    return torch.diag(a.sum(1) ** -0.5) @ a @ torch.diag(a.sum(1) ** -0.5)


PAIRS = np.array([(u, v) for u in range(4) for v in range(u + 1, 9)])


def test_ncn_is_the_equation():
    model, observed = ncn()
    context = observed.everything
    found = model.score(context, model.embed(context), PAIRS)
    torch.testing.assert_close(found, plain_ncn(model, dense(edges_of(2, 40)), PAIRS))


def test_ncnc_adds_neighbours_of_one_end_by_how_likely_their_edge_is():
    completion = Completion(alpha=0.8, pt=0.6, scale=1.5, offset=0.1)
    model, observed = ncn(completion)
    a = dense(edges_of(2, 40))
    weights = torch.zeros(len(PAIRS), N)
    for i, (u, v) in enumerate(PAIRS.tolist()):
        for w in range(N):
            if a[u, w] and a[v, w]:
                weights[i, w] = 1
            elif w not in (u, v) and (a[u, w] or a[v, w]):
                other = v if a[u, w] else u
                likely = torch.sigmoid(1.5 * (plain_ncn(model, a, np.array([[other, w]])) - 0.1))
                weights[i, w] = (0.8 * 0.6 * likely / (0.6 * likely + 1 - likely)).item()
    context = observed.everything
    found = model.score(context, model.embed(context), PAIRS)
    torch.testing.assert_close(found, plain_ncn(model, a, PAIRS, weights))
    assert not torch.allclose(found, plain_ncn(model, a, PAIRS))


def test_an_edge_hidden_from_the_batch_is_no_common_neighbour_either():
    model, observed = ncn()
    edges = edges_of(2, 40)
    context = observed.without(edges[:8])
    left = torch.from_numpy(context.matrix.toarray())
    torch.testing.assert_close(model.score(context, model.embed(context), PAIRS), plain_ncn(model, left, PAIRS))


def test_training_drops_and_evaluation_does_not():
    model, observed = ncn()
    context = observed.everything
    evaluated = [model.score(context, model.embed(context), PAIRS) for _ in range(2)]
    torch.testing.assert_close(*evaluated, rtol=0, atol=0)
    model.train()
    torch.manual_seed(0)
    one, other = (model.score(context, model.embed(context), PAIRS) for _ in range(2))
    assert not torch.allclose(one, other)

"""The method: known answers, nested levels against the plain form, what training must leave, a known dictionary."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.embeddings import of_array
from icml25cli.core.errors import CheckFailed
from icml25cli.core.survey import survey
from icml25cli.papers.sae.batches import batches
from icml25cli.papers.sae.config import Budget, Config, auto_levels, learning_rate, level_weights
from icml25cli.papers.sae.methods import step
from icml25cli.papers.sae.metrics import decoder_orthogonality, evaluate
from icml25cli.papers.sae.model import Parameters, Scaling, SparseAutoencoder, geometric_median, initial
from icml25cli.papers.sae.nested import decode, gradients, split, topk_code
from icml25cli.papers.sae.probe import fit_probe
from icml25cli.papers.sae.stability import matched_cosines
from icml25cli.papers.sae.synthetic import dictionary, recovery
from icml25cli.papers.sae.training import Trainer, train


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- known answers -----------------------------------------------------------------------------------------------


def test_levels_and_weights():
    assert auto_levels(6144) == (64, 128, 256, 512, 1024, 2048, 4096, 6144)
    assert auto_levels(1000) == (64, 128, 256, 512, 1000)
    four = Config("msae", 8, 64, "rw", (4, 8, 16, 64))
    assert level_weights(four) == (0.4, 0.3, 0.2, 0.1)


def test_identity_keeps_the_largest():
    p = Parameters(torch.eye(4), torch.zeros(4), torch.eye(4), torch.zeros(4))
    model = SparseAutoencoder(Config("topk", 4, 4, k=2), p, Scaling(np.zeros(4), 1.0))
    x = np.array([[3, -1, 2, 0.5]], np.float32)
    for k, code, residual in ((2, [3, 0, 2, 0], 1.25), (4, [3, 0, 2, 0.5], 1.0)):
        z = topk_code(model.codes(x), k)
        assert z.tolist() == [code]
        shells = split(model.codes(x), (k,))
        assert float(np.square(x - model.decoded(decode(shells, p.W_dec)[-1])).sum()) == residual


def params(config: Config, seed: int = 0) -> Parameters:
    p = initial(config, torch.Generator().manual_seed(seed))
    return Parameters(p.W_enc * 8, randn(config.n, seed=1) * 0.1, p.W_dec, randn(config.d, seed=2) * 0.1, p.theta)


def test_one_level_is_topk():
    one, plain = Config("msae", 12, 48, levels=(5,)), Config("topk", 12, 48, k=5)
    a, b = step(one, params(one), randn(40, 12)), step(plain, params(one), randn(40, 12))
    assert a.loss == pytest.approx(b.loss, rel=1e-6)
    for name in a.gradients:
        torch.testing.assert_close(a.gradients[name], b.gradients[name], rtol=1e-4, atol=1e-7)


def test_two_levels_are_multi_topk(monkeypatch):
    # Gao and others: FVU(k) + FVU(4k)/8, here over 1 + 1/8.
    config = Config("msae", 12, 48, levels=(4, 16))
    monkeypatch.setattr("icml25cli.papers.sae.methods.level_weights", lambda _: (8 / 9, 1 / 9))
    p, x = params(config), randn(40, 12)
    pre = (x - p.b_pre) @ p.W_enc + p.b_enc
    small, large = (((topk_code(pre, k) @ p.W_dec + p.b_pre - x) ** 2).mean() for k in (4, 16))
    assert step(config, p, x).loss == pytest.approx(float((small + large / 8) / (1 + 1 / 8)), rel=1e-5)


def test_the_scaled_norm_is_the_root_of_d():
    x = 3 + 5 * np.random.default_rng(0).standard_normal((4000, 20)).astype(np.float32)
    for center in (True, False):
        scaled = Scaling.of(survey(of_array("x", x)), center).forward(x)
        assert float(scaled.square().sum(dim=1).mean()) == pytest.approx(20, rel=1e-4)


def test_rates_rise_for_few_steps():
    config = Config("msae", 8, 64, levels=(64,))
    assert learning_rate(config, Budget(), 5000) == 1e-4
    assert learning_rate(config, Budget(), 1000) == pytest.approx(1e-4 * 21**0.5)
    assert learning_rate(config, Budget(), 10) == 1e-3


def test_the_geometric_median_of_a_cross_is_its_middle():
    x = torch.tensor([[1.0, 0], [-1, 0], [0, 9], [0, -1]])
    torch.testing.assert_close(geometric_median(x), torch.zeros(2), atol=1e-3, rtol=0)


def test_orthogonality_counts_all_entries():
    W = torch.tensor([[1.0, 0], [0, 2], [1, 1]])
    cosines = torch.nn.functional.normalize(W) @ torch.nn.functional.normalize(W).T
    assert decoder_orthogonality(W) == pytest.approx(float((cosines - torch.eye(3)).square().mean()), abs=1e-6)


def test_matching_finds_a_shuffled_dictionary():
    W = randn(30, 8)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(matched_cosines(W, 3 * W[order]), 1, rtol=1e-5)


# --- nested levels -------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    levels=st.sets(st.integers(1, 24), min_size=1, max_size=6),
    share=st.sampled_from([0.0, 0.2, 1.1]),
    steps=st.sampled_from([0, 1, 4]),
)
def test_shells_are_the_plain_form(seed, levels, share, steps):
    """Loss and gradients of every level computed by itself; coarse values bring ties, which go to lower columns."""
    ks = sorted(levels)
    pre, W, x = randn(9, 24, seed=seed), randn(24, 5, seed=seed + 1), randn(9, 5, seed=seed + 2)
    if steps:
        pre = (pre * steps).round() / steps
    order = torch.argsort(pre, dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(24).expand(9, -1))
    leaf, weights = pre.clone().requires_grad_(), W.clone().requires_grad_()
    torch.stack([((leaf.relu() * (rank < k) @ weights - x) ** 2).sum() for k in ks]).sum().backward()

    shells = split(pre, ks, sparse_share=share)
    errors = decode(shells, W) - x
    for s, k in ((shells.level[i], k) for i, k in enumerate(ks)):
        torch.testing.assert_close(errors[s], pre.relu() * (rank < k) @ W - x, rtol=1e-4, atol=1e-5)
    errors *= 2 * torch.bincount(torch.tensor(shells.level), minlength=len(shells.ks))[:, None, None]
    for s in range(len(errors) - 2, -1, -1):
        errors[s] += errors[s + 1]
    dW = torch.zeros_like(W)
    torch.testing.assert_close(gradients(shells, errors, W, dW), leaf.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(dW, weights.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", ["mse", "nmse"])
@pytest.mark.parametrize("weights", ["uw", "rw"])
def test_the_written_gradient_is_autograds(loss, weights):
    config = Config("msae", 12, 48, weights, (2, 8, 48), loss=loss)
    p, x = params(config), randn(50, 12)
    by_torch = Config("msae", 12, 48, weights, (2, 8, 48), loss=loss, soft_cap=1e4)  # goes by autograd; caps nothing
    a, b = step(config, p, x), step(by_torch, p, x)
    assert a.loss == pytest.approx(b.loss, rel=1e-5)
    for name in a.gradients:
        torch.testing.assert_close(a.gradients[name], b.gradients[name], rtol=1e-3, atol=1e-6)


# --- training ------------------------------------------------------------------------------------------------------


def prepared(rows: int, **shape):
    made = dictionary(rows, **shape)
    x = of_array("synthetic", made.rows)
    return made, x, Scaling.of(survey(x))


@pytest.mark.parametrize("method", ["msae", "topk", "batchtopk", "relu", "jumprelu", "prefix-matryoshka"])
def test_decoder_rows_are_unit_after_every_step(method):
    _, x, scaling = prepared(600, d=8, n=16)
    config = Config(method, 8, 16, levels=(2, 4, 16) if method == "msae" else (), k=3)
    trainer = Trainer(config, Budget(batch=100, rate=1e-2), x, scaling)
    for rows in batches(x, 100, 0, 0):
        before = trainer.p.clone()
        with torch.no_grad():
            trainer.take(scaling.forward(rows))
        assert float((trainer.p.W_dec.norm(dim=1) - 1).abs().max()) < 1e-5
        assert not torch.equal(before.W_dec, trainer.p.W_dec)


def test_a_vanished_row_starts_again():
    _, x, scaling = prepared(600, d=8, n=16)
    trainer = Trainer(Config("topk", 8, 16, k=3), Budget(batch=100, rate=1e-12), x, scaling)
    trainer.p.W_dec[3] = 0
    with torch.no_grad():
        trainer.take(scaling.forward(x[:100]))
    assert trainer.state.renewed == 1
    assert float((trainer.p.W_dec.norm(dim=1) - 1).abs().max()) < 1e-5


def test_every_row_comes_once_an_epoch(monkeypatch):
    monkeypatch.setattr("icml25cli.papers.sae.batches.BLOCK_ROWS", 30)
    x = of_array("x", np.arange(100, dtype=np.float32)[:, None])
    first, again, other = (list(batches(x, 16, 0, epoch)) for epoch in (0, 0, 1))
    assert [len(batch) for batch in first] == [16] * 6 + [4]
    assert sorted(np.concatenate(first)[:, 0]) == list(range(100))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_a_loss_that_is_no_number_ends_after_three_returns(monkeypatch):
    _, x, scaling = prepared(600, d=8, n=16)
    found = step

    def broken(config, p, rows):
        done = found(config, p, rows)
        return type(done)(float("nan"), done.gradients, done.active)

    monkeypatch.setattr("icml25cli.papers.sae.training.step", broken)
    with (
        pytest.warns(UserWarning, match="half the rate"),
        pytest.raises(CheckFailed, match="an eighth of the rate"),
    ):
        train(Config("topk", 8, 16, k=3), Budget(2, 100), x, scaling)


def test_batchtopk_codes_do_not_depend_on_other_rows():
    made, x, scaling = prepared(2000, d=8, n=16)
    model = train(Config("batchtopk", 8, 16, k=3), Budget(8, 200, 2e-3), x, scaling).model
    alone = torch.cat([model.codes(row[None], full=False) for row in made.rows[:50]])
    torch.testing.assert_close(model.codes(made.rows[:50], full=False), alone, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.codes(made.rows[25:90], full=False)[:25], alone[25:], rtol=1e-5, atol=1e-6)
    assert 1 < float((alone > 0).sum(dim=1).float().mean()) < 6


def test_a_known_dictionary_is_recovered():
    made = dictionary(20_000)
    x, held_out = of_array("rows", made.rows[1000:]), of_array("held out", made.rows[:1000])
    scaling = Scaling.of(survey(x))
    config = Config("msae", 32, 64, "rw", (2, 4, 8, 16, 32, 64))
    model = train(config, Budget(60, 1024, 2e-3), x, scaling).model
    assert recovery(model.parameters.W_dec.numpy(), made.atoms) >= 0.90
    fvu = [quality.fvu for quality in evaluate(model, held_out, (2, 3, 4, 8, 16, 64))]
    assert fvu[2] <= 0.13
    assert fvu == sorted(fvu, reverse=True)


def test_a_probe_that_learnt_nothing_is_said():
    x = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    rare = (np.arange(200) % 20 == 0).astype(int)
    with pytest.warns(UserWarning, match="the probe hardly knows the label"):
        fit_probe(x, rare, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_probe(np.repeat(x, 20, 0), (np.repeat(x, 20, 0)[:, 0] > 0).astype(int), 0)

"""The recipe of the built-in network: interrupted and whole runs agree, the rate falls on request, it learns."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from icml25cli.core.errors import InputError
from icml25cli.papers.tabpfn_bag import pretraining
from icml25cli.papers.tabpfn_bag.network import NanoPfn, PfnConfig
from icml25cli.papers.tabpfn_bag.pretraining import Plan, loss_of, optimizers, rate_at, training_loss, validation
from icml25cli.papers.tabpfn_bag.prior import UNKNOWN, Tables, draw_tables
from icml25cli.papers.tabpfn_bag.weights import load_pfn

SMALL = PfnConfig(width=16, heads=2, layers=2, hidden=32)
# The smallest that still is a training.
PLAN = Plan(
    SMALL,
    stages=((3, 72, 512), (math.inf, 96, 512)),
    validation=(1, 6, 48, 30),
    log_every=4,
    validate_every=4,
    keep_every=4,
)


@pytest.fixture
def train(monkeypatch):
    monkeypatch.setattr(pretraining, "WARMUP", 2)

    def run(work: Path, plan: Plan = PLAN, **asked: Any) -> dict:
        pretraining.pretrain(work, plan, **asked)
        name = f"decay-{asked['decay_from']}.pt" if "decay_from" in asked else "checkpoint.pt"
        return torch.load(work / name, weights_only=True)

    return run


def assert_equal(first: dict, second: dict) -> None:
    assert first["step"] == second["step"]
    for part in ("model", "average"):
        for name, weight in first[part].items():
            assert torch.equal(weight, second[part][name]), name
    for ours, theirs in zip(first["optimizer"], second["optimizer"], strict=True):
        for key, state in ours["state"].items():
            assert all(
                torch.equal(torch.as_tensor(v), torch.as_tensor(theirs["state"][key][k])) for k, v in state.items()
            )
    for ours, theirs in zip(first["log"]["steps"], second["log"]["steps"], strict=True):
        assert ours == theirs


def test_an_interrupted_run_equals_an_unbroken_one(train, tmp_path):
    whole = train(tmp_path / "whole", until=8)
    for until in (3, 6, 8):
        parts = train(tmp_path / "parts", until=until)
    assert_equal(whole, parts)
    start = train(tmp_path / "start", until=4)
    assert any(not torch.equal(weight, start["model"][name]) for name, weight in whole["model"].items())
    assert whole["log"]["rows"] > 0


def test_the_rate_falls_on_request_and_the_trunk_goes_on_as_if_it_had_not(train, tmp_path):
    whole = train(tmp_path / "whole", until=8)
    train(tmp_path / "work", until=4)
    train(tmp_path / "work", decay_from=4, decay_steps=4, until=6)
    assert not (tmp_path / "work" / "network").exists()
    decayed = train(tmp_path / "work", decay_from=4, decay_steps=4)
    assert decayed["step"] == 8
    assert decayed["log"]["steps"][-1]["rate"] == pytest.approx(0.02 * 2e-3)
    net = load_pfn(tmp_path / "work" / "network")
    for name, weight in net.state_dict().items():
        assert torch.equal(weight, decayed["average"][name].half().float())
    assert_equal(whole, train(tmp_path / "work", until=8))


def test_a_run_with_other_settings_is_not_continued(train, tmp_path):
    train(tmp_path, until=1)
    for other in (replace(PLAN, rate=1e-4), replace(PLAN, config=replace(SMALL, layers=3))):
        with pytest.raises(InputError, match="other settings"):
            train(tmp_path, other, until=2)
    with pytest.raises(InputError, match="is not there"):
        train(tmp_path, decay_from=4)


def test_the_rate(monkeypatch):
    monkeypatch.setattr(pretraining, "WARMUP", 100)
    assert rate_at(0, None, 1) == pytest.approx(0.01)
    assert rate_at(99, None, 1) == rate_at(10**6, None, 1) == 1
    assert rate_at(999, 1000, 500) == 1
    assert rate_at(1249, 1000, 500) == pytest.approx(0.51)
    assert rate_at(1499, 1000, 500) == pytest.approx(0.02)
    assert rate_at(1600, 1000, 500) == pytest.approx(0.02)


def test_tables_of_a_step_are_within_its_stage():
    for step in range(40):
        tables = PLAN.tables(step)
        rows = tables.labels.shape[1]
        assert 64 <= rows <= (72 if step < 3 else 96)
        assert 0.4 * rows - 1 <= tables.context <= 0.9 * rows
        assert len(tables.labels) <= 512 // rows


def test_the_loss_counts_the_queries_that_can_be_answered_over_the_classes_in_use():
    labels = torch.tensor([[0, 1, 1, 0, UNKNOWN], [2, 0, 1, 2, 0]])
    tables = Tables(torch.empty(0), labels, torch.tensor([2, 3]), 3)
    logits = torch.zeros(2, 2, 10)
    logits[:, :, 5] = 50.0  # a class of neither table
    # two classes once, three classes twice
    assert loss_of(logits, tables).item() == pytest.approx((math.log(2) + 2 * math.log(3)) / 3)


def test_validation_draws_are_the_same_at_every_evaluation_and_none_is_trained_on(monkeypatch):
    seeds = []

    def recorded(rng, *sizes):
        seeds.append(tuple(rng.bit_generator.seed_seq.entropy))
        return draw_tables(rng, *sizes)

    monkeypatch.setattr(pretraining, "draw_tables", recorded)
    plan = replace(PLAN, validation=(3, 4, 48, 30))
    net = NanoPfn(SMALL)
    figures = [validation(net, dict(net.named_parameters()), plan) for _ in range(2)]
    assert figures[0] == figures[1]
    held_out = set(seeds)
    assert len(held_out) == 3
    for step in range(20):
        PLAN.tables(step)
    assert len(set(seeds)) == 23


def test_half_precision_gives_the_loss_and_nearly_the_gradient():
    torch.manual_seed(0)
    net = NanoPfn(SMALL)
    for weight in net.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    tables = PLAN.tables(0)
    n = tables.context
    exact = loss_of(net(tables.rows[:, :n], tables.labels[:, :n], tables.rows[:, n:]), tables)
    gradients = torch.autograd.grad(exact, list(net.parameters()))
    loss = training_loss(net, tables)
    loss.backward()
    assert loss.item() == pytest.approx(exact.item(), rel=0.01)
    ours = torch.cat([weight.grad.flatten() for weight in net.parameters() if weight.grad is not None])
    theirs = torch.cat([gradient.flatten() for gradient in gradients])
    assert torch.nn.functional.cosine_similarity(ours, theirs, dim=0) > 0.99


@pytest.mark.slow
def test_it_learns_the_prior():
    """Some hundred steps of a small network beat guessing by class frequencies on tables that it has not seen."""
    torch.manual_seed(0)
    plan = Plan(stages=((math.inf, 128, 2048),), validation=(2, 32, 128, 80))
    net = NanoPfn(PfnConfig(width=64, heads=2, layers=3, hidden=128))
    steps = optimizers(net, 2e-3, 0.01)
    for step in range(400):
        training_loss(net, plan.tables(step)).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for each in steps:
            each.step()
            each.zero_grad()
    figures = validation(net, dict(net.named_parameters()), plan)
    assert figures["validation"] < figures["guessing"] - 0.05

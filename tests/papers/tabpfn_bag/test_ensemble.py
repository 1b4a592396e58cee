"""Prediction: contexts are encoded once, answers of tasks become probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from icml25cli.papers.tabpfn_bag.codes import binary_code
from icml25cli.papers.tabpfn_bag.contexts import Tasks, coded_tasks, plain_tasks
from icml25cli.papers.tabpfn_bag.encoders import Rows
from icml25cli.papers.tabpfn_bag.ensemble import Ensemble, probabilities, task_losses, weights_by_loss
from icml25cli.papers.tabpfn_bag.finetune import draw_contexts
from icml25cli.papers.tabpfn_bag.learners import RawPaths

from .nets import small_net


def ensemble(paths: int = 3, n: int = 60) -> tuple[Ensemble, Rows]:
    source = torch.Generator().manual_seed(0)
    rows = Rows(torch.randn(n, 5, generator=source), torch.empty(n, 0, dtype=torch.long))
    labels = np.arange(n) % 3
    net = small_net()
    contexts = draw_contexts(labels, paths, 40, np.random.default_rng(0))
    made = Ensemble(net, RawPaths(rows, paths, net.config.columns), plain_tasks(3, paths), rows, labels, contexts)
    return made, Rows(torch.randn(50, 5, generator=source), torch.empty(50, 0, dtype=torch.long))


def test_contexts_are_encoded_once_for_all_chunks(monkeypatch):
    made, queries = ensemble()
    calls = []
    encode = made.net.encode
    monkeypatch.setattr(made.net, "encode", lambda *args: calls.append(1) or encode(*args))
    chunks = np.concatenate([made(queries.take(slice(start, start + 7))) for start in range(0, 50, 7)])
    assert len(calls) == 1
    fresh, _ = ensemble()
    np.testing.assert_allclose(chunks, fresh(queries), atol=1e-6)


def test_rotated_classes_are_turned_back():
    made, queries = ensemble()
    turned = Ensemble(
        made.net, made.paths, plain_tasks(3, 3, rotate=True), made.rows, made.labels, made.contexts, "prob"
    )
    scores = turned.task_scores(queries)
    assert scores.shape == (3, 50, 3)
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(3, 50))
    np.testing.assert_allclose(turned(queries), scores.double().exp().mean(0).numpy(), atol=1e-6)


def test_averages_by_hand():
    p = np.array([[[0.9, 0.1]], [[0.4, 0.6]]])
    scores, tasks = torch.from_numpy(p).log(), plain_tasks(2, 2)
    assert probabilities(scores, tasks, "prob")[0, 0] == pytest.approx(0.65)
    odds = np.sqrt(0.9 * 0.4 / (0.1 * 0.6))
    assert probabilities(scores, tasks)[0, 0] == pytest.approx(odds / (1 + odds))
    assert probabilities(scores, tasks, "weighted", np.array([1.0, 0.0]))[0, 0] == pytest.approx(0.9)
    losses = task_losses(scores, np.array([0]))
    assert losses == pytest.approx([-np.log(0.9), -np.log(0.4)])
    weights = weights_by_loss(losses)
    assert weights.sum() == pytest.approx(1)
    assert weights[0] > 0.99


def test_symbols_of_a_code_spell_the_class_and_repeating_them_does_not_make_it_surer():
    code = binary_code(12, 16)
    tasks = coded_tasks(code, 4)
    right = np.array([3, 7])
    bits = code.matrix[right].T  # [columns, queries]
    sure = np.where(code.matrix.T[:, None] == bits[..., None], 0.8, 0.2)
    scores = torch.from_numpy(np.log(sure))
    p = probabilities(scores, tasks)
    assert p.argmax(1).tolist() == right.tolist()
    path, symbols = (np.concatenate([part, part]) for part in (tasks.path, tasks.symbols))
    twice = Tasks(path, symbols, np.arange(32), 2)
    np.testing.assert_allclose(probabilities(scores.repeat(2, 1, 1), twice), p, atol=1e-12)
    assert twice.redundancy() == 2 * tasks.redundancy()
    assert plain_tasks(5, 3).redundancy() == 1

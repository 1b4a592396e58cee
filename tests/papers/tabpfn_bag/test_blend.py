"""Powers of blended answers: known minima, what few rows may decide, and who is left out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss

from icml25cli.papers.tabpfn_bag import blend as module
from icml25cli.papers.tabpfn_bag.blend import best_powers, blend, pooled

from .test_ensemble import ensemble


def answers(n: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """True probabilities of three classes, and classes drawn from them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), n)
    return p, (p.cumsum(1) < rng.random((n, 1))).sum(1)


def test_a_temperature_is_found_again(monkeypatch):
    monkeypatch.setattr(module, "CAUTION", 0.0)
    p, y = answers()
    flat = pooled([p], (0.5,))
    (power,) = best_powers([flat], y, (1.0,))
    assert power == pytest.approx(2, abs=0.1)
    assert best_powers([p], y, (1.0,))[0] == pytest.approx(1, abs=0.06)


def test_powers_are_where_no_other_are_better(monkeypatch):
    monkeypatch.setattr(module, "CAUTION", 0.0)
    p, y = answers(400)
    rng = np.random.default_rng(1)
    noisy = [pooled([p, rng.dirichlet(np.ones(3), len(p))], (0.7, 0.5)) for _ in range(2)]
    found = best_powers(noisy, y, (0.0, 1.0))
    least = log_loss(y, pooled(noisy, found))
    for change in np.array([[1, 0], [0, 1], [-1, 0], [0, -1], [1, -1], [-1, 1]]) * 0.05:
        assert log_loss(y, pooled(noisy, np.maximum(np.array(found) + change, 0))) >= least


def test_few_rows_decide_little_and_many_decide_all():
    p, y = answers()
    useless = np.full_like(p, 1 / 3)
    assert best_powers([p[:3], useless[:3]], y[:3], (0.0, 1.0))[0] < 0.3
    assert best_powers([p, useless], y, (0.0, 1.0))[0] > 0.9


def test_what_is_sure_and_wrong_costs_no_infinity():
    p = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    powers = best_powers([p], np.array([1, 1, 0]), (1.0,))
    assert 0 <= powers[0] < 0.2
    assert np.isfinite(pooled([p], powers)).all()


def test_who_does_not_count_is_not_asked():
    made, queries = ensemble()
    other, _ = ensemble()
    assert blend([made, other], (0.0, 1.0)).members == (other,)
    np.testing.assert_allclose(blend([made], (1.0,))(queries), made(queries), atol=1e-12)
    np.testing.assert_allclose(blend([made, other], (0.5, 0.5))(queries), made(queries), atol=1e-6)
    told: list[int] = []
    blend([made, other], (0.5, 0.5))(queries, told.append)
    assert sum(told) == len(queries)

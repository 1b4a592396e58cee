"""Neighbours and CKNNA: known answers of a fixed pair of matrices."""

import numpy as np
import pytest

from icml25cli.core.neighbours import cknna, nearest, unit_rows


def pair():
    i, j, k = np.arange(96.0)[:, None], np.arange(20.0)[None], np.arange(14.0)[None]
    a = np.sin(0.7 * i + 1.3 * j + 0.05 * i * j) + 0.3 * np.cos(0.11 * i**2 + j)
    m = np.cos(0.9 * j.T * (k + 1) + 0.2 * k)
    return a, np.tanh(a @ m / np.sqrt(20)) + 0.4 * np.sin(2.3 * i + 0.7 * k**2)


def test_known_answers():
    a, b = (nearest(x, 10) for x in pair())
    assert cknna(a, b) == pytest.approx(0.288310, abs=1e-4)
    assert cknna(b, a) == pytest.approx(0.289569, abs=1e-4)
    shared = np.mean([len(set(p) & set(q)) / 10 for p, q in zip(a.index, b.index, strict=True)])
    assert shared == pytest.approx(0.283333, abs=1e-6)


def test_a_representation_agrees_with_itself_and_its_turned_copy():
    a, _ = pair()
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 20)))[0]
    assert cknna(nearest(a, 10), nearest(a @ turn, 10)) == pytest.approx(1, abs=1e-4)


def test_blocks_do_not_show():
    x = np.random.default_rng(0).standard_normal((1500, 8))
    products = x.astype(np.float32) @ x.astype(np.float32).T
    np.fill_diagonal(products, -np.inf)
    np.testing.assert_array_equal(nearest(x, 3).index, np.argsort(-products, axis=1)[:, :3])


def test_of_equal_neighbours_the_first_comes_first():
    x = np.tile(np.eye(3), (1500, 1))
    found = nearest(x, 2).index
    assert found[:7].tolist() == [[3, 6], [4, 7], [5, 8], [0, 6], [1, 7], [2, 8], [0, 3]]


def test_rows_of_zeros_stay_so():
    np.testing.assert_array_equal(
        unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])), np.array([[0.6, 0.8], [0, 0]], np.float32)
    )


def test_as_many_neighbours_as_rows_are_refused():
    with pytest.raises(ValueError, match="3 rows have no 3 neighbours"):
        nearest(np.eye(3), 3)

"""Neighbours by an index of faiss beside the exact ones. All but one need faiss, and skip without it."""

from typing import get_args

import numpy as np
import pytest

from icml25cli.core.embeddings import of_array
from icml25cli.papers.align.indexes import RECALL, Index, _unlike_itself
from icml25cli.papers.align.lists import neighbour_lists
from icml25cli.papers.align.overlap import mutual
from icml25cli.papers.align.prepared import Prepared, prepare

KINDS = [kind for kind in get_args(Index) if kind != "exact"]
ROWS, K = 3000, 10


def test_a_row_is_not_its_own_neighbour():
    own = np.array([5, 6])
    products = np.array([[9, 8, 8, 1], [9, 8, 7, 2]], np.float32)
    index = np.array([[5, 4, 3, 2], [1, 2, 3, 4]])  # of the second row the index did not find itself
    found = _unlike_itself(own, products, index, 3)
    assert found.index.tolist() == [[3, 4, 2], [1, 2, 3]]
    assert found.product.tolist() == [[8, 8, 1], [9, 8, 7]]


def pair() -> tuple[Prepared, Prepared]:
    rng = np.random.default_rng(0)
    z = rng.standard_normal((ROWS, 12))
    sides = [z @ rng.standard_normal((12, d)) + 0.3 * rng.standard_normal((ROWS, d)) for d in (24, 16)]
    return prepare(of_array("a", sides[0])), prepare(of_array("b", sides[1]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drawn", [False, True], ids=["all", "drawn"])
def test_an_index_agrees_with_exact_neighbours(kind, drawn):
    pytest.importorskip("faiss")
    of = np.sort(np.random.default_rng(1).choice(ROWS, 500, replace=False)) if drawn else None
    exact, found = ([neighbour_lists(side, K, of, index) for side in pair()] for index in ("exact", kind))
    for true, given in zip(exact, found, strict=True):
        assert given.recall is not None
        recall = np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(true.index, given.index, strict=True)])
        assert recall == pytest.approx(given.recall, abs=0.03)
        assert recall > RECALL - 0.03
        assert not (given.index == given.of[:, None]).any()
        assert (np.diff(given.product, axis=1) <= 0).all()
        if kind == "faiss-flat":
            assert given.recall == 1
            np.testing.assert_allclose(given.product, true.product, atol=1e-5)
    value, wanted = (mutual(a.index, b.index, ROWS).mean() for a, b in (found, exact))
    assert value == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_lists_are_whole_where_an_index_comes_short(kind, monkeypatch):
    """Cells smaller than a list, most rows alike: what the index leaves open is sought exactly."""
    pytest.importorskip("faiss")
    monkeypatch.setattr("icml25cli.papers.align.indexes.RECALL", 0.0)  # so that an index is let come short
    x = np.random.default_rng(0).standard_normal((400, 8))
    x[100:] = x[0]
    found = neighbour_lists(prepare(of_array("x", x)), 120, index=kind)
    assert found.index.min() >= 0
    assert all(len(set(row)) == 120 for row in found.index.tolist())
    assert not (found.index == found.of[:, None]).any()

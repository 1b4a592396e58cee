"""Codes: distances reached, forgiveness of wrong symbols, balance."""

from __future__ import annotations

import numpy as np
import pytest

from icml25cli.core.errors import UsageError
from icml25cli.papers.tabpfn_bag.codes import alphabet_code, binary_code, binary_length


@pytest.mark.parametrize(
    ("classes", "length", "least"),
    [(26, 16, 4), (26, 19, 6), (26, 20, 6), (26, 24, 8), (11, 16, 6), (19, 17, 6), (100, 27, 6)],
)
def test_distances_reach_what_random_codes_do(classes, length, least):
    code = binary_code(classes, length)
    assert code.matrix.shape == (classes, length)
    assert code.distance >= least
    assert (code.matrix.sum(0) == classes // 2).all()
    sign = 2 * code.matrix - 1
    assert np.abs(sign.T @ sign - np.diag(np.full(length, classes))).max() < classes  # no twins, no complements


def test_wrong_symbols_up_to_half_the_distance_are_forgiven():
    code = binary_code(26, 20)
    rng = np.random.default_rng(0)
    flips = (code.distance - 1) // 2
    words = np.repeat(code.matrix, 20, 0)
    for word in words:
        word[rng.choice(20, flips, replace=False)] ^= 1
    assert (code.nearest(words, np.zeros((len(words), 26))) == np.repeat(np.arange(26), 20)).all()


def test_a_code_that_is_too_close_grows():
    code = binary_code(11, 5)
    assert code.distance >= 3
    assert code.matrix.shape[1] > 5


def test_hundreds_of_classes_have_a_code_that_is_asked_for_once():
    code = alphabet_code(300, 6, 12)
    differ = (code.matrix[:, None] != code.matrix).sum(2)
    assert code.distance == differ[np.triu_indices(300, 1)].min() >= 5
    assert alphabet_code(300, 6, 12) is code
    with pytest.raises(ValueError, match="read-only"):
        code.matrix[0, 0] = 1


def test_length_and_alphabet():
    assert binary_length(26, 8) == 19
    code = alphabet_code(26, 10, 8)
    assert code.matrix.max() == 9
    assert code.distance >= 3
    assert np.bincount(code.matrix[:, 0]).max() == 3
    assert alphabet_code(26, 6, 19).distance >= 12  # of bits it is 6
    assert alphabet_code(26, 6, 1).matrix.shape[1] == 2


def test_few_classes_have_no_code():
    with pytest.raises(UsageError, match="2 classes"):
        binary_code(2, 8)

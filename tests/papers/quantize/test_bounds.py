"""Bounds against published digits and the conditions that define them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icml25cli.papers.quantize.bounds import critical_rate, distortion_bound, matmul_bound


def test_critical_rate_to_six_digits():
    assert critical_rate() == pytest.approx(0.906324, abs=5e-7)
    assert matmul_bound(critical_rate()) == pytest.approx(0.488300, abs=5e-7)


@pytest.mark.parametrize(("rate", "bound"), [(0, 1), (1, 0.4375), (2, 0.121094), (3, 0.031006), (4, 0.00779724)])
def test_matmul_bound_known_answers(rate, bound):
    assert matmul_bound(rate) == pytest.approx(bound, abs=5e-7)


def test_four_bits_of_a_gaussian():
    assert distortion_bound(4) == 1 / 256


@given(st.floats(0, 8), st.floats(0, 8))
def test_the_matmul_bound_is_convex_and_falls(a, b):
    low, high = sorted((a, b))
    assert matmul_bound(high) <= matmul_bound(low) + 1e-15
    assert matmul_bound((a + b) / 2) <= (matmul_bound(a) + matmul_bound(b)) / 2 + 1e-12

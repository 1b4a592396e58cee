"""The lattice against closed forms, its 2400 Voronoi inequalities, and its own algebra."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from icml25cli.papers.quantize.lattice import TIE_OFFSET, from_coordinates, nearest_point, to_coordinates

HALF = (0.5,) * 8


@pytest.fixture(scope="module")
def short_vectors():
    """All lattice vectors of squared norm 2 (240) and 4 (2160), by enumeration."""
    whole = np.array(list(product((-1, 0, 1), repeat=8)), np.int8)
    whole = np.concatenate([whole, 2 * np.eye(8, dtype=np.int8), -2 * np.eye(8, dtype=np.int8)])
    halves = np.array(list(product((-1.5, -0.5, 0.5, 1.5), repeat=8)))
    both = np.concatenate([whole.astype(float), halves[(halves**2).sum(1) <= 4]])
    both = both[both.sum(1) % 2 == 0]
    return both[np.isin((both**2).sum(1), (2, 4))]


def test_there_are_240_minimal_and_2160_next_vectors(short_vectors):
    norms, counts = np.unique((short_vectors**2).sum(1), return_counts=True)
    assert dict(zip(norms, counts, strict=True)) == {2: 240, 4: 2160}


@pytest.mark.parametrize(
    ("x", "point", "distance"),
    [
        ((0.1,) * 8, (0,) * 8, 0.08),
        ((0.4,) * 8, HALF, 0.08),
        ((0.9, 0.2, 0, 0, 0, 0, 0, 0), (1, 1, 0, 0, 0, 0, 0, 0), 0.65),
        ((0.3, -1.2, 2.7, 0.05, -0.6, 1.5, 0.9, -2.2), (0, -1, 3, 0, -1, 2, 1, -2), 0.6825),
    ],
)
def test_nearest_point_known_answers(x, point, distance):
    found = nearest_point(np.array(x))
    np.testing.assert_array_equal(found, point)
    assert ((x - found) ** 2).sum() == pytest.approx(distance, abs=1e-12)


def test_a_deep_hole_is_at_distance_one_and_a_shallow_one_at_eight_ninths():
    deep, shallow = np.eye(8)[0], np.array([5 / 6] + [1 / 6] * 7)
    assert ((deep - nearest_point(deep)) ** 2).sum() == 1
    assert ((shallow - nearest_point(shallow)) ** 2).sum() == pytest.approx(8 / 9, abs=1e-12)


def test_second_moment_is_929_over_12960():
    rng = np.random.default_rng(0)
    total = 0.0
    for _ in range(8):  # [0, 2)⁸ is a period of E8: its mean error is the second moment, with no edges
        x = rng.uniform(0, 2, (125_000, 8))
        total += ((x - nearest_point(x)) ** 2).mean() / 8
    assert total == pytest.approx(929 / 12960, rel=3e-3)
    assert 10 * np.log10(1 / 12 / total) == pytest.approx(0.654, abs=0.013)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_lattice_point_is_nearer(short_vectors, dtype):
    x = np.random.default_rng(1).normal(0, 3, (20_000, 8)).astype(dtype)
    rest = (x - nearest_point(x)).astype(float)
    # x is nearest to 0 among all points exactly if 2<x, v> <= |v|² for the 2400 relevant and norm-4 vectors.
    assert (2 * rest @ short_vectors.T - (short_vectors**2).sum(1)).max() <= 1e-5


points = arrays(np.float64, (5, 8), elements=st.floats(-100, 100, width=32))


@given(points)
def test_the_nearest_point_is_in_the_lattice_and_is_its_own_nearest_point(x):
    t = nearest_point(x)
    assert np.all((t == np.floor(t)).all(1) | (t - 0.5 == np.floor(t)).all(1))
    assert np.all(t.sum(1) % 2 == 0)
    np.testing.assert_array_equal(nearest_point(t), t)


@given(points, st.sampled_from([2.0, 4.0, 16.0, 0.5]))
def test_scaling_the_lattice_is_scaling_the_point(x, scale):
    np.testing.assert_array_equal(nearest_point(x * scale, scale), nearest_point(x) * scale)


@given(points)
def test_coordinates_and_points_are_inverse(x):
    t = nearest_point(x)
    c = to_coordinates(t)
    np.testing.assert_array_equal(c, np.rint(c))
    np.testing.assert_array_equal(from_coordinates(c), t)


def test_the_generator_has_the_authors_columns_and_determinant_one():
    G = from_coordinates(np.eye(8)).T
    np.testing.assert_array_equal(G[:, 0], 2 * np.eye(8)[0])
    np.testing.assert_array_equal(G[:, 3], np.eye(8)[3] - np.eye(8)[2])
    np.testing.assert_array_equal(G[:, 7], HALF)
    assert np.linalg.det(G) == pytest.approx(1)


def test_the_tie_offset_leaves_no_boundary_undecided(short_vectors):
    assert np.abs(short_vectors @ TIE_OFFSET.astype(float)).min() >= 0.000488

"""The compiled code: exhaustive small cases, published distortions, and bit equality with the plain form."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize.lattice import nearest_point, union_encode, voronoi_decode, voronoi_encode
from icml25cli.papers.quantize.voronoi import LatticeCode, beta_entropy

WEIGHTS = (4.0, 5.5, 7.0, 18.0)
ACTIVATIONS = (3.47, 4.74, 6.90, 18.11)
KEYS = (3.50, 4.58, 6.47, 17.06)
VALUES = (3.53, 5.59, 9.62, 29.03)
GAUSSIAN = (3.5, 4.25, 5.25, 8.0)
TWO = (4.375, 7.75)
SIX = (2.75, 3.375, 3.875, 4.5, 5.375, 8.5)


def code_of(q, beta_q, **how):
    return LatticeCode(q, tuple(b / q for b in beta_q), **how)


@pytest.fixture(scope="module")
def normal_blocks():
    return np.random.default_rng(0).standard_normal((1 << 18, 8), dtype=np.float32)


HISTOGRAMS = {
    2: {0: 1, 2: 120, 4: 135},
    3: {0: 1, 2: 240, 4: 2160, 6: 2240, 8: 1920},
    4: {0: 1, 2: 240, 4: 2160, 6: 6720, 8: 17400, 10: 15120, 12: 15120, 14: 8640, 16: 135},
}


def all_points(code):
    """Every codeword at scale 1, after a look that each comes back as it went in."""
    digits = np.array(list(product(range(code.q), repeat=8)), np.uint8)
    points = code.decode(digits, np.zeros(len(digits), np.uint8))
    done = code.quantize(points)
    np.testing.assert_array_equal(done.digits, digits)
    np.testing.assert_array_equal(done.values, points)
    assert not done.overloaded.any()
    assert len(np.unique(points, axis=0)) == code.q**8
    return points


@pytest.mark.parametrize("q", [2, 3, 4])
def test_every_codeword_of_a_small_simplified_code(q):
    points = all_points(LatticeCode(q, (1.0,), simplified=True))
    exact = all_points(LatticeCode(q, (1.0,)))
    # The same classes modulo q·E8, some of them by a longer representative: the cell is not the nearest one.
    assert (points**2).sum() > (exact**2).sum()
    difference = nearest_point((points - exact) / q)
    np.testing.assert_allclose(difference * q, points - exact, atol=1e-6)


@pytest.mark.parametrize("q", [2, 3, 4])
def test_every_codeword_of_a_small_code(q):
    points = all_points(LatticeCode(q, (1.0,)))
    norms, counts = np.unique((points**2).sum(1), return_counts=True)
    assert dict(zip(norms, counts, strict=True)) == HISTOGRAMS[q]


def test_the_worked_block():
    x = 1.7 * np.sin(1 + np.arange(8, dtype=np.float32))[None]
    done = code_of(14, ACTIVATIONS).quantize(x)
    assert done.beta_index.tolist() == [1]
    assert done.digits.tolist() == [[0, 0, 0, 4, 12, 7, 13, 9]]
    assert ((x - done.values) ** 2).sum() == pytest.approx(0.066613, abs=1e-6)


@pytest.mark.parametrize(
    ("q", "beta_q", "how", "distortion", "raw", "entropy"),
    [
        (14, ACTIVATIONS, {}, 0.00646, 4.0574, 3.965),
        (14, GAUSSIAN, {}, 0.00596, 4.0574, 4.001),
        (14, TWO, {}, 0.00873, 3.9324, 3.873),
        (14, SIX, {}, 0.00519, 4.1305, 4.101),
        (13, GAUSSIAN, {}, 0.00691, 3.9504, 3.895),
        (12, GAUSSIAN, {}, 0.00813, 3.835, 3.780),
        (10, GAUSSIAN, {}, 0.01176, 3.572, 3.518),
        (8, GAUSSIAN, {}, 0.01857, 3.25, 3.198),
        (7, GAUSSIAN, {}, 0.02459, 3.057, 3.007),
        (16, GAUSSIAN, {}, 0.00454, 4.25, 4.193),
        (14, WEIGHTS, {}, 0.00691, 4.0574, None),
        (14, KEYS, {}, 0.00633, 4.0574, None),
        (14, VALUES, {}, 0.00733, 4.0574, None),
        (14, ACTIVATIONS, {"rule": "first"}, 0.00649, 4.0574, None),
        (14, ACTIVATIONS, {"simplified": True}, 0.00800, 4.0574, None),
    ],
)
def test_distortion_and_rates_of_a_standard_normal(normal_blocks, q, beta_q, how, distortion, raw, entropy):
    code = code_of(q, beta_q, **how)
    done = code.quantize(normal_blocks)
    assert ((normal_blocks - done.values) ** 2).mean() == pytest.approx(distortion, rel=0.01)
    assert code.rate_raw == pytest.approx(raw, abs=6e-4)
    if entropy:
        assert code.rate_entropy(done.beta_index) == pytest.approx(entropy, abs=1.5e-3)


def test_scale_indices_of_a_standard_normal(normal_blocks):
    _, index = code_of(14, ACTIVATIONS).encode(normal_blocks)
    assert beta_entropy(index) == pytest.approx(1.263, rel=0.01)
    np.testing.assert_allclose(np.bincount(index) / len(index), [0.566, 0.366, 0.067, 0.0002], atol=3e-3)


def test_distortion_of_a_single_scale():
    # One block in 3,400 overloads and makes half of the error: a standard error of 1 % even on a million blocks.
    x = np.random.default_rng(0).standard_normal((1 << 20, 8), dtype=np.float32)
    code = code_of(14, (6.75,))
    done = code.quantize(x)
    assert ((x - done.values) ** 2).mean() == pytest.approx(0.0198, rel=0.02)
    assert code.rate_entropy(done.beta_index) == code.rate_raw == pytest.approx(3.8074, abs=5e-5)


def test_entropy_of_scale_indices_known_answers():
    assert beta_entropy(np.array([0, 1, 2, 3], np.uint8)) == 2
    assert beta_entropy(np.array([3, 3, 3], np.uint8)) == 0
    assert beta_entropy(np.array([], np.uint8)) == 0


def heavy_tailed(seed, n):
    """Blocks from far inside to far outside every scale, zeros, and points on cell boundaries."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(2, (n, 8)) * np.exp2(rng.integers(-12, 5, (n, 1)))
    x[rng.random(n) < 0.1] = 0
    x[rng.random(n) < 0.01] *= 1e12
    ties = rng.integers(-40, 40, (n, 8)) / 8  # halves of β = ¼: on boundaries of cells
    return np.where(rng.random((n, 1)) < 0.2, ties, x).astype(np.float32)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(0, 300),
    q=st.integers(2, 256),
    beta_q=st.sampled_from([ACTIVATIONS, GAUSSIAN, (6.75,), SIX]),
    simplified=st.booleans(),
    rule=st.sampled_from(["opt", "first"]),
)
@settings(deadline=None)
def test_the_kernel_gives_the_codes_of_the_plain_form(seed, n, q, beta_q, simplified, rule):
    x, code = heavy_tailed(seed, n), code_of(q, beta_q, simplified=simplified, rule=rule)
    done = code.quantize(x)
    digits, index = union_encode(x, q, code.betas, simplified=simplified, rule=rule)
    np.testing.assert_array_equal(done.digits, digits)
    np.testing.assert_array_equal(done.beta_index, index)
    scale = np.array(code.betas, np.float32)[index][:, None]
    decoded = voronoi_decode(digits, q, simplified=simplified)
    np.testing.assert_array_equal(done.values, scale * decoded)
    target = nearest_point(np.clip(x * (np.float32(1) / scale), -1024, 1024))
    np.testing.assert_array_equal(done.overloaded, (decoded != target).any(1))


@pytest.mark.parametrize("simplified", [False, True])
@pytest.mark.parametrize("q", [7, 8, 14, 16, 32])
def test_the_kernel_gives_the_codes_of_the_plain_form_on_a_quarter_million_blocks(normal_blocks, q, simplified):
    code = code_of(q, GAUSSIAN, simplified=simplified)
    digits, index = code.encode(normal_blocks)
    expected, expected_index = union_encode(normal_blocks, q, code.betas, simplified=simplified)
    np.testing.assert_array_equal(digits, expected)
    np.testing.assert_array_equal(index, expected_index)


@given(seed=st.integers(0, 2**32 - 1), q=st.integers(2, 256), simplified=st.booleans())
@settings(deadline=None)
def test_the_decoder_gives_the_bits_the_encoder_chose_by(seed, q, simplified):
    # Boundary points of q·V are common at the smallest scale: an encoder that shaped them its own way would differ.
    code = code_of(q, GAUSSIAN, simplified=simplified)
    x = np.random.default_rng(seed).standard_normal((4000, 8), dtype=np.float32)
    for blocks in (x, heavy_tailed(seed, 500)):
        done = code.quantize(blocks)
        np.testing.assert_array_equal(code.decode(done.digits, done.beta_index), done.values)


@given(seed=st.integers(0, 2**32 - 1), q=st.integers(2, 256), simplified=st.booleans())
def test_any_digits_decode_to_a_point_that_encodes_to_them(seed, q, simplified):
    digits = np.random.default_rng(seed).integers(0, q, (50, 8), dtype=np.uint8)
    np.testing.assert_array_equal(voronoi_encode(voronoi_decode(digits, q, simplified=simplified), q), digits)
    index = np.zeros(50, np.uint8)
    code = LatticeCode(q, (0.25,), simplified)
    np.testing.assert_array_equal(code.quantize(code.decode(digits, index)).digits, digits)


def test_each_scale_is_chosen_by_least_error_after_decoding(normal_blocks):
    x = normal_blocks[:4096]
    code = code_of(8, (3.0, 4.25, 8.0))
    alone = [LatticeCode(8, (beta,)).quantize(x).values for beta in code.betas]
    errors = np.stack([((x - values) ** 2).sum(1) for values in alone])
    done = code.quantize(x)
    np.testing.assert_allclose(((x - done.values) ** 2).sum(1), errors.min(0), rtol=1e-5)
    assert set(done.beta_index) == {0, 1, 2}


@pytest.mark.parametrize("simplified", [False, True])
def test_the_first_scale_without_overload_is_chosen_else_the_least_error(normal_blocks, simplified):
    x = normal_blocks[:4096] * np.exp2(np.arange(4096, dtype=np.float32) % 4)[:, None]
    code = code_of(8, (3.0, 4.25, 8.0), simplified=simplified, rule="first")
    alone = [LatticeCode(8, (beta,), simplified).quantize(x) for beta in code.betas]
    fits = ~np.stack([one.overloaded for one in alone])
    errors = np.stack([((x - one.values) ** 2).sum(1) for one in alone])
    done = code.quantize(x)
    assert np.bincount(fits.any(0)).min() > 100  # both clauses of the rule are at work
    np.testing.assert_array_equal(done.beta_index, np.where(fits.any(0), fits.argmax(0), errors.argmin(0)))
    np.testing.assert_array_equal(done.overloaded, ~fits.any(0))


def test_the_rule_does_not_matter_to_the_decoder(normal_blocks):
    first = code_of(14, ACTIVATIONS, rule="first")
    done = first.quantize(normal_blocks[:1000])
    decoded = code_of(14, ACTIVATIONS).decode(done.digits, done.beta_index)
    np.testing.assert_array_equal(decoded, done.values)


def test_equal_errors_take_the_smallest_scale():
    assert LatticeCode(14, (0.25, 0.5, 1.0)).encode(np.zeros((70, 8), np.float32))[1].max() == 0


def test_overload_is_flagged_and_still_decodes_to_the_least_error():
    x = np.full((1, 8), 100, np.float32)
    code = LatticeCode(14, (0.25, 0.5))
    done = code.quantize(x)
    errors = [((x - LatticeCode(14, (b,)).quantize(x).values) ** 2).sum() for b in code.betas]
    assert done.overloaded.tolist() == [True]
    assert ((x - done.values) ** 2).sum() == min(errors)
    assert not LatticeCode(14, (0.25, 100.0)).quantize(x).overloaded.any()


def test_blocks_are_coded_alone(normal_blocks):
    code = code_of(14, GAUSSIAN)
    whole, part = code.quantize(normal_blocks[:1000]), code.quantize(normal_blocks[333:334])
    np.testing.assert_array_equal(whole.digits[333:334], part.digits)
    np.testing.assert_array_equal(whole.values[333:334], part.values)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named(value):
    x = np.zeros((200, 8), np.float32)
    x[130, 5] = value
    with pytest.raises(InputError, match="block 130 of 200"):
        LatticeCode(14, (0.25,)).encode(x)


@pytest.mark.parametrize(
    ("q", "betas", "message"),
    [
        (1, (1.0,), "q = 1"),
        (257, (1.0,), "q = 257"),
        (14, (), "0 scales"),
        (14, tuple(range(1, 18)), "17 scales"),
        (14, (0.0, 1.0), "scale 0.0"),
        (14, (-1.0,), "scale -1.0"),
        (14, (float("nan"),), "scale nan"),
        (14, (1.0, float("inf")), "scale inf"),
        (14, (2.0, 1.0), "strictly increasing"),
        (14, (1.0, 1.0 + 1e-12), "strictly increasing"),
    ],
)
def test_a_code_outside_the_limits_is_refused(q, betas, message):
    with pytest.raises(InputError, match=message):
        LatticeCode(q, betas)


def test_shapes_and_codes_that_do_not_fit_are_refused():
    code = LatticeCode(14, (0.25, 0.5))
    digits, index = np.zeros((3, 8), np.uint8), np.zeros(3, np.uint8)
    with pytest.raises(InputError, match=r"shape \(3, 7\)"):
        code.encode(np.zeros((3, 7), np.float32))
    with pytest.raises(InputError, match="do not fit"):
        code.decode(digits, index[:2])
    with pytest.raises(InputError, match="digit 14"):
        code.decode(digits + np.uint8(14), index)
    with pytest.raises(InputError, match="scale index 2"):
        code.decode(digits, index + np.uint8(2))

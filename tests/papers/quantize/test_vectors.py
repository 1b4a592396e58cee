"""Vectors coded one by one: known distortion, packed and read back bit for bit, and what must not change it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize.scales import reference_code
from icml25cli.papers.quantize.vectors import AbsmaxVectors, LatticeVectors, PackedVectors
from icml25cli.papers.quantize.voronoi import LatticeCode

KEYS = LatticeVectors(reference_code("keys", 14), "random-hadamard")


def gaussian(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_distortion_of_gaussian_vectors_is_that_of_the_code():
    assert KEYS.distortion(gaussian(4096, 512)) == pytest.approx(0.00633, rel=0.01)


def test_int4_by_row_loses_3_8_times_as_much():
    # At a row of 4096: abs-max int4 of 15 levels 0.0248 (specification of the baseline).
    x = gaussian(256, 4096)
    values, _ = AbsmaxVectors(4).roundtrip(x)
    assert float((values - x).square().mean()) == pytest.approx(0.0248, rel=0.02)


@pytest.mark.parametrize("rotation", ["none", "hadamard", "random-hadamard", "orthogonal"])
@pytest.mark.parametrize("n", [3, 8, 20, 64])
@pytest.mark.parametrize(("q", "betas"), [(14, (0.25, 0.3, 0.4, 1.3)), (13, (0.3, 0.5)), (3, (0.9,)), (16, (0.2, 1.2))])
def test_what_is_packed_is_what_a_round_trip_gives(rotation, n, q, betas):
    vectors = LatticeVectors(LatticeCode(q, betas), rotation, seed=3)
    x = gaussian(2, 3, 5, n) * 7
    packed = vectors.pack(x)
    values, _ = vectors.roundtrip(x)
    assert torch.equal(vectors.unpack(packed, n), values)
    assert packed.scales.shape == (2, 3, 5)
    assert packed.codes.shape[:3] == packed.codes_high.shape[:3] == (2, 3, 5)


def test_bits_are_those_held():
    x = gaussian(2, 4, 10, 64)
    assert 8 * KEYS.pack(x).nbytes == KEYS.bits(64) * x.numel()
    assert KEYS.bits(64) == 4.125 + 16 / 64


def test_a_vectors_code_does_not_depend_on_its_neighbours():
    x = gaussian(1, 2, 9, 24)
    whole = KEYS.pack(x)
    parts = [KEYS.pack(x[:, :, i : i + 1]) for i in range(9)]
    for name in ("codes", "codes_high", "scales"):
        assert torch.equal(getattr(whole, name), torch.cat([getattr(p, name) for p in parts], dim=2))


@given(st.floats(1e-30, 1e30), st.integers(0, 2**31))
def test_error_scales_with_the_vector(factor, seed):
    # Powers of two only change exponents, scale included, so the code is the same.
    factor = float(2.0 ** np.round(np.log2(factor)))
    x = gaussian(1, 40, seed=seed)
    one, _ = KEYS.roundtrip(x)
    other, _ = KEYS.roundtrip(x * factor)
    assert torch.equal(other, one * factor)


@pytest.mark.parametrize("vectors", [KEYS, AbsmaxVectors(4, "random-hadamard")])
def test_zeros_stay_zeros_and_dtypes_stay(vectors):
    x = torch.zeros(2, 16, dtype=torch.bfloat16)
    values, overloads = vectors.roundtrip(x)
    assert values.dtype == torch.bfloat16
    assert not values.any()
    assert overloads == 0
    assert vectors is not KEYS or vectors.distortion(x) == 0


def test_blocks_beyond_the_last_scale_are_counted():
    spike = torch.zeros(1, 512)
    spike[0, 0] = 1  # one block holds all the energy of 64
    _, overloads = LatticeVectors(LatticeCode(14, (0.25,))).roundtrip(spike)
    assert overloads == 1


@pytest.mark.parametrize("vectors", [KEYS, AbsmaxVectors(4)])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused(vectors, bad):
    x = gaussian(2, 16)
    x[1, 3] = bad
    with pytest.raises(InputError, match="not finite"):
        vectors.roundtrip(x)


def test_damaged_codes_are_refused():
    packed = KEYS.pack(gaussian(4, 64))
    broken = PackedVectors(torch.full_like(packed.codes, 255), torch.full_like(packed.codes_high, 255), packed.scales)
    with pytest.raises(InputError, match="out of range"):
        KEYS.unpack(broken, 64)

"""Stored codes: words worked out by hand, every width there and back, and damage noticed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize.packing import block_bits, pack, stored_bits, unpack


def codes(seed, rows, blocks, q, k):
    rng = np.random.default_rng(seed)
    return rng.integers(0, q, (rows, blocks, 8), dtype=np.uint8), rng.integers(0, k, (rows, blocks), dtype=np.uint8)


def test_a_word_known_by_hand():
    digits = np.array([[[1, 2, 0, 0, 0, 0, 0, 12]]], np.uint8)
    packed = pack(digits, np.array([[3]], np.uint8), 13, 4)
    assert packed.keys() == {"codes"}
    assert packed["codes"].tolist() == [[1 + 2 * 13 + 12 * 13**7 + 3 * 13**8]]
    assert packed["codes"].dtype == np.uint32


def test_high_bits_known_by_hand():
    # q = 14, k = 4: 33 bits. Blocks 0 and 9 hold the largest number, whose top bit is 1; the others hold 0.
    digits, index = np.zeros((1, 10, 8), np.uint8), np.zeros((1, 10), np.uint8)
    digits[0, [0, 9]], index[0, [0, 9]] = 13, 3
    packed = pack(digits, index, 14, 4)
    assert packed["codes"][0, 9] == (4 * 14**8 - 1) % 2**32
    assert packed["codes_high"].tolist() == [[0b00000001, 0b00000010]]


@pytest.mark.parametrize(
    ("q", "k", "bits"), [(13, 4, 32), (14, 4, 33), (14, 1, 31), (16, 1, 32), (16, 16, 36), (2, 1, 8), (256, 1, 64)]
)
def test_bits_of_a_block(q, k, bits):
    assert block_bits(q, k) == bits


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(0, 4),
    blocks=st.integers(0, 20),
    q=st.integers(2, 180),
    k=st.integers(1, 16),
)
@settings(deadline=None)
def test_every_width_comes_back(seed, rows, blocks, q, k):
    digits, index = codes(seed, rows, blocks, q, k)
    packed = pack(digits, index, q, k)
    back, back_index = unpack(packed, q, k)
    np.testing.assert_array_equal(back, digits)
    np.testing.assert_array_equal(back_index, index)
    bits = stored_bits(rows, blocks * 8, q, k, scale_bytes=0)
    assert bits.total == pytest.approx(8 * sum(array.nbytes for array in packed.values()), abs=1e-6)
    assert bits.padding > -1e-6


@pytest.mark.parametrize("q", [13, 16, 180])
def test_the_largest_code_of_all(q):
    digits, index = np.full((2, 3, 8), q - 1, np.uint8), np.full((2, 3), 15, np.uint8)
    back, back_index = unpack(pack(digits, index, q, 16), q, 16)
    assert (back == q - 1).all()
    assert (back_index == 15).all()


def test_rows_are_packed_alone():
    digits, index = codes(0, 5, 13, 14, 4)
    whole, row = pack(digits, index, 14, 4), pack(digits[3:4], index[3:4], 14, 4)
    for name in whole:
        np.testing.assert_array_equal(whole[name][3:4], row[name])


def test_four_bits_a_weight_exactly():
    bits = stored_bits(16, 4096, 13, 4, scale_bytes=2)
    assert bits.total == 16 * (4096 * 4 + 16)
    assert bits.code == pytest.approx(16 * 4096 * np.log2(13))
    assert bits.beta == 16 * 4096 / 8 * 2
    assert bits.scale == 16 * 16


def test_a_number_beyond_the_last_code_is_named():
    packed = pack(*codes(0, 4, 6, 13, 4), 13, 4)
    packed["codes"][2, 5] = 4 * 13**8
    with pytest.raises(InputError, match="row 2, block 5"):
        unpack(packed, 13, 4)


def test_high_bits_beyond_the_last_code_are_noticed():
    packed = pack(np.zeros((1, 8, 8), np.uint8), np.zeros((1, 8), np.uint8), 14, 4)
    packed["codes"][0, 4], packed["codes_high"][0, 0] = 2**32 - 1, 1 << 4
    with pytest.raises(InputError, match="row 0, block 4"):
        unpack(packed, 14, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.pop("codes_high"), "stored as codes, codes_high"),
        (lambda p: p.update(more=p["codes"]), "stored as codes, codes_high"),
        (lambda p: p.update(codes=p["codes"].astype(np.int64)), "int64"),
        (lambda p: p.update(codes=p["codes"][0]), "shape"),
        (lambda p: p.update(codes=p["codes"][:, :-2]), "high bits"),
        (lambda p: p.update(codes_high=p["codes_high"].astype(np.int8)), "high bits"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message):
    packed = pack(*codes(0, 4, 9, 14, 4), 14, 4)
    change(packed)
    with pytest.raises(InputError, match=message):
        unpack(packed, 14, 4)


def test_codes_of_another_width_are_refused():
    with pytest.raises(InputError, match="q = 8"):
        unpack(pack(*codes(0, 2, 2, 13, 4), 13, 4), 8, 4)


def test_a_block_wider_than_64_bits_is_refused():
    with pytest.raises(InputError, match="68 bits"):
        block_bits(256, 16)

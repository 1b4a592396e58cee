"""Stored codes: words worked out by hand, every width there and back, and damage noticed."""

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize.packing import (
    block_bits,
    pack,
    pack_entropy,
    pair_bits,
    stored_bits,
    stored_entropy_bits,
    unpack,
    unpack_entropy,
)
from icml25cli.papers.quantize.scales import reference_code


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
    blocks=st.sampled_from([*range(20), 63, 64, 65, 200]),
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


@pytest.mark.parametrize(("q", "k"), [(13, 16), (16, 16), (180, 16), (256, 1)])
def test_the_largest_code_of_all(q, k):
    digits, index = np.full((2, 3, 8), q - 1, np.uint8), np.full((2, 3), k - 1, np.uint8)
    back, back_index = unpack(pack(digits, index, q, k), q, k)
    assert (back == q - 1).all()
    assert (back_index == k - 1).all()


@pytest.mark.parametrize("q", range(2, 257))
def test_numbers_at_every_carry_are_taken_apart_exactly(q):
    # One less than, and exactly, a multiple of each power of q: where a division that rounds would be off by one.
    k = max(1, min(16, 2**64 // q**8))
    powers = [m * q**i - less for i in range(9) for m in (1, 2, q - 1, k) for less in (0, 1)]
    numbers = [v for v in powers if 0 <= v < k * q**8]
    digits = np.array([[[v // q**i % q for i in range(8)] for v in numbers]], np.uint8)
    index = np.array([[v // q**8 for v in numbers]], np.uint8)
    back, back_index = unpack(pack(digits, index, q, k), q, k)
    np.testing.assert_array_equal(back, digits)
    np.testing.assert_array_equal(back_index, index)
    if q <= 16:
        pairs = np.concatenate([digits, digits[:, ::-1]], axis=-1).reshape(1, -1, 8)
        zeros = np.zeros(pairs.shape[:2], np.uint8)
        back, _ = unpack_entropy(pack_entropy(pairs, zeros, q), q, 1, pairs.shape[1])
        np.testing.assert_array_equal(back, pairs)


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


def test_a_pair_known_by_hand():
    # q = 14: 61 bits, seven bytes and five bits a pair; the third block stands with one of zeros.
    digits = np.zeros((1, 3, 8), np.uint8)
    digits[0, 0, 1], digits[0, 1, 0], digits[0, 1, 7], digits[0, 2, 7] = 2, 5, 13, 1
    packed = pack_entropy(digits, np.array([[3, 0, 1]], np.uint8), 14)
    first, second = 2 * 14 + 5 * 14**8 + 13 * 14**15, 14**7
    codes = [list(number.to_bytes(8, "little")[:7]) for number in (first, second)]
    assert packed["codes"].tolist() == [codes]
    assert packed["codes_high"].tolist() == [[first >> 56, 0]]
    assert zstandard.decompress(packed["beta_zstd"].tobytes()) == bytes([3, 0, 1])


@pytest.mark.parametrize(("q", "bits"), [(2, 16), (7, 45), (8, 48), (13, 60), (14, 61), (16, 64)])
def test_bits_of_a_pair(q, bits):
    assert pair_bits(q) == bits


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(0, 4),
    blocks=st.sampled_from([*range(20), 127, 128, 129, 300]),
    q=st.integers(2, 16),
    k=st.integers(1, 16),
)
@settings(deadline=None)
def test_every_width_comes_back_from_the_entropy_form(seed, rows, blocks, q, k):
    digits, index = codes(seed, rows, blocks, q, k)
    packed = pack_entropy(digits, index, q)
    back, back_index = unpack_entropy(packed, q, k, blocks)
    np.testing.assert_array_equal(back, digits)
    np.testing.assert_array_equal(back_index, index)
    bits = stored_entropy_bits(rows, blocks * 8, q, packed["beta_zstd"].size, scale_bytes=0)
    assert bits.total == pytest.approx(8 * sum(array.nbytes for array in packed.values()), abs=1e-6)
    assert bits.beta == 8 * packed["beta_zstd"].size
    assert bits.padding > -1e-6


def test_a_gaussian_takes_four_bits_in_the_entropy_form():
    code = reference_code("activations", 14)
    digits, index = code.encode(np.random.default_rng(0).standard_normal((1 << 18, 8), dtype=np.float32))
    rows = digits.reshape(512, 512, 8), index.reshape(512, 512)
    packed = pack_entropy(*rows, 14)
    assert 8 * packed["beta_zstd"].size / index.size == pytest.approx(1.52, rel=0.01)
    assert sum(array.nbytes for array in packed.values()) * 8 / digits.size == pytest.approx(4.00, rel=1e-3)
    assert sum(array.nbytes for array in pack(*rows, 14, 4).values()) * 8 / digits.size == 33 / 8


def test_q_above_sixteen_has_no_entropy_form():
    with pytest.raises(InputError, match="q = 17"):
        pack_entropy(*codes(0, 1, 2, 17, 4), 17)


def zstd(content: bytes, **options) -> np.ndarray:
    return np.frombuffer(zstandard.ZstdCompressor(**options).compress(content), np.uint8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.pop("beta_zstd"), "missing"),
        (lambda p: p.pop("codes"), "stored as codes, codes_high"),
        (lambda p: p.update(beta_zstd=p["beta_zstd"].astype(np.int8)), "string of bytes"),
        (lambda p: p.update(beta_zstd=p["beta_zstd"][None]), "string of bytes"),
        (lambda p: p.update(beta_zstd=p["beta_zstd"][:0]), "cannot be read"),
        (lambda p: p.update(beta_zstd=p["beta_zstd"][:-5]), "cannot be read"),
        (lambda p: p.update(beta_zstd=np.zeros(40, np.uint8)), "cannot be read"),
        (lambda p: p.update(beta_zstd=np.append(p["beta_zstd"], p["beta_zstd"])), "cannot be read"),
        (lambda p: p.update(beta_zstd=zstd(bytes(35))), "of 35 blocks, the codes of 36"),
        (lambda p: p.update(beta_zstd=zstd(bytes(2**26))), "of 67108864 blocks"),
        (lambda p: p.update(beta_zstd=zstd(bytes(36), write_content_size=False)), "blocks, the codes of 36"),
        (lambda p: p.update(beta_zstd=zstd(bytes([4] * 36))), "scale index 4"),
        (lambda p: p.update(codes=p["codes"][:, :-1], codes_high=p["codes_high"][:, :-1]), "4 pairs of blocks"),
        (lambda p: p["codes"].fill(255) or p["codes_high"].fill(255), "row 0, block 0"),
    ],
)
def test_a_damaged_entropy_form_is_refused(change, message):
    packed = pack_entropy(*codes(0, 4, 9, 14, 4), 14)
    change(packed)
    with pytest.raises(InputError, match=message):
        unpack_entropy(packed, 14, 4, 9)


def test_any_flipped_bit_of_the_compressed_indices_is_noticed():
    packed = pack_entropy(*codes(0, 4, 90, 14, 4), 14)
    frame = packed["beta_zstd"]
    for byte in range(frame.size):
        spoilt = frame.copy()
        spoilt[byte] ^= 1 << byte % 8
        try:
            _, index = unpack_entropy(packed | {"beta_zstd": spoilt}, 14, 4, 90)
        except InputError:
            continue
        np.testing.assert_array_equal(index, codes(0, 4, 90, 14, 4)[1])  # an unused bit of the header


def test_what_fills_up_a_row_must_be_zero():
    packed = pack_entropy(*codes(0, 2, 4, 14, 4), 14)
    packed["beta_zstd"] = zstd(bytes(6))
    with pytest.raises(InputError, match="not zero"):
        unpack_entropy(packed, 14, 4, 3)

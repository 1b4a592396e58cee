"""Products with packed codes: known values, the readable decoder and a double-precision product, and bad codes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize import multiply as module
from icml25cli.papers.quantize.lattice import voronoi_decode
from icml25cli.papers.quantize.multiply import check_codes, multiply
from icml25cli.papers.quantize.packing import block_bits, pack
from icml25cli.papers.quantize.voronoi import LatticeCode


def stored(digits, beta_index, code):
    """Codes and high bits as tensors."""
    packed = pack(digits, beta_index, code.q, len(code.betas))
    high = packed.get("codes_high", np.zeros((len(digits), 0), np.uint8))
    return torch.from_numpy(packed["codes"]), torch.from_numpy(high)


def random_codes(rows, blocks, q, k, simplified=False, seed=0):
    """Codes, their code, and what the readable decoder says they are."""
    rng = np.random.default_rng(seed)
    code = LatticeCode(q, tuple(np.linspace(0.2, 1, k)) if k > 1 else (0.3,), simplified)
    digits = rng.integers(0, q, (rows, blocks, 8), dtype=np.uint8)
    beta_index = rng.integers(0, k, (rows, blocks), dtype=np.uint8)
    values = np.array(code.betas, np.float32)[beta_index][..., None] * voronoi_decode(digits, q, simplified=simplified)
    return *stored(digits, beta_index, code), code, torch.from_numpy(values.reshape(rows, -1))


def relative_error(found, x, values):
    """Of x @ values^T, in double precision, relative to what the products would be if no signs cancelled."""
    x, values = x.double(), values.double()
    return float((found - x @ values.T).norm() / (x.abs() @ values.abs().T).norm().clamp(min=1e-30))


def test_a_code_of_the_paper_times_the_vectors_of_the_basis_is_its_point():
    # β·q = 4.74 of the paper's scales, and the digits of 1.7 sin(1 + i), i = 0..7, whose squared error is 0.066613.
    code = LatticeCode(14, (3.47 / 14, 4.74 / 14, 6.90 / 14, 18.11 / 14))
    digits = np.array([[[0, 0, 0, 4, 12, 7, 13, 9]]], np.uint8)
    codes, high = stored(digits, np.array([[1]], np.uint8), code)
    point = multiply(torch.eye(8), codes, high, code)[:, 0]
    error = (point - 1.7 * torch.sin(1 + torch.arange(8.0))).square().sum()
    assert float(error) == pytest.approx(0.066613, abs=1e-6)


# Bytes and bits left over of every kind: 12 to 64 bits a block, with and without high bits, halves in both precisions.
CODES = [(q, k) for q in (3, 7, 13, 14, 16) for k in range(1, 9)] + [(2, 16), (33, 4), (100, 8), (64, 4), (255, 1)]


@settings(max_examples=60, deadline=None)
@given(
    of=st.sampled_from(CODES),
    rows=st.integers(1, 40),
    width=st.integers(1, 300),
    tokens=st.integers(1, 30),
    simplified=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_products_are_those_of_the_decoded_matrix(of, rows, width, tokens, simplified, seed):
    q, k = of
    codes, high, code, values = random_codes(rows, -(-width // 8), q, k, simplified, seed)
    x = torch.randn(tokens, width, generator=torch.Generator().manual_seed(seed))
    assert relative_error(multiply(x, codes, high, code), x, values[:, :width]) < 1e-6


@pytest.mark.parametrize(("q", "k"), CODES)
def test_every_code_is_decoded_to_the_bit_on_a_cpu_and_elsewhere(q, k):
    codes, high, code, values = random_codes(23, 37, q, k)
    identity = torch.eye(values.shape[1])
    assert torch.equal(multiply(identity, codes, high, code), values.T)
    assert torch.equal(module._decode_by_torch(codes, high, code), values)


def test_the_largest_digits_and_the_smallest_are_taken_apart_exactly():
    for q, k in CODES:
        code = LatticeCode(q, tuple(range(1, k + 1)))
        edges = np.stack(np.meshgrid(*[[0, q - 1]] * 8), axis=-1).reshape(1, -1, 8).astype(np.uint8)
        for j in (0, k - 1):
            codes, high = stored(edges, np.full(edges.shape[:2], j, np.uint8), code)
            wanted = (j + 1) * voronoi_decode(edges, q).reshape(1, -1)
            assert np.array_equal(multiply(torch.eye(wanted.size), codes, high, code).numpy().T, wanted), (q, k)


def test_panels_and_threads_change_nothing(monkeypatch):
    codes, high, code, values = random_codes(301, 130, 14, 4)
    x = torch.randn(3, 1037)
    before = torch.get_num_threads()
    found = []
    try:
        for threads, panel in ((1, 2**20), (3, 2**20), (2, 2**17)):
            torch.set_num_threads(threads)
            monkeypatch.setattr(module, "_PANEL_VALUES", panel)
            monkeypatch.setattr(module, "_VALUES_A_THREAD", 1000)
            found.append(multiply(x, codes, high, code))
    finally:
        torch.set_num_threads(before)
    assert all(relative_error(product, x, values[:, :1037]) < 1e-6 for product in found)


def test_no_tokens_give_no_products():
    codes, high, code, _ = random_codes(5, 4, 14, 4)
    assert multiply(torch.empty(0, 30), codes, high, code).shape == (0, 5)


@pytest.mark.parametrize(("q", "k"), [of for of in CODES if of[1] * of[0] ** 8 < 2 ** block_bits(*of)])
def test_the_first_number_too_large_is_found_wherever_it_stands(q, k):
    codes, high, code, _ = random_codes(9, 77, q, k)
    check_codes(codes, high, code)
    whole, rest = divmod(block_bits(q, k), 8)
    largest = (k * q**8 - 1).to_bytes(9, "little")
    first_wrong = (k * q**8).to_bytes(9, "little")
    for row, block in ((0, 0), (4, 63), (4, 64), (8, 76)):
        for number, right in ((largest, True), (first_wrong, False)):
            octets = codes.clone().view(torch.uint8).reshape(9, 77, whole)
            octets[row, block] = torch.tensor(list(number[:whole]), dtype=torch.uint8)
            bits = np.unpackbits(high.numpy(), axis=1, bitorder="little")
            place = slice(block * rest, (block + 1) * rest)
            bits[row, place] = np.unpackbits(np.array([number[whole]], np.uint8), bitorder="little")[:rest]
            changed = octets.reshape(9, -1).view(codes.dtype).reshape(codes.shape)
            spoilt = torch.from_numpy(np.packbits(bits, axis=1, bitorder="little"))
            if right:
                check_codes(changed, spoilt, code)
                continue
            with pytest.raises(InputError, match=f"row {row}, block {block} is out of range"):
                check_codes(changed, spoilt, code)

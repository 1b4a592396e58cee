"""Tensors: the torch form against the compiled one, bit for bit, and the way from a tensor to either."""

from itertools import product
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize import torch_codec
from icml25cli.papers.quantize.voronoi import LatticeCode, QuantizedTensor

ACTIVATIONS = (3.47, 4.74, 6.90, 18.11)


def code_of(q, simplified=False, rule: Literal["opt", "first"] = "opt", beta_q=ACTIVATIONS):
    return LatticeCode(q, tuple(b / q for b in beta_q), simplified, rule)


def by_torch(code, x):
    """What a tensor on another device would get, run on this one."""
    betas = np.array(code.betas, np.float32)
    return QuantizedTensor(*torch_codec.quantize(x, code.q, betas, code.simplified, code.rule))


def assert_same(found: QuantizedTensor, expected: QuantizedTensor):
    for name in ("digits", "beta_index", "values", "overloaded"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype
        assert torch.equal(one, other), name


@pytest.fixture(scope="module")
def normal_blocks():
    return torch.from_numpy(np.random.default_rng(0).standard_normal((1 << 18, 8), dtype=np.float32))


def test_the_worked_block():
    x = 1.7 * torch.sin(1 + torch.arange(8.0))[None]
    done = by_torch(code_of(14), x)
    assert done.beta_index.tolist() == [1]
    assert done.digits.tolist() == [[0, 0, 0, 4, 12, 7, 13, 9]]
    assert float((x - done.values).square().sum()) == pytest.approx(0.066613, abs=1e-6)


@pytest.mark.parametrize("rule", ["opt", "first"])
@pytest.mark.parametrize("simplified", [False, True])
@pytest.mark.parametrize("q", [7, 8, 14, 16])
def test_the_torch_form_gives_the_compiled_codes_on_a_quarter_million_blocks(normal_blocks, q, simplified, rule):
    code = code_of(q, simplified, rule)
    assert_same(by_torch(code, normal_blocks), code.quantize_tensor(normal_blocks))


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(0, 100),
    q=st.integers(2, 256),
    simplified=st.booleans(),
    rule=st.sampled_from(["opt", "first"]),
)
@settings(deadline=None)
def test_the_torch_form_gives_the_compiled_codes_of_tails_and_ties(seed, n, q, simplified, rule):
    rng = np.random.default_rng(seed)
    tails = rng.standard_t(2, (n, 8)) * np.exp2(rng.integers(-12, 40, (n, 1)))
    ties = rng.integers(-40, 40, (n, 8)) / 8
    x = torch.from_numpy(np.where(rng.random((n, 1)) < 0.3, ties, tails).astype(np.float32))
    code = code_of(q, simplified, rule, (q / 4, q / 3, 1.3 * q))
    done = by_torch(code, x)
    assert_same(done, code.quantize_tensor(x))
    betas = np.array(code.betas, np.float32)
    assert torch.equal(torch_codec.decode(done.digits, done.beta_index, q, betas, simplified), done.values)


@pytest.mark.parametrize("simplified", [False, True])
def test_the_torch_form_decodes_every_codeword_of_a_small_code(simplified):
    digits = torch.tensor(list(product(range(3), repeat=8)), dtype=torch.uint8)
    index = torch.zeros(len(digits), dtype=torch.uint8)
    code = LatticeCode(3, (1.0,), simplified)
    points = torch_codec.decode(digits, index, 3, np.ones(1, np.float32), simplified)
    assert torch.equal(points, code.decode_tensor(digits, index))
    assert torch.equal(by_torch(code, points).digits, digits)


def test_chunks_change_nothing(normal_blocks, monkeypatch):
    x, code = normal_blocks[:1000], code_of(14)
    monkeypatch.setattr(torch_codec, "_CHUNK_BLOCKS", 37)
    done = by_torch(code, x)
    assert_same(done, code.quantize_tensor(x))
    betas = np.array(code.betas, np.float32)
    assert torch.equal(torch_codec.decode(done.digits, done.beta_index, 14, betas, False), done.values)


def test_tensors_of_any_layout_dtype_and_history_are_coded(normal_blocks):
    code = code_of(14)
    expected = code.quantize_tensor(normal_blocks[:64])
    strided = normal_blocks[:64].T.contiguous().T.requires_grad_()
    assert_same(code.quantize_tensor(strided), expected)
    assert_same(code.quantize_tensor(normal_blocks[:64].double()), expected)
    assert torch.equal(code.decode_tensor(expected.digits, expected.beta_index), expected.values)


def test_what_arrays_may_not_hold_tensors_may_not_either():
    code, digits, index = code_of(14), torch.zeros(3, 8, dtype=torch.uint8), torch.zeros(3, dtype=torch.uint8)
    with pytest.raises(InputError, match="block 1 of 2"):
        code.quantize_tensor(torch.tensor([[0.0] * 8, [float("inf")] * 8]))
    with pytest.raises(InputError, match=r"shape \(2, 7\)"):
        code.quantize_tensor(torch.zeros(2, 7))
    with pytest.raises(InputError, match="do not fit"):
        code.decode_tensor(digits, index[:2])
    with pytest.raises(InputError, match="digit 14"):
        code.decode_tensor(digits + 14, index)
    with pytest.raises(InputError, match="scale index 4"):
        code.decode_tensor(digits, index + 4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("rule", ["opt", "first"])
@pytest.mark.parametrize("simplified", [False, True])
def test_a_device_gives_the_codes_of_the_cpu(normal_blocks, simplified, rule):
    code = code_of(14, simplified, rule)
    done, expected = code.quantize_tensor(normal_blocks.cuda()), code.quantize_tensor(normal_blocks)
    assert done.digits.is_cuda
    assert torch.equal(code.decode_tensor(done.digits, done.beta_index).cpu(), expected.values)
    assert_same(QuantizedTensor(*(getattr(done, name).cpu() for name in vars(done))), expected)

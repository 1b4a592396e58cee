"""Packed matrices: equal to the decoded ones, in every dtype and form, as small as their codes, and not trainable."""

import copy

import pytest
import torch
from torch import nn

from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.quantize.arrays import FORMAT
from icml25cli.papers.quantize.lattice import TIE_OFFSET_1024
from icml25cli.papers.quantize.matrix import nestquant, quantize_matrix
from icml25cli.papers.quantize.packed import PackedLinear, PackedMatrix, PackedSpec
from icml25cli.papers.quantize.packing import stored_bits
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.voronoi import LatticeCode

BETAS = (3.5, 4.25, 5.25, 8.0, 9.0, 11.0, 14.0, 18.0)


def packed(rows, width, *, q=14, k=4, kind="random-hadamard", bias=True, simplified=False, entropy=False):
    """A packed matrix with random weights, and the linear module that holds the decoded ones."""
    generator = torch.Generator().manual_seed(rows * 1000 + width)
    code = LatticeCode(q, tuple(beta / q for beta in BETAS[:k]), simplified)
    rotation = Rotation(kind, width, 7)
    weight = torch.randn(rows, width, generator=generator)
    done = quantize_matrix(weight, None, nestquant(code, ldlq=False, entropy=entropy), rotation)
    linear = nn.Linear(width, rows, bias=bias)
    linear.weight.data = done.weight
    matrix = PackedMatrix(code, rotation, transposed=False, entropy=entropy)
    parts = matrix.parts(rows, done.stored["scales"].dtype, len(done.stored.get("beta_zstd", ())))
    made = PackedLinear(matrix, parts, linear.bias)
    assert {name: (x.shape, x.dtype) for name, x in made.stored().items()} == {
        name: (x.shape, x.dtype) for name, x in done.stored.items()
    }
    for name, tensor in done.stored.items():
        setattr(made, name, tensor)
    made.settle()
    return made, linear.requires_grad_(False)


def difference(found, wanted):
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize("kind", ["none", "hadamard", "random-hadamard", "orthogonal"])
@pytest.mark.parametrize(("rows", "width"), [(1, 8), (5, 7), (3, 1), (40, 96), (33, 107), (64, 36), (20, 263)])
def test_it_multiplies_as_the_decoded_matrix_does(rows, width, kind):
    made, linear = packed(rows, width, kind=kind)
    for batch in ((1,), (2, 3), (40,)):
        x = torch.randn(*batch, width, generator=torch.Generator().manual_seed(1))
        assert made(x).shape == (*batch, rows)
        assert difference(made(x), linear(x)) < 5e-6


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("simplified", [False, True])
@pytest.mark.parametrize(("q", "k"), [(3, 2), (7, 4), (13, 4), (14, 4), (16, 8), (14, 1)])
def test_every_code_and_form_multiplies(q, k, simplified, entropy):
    made, linear = packed(24, 45, q=q, k=k, simplified=simplified, entropy=entropy, bias=False)
    x = torch.randn(6, 45)
    assert difference(made(x), linear(x)) < 5e-6


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 5e-6), (torch.float16, 1e-3), (torch.bfloat16, 8e-3)])
def test_it_computes_in_float32_whatever_the_model_is_in(dtype, tolerance):
    made, linear = packed(50, 72)
    before = {name: tensor.clone() for name, tensor in made.stored().items()}
    made = copy.deepcopy(made).to(dtype)
    x = torch.randn(9, 72).to(dtype)
    assert made.bias is not None
    assert made.bias.dtype == made(x).dtype == dtype
    assert difference(made(x), linear(x.float())) < tolerance
    after = made.state_dict()
    assert all(
        torch.equal(tensor, after[name]) and tensor.dtype == after[name].dtype for name, tensor in before.items()
    )


def test_copies_multiply_alike():
    made, _ = packed(12, 40)
    x = torch.randn(2, 40)
    wanted = made(x)
    assert torch.equal(copy.deepcopy(made)(x), wanted)
    other, _ = packed(12, 40)
    other.codes = torch.zeros_like(made.codes)
    other.load_state_dict(made.state_dict())
    assert torch.equal(other(x), wanted)


@pytest.mark.parametrize(("q", "k"), [(14, 4), (13, 4), (8, 1), (16, 8)])
def test_its_buffers_take_the_bits_that_the_report_counts(q, k):
    made, _ = packed(32, 200, q=q, k=k)
    bits = 8 * sum(tensor.nbytes for tensor in made.buffers())
    assert bits == stored_bits(32, 200, q, k, made.scales.element_size()).total


def test_rows_of_zeros_give_the_bias():
    made, linear = packed(4, 16)
    made.scales = torch.zeros_like(made.scales)
    assert torch.equal(made(torch.randn(2, 16)), linear.bias.expand(2, 4))


def test_gradients_through_codes_are_refused_and_inference_is_not():
    made, _ = packed(4, 16)
    x = torch.randn(2, 16, requires_grad=True)
    y = made(x)
    with pytest.raises(UsageError, match="cannot be trained"):
        y.sum().backward()


def test_damaged_codes_and_scales_are_found():
    made, _ = packed(4, 16, q=13)
    made.codes = made.codes.view(torch.int32).clone().fill_(-1).view(torch.uint32)
    with pytest.raises(InputError, match="row 0, block 0 is out of range"):
        made.settle()
    made, _ = packed(4, 16)
    made.scales[2] = float("nan")
    with pytest.raises(InputError, match="scale is not finite"):
        made.settle()
    with pytest.raises(InputError, match="meta device"):
        made.to("meta").settle()


DESCRIBED = {
    "quant_method": "nestquant",
    "format": FORMAT,
    "epsilon": [[numerator, 1024] for numerator in TIE_OFFSET_1024],
    "method": {"name": "nestquant", "q": 14, "betas": [0.25, 0.5], "ldlq": True},
    "rotation": {"kind": "random-hadamard", "seed": 3},
    "tensors": {"a.q": {"width": 12, "transposed": False}, "a.k": {"width": 20, "transposed": True}},
}


def test_a_description_becomes_matrices():
    spec = PackedSpec.parse(DESCRIBED, "here")
    code = LatticeCode(14, (0.25, 0.5))
    assert spec.matrices == {
        "a.q": PackedMatrix(code, Rotation("random-hadamard", 12, 3), False, False),
        "a.k": PackedMatrix(code, Rotation("random-hadamard", 20, 3), True, False),
    }


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "icml25/nq/2", "another format"),
        ("quant_method", "gptq", "another format"),
        ("epsilon", [[0, 1024]] * 8, "another format"),
        ("epsilon", None, "epsilon"),
        ("method", {"name": "nestquant", "betas": [1.0]}, "q"),
        ("method", {"name": "nestquant", "q": 300, "betas": [1.0]}, "300"),
        ("method", {"name": "nestquant", "q": 14, "betas": [1.0, 0.5]}, "increasing"),
        ("method", {"name": "nestquant", "q": 256, "betas": [1.0, 2.0]}, "bits"),
        ("method", {"name": "nestquant", "q": 17, "betas": [1.0], "entropy": True}, "bits"),
        ("method", {"name": "nestquant", "q": 14, "betas": [1.0], "simplified": 1}, "simplified"),
        ("rotation", {"kind": "spin", "seed": 3}, "spin"),
        ("rotation", {"kind": "hadamard", "seed": "3"}, "seed"),
        ("tensors", {"a.q": {"width": "12", "transposed": False}}, "width"),
        ("tensors", {"a.q": {"width": 0, "transposed": False}}, "width"),
        ("tensors", [], "tensors"),
    ],
)
def test_an_edited_description_is_refused_by_field(field, value, message):
    with pytest.raises(InputError, match=message) as refused:
        PackedSpec.parse(DESCRIBED | {field: value}, "here")
    assert refused.value.message.startswith("here")

"""LDLQ: equal to its definition, to rounding where there is nothing to feed back, and better than it otherwise."""

import pytest
import torch

from icml25cli.papers.quantize.hessian import block_ldl
from icml25cli.papers.quantize.ldlq import ldlq
from icml25cli.papers.quantize.voronoi import LatticeCode

CODE = LatticeCode(14, tuple(b / 14 for b in (3.5, 4.25, 5.25, 18.0)))


def lattice(blocks: torch.Tensor) -> torch.Tensor:
    values = CODE.quantize(blocks.float().reshape(-1, 8).numpy()).values
    return torch.from_numpy(values).reshape(blocks.shape).to(blocks)


def problem(m, n, seed):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(n, n, generator=generator) / n**0.5 + torch.eye(n)
    x = torch.randn(4 * n, n, generator=generator) @ mix
    return torch.randn(m, n, generator=generator), x.T @ x / len(x)


def block_by_block(weight, lower):
    """The definition, one block at a time with all finished ones."""
    n = weight.shape[1]
    values = torch.zeros_like(weight)
    for first in range(n - 8, -1, -8):
        block, done = slice(first, first + 8), slice(first + 8, n)
        target = weight[:, block] + (weight[:, done] - values[:, done]) @ lower[done, block]
        values[:, block] = lattice(target)
    return values


@pytest.mark.parametrize("n", [8, 64, 128, 136, 400])  # one block, powers of two, and halves of unequal size
@pytest.mark.parametrize("seed", [0, 1])
def test_halving_gives_the_codes_of_the_definition(n, seed):
    # In float64 sums of either order agree far beyond the spacing of decision boundaries, so codes must be equal.
    weight, hessian = (x.double() for x in problem(24, n, seed))
    factor = block_ldl(hessian, 8)
    assert factor is not None
    visited = []

    def quantize(block, target):
        visited.append(block)
        assert target.is_contiguous()
        return lattice(target)

    values = ldlq(weight, factor.matrix, quantize)
    assert visited == list(range(n // 8 - 1, -1, -1))
    assert torch.equal(values, block_by_block(weight, factor.matrix))


def test_an_identity_hessian_leaves_rounding():
    weight, _ = problem(16, 264, 0)
    factor = block_ldl(torch.eye(264), 8)
    assert factor is not None
    assert torch.equal(ldlq(weight, factor.matrix, lambda _, target: lattice(target)), lattice(weight))


def test_the_loss_is_that_of_the_block_diagonal_factor():
    # tr(E H E^T) = sum over blocks of tr(e_c D_c e_c^T) with e_c = target - value: what each step minimises.
    weight, hessian = (x.double() for x in problem(24, 144, 3))
    damped = hessian + 0.01 * hessian.diagonal().mean() * torch.eye(144, dtype=torch.float64)
    factor = block_ldl(hessian, 8)
    assert factor is not None
    inverse = torch.linalg.inv(factor.matrix)
    middle = inverse @ damped @ inverse.T
    total = 0.0

    def quantize(block, target):
        nonlocal total
        value = lattice(target)
        d = middle[8 * block : 8 * block + 8, 8 * block : 8 * block + 8]
        total += float(((target - value) @ d * (target - value)).sum())
        return value

    error = weight - ldlq(weight, factor.matrix, quantize)
    assert float((error @ damped * error).sum()) == pytest.approx(total, rel=1e-9)


def test_arguments_are_left_alone():
    weight, hessian = problem(8, 64, 1)
    factor = block_ldl(hessian, 8)
    assert factor is not None
    before = weight.clone(), factor.matrix.clone()
    ldlq(weight, factor.matrix, lambda _, target: lattice(target))
    assert torch.equal(weight, before[0])
    assert torch.equal(factor.matrix, before[1])

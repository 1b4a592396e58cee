"""Hessians: a streamed second moment, damping that gives up honestly, and the block LDL identity."""

import pytest
import torch

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize.hessian import HessianAccumulator, block_ldl


def gaussian(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def test_two_tokens_known_answer():
    accumulator = HessianAccumulator(2)
    accumulator.add(torch.tensor([[1.0, 2.0], [3.0, -4.0]]))
    assert accumulator.hessian().tolist() == [[5.0, -5.0], [-5.0, 10.0]]
    assert accumulator.tokens == 2


@pytest.mark.parametrize("n", [3, 8, 700, 1100])  # below, across and above the panels that are updated
def test_streaming_equals_the_second_moment_of_all_tokens(n):
    x = gaussian(301, n) * torch.logspace(-2, 2, n)
    accumulator = HessianAccumulator(n)
    for start, stop in [(0, 1), (1, 1), (1, 200), (200, 301)]:
        accumulator.add(x[start:stop])
        accumulator.hessian()  # looking must not disturb
    exact = x.double().T @ x.double() / 301
    spread = exact.diagonal().sqrt()
    correlation = (accumulator.hessian() / spread / spread[:, None]).float()
    torch.testing.assert_close(correlation, (exact / spread / spread[:, None]).float(), atol=2e-6, rtol=0)
    assert torch.equal(accumulator.hessian(), accumulator.hessian().T)


def test_batch_axes_count_as_tokens_and_half_precision_is_widened():
    x = gaussian(2, 5, 4).bfloat16()
    accumulator = HessianAccumulator(4)
    accumulator.add(x)
    assert accumulator.tokens == 10
    flat = x.float().reshape(10, 4)
    torch.testing.assert_close(accumulator.hessian(), flat.T @ flat / 10)


def test_undersampled_is_fewer_than_two_tokens_a_dimension():
    accumulator = HessianAccumulator(4)
    accumulator.add(torch.ones(7, 4))
    assert accumulator.undersampled
    accumulator.add(torch.ones(1, 4))
    assert not accumulator.undersampled


def test_no_token_gives_zeros():
    accumulator = HessianAccumulator(3)
    accumulator.add(torch.ones(0, 3))
    assert accumulator.tokens == 0
    assert not accumulator.hessian().any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_bad_activations_name_the_layer(bad):
    x = torch.ones(2, 3)
    x[1, 2] = bad
    with pytest.raises(InputError, match=r"layers\.3\.o_proj"):
        HessianAccumulator(3, "layers.3.o_proj").add(x)
    with pytest.raises(InputError, match="4 wide"):
        HessianAccumulator(3).add(torch.ones(2, 4))


@pytest.mark.parametrize(("n", "block"), [(8, 8), (24, 8), (264, 8), (136, 1), (5, 1)])
def test_block_ldl_rebuilds_the_damped_hessian(n, block):
    x = gaussian(3 * n, n, dtype=torch.float64)
    hessian = x.T @ x / (3 * n)
    damped = hessian + 0.01 * hessian.diagonal().mean() * torch.eye(n, dtype=torch.float64)
    factor = block_ldl(hessian.clone(), block)
    assert factor is not None
    assert factor.damping == 0.01
    inverse = torch.linalg.inv(factor.matrix)
    middle = inverse @ damped @ inverse.T
    blocks = torch.block_diag(*[torch.ones(block, block)] * (n // block)).bool()
    torch.testing.assert_close(middle[~blocks], torch.zeros_like(middle[~blocks]), atol=1e-12, rtol=0)
    torch.testing.assert_close(factor.matrix[blocks], torch.eye(n, dtype=torch.float64)[blocks], atol=1e-12, rtol=0)
    above = ~blocks & torch.ones(n, n).triu().bool()
    assert not factor.matrix[above].any()


def test_dead_columns_are_covered_by_damping():
    x = gaussian(200, 16)
    x[:, [3, 9]] = 0
    factor = block_ldl(x.T @ x / 200, 8)
    assert factor is not None
    assert factor.damping == 0.01
    assert factor.matrix.isfinite().all()
    assert not factor.matrix[9, :8].any()  # what was never seen feeds nothing


@pytest.mark.parametrize(("least", "needed"), [(-0.005, 0.01), (-0.05, 0.1), (-0.5, 1.0), (-5.0, 10.0), (-50.0, None)])
def test_damping_grows_tenfold_three_times_and_then_gives_up(least, needed):
    # Eigenvalues are known, and the mean of the diagonal is 1: damping must exceed -least to reach positive ones.
    values = torch.full((64,), (64 - least) / 63, dtype=torch.float64)
    values[0] = least
    turn = torch.linalg.qr(gaussian(64, 64, dtype=torch.float64)).Q
    factor = block_ldl(turn @ values.diag() @ turn.T, 8)
    assert (factor and factor.damping) == (needed and pytest.approx(needed))


def test_a_hessian_of_zeros_cannot_be_damped():
    assert block_ldl(torch.zeros(8, 8), 8) is None

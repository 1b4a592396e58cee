"""Scalar quantisers: pencil answers, the published NF4 levels, error bounds, and degenerate rows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.papers.quantize.scalar import absmax, from_grid, nf4, nf4_levels, rtn


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_rtn_known_answer():
    # Range -1 .. 2 in 3 steps of 1: zero is step 1, and 0.4 rounds down, 1.6 up.
    done = rtn(torch.tensor([[-1.0, 0.4, 1.6, 2.0]]), bits=2, group_size=4)
    assert done.codes.tolist() == [[0, 1, 3, 3]]
    assert done.values.tolist() == [[-1.0, 0.0, 2.0, 2.0]]
    assert done.scale.tolist() == [[1.0]]
    assert done.zero_point is not None
    assert done.zero_point.tolist() == [[1]]


def test_absmax_known_answer():
    # 4 bits: the largest magnitude, 3.5, is step 7 of size one half.
    done = absmax(torch.tensor([[-3.5, 0.7, 1.3, 0.2]]))
    assert done.codes.tolist() == [[0, 8, 10, 7]]
    assert done.values.tolist() == [[-3.5, 0.5, 1.5, 0.0]]


def test_nf4_levels_are_the_published_ones():
    # Appendix E of the QLoRA paper, to the digits that both its float32 and ours share.
    published = [-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0]
    published += [0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0]
    assert nf4_levels() == pytest.approx(published, abs=3e-7)


def test_nf4_known_answer():
    done = nf4(torch.tensor([[2.0, -2.0, 0.0, 0.9, -0.08]]))
    levels = nf4_levels()
    assert done.codes.tolist() == [[15, 0, 7, 12, 7]]  # 0.9 / 2 is nearest to 0.4407; 0.04 is nearer to 0 than to 0.091
    torch.testing.assert_close(done.values, 2 * torch.tensor([[1.0, -1.0, 0.0, levels[12], 0.0]]))


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(1, 9),
    n=st.integers(1, 150),
    bits=st.integers(2, 8),
    group=st.sampled_from([None, 1, 7, 64]),
    seed=st.integers(0, 99),
)
def test_rtn_errs_by_at_most_half_a_step_in_every_group(m, n, bits, group, seed):
    weight = gaussian(m, n, seed=seed)
    done = rtn(weight, bits, group)
    size = group or n
    assert done.scale.shape == (m, -(-n // size))
    for i, start in enumerate(range(0, n, size)):
        group, step = weight[:, start : start + size], done.scale[:, i].float()
        span = group.amax(1).clamp(min=0) - group.amin(1).clamp(max=0)
        cut = (span - (2**bits - 1) * step).clamp(min=0)  # a scale that float16 rounds down does not reach the ends
        error = (done.values[:, start : start + size] - group).abs().amax(1)
        assert (error <= 0.5001 * step + cut).all()
        assert (cut <= span / 32).all()
    assert int(done.codes.max()) < 2**bits


@pytest.mark.parametrize(("n", "scales"), [(64, 1), (65, 2), (128, 2), (7, 1)])
def test_nf4_has_a_scale_for_every_64_columns(n, scales):
    weight = gaussian(5, n)
    done = nf4(weight)
    assert done.scale.shape == (5, scales)
    top = done.scale.float().repeat_interleave(64, dim=1)[:, :n]
    assert ((done.values - weight).abs() <= top * 0.153).all()  # widest gap between levels is 0.3038
    brute = (weight[:, :, None] - torch.tensor(nf4_levels()) * top[:, :, None]).abs().argmin(dim=2)
    assert torch.equal(done.codes.long(), brute)


QUANTISERS = [rtn, lambda w: rtn(w, 4, None), absmax, nf4]


@pytest.mark.parametrize("quantise", QUANTISERS)
def test_gaussian_error_is_in_its_known_range(quantise):
    # Section 4.2: int4 by row of 4096 gives 0.0248 symmetric; groups of 128 about 0.0100; NF4 about 0.0088.
    weight = gaussian(128, 4096)
    error = float((quantise(weight).values - weight).square().mean())
    expected = dict(zip(QUANTISERS, [0.0100, 0.0190, 0.0248, 0.0088], strict=True))[quantise]
    assert error == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("quantise", QUANTISERS)
@pytest.mark.parametrize("n", [1, 3, 8, 130])
def test_degenerate_rows(quantise, n):
    weight = torch.stack([torch.zeros(n), torch.full((n,), 0.75), torch.full((n,), -3.0), gaussian(n)])
    before = weight.clone()
    done = quantise(weight)
    assert done.values.isfinite().all()
    assert not done.values[0].any()
    torch.testing.assert_close(done.values[1:3], weight[1:3], rtol=2**-11, atol=0)  # a constant is its own grid
    assert torch.equal(weight, before)


@pytest.mark.parametrize("quantise", QUANTISERS)
@pytest.mark.parametrize(("factor", "dtype"), [(1.0, torch.float16), (1e-8, torch.float32), (1e6, torch.float32)])
def test_scales_beyond_float16_are_kept_in_float32(quantise, factor, dtype):
    weight = gaussian(6, 200)
    done = quantise(weight * factor)
    assert done.scale.dtype == dtype
    reference = quantise(weight).values
    assert float((done.values / factor - reference).norm() / reference.norm()) < 0.02


@pytest.mark.parametrize("quantise", QUANTISERS[:2])
def test_integer_values_are_what_the_stored_numbers_say(quantise):
    done = quantise(gaussian(6, 200))
    size = -(-200 // done.scale.shape[1]) if done.scale.shape[1] == 1 else 128
    for i in range(done.scale.shape[1]):
        g = slice(i * size, min((i + 1) * size, 200))
        assert torch.equal(
            from_grid(done.codes[:, g], done.scale[:, i].float(), done.zero_point[:, i]), done.values[:, g]
        )

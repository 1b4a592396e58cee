"""Regression of what all columns give on what the kept ones give."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.papers.prune.repair import repair
from icml25cli.papers.prune.statistics import Moments, Pair, PairMoments


def problem(seed: int, n: int = 12, d: int = 5, tokens: int = 400):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, n, generator=generator) @ torch.randn(n, n, generator=generator) + 2
    return x, torch.randn(d, n, generator=generator)


def paired(x: torch.Tensor, weight: torch.Tensor, kept: torch.Tensor) -> Pair:
    moments = PairMoments(len(weight))
    moments.add(x @ weight.T, x[:, kept] @ weight[:, kept].T)
    return moments.fit()


def moments_of(x: torch.Tensor) -> Moments:
    moments = Moments(x.shape[1], cross=True)
    moments.add(x)
    return moments


def errors(kind: str, x: torch.Tensor, weight: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Mean square error of every column after repair."""
    done = repair(kind, weight, kept, paired(x, weight, kept), moments_of(x))
    given = x[:, kept].double() @ done.weight.double().T + (0 if done.bias is None else done.bias)
    return (x.double() @ weight.double().T - given).square().mean(0)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), kept=st.sets(st.integers(0, 11), min_size=1, max_size=11))
def test_what_is_left_over_is_what_correlation_does_not_explain(seed, kept):
    x, weight = problem(seed)
    index = torch.tensor(sorted(kept))
    pair = paired(x, weight, index)
    left = errors("linear", x, weight, index)
    torch.testing.assert_close(left, pair.var_o * (1 - pair.correlation.square()), rtol=1e-4, atol=1e-6)
    # No repair leaves a column worse than one that is part of it.
    bias, none = errors("bias", x, weight, index), errors("none", x, weight, index)
    slack = 1 + 1e-5
    assert (left <= bias * slack).all()
    assert (bias <= none * slack).all()


def test_slope_and_offset_are_those_of_a_fitted_line():
    x, weight = problem(0)
    kept = torch.tensor([0, 2, 3, 7])
    done = repair("linear", weight, kept, paired(x, weight, kept))
    o, y = (x @ weight.T).double().numpy(), (x[:, kept] @ weight[:, kept].T).double().numpy()
    assert done.bias is not None
    for c in range(5):
        slope, offset = np.polyfit(y[:, c], o[:, c], 1)
        np.testing.assert_allclose(done.weight[c], slope * weight[c, kept], rtol=1e-4)
        assert done.bias[c].item() == pytest.approx(offset, rel=1e-4)


def test_what_only_a_lost_twin_fed_is_doubled():
    x, weight = problem(1, n=8)
    x[:, 4:] = x[:, :4]
    weight[:, 4:] = weight[:, :4]
    kept = torch.arange(4)
    done = repair("linear", weight, kept, paired(x, weight, kept))
    torch.testing.assert_close(done.weight, 2 * weight[:, :4], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(done.bias, torch.zeros(5).double(), rtol=0, atol=1e-4)


def test_a_column_that_does_not_vary_keeps_its_weights_and_gets_the_mean():
    x, weight = problem(2)
    x[:, 0] = 3.0
    weight[1, 1:] = 0
    kept = torch.tensor([0, 1])
    pair = paired(x, weight, kept)
    done = repair("linear", weight, kept, pair)
    assert done.weight[1].tolist() == weight[1, kept].tolist()
    # and of one whose kept part is nothing at all, all that is known is its mean
    weight[2, kept] = 0
    done = repair("linear", weight, kept, paired(x, weight, kept))
    assert done.weight[2].tolist() == [0, 0]
    assert done.bias is not None
    assert done.bias[2].item() == pytest.approx((x @ weight[2]).mean().item(), rel=1e-5)


def test_a_large_constant_is_no_variance():
    x, weight = problem(3)
    x[:, 0] = 1e4
    weight[:, 1:3] = 0
    kept = torch.tensor([0, 1, 2])  # constant, and unread
    done = repair("linear", weight, kept, paired(x, weight, kept))
    assert torch.equal(done.weight, weight[:, kept])


def test_bias_is_what_the_lost_columns_give_on_average():
    x, weight = problem(4)
    kept, gone = torch.arange(6), torch.arange(6, 12)
    done = repair("bias", weight, kept, paired(x, weight, kept))
    torch.testing.assert_close(done.bias, (weight[:, gone] @ x[:, gone].mean(0)).double(), rtol=1e-4, atol=1e-4)
    assert torch.equal(done.weight, weight[:, kept])


def test_none_changes_nothing():
    x, weight = problem(5)
    kept = torch.tensor([1, 4])
    done = repair("none", weight, kept, paired(x, weight, kept))
    assert done.bias is None
    assert torch.equal(done.weight, weight[:, kept])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_ridge_explains_nearly_all_that_kept_columns_can(seed):
    x, weight = problem(seed)
    kept = torch.tensor([0, 3, 5, 6, 9, 11])
    centred = x.double() - x.double().mean(0)
    o, k = centred @ weight.double().T, centred[:, kept]
    least = (o - k @ torch.linalg.lstsq(k, o).solution).square().mean(0).sum()
    ridge, linear = errors("ridge", x, weight, kept).sum(), errors("linear", x, weight, kept).sum()
    assert least <= ridge * (1 + 1e-6)
    assert ridge - least < 0.2 * (linear - least)


def test_ridge_of_inputs_that_never_vary_keeps_the_weights():
    weight = problem(6)[1]
    x, kept = torch.ones(20, 12), torch.tensor([0, 1])
    done = repair("ridge", weight, kept, paired(x, weight, kept), moments_of(x))
    torch.testing.assert_close(done.weight, weight[:, kept])

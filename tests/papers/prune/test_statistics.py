"""Sums over tokens: additive, centred without loss, and aware of what is not finite."""

import pytest
import torch

from icml25cli.core.errors import InputError
from icml25cli.papers.prune.statistics import Moments, PairMoments


@pytest.mark.parametrize("cross", [False, True])
def test_batches_add_up(cross):
    x = torch.randn(70, 5, generator=torch.Generator().manual_seed(0))
    once, often = Moments(5, cross=cross), Moments(5, cross=cross)
    once.add(x)
    for part in x.split([1, 2, 30, 37]):
        often.add(part)
    assert often.tokens == 70
    for name in ("mean", "variance", "norms", "rms"):
        torch.testing.assert_close(getattr(often, name), getattr(once, name), rtol=1e-12, atol=0)
    torch.testing.assert_close(often.norms, x.double().norm(dim=0))
    if cross:
        torch.testing.assert_close(often.covariance, torch.cov(x.double().T, correction=0))


def test_a_mean_of_a_thousand_deviations_costs_no_digits():
    x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0)) + 1000
    moments = Moments(3, cross=True)
    moments.add(x)
    torch.testing.assert_close(moments.covariance, torch.cov(x.double().T, correction=0), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_is_named(bad):
    with pytest.raises(InputError, match="inputs of block 3 are not finite"):
        Moments(2, name="inputs of block 3").add(torch.tensor([[1.0, bad], [0.0, 0.0]]))


def test_pairs_of_outputs():
    generator = torch.Generator().manual_seed(0)
    o, y = torch.randn(50, 4, generator=generator), torch.randn(50, 4, generator=generator)
    y[:, 3] = 2.0
    moments = PairMoments(4)
    moments.add(o[:20], y[:20])
    moments.add(o[20:], y[20:])
    pair = moments.fit()
    expected = [torch.corrcoef(torch.stack([o[:, c], y[:, c]]))[0, 1].item() for c in range(3)]
    torch.testing.assert_close(pair.correlation, torch.tensor([*expected, 0.0]).double(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(pair.error, (o - y).double().square().mean(0))

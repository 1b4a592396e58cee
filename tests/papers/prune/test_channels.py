"""Channels in feature space: by hand, against LoRAP's score, and where no feature space is found."""

import pytest
import torch

from icml25cli.papers.prune import channels
from icml25cli.papers.prune.channels import feature_basis, feature_scores, keep_channels


def problem(seed: int = 0, d: int = 6, f: int = 20):
    generator = torch.Generator().manual_seed(seed)
    gate, up = torch.randn(2, f, d, generator=generator)
    down = torch.randn(d, f, generator=generator)
    x, z = torch.randn(100, d, generator=generator), torch.randn(100, f, generator=generator)
    y = z @ down.T
    centred = (y - y.mean(0)).double()
    return (gate, up), down, x.double().norm(dim=0), z.double().norm(dim=0), centred.T @ centred


def test_by_hand():
    # Outputs vary along the axes with variances 3 and 1: omega = sigmoid(3/2), sigmoid(1/2).
    gate, up = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[2.0, 2.0], [0.0, 0.0]])
    down = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    norms, inner = torch.tensor([3.0, 4.0]).double(), torch.tensor([10.0, 1.0]).double()
    basis = feature_basis(torch.diag(torch.tensor([3.0, 1.0])).double())
    scores = feature_scores((gate, up), down, norms, inner, basis)
    omega = torch.sigmoid(torch.tensor([1.5, 0.5]).double())
    torch.testing.assert_close(
        scores, torch.stack([3 + 10 + 10 * 2 * omega[0], 8 + 1 * 3 * omega[1]]), rtol=1e-6, atol=0
    )


def test_as_defined_over_all_directions():
    inward, down, norms, inner, scatter = problem()
    values, vectors = torch.linalg.eigh(scatter)
    omega = torch.sigmoid(values / values.mean())
    expected = inner * ((vectors.T @ down.double()) * omega[:, None]).norm(dim=0)
    expected += sum((weight.double() * norms).norm(dim=1) for weight in inward)
    torch.testing.assert_close(
        feature_scores(inward, down, norms, inner, feature_basis(scatter)), expected, rtol=1e-5, atol=0
    )


def test_the_scale_of_the_scatter_does_not_matter():
    inward, down, norms, inner, scatter = problem()
    scores = (feature_scores(inward, down, norms, inner, feature_basis(scatter * scale)) for scale in (1, 1e-3))
    torch.testing.assert_close(*scores, rtol=1e-5, atol=0)


def test_a_feature_space_changes_lorap_s_score_and_no_more_than_by_half():
    inward, down, norms, inner, scatter = problem()
    lorap = feature_scores((), down, norms, inner, None)
    torch.testing.assert_close(lorap, inner * down.double().norm(dim=0))
    rotated = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1)))[0]
    omega, vectors = feature_basis(scatter)  # type: ignore[misc]
    for basis in ((omega, vectors), (omega, rotated)):
        ratio = feature_scores((), down, norms, inner, basis) / lorap
        assert 0.5 <= ratio.min() < 0.98
        assert ratio.max() <= 1
    one, other = (feature_scores(inward, down, norms, inner, basis) for basis in ((omega, vectors), (omega, rotated)))
    assert (one - other).abs().max() > 1e-3


def test_a_network_without_a_gate():
    (_, up), down, norms, inner, scatter = problem()
    both, alone = (feature_scores(inward, down, norms, inner, feature_basis(scatter)) for inward in ((up, up), (up,)))
    torch.testing.assert_close(both - alone, (up.double() * norms).norm(dim=1))


def test_outputs_that_never_vary_weigh_all_directions_alike():
    basis = feature_basis(torch.zeros(3, 3).double())
    assert basis is not None
    assert basis[0].tolist() == [0.5, 0.5, 0.5]


# --- where eigh fails --------------------------------------------------------------------------------------------


def failing(dtypes: set[torch.dtype]):
    real = torch.linalg.eigh

    def eigh(matrix: torch.Tensor):
        if matrix.dtype in dtypes:
            raise RuntimeError("did not converge")  # as torch.linalg.LinAlgError is
        return real(matrix)

    return eigh


def test_a_decomposition_that_fails_is_tried_in_float64(monkeypatch):
    inward, down, norms, inner, scatter = problem()
    expected = feature_scores(inward, down, norms, inner, feature_basis(scatter))
    monkeypatch.setattr(channels.torch.linalg, "eigh", failing({torch.float32}))
    basis = feature_basis(scatter)
    assert basis is not None
    assert basis[1].dtype == torch.float64
    torch.testing.assert_close(feature_scores(inward, down, norms, inner, basis), expected, rtol=1e-5, atol=0)


def test_one_that_fails_in_float64_too_is_done_without_and_said(monkeypatch):
    inward, down, norms, inner, scatter = problem()
    monkeypatch.setattr(channels.torch.linalg, "eigh", failing({torch.float32, torch.float64}))
    with pytest.warns(UserWarning, match=r"feature space of layers.3.mlp.down_proj could not be found"):
        basis = feature_basis(scatter, "layers.3.mlp.down_proj")
    expected = feature_scores(inward, down, norms, inner, None)
    torch.testing.assert_close(feature_scores(inward, down, norms, inner, basis), expected)


# --- what stays --------------------------------------------------------------------------------------------------


def test_the_lowest_hundredth_stays_and_those_above_it_go():
    scores = torch.arange(200.0).flip(0)  # channel 199 has the lowest
    assert keep_channels(scores, 150, 0.01) == (*range(148), 198, 199)
    assert keep_channels(scores, 150, 0.0) == tuple(range(150))
    assert keep_channels(scores, 1, 0.01) == (199,)

"""Rotations: exact Hadamard matrices, orthogonality at any width, and the flattening they exist for."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize.rotation import KINDS, Rotation, haar, paley, sylvester

WIDTHS = [1, 2, 3, 7, 8, 12, 20, 28, 64, 172, 257, 263, 576, 704, 768, 1031, 1536, 2048]


def dense(rotation: Rotation) -> torch.Tensor:
    return rotation.forward(torch.eye(rotation.n, dtype=torch.float64))


# Orders over prime fields of type I and II, over GF(9), GF(25), GF(27) and GF(49), GF(121), GF(343).
@pytest.mark.parametrize("order", [4, 12, 20, 28, 36, 44, 52, 60, 76, 84, 100, 108, 140, 148, 244, 344, 464])
def test_paley_matrices_are_exactly_hadamard(order):
    matrix = paley(order).astype(np.int64)
    assert set(np.unique(matrix)) == {-1, 1}
    assert np.array_equal(matrix @ matrix.T, order * np.eye(order))


def test_paley_twelve_is_the_quadratic_residues_of_eleven():
    # Row for the field element 0: chi(0 - b) = -chi(b), and the squares modulo 11 are 1, 3, 4, 5, 9.
    row = paley(12)[1, 1:]
    assert list(np.flatnonzero(row == -1)) == [1, 3, 4, 5, 9]


@pytest.mark.parametrize("order", [2, 6, 40, 92, 172])
def test_orders_without_a_paley_matrix_are_refused(order):
    with pytest.raises(InputError, match=str(order)):
        paley(order)


def test_sylvester_four():
    assert sylvester(4).tolist() == [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]


@pytest.mark.parametrize(
    ("n", "orders"),
    [
        (5120, [20, 256]),
        (14336, [28, 512]),
        (13824, [108, 128]),
        (11008, [344, 32]),
        (1536, [12, 128]),
        (576, [36, 16]),
    ],
)
def test_the_dense_factor_is_the_smallest_hadamard_order(n, orders):
    plan = Rotation("hadamard", n).plan
    assert [plan[0], int(np.prod([order for _, order in plan[1:]]))] == [("paley", orders[0]), orders[1]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", WIDTHS)
def test_the_rotation_is_orthogonal_at_any_width(kind, n):
    matrix = dense(Rotation(kind, n, seed=3))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(n, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize("n", [5120, 11008])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_wide_rotations_keep_lengths_and_angles(kind, n):
    x = torch.randn(4, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = Rotation(kind, n).forward(x)
    torch.testing.assert_close(y @ y.T, x @ x.T, rtol=1e-11, atol=1e-10)
    assert (y - x).norm() > x.norm()  # it does turn


@pytest.mark.parametrize("n", [n for n in WIDTHS if n not in (1, 3, 7, 172, 257, 263, 1031)])
def test_hadamard_entries_are_all_of_one_size(n):
    for kind in ("hadamard", "random-hadamard"):
        np.testing.assert_allclose(dense(Rotation(kind, n)).abs().numpy(), n**-0.5, rtol=1e-12)


def test_the_fast_transform_equals_the_kronecker_product_of_its_factors():
    rotation = Rotation("random-hadamard", 384, seed=5)  # 12 x 32, with signs
    signs = dense(rotation)[:, 0].sign()  # column 0 of every normalised Hadamard factor here is +-1 of known sign
    product = np.kron(paley(12), sylvester(32)) / 384**0.5
    signs = signs * torch.from_numpy(np.sign(product[:, 0]).copy())
    torch.testing.assert_close(dense(rotation), torch.from_numpy(product) * signs[:, None], atol=1e-12, rtol=0)
    assert 100 < (signs < 0).sum() < 284


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 400),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32 - 1),
    lead=st.sampled_from([(), (3,), (2, 5)]),
)
def test_inverse_undoes_forward_in_float32(n, kind, seed, lead):
    rotation = Rotation(kind, n, seed)
    x = torch.randn(*lead, n, generator=torch.Generator().manual_seed(seed % 1000))
    y = rotation.forward(x)
    assert y.shape == x.shape
    assert y.dtype == torch.float32
    torch.testing.assert_close(rotation.inverse(y), x, atol=3e-6, rtol=0)


@pytest.mark.parametrize("n", [7, 96, 172, 263])
@pytest.mark.parametrize("kind", KINDS)
def test_conjugate_is_the_second_moment_of_rotated_inputs(kind, n):
    x = torch.randn(50, n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    hessian, rotation = x.T @ x, Rotation(kind, n, seed=2)
    y = rotation.forward(x)
    before = hessian.clone()
    torch.testing.assert_close(rotation.conjugate(hessian), y.T @ y, atol=1e-10, rtol=0)
    assert torch.equal(hessian, before)


def test_many_chunks_give_what_one_row_at_a_time_gives():
    rotation = Rotation("random-hadamard", 2048)
    x = torch.randn(300, 2048, generator=torch.Generator().manual_seed(0))  # more rows than one chunk holds
    one_by_one = torch.stack([rotation.forward(row) for row in x])
    torch.testing.assert_close(rotation.forward(x), one_by_one, atol=2e-6, rtol=0)
    hessian = x[:, :2048].T @ x
    panel = Rotation("hadamard", 2048).conjugate(hessian)
    torch.testing.assert_close(panel, panel.T, atol=2e-3, rtol=0)


@pytest.mark.parametrize("n", [1, 40, 172, 263, 1536])
@pytest.mark.parametrize("kind", KINDS)
def test_a_spec_survives_json_and_gives_the_same_bits(kind, n):
    rotation = Rotation(kind, n, seed=2**40)
    copy = Rotation.from_spec(json.loads(json.dumps(rotation.spec())))
    x = torch.randn(3, n, generator=torch.Generator().manual_seed(0))
    assert copy == rotation
    assert torch.equal(copy.forward(x), rotation.forward(x))


def test_the_seed_decides_signs_and_haar_factor_for_ever():
    # Written down once: a file made today must be read the same way later.
    ones = torch.ones(8, dtype=torch.float64)
    signed = Rotation("random-hadamard", 8, seed=1).forward(ones) * 8**0.5
    assert signed.round().tolist() == [-6, -2, -2, 2, 2, -2, -2, 2]
    turned = Rotation("orthogonal", 6, seed=1).forward(torch.arange(1.0, 7.0, dtype=torch.float64))
    written = [2.275366611898, -3.801864353708, -4.499001072305, 2.412254134718, -6.139038335571, 2.760572743614]
    np.testing.assert_allclose(turned.numpy(), written, rtol=1e-11)
    assert not torch.equal(Rotation("random-hadamard", 8, seed=2).forward(ones), signed / 8**0.5)


def test_haar_matrices_have_no_preferred_direction():
    # E[tr Q] = 0 and E[(tr Q)^2] = 1 under Haar measure; without the sign correction the trace of QR is far from 0.
    traces = np.array([np.trace(haar(6, seed)) for seed in range(400)])
    assert abs(traces.mean()) < 4 / 400**0.5
    assert abs((traces**2).mean() - 1) < 4 * (2 / 400) ** 0.5


@pytest.mark.parametrize("n", [576, 704, 1031, 1536, 2048])
@pytest.mark.parametrize("kind", ["random-hadamard", "orthogonal"])
def test_an_outlier_coordinate_is_spread_over_all(kind, n):
    x = torch.randn(64, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[:, 5] = 50  # one channel as in the inputs of language models
    y = Rotation(kind, n).forward(x)

    def peak(rows):  # largest entry over root mean square, by row
        return (rows.abs().amax(1) / rows.square().mean(1).sqrt()).mean()

    assert peak(x) > 15
    assert peak(y) < 5  # Gaussian rows of this width peak at 3.2 to 3.8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [8, 263])
def test_numpy_arrays_come_back_as_numpy_arrays(kind, n):
    rotation = Rotation(kind, n)
    x = np.random.default_rng(0).standard_normal((5, n), dtype=np.float32)
    x.flags.writeable = False  # as memory-mapped files are
    y = rotation.forward(x)
    assert isinstance(y, np.ndarray)
    assert y.dtype == np.float32
    assert np.array_equal(y, rotation.forward(torch.from_numpy(x.copy())).numpy())


def test_bad_rotations_are_named():
    with pytest.raises(InputError, match="givens"):
        Rotation("givens", 8)
    with pytest.raises(InputError, match="width"):
        Rotation("hadamard", 0)
    with pytest.raises(InputError, match=r"width 8 .* width 9"):
        Rotation("hadamard", 8).forward(torch.zeros(2, 9))
    with pytest.raises(InputError, match="seed is missing"):
        Rotation.from_spec({"kind": "hadamard", "n": 8})
    with pytest.raises(InputError, match="factors"):
        Rotation.from_spec({"kind": "hadamard", "n": 8, "seed": 0, "factors": [["paley", 8]]})


@pytest.mark.parametrize(
    "change", [{"n": float("inf")}, {"n": "8"}, {"n": 8.0}, {"seed": None}, {"kind": ["none"]}, {"factors": 8}]
)
def test_a_spec_of_other_types_names_the_field(change):
    with pytest.raises(InputError, match=f"the field {next(iter(change))} is missing or of another type"):
        Rotation.from_spec(Rotation("hadamard", 8).spec() | change)

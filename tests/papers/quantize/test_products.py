"""Products from codes against float64 products of what the codes stand for, panel by panel, and what has no product."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import InputError, OutputError
from icml25cli.papers.quantize import products
from icml25cli.papers.quantize.arrays import EncodedArray, encode_array
from icml25cli.papers.quantize.lattice import voronoi_decode
from icml25cli.papers.quantize.packing import unpack
from icml25cli.papers.quantize.products import dot
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.scales import reference_code


def coded(rows: int, width: int, seed: int = 0, *, q: int = 14, kind: str = "random-hadamard", turn: int = 0):
    x = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
    return x, encode_array(x, reference_code("weights", q), Rotation(kind, width, turn))


def exact(a: EncodedArray, b: EncodedArray) -> np.ndarray:
    """By the definition: integers 2t of the readable decoder, blocks scaled one by one."""

    def parts(x: EncodedArray):
        digits, beta_index = unpack(x.packed, x.code.q, len(x.code.betas))
        doubled = 2 * voronoi_decode(digits, x.code.q).astype(np.float64)
        doubled.reshape(len(doubled), -1)[:, x.shape[-1] :] = 0
        assert (doubled == np.rint(doubled)).all()
        return doubled, np.array(x.code.betas, np.float32).astype(np.float64)[beta_index]

    (s, alpha), (t, beta) = parts(a), parts(b)
    sums = np.einsum("ibe,ib,jbe,jb->ij", s, alpha, t, beta) / 4
    return sums * a.scales[:, None].astype(np.float64) * b.scales.astype(np.float64)


def lengths(x: EncodedArray) -> np.ndarray:
    return np.sqrt(np.diag(exact(x, x)))


@pytest.mark.parametrize(
    ("width", "kind"), [(8, "none"), (100, "random-hadamard"), (3, "hadamard"), (64, "orthogonal")]
)
def test_products_are_those_of_the_definition(tmp_path, width, kind):
    _, a = coded(7, width, kind=kind)
    _, b = coded(11, width, seed=1, q=13, kind=kind)
    done = dot(a, b, output=tmp_path / "p.npy")
    out = np.load(tmp_path / "p.npy")
    assert (out.dtype, out.shape, done.shape) == (np.float32, (7, 11), (7, 11))
    error = np.abs(out - exact(a, b)) / (lengths(a)[:, None] * lengths(b))
    assert error.max() < 1e-6
    assert done.first == tuple(out.ravel()[:6])
    assert (done.smallest, done.largest) == (out.min(), out.max())
    assert done.mean == pytest.approx(out.mean(dtype=np.float64))


def test_they_are_products_of_the_decoded_rows_though_no_rotation_is_undone(tmp_path):
    (_, a), (_, b) = coded(20, 96), coded(30, 96, seed=1)
    dot(a, b, output=tmp_path / "p.npy")
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), a.decode() @ b.decode().T, atol=1e-4)


def test_they_miss_products_of_the_rows_by_what_the_code_promises(tmp_path):
    (x, a), (y, b) = coded(200, 512), coded(200, 512, seed=1)
    dot(a, b, output=tmp_path / "p.npy")
    error = np.square(np.load(tmp_path / "p.npy") - x @ y.T).mean() / 512
    one = 0.00691  # of the weight scales, in either factor
    assert error == pytest.approx(2 * one + one**2, rel=0.05)


def test_pairs_are_the_diagonal(tmp_path):
    (_, a), (_, b) = coded(50, 40), coded(50, 40, seed=1)
    assert dot(a, b, pairs=True, output=tmp_path / "pairs.npy").shape == (50,)
    dot(a, b, output=tmp_path / "all.npy")
    np.testing.assert_allclose(np.load(tmp_path / "pairs.npy"), np.load(tmp_path / "all.npy").diagonal(), rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40), st.integers(0, 3))
def test_one_way_round_is_the_other_transposed(tmp_path_factory, n, m, width, seed):
    directory = tmp_path_factory.mktemp("p")
    (_, a), (_, b) = coded(n, width, seed), coded(m, width, seed + 1)
    dot(a, b, output=directory / "ab.npy")
    dot(b, a, output=directory / "ba.npy")
    np.testing.assert_allclose(np.load(directory / "ab.npy"), np.load(directory / "ba.npy").T, rtol=1e-6, atol=1e-6)


def test_panels_make_no_difference_and_bound_memory(tmp_path, monkeypatch):
    (_, a), (_, b) = coded(2000, 256), coded(1000, 256, seed=1)
    dot(a, b, output=tmp_path / "whole.npy")
    monkeypatch.setattr(products, "_PANEL_VALUES", 2**12)
    monkeypatch.setattr(products, "_PANEL_PRODUCTS", 2**15)
    tracemalloc.start()
    dot(a, b, output=tmp_path / "panels.npy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(np.load(tmp_path / "panels.npy"), np.load(tmp_path / "whole.npy"), rtol=1e-6, atol=1e-5)
    assert peak < 2000 * 256  # a quarter of the left side in float32, a sixteenth of the products


def test_zero_rows_have_products_of_zero(tmp_path):
    x = np.zeros((3, 16), np.float32)
    a = encode_array(x, reference_code("weights", 14))
    done = dot(a, encode_array(x + 1, reference_code("weights", 14)))
    assert (done.smallest, done.largest, done.mean) == (0, 0, 0)


@pytest.mark.parametrize(
    ("b", "pairs", "says"),
    [
        (coded(5, 24)[1], False, "16 and of 24"),
        (coded(5, 16, turn=1)[1], False, "seed 0 and random-hadamard of seed 1"),
        (coded(5, 16, kind="none")[1], False, "seed 0 and none"),
        (coded(6, 16)[1], True, "5 rows and 6 rows"),
    ],
    ids=["width", "seed", "rotation", "pairs"],
)
def test_what_has_no_products_is_refused(tmp_path, b, pairs, says):
    with pytest.raises(InputError, match=says):
        dot(coded(5, 16)[1], b, pairs=pairs, output=tmp_path / "p.npy")
    assert list(tmp_path.iterdir()) == []


def test_no_rotation_and_the_rotation_none_are_one():
    x = np.ones((2, 8), np.float32)
    code = reference_code("weights", 14)
    assert dot(encode_array(x, code), encode_array(x, code, Rotation("none", 8))).shape == (2, 2)


def test_a_product_beyond_float32_is_refused_and_leaves_no_file(tmp_path):
    x = np.full((2, 8), 1e30, np.float32)
    a = encode_array(x, reference_code("weights", 14))
    with pytest.raises(InputError, match="too large for float32"):
        dot(a, a, output=tmp_path / "p.npy")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept_without_force(tmp_path):
    _, a = coded(3, 8)
    (tmp_path / "p.npy").write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        dot(a, a, output=tmp_path / "p.npy")
    assert (tmp_path / "p.npy").read_text() == "mine"
    dot(a, a, output=tmp_path / "p.npy", force=True)
    assert np.load(tmp_path / "p.npy").shape == (3, 3)

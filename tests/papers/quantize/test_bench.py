"""The bench against published tables, closed forms, and the encoder that users call."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize import bench, levels
from icml25cli.papers.quantize.arrays import encode_array
from icml25cli.papers.quantize.bounds import matmul_bound
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.scales import parse_scales, reference_code

# Code, distortion, bits raw, bits entropy, gap, on N(0, 1).
KNOWN = {
    "activations": (reference_code("activations", 14), 0.00646, 4.0574, 3.965, 0.328),
    "gaussian": (reference_code("gaussian", 14), 0.00596, 4.0574, 4.001, 0.306),
    "k = 2": (parse_scales("4.375,7.75", 14), 0.00873, 3.9324, 3.873, 0.453),
    "k = 6": (parse_scales("2.75,3.375,3.875,4.5,5.375,8.5", 14), 0.00519, 4.1305, 4.101, 0.306),
    "q = 13": (reference_code("gaussian", 13), 0.00691, 3.9504, 3.895, 0.306),
    "q = 12": (reference_code("gaussian", 12), 0.00813, 3.835, 3.780, 0.308),
    "q = 10": (reference_code("gaussian", 10), 0.01176, 3.572, 3.518, 0.313),
    "q = 8": (reference_code("gaussian", 8), 0.01857, 3.25, 3.198, 0.323),
    "q = 7": (reference_code("gaussian", 7), 0.02459, 3.057, 3.007, 0.334),
    "q = 16": (reference_code("gaussian", 16), 0.00454, 4.25, 4.193, 0.302),
    "weights": (reference_code("weights", 14), 0.00691, 4.0574, None, None),
    "keys": (reference_code("keys", 14), 0.00633, 4.0574, None, None),
    "values": (reference_code("values", 14), 0.00733, 4.0574, None, None),
    "first": (replace(reference_code("activations", 14), rule="first"), 0.00649, 4.0574, None, None),
    "simplified": (replace(reference_code("activations", 14), simplified=True), 0.00800, 4.0574, None, None),
}


@pytest.fixture(scope="module")
def table():
    codes = [row[0] for row in KNOWN.values()]
    return bench.rate_distortion(bench.gaussian_rows(1_000_000, 4096, 0), codes, bench.gaussian_blocks(0))


@pytest.mark.parametrize("name", KNOWN)
def test_the_table_on_gaussian_numbers(table, name):
    point = table[list(KNOWN).index(name)]
    code, distortion, raw, coded, gap = KNOWN[name]
    assert point.code == code
    assert point.distortion == pytest.approx(distortion, rel=0.01)
    assert point.bits_raw == pytest.approx(raw, abs=5e-4)
    if coded is not None:
        assert point.bits_entropy == pytest.approx(coded, abs=2e-3)
        assert point.gap == pytest.approx(gap, abs=0.01)


@pytest.mark.parametrize(
    ("method", "distortion", "bits"),
    [
        ("uniform", 0.01154, 4),
        ("lloyd-max", 0.00950, 4),
        ("absmax by row", 0.0248, 4 + 16 / 4096),
        ("rtn by 128", 0.0100, 4 + (16 + 4) / 128),
    ],
)
def test_scalar_quantisers_of_four_bits_at_what_they_store(table, method, distortion, bits):
    (point,) = [point for point in table if point.method == method and point.levels in (15, 16)]
    assert point.distortion == pytest.approx(distortion, rel=0.015)
    assert point.bits_raw == point.bits == pytest.approx(bits, abs=1e-12)


def test_an_entropy_coded_uniform_quantiser_takes_fewer_bits_than_the_lattice_and_is_said_to(table):
    activations = table[0]
    assert activations.scalar_bits == pytest.approx(3.893, rel=0.003)  # h(X) - log2 of the step, sqrt(12 D)
    assert activations.scalar_bits < activations.bits_entropy
    best = min(table[: len(KNOWN)], key=lambda point: point.gap)
    assert table[-1].method == "entropy-coded uniform"
    assert (table[-1].distortion, table[-1].bits_entropy, table[-1].bits_raw) == (
        best.distortion, best.scalar_bits, None,
    )  # fmt: skip


def test_standard_errors_cover_what_other_numbers_give():
    codes = [KNOWN["activations"][0]]  # its last scale is large: no rare overload, of a hundred times the usual error
    others = [
        bench.rate_distortion(bench.gaussian_rows(100_000, 1024, seed), codes, bench.gaussian_blocks(0))
        for seed in range(1, 13)
    ]
    for i in (0, [point.method for point in others[0]].index("absmax by row")):
        found = np.array([points[i].distortion for points in others])
        claimed = np.mean([points[i].distortion_se for points in others])
        assert 0.5 < found.std(ddof=1) / claimed < 1.7  # of 12 samples, chi-squared at 0.2 %


@pytest.fixture(scope="module")
def products():
    codes = [reference_code("activations", q) for q in (14, 8, 32)]
    points = bench.products(codes, n=4096, m=1024, seed=0)
    return {(point.method, point.levels): point for point in points}


@pytest.mark.parametrize(
    ("method", "levels", "error", "ratio"),
    [
        ("nestquant", 14, 0.01302, 1.59),
        ("nestquant", 8, 0.0406, 1.64),
        ("nestquant", 32, 0.00241, 1.54),
        ("absmax by row", 15, 0.0499, None),
        ("absmax by row", 31, 0.0109, None),
    ],
)
def test_the_error_of_products(products, method, levels, error, ratio):
    point = products[method, levels]
    assert point.error == pytest.approx(error, rel=0.02)
    assert 0 < point.error_se < 0.01 * error
    assert point.bound == matmul_bound(point.bits)
    if ratio is not None:
        assert point.ratio == pytest.approx(ratio, rel=0.02)


def test_at_the_same_rate_products_of_integers_err_more_than_three_times_as_much(products):
    lattice, integers = products["nestquant", 14], products["absmax by row", 15]
    assert lattice.bits < integers.bits
    assert integers.error / lattice.error == pytest.approx(3.83, rel=0.04)


def test_a_matrix_is_measured_as_the_encoder_codes_it():
    generator = np.random.default_rng(0)
    x = (generator.standard_normal((300, 100)) * np.exp(generator.standard_normal((300, 1)))).astype(np.float32)
    code, turn = reference_code("weights", 14), Rotation("random-hadamard", 100, 3)
    rows = bench.matrix_rows(x, turn, samples=x.size, seed=0)
    point = bench.rate_distortion(rows, [code], bench.gaussian_blocks(0))[0]
    encoded = encode_array(x, code, turn)
    assert point.distortion == pytest.approx(encoded.relative_mse, rel=1e-5)
    assert point.overloads == encoded.overloads
    plain = encoded.bits
    assert point.bits_raw is not None
    assert point.bits_raw * x.size == pytest.approx(plain.code * 104 / 100 + plain.beta + plain.scale, rel=1e-9)


def test_what_is_measured_of_a_matrix_does_not_depend_on_its_unit():
    x = np.random.default_rng(0).standard_normal((50, 64)).astype(np.float32)
    turn = Rotation("hadamard", 64)
    tables = [
        bench.rate_distortion(
            bench.matrix_rows(x * unit, turn, samples=x.size, seed=0),
            [reference_code("weights", 14)],
            bench.gaussian_blocks(0),
        )
        for unit in (np.float32(1), np.float32(2**-6))
    ]
    for one, other in zip(*tables, strict=True):
        assert one.distortion == pytest.approx(other.distortion, rel=1e-5)
        assert one.bits == other.bits


def test_of_a_large_matrix_so_many_rows_are_used():
    x = np.random.default_rng(0).standard_normal((100, 16)).astype(np.float32)
    rows = bench.matrix_rows(x, Rotation("none", 16), samples=170, seed=0)
    assert rows.values.shape == (10, 16)
    assert len(np.unique(rows.values[:, 0])) == 10


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (np.zeros((3, 8), np.float32), "zeros"),
        (np.full((3, 8), np.nan, np.float32), "row 0"),
        (np.ones((3, 8), np.int32), "int32"),
        (np.ones((0, 8), np.float32), r"\(0, 8\)"),
    ],
    ids=["zeros", "nan", "integers", "empty"],
)
def test_a_matrix_that_cannot_be_measured(x, says):
    with pytest.raises(InputError, match=says):
        bench.matrix_rows(x, Rotation("none", 8), samples=100, seed=0)


# --- scalar quantisers, against Max, Quantizing for Minimum Distortion (1960), tables 1 and 2 ----------------------


@pytest.fixture(scope="module")
def normal():
    return np.random.default_rng(5).standard_normal(1_000_000).astype(np.float32)


@pytest.mark.parametrize(("count", "step"), [(2, 1.596), (4, 0.9957), (8, 0.5860), (16, 0.3352)])
def test_the_best_uniform_step(normal, count, step):
    assert levels.uniform_step(normal, count) == pytest.approx(step, rel=0.01)


@pytest.mark.parametrize(
    ("count", "half", "error"),
    [(2, [0.7980], 0.3634), (4, [0.4528, 1.510], 0.1175), (8, [0.2451, 0.7560, 1.344, 2.152], 0.03454)],
)
def test_the_values_of_lloyd_and_max(normal, count, half, error):
    values = levels.lloyd_max(normal, count)
    np.testing.assert_allclose(values, [*(-x for x in reversed(half)), *half], rtol=0.01)
    assert np.square(normal - levels.to_nearest(normal, values)).mean() == pytest.approx(error, rel=0.01)


def test_a_value_is_rounded_to_the_nearest_level():
    x = np.array([-9, -0.51, -0.1, 0.1, 0.49, 0.9, 9], np.float32)
    np.testing.assert_allclose(levels.to_uniform(x, 1.0, 4), [-1.5, -0.5, -0.5, 0.5, 0.5, 0.5, 1.5])
    np.testing.assert_allclose(levels.to_nearest(x, np.array([-1.0, 0.2, 1.0])), [-1, -1, 0.2, 0.2, 0.2, 1, 1])


@pytest.mark.parametrize("step", [0.3, 1.0, 2.5])
def test_the_rate_of_an_entropy_coded_quantiser_is_the_integral_over_its_cells(normal, step):
    cells = np.arange(-40, 41)
    p = np.diff(norm.cdf((np.append(cells, 41) - 0.5) * step))
    entropy = -(p[p > 0] * np.log2(p[p > 0])).sum()
    distortion = np.square(normal - np.rint(normal / np.float32(step)) * np.float32(step)).mean(dtype=np.float64)
    rows = normal.reshape(1000, 1000)
    found = levels.entropy_coded_bits(rows, float(distortion), np.full(1000, 1e-6))
    assert found == pytest.approx(entropy, abs=0.004)


def test_where_all_energy_may_be_lost_no_bits_are_needed(normal):
    assert levels.entropy_coded_bits(normal[None], 1.2, np.full(1, 1e-6)) == 0

"""What chance gives, by formula and by permutation; intervals that cover; preparation of rows; correlations."""

import numpy as np
import pytest
from scipy import stats

from icml25cli.core.embeddings import of_array
from icml25cli.papers.align import hsic, overlap, symmetric
from icml25cli.papers.align.layers import sweep
from icml25cli.papers.align.lists import neighbour_lists
from icml25cli.papers.align.measure import measure
from icml25cli.papers.align.metrics import METRICS, Settings
from icml25cli.papers.align.prepared import prepare
from icml25cli.papers.align.redundancy import redundancy
from icml25cli.papers.align.resampling import Null, bca, jackknife, orders, parts
from icml25cli.papers.align.sweep import correlate
from tests.papers.align.make_pair import drawn, known, pair_of

MANY = 4000


def permuted(form, x, y):
    a, b = (form(symmetric.linear_kernel(np.asarray(side, np.float32))) for side in (x, y))
    return symmetric.permuted(a, b, orders(len(x), MANY, 0))


@pytest.mark.parametrize("which", ["known", "skewed"])
def test_moments_of_all_permutations(which):
    """Exact formulas for CKA, biased and not, against many permutations; the second pair has one far row."""
    a, b = known() if which == "known" else drawn(25, 3, 4)
    if which == "skewed":
        a[0] *= 8
    pair = pair_of(a, b)
    sums = hsic.triple(pair.x, pair.y)
    mean, sd = hsic.permutation_moments(sums.xx, sums.yy)
    found = permuted(symmetric.centred, a, b)
    assert mean == pytest.approx(found.mean(), abs=4 * sd / MANY**0.5)
    assert sd == pytest.approx(found.std(), rel=0.08)
    found = permuted(symmetric.u_centred, a, b)
    mean, sd = hsic.unbiased_null(len(a))
    assert mean == pytest.approx(found.mean(), abs=4 * sd / MANY**0.5)
    assert sd == pytest.approx(found.std(), rel=0.08)


def test_biased_cka_of_independent_gaussians():
    """Its chance level is sqrt(pq/((n + p)(n + q)))."""
    x, y = drawn(200, 50, 20, shared=0)
    found = measure(pair_of(x, y), ("cka",))[0]
    assert found.null is not None
    assert found.null.mean == pytest.approx(0.1348, abs=0.005)


def test_mutual_neighbours_by_chance():
    """n = 1906 and k = 10 as in the specification: 0.00525 and 0.00052."""
    mean, sd = overlap.mutual_null(10, 1906, 1906)
    assert (mean, sd) == pytest.approx((0.00525, 0.00052), abs=1e-5)
    a, b = drawn(300, 8, 8, shared=0)
    found = measure(pair_of(a, b, permutations=300), ("mknn",))[0]
    assert found.null is not None
    assert found.null.values is not None
    mean, sd = overlap.mutual_null(10, 300, 300)
    assert found.null.values.mean() == pytest.approx(mean, abs=4 * sd / 300**0.5)
    assert 0.9 * sd < found.null.sd < 1.3 * sd


def test_relabelled_lists_are_those_of_permuted_rows():
    a, _ = drawn(50, 4, 4)
    for of in (None, np.array([3, 8, 20, 21, 49])):
        lists = neighbour_lists(prepare(of_array("x", a)), 6, of)
        order = orders(50, 1, 0, queries=of)[0]
        moved = neighbour_lists(prepare(of_array("x", a[order])), 6, of)
        np.testing.assert_array_equal(lists.permuted(order).index, moved.index)


def test_thinned_lists_are_those_of_fewer_rows():
    a, _ = drawn(60, 4, 4)
    there = np.ones(60, bool)
    there[[0, 7, 31]] = False
    thinned = neighbour_lists(prepare(of_array("x", a)), 20).without(there, 6)
    assert thinned is not None
    np.testing.assert_array_equal(thinned.index, neighbour_lists(prepare(of_array("x", a[there])), 6).index)


def test_orders_keep_groups_and_queries_to_themselves():
    groups, queries = np.arange(40) % 3, np.arange(0, 40, 4)
    for order in orders(40, 20, 0, queries=queries, groups=groups):
        assert sorted(order) == list(range(40))
        np.testing.assert_array_equal(groups[order], groups)
        assert set(order[queries]) == set(queries)


def test_groups_explain_alignment_that_is_theirs():
    rng = np.random.default_rng(0)
    group = np.arange(120) % 4
    centres = [rng.standard_normal((4, 6)) * 5 for _ in range(2)]
    x, y = (centre[group] + rng.standard_normal((120, 6)) for centre in centres)
    found = measure(pair_of(x, y, permutations=100, groups=group), ("ucka", "mknn"))
    for m in found:
        row = m.row()
        assert row["p_value"] == pytest.approx(1 / 101)
        assert m.within is not None
        assert abs(float(m.within.z(float(m.value or 0)) or 0)) < 4


def test_p_values_by_permutation_and_by_bound():
    counted = Null(0.0, 1.0, np.array([0.0, 1.0, 2.0]))
    assert counted.p_value(1.0) == 0.75
    assert Null(0.0, 1.0, exact=True).p_value(3.0) == pytest.approx(0.1)
    assert Null(0.0, 1.0).p_value(3.0) is None


def test_every_metric_has_a_null_and_an_interval():
    a, b = drawn(150, 8, 6)
    for m in measure(pair_of(a, b, "l2", permutations=20, intervals=True), METRICS):
        row = m.row()
        assert row["ci_low"] < row["value"] <= row["ci_high"] <= 1, m.metric
        assert row["null_mean"] < row["value"], m.metric
        assert row["p_value"] == pytest.approx(1 / 21), m.metric


@pytest.mark.parametrize("metric", ["ucka", "mknn", "cknna"])
def test_intervals_are_as_wide_as_values_scatter(metric):
    """Standard errors by the jackknife against the spread over fresh samples."""
    found, errors = [], []
    for seed in range(40):
        rng = np.random.default_rng((seed, 1))
        z = rng.standard_normal((200, 3))
        x = z @ np.eye(3, 6) + 0.5 * rng.standard_normal((200, 6))
        y = z @ np.eye(3, 6) + 0.5 * rng.standard_normal((200, 6))
        m = measure(pair_of(x, y, intervals=True), (metric,))[0]
        assert m.interval is not None
        found.append(m.value)
        errors.append((m.interval.value - m.interval.low) / stats.t.ppf(0.975, 19))
    assert 0.6 < np.median(errors) / np.std(found) < 1.8


def test_the_jackknife_of_a_mean_is_its_standard_error():
    x = np.random.default_rng(0).standard_normal(1000) / 100
    left = [np.delete(x, part).mean() for part in parts(1000, 0)]
    interval = jackknife(float(x.mean()), left)
    assert interval is not None
    width = stats.t.ppf(0.975, 19) * x.std(ddof=1) / 1000**0.5
    assert interval.high - interval.value == pytest.approx(width, rel=0.5)


# --- layers ------------------------------------------------------------------------------------------------------


def test_the_best_of_many_layers_is_large_by_chance():
    rng = np.random.default_rng(0)
    noise = [prepare(of_array("x", rng.standard_normal((64, 8)))) for _ in range(8)]
    for found in sweep(noise[:4], noise[4:], ("ucka", "mknn", "rsa"), Settings(k=5, permutations=100)):
        best, last = found.rows()
        assert best["null_mean"] > last["null_mean"]
        assert best["p_value"] > 0.02
        assert found.values.shape == (4, 4)
        assert found.values[found.best] == found.values.max()


def test_the_aligned_pair_of_layers_is_found():
    a, b = drawn(80, 6, 6)
    rng = np.random.default_rng(1)
    first = [prepare(of_array("x", x)) for x in (rng.standard_normal((80, 6)), a)]
    second = [prepare(of_array("x", x)) for x in (b, rng.standard_normal((80, 6)), rng.standard_normal((80, 3)))]
    for found in sweep(first, second, ("ucka", "mknn", "cka"), Settings(permutations=30)):
        assert found.best == (1, 0)
        assert found.rows()[0]["p_value"] == pytest.approx(1 / 31)


# --- rows as they are compared -----------------------------------------------------------------------------------


def test_rows_are_clamped_then_normalised():
    x = np.array([[3.0, 4], [0, 2], [-100, 0], [1, 1]], np.float32)
    np.testing.assert_allclose(prepare(of_array("x", x))[:2], [[0.6, 0.8], [0, 1]], rtol=1e-6)
    limit = float(np.quantile(np.abs(x), 0.75))
    clamped = prepare(of_array("x", x), "none", 0.75)
    np.testing.assert_allclose(clamped[:], np.clip(x, -limit, limit))
    z = prepare(of_array("x", x), "zscore")[:]
    np.testing.assert_allclose(z, (x - x.mean(0)) / x.std(0, ddof=1), rtol=1e-5)
    flat = prepare(of_array("x", np.hstack([x, np.full((4, 1), 3)])), "zscore")[:]
    np.testing.assert_array_equal(flat[:, 2], 0)


# --- performance and redundancy ----------------------------------------------------------------------------------


def test_correlation_over_models_and_its_interval():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(30)
    y = x + rng.standard_normal(30)
    found = correlate("ucka", list(x), list(y), 0)
    assert found.pearson is not None
    assert found.pearson.value == pytest.approx(np.corrcoef(x, y)[0, 1])
    wanted = stats.bootstrap(
        (x, y), lambda a, b: np.corrcoef(a, b)[0, 1], paired=True, vectorized=False, rng=np.random.default_rng(0)
    ).confidence_interval
    assert (found.pearson.low, found.pearson.high) == pytest.approx((wanted.low, wanted.high), abs=0.06)
    assert correlate("ucka", [1.0, 1, 1, 1], [1.0, 2, 3, 4], 0).pearson is None


def test_the_bootstrap_of_a_mean():
    rows = np.random.default_rng(0).standard_normal((50, 1))
    found = bca(lambda r: float(r.mean()), rows, 0)
    assert found is not None
    assert found.high - found.low == pytest.approx(2 * 1.96 * rows.std() / 50**0.5, rel=0.15)


def test_redundancy_of_copies_and_of_halves():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (900, 2))
    noise = rng.standard_normal((900, 2)) * 0.05
    a, b = (prepare(of_array("x", bits[:, [i]] + noise[:, [i]]), "none") for i in range(2))
    same = redundancy(a, a, bits[:, 0])
    assert same.share is not None
    assert same.share.value > 0.95
    assert same.verdict == "alignment likely informative"
    apart = redundancy(a, b, bits @ [2, 1])
    assert apart.share is not None
    assert apart.share.value < 0.05
    assert apart.verdict == "alignment not a proxy for performance"
    assert apart.first == pytest.approx(np.log(2), abs=0.03)
    assert redundancy(a, b, rng.integers(0, 2, 900)).verdict.startswith("no verdict")

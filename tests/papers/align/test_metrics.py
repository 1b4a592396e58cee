"""Every metric: known answers, what it does not change under, its plain form, and what leaves it undefined."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.embeddings import of_array
from icml25cli.core.errors import InputError
from icml25cli.papers.align import hsic
from icml25cli.papers.align.lists import neighbour_lists
from icml25cli.papers.align.measure import measure
from icml25cli.papers.align.metrics import LINEAR, METRICS, NEIGHBOURS
from icml25cli.papers.align.prepared import prepare
from tests.papers.align.make_pair import drawn, known, pair_of


def values(x, y, names=METRICS, **options) -> dict[str, Any]:
    return {m.metric: m.value for m in measure(pair_of(x, y, **options), names)}


# --- known answers (section 10, P1 to P3) ------------------------------------------------------------------------

KNOWN = {
    "mknn": 0.283333,
    "cycle": 0.895833,
    "cycle_swapped": 0.916667,
    "lcs": 0.1989583,
    "edit": 0.038542,
    "cka": 0.393458,
    "ucka": 0.334356,
    "cknna": 0.288310,
    "cmd": 0.394993,
    "cka_rbf": 0.607729,
}


def test_a_fixed_pair():
    assert values(*known(), KNOWN) == pytest.approx(KNOWN, abs=1e-6)
    a, b = known()
    swapped = values(b, a, ("cknna",))["cknna"]
    assert swapped == pytest.approx(0.289569, abs=1e-6)
    assert values(*known(), ("cknna_sym",))["cknna_sym"] == pytest.approx((0.288310 + 0.289569) / 2, abs=1e-6)


def test_a_representation_is_aligned_with_itself():
    a, _ = known()
    found = values(a, a)
    cycle = {name: found.pop(name) for name in ("cycle", "cycle_swapped")}
    assert cycle == {"cycle": 1, "cycle_swapped": 1}
    assert found.pop("cknna") == pytest.approx(1, abs=2e-6)  # 1e-6 is added to its denominator
    assert found.pop("cknna_sym") == pytest.approx(1, abs=2e-6)
    assert found == pytest.approx(dict.fromkeys(found, 1), abs=1e-6)


def test_orthogonal_kernels_have_no_alignment():
    x, y = np.array([[1.0, -1, 0, 0]]).T, np.array([[0.0, 0, 1, -1]]).T
    assert values(x, y, ("cka",), k=1)["cka"] == pytest.approx(0, abs=1e-12)


def test_all_neighbours_make_cknna_unbiased_cka():
    found = values(*known(), ("cknna", "ucka"), k=95)
    assert found["cknna"] == pytest.approx(found["ucka"], abs=2e-6)


def test_mutual_neighbours_of_permuted_rows_are_chance():
    a, b = drawn(60, 5, 5)
    order = np.random.default_rng(1)
    found = [values(a, b[order.permutation(60)], ("mknn",), k=7)["mknn"] for _ in range(200)]
    assert np.mean(found) == pytest.approx(7 / 59, abs=4 * np.std(found) / 200**0.5)


# --- what they do not change under -------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.01, 100))
def test_turns_scales_and_shifts(seed, scale):
    a, b = drawn(50, 6, 4, seed=seed)
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((6, 6)))[0]
    invariant = ("ucka", "cka", "mknn", "cknna", "procrustes", "rsa", "svcca")
    plain, turned = values(a, b, invariant), values(a @ turn, b, invariant)
    turned.pop("svcca"), plain.pop("svcca")  # which standardises columns, so only their order and sign is free
    assert turned == pytest.approx(plain, abs=2e-5)
    moved = values(scale * a + 3, b, ("ucka", "cka", "procrustes"))
    assert moved == pytest.approx({name: plain[name] for name in moved}, abs=2e-4)
    mapped = values(a @ (turn * np.geomspace(0.05, 5, 6)) @ turn.T, b, ("cca",))
    assert mapped["cca"] == pytest.approx(values(a, b, ("cca",))["cca"], abs=1e-3)


def test_svcca_does_not_change_with_columns_scales():
    a, b = drawn(80, 6, 5)
    assert values(a * np.arange(1, 7), b, ("svcca",), rank=3) == pytest.approx(
        values(a, b, ("svcca",), rank=3), abs=1e-5
    )


# --- the plain form ----------------------------------------------------------------------------------------------


def dense(x, y):
    n = len(x)
    k, l, h = x @ x.T, y @ y.T, np.eye(n) - 1 / n  # noqa: E741

    def biased(a, b):
        return np.trace(a @ h @ b @ h)

    def unbiased(a, b):
        a, b = a - np.diag(np.diag(a)), b - np.diag(np.diag(b))
        total = (a * b.T).sum() + a.sum() * b.sum() / ((n - 1) * (n - 2)) - 2 * (a @ b).sum() / (n - 2)
        return total / (n * (n - 3))

    out = {}
    for name, of in (("ucka", unbiased), ("cka", biased), ("cmd", lambda a, b: (a * b).sum())):
        out[name] = of(k, l) / np.sqrt(of(k, k) * of(l, l))
    return out


@pytest.mark.parametrize("offset", [0, 30])
def test_sums_over_rows_are_the_dense_form(monkeypatch, offset):
    monkeypatch.setattr("icml25cli.papers.align.hsic.STEP", 17)
    a, b = drawn(90, 7, 12)
    a += offset
    assert values(a, b, LINEAR) == pytest.approx(dense(a, b), abs=2e-5)


def test_parts_of_rows_add_up_and_can_be_taken_off():
    a, b = (prepare(of_array("x", side)) for side in drawn(100, 6, 9))
    whole, first, rest = (hsic.triple(a, b, rows) for rows in (None, np.arange(30), np.arange(30, 100)))
    assert (first + rest).values() == pytest.approx(whole.values(), abs=1e-6)
    assert (whole - first).values() == pytest.approx(rest.values(), abs=1e-5)


def test_more_columns_than_rows_change_nothing():
    """Wide matrices are turned into as many columns as rows: svcca and procrustes stay what their plain forms are."""
    a, b = drawn(40, 90, 60)
    a32, b32 = a.astype(np.float32).astype(float), b.astype(np.float32).astype(float)
    bases = []
    for side in (a32, b32):
        z = (side - side.mean(0)) / (side.std(0, ddof=1) + 1e-8)
        bases.append(np.linalg.svd(z, full_matrices=False)[0][:, :5])
    found = values(a, b, ("svcca", "procrustes"), rank=5)
    assert found["svcca"] == pytest.approx(np.linalg.svd(bases[0].T @ bases[1], compute_uv=False).mean(), abs=1e-4)
    x, y = a32 - a32.mean(0), b32 - b32.mean(0)
    nuclear = np.linalg.svd(x.T @ y, compute_uv=False).sum()
    assert found["procrustes"] == pytest.approx(nuclear / np.linalg.norm(x) / np.linalg.norm(y), abs=1e-5)


def test_canonical_correlations_are_those_of_bases():
    a, b = drawn(120, 6, 9)
    qa, qb = (np.linalg.qr(side - side.mean(0))[0] for side in (a, b))
    rho = np.linalg.svd(qa.T @ qb, compute_uv=False)
    found = values(a, b, ("cca", "cca_square", "pwcca"))
    assert found["cca"] == pytest.approx(rho.mean(), abs=1e-4)
    assert found["cca_square"] == pytest.approx((rho**2).mean(), abs=1e-4)
    u = np.linalg.svd(qa.T @ qb)[0]
    weights = np.abs(u[:, :6].T @ qa.T @ (a - a.mean(0))).sum(axis=1)
    assert found["pwcca"] == pytest.approx(weights @ rho / weights.sum(), abs=1e-4)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 9))
def test_lists_agree_as_their_plain_forms(seed, k):
    a, b = drawn(30, 4, 4, seed=seed)
    x, y = (neighbour_lists(prepare(of_array("x", side), "none"), k).index.tolist() for side in (a, b))
    found = values(a, b, [name for name in NEIGHBOURS if "cknna" not in name], k=k)
    assert found["mknn"] == pytest.approx(np.mean([len(set(p) & set(q)) / k for p, q in zip(x, y, strict=True)]))
    assert found["cycle"] == pytest.approx(np.mean([i in {m for j in y[i] for m in x[j]} for i in range(30)]))
    assert found["lcs"] == pytest.approx(np.mean([common(p, q) / k for p, q in zip(x, y, strict=True)]))
    assert found["edit"] == pytest.approx(np.mean([1 - distance(p, q) / k for p, q in zip(x, y, strict=True)]))


def common(p, q):
    if not p or not q:
        return 0
    return 1 + common(p[1:], q[1:]) if p[0] == q[0] else max(common(p[1:], q), common(p, q[1:]))


def distance(p, q):
    table = np.zeros((len(p) + 1, len(q) + 1), int)
    table[:, 0], table[0] = range(len(p) + 1), range(len(q) + 1)
    for i in range(len(p)):
        for j in range(len(q)):
            table[i + 1, j + 1] = min(table[i, j + 1] + 1, table[i + 1, j] + 1, table[i, j] + (p[i] != q[j]))
    return table[-1, -1]


def test_rank_correlation_of_distances():
    from scipy.spatial.distance import pdist
    from scipy.stats import spearmanr

    a, b = drawn(40, 5, 6)
    wanted = np.asarray(spearmanr(pdist(a), pdist(b)))[0]
    assert values(a, b, ("rsa",))["rsa"] == pytest.approx(wanted, abs=1e-4)


def test_half_precision_is_read_as_it_is():
    a, b = (side.astype(np.float16) for side in drawn(60, 5, 6))
    found = values(a, b, ("ucka", "mknn"))
    assert found == pytest.approx(values(a.astype(np.float32), b.astype(np.float32), ("ucka", "mknn")), abs=1e-9)


def test_the_median_width_of_a_gaussian_kernel():
    a, b = drawn(40, 5, 6)
    torch_a, torch_b = torch.from_numpy(a).float(), torch.from_numpy(b).float()
    kernels = []
    for x in (torch_a, torch_b):
        square = torch.cdist(x, x) ** 2
        off = square[~torch.eye(40, dtype=torch.bool)]
        kernels.append(torch.exp(-square / (2 * off.sqrt().quantile(0.5) ** 2)).double().numpy())
    h = np.eye(40) - 1 / 40
    centred = [h @ kernel @ h for kernel in kernels]
    wanted = (centred[0] * centred[1]).sum() / np.linalg.norm(centred[0]) / np.linalg.norm(centred[1])
    assert values(a, b, ("cka_rbf",), sigma=None)["cka_rbf"] == pytest.approx(wanted, abs=1e-4)


# --- where they are not defined ----------------------------------------------------------------------------------


def test_what_is_not_defined_says_why():
    a, b = drawn(30, 20, 4)
    found = {m.metric: m for m in measure(pair_of(a, b, k=1), METRICS)}
    assert found["cca"].value is None
    assert "columns of 30 rows" in str(found["cca"].why)
    assert found["cknna"].value is None
    assert "--k" in str(found["cknna"].why)
    assert found["ucka"].value is not None
    still = {m.metric: m for m in measure(pair_of(np.ones((30, 3)), b), ("ucka", "svcca", "rsa", "procrustes"))}
    assert all(m.value is None and m.why == "a side does not vary" for m in still.values())
    few = measure(pair_of(a, b, queries=5), ("mknn", "cycle", "cknna"))
    assert [m.value is None for m in few] == [False, True, True]


def test_as_many_neighbours_as_rows_are_refused():
    a, b = drawn(10, 3, 3)
    with pytest.raises(InputError, match="k = 10 neighbours of 10 rows"):
        values(a, b, ("mknn",), k=10)


def test_constant_columns_say_nothing():
    a, b = drawn(60, 5, 4)
    wide = np.hstack([a, np.full((60, 1), 7.0)])
    assert values(wide, b, ("svcca", "cca"), rank=3) == pytest.approx(values(a, b, ("svcca", "cca"), rank=3), abs=1e-5)

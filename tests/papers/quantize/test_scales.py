"""Scales against exhaustive search, the published lists, and blocks the sample did not hold."""

from itertools import combinations

import numpy as np
import pytest

from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.quantize.packing import block_bits
from icml25cli.papers.quantize.scales import (
    REFERENCE,
    SAFETY,
    choose_rate,
    choose_scales,
    code_for,
    parse_scales,
    reference_code,
    scales_asked,
)
from icml25cli.papers.quantize.voronoi import LatticeCode


def normal(seed, n):
    return np.random.default_rng(seed).standard_normal((n, 8), dtype=np.float32)


def squared_errors(x, code):
    return ((x - code.quantize(x).values) ** 2).sum(1)


@pytest.mark.parametrize("simplified", [False, True])
@pytest.mark.parametrize("q", [8, 14])
def test_free_scales_are_as_good_as_exhaustive_search(q, simplified):
    x = normal(0, 4000)
    grid = np.arange(2.5, 8, 0.125) / q
    for k in (2, 3):
        chosen = choose_scales(x, q, k, simplified=simplified)
        assert chosen.code.simplified == simplified
        safe = squared_errors(x, LatticeCode(q, (chosen.code.betas[-1],), simplified))
        alone = np.stack([squared_errors(x, LatticeCode(q, (beta,), simplified)) for beta in grid])
        best = min(np.minimum(alone[list(pick)].min(0), safe).mean() for pick in combinations(range(len(grid)), k - 1))
        assert chosen.distortion * 8 == pytest.approx(best, rel=2e-3)
        assert chosen.distortion * 8 == pytest.approx(squared_errors(x, chosen.code).mean(), rel=1e-6)


def test_on_a_gaussian_four_chosen_scales_beat_every_published_list_on_fresh_blocks():
    code = choose_scales(normal(0, 50_000), 14, 4).code
    fresh = normal(1, 200_000)
    mine = squared_errors(fresh, code)
    for kind in ("weights", "activations", "keys", "values"):
        paired = squared_errors(fresh, reference_code(kind, 14)) - mine
        assert paired.mean() > 5 * paired.std() / np.sqrt(len(paired))
    assert mine.mean() / 8 == pytest.approx(0.00604, rel=0.01)
    assert not code.quantize(fresh).overloaded.any()


def test_the_simplified_decoder_wants_scales_of_its_own():
    sample, fresh = normal(0, 50_000), normal(1, 200_000)
    own = choose_scales(sample, 14, 4, simplified=True)
    # Its last scale, for safety, is larger; with that one, the others of the exact decoder do worse.
    betas = choose_scales(sample, 14, 4).code.betas[:3] + own.code.betas[3:]
    others = LatticeCode(14, betas, simplified=True)
    done = own.code.quantize(fresh)
    gain = squared_errors(fresh, others) - ((fresh - done.values) ** 2).sum(1)
    assert gain.mean() > 5 * gain.std() / np.sqrt(len(gain))
    assert ((fresh - done.values) ** 2).mean() == pytest.approx(0.00765, rel=0.01)
    assert not done.overloaded.any()


@pytest.mark.parametrize("q", [2, 3, 5])
@pytest.mark.parametrize("simplified", [False, True])
def test_the_smallest_codes_find_scales_that_overload_nothing(q, simplified):
    x = normal(5, 5000)
    code = choose_scales(x, q, 3, simplified=simplified).code
    assert not LatticeCode(q, code.betas[-1:], simplified).quantize(x).overloaded.any()


@pytest.mark.parametrize("simplified", [False, True])
def test_four_bits_buy_thirteen_levels_and_five_scales(simplified):
    chosen = choose_rate(normal(0, 50_000), 4.0, simplified=simplified)
    assert (chosen.code.q, len(chosen.code.betas), chosen.code.simplified) == (13, 5, simplified)
    assert block_bits(13, 5) == 32  # the fifth scale is free: 5·13⁸ < 2³²
    fresh = squared_errors(normal(1, 1 << 18), chosen.code).mean() / 8
    assert fresh == pytest.approx(0.00804 if simplified else 0.00641, rel=0.01)


@pytest.mark.parametrize("bits", [1.0, 2.3, 3.25, 4.25])
def test_no_code_within_the_rate_does_better(bits):
    x = normal(2, 5000)
    chosen = choose_rate(x, bits)
    assert chosen.code.rate_raw <= bits
    for k in range(1, 9):
        for q in range(2, 17):
            if np.log2(q) + np.log2(k) / 8 <= bits:
                assert chosen.distortion <= choose_scales(x, q, k).distortion * (1 + 1e-6)


def test_a_rate_below_one_bit_is_refused():
    with pytest.raises(InputError, match=r"no code takes 0\.9 bits"):
        choose_rate(normal(0, 100), 0.9)


def never():
    raise AssertionError("a sample was drawn")


@pytest.mark.parametrize("kind", ["weights", "activations", "keys", "values"])
@pytest.mark.parametrize("simplified", [False, True])
def test_a_users_word_names_the_code_of_its_kind(kind, simplified):
    published = LatticeCode(13, tuple(b / 13 for b in REFERENCE[kind]), simplified)
    assert code_for("ref", 13, 3, never, kind=kind, simplified=simplified) == published
    asked = code_for("3.5,4.25", 13, 3, never, kind=kind, simplified=simplified)
    assert asked == LatticeCode(13, (3.5 / 13, 4.25 / 13), simplified)
    fitted = code_for("auto", 13, 3, lambda: normal(3, 2000), kind=kind, simplified=simplified)
    assert fitted == choose_scales(normal(3, 2000), 13, 3, simplified=simplified).code
    zeros = code_for("auto", 13, 3, lambda: np.zeros((4, 8), np.float32), kind=kind, simplified=simplified)
    assert zeros == published


def test_more_scales_lower_the_distortion():
    x = normal(2, 20_000)
    distortion = [choose_scales(x, 14, k).distortion for k in range(1, 9)]
    assert distortion == sorted(distortion, reverse=True)


@pytest.mark.parametrize("degrees", [2, 3])
def test_long_tails_are_covered_with_room_to_spare(degrees):
    x = np.random.default_rng(3).standard_t(degrees, (30_000, 8)).astype(np.float32)
    x /= np.sqrt((x**2).mean())
    chosen = choose_scales(x, 14, 4)
    last = chosen.code.betas[-1]
    assert last == pytest.approx(SAFETY * chosen.largest_needed)
    assert last * 14 > 20
    assert not LatticeCode(14, (last,)).quantize(x * 1.2).overloaded.any()
    assert chosen.distortion < squared_errors(x, reference_code("gaussian", 14)).mean() / 8 / 10


def test_the_needed_scale_is_the_smallest_that_overloads_nothing():
    x = normal(4, 20_000)
    needed = choose_scales(x, 14, 4).largest_needed
    assert not LatticeCode(14, (needed,)).quantize(x).overloaded.any()
    assert LatticeCode(14, (needed - 0.125 / 14,)).quantize(x).overloaded.any()


def test_published_lists_scale_with_q():
    assert reference_code("weights", 14).betas == tuple(b / 14 for b in (4.0, 5.5, 7.0, 18.0))
    assert reference_code("values", 7).betas[-1] == 29.03 / 7
    assert all(beta_q[-1] >= 17 for kind, beta_q in REFERENCE.items() if kind != "gaussian")


def test_a_users_list_is_read_as_multiples_of_one_over_q():
    assert parse_scales("3.5, 4.25,8", 10) == LatticeCode(10, (0.35, 0.425, 0.8))


@pytest.mark.parametrize("text", ["", "a", "4,3", "4,,5", "0,1", "nan", ",".join(map(str, range(1, 18)))])
def test_a_list_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="not a list of scales"):
        parse_scales(text, 14)


@pytest.mark.parametrize(
    "content",
    [
        "[3, 4]",
        '{"weights": "3,4"}',
        '{"weights": null}',
        '{"weights": [1%s]}' % ("0" * 400),
        '{"wieghts": [3, 4]}',
        "{}",
    ],
    ids=["list", "text", "null", "beyond float", "no kind", "empty"],
)
def test_a_file_that_holds_no_scales_is_refused(tmp_path, content):
    file = tmp_path / "scales.json"
    file.write_text(content)
    with pytest.raises(InputError, match="no file of scales"):
        scales_asked(f"@{file}", "weights")


@pytest.mark.parametrize(
    ("blocks", "k", "message"),
    [
        (np.zeros((10, 8), np.float32), 4, "all-zero"),
        (np.zeros((0, 8), np.float32), 4, "empty"),
        (normal(0, 100) * np.float32(1e-6), 16, "no use for 16 scales"),
        (normal(0, 10), 0, "0 scales"),
        (np.full((10, 8), np.nan, np.float32), 4, "not finite"),
    ],
)
def test_samples_without_an_answer_are_refused(blocks, k, message):
    with pytest.raises(InputError, match=message):
        choose_scales(blocks, 14, k)

"""How layers share what goes: the paper's worked example, and targets met on whole heads and channels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import UsageError
from icml25cli.papers.prune.allot import Quota, allot
from icml25cli.papers.prune.anatomy import Anatomy
from icml25cli.papers.prune.methods import Options
from icml25cli.papers.prune.plan import Layer
from icml25cli.papers.prune.ratios import (
    CAP,
    capped,
    cosine_weights,
    paper_alpha,
    paper_layers,
    ratio_quotas,
    removed_parameters,
    threshold_quotas,
    whole_layers,
)
from icml25cli.papers.prune.units import head_units


def anatomy(layers: int, hidden: int, heads: int, kv: int, head_dim: int, inner: int) -> Anatomy:
    matrices = 2 * (heads + kv) * head_dim * hidden + 3 * hidden * inner
    return Anatomy("llama", layers, hidden, heads, kv, head_dim, inner, frozenset(), matrices + 2 * hidden)


LLAMA_7B = anatomy(32, 4096, 32, 32, 128, 11008)
SMOLLM2 = anatomy(30, 576, 9, 3, 64, 1536)
COSINES_30 = [0.005, 0.82, *np.linspace(0.94, 0.98, 26), 0.84, 0.66]


def total(of: Anatomy) -> int:
    return of.layers * of.block_parameters


# --- layers ------------------------------------------------------------------------------------------------------


def test_the_worked_example():
    ratios = capped(cosine_weights((0.5, 0.8, 0.9, 0.95, 0.97, 0.98), 4, 10.0), 0.25)
    np.testing.assert_allclose(ratios, [0, 0, 0.145180, 0.239361, 0.292356, 0.323103], atol=5e-7)


def test_the_paper_s_settings():
    assert [paper_layers(target, 32) for target in (0.2, 0.5, 0.05, 0.8)] == [26, 30, 26, 30]
    assert [paper_layers(target, 30) for target in (0.2, 0.5)] == [24, 28]
    assert [paper_alpha(target) for target in (0.2, 0.5)] == [10, 7]


def test_what_the_cap_takes_from_one_layer_goes_from_the_others_in_proportion():
    # 4 layers' worth of 0.5: of weights 3:0.5:0.25:0.25 the first would lose 1.5, so 1.1 is shared 2:1:1
    np.testing.assert_allclose(capped(np.array([3.0, 0.5, 0.25, 0.25]), 0.5), [0.9, 0.55, 0.275, 0.275])
    # and if that puts another above the cap, once more
    np.testing.assert_allclose(capped(np.array([2.4, 1.2, 0.3, 0.1]), 0.8), [0.9, 0.9, 0.9, 0.5])


@given(
    weights=st.lists(st.floats(0.01, 5), min_size=1, max_size=40).map(np.array),
    ratio=st.floats(0, 1),
    zeros=st.integers(0, 3),
)
def test_capping_keeps_the_sum_and_the_order(weights, ratio, zeros):
    weights = np.concatenate([weights * len(weights) / weights.sum(), np.zeros(zeros)])
    ratios = capped(weights, ratio)
    some = np.count_nonzero(weights)
    assert ratios.sum() == pytest.approx(min(ratio, CAP) * some)
    assert ratios.max() <= CAP
    assert not ratios[some:].any()
    assert (np.diff(ratios[np.argsort(weights)]) >= -1e-12).all()


def test_protected_layers_and_those_of_low_cosine_lose_nothing():
    weights = cosine_weights((0.9, 0.99, 0.5, 0.95), 2, 10.0, protect=(1,))
    assert (weights > 0).tolist() == [True, False, False, True]


# --- targets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [LLAMA_7B, SMOLLM2], ids=["llama-7b", "smollm2"])
@pytest.mark.parametrize("gqa", ["group", "expand", "query"])
@pytest.mark.parametrize("layer_ratio", ["cosine", "uniform"])
@pytest.mark.parametrize("repair", ["linear", "none"])
@pytest.mark.filterwarnings("ignore:heads go in steps", "ignore:.* layers would lose every head")
@settings(deadline=None, max_examples=30)
@given(target=st.floats(0.01, 0.6), seed=st.integers(0, 100))
def test_the_share_removed_is_within_half_a_head_of_the_target(model, gqa, layer_ratio, repair, target, seed):
    cosines = np.random.default_rng(seed).uniform(0.6, 0.99, model.layers).tolist()
    options = Options(target=target, gqa=gqa, layer_ratio=layer_ratio, repair=repair)
    quotas = ratio_quotas(model, options, cosines, total(model), biases=repair == "linear")
    removed = removed_parameters(model, options, quotas, biases=repair == "linear")
    assert abs(removed - target * total(model)) <= model.head_parameters() / 2
    units = head_units(model, gqa)
    assert (quotas.dropped_units < units.count).all()
    assert (quotas.channels >= 8).all()
    if layer_ratio == "uniform":
        assert len(set(quotas.dropped_units.tolist())) == len(set(quotas.channels.tolist())) == 1


def test_what_is_counted_is_what_is_stored():
    # One of two layers loses one of two heads and 8 of 16 channels, and gets two biases.
    model = anatomy(2, 8, 2, 2, 4, 16)
    options = Options(layers=1, target=0.0)
    quotas = replace(
        ratio_quotas(model, options, (0.1, 0.2), total(model), biases=True),
        dropped_units=np.array([0, 1]),
        channels=np.array([16, 8]),
    )
    assert removed_parameters(model, options, quotas, biases=True) == 4 * 4 * 8 + 8 * 3 * 8 - 2 * 8
    # Where two queries share a key-value head, expanding stores copies: 3 left of 4 heads have 3, where 2 were.
    shared = anatomy(1, 8, 4, 2, 4, 16)
    quotas = replace(quotas, dropped_units=np.array([1]), channels=np.array([16]))
    options = replace(options, gqa="expand")
    assert removed_parameters(shared, options, quotas, biases=False) == 2 * 4 * 8 - 2 * 4 * 8


def test_a_target_of_nothing_takes_nothing():
    entries = allot(SMOLLM2, Options(target=0.0), COSINES_30, total(SMOLLM2))
    assert all(not isinstance(entry, Quota) and entry.is_dense(SMOLLM2) for entry in entries)


def test_a_share_of_all_parameters_takes_more_from_the_blocks():
    everything = total(SMOLLM2) + 49152 * 576
    options = Options(target=0.2, of="all")
    with pytest.warns(UserWarning, match="steps of 33% of a layer; --gqa expand"):
        quotas = ratio_quotas(SMOLLM2, options, COSINES_30, everything, biases=True)
    removed = removed_parameters(SMOLLM2, options, quotas, biases=True)
    assert removed == pytest.approx(0.2 * everything, abs=SMOLLM2.head_parameters() / 2)


def test_widths_are_multiples_where_anything_goes():
    quotas = ratio_quotas(
        LLAMA_7B, Options(multiple_of=64), np.linspace(0.8, 0.99, 32).tolist(), total(LLAMA_7B), biases=True
    )
    assert (quotas.channels % 64 == 0).all()
    removed = removed_parameters(LLAMA_7B, Options(), quotas, biases=True)
    assert removed == pytest.approx(0.2 * total(LLAMA_7B), rel=0.005)


@pytest.mark.filterwarnings("ignore:heads go in steps")
def test_every_layer_keeps_eight_channels():
    small = anatomy(4, 16, 4, 4, 4, 24)
    quotas = ratio_quotas(small, Options(target=0.69, layer_ratio="uniform"), [0.9] * 4, total(small), biases=False)
    assert quotas.dropped_units.tolist() == [3] * 4
    assert quotas.channels.tolist() == [8] * 4


@pytest.mark.filterwarnings("ignore:heads go in steps")
def test_every_layer_keeps_a_head_and_those_that_would_not_are_named():
    small = anatomy(4, 16, 4, 4, 4, 240)
    with pytest.warns(UserWarning, match="4 layers would lose every head, and keep one: 0, 1, 2, 3"):
        quotas = ratio_quotas(
            small, Options(target=0.876, layer_ratio="uniform"), [0.9] * 4, total(small), biases=False
        )
    assert quotas.dropped_units.tolist() == [3] * 4


@pytest.mark.filterwarnings("ignore:heads go in steps")
@pytest.mark.parametrize(
    "options", [Options(target=0.95), Options(target=0.5, layers=3), Options(method="flap", target=0.99)]
)
def test_a_target_that_layers_cannot_give_is_refused_with_what_they_can(options):
    scores = (torch.zeros(30, 9).double(), torch.zeros(30, 1536).double()) if options.method == "flap" else None
    with pytest.raises(UsageError, match=r"--target 0\.\d+ is out of reach: at most \d+%"):
        allot(SMOLLM2, options, COSINES_30, total(SMOLLM2), scores)


def test_more_layers_than_there_are_is_refused():
    with pytest.raises(UsageError, match="--layers 31 is more than the 30"):
        ratio_quotas(SMOLLM2, Options(layers=31), COSINES_30, total(SMOLLM2), biases=True)


# --- one threshold, and whole layers -----------------------------------------------------------------------------


def test_one_threshold_takes_the_lowest_scores_of_the_whole_model():
    model = anatomy(2, 4, 2, 2, 4, 16)  # a head is 64 numbers, a channel 12, a block 328
    heads = np.array([[0.5, 3.0], [2.0, 4.0]])
    channels = np.full((2, 16), 1.0)
    channels[1, :5] = 0.1
    options = Options(method="flap", target=(5 * 12 + 64) / total(model))
    with pytest.warns(UserWarning, match="steps of 50% of a layer$"):
        quotas = threshold_quotas(model, options, heads, channels, total(model), biases=False)
    assert quotas.dropped_units.tolist() == [1, 0]
    assert quotas.channels.tolist() == [16, 11]


def test_layers_of_the_highest_cosine_go_whole():
    options = Options(method="depth", target=0.2, protect=(28,))
    cosines = [*np.linspace(0.1, 0.9, 29), 0.3]
    assert whole_layers(SMOLLM2, options, cosines, total(SMOLLM2)) == [22, 23, 24, 25, 26, 27]
    entries = allot(SMOLLM2, options, cosines, total(SMOLLM2))
    removed = [entry.index for entry in entries if isinstance(entry, Layer) and entry.removed]
    assert removed == [22, 23, 24, 25, 26, 27]
    with pytest.raises(UsageError, match="out of reach"):
        whole_layers(SMOLLM2, replace(options, target=1.0), cosines, total(SMOLLM2))


def test_one_threshold_with_shared_heads_counts_what_goes_at_once():
    # Groups (0, 1) and (2, 3): by group the means decide, by query the least of each group goes at the first step.
    model = anatomy(1, 4, 4, 2, 4, 16)
    scores = torch.tensor([[9.0, 1.0, 4.0, 5.0]]).double(), torch.full((1, 16), 100.0).double()
    layers = {}
    for gqa in ("group", "query"):
        options = Options(method="flap", target=100 / total(model), gqa=gqa)
        with pytest.warns(UserWarning, match="steps of 50% of a layer; --gqa expand"):
            layers[gqa] = allot(model, options, [0.9], total(model), scores)[0]
    assert (layers["group"].heads, layers["group"].kv) == ((0, 1), (0,))
    assert (layers["query"].heads, layers["query"].kv) == ((0, 3), (0, 1))

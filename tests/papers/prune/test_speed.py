"""Speed is measured turn by turn: orders, counts, and the speedup of a turn's own pair. No second is asserted."""

import pytest
import torch

from icml25cli.core.errors import InputError
from icml25cli.core.models import load_model, resolve
from icml25cli.papers.prune import speed as module
from icml25cli.papers.prune.speed import Rate, footprint, measure_speed, speedup
from tests.make_models import make_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_model(resolve(make_model(tmp_path_factory.mktemp("models") / "llama")))


def test_medians_and_speedups_by_hand():
    rate = Rate((3.0, 1.0, 2.0, 10.0))
    assert (rate.median, rate.low, rate.high) == (2.5, 1.0, 10.0)
    # Both slow down together: the pair's own ratio is steady where a ratio of medians would not be.
    assert speedup(Rate((20.0, 2.0, 10.0)), Rate((10.0, 1.0, 8.0))) == 2.0


def test_models_take_turns_and_the_first_turn_does_not_count(model, monkeypatch):
    seen = []

    def turn(of, prompt, continuation):
        seen.append(of)
        return float(len(seen)), 1.0

    monkeypatch.setattr(module, "_turn", turn)
    measured = measure_speed({"a": model, "b": model}, turns=3, prompt=8, continuation=4)
    assert len(seen) == 8
    assert measured["a"].prefill.turns == (3.0, 6.0, 7.0)  # b a | a b | b a | a b, each called in that order
    assert measured["b"].prefill.turns == (4.0, 5.0, 8.0)


def test_prompt_and_continuation_are_what_the_model_reads(model, monkeypatch):
    lengths = []

    def see(_, args, kwargs):
        lengths.append(kwargs["input_ids"].shape[1])

    handle = model.register_forward_pre_hook(see, with_kwargs=True)
    try:
        measure_speed({"a": model}, prompt=12, continuation=3, turns=1)
    finally:
        handle.remove()
    assert lengths == [12, 1, 1, 1] * 2


def test_more_than_a_window_is_refused(model):
    with pytest.raises(InputError, match="128"):
        measure_speed({"a": model}, prompt=120, continuation=16)


@torch.no_grad()
def test_memory_is_that_of_weights_and_of_cached_keys_and_values(model):
    found = footprint(model)
    assert found["weights_mib"] == sum(4 * x.numel() for x in model.parameters()) / 2**20
    assert found["kv_bytes_per_token"] == 3 * 2 * 2 * 8 * 4  # layers, keys and values, heads, width, bytes

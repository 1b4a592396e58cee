"""The recipe's rates and weights, and training that continues to the same bytes."""

from pathlib import Path

import numpy as np
import pytest
import torch

from icml25cli.core.errors import InputError
from icml25cli.core.models import resolve
from icml25cli.core.runs import Run
from icml25cli.papers.select_data import training
from icml25cli.papers.select_data.adapters import (
    Adapter,
    adapted,
    foreign_moments,
    load_adapter,
    trained,
)
from icml25cli.papers.select_data.tokens import Example
from icml25cli.papers.select_data.training import Recipe, checkpoint_weights, learning_rate, shares, train
from tests.make_models import make_model


def test_weights_are_those_of_the_scripts():
    found = checkpoint_weights((105, 211, 317, 420), 420, 0.03, 2e-5, every=4)
    np.testing.assert_allclose(found[:3], [1.7069e-05, 1.2875e-05, 7.6658e-06], rtol=5e-5)
    assert found[3] * 26 / 27 == pytest.approx(2.3660e-06, rel=5e-5)  # their fourth counts the final zero once more
    np.testing.assert_allclose(shares([*found[:3], 2.3660e-06]), [0.427, 0.322, 0.192, 0.059], atol=6e-4)


def test_rates_rise_and_fall():
    assert [learning_rate(s, 10, 0.2, 1.0) for s in (0, 1, 2, 6, 10)] == [0, 0.5, 1, 0.5, 0]
    assert shares([0.0, 0.0]) == [0.5, 0.5]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return resolve(make_model(tmp_path_factory.mktemp("models") / "llama"))


def examples(count: int = 10) -> list[Example]:
    rng = np.random.default_rng(0)
    return [Example(rng.integers(0, 250, n).astype(np.int32), np.arange(n) > 3) for n in rng.integers(6, 16, count)]


RECIPE = Recipe(epochs=3, learning_rate=5e-3, batch_size=4)


def trained_in(folder: Path, source):
    with Run.open(folder, {}) as run:
        model = adapted(source, Adapter(rank=2, alpha=4))
        return train(model, examples(), RECIPE, run, "training")


def test_every_epoch_leaves_an_adapter_with_moments_and_training_cut_short_continues(source, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "KEPT_EVERY", 2)
    whole = trained_in(tmp_path / "whole", source)
    assert [c.folder.name for c in whole] == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    model = load_adapter(source, whole[-1].folder)
    assert not model.training
    first, second = whole[0].moments()
    assert set(first) == set(second) == set(trained(model))
    assert all((x >= 0).all() for x in second.values())

    real, calls = training._accumulate, []

    def stop(*args):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(training, "_accumulate", stop)
    with pytest.raises(KeyboardInterrupt):
        trained_in(tmp_path / "cut", source)
    again = trained_in(tmp_path / "cut", source)
    assert len(calls) == 6 + 9 - 4
    for one, other in zip(whole, again, strict=True):
        assert one.weight == other.weight
        for name in ("adapter_model.safetensors", "moments.safetensors"):
            assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes()


def test_training_lowers_the_loss_of_its_rows(source, tmp_path):
    checkpoints = trained_in(tmp_path, source)
    rows = examples()
    with torch.no_grad():
        losses = [training.row_losses(load_adapter(source, c.folder), rows, mean=True).mean() for c in checkpoints]
    assert losses[-1] < losses[0]


def test_moments_of_transformers_trainer_are_taken_by_name(source, tmp_path):
    (checkpoint, *_) = trained_in(tmp_path / "run", source)
    model = load_adapter(source, checkpoint.folder)
    first, second = checkpoint.moments()
    state = {
        i: {"exp_avg": first[name].view(x.shape), "exp_avg_sq": second[name].view(x.shape), "step": torch.tensor(1.0)}
        for i, (name, x) in enumerate(trained(model).items())
    }
    groups = [{"params": list(state), "lr": 1e-3}, {"params": [], "lr": 1e-3}]
    torch.save({"state": state, "param_groups": groups}, tmp_path / "optimizer.pt")
    found, _ = foreign_moments(model, tmp_path / "optimizer.pt")
    assert all(torch.equal(found[name].flatten(), first[name]) for name in first)

    other = adapted(source, Adapter(rank=3))
    with pytest.raises(InputError, match=r"lora_A.* have shape \(2, 32\), it has \(3, 32\)"):
        foreign_moments(other, tmp_path / "optimizer.pt")
    few = adapted(source, Adapter(rank=2, targets="q_proj"))
    with pytest.raises(InputError, match="24 parameters, the adapter has 6"):
        foreign_moments(few, tmp_path / "optimizer.pt")
    (tmp_path / "junk.pt").write_bytes(b"junk")
    with pytest.raises(InputError, match="no optimizer state"):
        foreign_moments(model, tmp_path / "junk.pt")


def test_an_adapter_of_another_model_is_refused(source, tmp_path):
    (checkpoint, *_) = trained_in(tmp_path / "run", source)
    wide = resolve(make_model(tmp_path / "wide", hidden_size=64, head_dim=16))
    with pytest.raises(InputError, match="is no adapter of") as caught:
        load_adapter(wide, checkpoint.folder)
    assert caught.value.hint is not None
    assert "--fresh" in caught.value.hint
    with pytest.raises(InputError, match="holds no adapter"):
        load_adapter(source, tmp_path)

"""Per-row gradients against autograd one row at a time, Adam's features against pencil and paper."""

from pathlib import Path

import numpy as np
import peft
import pytest
import torch

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.models import load_model, resolve
from icml25cli.papers.select_data.adapters import Adapter, adapted, linear_maps, trained
from icml25cli.papers.select_data.gradients import adam_direction, feature_of, row_features
from icml25cli.papers.select_data.projection import make_projection
from icml25cli.papers.select_data.tokens import Example
from icml25cli.papers.select_data.training import batches, row_losses
from tests.make_models import make_model


def test_the_direction_has_epsilon_inside_the_root():
    zero, one = torch.zeros(1), torch.ones(1)
    assert adam_direction(one, zero, zero).item() == pytest.approx(3.162262, abs=2e-6)
    # Outside the root it would be 2.40.
    assert adam_direction(1e-6 * one, zero, zero).item() == pytest.approx(1.0e-3, rel=1e-3)
    assert adam_direction(zero, 2 * one, 4 * one).item() == pytest.approx(0.9 * 2 / (0.999 * 4 + 1e-8) ** 0.5)


def examples(count: int = 6, seed: int = 0, vocabulary: int = 250) -> list[Example]:
    """Rows of several lengths, with answers in the middle and at the end."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        n = int(rng.integers(4, 20))
        answer = np.arange(n) >= n // 2
        answer[1] = i % 2 == 0
        found.append(Example(rng.integers(0, vocabulary, n).astype(np.int32), answer))
    return found


def perturbed(directory: Path, **adapter) -> torch.nn.Module:
    """A model whose adapters are trained already, so that neither half of a gradient is zero, in evaluation mode."""
    model = adapted(resolve(directory), Adapter(rank=3, alpha=6, **adapter))
    torch.manual_seed(1)
    with torch.no_grad():
        for x in trained(model).values():
            x.add_(0.1 * torch.randn_like(x))
    return model.eval()


def one_at_a_time(model, rows, mean: bool) -> torch.Tensor:
    found = []
    for row in rows:
        losses = row_losses(model, [row], mean=mean)
        grads = torch.autograd.grad(losses.sum(), list(trained(model).values()))
        found.append(torch.cat([g.flatten() for g in grads]))
    return torch.stack(found)


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("family", ["llama", "llama-tied", "gpt2", "gemma3", "qwen3"])
def test_every_row_has_its_own_gradient(tmp_path, family, mean):
    targets = "all-linear" if family == "llama" else "attention"
    model = perturbed(make_model(tmp_path / family, family), targets=targets, dropout=0.5)
    rows = examples()
    sizes = {name: module.weight.numel() for name, module in linear_maps(model).items()}
    found = row_features(model, rows, make_projection("none", sizes), feature_of("sgd"), mean=mean, batch_tokens=60)
    wanted = one_at_a_time(model, rows, mean)
    assert found.shape == wanted.shape == (6, sum(x.numel() for x in trained(model).values()))
    assert ((found - wanted).norm(dim=1) / wanted.norm(dim=1)).max() < 1e-5
    assert all(x.requires_grad for x in trained(model).values())


def test_projecting_matrix_by_matrix_is_projecting_the_whole(tmp_path):
    model = perturbed(make_model(tmp_path / "llama"))
    sizes = {name: module.weight.numel() for name, module in linear_maps(model).items()}
    rows = examples()
    whole = row_features(model, rows, make_projection("none", sizes), feature_of("sgd"), mean=True)
    for kind in ("countsketch", "rademacher"):
        projection = make_projection(kind, sizes, width=64)
        wanted = projection.zeros(len(rows), "cpu")
        for (name, n), part in zip(sizes.items(), whole.split(list(sizes.values()), dim=1), strict=True):
            assert part.shape[1] == n
            projection.add(wanted, name, part)
        found = row_features(model, rows, projection, feature_of("sgd"), mean=True)
        torch.testing.assert_close(found, projection.finish(wanted), rtol=1e-4, atol=1e-5)


def test_memory_that_does_not_suffice_halves_the_batch(tmp_path, monkeypatch):
    from icml25cli.papers.select_data import gradients

    model = perturbed(make_model(tmp_path / "llama"))
    sizes = {name: module.weight.numel() for name, module in linear_maps(model).items()}
    rows = examples()
    wanted = row_features(model, rows, make_projection("none", sizes), feature_of("sgd"), mean=True)
    real = gradients.row_losses

    def little(model, some, *, mean):
        if len(some) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return real(model, some, mean=mean)

    monkeypatch.setattr(gradients, "row_losses", little)
    with pytest.warns(UserWarning, match="halved"):
        found = row_features(model, rows, make_projection("none", sizes), feature_of("sgd"), mean=True)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_an_adapter_with_more_than_plain_matrices_is_refused(tmp_path):
    model = load_model(resolve(make_model(tmp_path / "llama")))
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"], use_dora=True)
    with pytest.raises(InputError, match="magnitude_vector"):
        linear_maps(peft.get_peft_model(model, config))


def test_targets_that_a_model_lacks_are_named(tmp_path):
    source = resolve(make_model(tmp_path / "llama"))
    with pytest.raises(InputError, match="no module c_attn"):
        adapted(source, Adapter(rank=2, targets="q_proj,c_attn"))
    with pytest.raises(UsageError, match="--lora-targets ',,' names no module"):
        adapted(source, Adapter(rank=2, targets=",,"))


def test_batches_hold_every_row_once_and_about_so_many_tokens():
    rows = examples(40)
    found = list(batches(rows, 64))
    assert sorted(i for batch in found for i in batch) == list(range(40))
    assert all(len(batch) * max(len(rows[i].tokens) for i in batch) <= 64 for batch in found)
    assert list(batches(rows[:1], 1)) == [[0]]

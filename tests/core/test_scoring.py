"""Scores of hidden states against those of the whole model's logits."""

import pytest
import torch

from icml25cli.core import likelihood
from icml25cli.core.likelihood import kl_divergence, next_token_nll
from icml25cli.core.models import load_model, resolve
from icml25cli.core.scoring import score_states
from icml25cli.core.streaming import StreamedModel
from tests.make_models import make_model


@pytest.mark.parametrize("chunk", [2**26, 4 * 257 * 3])  # of bytes: all positions at once, or three
def test_losses_and_divergences_are_those_of_whole_models(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(likelihood, "CHUNK_BYTES", chunk)
    source = resolve(make_model(tmp_path / "m"))
    model, windows = StreamedModel(source), torch.randint(0, 257, (3, 10))
    states = {"first": model.embed(windows)}
    for i in range(model.block_count):
        with model.block(i) as block:
            states["first"] = model.run_block(block, i, states["first"])
    states["other"] = states["first"] * 1.5 + 0.1
    scores = score_states(model, {"other": states["other"], "first": states["first"]}, windows, reference="first")
    with torch.no_grad():
        logits = {"first": load_model(source)(windows).logits, "other": model.logits(states["other"])}
    for key in ("first", "other"):
        expected = next_token_nll(logits[key], windows).double().sum(1)
        torch.testing.assert_close(scores[f"{key}.nll"], expected, rtol=1e-5, atol=0)
        kl = kl_divergence(logits["first"][:, :-1], logits[key][:, :-1]).mean(1)
        torch.testing.assert_close(scores[f"{key}.kl"], kl, rtol=1e-4, atol=1e-9)
    alone = score_states(model, {"first": states["first"]}, windows)
    assert list(alone) == ["first.nll"]
    assert torch.equal(alone["first.nll"], scores["first.nll"])

"""Smaller blocks against the dense block with zeros where something was cut, in every family and every mode of GQA."""

import pytest
import torch

from icml25cli.papers.prune.anatomy import examine
from icml25cli.papers.prune.plan import Layer, dense_layer, layer_parameters
from icml25cli.papers.prune.surgery import cut_block, installed, put, spread
from icml25cli.papers.prune.units import head_units
from tests.papers.prune.test_anatomy import MADE


def layer_of(anatomy, gqa: str, kept: list[int], channels: list[int]) -> Layer:
    heads, kv = head_units(anatomy, gqa).heads(anatomy, kept)
    return Layer(1, 0.0, 0.0, heads, kv, tuple(channels))


def cases(anatomy):
    """Heads kept in every mode; of 4 heads 2 share a key-value head, except in GPT-2."""
    channels = [0, 3, 4, 9, *range(20, anatomy.inner)]
    if anatomy.queries_per_kv == 1:
        return [layer_of(anatomy, gqa, [0, 2, 3], channels) for gqa in ("group", "expand", "query")]
    return [
        layer_of(anatomy, "group", [1], channels),
        layer_of(anatomy, "expand", [0, 2, 3], channels),
        layer_of(anatomy, "query", [1, 2], channels),
    ]


@pytest.mark.parametrize("family", MADE)
def test_a_cut_block_is_the_dense_one_with_zeros(streamed, family):
    model = streamed(family)
    anatomy = examine(model)
    hidden = torch.randn(2, 11, 32, generator=torch.Generator().manual_seed(0))
    for layer in cases(anatomy):
        with model.block(1) as block:
            tensors = {name: parameter.detach() for name, parameter in block.named_parameters()}
            dense = model.run_block(block, 1, hidden)
            cut = cut_block(anatomy, tensors, layer)
            assert sum(x.numel() for x in cut.values()) == layer_parameters(anatomy, layer, biases=False)
            with installed(block, anatomy, cut):
                small = model.run_block(block, 1, hidden)
            assert torch.equal(model.run_block(block, 1, hidden), dense), "the block is as it was"
            for name, kept in (
                (anatomy.names.output, spread(layer.heads, 8)),
                (anatomy.names.down, torch.tensor(layer.channels)),
            ):
                weight = model.linears(block)[name].weight
                gone = torch.ones(weight.shape[1], dtype=torch.bool)
                gone[kept] = False
                weight[:, gone] = 0
            torch.testing.assert_close(small, model.run_block(block, 1, hidden), rtol=0, atol=1e-5)
            assert (small - dense).abs().max() > 0.1


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3", "mistral"])
def test_key_value_heads_of_their_own_change_no_logit(streamed, family):
    """``expand`` with nothing pruned."""
    model = streamed(family)
    anatomy = examine(model)
    everything = dense_layer(anatomy, 0)
    ids = torch.arange(2 * 12).view(2, 12)
    logits = []
    for kv in ((0, 1), (0, 0, 1, 1)):
        hidden = model.embed(ids)
        for i in range(3):
            with model.block(i) as block:
                tensors = {name: parameter.detach() for name, parameter in block.named_parameters()}
                layer = Layer(i, 0.0, 0.0, everything.heads, kv, everything.channels)
                cut = cut_block(anatomy, tensors, layer)
                assert cut[anatomy.names.qkv[1] + ".weight"].shape == (8 * len(kv), 32)
                with installed(block, anatomy, cut):
                    hidden = model.run_block(block, i, hidden)
        logits.append(model.logits(hidden))
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_layer_that_loses_nothing_keeps_its_very_tensors(streamed, family):
    model = streamed(family)
    anatomy = examine(model)
    tensors = model.block_tensors(0)
    cut = cut_block(anatomy, tensors, dense_layer(anatomy, 0))
    assert all(cut[name] is tensor for name, tensor in tensors.items())


def test_a_bias_that_the_family_has_not_is_added_and_goes_again(streamed):
    model = streamed("llama")
    anatomy = examine(model)
    hidden = torch.randn(1, 5, 32)
    with model.block(0) as block:
        before = model.run_block(block, 0, hidden)
        with installed(block, anatomy, {"mlp.down_proj.bias": torch.full((32,), 2.0)}):
            torch.testing.assert_close(model.run_block(block, 0, hidden), before + 2)
        assert block.mlp.down_proj.bias is None  # type: ignore[union-attr]
        put(block, anatomy, {"mlp.down_proj.bias": torch.ones(32)})
        torch.testing.assert_close(model.run_block(block, 0, hidden), before + 1)

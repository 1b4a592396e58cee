"""Sizes by hand, and against what an export holds."""

import pytest
import torch
from safetensors.torch import load_file

from icml25cli.core.models import resolve
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.prune.anatomy import examine
from icml25cli.papers.prune.export import load, write_export
from icml25cli.papers.prune.plan import Layer, dense_layer, make_plan, removed_layer
from icml25cli.papers.prune.sizes import CONTEXT, dense_sizes, pruned_sizes
from icml25cli.papers.prune.surgery import cut_block
from tests.make_models import make_model


def test_a_small_llama_by_hand(tmp_path):
    """d = 32, 4 heads on 2 of 8 numbers, 48 channels, 257 tokens, 3 layers, float32, head not tied."""
    model = StreamedModel(resolve(make_model(tmp_path / "m", "llama")))
    anatomy = examine(model)
    block = 32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 48 + 2 * 32
    dense = dense_sizes(model, anatomy)
    assert dense.decoder_parameters == 3 * block
    assert dense.parameters == 3 * block + 2 * 257 * 32 + 32
    assert dense.weight_bytes == 4 * dense.parameters
    assert dense.kv_bytes_per_token == 3 * 2 * 16 * 4
    assert dense.flops_per_token == 2 * (3 * (block - 64 + 2 * CONTEXT * 32) + 257 * 32)
    layers = [dense_layer(anatomy, 0), removed_layer(1), Layer(2, 0.0, 0.5, (2, 3), (1,), tuple(range(10)))]
    pruned = pruned_sizes(model, anatomy, layers, biases=True)
    cut = 4 * 32 * 16 - 2 * 32 * 8 + 3 * 32 * 10 + 2 * 32 + 2 * 32
    assert pruned.decoder_parameters == block + cut
    assert pruned.kv_bytes_per_token == (16 + 8) * 2 * 4
    assert pruned.flops_per_token == 2 * (block + cut - 4 * 32 - 64 + 2 * CONTEXT * (32 + 16) + 257 * 32)


@pytest.mark.parametrize("family", ["llama-tied", "qwen2", "qwen3", "gemma3", "gpt2"])
@torch.no_grad()
def test_parameters_are_those_of_the_export(tmp_path, family):
    model = StreamedModel(resolve(make_model(tmp_path / "m", family)))
    anatomy = examine(model)
    kv = (1, 3) if family == "gpt2" else (0, 1)
    layers = [Layer(i, 0.0, 0.5, (1, 3), kv, tuple(range(0, anatomy.inner, 3))) for i in range(3)]
    plan = make_plan(model.source, anatomy, {}, layers)
    (tmp_path / "out").mkdir()

    def tensors(i: int) -> dict[str, torch.Tensor]:
        stored = {k.removeprefix(model.block_prefix(i)): x for k, x in model.block_tensors(i).items()}
        return cut_block(anatomy, stored, layers[i])

    write_export(tmp_path / "out", model, anatomy, plan, tensors)
    found = pruned_sizes(model, anatomy, layers, biases=False)
    held = [x for file in (tmp_path / "out").glob("*.safetensors") for x in load_file(file).values()]
    assert found.parameters == sum(x.numel() for x in held)
    cache = load(tmp_path / "out")(torch.zeros(1, 4, dtype=torch.long), use_cache=True).cache
    assert sum(x.nbytes for layer in cache.layers for x in (layer.keys, layer.values)) == 4 * found.kv_bytes_per_token

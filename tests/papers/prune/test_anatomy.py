"""What blocks are made of, for every family, and whom it is not known of."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from icml25cli.core.errors import InputError
from icml25cli.core.models import resolve
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.prune.anatomy import FAMILIES, check_family, examine
from tests.make_models import make_model

MADE = ("llama", "llama-tied", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gpt2")


def test_every_family_is_tried():
    assert {name.partition("-")[0].replace("gemma3", "gemma3_text") for name in MADE} == set(FAMILIES)


@pytest.mark.parametrize("family", MADE)
def test_sizes_and_parameters_are_those_of_the_checkpoint(streamed, family):
    model = streamed(family)
    anatomy = examine(model)
    kv, inner = (4, 128) if family == "gpt2" else (2, 48)
    assert anatomy.shapes == {"layers": 3, "hidden": 32, "heads": 4, "kv_heads": kv, "head_dim": 8, "inner": inner}
    assert anatomy.block_parameters == sum(tensor.numel() for tensor in model.block_tensors(1).values())
    assert anatomy.parameters(4, kv, inner) == anatomy.block_parameters
    assert anatomy.biased == {
        name.removeprefix(model.block_prefix(1)).removesuffix(".bias")
        for name in model.block_tensors(1)
        if name.endswith(("proj.bias", "attn.bias", "fc.bias"))
    }


def test_a_head_dimension_of_its_own(tmp_path):
    # 6 heads of 4 read 32 numbers: what attention has inside is 24 wide.
    path = make_model(tmp_path / "m", "qwen3", num_attention_heads=6, num_key_value_heads=3, head_dim=4)
    anatomy = examine(StreamedModel(resolve(path)))
    assert (anatomy.heads, anatomy.kv_heads, anatomy.head_dim, anatomy.queries_per_kv) == (6, 3, 4, 2)


def test_parameters_after_a_cut_by_hand(streamed):
    # Qwen2: query rows have biases. 3 heads, 1 key-value head, 10 channels, 2 new biases of 32.
    anatomy = examine(streamed("qwen2"))
    norms = 2 * 32
    expected = 3 * 8 * (33 + 32) + 2 * 8 * 33 + 10 * 3 * 32 + 2 * 32 + norms
    assert anatomy.parameters(3, 1, 10, new_biases=2) == expected
    assert anatomy.head_parameters() == 8 * (33 + 32)
    assert anatomy.kv_parameters() == 2 * 8 * 33


@pytest.mark.parametrize("family", ["phi", "gpt_neox", "bloom", "openai-gpt"])
def test_another_family_is_refused_by_name(made, family):
    with pytest.raises(InputError, match=f"is a {family} model, whose blocks are not known here") as caught:
        check_family(resolve(made(family)))
    assert "llama" in str(caught.value.hint)


@pytest.mark.parametrize(("field", "family"), [("num_local_experts", "mixtral"), ("num_experts", "qwen3_moe")])
def test_experts_are_refused_by_name(made, field, family):
    source = resolve(made("llama"))
    mixture = replace(source, config={**source.config, "model_type": family, field: 8})
    with pytest.raises(InputError, match=rf"mixture of 8 experts \({family}\), which are not pruned"):
        check_family(mixture)


def test_cross_attention_is_refused(made):
    source = resolve(made("gpt2"))
    with pytest.raises(InputError, match="gpt2 model with cross-attention"):
        check_family(replace(source, config={**source.config, "add_cross_attention": True}))


def test_a_checkpoint_s_other_tensors_are_no_parameters(tmp_path):
    """Old GPT-2 files hold masks, which the model does not use."""
    path = make_model(tmp_path / "m", "gpt2")
    before = examine(StreamedModel(resolve(path)))
    masks = {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 64, 64) for i in range(3)}
    save_file(load_file(path / "model.safetensors") | masks, path / "model.safetensors", metadata={"format": "pt"})
    assert examine(StreamedModel(resolve(path))) == before

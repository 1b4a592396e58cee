"""Running block by block against transformers running the whole model, and checkpoints written from blocks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from icml25cli.core.errors import InputError
from icml25cli.core.models import load_model, resolve
from icml25cli.core.streaming import StreamedModel, write_checkpoint
from tests.make_models import FAMILIES, make_model

LENGTH = 12  # tokens, more than twice the sliding windows of 5


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """One model of each family, made when first asked for. Not to be written to."""
    directory = tmp_path_factory.mktemp("made")

    def make(family: str) -> Path:
        return directory / family if (directory / family).exists() else make_model(directory / family, family)

    return make


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 257, shape, generator=torch.Generator().manual_seed(seed))


def streamed(model: StreamedModel, ids: Tensor) -> Tensor:
    """The output of the last block."""
    hidden = model.embed(ids)
    for i in range(model.block_count):
        with model.block(i) as block:
            hidden = model.run_block(block, i, hidden)
    return hidden


@torch.no_grad()
def whole(directory: Path, ids: Tensor, **changes: Any) -> Tensor:
    """Logits of plain transformers in float32."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, **changes).eval()
    return model(ids).logits


def weights(directory: Path) -> dict[str, Tensor]:
    return {name: tensor for file in directory.glob("*.safetensors") for name, tensor in load_file(file).items()}


# --- running -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_the_whole_model(made: Callable, family: str):
    ids = tokens(2, LENGTH)
    expected = whole(made(family), ids)
    model = StreamedModel(resolve(made(family)))
    hidden = streamed(model, ids)
    with model.head():
        torch.testing.assert_close(model.logits(hidden), expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(model.logits(hidden, slice(3, 7)), expected[:, 3:7], rtol=0, atol=1e-5)
        torch.testing.assert_close(model.logits(hidden, slice(-1, None)), expected[:, -1:], rtol=0, atol=1e-5)
    torch.testing.assert_close(model.logits(hidden[1:]), expected[1:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["mistral", "qwen2", "gemma2", "gemma3"])
def test_the_families_with_windows_do_use_them(made: Callable, family: str):
    # Else the test above would not notice a block that got the mask of another one.
    ids = tokens(1, LENGTH)
    assert (whole(made(family), ids) - whole(made(family), ids, sliding_window=64)).abs().max() > 1e-2


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(batch=st.integers(1, 3), length=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
def test_any_shape_and_text(made: Callable, batch: int, length: int, seed: int):
    ids = tokens(batch, length, seed=seed)
    model = StreamedModel(resolve(made("gemma3")))
    torch.testing.assert_close(model.logits(streamed(model, ids)), whole(made("gemma3"), ids), rtol=0, atol=1e-5)


def test_hidden_states_may_come_from_elsewhere_and_in_other_batches(made: Callable):
    ids = tokens(3, LENGTH)
    expected = whole(made("gemma2"), ids)
    hidden = StreamedModel(resolve(made("gemma2"))).embed(ids)
    model = StreamedModel(resolve(made("gemma2")))  # as after a resume: it has not seen the text
    for i in range(model.block_count):
        with model.block(i) as block:
            hidden = torch.cat([model.run_block(block, i, part) for part in hidden.split([2, 1])])
    torch.testing.assert_close(model.logits(hidden), expected, rtol=0, atol=1e-5)


def test_a_checkpoint_without_the_prefix_of_the_base_model(made: Callable, tmp_path: Path):
    ids = tokens(2, LENGTH)
    stripped = {name.removeprefix("transformer."): tensor for name, tensor in weights(made("gpt2")).items()}
    directory = _with_weights(made("gpt2"), tmp_path / "stripped", stripped)
    model = StreamedModel(resolve(directory))
    assert model.block_prefix(1) == "h.1."
    torch.testing.assert_close(model.logits(streamed(model, ids)), whole(made("gpt2"), ids), rtol=0, atol=1e-5)


def _with_weights(original: Path, directory: Path, tensors: dict[str, Tensor]) -> Path:
    directory.mkdir()
    for file in original.iterdir():
        if "safetensors" not in file.name:
            (directory / file.name).write_bytes(file.read_bytes())
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def test_a_head_that_differs_from_the_embedding_is_used_though_config_ties_them(made: Callable, tmp_path: Path):
    stored = weights(made("llama-tied"))
    stored["lm_head.weight"] = 2 * stored["model.embed_tokens.weight"]
    directory = _with_weights(made("llama-tied"), tmp_path / "untied", stored)
    ids = tokens(1, LENGTH)
    model = StreamedModel(resolve(directory))
    torch.testing.assert_close(model.logits(streamed(model, ids)), whole(directory, ids), rtol=0, atol=1e-5)
    assert "lm_head.weight" in dict(model.other_tensors())


def test_another_dtype(made: Callable):
    ids = tokens(2, LENGTH)
    model = StreamedModel(resolve(made("llama")), dtype=torch.bfloat16)
    hidden = streamed(model, ids)
    assert hidden.dtype == torch.bfloat16
    expected = AutoModelForCausalLM.from_pretrained(made("llama"), dtype=torch.bfloat16)(ids).logits
    torch.testing.assert_close(model.logits(hidden), expected, rtol=0, atol=0.1)


def test_nothing_is_kept_in_memory_between_uses(made: Callable):
    model = StreamedModel(resolve(made("gpt2")))
    parameters = list(model._model.parameters())
    with model.block(1) as block:
        assert not any(parameter.is_meta for parameter in block.parameters())
        assert sum(not parameter.is_meta for parameter in model._model.parameters()) == len(list(block.parameters()))
    model.logits(streamed(model, tokens(1, 4)))
    after = list(model._model.parameters())
    assert all(a is b and a.is_meta for a, b in zip(after, parameters, strict=True))


def test_changing_a_weight_changes_neither_the_file_nor_the_next_reading(made: Callable):
    model = StreamedModel(resolve(made("llama")))
    for _ in range(2):
        with model.block(0) as block:
            linear = model.linears(block)["mlp.up_proj"]
            assert torch.equal(linear.weight, weights(made("llama"))["model.layers.0.mlp.up_proj.weight"])
            linear.weight.zero_()


# --- matrices ----------------------------------------------------------------------------------------------------

LLAMA_GROUPS = {
    "self_attn.q_proj": "self_attn.q_proj",
    "self_attn.k_proj": "self_attn.q_proj",
    "self_attn.v_proj": "self_attn.q_proj",
    "self_attn.o_proj": "self_attn.o_proj",
    "mlp.gate_proj": "mlp.gate_proj",
    "mlp.up_proj": "mlp.gate_proj",
    "mlp.down_proj": "mlp.down_proj",
}


@pytest.mark.parametrize("family", ["llama", "phi", "gpt2"])
def test_recorded_inputs_and_weights_give_the_outputs_of_the_modules(made: Callable, family: str):
    model = StreamedModel(resolve(made(family)))
    hidden = model.embed(tokens(2, LENGTH))
    inputs: dict[str, list[Tensor]] = {}
    outputs: dict[str, Tensor] = {}
    with model.block(0) as block:
        linears = model.linears(block)
        for name, linear in linears.items():
            linear.module.register_forward_hook(lambda module, args, out, name=name: outputs.update({name: out}))
        with model.record_inputs(block, lambda group, x: inputs.setdefault(group, []).append(x)) as groups:
            for _ in range(2):
                model.run_block(block, 0, hidden)
        model.run_block(block, 0, hidden)  # after the section nothing is recorded
        assert groups.keys() == linears.keys()
        assert inputs.keys() == set(groups.values())
        assert all(len(calls) == 2 for calls in inputs.values())
        for name, linear in linears.items():
            x = inputs[groups[name]][0]
            assert x.shape == (2 * LENGTH, linear.weight.shape[1])
            product = x @ linear.weight.T + (0 if linear.module.bias is None else linear.module.bias)
            torch.testing.assert_close(product, outputs[name].reshape(product.shape), atol=1e-5, rtol=0)
    if family == "llama":
        assert groups == LLAMA_GROUPS
    if family == "phi":  # attention and feed-forward read the same norm
        assert groups["mlp.fc1"] == groups["self_attn.k_proj"] == "self_attn.q_proj"


def test_a_weight_is_set_as_out_by_in_whichever_way_round_it_is_stored(made: Callable):
    model = StreamedModel(resolve(made("gpt2")))
    with model.block(0) as block:
        up = model.linears(block)["mlp.c_fc"]
        assert up.weight.shape == (128, 32)
        new = torch.randn(128, 32)
        up.set_weight(new)
        assert torch.equal(up.module.weight, new.T)
        assert torch.equal(up.oriented(new), new.T)


# --- writing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "llama-tied", "gemma2", "gpt2"])
def test_a_written_checkpoint_is_the_model_in_bfloat16(made: Callable, family: str, tmp_path: Path):
    source = resolve(made(family))
    model = StreamedModel(source)
    out = tmp_path / "out"
    out.mkdir()
    write_checkpoint(out, source, (model.block_tensors(i) for i in range(model.block_count)))
    expected = weights(made(family))
    written = weights(out)
    assert written.keys() == expected.keys()
    for name, tensor in written.items():
        assert torch.equal(tensor, expected[name].bfloat16())
    assert len(list(out.glob("model-*-of-00004.safetensors"))) == 4
    config = json.loads((out / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    result: Any = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    loaded, report = result
    assert not any(report.values())
    assert loaded.dtype == torch.bfloat16
    assert (
        AutoTokenizer.from_pretrained(out)("to be").input_ids
        == AutoTokenizer.from_pretrained(made(family))("to be").input_ids
    )
    ids = tokens(1, LENGTH)
    again = StreamedModel(resolve(out))
    torch.testing.assert_close(again.logits(streamed(again, ids)), whole(out, ids), rtol=0, atol=1e-5)


def test_a_changed_block_is_what_the_written_checkpoint_holds(made: Callable, tmp_path: Path):
    source = resolve(made("gpt2"))
    model = StreamedModel(source)

    def halved():
        for i in range(model.block_count):
            tensors = model.block_tensors(i)
            with model.block(i) as block:
                for name, linear in model.linears(block).items():
                    tensors[f"{model.block_prefix(i)}{name}.weight"] = linear.oriented(linear.weight / 2)
            yield tensors

    write_checkpoint(tmp_path, source, halved(), dtype=torch.float32)
    before, after = weights(made("gpt2")), weights(tmp_path)
    for name, tensor in before.items():
        factor = 0.5 if ".h." in name and tensor.ndim == 2 else 1
        assert torch.equal(after[name], factor * tensor), name
    assert load_model(resolve(tmp_path)).dtype == torch.float32


def test_a_head_that_repeats_the_embedding_is_written_once(made: Callable, tmp_path: Path):
    stored = weights(made("llama-tied"))
    stored["lm_head.weight"] = stored["model.embed_tokens.weight"].clone()
    directory = _with_weights(made("llama-tied"), tmp_path / "twice", stored)
    assert "lm_head.weight" not in dict(StreamedModel(resolve(directory)).other_tensors())


def test_what_the_source_does_not_have_is_written_as_it_is(made: Callable, tmp_path: Path):
    source = resolve(made("llama"))
    model = StreamedModel(source)
    extra = {"codes": torch.arange(9, dtype=torch.uint8), "scales": torch.tensor([1.0001])}
    write_checkpoint(
        tmp_path, source, (model.block_tensors(i) | {f"{i}.{k}": v for k, v in extra.items()} for i in range(3))
    )
    written = weights(tmp_path)
    assert written["model.layers.2.mlp.up_proj.weight"].dtype == torch.bfloat16
    assert all(torch.equal(written[f"{i}.{key}"], value) for i in range(3) for key, value in extra.items())


def test_too_few_blocks_are_refused(made: Callable, tmp_path: Path):
    source = resolve(made("llama"))
    with pytest.raises(ValueError, match="3 blocks was given 1"):
        write_checkpoint(tmp_path, source, [StreamedModel(source).block_tensors(0)])


# --- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "name", ["model.layers.1.mlp.down_proj.weight", "model.norm.weight", "model.embed_tokens.weight"]
)
def test_a_weight_that_is_not_finite_is_named(made: Callable, tmp_path: Path, name: str, value: float):
    stored = weights(made("llama"))
    stored[name].flatten()[17] = value
    model = StreamedModel(resolve(_with_weights(made("llama"), tmp_path / "bad", stored)))
    with pytest.raises(InputError, match=f"model.safetensors: tensor {name} holds values that are not finite"):
        model.logits(streamed(model, tokens(1, 4)))


def test_a_tensor_that_is_missing_or_of_another_shape_is_named(made: Callable, tmp_path: Path):
    stored = weights(made("llama"))
    name = "model.layers.1.self_attn.k_proj.weight"
    fewer = _with_weights(made("llama"), tmp_path / "fewer", {k: v for k, v in stored.items() if k != name})
    with pytest.raises(InputError, match=f"fewer lacks the tensor {name}"):
        StreamedModel(resolve(fewer))
    other = _with_weights(made("llama"), tmp_path / "other", stored | {name: torch.zeros(16, 31)})
    with pytest.raises(InputError, match=rf"{name} has shape \[16, 31\] where config.json asks for \[16, 32\]"):
        StreamedModel(resolve(other))


def test_a_token_outside_the_vocabulary_is_refused(made: Callable):
    model = StreamedModel(resolve(made("llama")))
    for token in (257, -1):
        with pytest.raises(InputError, match="among the 257"):
            model.embed(torch.tensor([[0, token]]))


def test_a_quantised_model_is_refused(made: Callable, tmp_path: Path):
    directory = _with_weights(made("llama"), tmp_path / "quantised", weights(made("llama")))
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gptq"}}))
    with pytest.raises(InputError, match="is quantised already"):
        StreamedModel(resolve(directory))


SMALL = {"vocab_size": 257, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}


def refused(directory: Path, message: str, model_type: str, **fields: Any) -> None:
    config = AutoConfig.for_model(model_type, **SMALL | fields)
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    with pytest.raises(InputError, match=message):
        StreamedModel(resolve(directory)).embed(tokens(1, 4))


def test_fused_experts_are_refused_by_name(tmp_path: Path):
    experts = {"intermediate_size": 48, "num_key_value_heads": 2, "num_local_experts": 2}
    refused(
        tmp_path,
        r"several matrices.* into one tensor, model\.layers\.0\.mlp\.experts\.",
        model_type="mixtral",
        **experts,
    )


def test_blocks_that_share_more_than_hidden_states_are_refused(tmp_path: Path):
    fields = {"layer_types": ["sliding_attention", "full_attention"], "intermediate_size": 48, "num_key_value_heads": 2}
    per_layer = {"vocab_size_per_layer_input": 257, "hidden_size_per_layer_input": 8, "global_head_dim": 8}
    refused(tmp_path, "are no plain chain", "gemma4_text", **fields, **per_layer)


def test_a_model_without_a_list_of_blocks_is_refused(tmp_path: Path):
    refused(tmp_path, "has no list of decoder blocks", "llama", num_hidden_layers=0)

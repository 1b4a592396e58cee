"""Exports compute what the dense model does with the lost parts at zero, in every form and family."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from icml25cli.core.errors import UsageError
from icml25cli.core.models import resolve
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.prune.anatomy import Anatomy, examine
from icml25cli.papers.prune.export import check_export, check_kind, load, write_export
from icml25cli.papers.prune.plan import Layer, Plan, dense_layer, make_plan, removed_layer
from icml25cli.papers.prune.surgery import cut_block
from tests.make_models import FAMILIES as CONFIGS
from tests.make_models import make_model
from tests.make_pruned import FAMILIES, HEADS, KV, channels, make_pruned


def tokens() -> torch.Tensor:
    return torch.randint(0, 256, (2, 20), generator=torch.Generator().manual_seed(0))


def examined(source: Path) -> tuple[StreamedModel, Anatomy]:
    model = StreamedModel(resolve(source))
    return model, examine(model)


def by_hand(anatomy: Anatomy) -> list[Layer]:
    """What ``make_pruned`` keeps."""
    kv = HEADS if anatomy.family == "gpt2" else KV
    kept = [tuple(channels(i, anatomy.inner).tolist()) for i in range(3)]
    return [Layer(i, 0.0, 0.0, HEADS[i], kv[i], kept[i]) for i in range(3)]


def cut(model: StreamedModel, anatomy: Anatomy, plan: Plan):
    """Cut tensors of each layer, unrepaired."""

    def tensors(i: int) -> dict[str, torch.Tensor]:
        stored = {k.removeprefix(model.block_prefix(i)): x for k, x in model.block_tensors(i).items()}
        return cut_block(anatomy, stored, plan.layers[i])

    return tensors


def stored(directory: Path) -> dict[str, torch.Tensor]:
    return {name: x for file in directory.glob("*.safetensors") for name, x in load_file(file).items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place, there = tmp_path_factory.mktemp("pruned"), {}

    def make(family: str) -> tuple[Path, Path, Any]:
        if family not in there:
            pruned, dense = make_pruned(place, family)
            there[family] = place / f"{family}-dense", pruned, dense
        return there[family]

    return make


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_custom_is_the_pruned_model_with_its_tokenizer(made, family, tmp_path):
    source, pruned, dense = made(family)
    model, anatomy = examined(source)
    plan = make_plan(model.source, anatomy, {}, by_hand(anatomy))
    weights = stored(pruned)

    def tensors(i: int) -> dict[str, torch.Tensor]:
        prefix = model.block_prefix(i)
        return {name.removeprefix(prefix): x for name, x in weights.items() if name.startswith(prefix)}

    (tmp_path / "out").mkdir()
    write_export(tmp_path / "out", model, anatomy, plan, tensors)
    torch.testing.assert_close(load(tmp_path / "out")(tokens()).logits, dense(tokens()).logits, rtol=0, atol=1e-4)
    assert stored(tmp_path / "out").keys() == weights.keys()
    assert not list((tmp_path / "out").glob("*.bin"))
    text = "cut to measure"
    before, after = (
        AutoTokenizer.from_pretrained(place, local_files_only=True) for place in (source, tmp_path / "out")
    )
    assert (type(after), after(text)["input_ids"]) == (type(before), before(text)["input_ids"])


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_padded_is_the_same_function_by_the_stock_classes(made, family, tmp_path):
    source, pruned, dense = made(family)
    model, anatomy = examined(source)
    plan = make_plan(model.source, anatomy, {}, by_hand(anatomy))
    weights = stored(pruned)
    room = {"llama": 2, "llama-tied": 2, "gpt2": 2, "mistral": 0, "qwen2": 0}.get(family, 1)
    outward = [f"{anatomy.names.output}.bias", f"{anatomy.names.down}.bias"]
    without = outward[room:]  # biases that the stock classes have no place for

    def tensors(i: int) -> dict[str, torch.Tensor]:
        prefix = model.block_prefix(i)
        mine = {name.removeprefix(prefix): x for name, x in weights.items() if name.startswith(prefix)}
        return {name: x for name, x in mine.items() if name not in without}

    (tmp_path / "out").mkdir()
    write_export(tmp_path / "out", model, anatomy, plan, tensors, "padded")
    for name in without:
        for block in dense.model.layers:
            block.get_submodule(name.removesuffix(".bias")).bias = None
    there: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True)
    assert type(there) is type(dense)
    torch.testing.assert_close(there(tokens()).logits, dense(tokens()).logits, rtol=0, atol=1e-4)
    shapes = {name: x.shape for name, x in stored(source).items()}
    assert {name: x.shape for name, x in stored(tmp_path / "out").items() if name in shapes} == shapes
    del there


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_uniform_is_the_same_function_by_the_stock_classes(family, tmp_path):
    model, anatomy = examined(make_model(tmp_path / "dense", family))
    heads, kv = ((0, 1, 2, 3), (0, 1, 2, 3)) if family == "gpt2" else ((0, 1), (0,))
    kept = tuple(range(0, anatomy.inner, 2))
    layers = [Layer(i, 0.0, 0.5, heads, kv, kept) for i in range(3)]
    plan = make_plan(model.source, anatomy, {}, layers)
    check_export("uniform", model.source, anatomy, plan)
    for kind in ("uniform", "custom", "padded"):
        (tmp_path / kind).mkdir()
        write_export(tmp_path / kind, model, anatomy, plan, cut(model, anatomy, plan), kind)
    stock: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "uniform", local_files_only=True)
    assert not type(stock).__name__.startswith("Pruned")
    custom = load(tmp_path / "custom")(tokens()).logits
    torch.testing.assert_close(stock(tokens()).logits, custom, rtol=0, atol=1e-5)
    torch.testing.assert_close(load(tmp_path / "padded")(tokens()).logits, custom, rtol=0, atol=1e-4)
    assert sum(p.numel() for p in stock.parameters()) < sum(x.numel() for x in stored(tmp_path / "padded").values())


@torch.no_grad()
def test_uniform_has_zeros_for_biases_that_its_flags_bring_and_repair_does_not(tmp_path):
    model, anatomy = examined(make_model(tmp_path / "dense", "llama"))
    layers = [Layer(i, 0.0, 0.5, (2, 3), (1,), tuple(range(8, 40))) for i in range(3)]
    plan = make_plan(model.source, anatomy, {}, layers)
    check_kind("uniform", model.source, anatomy, biases=True)
    check_export("uniform", model.source, anatomy, plan)
    torch.manual_seed(0)
    added = [{f"{name}.bias": torch.randn(32) for name in ("self_attn.o_proj", "mlp.down_proj")} for _ in layers]

    def tensors(i: int) -> dict[str, torch.Tensor]:
        return {**cut(model, anatomy, plan)(i), **added[i]}

    for kind in ("uniform", "custom"):
        (tmp_path / kind).mkdir()
        write_export(tmp_path / kind, model, anatomy, plan, tensors, kind)
    stock: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "uniform", local_files_only=True)
    assert not stock.model.layers[1].self_attn.q_proj.bias.any()
    torch.testing.assert_close(stock(tokens()).logits, load(tmp_path / "custom")(tokens()).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3", "gpt2"])
@pytest.mark.parametrize("kind", ["custom", "uniform", "padded"])
@torch.no_grad()
def test_a_removed_layer_lets_the_hidden_state_pass(family, kind, tmp_path):
    """Layer 1 attends to all tokens and its neighbours to five: a list of layer types that shifts would show."""
    model, anatomy = examined(make_model(tmp_path / "dense", family))
    plan = make_plan(model.source, anatomy, {}, [dense_layer(anatomy, 0), removed_layer(1), dense_layer(anatomy, 2)])
    (tmp_path / "out").mkdir()
    check_export(kind, model.source, anatomy, plan)
    write_export(tmp_path / "out", model, anatomy, plan, cut(model, anatomy, plan), kind)
    hidden = model.embed(tokens())
    for i in (0, 2):
        with model.block(i) as block:
            hidden = model.run_block(block, i, hidden)
    torch.testing.assert_close(load(tmp_path / "out")(tokens()).logits, model.logits(hidden), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_the_dtype_is_the_one_that_was_stored(dtype, tmp_path):
    source = make_model(tmp_path / "dense", "llama")
    half: Any = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, local_files_only=True)
    half.save_pretrained(source)
    model, anatomy = examined(source)
    plan = make_plan(model.source, anatomy, {}, by_hand(anatomy))
    (tmp_path / "out").mkdir()
    write_export(tmp_path / "out", model, anatomy, plan, cut(model, anatomy, plan))
    assert {x.dtype for x in stored(tmp_path / "out").values()} == {dtype}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")


def refusal(tmp_path: Path, kind: str, family: str, layers: list[Layer], **changes: Any) -> str:
    model, anatomy = examined(make_model(tmp_path / "dense", family, **changes))
    with pytest.raises(UsageError) as refused:
        check_export(kind, model.source, anatomy, make_plan(model.source, anatomy, {}, layers or by_hand(anatomy)))
    assert refused.value.hint
    return refused.value.message


def test_uniform_refuses_layers_that_differ(tmp_path):
    assert "equal numbers" in refusal(tmp_path, "uniform", "llama", [])


def test_uniform_refuses_heads_that_the_stock_class_does(tmp_path):
    layers = [Layer(i, 0.0, 0.0, (0, 1, 3), (0, 0, 1), tuple(range(48))) for i in range(3)]
    assert "no 3 heads" in refusal(tmp_path, "uniform", "llama", layers)


def test_uniform_lets_mistral_have_any_number_of_heads(tmp_path):
    model, anatomy = examined(make_model(tmp_path / "dense", "mistral"))
    layers = [Layer(i, 0.0, 0.0, (0, 1, 3), (0, 0, 1), tuple(range(48))) for i in range(3)]
    check_export("uniform", model.source, anatomy, make_plan(model.source, anatomy, {}, layers))


def test_uniform_refuses_fewer_heads_of_gpt2(tmp_path):
    layers = [Layer(i, 0.0, 0.0, (0, 1, 3), (0, 1, 3), tuple(range(128))) for i in range(3)]
    assert "gpt2" in refusal(tmp_path, "uniform", "gpt2", layers)


@pytest.mark.parametrize("kind", ["uniform", "padded"])
@pytest.mark.parametrize(
    ("family", "name"), [("mistral", "o_proj"), ("qwen2", "o_proj"), ("qwen3", "down_proj"), ("gemma2", "down_proj")]
)
def test_a_bias_without_a_place_in_the_stock_class_is_refused(tmp_path, kind, family, name):
    model, anatomy = examined(make_model(tmp_path / "dense", family))
    with pytest.raises(UsageError, match=name):
        check_kind(kind, model.source, anatomy, biases=True)
    check_kind(kind, model.source, anatomy, biases=False)
    check_kind("custom", model.source, anatomy, biases=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_numbers_of_heads_that_a_stock_class_takes_are_those_that_transformers_does(family, tmp_path):
    model, anatomy = examined(make_model(tmp_path / "dense", family))
    for heads in range(1, 5):
        fields: dict[str, Any] = {"num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": 8}
        try:
            config = AutoConfig.for_model(**{**model.source.config, **fields})
            AutoModelForCausalLM.from_config(config)
            made = family != "gpt2" or config.n_embd // heads == 8
        except Exception:
            made = False
        assert anatomy.takes_heads(heads) == made


def test_no_layer_goes_where_attention_is_scaled_by_its_number(tmp_path):
    full = tuple(range(4)), tuple(range(4)), tuple(range(128))
    layers = [Layer(0, 0.0, 0.0, *full), removed_layer(1), Layer(2, 0.0, 0.0, *full)]
    assert "number of the layer" in refusal(tmp_path, "custom", "gpt2", layers, scale_attn_by_inverse_layer_idx=True)


def test_every_family_that_is_pruned_has_a_class_for_it():
    from icml25cli.core.modeling_pruned import Pruned
    from icml25cli.papers.prune.anatomy import FAMILIES as PRUNED_FAMILIES

    classes: Any = Pruned.__subclasses__()
    assert {f"pruned_{name}" for name in PRUNED_FAMILIES} == {cls.config_class.model_type for cls in classes}
    assert {CONFIGS[name]["model_type"] for name in FAMILIES} == set(PRUNED_FAMILIES)

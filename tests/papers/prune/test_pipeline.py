"""Whole models pruned: against transformers running the same weights, against the definition, and cut short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from icml25cli.core import blockwise
from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.likelihood import next_token_nll
from icml25cli.core.models import resolve
from icml25cli.core.runs import Run
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.prune.anatomy import examine
from icml25cli.papers.prune.methods import METHODS, Options
from icml25cli.papers.prune.pipeline import Pruned, prune_model, prune_models
from icml25cli.papers.prune.plan import Layer, dense_layer, make_plan
from icml25cli.papers.prune.surgery import put
from tests.make_models import make_model
from tests.papers.prune.test_anatomy import MADE

pytestmark = pytest.mark.filterwarnings(
    "ignore:heads go in steps", "ignore:the nearest that whole heads", "ignore:.* layers would lose every head"
)


def whole_model(pruned: Pruned, directory: Path) -> nn.Module:
    """Plain transformers with the pruned blocks put into it."""
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    blocks = model.transformer.h if hasattr(model, "transformer") else model.model.layers
    for index, block in enumerate(blocks):
        put(block, pruned.anatomy, {k: v.float() for k, v in pruned.layer_tensors(index).items()})
    return model


@torch.no_grad()
def nll(model: Any, windows: Tensor) -> Tensor:
    return next_token_nll(model(windows).logits, windows).double().sum(1)


def bytes_of(pruned: Pruned) -> dict[str, bytes]:
    return {
        f"{index}.{name}": tensor.contiguous().view(torch.uint8).numpy().tobytes()
        for index in range(len(pruned.plan.layers))
        for name, tensor in pruned.layer_tensors(index).items()
    }


# --- families ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", MADE)
@pytest.mark.parametrize("gqa", ["group", "expand", "query"])
def test_scores_are_those_of_transformers_running_the_pruned_weights(made, streamed, new_run, windows, family, gqa):
    options = Options(target=0.35, gqa=gqa, layers=2)
    pruned = prune_model(streamed(family), options, windows(12), windows(3, seed=1), new_run())
    cut = [layer for layer in pruned.plan.layers if not layer.is_dense(pruned.anatomy)]
    assert len(cut) == 2
    assert any(len(layer.heads) < 4 for layer in cut)
    assert pruned.score is not None
    assert pruned.dense_score is not None
    model = whole_model(pruned, made(family))
    torch.testing.assert_close(pruned.score.nll, nll(model, windows(3, seed=1)), rtol=1e-5, atol=0)
    dense = AutoModelForCausalLM.from_pretrained(made(family), dtype=torch.float32)
    torch.testing.assert_close(pruned.dense_score.nll, nll(dense.eval(), windows(3, seed=1)), rtol=1e-5, atol=0)
    removed = sum(x.numel() for x in dense.parameters()) - sum(x.numel() for x in model.parameters())
    assert pruned.parameters_removed == removed


def test_attention_wider_than_the_model(tmp_path, new_run, windows):
    """A head dimension of its own: 6 heads of 12 where the model is 32 wide."""
    path = make_model(tmp_path / "m", "qwen3", num_attention_heads=6, num_key_value_heads=3, head_dim=12)
    options = Options(target=0.3, gqa="expand", layer_ratio="uniform")
    pruned = prune_model(StreamedModel(resolve(path)), options, windows(12), windows(3, seed=1), new_run())
    assert pruned.score is not None
    torch.testing.assert_close(pruned.score.nll, nll(whole_model(pruned, path), windows(3, seed=1)), rtol=1e-5, atol=0)


@pytest.mark.parametrize("family", MADE)
def test_without_repair_it_is_the_dense_model_with_zeros(made, streamed, new_run, windows, family):
    pruned = prune_model(
        streamed(family), Options(target=0.3, repair="none"), windows(8), windows(2, seed=1), new_run()
    )
    dense: Any = AutoModelForCausalLM.from_pretrained(made(family), dtype=torch.float32).eval()
    anatomy, names = pruned.anatomy, pruned.anatomy.names
    for layer in pruned.plan.layers:
        block = (dense.transformer.h if family == "gpt2" else dense.model.layers)[layer.index]
        for name, kept, width in ((names.output, layer.heads, 8), (names.down, layer.channels, 1)):
            weight = block.get_submodule(name).weight.data
            by_unit = (weight.T if not anatomy.transposed else weight).view(-1, width, 32)
            by_unit[[i for i in range(len(by_unit)) if i not in kept]] = 0
    assert pruned.score is not None
    torch.testing.assert_close(pruned.score.nll, nll(dense, windows(2, seed=1)), rtol=1e-5, atol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_every_method_removes_the_same_share(streamed, new_run, windows, method, family):
    pruned = prune_model(streamed(family), Options(method=method, target=0.34), windows(8), windows(2), new_run())
    one = pruned.anatomy.block_parameters * (0.5 if method == "depth" else 0.03)
    assert pruned.parameters_removed == pytest.approx(0.34 * 3 * pruned.anatomy.block_parameters, abs=one)
    assert pruned.score is not None


# --- nothing, and nothing lost ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_target_of_nothing_changes_no_byte(streamed, new_run, windows, method):
    model = streamed("qwen2")
    pruned = prune_model(model, Options(method=method, target=0.0), windows(4), windows(2, seed=1), new_run())
    for index in range(3):
        prefix, stored = model.block_prefix(index), model.block_tensors(index)
        tensors = pruned.layer_tensors(index)
        assert {prefix + name for name in tensors} == set(stored)
        assert all(torch.equal(tensor, stored[prefix + name]) for name, tensor in tensors.items())
    assert pruned.parameters_removed == 0
    assert pruned.score is not None
    assert pruned.dense_score is not None
    assert torch.equal(pruned.score.nll, pruned.dense_score.nll)


def with_zero_heads(directory: Path) -> Path:
    """A Llama whose layers each have a head that writes nothing, and eight channels that do."""
    path = make_model(directory, "llama", num_key_value_heads=4, seed=3)
    tensors = load_file(path / "model.safetensors")
    for i, head in enumerate((2, 0, 3)):
        tensors[f"model.layers.{i}.self_attn.o_proj.weight"][:, 8 * head : 8 * head + 8] = 0
        tensors[f"model.layers.{i}.mlp.down_proj.weight"][:, 8 * head : 8 * head + 8] = 0
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path


@pytest.mark.parametrize("repair", ["linear", "bias", "none", "ridge"])
def test_parts_that_write_nothing_cost_nothing(tmp_path, new_run, windows, repair):
    path = with_zero_heads(tmp_path / "m")
    model = StreamedModel(resolve(path))
    anatomy = examine(model)
    layers = []
    for i, head in enumerate((2, 0, 3)):
        heads = tuple(h for h in range(4) if h != head)
        layers.append(Layer(i, 0.0, 0.0, heads, heads, tuple(c for c in range(48) if c // 8 != head)))
    plan = make_plan(model.source, anatomy, {}, layers)
    pruned = prune_model(model, Options(repair=repair), windows(12), windows(2, seed=1), new_run(), plan)
    ids = windows(2, seed=1)
    with torch.no_grad():
        small = whole_model(pruned, path)(ids).logits
        dense = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()(ids).logits
    torch.testing.assert_close(small, dense, rtol=0, atol=1e-4)
    if repair != "none":  # then nothing was measured
        assert all(record.attention and record.attention.correlation > 0.999999 for record in pruned.records)


@pytest.mark.parametrize("method", ["slimllm", "wanda-sp", "magnitude-sp"])
def test_a_head_that_writes_nothing_goes_first(tmp_path, new_run, windows, method):
    model = StreamedModel(resolve(with_zero_heads(tmp_path / "m")))
    options = Options(method=method, target=0.25, layer_ratio="uniform")
    pruned = prune_model(model, options, windows(12), windows(0), new_run())
    assert [set(range(4)) - set(layer.heads) for layer in pruned.plan.layers] == [{2}, {0}, {3}]


# --- the order of things ------------------------------------------------------------------------------------------


@torch.no_grad()
def inputs_of(model: Any, layer: int, name: str, windows: Tensor) -> Tensor:
    seen: list[Tensor] = []
    module = model.model.layers[layer].get_submodule(name)
    handle = module.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(windows)
    handle.remove()
    return seen[0].flatten(0, 1).double()


@pytest.mark.parametrize("layer", [0, 1, 2])
@torch.no_grad()
def test_each_matrix_is_fitted_behind_all_that_was_pruned_before_it(made, streamed, new_run, windows, layer):
    """Attention of a layer sees pruned layers before it; its feed-forward network sees pruned attention too."""
    calibration = windows(30)
    options = Options(target=0.4, layer_ratio="uniform", gqa="expand")
    pruned = prune_model(streamed("llama"), options, calibration, windows(0), new_run())
    dense: Any = AutoModelForCausalLM.from_pretrained(made("llama"), dtype=torch.float32).eval()
    for before in range(layer):
        put(dense.model.layers[before], pruned.anatomy, pruned.layer_tensors(before))
    tensors, plan = pruned.layer_tensors(layer), pruned.plan.layers[layer]
    block = dense.model.layers[layer]
    columns = {"self_attn.o_proj": [8 * h + i for h in plan.heads for i in range(8)], "mlp.down_proj": plan.channels}
    for name, kept in columns.items():
        x = inputs_of(dense, layer, name, calibration)
        weight = block.get_submodule(name).weight.double()
        o, y = (x @ weight.T).numpy(), (x[:, list(kept)] @ weight[:, list(kept)].T).numpy()
        for c in range(32):
            slope, offset = np.polyfit(y[:, c], o[:, c], 1)
            np.testing.assert_allclose(
                tensors[f"{name}.weight"][c], slope * weight[c, list(kept)], rtol=1e-3, atol=1e-5
            )
            np.testing.assert_allclose(tensors[f"{name}.bias"][c], offset, rtol=1e-3, atol=1e-4)
        if name == "self_attn.o_proj":
            attention = {k: v for k, v in tensors.items() if k.startswith("self_attn")}
            put(block, pruned.anatomy, attention)


def test_cosines_are_those_of_the_dense_model(made, streamed, new_run, windows):
    pruned = prune_model(streamed("llama"), Options(), windows(12), windows(0), new_run())
    dense: Any = AutoModelForCausalLM.from_pretrained(made("llama"), dtype=torch.float32).eval()
    with torch.no_grad():
        states = dense.model(windows(12), output_hidden_states=True).hidden_states[:3]
        after = [*states[1:], dense.model.layers[2](states[2], position_embeddings=rotary(dense, windows(12)))]
    for layer, x, y in zip(pruned.plan.layers, states, after, strict=True):
        assert layer.cosine == pytest.approx(torch.cosine_similarity(x, y, dim=-1).mean().item(), abs=1e-5)


def rotary(model: Any, windows: Tensor) -> tuple[Tensor, Tensor]:
    return model.model.rotary_emb(model.model.embed_tokens(windows), torch.arange(windows.shape[1])[None])


def test_the_lowest_cosine_keeps_everything(streamed, new_run, windows):
    pruned = prune_model(streamed("llama"), Options(layers=2, target=0.2), windows(8), windows(0), new_run())
    least = min(pruned.plan.layers, key=lambda layer: layer.cosine)
    assert [layer.index for layer in pruned.plan.layers if layer.is_dense(pruned.anatomy)] == [least.index]


def test_a_search_finds_what_correlates_no_worse(streamed, new_run, windows):
    options = Options(target=0.4, gqa="expand", layer_ratio="uniform")
    pruned = prune_model(streamed("llama"), options, windows(8), windows(0), new_run())
    for record in pruned.records:
        assert record.pearson is not None
        assert record.pearson_static is not None
        assert record.pearson_static <= record.pearson <= 1
        assert record.evaluations > 0
        assert record.attention is not None
        assert record.attention.correlation == pytest.approx(record.pearson, abs=1e-5)
        assert record.attention.error <= record.attention.error_cut


# --- methods together, plans, runs --------------------------------------------------------------------------------

TOGETHER = (
    Options(target=0.3),
    Options(method="flap", target=0.3),
    Options(method="wanda-sp", target=0.3, repair="linear"),
    Options(method="random", target=0.3, seed=4),
    Options(method="depth", target=0.3),
)


def test_methods_of_one_call_are_each_as_alone_and_share_the_dense_pass(streamed, new_run, windows, monkeypatch):
    dense_blocks = []
    real = StreamedModel.run_block

    def counted(self, block, i, hidden, cache=None):
        dense_blocks.append(i)
        return real(self, block, i, hidden, cache)

    alone = [prune_model(streamed("llama"), o, windows(8), windows(2, seed=1), new_run()) for o in TOGETHER]
    run = new_run()
    together = prune_models(streamed("llama"), TOGETHER, windows(8), windows(2, seed=1), run)
    for one, other in zip(alone, together, strict=True):
        assert one.plan == other.plan
        assert bytes_of(one) == bytes_of(other)
        assert one.score is not None
        assert other.score is not None
        assert torch.equal(one.score.nll, other.score.nll)
    assert len(list((run.directory / "units").glob("dense-0*"))) == 3
    # Everything is there: nothing is run again.
    monkeypatch.setattr(StreamedModel, "run_block", counted)
    again = prune_models(streamed("llama"), TOGETHER, windows(8), windows(2, seed=1), run)
    assert [p.plan for p in again] == [p.plan for p in together]
    assert not dense_blocks


def test_a_run_killed_after_any_unit_continues_byte_for_byte(tmp_path, new_run, windows, monkeypatch):
    monkeypatch.setattr(blockwise, "EVERY", 0.0)
    source = resolve(make_model(tmp_path / "m", "gemma2", num_hidden_layers=2, layer_types=["full_attention"] * 2))
    options = (Options(target=0.3), Options(method="flap", target=0.3))
    calibration, evaluation = windows(8), windows(2, seed=1)
    expected = prune_models(StreamedModel(source), options, calibration, evaluation, new_run())
    write, written = Run.write, []

    def counted(run, unit, writer):
        write(run, unit, writer)
        written.append(unit)

    monkeypatch.setattr(Run, "write", counted)
    prune_models(StreamedModel(source), options, calibration, evaluation, new_run())
    units = list(written)
    assert len(units) == len(set(units)) == 3 * 2 + 3
    for last in units:

        def killed(run, unit, writer, last=last):
            write(run, unit, writer)
            if unit == last:
                raise KeyboardInterrupt

        run = new_run()
        monkeypatch.setattr(Run, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            prune_models(StreamedModel(source), options, calibration, evaluation, run)
        monkeypatch.setattr(Run, "write", write)
        resumed = prune_models(StreamedModel(source), options, calibration, evaluation, run)
        for one, other in zip(expected, resumed, strict=True):
            assert bytes_of(one) == bytes_of(other)
            assert one.plan == other.plan
            assert one.score is not None
            assert other.score is not None
            assert torch.equal(one.score.nll, other.score.nll)
        assert not list((run.directory / "units").glob("*/states.safetensors"))


@pytest.mark.parametrize("options", TOGETHER, ids=lambda options: options.method)
def test_carrying_out_the_plan_gives_the_same_model(streamed, new_run, windows, options):
    calibration, evaluation = windows(8), windows(2, seed=1)
    pruned = prune_model(streamed("llama"), options, calibration, evaluation, new_run())
    applied = prune_model(streamed("llama"), options, calibration, evaluation, new_run(), pruned.plan)
    assert applied.plan == pruned.plan
    assert bytes_of(applied) == bytes_of(pruned)


def test_an_edited_plan_is_carried_out(streamed, new_run, windows):
    model = streamed("llama")
    anatomy = examine(model)
    edited = Layer(1, 0.5, 0.3, (1, 3), (0, 1), tuple(range(10, 48)))
    layers = [dense_layer(anatomy, 0), edited, dense_layer(anatomy, 2)]
    plan = make_plan(model.source, anatomy, {}, layers)
    pruned = prune_model(model, Options(), windows(8), windows(2, seed=1), new_run(), plan)
    assert pruned.plan.layers == tuple(layers)
    assert pruned.layer_tensors(1)["mlp.up_proj.weight"].equal(
        model.block_tensors(1)["model.layers.1.mlp.up_proj.weight"][10:]
    )
    assert pruned.records[1].attention is not None
    assert pruned.records[0].attention is None


def test_a_plan_of_another_model_is_refused(streamed, new_run, windows):
    pruned = prune_model(streamed("llama"), Options(), windows(8), windows(0), new_run())
    with pytest.raises(InputError, match=r"the plan is for .*llama, and .*qwen3 has another"):
        prune_model(streamed("qwen3"), Options(), windows(8), windows(0), new_run(), pruned.plan)


def test_damaged_work_is_named(streamed, new_run, windows):
    run = new_run()
    prune_model(streamed("llama"), Options(), windows(8), windows(0), run)
    (run.directory / "units" / "method-00-0001" / "layer.json").write_text("{")
    with pytest.raises(InputError, match=r"the finished work in .* is damaged"):
        prune_model(streamed("llama"), Options(), windows(8), windows(0), run)


# --- dtypes -------------------------------------------------------------------------------------------------------


def test_what_is_scored_is_what_is_stored(tmp_path, new_run, windows):
    """A bfloat16 model stays one, and its scores are those of its rounded weights."""
    path = make_model(tmp_path / "m", "llama")
    tensors = {name: x.bfloat16() for name, x in load_file(path / "model.safetensors").items()}
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    model = StreamedModel(resolve(path))
    pruned = prune_model(model, Options(target=0.3, gqa="expand"), windows(12), windows(3, seed=1), new_run())
    assert {x.dtype for i in range(3) for x in pruned.layer_tensors(i).values()} == {torch.bfloat16}
    assert any("mlp.down_proj.bias" in pruned.layer_tensors(i) for i in range(3))
    assert pruned.score is not None
    torch.testing.assert_close(pruned.score.nll, nll(whole_model(pruned, path), windows(3, seed=1)), rtol=1e-5, atol=0)


# --- bad input ----------------------------------------------------------------------------------------------------


def test_activations_that_are_not_finite_name_the_layer(tmp_path, new_run, windows):
    path = make_model(tmp_path / "m", "llama")
    tensors = load_file(path / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"] *= 1e20
    tensors["model.layers.1.mlp.gate_proj.weight"] *= 1e20
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"an output of layer 1 \(model\.layers\.1\.\*\) is not finite"):
        prune_model(StreamedModel(resolve(path)), Options(), windows(4), windows(0), new_run())
    model = StreamedModel(resolve(path))
    anatomy = examine(model)
    layers = [dense_layer(anatomy, 0), Layer(1, 0, 0, (0, 2), (0, 1), tuple(range(40))), dense_layer(anatomy, 2)]
    plan = make_plan(model.source, anatomy, {}, layers)
    with pytest.raises(InputError, match=r"inputs of model\.layers\.1\.mlp\.down_proj are not finite"):
        prune_model(model, Options(), windows(4), windows(0), new_run(), plan)


@pytest.mark.parametrize("shape", [(0, 16), (4, 0), (4, 1)])
def test_no_calibration_is_refused(streamed, new_run, windows, shape):
    with pytest.raises(InputError, match="there is no calibration text"):
        prune_model(streamed("llama"), Options(), torch.zeros(shape, dtype=torch.int64), windows(0), new_run())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (Options(protect=(3,)), "--protect 3: there is no such layer"),
        (Options(method="magic"), "--method magic is none of slimllm"),
        (Options(head_score="feature"), "--head-score feature is none of pearson"),
        (Options(target=1.5), "--target 1.5 does not lie in 0 to 1"),
        (Options(method="flap", head_score="wanda"), "--head-score does not go with --method flap"),
        (Options(method="depth", repair="linear"), "--repair does not go with --method depth"),
        (Options(target=0.9), "--target 0.9 is out of reach"),
    ],
)
def test_options_without_a_meaning_are_refused(streamed, new_run, windows, options, says):
    with pytest.raises(UsageError, match=says):
        prune_model(streamed("llama"), options, windows(4), windows(0), new_run())


def test_another_architecture_is_refused_before_anything_is_run(streamed, new_run, windows):
    run = new_run()
    with pytest.raises(InputError, match="is a phi model"):
        prune_model(streamed("phi"), Options(), windows(4), windows(0), run)
    assert not list((run.directory / "units").iterdir())
    assert json.loads((run.directory / "manifest.json").read_text())["inputs"] == {}

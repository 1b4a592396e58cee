"""Packed directories through transformers: the same model as the decoded codes give, saved again, and damaged."""

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, Trainer

import icml25cli.hf
from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.quantize.export import load_packed
from icml25cli.papers.quantize.packed import PackedLinear
from tests.make_models import make_large_llama, make_model
from tests.make_packed import make_packed

ODD = {"hidden_size": 36, "intermediate_size": 45}
MODELS = {
    "llama": ("llama", ODD, {}),
    "llama-tied": ("llama-tied", {}, {"q": 16, "k": 8, "rotation": "orthogonal"}),
    "qwen2": ("qwen2", {}, {"q": 7, "rotation": "none"}),  # has biases
    "gemma2": ("gemma2", ODD, {"q": 13}),
    "gpt2": ("gpt2", {}, {}),  # stores (in, out), has biases, and leaves out a prefix
    "gpt_neox": ("gpt_neox", {}, {"q": 3, "k": 1}),
    "entropy": ("llama", ODD, {"entropy": True}),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Makes each packed directory once."""
    place = tmp_path_factory.mktemp("packed")

    def make(name: str) -> Path:
        if not (place / name).exists():
            family, changes, options = MODELS[name]
            make_packed(place / name, make_model(place / f"{name}-source", family, **changes), **options)
        return place / name

    return make


def load(directory: Path, dtype: torch.dtype = torch.float32) -> Any:
    return AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, local_files_only=True)


def tensors(directory: Path) -> dict[str, torch.Tensor]:
    return {name: x for file in directory.glob("*.safetensors") for name, x in load_file(file).items()}


def tokens(seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (3, 20), generator=torch.Generator().manual_seed(seed))


def difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def test_the_package_alone_loads_no_heavy_library():
    code = "import sys, icml25cli; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_logits_and_generated_tokens_are_those_of_the_decoded_model(made, name):
    directory = made(name)
    model, decoded = load(directory), cast(Any, load_packed(directory))
    held = [module for module in model.modules() if isinstance(module, PackedLinear)]
    described = json.loads((directory / "config.json").read_text())["quantization_config"]["tensors"]
    assert len(held) == len(described) > 0
    assert difference(model(tokens()).logits, decoded(tokens()).logits) < 1e-4
    prompts, mask = tokens(1), torch.ones(3, 20, dtype=torch.long)
    mask[0, :7] = mask[1, :2] = 0  # of other lengths, filled up on the left
    settings = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0, "attention_mask": mask}
    assert torch.equal(model.generate(prompts, **settings), decoded.generate(prompts, **settings))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.03), (torch.float16, 4e-3)])
@torch.no_grad()
def test_it_runs_in_half_precision(made, dtype, tolerance):
    model = load(made("llama"), dtype)
    logits = model(tokens()).logits
    assert model.dtype == logits.dtype == dtype
    assert difference(logits, load_packed(made("llama"))(tokens()).logits) < tolerance


@torch.no_grad()
def test_the_built_in_model_reads_text_as_its_bfloat16_form_does(tmp_path):
    packed = make_packed(tmp_path / "packed", "tiny")
    plain = make_packed(tmp_path / "bf16", "tiny", decoded=True)
    text = Path(json.__file__).read_text(encoding="utf-8")
    ids = AutoTokenizer.from_pretrained(packed)(text, return_tensors="pt").input_ids[:, :2048].reshape(8, 256)

    def perplexity(model) -> float:
        return float(model(ids, labels=ids).loss.exp())

    assert perplexity(load(packed)) == pytest.approx(perplexity(load(plain)), rel=2e-3)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_a_loaded_model_is_saved_with_the_same_codes(made, name, tmp_path):
    directory = made(name)
    model = load(directory, torch.bfloat16)
    model.save_pretrained(tmp_path / "again")
    before, after = tensors(directory), tensors(tmp_path / "again")
    after = {key if key in before else key.removeprefix("transformer."): x for key, x in after.items()}
    codes = [key for key in before if key.rpartition(".")[2] in ("codes", "codes_high", "scales")]
    if name == "entropy":  # a form for files, which is not written again
        codes = [key for key in codes if key.endswith(".scales")]
    assert codes
    assert all(after[key].dtype == before[key].dtype and torch.equal(after[key], before[key]) for key in codes)
    logits = model(tokens()).logits
    assert torch.equal(load(tmp_path / "again", torch.bfloat16)(tokens()).logits, logits)
    assert difference(load_packed(tmp_path / "again")(tokens()).logits, load_packed(directory)(tokens()).logits) < 1e-6


@torch.no_grad()
def test_copies_and_casts_run(made):
    model = load(made("gpt2"))
    wanted = model(tokens()).logits
    assert torch.equal(copy.deepcopy(model)(tokens()).logits, wanted)
    assert torch.equal(model.to("cpu")(tokens()).logits, wanted)
    assert difference(copy.deepcopy(model).to(torch.bfloat16)(tokens()).logits, wanted) < 0.03


@pytest.mark.parametrize("name", ["llama", "llama-tied", "gpt2", "entropy"])
@torch.no_grad()
def test_a_model_can_be_dequantised_and_saved_as_any_other(made, name, tmp_path):
    wanted = load_packed(made(name))(tokens()).logits
    plain = load(made(name)).dequantize()
    assert not any(isinstance(module, PackedLinear) for module in plain.modules())
    assert torch.equal(plain(tokens()).logits, wanted)
    plain.save_pretrained(tmp_path / "plain")
    assert "quantization_config" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    assert torch.equal(load(tmp_path / "plain")(tokens()).logits, wanted)
    assert load(made(name)).dequantize(torch.bfloat16)(tokens()).logits.dtype == torch.bfloat16


def test_training_is_refused(made, tmp_path):
    model = load(made("llama"))
    with pytest.raises(UsageError, match="cannot be trained"):
        model(tokens(), labels=tokens()).loss.backward()
    with pytest.raises(ValueError, match="train"):
        Trainer(model)


def test_a_plain_model_is_not_quantised_on_the_way(made, tmp_path):
    described = json.loads((made("llama") / "config.json").read_text())["quantization_config"]
    with pytest.raises(ValueError, match="pre-quantized"):
        AutoModelForCausalLM.from_pretrained(
            make_model(tmp_path / "plain"), quantization_config=icml25cli.hf.NestQuantConfig(**described)
        )


# --- damage ----------------------------------------------------------------------------------------------------------

NAME = "model.layers.1.mlp.up_proj"


def rewrite(directory: Path, change) -> None:
    """Change the tensors of the shard that holds NAME."""
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    file = directory / index["weight_map"][f"{NAME}.codes"]
    held = load_file(file)
    change(held)
    save_file(held, file, metadata={"format": "pt"})
    weight_map = {key: shard for key, shard in index["weight_map"].items() if shard != file.name}
    index["weight_map"] = weight_map | dict.fromkeys(held, file.name)
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def without(part):
    return lambda held: held.pop(f"{NAME}.{part}")


def put(part, make):
    def change(held):
        held[f"{NAME}.{part}"] = make(held[f"{NAME}.{part}"])

    return change


def all_ones(x: torch.Tensor) -> torch.Tensor:
    return (x.view(torch.uint8) * 0 + 255).view(x.dtype)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("codes"), "up_proj.codes is missing"),
        (without("codes_high"), "up_proj.codes_high is missing"),
        (without("scales"), "up_proj.scales is missing"),
        (put("codes", lambda x: x[1:].clone()), r"up_proj.codes is U32 of shape \[44, 5\], not"),
        (put("codes", lambda x: x.view(torch.int32)), "up_proj.codes is I32"),
        (put("codes_high", lambda x: x[:, :0].clone()), "up_proj.codes_high is U8"),
        (put("scales", lambda x: x.double()), "up_proj.scales is F64"),
        (put("scales", lambda x: x[:-1].clone()), "up_proj.scales is F"),
        (put("scales", lambda x: x * float("inf")), "up_proj: a row scale is not finite"),
        (
            lambda held: [put(part, all_ones)(held) for part in ("codes", "codes_high")],
            "up_proj: the code of row 0, block 0 is out of range",
        ),
    ],
)
def test_damaged_tensors_are_refused_by_name(made, tmp_path, change, message):
    directory = shutil.copytree(made("llama"), tmp_path / "damaged")
    rewrite(directory, change)
    with pytest.raises(InputError, match=message):
        load(directory)
    with pytest.raises(InputError, match="up_proj"):
        load_packed(directory)


def edit(described, *path, value):
    *outer, last = path
    for key in outer:
        described = described[key]
    if value is None:
        del described[last]
    else:
        described[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "icml25/nq/9", "another format"),
        (("epsilon", 0), [1, 1024], "another format"),
        (("epsilon",), None, "epsilon"),
        (("method", "q"), 13, "codes_high|is not|out of range"),
        (("tensors", NAME, "width"), 40, "40 inputs"),
        (("tensors", NAME, "transposed"), True, "36 inputs"),
        (("tensors", NAME), None, f"does not describe the codes of {NAME}"),
        (("tensors", "model.layers.7.mlp.up_proj"), {"width": 36, "transposed": False}, "has no matrix model.layers.7"),
        (("tensors", "model.norm"), {"width": 36, "transposed": False}, "model.norm is no matrix"),
    ],
)
def test_an_edited_description_is_refused(made, tmp_path, path, value, message):
    directory = shutil.copytree(made("llama"), tmp_path / "edited")
    config = json.loads((directory / "config.json").read_text())
    edit(config["quantization_config"], *path, value=value)
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=message):
        load(directory)
    with pytest.raises(InputError, match=r"model\.|another format|epsilon"):
        load_packed(directory)


def test_weights_that_are_no_files_are_refused(made):
    config = AutoConfig.from_pretrained(made("llama"))
    state = load_packed(made("llama")).state_dict()
    with pytest.raises(InputError, match="safetensors files"):
        LlamaForCausalLM.from_pretrained(None, config=config, state_dict=state)


# --- memory ----------------------------------------------------------------------------------------------------------

MEASURE = """
import re, sys, torch
import icml25cli.hf
from icml25cli.papers.quantize.export import load_packed
from transformers import AutoModelForCausalLM, GenerationMixin, LlamaForCausalLM

def anonymous():  # MB
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1e3

torch.set_num_threads(1)
before = anonymous()
if sys.argv[1] == "packed":
    model = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32)
else:
    model = load_packed(sys.argv[2])
model.generate(torch.arange(16)[None], max_new_tokens=32, min_new_tokens=32, do_sample=False, pad_token_id=0)
mapped = sum(x.nbytes for name, x in model.named_buffers() if "codes" in name) / 1e6
print(anonymous() - before, mapped)
"""


@pytest.mark.slow
def test_a_packed_model_takes_a_third_of_the_memory_at_most(tmp_path):
    source = make_large_llama(tmp_path / "large", layers=6, width=1024, inner=2816, vocabulary=257)
    directory = make_packed(tmp_path / "packed", source)
    taken = {}
    for kind in ("packed", "decoded"):
        done = subprocess.run([sys.executable, "-c", MEASURE, kind, directory], capture_output=True, text=True)
        taken[kind], codes = map(float, done.stdout.split())
    assert taken["packed"] + codes < 0.35 * taken["decoded"]

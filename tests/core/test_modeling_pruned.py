"""Layers of different widths compute what the dense model does with the lost parts at zero, by every way of loading."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from icml25cli.core.errors import InputError
from icml25cli.core.models import load_model, load_tokenizer, resolve
from icml25cli.core.streaming import StreamedModel
from tests.make_pruned import FAMILIES, make_pruned


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Makes each pruned directory once, with the dense model that it must agree with."""
    place, there = tmp_path_factory.mktemp("pruned"), {}

    def make(family: str) -> tuple[Path, Any]:
        if family not in there:
            there[family] = make_pruned(place, family)
        return there[family]

    return make


def tokens(rows: int = 2, length: int = 20) -> torch.Tensor:
    return torch.randint(0, 256, (rows, length), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logits_are_the_dense_models_without_the_lost_parts(made, family):
    directory, dense = made(family)
    pruned: Any = load_model(resolve(directory))
    assert type(pruned).__name__.startswith("Pruned")
    torch.testing.assert_close(pruned(tokens()).logits, dense(tokens()).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_generation_with_a_cache_a_batch_and_padding_is_the_dense_models(made, family):
    directory, dense = made(family)
    pruned: Any = load_model(resolve(directory))
    mask = torch.ones(3, 20, dtype=torch.long)
    mask[0, :7] = mask[1, :2] = 0
    settings = {"max_new_tokens": 16, "do_sample": False, "pad_token_id": 0, "attention_mask": mask}
    wanted = dense.generate(tokens(3), **settings)
    assert torch.equal(pruned.generate(tokens(3), **settings), wanted)
    static = {"cache_implementation": "static", "disable_compile": True}
    assert torch.equal(pruned.generate(tokens(3), **settings, **static), wanted)


@pytest.mark.parametrize("family", FAMILIES)
def test_block_by_block_it_is_the_same_model(made, family):
    directory, dense = made(family)
    model = StreamedModel(resolve(directory))
    hidden = model.embed(tokens())
    for i in range(model.block_count):
        with model.block(i) as block:
            hidden = model.run_block(block, i, hidden)
    torch.testing.assert_close(model.logits(hidden), dense(tokens()).logits, rtol=0, atol=1e-4)


REMOTE = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True, local_files_only=True)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True, local_files_only=True)
torch.save(model(torch.tensor([tokenizer("a pruned model")["input_ids"]])).logits, sys.argv[2])
model.save_pretrained(sys.argv[3])
assert not any(name.startswith("icml25cli") for name in sys.modules)
"""


OURS = """
import sys, torch, icml25cli.hf
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], local_files_only=True)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], local_files_only=True)
torch.save(model(torch.tensor([tokenizer("a pruned model")["input_ids"]])).logits, sys.argv[2])
model.save_pretrained(sys.argv[3])
assert not any("transformers_modules" in name for name in sys.modules)
"""


@pytest.mark.parametrize(
    ("script", "family"), [(REMOTE, "llama"), (REMOTE, "gemma3"), (REMOTE, "gpt2"), (OURS, "llama")]
)
@torch.no_grad()
def test_a_fresh_process_loads_and_saves_it_by_the_code_beside_it_or_by_ours(made, script, family, tmp_path):
    directory, _ = made(family)
    environment = {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path / "modules"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, directory, tmp_path / "logits.pt", tmp_path / "again"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    logits = torch.load(tmp_path / "logits.pt", weights_only=True)
    ids = torch.tensor([load_tokenizer(resolve(directory))("a pruned model")["input_ids"]])
    assert torch.equal(load_model(resolve(directory))(ids).logits, logits)
    assert (tmp_path / "again" / "modeling_pruned.py").read_bytes() == (directory / "modeling_pruned.py").read_bytes()
    assert torch.equal(load_model(resolve(tmp_path / "again"))(ids).logits, logits)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pruned_layers": None}, "config.json"),
        ({"pruned_layers": []}, "0 entries for 3 layers"),
        ({"pruned_layers": [{"heads": 4, "kv_heads": 0, "channels": 48}] * 3}, "config.json"),
        ({"pruned_layers": [{"heads": 4, "kv_heads": 2, "channels": 48}] * 3}, "model.layers.1."),
        ({"pruned_layers": [{"heads": 2**40, "kv_heads": 1, "channels": 48}] * 3}, "model.layers.0."),
        ({"model_type": "pruned_bert"}, "pruned_bert"),
    ],
    ids=["absent", "empty", "no key-value heads", "other widths", "huge", "other family"],
)
def test_widths_that_do_not_fit_the_weights_are_refused(tmp_path, change, says):
    directory, _ = make_pruned(tmp_path, "llama")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(InputError, match=says):
        load_model(resolve(directory))

"""The built-in model: it loads plainly, has learnt more than frequencies, and shows the damage of few bits."""

from __future__ import annotations

import copy
import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from icml25cli.core.likelihood import kl_divergence, next_token_nll, paired_difference
from icml25cli.core.text import builtin_text, token_stream, windows

ASSETS = Path(__file__).resolve().parents[2] / "assets"
TINY = ASSETS / "tiny"


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(TINY)


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def evaluation(tokenizer):
    return torch.from_numpy(windows(token_stream(builtin_text("test"), tokenizer), 256, count=24, seed=0))


@torch.inference_mode()
def logits(model, evaluation):
    return torch.cat([model(input_ids=batch).logits for batch in evaluation.split(4)])


def test_it_is_small_bfloat16_and_of_the_llama_architecture():
    assert sum(path.stat().st_size for path in TINY.iterdir()) <= 10e6
    loaded = AutoModelForCausalLM.from_pretrained(TINY)
    assert loaded.config.architectures == ["LlamaForCausalLM"]
    assert {p.dtype for p in loaded.parameters()} == {torch.bfloat16}
    assert sum(p.numel() for p in loaded.parameters()) <= 5.0e6
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_its_weights_lie_on_no_grid():
    for name, weight in load_file(TINY / "model.safetensors").items():
        if weight.ndim == 2:  # a 4-bit weight file has at most 16 values in a block of 32
            assert np.mean([len(block.unique()) for block in weight[:64].float().reshape(-1, 32)]) > 24, name


def test_text_survives_its_tokenizer(tokenizer):
    for text in (
        "Return the number of items.\n\n    >>> len(x)\n    3\n",
        "caf\u00e9 \U0001f600 \u4e2d\u6587\t\x00",
        "  a  ",
    ):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer) == 4096
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 0)
    assert tokenizer("a")["input_ids"][0] != 0  # nothing is added unasked


def test_generation_runs_and_is_the_same_with_and_without_the_cache(model, tokenizer):
    prompt = tokenizer("Return a new", return_tensors="pt")
    texts = [model.generate(**prompt, max_new_tokens=12, do_sample=False, use_cache=cache) for cache in (True, False)]
    assert torch.equal(*texts)
    assert texts[0].shape == (1, prompt["input_ids"].shape[1] + 12)


def test_held_out_perplexity_is_a_quarter_of_a_unigram_models(model, tokenizer, evaluation):
    training = token_stream(builtin_text("training"), tokenizer)
    counts = torch.from_numpy(np.bincount(training, minlength=len(tokenizer)) + 1.0)
    unigram = (counts / counts.sum()).log()
    own = next_token_nll(logits(model, evaluation), evaluation).mean().item()
    theirs = -unigram[evaluation[:, 1:]].mean().item()
    assert math.exp(own) * 4 < math.exp(theirs)


def gain_of_context(model, tokenizer, length, known, predicted):
    """Loss of the last ``predicted`` tokens after ``known`` others, less that after a whole window; paired."""
    tokens = torch.from_numpy(windows(token_stream(builtin_text("test"), tokenizer), length, count=24, seed=0))
    losses = (
        next_token_nll(logits(model, t), t)[:, -predicted:].mean(1) for t in (tokens[:, -known - predicted :], tokens)
    )
    return paired_difference(*losses)


def test_the_same_words_are_less_surprising_after_a_longer_context(model, tokenizer):
    gain = gain_of_context(model, tokenizer, 128, known=2, predicted=8)
    assert gain.mean > 3 * gain.standard_error


@pytest.mark.parametrize("length", [512, 1024])
def test_the_longest_windows_do_not_break_it(model, tokenizer, length):
    gain = gain_of_context(model, tokenizer, length, known=16, predicted=32)
    assert gain.mean > -0.15


def rounded(model, bits):
    model = copy.deepcopy(model)
    for layer in model.model.layers:
        for linear in (m for m in layer.modules() if isinstance(m, torch.nn.Linear)):
            top = 2 ** (bits - 1) - 1
            scale = linear.weight.data.abs().amax(1, keepdim=True) / top
            linear.weight.data = (linear.weight.data / scale).round() * scale
    return model


def test_damage_at_4_3_and_2_bits_is_clearly_apart(model, evaluation):
    reference = logits(model, evaluation)
    damage, loss = {}, {16: next_token_nll(reference, evaluation).mean(1)}
    for bits in (4, 3, 2):
        own = logits(rounded(model, bits), evaluation)
        damage[bits] = kl_divergence(reference, own).mean(1)
        loss[bits] = next_token_nll(own, evaluation).mean(1)
    for fewer, more in ((3, 4), (2, 3)):
        for figure in (damage, loss):
            difference = paired_difference(figure[fewer], figure[more])
            assert difference.mean > 4 * difference.standard_error
        assert damage[fewer].mean() > 2 * damage[more].mean()
    assert damage[4].mean() > 0.001


@pytest.fixture
def report(monkeypatch):
    """The script that measures the model, which is no part of the package."""
    monkeypatch.syspath_prepend(str(ASSETS / "recipes"))
    spec = importlib.util.spec_from_file_location("tiny_report", ASSETS / "recipes" / "tiny_report.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("train_tiny", None)


def test_the_trigram_it_is_held_against_is_a_distribution_and_a_good_one(report):
    rng = np.random.default_rng(0)
    chain = rng.dirichlet(np.full(7, 0.2), size=(7, 7))  # of order two
    tokens = [0, 0]
    for _ in range(30_000):
        tokens.append(int(rng.choice(7, p=chain[tokens[-2], tokens[-1]])))
    tokens = np.array(tokens)
    trigram = report.Trigram(tokens[:20_000], tokens[20_000:25_000], 7)
    for history in ([3, 4], [0, 0], [6, 1]):
        total = sum(np.exp(-trigram.nll(np.array([*history, last])))[-1] for last in range(7))
        assert total == pytest.approx(1)
    entropy = -np.log(chain[tokens[24_998:-2], tokens[24_999:-1], tokens[25_000:]]).mean()
    assert trigram.nll(tokens[24_998:])[2:].mean() == pytest.approx(entropy, abs=0.01)

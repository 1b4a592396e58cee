"""The coded cache in transformers' own generation: the same tokens however the text is cut, batched or padded."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize.kv_cache import KVCache
from icml25cli.papers.quantize.scales import reference_code
from icml25cli.papers.quantize.vectors import LatticeVectors
from icml25cli.papers.quantize.voronoi import LatticeCode
from tests.make_models import make_model

FAMILIES = ["llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3", "phi", "gpt2", "gpt_neox"]


def coded() -> KVCache:
    return KVCache(
        LatticeVectors(reference_code("keys", 14), "random-hadamard"), LatticeVectors(reference_code("values", 14))
    )


def exact() -> KVCache:
    """So fine a code that nothing changes: what is left to see is the cache's own bookkeeping."""
    fine = LatticeVectors(LatticeCode(200, (5 / 200,)))
    return KVCache(fine, fine)


def load(directory: Path, family: str = "llama") -> Any:
    return AutoModelForCausalLM.from_pretrained(make_model(directory, family)).eval()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load(tmp_path_factory.mktemp("llama"))


def tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_a_text_gives_the_same_logits_whole_and_token_by_token(model):
    ids = tokens(2, 20)
    whole = model(ids, cache=coded()).logits
    cache = coded()
    steps = [model(ids[:, i : i + 1], cache=cache).logits for i in range(20)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=1e-4, atol=1e-5)
    assert cache.get_seq_length() == 20


@torch.no_grad()
def test_codes_matter(model):
    ids = tokens(1, 20)
    plain, quantised = model(ids).logits, model(ids, cache=coded()).logits
    assert not torch.allclose(plain, quantised, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_generates_what_its_whole_text_predicts(tmp_path, family):
    model = load(tmp_path / "m", family)
    ids = tokens(2, 9)
    mask = torch.ones_like(ids)
    got = model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False, cache=coded())
    for _ in range(8):  # without what an earlier step left in a cache
        ids = torch.cat([ids, model(ids, cache=coded()).logits[:, -1:].argmax(dim=-1)], dim=1)
    assert torch.equal(got, ids)


@torch.no_grad()
@pytest.mark.parametrize("family", FAMILIES)
def test_fine_codes_leave_the_logits_as_they_were(tmp_path, family):
    model = load(tmp_path / "m", family)
    ids, cache = tokens(2, 14), exact()
    parts = [model(ids[:, :9], cache=cache).logits, model(ids[:, 9:], cache=cache).logits]
    plain = model(ids).logits
    assert (torch.cat(parts, dim=1) - plain).norm() < 0.02 * plain.norm()


@torch.no_grad()
def test_left_padding_changes_nothing(model):
    ids = tokens(1, 7)
    alone = model.generate(ids, max_new_tokens=6, do_sample=False, cache=coded())
    padded = torch.cat([torch.full((1, 4), 256), ids], dim=1)
    other = torch.cat([padded, tokens(1, 11, seed=1)])
    mask = torch.ones_like(other)
    mask[0, :4] = 0
    both = model.generate(other, attention_mask=mask, max_new_tokens=6, do_sample=False, cache=coded())
    assert torch.equal(both[0, 11:], alone[0, 7:])


@torch.no_grad()
def test_beams_choose_rows_of_codes(model):
    ids = tokens(1, 9)
    wanted = model.generate(ids, max_new_tokens=8, num_beams=3, do_sample=False)
    assert torch.equal(model.generate(ids, max_new_tokens=8, num_beams=3, do_sample=False, cache=exact()), wanted)


@torch.no_grad()
def test_cutting_off_and_starting_again(model):
    ids = tokens(1, 12)
    cache = coded()
    model(ids, cache=cache)
    cache.crop(-5)
    assert cache.get_seq_length() == 7
    with pytest.raises(ValueError, match="not 5"):  # tokens kept, in older releases: nobody's guess
        cache.crop(5)
    again = model(ids[:, 7:], cache=cache).logits
    torch.testing.assert_close(again, model(ids, cache=coded()).logits[:, 7:], rtol=1e-4, atol=1e-5)
    cache.reset()
    assert cache.get_seq_length() == cache.nbytes == 0


@torch.no_grad()
def test_what_does_not_continue_the_tokens_held_is_refused(model):
    cache = coded()
    model(tokens(1, 12), cache=cache)
    with pytest.raises(InputError, match="2 x 2 came"):
        model(tokens(2, 1), cache=cache)
    nothing = torch.zeros(1, 2, 0, 8)
    with pytest.raises(InputError, match="no new tokens"):
        cache.update(nothing, nothing, 0)
    assert cache.get_seq_length() == 12


@torch.no_grad()
def test_bytes_held_are_the_codes(model):
    cache = coded()
    model(tokens(1, 64), cache=cache)
    layers, heads, n = 3, 2, 8
    # A vector of eight: one block of 33 bits in five bytes, and a scale of two.
    assert cache.nbytes == 2 * layers * heads * 64 * (n // 8) * (5 + 2)


def test_a_cache_filled_with_gradients_on_can_be_copied(model):
    cache = coded()
    model(tokens(1, 6), cache=cache)
    assert deepcopy(cache).get_seq_length() == 6

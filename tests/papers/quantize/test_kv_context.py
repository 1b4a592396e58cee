"""A long context of a real model in the coded cache: what it stores, and what it costs in perplexity."""

import math

import pytest
import torch

from icml25cli.core import store
from icml25cli.core.models import load_model, load_tokenizer, resolve
from icml25cli.papers.quantize.kv_cache import KVCache
from icml25cli.papers.quantize.scales import reference_code
from icml25cli.papers.quantize.vectors import LatticeVectors

CONTEXT, CHUNK = 4096, 512


@pytest.mark.slow
@pytest.mark.assets
@torch.no_grad()
def test_a_context_of_4096_tokens_takes_less_than_0_3_of_bfloat16(monkeypatch, fetched_cache):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(fetched_cache))
    source = resolve("smollm2-135m")
    model = load_model(source)
    text = (store.path("sotu") / "1946_harry_s_truman_d.txt").read_text(encoding="utf-8")
    ids = torch.tensor([load_tokenizer(source)(text)["input_ids"][: CONTEXT + 1]])
    keys = LatticeVectors(reference_code("keys", 14), "random-hadamard")
    cache = KVCache(keys, LatticeVectors(reference_code("values", 14)))

    def perplexity(cache=None) -> float:
        losses = []
        for start in range(0, CONTEXT, CHUNK):
            logits = model(ids[:, start : start + CHUNK], cache=cache, use_cache=True)
            cache = logits.cache
            targets = ids[0, start + 1 : start + CHUNK + 1]
            losses.append(torch.nn.functional.cross_entropy(logits.logits[0].double(), targets, reduction="sum"))
        return math.exp(float(sum(losses)) / CONTEXT)

    plain, coded = perplexity(), perplexity(cache)
    config = model.config
    width = config.hidden_size // config.num_attention_heads
    bfloat16 = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * CONTEXT * width
    print(f"perplexity {plain:.2f}, with the coded cache {coded:.2f}; {cache.nbytes} bytes, {bfloat16} in bfloat16")
    assert cache.get_seq_length() == CONTEXT
    assert cache.nbytes <= 0.30 * bfloat16
    assert plain < coded < 1.1 * plain

"""What else there is to select by: words, lengths, losses, hidden states and chance. Higher scores are better.

Each gives a score to every row of the pool; those that compare with validation rows do it row by row, and subtasks are
put together as for NICE. Knows texts and models. Does not know gradients.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64
from numpy import ndarray

from icml25cli.core.progress import Progress
from icml25cli.papers.select_data.scoring import normalized
from icml25cli.papers.select_data.tokens import Example
from icml25cli.papers.select_data.training import batches, padded, row_losses

BUCKETS = 10_000  # of hashed n-grams
_SMOOTHING = 1.0  # counts added to every bucket


def chance(rows: int, seed: int) -> Float32[ndarray, " rows"]:
    """Uniform numbers."""
    return np.random.default_rng([seed, 7]).random(rows, np.float32)


def bm25(pool: Sequence[str], queries: Sequence[str]) -> Float32[ndarray, "rows queries"]:
    """Okapi BM25 of every row for every validation text (Robertson and Zaragoza 2009), by ``bm25s``."""
    import bm25s

    index = bm25s.BM25()
    index.index(_words(pool), show_progress=False)
    found = np.empty((len(pool), len(queries)), np.float32)
    for i, words in enumerate(_words(queries)):
        found[:, i] = index.get_scores(words) if words else 0.0
    return found


def _words(texts: Sequence[str]) -> list[list[str]]:
    return [re.findall(r"\w+", text.lower()) for text in texts]


def dsir(pool: Sequence[str], target: Sequence[str], seed: int) -> Float32[ndarray, " rows"]:
    """Log importance weights of hashed words and pairs of words, with Gumbel noise: the top of them is a sample drawn
    without replacement by weight (Xie, Santurkar, Ma and Liang 2023)."""
    counts = [_hashed(words) for words in _words(pool)]
    wanted = np.sum([_dense(_hashed(words)) for words in _words(target)], axis=0) + _SMOOTHING
    there = np.sum([_dense(c) for c in counts], axis=0) + _SMOOTHING
    ratio = np.log(wanted / wanted.sum()) - np.log(there / there.sum())
    weights = np.array([float(ratio[c].sum()) for c in counts])
    return np.asarray(weights + np.random.default_rng([seed, 8]).gumbel(size=len(weights)), np.float32)


def _hashed(words: Sequence[str]) -> ndarray:
    """The bucket of every word and pair of neighbours."""
    grams = [*words, *(f"{a} {b}" for a, b in pairwise(words))]
    return np.array([zlib.crc32(gram.encode()) % BUCKETS for gram in grams], np.int64)


def _dense(buckets: ndarray) -> Float64[ndarray, " buckets"]:
    return np.bincount(buckets, minlength=BUCKETS).astype(np.float64)


def answer_lengths(examples: Sequence[Example]) -> Float32[ndarray, " rows"]:
    """Tokens of the answers: long ones are picked (Zhao and others 2024, "Long is more for alignment")."""
    return np.array([example.answer.sum() for example in examples], np.float32)


def losses(model: Any, examples: Sequence[Example], batch_tokens: int) -> Float32[ndarray, " rows"]:
    """Mean loss of the answer under the untuned model, in nats a token: rows it finds hard are picked."""
    found = np.empty(len(examples), np.float32)
    with torch.no_grad(), Progress("losses of the pool, rows", len(examples)) as progress:
        for places in batches(examples, batch_tokens):
            found[places] = row_losses(model, [examples[i] for i in places], mean=True).float().cpu()
            progress.advance(len(places))
    return found


def states(model: Any, examples: Sequence[Example], batch_tokens: int) -> Float32[ndarray, "rows d"]:
    """The last block's hidden state at the last token, of length one: representations as RDS has them."""
    found: Any = None
    with torch.no_grad(), Progress("hidden states, rows", len(examples)) as progress:
        for places in batches(examples, batch_tokens):
            some = [examples[i] for i in places]
            tokens, there, _ = padded(some, model.device)
            hidden = model.base_model(input_ids=tokens, attention_mask=there, use_cache=False).last_hidden_state
            last = hidden[torch.arange(len(some)), there.sum(1) - 1].float().cpu().numpy()
            found = np.empty((len(examples), last.shape[1]), np.float32) if found is None else found
            found[places] = last
            progress.advance(len(some))
    return normalized(found)

"""Answers drawn from the model that is being tuned, with the very tokens that were drawn.

Knows models and prompts. Does not know rewards. Decoded text is for rewards alone: gradients are of the drawn tokens,
the end of text among them, for a text encoded again may have other tokens and no end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int32
from numpy import ndarray

from icml25cli.core.models import runnable
from icml25cli.papers.select_data.tokens import Coder, Example
from icml25cli.papers.select_data.training import seeded


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn; the paper's settings (its scripts), whose filters bias the gradient a little."""

    count: int = 20  # answers a prompt, M in the paper
    temperature: float = 1.0
    top_k: int = 50  # 0 for all
    top_p: float = 0.95
    max_new_tokens: int = 300
    seed: int = 0

    @property
    def unbiased(self) -> bool:
        """Answers come from the very distribution that is differentiated."""
        return self.temperature == 1 and self.top_k == 0 and self.top_p == 1


@dataclass(frozen=True)
class Answer:
    """One answer: its tokens with the end of text, where it came to one."""

    tokens: tuple[int, ...]
    text: str
    finished: bool = True

    def example(self, prompt: Int32[ndarray, " n"]) -> Example:
        """Prompt and answer; the answer's tokens count."""
        tokens = np.concatenate([prompt, np.asarray(self.tokens, np.int32)])
        return Example(tokens, np.arange(len(tokens)) >= len(prompt))

    def document(self) -> dict[str, Any]:
        return {"tokens": list(self.tokens), "text": self.text, "finished": self.finished}

    @classmethod
    def read(cls, document: dict[str, Any]) -> Answer:
        return cls(tuple(document["tokens"]), document["text"], document["finished"])


def prompt_groups(prompts: Sequence[Int32[ndarray, " n"]], count: int, tokens: int) -> Iterator[list[int]]:
    """Places of prompts of one length, so many that drawing ``count`` answers to each needs no padding and about
    ``tokens`` tokens."""
    by_length: dict[int, list[int]] = {}
    for i, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(i)
    for length, places in by_length.items():
        size = max(1, tokens // (count * length))
        yield from (places[first : first + size] for first in range(0, len(places), size))


def draw(
    model: Any,
    coder: Coder,
    prompts: Sequence[Int32[ndarray, " n"]],
    sampling: Sampling,
    seed: int,
    begun: Sequence[str] | None = None,
) -> list[list[Answer]]:
    """``sampling.count`` answers to every prompt, all prompts being of one length.

    Args:
        seed: of this group; the same seed draws the same answers on the same machine.
        begun: what each prompt holds already of its answers' texts.
    """
    tokenizer = coder.tokenizer
    ends = _ends(model, tokenizer)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    ids = torch.from_numpy(np.stack(prompts).astype(np.int64)).to(model.device)
    greedy = sampling.temperature == 0
    chosen: dict[str, Any] = {"do_sample": False, "num_beams": 1} if greedy else {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "num_return_sequences": sampling.count,
    }  # fmt: skip
    model.eval()
    with torch.no_grad(), seeded(model.device, seed), runnable("the model"):
        drawn = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=sampling.max_new_tokens,
            pad_token_id=pad,
            eos_token_id=sorted(ends),
            **chosen,
        )[:, ids.shape[1] :].tolist()
    count = 1 if greedy else sampling.count
    starts = begun or [""] * len(prompts)
    return [
        [_answer(tokens, ends, coder, start) for tokens in drawn[i * count : (i + 1) * count]]
        * (sampling.count if greedy else 1)
        for i, start in enumerate(starts)
    ]


def _answer(tokens: list[int], ends: set[int], coder: Coder, begun: str) -> Answer:
    """Up to the first end of text: what follows is padding."""
    stop = next((i for i, token in enumerate(tokens) if token in ends), None)
    kept = tokens if stop is None else tokens[: stop + 1]
    return Answer(tuple(kept), begun + coder.text(kept), stop is not None)


def _ends(model: Any, tokenizer: Any) -> set[int]:
    """Tokens that end an answer: the tokenizer's, and those that the model's files name."""
    named = getattr(model.generation_config, "eos_token_id", None)
    return {tokenizer.eos_token_id, *(named if isinstance(named, list) else [named] if named is not None else [])}

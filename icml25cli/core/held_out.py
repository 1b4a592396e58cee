"""Windows of text to calibrate on and to judge by, for one model, with nothing in both.

Knows texts, tokenizers and how long a model's windows may be. Does not know what is calibrated or judged.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Int64
from numpy import ndarray
from transformers import PreTrainedTokenizerBase

from icml25cli.core.errors import CheckFailed
from icml25cli.core.models import ModelSource, context_length
from icml25cli.core.progress import note, warn
from icml25cli.core.text import find_text, shares_text, token_stream, windows

MOST_SHARED = 0.1  # of the evaluation windows may share text with calibration, and are left out; beyond, it is a leak

SHORTEST_TOLD = 16  # tokens; shorter runs are common phrases, which any two texts share


@dataclass(frozen=True)
class Sample:
    """Windows of token ids, and where they are from."""

    windows: Int64[ndarray, "windows length"]
    origin: str  # one line for reports, with the number of tokens
    text: str  # what they were drawn from


def calibration_sample(
    source: ModelSource, tokenizer: PreTrainedTokenizerBase, text: str, *, tokens: int, window: int, seed: int
) -> Sample:
    """Windows drawn by ``seed``, about ``tokens`` tokens in all; no longer than the model takes them.

    Args:
        text: as ``find_text`` takes it; of the built-in text the calibration part.

    Raises:
        InputError: the text cannot be found or read, or is shorter than one window.
    """
    length = min(window, context_length(source.config) or window)
    if length < window:
        note(f"windows are of {length} tokens, the most that {source.name} reads")
    found = find_text(text, "calibration")
    stream = token_stream(found, tokenizer)
    drawn = windows(stream, length, count=max(1, tokens // length), seed=seed, name=found.name)
    return Sample(drawn, f"{found.origin}, {drawn.size} tokens", found.origin)


def evaluation_sample(tokenizer: PreTrainedTokenizerBase, text: str, *, tokens: int, calibration: Sample) -> Sample:
    """The first windows of a text, as long as those of ``calibration``, about ``tokens`` tokens in all, at least two.

    They are the same for every seed. Windows that share text with ``calibration`` are left out, with a warning; another
    says so where both are of one text.

    Args:
        text: as ``find_text`` takes it; of the built-in text the test part.

    Raises:
        CheckFailed: more than ``MOST_SHARED`` of them share text with ``calibration``.
        InputError: as ``calibration_sample``.
    """
    length = calibration.windows.shape[1]
    found = find_text(text, "test")
    drawn = windows(token_stream(found, tokenizer), length, count=max(2, tokens // length), name=found.name)
    shared = shares_text(drawn, calibration.windows)
    if shared.mean() > MOST_SHARED and length < SHORTEST_TOLD:
        raise CheckFailed(
            f"windows of {length} tokens are too short to tell whether --eval and --calib share text",
            hint=f"use windows of {SHORTEST_TOLD} tokens or more",
        )
    if shared.mean() > MOST_SHARED:
        raise CheckFailed(
            f"{shared.mean():.0%} of the evaluation windows contain text of the calibration windows",
            hint="give --eval a text that is not in --calib",
        )
    if shared.any():  # a licence or a quotation that both texts hold
        warn(f"{shared.sum()} of {len(shared)} evaluation windows were left out: they share text with calibration")
        drawn = drawn[~shared]
    if found.origin == calibration.text:
        warn(f"calibration and evaluation are other windows of one text, {found.origin}: a text of its own tells more")
    return Sample(drawn, f"{found.origin}, {drawn.size} tokens", found.origin)

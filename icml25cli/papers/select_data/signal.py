"""How far the drawn answers can be trusted to say which rows help.

Two halves of the answers make two selections: where these hardly share a row, chance chose them. Rank correlation over
the whole pool, or between halves of the prompts, does not tell good runs from bad ones. Knows rewards, weights and
scores. Does not know models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy import ndarray

SHAKY, UNUSABLE = 0.6, 0.5  # overlap of the selections of two halves
ADVICE = "draw more answers (--mc), raise --temperature, give --samples of a stronger model, or use easier prompts"


@dataclass(frozen=True)
class Signal:
    """What rewards and weights of one method's run tell."""

    prompts: int
    prompts_with_success: float  # share
    success_rate: float  # share of answers with a positive reward
    mean_reward: float
    effective_answers: float  # Kish's size of the weights, mean over prompts with any
    unfinished: float  # share of answers cut off by the limit of new tokens
    failed: int  # answers whose reward could not be had
    half_overlap: float | None  # None where it was not measured

    @property
    def verdict(self) -> str:
        if self.half_overlap is None:
            return "not measured"
        if self.half_overlap < UNUSABLE:
            return "unusable"
        return "shaky" if self.half_overlap < SHAKY else "steady"

    @property
    def warning(self) -> str | None:
        if self.half_overlap is None or self.half_overlap >= SHAKY:
            return None
        bad = "is unusable" if self.half_overlap < UNUSABLE else "may be mostly noise"
        return (
            f"two halves of the drawn answers agree on {self.half_overlap:.0%} of the rows, so this selection {bad}: "
            f"{ADVICE}"
        )

    def row(self) -> dict[str, Any]:
        return {
            "prompts": self.prompts,
            "prompts_with_success": self.prompts_with_success,
            "success_rate": self.success_rate,
            "mean_reward": self.mean_reward,
            "effective_answers": self.effective_answers,
            "unfinished": self.unfinished,
            "failed_rewards": self.failed,
            "half_overlap": self.half_overlap,
            "verdict": self.verdict,
        }


def effective_size(weights: Float64[ndarray, " m"]) -> float:
    """How many answers of equal weight tell as much (Kish 1965); zero where none has any."""
    squares = np.square(weights).sum()
    return float(np.abs(weights).sum() ** 2 / squares) if squares > 0 else 0.0


def halves(count: int) -> tuple[Bool[ndarray, " m"], Bool[ndarray, " m"]]:
    """Every second answer, and the others."""
    even = np.arange(count) % 2 == 0
    return even, ~even


def overlap(first: Int64[ndarray, " k"], second: Int64[ndarray, " k"]) -> float:
    """Share of the rows that both selections have."""
    return len(np.intersect1d(first, second)) / max(len(first), len(second))


def measure(
    rewards: Sequence[Float64[ndarray, " m"]],
    weights: Sequence[Float64[ndarray, " m"]],
    finished: Sequence[Sequence[bool]],
    failed: int,
    half_overlap: float | None,
) -> Signal:
    """Over all prompts and checkpoints; one entry a prompt and checkpoint.

    Args:
        rewards: NaN where an answer's could not be had.
        half_overlap: of the selections that two halves of the answers make.
    """
    known = [r[~np.isnan(r)] for r in rewards]
    values = np.concatenate(known) if known else np.zeros(0)
    sizes = [effective_size(w) for w in weights]
    ends = [end for some in finished for end in some]
    return Signal(
        prompts=len(rewards),
        prompts_with_success=float(np.mean([bool((r > 0).any()) for r in known])),
        success_rate=float((values > 0).mean()) if len(values) else 0.0,
        mean_reward=float(values.mean()) if len(values) else 0.0,
        effective_answers=float(np.mean([size for size in sizes if size])) if any(sizes) else 0.0,
        unfinished=1 - float(np.mean(ends)) if ends else 0.0,
        failed=failed,
        half_overlap=half_overlap,
    )

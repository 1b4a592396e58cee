"""What each drawn answer weighs in a prompt's gradient: the paper's policy gradient and its variants.

The gradient of a prompt is the sum over its answers of weight times the gradient of their negative log-likelihood.
Knows rewards as numbers. Does not know models or texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from icml25cli.core.errors import UsageError

Name = Literal["vanilla", "rejection", "hard-rejection", "topk-rejection", "topk-hard"]
BEST = 10  # answers that the topk policies keep
_ALIKE = 1e-5  # below the reference's reward an answer still passes for as good


@dataclass(frozen=True)
class Policy:
    """How rewards become weights.

    ``vanilla`` is REINFORCE: the reward itself. ``rejection`` keeps answers with a positive reward, ``hard-rejection``
    those as good as the reference, ``topk-rejection`` the best ten, ``topk-hard`` the best ten of those as good as the
    reference; what is kept weighs its reward over their number.
    """

    name: Name = "vanilla"
    baseline: str = "none"  # or rloo: less the mean reward of the other answers (beyond the paper)
    pass_at: int | None = None  # k of pass@k (beyond the paper)
    token_mean: bool = False  # of an answer's log-likelihood, as the scripts' do_normalize; else its sum

    def __post_init__(self) -> None:
        if self.name not in get_args(Name):
            raise UsageError(f"--policy {self.name} is none", hint=f"one of {', '.join(get_args(Name))}")
        if self.baseline not in ("none", "rloo"):
            raise UsageError(f"--reward-baseline {self.baseline} is none", hint="none or rloo")
        if self.name != "vanilla" and (self.baseline != "none" or self.pass_at):
            raise UsageError("--reward-baseline and --pass-at go with --policy vanilla", hint="leave one out")
        if self.baseline != "none" and self.pass_at:
            raise UsageError("--reward-baseline and --pass-at exclude each other", hint="leave one out")

    @property
    def needs_reference(self) -> bool:
        return self.name in ("hard-rejection", "topk-hard")

    def weights(self, rewards: Float64[ndarray, " m"], reference: float | None = None) -> Float64[ndarray, " m"]:
        """One weight an answer.

        Args:
            rewards: not NaN; an answer without a reward is left out before.
            reference: the reward of the reference answer, for the hard policies.
        """
        if self.pass_at:
            return pass_at_weights(rewards >= 1.0, self.pass_at)
        if self.baseline == "rloo":
            return leave_one_out(rewards)
        if self.name == "vanilla":
            return rewards.astype(np.float64)
        kept = rewards > 0 if self.name in ("rejection", "topk-rejection") else rewards > (reference or 0.0) - _ALIKE
        if self.name.startswith("topk"):
            best = np.zeros(len(rewards), bool)
            best[np.argsort(-rewards, kind="stable")[:BEST]] = True
            kept &= best
        return np.where(kept, rewards, 0.0) / max(1, kept.sum())


def leave_one_out(rewards: Float64[ndarray, " m"]) -> Float64[ndarray, " m"]:
    """Each reward less the mean of the others (Kool, van Hoof and Welling 2019); zeros where all are alike."""
    if len(rewards) < 2 or np.ptp(rewards) == 0:
        return np.zeros(len(rewards))
    return (rewards - rewards.mean()) * (len(rewards) / (len(rewards) - 1))


def pass_at_weights(right: ndarray, k: int) -> Float64[ndarray, " m"]:
    """Weights by which the gradient is that of pass@k: k/M times 1 for a right answer, and for a wrong one the chance
    that k-1 others, drawn from the M-1, hold a right one."""
    m, c = len(right), int(right.sum())
    if not 1 <= k <= m:
        raise UsageError(f"--pass-at {k} needs as many answers, and there are {m}", hint="raise --mc")
    helped = 1 - comb(m - 1 - c, k - 1) / comb(m - 1, k - 1) if m - 1 - c >= 0 else 1.0
    return k / m * np.where(right, 1.0, helped)

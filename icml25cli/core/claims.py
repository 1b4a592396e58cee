"""A paper's claims as checks that can fail.

A claim predicts an inequality about a measured quantity with its interval, and names a negative control, the method
with its core step removed, on which the same inequality must fail. Knows no paper.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from icml25cli.core import store
from icml25cli.core.errors import MissingError

Size = Literal["quick", "full"]
Verdict = Literal["holds", "does not hold", "undecided", "not testable here"]


@dataclass(frozen=True)
class Interval:
    """A statistic with its 95 % interval; exact quantities have ``low == value == high``."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Interval:
        return cls(value, value, value)

    @classmethod
    def of_mean(cls, values: ArrayLike) -> Interval:
        """Mean of two or more independent values, with Student's interval."""
        x = np.asarray(values, np.float64)
        if x.ndim != 1 or len(x) < 2:
            raise ValueError(f"values of shape {x.shape} have no interval")
        mean, width = x.mean(), stdtrit(len(x) - 1, 0.975) * x.std(ddof=1) / len(x) ** 0.5
        return cls(float(mean), float(mean - width), float(mean + width))

    def map(self, function: Callable[[float], float]) -> Interval:
        """The interval of a monotone function of the statistic."""
        low, high = sorted((function(self.low), function(self.high)))
        return Interval(function(self.value), low, high)


@dataclass(frozen=True)
class Prediction:
    """An inequality with its minimal effect built into the bound."""

    relation: Literal["at most", "at least"]
    bound: float

    def __str__(self) -> str:
        return f"{self.relation} {self.bound:g}"

    def judge(self, measured: Interval) -> Verdict:
        """Holds or not when the whole interval lies on one side of the bound, undecided when it crosses it."""
        sign = 1 if self.relation == "at most" else -1
        low, high = sorted((sign * measured.low, sign * measured.high))
        if high <= sign * self.bound:
            return "holds"
        return "does not hold" if low > sign * self.bound else "undecided"


def at_most(bound: float) -> Prediction:
    return Prediction("at most", bound)


def at_least(bound: float) -> Prediction:
    return Prediction("at least", bound)


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    ``measure`` and ``control`` take the size of the run and return the same quantity, the second with the method's
    core step removed. Either may raise ``MissingError``: the claim is then not testable here, for that reason. At other
    sizes than ``sizes`` it is not checked at all.
    """

    name: str
    says: str
    source: str
    published: str
    quantity: str
    predicts: Prediction
    measure: Callable[[Size], Interval]
    control: Callable[[Size], Interval]
    without: str  # what the control lacks, and has instead
    sizes: tuple[Size, ...] = ("quick", "full")


@dataclass(frozen=True)
class Outcome:
    """What became of a claim at one size. Of claims that share a run, the first bears its seconds."""

    claim: Claim
    size: Size
    verdict: Verdict
    measured: Interval | None
    control: Interval | None
    control_fails: bool
    reason: str | None
    seconds: float


def texts_for(model: str) -> tuple[str, str]:
    """Names of a calibration text and an evaluation text of another document, to judge a model by in claims.

    Raises:
        MissingError: the text is not on this machine.
    """
    if model == "tiny":  # which was trained on the built-in text; others were not
        return "builtin", "builtin"
    addresses = store.path("sotu")
    return str(addresses / "1981_jimmy_carter_d.txt"), str(addresses / "1946_harry_s_truman_d.txt")


def check(claim: Claim, size: Size) -> Outcome:
    """Measure ``claim`` and its control."""
    started = time.monotonic()
    try:
        measured, control = claim.measure(size), claim.control(size)
    except MissingError as error:
        reason = f"{error.message}; {error.hint}" if error.hint else error.message
        return Outcome(claim, size, "not testable here", None, None, False, reason, time.monotonic() - started)
    verdict = claim.predicts.judge(measured)
    fails = claim.predicts.judge(control) == "does not hold"
    return Outcome(claim, size, verdict, measured, control, fails, None, time.monotonic() - started)


def figures(outcome: Outcome) -> dict[str, object]:
    """What was measured, as a report row."""
    measured, control = outcome.measured, outcome.control
    return {
        "claim": outcome.claim.name,
        "verdict": outcome.verdict,
        "predicted": str(outcome.claim.predicts),
        "measured": measured and measured.value,
        "low": measured and measured.low,
        "high": measured and measured.high,
        "control": control and control.value,
        "control_fails": outcome.control_fails if control else None,
        "seconds": round(outcome.seconds, 2),
    }


def words(claim: Claim) -> dict[str, object]:
    """What it is about, as a report row."""
    return {
        "claim": claim.name,
        "says": claim.says,
        "quantity": claim.quantity,
        "published": claim.published,
        "source": claim.source,
        "control_without": claim.without,
    }


def all_hold(outcomes: Iterable[Outcome]) -> bool:
    return all(outcome.verdict == "holds" and outcome.control_fails for outcome in outcomes)

"""A paper's claims as checks that can fail.

A claim predicts an inequality about a measured quantity with its interval, and names a negative control, the method
with its core step removed, on which the same inequality must fail. Knows no paper.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

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
    def normal(cls, mean: float, standard_error: float) -> Interval:
        """Mean plus and minus 1.96 standard errors."""
        return cls(mean, mean - 1.96 * standard_error, mean + 1.96 * standard_error)


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
    core step removed. Either may raise ``MissingError``: the claim is then not testable here, for that reason.
    """

    name: str
    says: str
    source: str
    published: str
    quantity: str
    predicts: Prediction
    measure: Callable[[Size], Interval]
    control: Callable[[Size], Interval]


@dataclass(frozen=True)
class Outcome:
    """What became of a claim at one size."""

    claim: Claim
    size: Size
    verdict: Verdict
    measured: Interval | None
    control: Interval | None
    control_fails: bool
    reason: str | None
    seconds: float


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


def row(outcome: Outcome) -> dict[str, object]:
    """``outcome`` as a report row."""
    measured, control = outcome.measured, outcome.control
    return {
        "claim": outcome.claim.name,
        "verdict": outcome.verdict,
        "quantity": outcome.claim.quantity,
        "published": outcome.claim.published,
        "predicted": str(outcome.claim.predicts),
        "measured": measured and measured.value,
        "low": measured and measured.low,
        "high": measured and measured.high,
        "control": control and control.value,
        "control_fails": outcome.control_fails if control else None,
        "seconds": round(outcome.seconds, 2),
        "says": outcome.claim.says,
        "source": outcome.claim.source,
        "reason": outcome.reason,
    }


def all_hold(outcomes: Iterable[Outcome]) -> bool:
    return all(outcome.verdict == "holds" and outcome.control_fails for outcome in outcomes)

"""A paper's claims as checks that can fail.

A claim predicts an inequality about a measured quantity with its interval, and names a negative control, the method
with its core step removed, on which the same inequality must fail. Knows no paper.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from icml25cli.core import store
from icml25cli.core.errors import MissingError
from icml25cli.core.files import write_json
from icml25cli.core.progress import track
from icml25cli.core.runs import Run, fingerprint, run_directory

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


def check_each(
    claims: Sequence[Claim], size: Size, name: str, *, resume: bool = False, fresh: bool = False
) -> list[Outcome]:
    """Check the claims of the paper behind command ``name``; outcomes are kept until all are there.

    What a run of the same code measured before it was cut short is not measured again. A whole one leaves nothing, so
    that the next measures.
    """
    package = Path(__file__).parents[1]
    code = [*package.glob("core/*.py"), *package.glob(f"papers/{name.replace('-', '_')}/**/*.py")]
    inputs: dict[str, Any] = {"size": size, "claims": [words(claim) for claim in claims], "code": sorted(code)}
    directory = run_directory(f"claims-{name}", fingerprint(inputs), None)
    with Run.open(directory, inputs, resume=resume, fresh=fresh) as run:
        done = [_kept(run, f"{i:03d}.json", claim, size) for i, claim in enumerate(track(claims, f"claims of {name}"))]
    shutil.rmtree(directory)
    return done


def _kept(run: Run, unit: str, claim: Claim, size: Size) -> Outcome:
    if not run.has(unit):
        found = check(claim, size)
        held = asdict(replace(found, claim=None))  # type: ignore[arg-type]
        run.write(unit, lambda path: write_json(path, held))
        return found
    held = json.loads(run.path(unit).read_text(encoding="utf-8"))
    intervals = {key: held[key] and Interval(**held[key]) for key in ("measured", "control")}
    return Outcome(**held | intervals | {"claim": claim})


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

"""Rewards: any number that says how good an answer is, and need not be differentiable.

All share one form: a prompt, an answer and the row it is for become a float. Knows texts. Does not know models of its
own, nor what rewards are used for; those that run programs, models or servers are in ``judges``.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.models import first_line
from icml25cli.core.usage import nearest
from icml25cli.papers.select_data.rows import Message, Row

MOST_FAILED = 0.05  # of the answers; beyond, the reward is refused
SPECS = (
    "exact, contains, regex:PATTERN, number, f1, rougeL, json-valid, json-schema:FILE, length:max=WORDS, unit-tests, "
    "rm:DIR, judge:URL#MODEL, py:MODULE:FUNCTION or cmd:COMMAND"
)


@dataclass(frozen=True)
class Asked:
    """An answer to be judged."""

    prompt: tuple[Message, ...]
    answer: str
    reference: str | None
    record: Mapping[str, Any] = field(repr=False)  # the row as it stands in the file

    @classmethod
    def of(cls, row: Row, answer: str) -> Asked:
        return cls(row.conversation.prompt, answer, row.conversation.answer, row.record)

    @property
    def question(self) -> str:
        return "\n\n".join(message["content"] for message in self.prompt)


class Reward(Protocol):
    """Judges answers, several at once."""

    @property
    def spec(self) -> str:
        """As the user wrote it, and whatever else a run is keyed by."""
        ...

    @property
    def files(self) -> tuple[Path, ...]:
        """What it is made of, for a run to be keyed by: edited, it is another reward."""
        ...

    @property
    def note(self) -> str | None:
        """A sentence that a report must show."""
        ...

    @property
    def needs_reference(self) -> bool:
        """Whether it compares with the rows' own answers."""
        ...

    def __call__(self, asked: Sequence[Asked]) -> list[float]:
        """A number an answer; NaN for one that cannot be judged."""
        ...


@dataclass(frozen=True)
class Each:
    """A function of one answer as a reward; what it raises is a failure of that answer alone."""

    spec: str
    judge: Callable[[Asked], float]
    needs_reference: bool = False
    note: str | None = None
    files: tuple[Path, ...] = ()

    def __call__(self, asked: Sequence[Asked]) -> list[float]:
        return [self._one(one) for one in asked]

    def _one(self, one: Asked) -> float:
        try:
            return float(self.judge(one))
        except InputError:
            raise
        except (Exception, SystemExit):  # a user's function, or a text nobody thought of
            return math.nan


def make_reward(spec: str, *, unsafe_local: bool = False) -> Reward:
    """The reward that ``spec`` names, see ``SPECS``.

    Raises:
        UsageError: there is no such reward, or what follows its name is not what it takes.
        InputError, MissingError: a file, model, package or sandbox that it needs cannot be used.
    """
    name, colon, rest = spec.partition(":")
    if name in _PLAIN and not colon:
        judge, needs = _PLAIN[name]
        return Each(spec, judge, needs)
    if name in _WITH_ARGUMENT and rest:
        return _WITH_ARGUMENT[name](spec, rest)
    from icml25cli.papers.select_data import judges

    if spec == "unit-tests":
        return judges.unit_tests(unsafe_local=unsafe_local)
    made = {"rm": judges.RewardModel, "judge": judges.judge, "py": judges.function, "cmd": judges.Command}.get(name)
    if made and rest:
        return made(rest)
    known = [*_PLAIN, *_WITH_ARGUMENT, "unit-tests", "rm", "judge", "py", "cmd"]
    near = nearest(name, known)
    if name in known:
        wrong = "takes nothing after its name" if name in (*_PLAIN, "unit-tests") else "is not complete"
        raise UsageError(f"--reward {spec} {wrong}", hint=f"rewards: {SPECS}")
    raise UsageError(f"--reward {spec} is none", hint=f"did you mean {near}?" if near else f"rewards: {SPECS}")


def check_references(reward: Reward, rows: Sequence[Row]) -> None:
    """Refuse, before any work, rows without the answers that a reward compares with.

    Raises:
        InputError: a row has none.
    """
    if reward.needs_reference and (row := next((row for row in rows if row.conversation.answer is None), None)):
        raise InputError(
            f"{row.place} has no answer, and --reward {reward.spec} compares with it",
            hint="give the rows answers, or a reward that needs none, such as json-valid or length:max=50",
        )


def judge_all(reward: Reward, asked: Sequence[Asked]) -> list[float]:
    """Rewards of all answers, NaN where one cannot be had; the same answer to the same row is judged once."""
    keys = [(one.answer, json.dumps(dict(one.record), sort_keys=True, default=str)) for one in asked]
    first = dict(zip(reversed(keys), reversed(asked), strict=True))
    once = dict(zip(first, reward(list(first.values())), strict=True))
    return [float(once[key]) if math.isfinite(once[key]) else math.nan for key in keys]


def check_failures(reward: Reward, values: Sequence[float]) -> int:
    """How many rewards could not be had.

    Raises:
        InputError: more than ``MOST_FAILED`` of them.
    """
    failed = sum(map(math.isnan, values))
    if failed > MOST_FAILED * len(values):
        raise InputError(
            f"--reward {reward.spec} failed on {failed} of {len(values)} answers",
            hint=f"it raised, or gave no finite number; at most {MOST_FAILED:.0%} may fail. Try it on one by hand",
        )
    return failed


# --- of texts ----------------------------------------------------------------------------------------------------


def _words(text: str) -> str:
    return " ".join(text.split())


def _exact(one: Asked) -> float:
    return _words(one.answer) == _words(one.reference or "")


def _contains(one: Asked) -> float:
    return _words(one.reference or "").lower() in _words(one.answer).lower()


_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|[-+]?\.\d+")


def last_number(text: str) -> float | None:
    """The last number in a text, with commas between thousands or without."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def _number(one: Asked) -> float:
    given, wanted = last_number(one.answer), last_number(one.reference or "")
    if wanted is None:
        raise InputError(f"a validation row's answer has no number: {(one.reference or '')[:60]!r}", hint="use exact")
    return given is not None and math.isclose(given, wanted, rel_tol=1e-6, abs_tol=1e-9)


def _f1(one: Asked) -> float:
    """Harmonic mean of precision and recall of words, as SQuAD has it (Rajpurkar and others 2016)."""
    given, wanted = _squad(one.answer), _squad(one.reference or "")
    if not given or not wanted:
        return given == wanted
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted))


def _squad(text: str) -> list[str]:
    plain = re.sub(r"[^\w\s]", "", text.lower())
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def _rouge(one: Asked) -> float:
    from rouge_score.rouge_scorer import RougeScorer  # pyright: ignore[reportMissingImports]

    return RougeScorer(["rougeL"]).score(one.reference or "", one.answer)["rougeL"].fmeasure


def json_of(text: str) -> Any:
    """The JSON that an answer is, or holds between fences.

    Raises:
        ValueError: it is none.
    """
    fenced = re.fullmatch(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", text, re.DOTALL)
    return json.loads(fenced[1] if fenced else text, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _json_valid(one: Asked) -> float:
    try:
        json_of(one.answer)
    except (ValueError, RecursionError):
        return 0.0
    return 1.0


_PLAIN: dict[str, tuple[Callable[[Asked], float], bool]] = {
    "exact": (_exact, True),
    "contains": (_contains, True),
    "number": (_number, True),
    "f1": (_f1, True),
    "rougeL": (_rouge, True),
    "json-valid": (_json_valid, False),
}


def _regex(spec: str, pattern: str) -> Reward:
    try:
        compiled = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise UsageError(f"--reward {spec}: {error}", hint="give a regular expression of Python's") from error
    return Each(spec, lambda one: compiled.search(one.answer) is not None)


def _json_schema(spec: str, file: str) -> Reward:
    import jsonschema

    try:
        schema = json.loads(Path(file).read_text(encoding="utf-8-sig"))
        jsonschema.Draft202012Validator.check_schema(schema)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {(error.strerror or '').lower()}", hint="check the path") from error
    except (ValueError, RecursionError, jsonschema.SchemaError) as error:
        raise InputError(f"{file} is no JSON schema: {first_line(error)}", hint="check the file") from error
    validator = jsonschema.Draft202012Validator(schema)

    def judge(one: Asked) -> float:
        try:
            return validator.is_valid(json_of(one.answer))
        except (ValueError, RecursionError):
            return 0.0

    return Each(f"{spec} {json.dumps(schema, sort_keys=True)}", judge)


def _length(spec: str, rest: str) -> Reward:
    bounds = {"min": 1.0, "max": math.inf}
    for part in rest.split(","):
        name, _, value = part.strip().partition("=")
        if name not in bounds or not value.isdecimal():
            raise UsageError(f"--reward {spec} has '{part}', which is no bound", hint="such as length:min=5,max=50")
        bounds[name] = int(value)
    return Each(spec, lambda one: bounds["min"] <= len(one.answer.split()) <= bounds["max"])


_WITH_ARGUMENT: dict[str, Callable[[str, str], Reward]] = {
    "regex": _regex,
    "json-schema": _json_schema,
    "length": _length,
}

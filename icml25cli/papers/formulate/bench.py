"""Accuracy on a file of problems with labels: within the first readings, of the best by the search's own word, and all.

    problems = read_problems(path)
    records = solve_problems(problems, Settings(), run, jobs=2)
    scores(records)

A label is a number that the objective has to meet; of two, as optima over whole and over real variables, either does.
Whoever abstains is wrong. Every problem's record is a finished unit of a run. Knows problems, labels and records. Does
not know how they are shown.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from icml25cli.core.errors import InputError
from icml25cli.core.files import write_json
from icml25cli.core.parallel import Engine, parallel_map
from icml25cli.core.progress import track
from icml25cli.core.runs import Run
from icml25cli.papers.formulate import nl4opt
from icml25cli.papers.formulate.backends.chat import Chat
from icml25cli.papers.formulate.job import formulate_text
from icml25cli.papers.formulate.settings import Settings
from icml25cli.papers.formulate.tree import Node, counters, is_optimal

TOLERANCES = {"5pct": 0.05, "1e6": 1e-6}  # of the paper, and one that integrality does not slip through
FIRST = (1, 3, 16)  # readings in the order in which the search reached them
TEXTS = ("en_question", "question", "Question", "document", "problem", "text")
LABELS = ("en_answer", "Answer", "answer", "results", "optimum", "label")
SURE = 0.2  # confidence from which the command answers

Record = dict[str, Any]


@dataclass(frozen=True)
class Labelled:
    """A problem of a file: its row, counted from 1, and the objectives that are right; without any it is not scored."""

    row: int
    name: str
    text: str
    labels: tuple[float, ...]
    kinds: tuple[str, ...] = ()


def read_problems(path: Path, limit: int | None = None, shard: tuple[int, int] = (1, 1)) -> list[Labelled]:
    """The problems of a file of JSON lines, in NL4OPT's form or with a question and an answer by any usual name.

    Args:
        limit: rows from the top.
        shard: i of n: every n-th row from the i-th.

    Raises:
        InputError: the file cannot be read, a row is no object or has no text, or there is none.
    """
    found = []
    for number, row in enumerate(read_rows(path, limit), 1):
        if (number - shard[0]) % shard[1]:
            continue
        found.append(_labelled(row, number, path))
    if not found:
        raise InputError(f"{path} has no problems for this shard", hint="one JSON object a line")
    return found


def read_rows(path: Path, limit: int | None = None) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines.

    Raises:
        InputError: the file cannot be read, or a line is no JSON object.
    """
    try:
        lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}", hint="give a file of JSON lines"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text", hint="give a file of JSON lines in UTF-8") from error
    rows = []
    for number, line in enumerate(lines[:limit], 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"row {number} of {path} is no JSON: {error}", hint="one JSON object a line") from error
        inner = next(iter(row.values())) if isinstance(row, dict) and len(row) == 1 else None
        if isinstance(inner, dict):  # {"id": {"document": ...}}, as NL4OPT's first release has it
            row = {"id": next(iter(row)), **inner}
        if not isinstance(row, dict):
            raise InputError(f"row {number} of {path} is no object", hint="one JSON object a line")
        rows.append(row)
    return rows


def text_of(row: dict[str, Any], number: int, path: Path) -> str:
    """The problem in words.

    Raises:
        InputError: there is none under a usual name.
    """
    text = next((row[key] for key in TEXTS if isinstance(row.get(key), str) and row[key].strip()), None)
    if text is None:
        raise InputError(f"row {number} of {path} has no problem in words", hint=f"name it one of {', '.join(TEXTS)}")
    return text


def _labelled(row: dict[str, Any], number: int, path: Path) -> Labelled:
    if nl4opt.DECLARED in row:
        labels: list[float] = nl4opt.optima(row)
        kinds = nl4opt.kinds(row)
    else:
        labels = _numbers(next((row[key] for key in LABELS if row.get(key) is not None), None))
        kinds = [str(row[key]) for key in ("type", "problem_type", "kind") if isinstance(row.get(key), str)][:1]
    return Labelled(number, str(row.get("id", number)), text_of(row, number, path), tuple(labels), tuple(kinds))


def _numbers(value: Any) -> list[float]:
    """Labels as files have them: a number, a text of one, or a list of such; nothing of what is no number."""
    if isinstance(value, list):
        return [number for each in value for number in _numbers(each)]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return []
    try:
        number = float(value)
    except ValueError:
        return []
    return [number] if math.isfinite(number) else []


def solve_problems(
    problems: Sequence[Labelled],
    settings: Settings,
    run: Run,
    *,
    jobs: int | None = None,
    engine: Engine = "local",
    chat: Chat | None = None,
    sure: float = SURE,
) -> list[Record]:
    """A record a problem, those that ``run`` has already read from it.

    With a cluster the directory of the run has to be one that all its machines see.

    Args:
        chat: a language model; it is asked here, about one problem after the other, since it answers in parallel.
        sure: confidence from which a problem counts as answered.

    Raises:
        MissingError: the model is out of reach, or its budget spent; what is finished stays.
    """
    waiting = [problem for problem in problems if not run.has(_unit(problem))]
    if chat is None:
        parallel_map(partial(_solve, run, settings, sure), waiting, jobs, description="problems", engine=engine)
    else:
        for problem in track(waiting, "problems"):
            _solve(run, settings, sure, problem, chat)
    return [json.loads(run.path(_unit(problem)).read_text(encoding="utf-8")) for problem in problems]


def _unit(problem: Labelled) -> str:
    return f"row-{problem.row:06}.json"


def _solve(run: Run, settings: Settings, sure: float, problem: Labelled, chat: Chat | None = None) -> None:
    record = solve_one(problem, settings, chat, sure)
    run.write(_unit(problem), lambda path: write_json(path, record))


def solve_one(problem: Labelled, settings: Settings, chat: Chat | None = None, sure: float = SURE) -> Record:
    """What a search makes of a problem: objectives of its readings in order, and which it took for the best when.

    Raises:
        MissingError: a language model ended before the search.
    """
    started = time.perf_counter()
    try:
        outcome = formulate_text(problem.text, settings, chat=chat)
    except InputError as error:
        return _record(problem, "refused", error.message, started)
    if outcome.cut is not None:
        raise outcome.cut
    if outcome.found is None or outcome.best is None:
        return _record(problem, "abstained", outcome.reason, started)
    found = outcome.found
    return _record(problem, outcome.status, "", started) | {
        "objective": _objective(outcome.best),
        "confidence": outcome.confidence,
        "readings": [_objective(leaf) for leaf in found.leaves],
        "leaders": [_objective(leaf) for leaf in found.leaders],
        "drawn": sum(row["generated"] for row in counters(found.root)),
        "answered": outcome.confidence >= sure,
    }


def _record(problem: Labelled, status: str, reason: str, started: float) -> Record:
    return {
        "row": problem.row,
        "name": problem.name,
        "kinds": [*problem.kinds],
        "labels": [*problem.labels],
        "status": status,
        "reason": reason,
        "objective": None,
        "confidence": 0.0,
        "readings": [],
        "leaders": [],
        "drawn": 0,
        "answered": False,
        "seconds": round(time.perf_counter() - started, 4),
    }


def _objective(leaf: Node | None) -> float | None:
    return leaf.solution.objective if leaf is not None and leaf.solution is not None and is_optimal(leaf) else None


def is_right(value: float | None, labels: Sequence[float], tolerance: float) -> bool:
    """Whether an objective meets a label within a relative tolerance, of 1 where the label is zero."""
    return value is not None and any(abs(value - label) <= tolerance * (abs(label) or 1.0) for label in labels)


def scores(records: Sequence[Record]) -> dict[str, float | int]:
    """Shares of the labelled problems, in [0, 1], by what was looked at and tolerance."""
    labelled = [record for record in records if record["labels"]]
    found: dict[str, float | int] = {"problems": len(records), "labelled": len(labelled)}
    count = max(len(labelled), 1)
    for name, tolerance in TOLERANCES.items():

        def right(record: Record, key: str, first: int | None, tolerance: float = tolerance) -> bool:
            return any(is_right(value, record["labels"], tolerance) for value in record[key][:first])

        for k in FIRST:
            found[f"pass_at_{k}_{name}"] = sum(right(r, "readings", k) for r in labelled) / count
        found[f"pass_at_all_{name}"] = sum(right(r, "readings", None) for r in labelled) / count
        for k in FIRST[1:]:
            best = [(r["leaders"][:k] or [None])[-1] for r in labelled]
            met = [is_right(value, r["labels"], tolerance) for value, r in zip(best, labelled, strict=True)]
            found[f"best_of_{k}_{name}"] = sum(met) / count
        answered = [r for r in labelled if r["answered"]]
        hits = sum(is_right(r["objective"], r["labels"], tolerance) for r in answered)
        found[f"answered_right_{name}"] = hits / max(len(answered), 1)
    found["abstained"] = sum(not record["readings"] for record in labelled) / count
    found["unsure"] = sum(bool(record["readings"]) and not record["answered"] for record in labelled) / count
    seconds = sorted(record["seconds"] for record in records)
    found["median_seconds"] = seconds[len(seconds) // 2] if seconds else 0.0
    return found


def by_kind(records: Sequence[Record]) -> list[dict[str, Any]]:
    """A row a kind of problem; a problem counts for every kind that it is of."""
    rows = []
    for kind in sorted({kind for record in records for kind in record["kinds"]}):
        of_kind = scores([record for record in records if kind in record["kinds"]])
        kept = ("labelled", "pass_at_1_5pct", "pass_at_16_5pct", "best_of_16_5pct", "best_of_16_1e6", "abstained")
        rows.append({"kind": kind, **{key: of_kind[key] for key in kept}})
    return rows

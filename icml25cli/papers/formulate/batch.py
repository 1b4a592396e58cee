"""Many problems, one a line: each is solved and its folder of results kept as a finished unit of a run.

Knows rows with texts. Does not know labels; `bench` does.
"""

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from icml25cli.core.errors import InputError
from icml25cli.core.files import write_json
from icml25cli.core.progress import track
from icml25cli.core.runs import Run
from icml25cli.papers.formulate.backends.chat import Chat
from icml25cli.papers.formulate.bench import read_rows, text_of
from icml25cli.papers.formulate.explain import Explanation, explain
from icml25cli.papers.formulate.job import Outcome, formulate_text
from icml25cli.papers.formulate.results import write_results
from icml25cli.papers.formulate.settings import Settings

RECORD = "record.json"
Record = dict[str, Any]


def read_texts(path: Path) -> list[tuple[str, str]]:
    """Names and texts of the problems of a file of JSON lines; a name is a row's ``id``, else its number.

    Raises:
        InputError: the file cannot be read, a row has no problem in words, or there is no row.
    """
    rows = read_rows(path)
    if not rows:
        raise InputError(f"{path} has no problems", hint="one JSON object a line")
    return [(str(row.get("id", number)), text_of(row, number, path)) for number, row in enumerate(rows, 1)]


def solve_texts(
    texts: Sequence[tuple[str, str]], settings: Settings, run: Run, least: float, chat: Chat | None = None
) -> list[Record]:
    """A record a problem; the unit of each holds its record and, where it is answered, its files.

    Args:
        least: confidence below which there is no answer.

    Raises:
        MissingError: a language model is out of reach or its budget spent; what is finished stays.
    """
    records = []
    for place, (name, text) in track([*enumerate(texts, 1)], "problems"):
        unit = unit_of(place)
        if not run.has(unit):
            run.write(unit, partial(_solve, name, text, settings, least, chat))
        records.append(json.loads((run.path(unit) / RECORD).read_text(encoding="utf-8")))
    return records


def unit_of(place: int) -> str:
    return f"row-{place:06}"


def _solve(name: str, text: str, settings: Settings, least: float, chat: Chat | None, folder: Path) -> None:
    started = time.perf_counter()
    record: Record = {"name": name, "status": "refused", "objective": None, "confidence": 0.0, "reason": ""}
    solution: dict[str, float] = {}
    folder.mkdir()
    try:
        outcome = formulate_text(text, settings, chat=chat)
    except InputError as error:
        record["reason"] = error.message
    else:
        if outcome.cut is not None:
            raise outcome.cut
        record["reason"] = reason = unanswered(outcome, least)
        record |= {"status": "abstained" if reason else outcome.status, "confidence": outcome.confidence}
        if not reason:
            explanation = explained(outcome, settings)
            write_results(folder, outcome, explanation, settings.time_limit)
            record["objective"] = explanation.solution.objective
            solution = explanation.solution.by_name(explanation.model)
    write_json(folder / RECORD, record | {"seconds": round(time.perf_counter() - started, 3), "solution": solution})


def unanswered(outcome: Outcome, least: float) -> str:
    """Why no answer is given at a least confidence; empty where one is."""
    if outcome.best is None:
        return outcome.reason
    if outcome.confidence >= least:
        return ""
    why = "; ".join(outcome.doubts) or "other readings are as likely"
    return f"the confidence is {outcome.confidence:.2f}: {why}"


def explained(outcome: Outcome, settings: Settings) -> Explanation:
    """The best reading with prices and reasons in the words of the text."""
    assert outcome.best is not None
    assert outcome.best.model is not None
    return explain(outcome.best.model, settings.solver, settings.time_limit, outcome.wording)

"""A user's files as a job: rows read, oddities counted and warned of, subtasks made out, answers from elsewhere found.

Knows files and rows. Does not know gradients or scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icml25cli.core.errors import InputError
from icml25cli.core.models import ModelSource, context_length
from icml25cli.core.progress import track, warn
from icml25cli.core.text import read_json_lines
from icml25cli.papers.select_data.judges import ask, server
from icml25cli.papers.select_data.rows import Pool, Row, check_validation, make_pool, read_rows
from icml25cli.papers.select_data.sampling import Sampling
from icml25cli.papers.select_data.scoring import Subtasks

ANSWERS = 'each line is {"row": 1, "responses": ["...", "..."]}, row being that of the validation file'


@dataclass(frozen=True)
class Data:
    """What a selection is made from and for."""

    pool: Pool
    validation: list[Row]
    test: list[Row]  # to judge tuned models by; none of them is among the validation rows
    subtasks: Subtasks


def read_data(
    pool: Sequence[Path],
    validation: Path,
    *,
    test: Path | None = None,
    hold_out: bool = False,
    subtask_field: str | None = None,
    subtasks: int = 1,
    drop_leak: bool = False,
) -> Data:
    """Read and check all rows; what is odd is counted and warned of.

    Args:
        hold_out: where there is no ``test``, every second validation row is kept for it.
        subtask_field: of validation rows: rows of one value are one subtask.
        subtasks: without it, so many of consecutive rows.

    Raises:
        InputError, UsageError: as ``read_rows``, ``make_pool``, ``check_validation`` and ``Subtasks``.
    """
    asked = read_rows([validation])
    check_validation(asked)
    tested = read_rows([test]) if test else []
    check_validation(tested)
    if hold_out and not test:
        if len(asked) < 2:
            raise InputError(
                f"{validation} has one row, and half of them are to be held out", hint="give a --test file"
            )
        asked, tested = asked[::2], asked[1::2]
    known = {row.conversation.asked for row in asked}
    if shared := sum(row.conversation.asked in known for row in tested):
        warn(f"{shared} test rows ask what a validation row asks: their metric is not held out")
    found = make_pool(read_rows(pool), [*asked, *tested], drop_leak=drop_leak)
    if found.leaked:
        said = "were left out" if drop_leak else "stay in; --drop-leak leaves them out"
        warn(f"{found.leaked} rows of the pool ask what a validation or test row asks; they {said}")
    if found.unanswered:
        warn(f"{found.unanswered} rows of the pool were set aside: they do not end with an answer")
    if found.repeated:
        warn(f"{found.repeated} rows of the pool are there before; --dedupe picks each once")
    if subtask_field is None:
        return Data(found, asked, tested, Subtasks.of_equal_size(len(asked), subtasks))
    names = []
    for row in asked:
        if subtask_field not in row.record:
            raise InputError(f"{row.place} has no field {subtask_field}", hint="--subtask-field names one of all rows")
        names.append(str(row.record[subtask_field]))
    return Data(found, asked, tested, Subtasks.by_name(names))


def fitting_length(source: ModelSource, max_length: int) -> int:
    """``max_length``, or the model's window where that is shorter."""
    window = context_length(source.config)
    return min(max_length, window) if window else max_length


def read_answers(path: Path, validation: Sequence[Row]) -> list[list[str]]:
    """Answers of another model to every validation row, from JSON lines.

    Raises:
        InputError: a line is of another form or names no validation row, or a row has no answer.
    """
    found: list[list[str]] = [[] for _ in validation]
    for number, line in read_json_lines(path, hint=ANSWERS):
        row: Any = line if isinstance(line, dict) else {}
        texts = row.get("responses", row.get("response"))
        texts = [texts] if isinstance(texts, str) else texts
        place = row.get("row")
        if not (isinstance(place, int) and 1 <= place <= len(found)) or isinstance(place, bool):
            raise InputError(f"{path}, line {number} names no validation row from 1 to {len(found)}", hint=ANSWERS)
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{path}, line {number} holds no answers", hint=ANSWERS)
        found[place - 1] += texts
    if empty := [str(i + 1) for i, texts in enumerate(found) if not texts]:
        raise InputError(f"{path} has no answer to validation row {empty[0]}", hint=ANSWERS)
    return found


def ask_for_answers(address: str, validation: Sequence[Row], sampling: Sampling) -> list[list[str]]:
    """Answers of a stronger model behind a server, ``http://host/v1#MODEL``, to every validation row.

    Raises:
        MissingError: it cannot be reached.
        UsageError: the address names no server or no model.
    """
    url, _, model = address.partition("#")
    if not model:
        raise InputError(f"--assist-url {address} names no model", hint="http://localhost:8000/v1#MODEL")
    client = server(url)
    how = {"temperature": sampling.temperature, "max_tokens": sampling.max_new_tokens, "count": sampling.count}
    asked = track(validation, f"answers of {model}, prompts")
    return [ask(client, model, list(row.conversation.prompt), **how) for row in asked]

"""Answers kept in a file: recorded while a model gives them, played back without one.

    Recording(Path("farmer.jsonl"), chat)    # asks what the file lacks, and keeps it
    Recording(Path("farmer.jsonl"))          # asks nobody

A file of JSON lines, of which the first says who answered: others are a request and its answers each, added as they
come, so that a recording that was cut short goes on where it ended. Answers that hold no JSON are asked for anew: a
server that was broken does not spoil the recording. Knows requests. Does not know what they are about.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from icml25cli.core.errors import InputError
from icml25cli.core.files import Lock, output_errors
from icml25cli.core.forms import check_form
from icml25cli.core.runs import fingerprint
from icml25cli.papers.formulate.backends.answers import last_object
from icml25cli.papers.formulate.backends.chat import About, Chat, Request, Sampling, Usage

SCHEMA = "icml25/recording/1"
_HEAD = {"schema": str, "backend": str, "model": str, "temperature": float, "max_tokens": int}
_LINE = {"system": str, "user": str, "count": int, "seed": int, "answers": list}


class Recording:
    """Answers from a file, and with a ``chat`` from there what the file lacks; use ``recording`` for writing.

    Raises:
        InputError: the file cannot be read or is no recording; without ``chat``, a request is not in it; with one, its
            answers are of another model or were drawn otherwise.
    """

    def __init__(self, path: Path, chat: Chat | None = None) -> None:
        self._path, self._chat = path, chat
        self._answers: dict[str, list[str | None]] = {}
        self.usage = chat.usage if chat else Usage()
        about = None
        if chat is None or path.exists():
            about = self._read()
        if chat is None:
            assert about is not None
            self.about = about
            return
        self.about = chat.about
        if about is None:
            self._append({"schema": SCHEMA, **self.about.document()})
        elif about != self.about:
            raise InputError(
                f"{path} has answers of {about.document()}, not of {self.about.document()}",
                hint="name another file for --record",
            )

    @property
    def notes(self) -> tuple[str, ...]:
        return self._chat.notes if self._chat else (f"No model was asked: {self._path} has its answers.",)

    def complete(self, requests: Sequence[Request]) -> list[list[str | None]]:
        keys = [_key(request) for request in requests]
        new = {key: request for key, request in zip(keys, requests, strict=True) if key not in self._answers}
        if new and self._chat is None:
            raise InputError(
                f"{self._path} lacks a request that this search makes",
                hint="give the problem, the seed and the options of the search that were recorded",
            )
        if new and self._chat is not None:
            for (key, request), texts in zip(new.items(), self._chat.complete([*new.values()]), strict=True):
                self._answers[key] = texts
                self._append({**_document(request), "answers": texts})
        return [[*self._answers[key]] for key in keys]

    def _read(self) -> About:
        path = self._path
        try:
            content = path.read_text(encoding="utf-8")
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(f"{path} cannot be read: {reason}", hint="a recording is made with --record") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is no recording", hint="a recording is made with --record") from error
        whole, _, rest = content.rpartition("\n")
        lines = whole.split("\n") if whole else []
        if not lines:
            raise InputError(f"{path} is no recording", hint="a recording is made with --record")
        head = self._line(1, lines[0], _HEAD)
        if head["schema"] != SCHEMA:
            raise InputError(f"{path} is a recording of the form {head['schema']}", hint="record it again")
        for number, line in enumerate(lines[1:], 2):
            entry = self._line(number, line, _LINE)
            if not all(isinstance(answer, str | None) for answer in entry["answers"]):
                raise InputError(f"{path}, line {number}: an answer is no text", hint="record it again")
            request = Request(entry["system"], entry["user"], entry["count"], entry["seed"])
            key = _key(request)
            if key not in self._answers or not _is_readable(self._answers[key]):
                self._answers[key] = entry["answers"]
        if self._chat is not None:
            self._answers = {key: texts for key, texts in self._answers.items() if _is_readable(texts)}
        if rest and self._chat is not None:  # the writer was ended within a line
            with output_errors(path, path):
                os.truncate(path, len(f"{whole}\n".encode()))
        return About(head["backend"], head["model"], Sampling(head["temperature"], head["max_tokens"]))

    def _line(self, number: int, line: str, form: dict[str, Any]) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{self._path}, line {number}: {error}", hint="a recording is made with --record"
            ) from error
        check_form(entry, form, f"{self._path}, line {number}")
        return entry

    def _append(self, entry: dict[str, Any]) -> None:
        with output_errors(self._path, self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")


@contextlib.contextmanager
def recording(path: Path, chat: Chat) -> Iterator[Recording]:
    """A recording that no other process writes at the same time."""
    with Lock(path.with_name(f".{path.name}.lock")):
        yield Recording(path, chat)


def _is_readable(texts: Sequence[str | None]) -> bool:
    """Whether anything can be made of one of these answers."""
    return any(last_object("", text) is not None for text in texts)


def _document(request: Request) -> dict[str, Any]:
    fields = asdict(request)
    del fields["schema"]  # follows from the question
    return fields


def _key(request: Request) -> str:
    return fingerprint(_document(request))

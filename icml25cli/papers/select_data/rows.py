"""Rows of instruction data as users have them: files, the forms a row may have, and what is asked and answered in one.

A row keeps the bytes it was read as, so that a selection can be written unchanged. Knows files and forms. Does not know
models or tokens.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from icml25cli.core.errors import InputError

FORM = (
    'a row is {"messages": [...]}, {"prompt": ..., "completion": ...} (also question, query; answer, response, output, '
    'reference), {"instruction": ..., "input": ..., "output": ...} or {"conversations": [...]}'
)
_ASKED = ("prompt", "question", "instruction", "query")
_ANSWERED = ("completion", "response", "output", "answer", "reference")
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}

Message = dict[str, str]  # role and content


@dataclass(frozen=True)
class Row:
    """One row of a file: its bytes without the line's end, and where it stands, counted from 1."""

    source: str
    number: int
    raw: bytes = field(repr=False)

    @property
    def place(self) -> str:
        return f"{self.source}, row {self.number}"

    @cached_property
    def record(self) -> Mapping[str, Any]:
        return json.loads(self.raw)

    @cached_property
    def conversation(self) -> Conversation:
        """What is asked and answered.

        Raises:
            InputError: the row has none of the known forms.
        """
        return _conversation(self.record, self.place)


@dataclass(frozen=True)
class Conversation:
    """Messages up to the last answer, and that answer; None where there is none."""

    prompt: tuple[Message, ...]
    answer: str | None

    @property
    def text(self) -> str:
        """All of it, for methods that look at words alone."""
        return "\n".join([*(message["content"] for message in self.prompt), self.answer or ""])

    @property
    def asked(self) -> str:
        """The prompt, for telling whether two rows ask the same: case and blanks do not matter."""
        return re.sub(r"\s+", " ", "\n".join(message["content"] for message in self.prompt)).strip().lower()


# --- files -------------------------------------------------------------------------------------------------------


def read_rows(paths: Sequence[Path]) -> list[Row]:
    """All rows of the files, in order. A row's source is the name of its file, or its path where names repeat.

    Args:
        paths: JSON lines (``.jsonl``, ``.json``, also ``.gz``), Parquet, or a folder that ``datasets`` saved to.

    Raises:
        InputError: a file is absent, torn, not UTF-8 or empty, or a line (named) is no JSON object.
    """
    twice = {name for name, count in Counter(path.name for path in paths).items() if count > 1}
    rows: list[Row] = []
    for path in paths:
        source = str(path) if path.name in twice else path.name
        found = [Row(source, number, raw) for number, raw in enumerate(_raw_rows(path), 1)]
        if not found:
            raise InputError(f"{path} has no row", hint=FORM)
        rows += found
    return rows


def _raw_rows(path: Path) -> Iterator[bytes]:
    if path.is_dir():
        yield from _arrow_rows(path)
    elif path.suffix == ".parquet":
        yield from _parquet_rows(path)
    else:
        yield from _json_rows(path)


def _json_rows(path: Path) -> Iterator[bytes]:
    """The lines of a file that are not blank."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is cut short or no gzip file", hint="copy it again") from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}", hint="check the path"
        ) from error
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        raw = line.removesuffix(b"\r")
        if not raw.strip():
            continue
        try:
            record = json.loads(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, line {number} is not UTF-8", hint="convert it, for example with iconv"
            ) from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number} is not JSON: {error}", hint=FORM) from error
        if not isinstance(record, dict):
            raise InputError(f"{path}, line {number} is no JSON object", hint=FORM)
        yield raw


def _parquet_rows(path: Path) -> Iterator[bytes]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from map(_as_json, batch.to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}", hint="check the file") from error


def _arrow_rows(path: Path) -> Iterator[bytes]:
    """What ``datasets.Dataset.save_to_disk`` wrote."""
    import pyarrow as pa

    shards = sorted(path.glob("data-*.arrow"))
    if not shards:
        raise InputError(f"{path} holds no data-*.arrow", hint="a folder is one that datasets' save_to_disk wrote")
    for shard in shards:
        try:
            with pa.memory_map(str(shard)) as mapped, pa.ipc.open_stream(mapped) as stream:
                for batch in stream:
                    yield from map(_as_json, batch.to_pylist())
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{shard} cannot be read: {error}", hint="save the data set again") from error


def _as_json(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, default=str).encode()


# --- forms -------------------------------------------------------------------------------------------------------


def _conversation(record: Mapping[str, Any], place: str) -> Conversation:
    if isinstance(record.get("messages"), list):
        return _of_messages(record["messages"], ("role", "content"), record, place)
    if isinstance(record.get("conversations"), list):
        return _of_messages(record["conversations"], ("from", "value"), record, place)
    asked = next((name for name in _ASKED if name in record), None)
    if asked is None:
        shown = ", ".join(sorted(record)) or "none"
        raise InputError(f"{place} has no known form, its fields are {shown}"[:300], hint=FORM)
    if isinstance(record[asked], list):  # trl's conversational prompt and completion
        ends = record.get("completion")
        joined = [*record[asked], *(ends if isinstance(ends, list) else [])]
        return _of_messages(joined, ("role", "content"), record, place)
    text = _text(record[asked], f"{place}: {asked}")
    if asked == "instruction" and record.get("input"):
        text = f"{text}\n\n{_text(record['input'], f'{place}: input')}"
    system = record.get("system")
    before = ({"role": "system", "content": system},) if isinstance(system, str) and system.strip() else ()
    return Conversation((*before, {"role": "user", "content": text}), _reference(record, place))


def _of_messages(found: Sequence[Any], names: tuple[str, str], record: Mapping[str, Any], place: str) -> Conversation:
    messages: list[Message] = []
    for number, message in enumerate(found, 1):
        role = message.get(names[0], message.get("role")) if isinstance(message, dict) else None
        if role not in _ROLES:
            raise InputError(f"{place}: message {number} is of no known role", hint=FORM)
        content = message.get(names[1], message.get("content"))
        messages.append({"role": _ROLES[role], "content": _text(content, f"{place}: message {number}")})
    if not messages:
        raise InputError(f"{place} has no message", hint=FORM)
    if messages[-1]["role"] == "assistant":
        return Conversation(tuple(messages[:-1]), messages[-1]["content"])
    return Conversation(tuple(messages), _reference(record, place))


def _reference(record: Mapping[str, Any], place: str) -> str | None:
    name = next((name for name in _ANSWERED if record.get(name) is not None), None)
    if name is None:
        return None
    found = record[name]
    if isinstance(found, int | float) and not isinstance(found, bool):
        return str(found)
    return _text(found, f"{place}: {name}")


def _text(found: Any, where: str) -> str:
    """A string, or the text parts of a message that has several."""
    if isinstance(found, list) and all(isinstance(part, dict) for part in found):
        found = "\n".join(str(part["text"]) for part in found if part.get("type") == "text" and "text" in part)
    if not isinstance(found, str):
        raise InputError(f"{where} is no text", hint=FORM)
    return found


# --- a pool and its validation rows ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    """Rows to choose from, those set aside, and how many of each oddity were met."""

    rows: tuple[Row, ...]  # those that can be learnt from
    unanswered: int  # rows set aside: their last message is no answer, or an empty one
    repeated: int  # rows that stand there more than once, beyond the first
    leaked: int  # rows that ask what a validation row asks
    total: int


def make_pool(rows: Sequence[Row], validation: Sequence[Row], *, drop_leak: bool = False) -> Pool:
    """Rows with an answer; with ``drop_leak`` without those that ask what a validation row asks.

    Raises:
        InputError: a row has no known form, or none is left.
    """
    asked = {row.conversation.asked for row in validation}
    kept: list[Row] = []
    seen: set[bytes] = set()
    unanswered = repeated = leaked = 0
    for row in rows:
        talk = row.conversation
        if not (talk.answer or "").strip() or not talk.prompt:
            unanswered += 1
            continue
        leak = talk.asked in asked
        leaked += leak
        if leak and drop_leak:
            continue
        digest = hashlib.sha256(row.raw).digest()
        repeated += digest in seen
        seen.add(digest)
        kept.append(row)
    if not kept:
        raise InputError("no row of the pool has an answer to learn from", hint=FORM)
    return Pool(tuple(kept), unanswered, repeated, leaked, len(rows))


def check_validation(rows: Sequence[Row]) -> None:
    """Refuse validation rows that ask nothing; they need no answers.

    Raises:
        InputError: a row has no known form or asks nothing.
    """
    for row in rows:
        if not row.conversation.asked:
            raise InputError(f"{row.place} asks nothing", hint=FORM)

"""Answers that were recorded are played back to the byte, without whoever gave them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from icml25cli.core.errors import InputError, MissingError
from icml25cli.papers.formulate.backends.chat import About, Request, Sampling, Usage
from icml25cli.papers.formulate.backends.recording import Recording, recording
from icml25cli.papers.formulate.backends.server import Connection, Server
from icml25cli.papers.formulate.job import formulate_text
from icml25cli.papers.formulate.settings import Settings
from icml25cli.papers.formulate.tree import document
from tests.papers.formulate.backends.scripted import FARMER, status
from tests.papers.formulate.backends.test_language import Chat
from tests.papers.formulate.models import known

pytest.importorskip("openai")
SETTINGS = Settings(candidates=8, rollouts=8, seed=4)


def tree(chat, settings=SETTINGS, text=FARMER) -> str:
    return json.dumps(document(known(formulate_text(text, settings, chat=chat).found).root))


@pytest.mark.parametrize("search", ["mcts", "sequential"])
def test_a_recorded_search_is_repeated_without_the_server(server, tmp_path, search):
    settings = Settings(candidates=8, rollouts=8, seed=4, search=search)
    chat = Server(Connection(server.url, key="sk-very-secret"), Sampling())
    with recording(tmp_path / "farmer.jsonl", chat) as recorded:
        first = tree(recorded, settings)
    asked = len(server.bodies)
    again = Recording(tmp_path / "farmer.jsonl")
    assert tree(again, settings) == first
    assert len(server.bodies) == asked
    assert again.about == chat.about
    assert again.usage.requests == 0
    assert "sk-very" not in (tmp_path / "farmer.jsonl").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["farmer.jsonl"]  # its lock is gone


def test_a_recording_cut_short_goes_on(tmp_path):
    path = tmp_path / "cut.jsonl"
    whole = tree(Recording(path, Chat()))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:9]) + lines[9][:40])
    chat = Chat()
    assert tree(Recording(path, chat)) == whole
    assert len(chat.requests) == len(lines) - 9
    assert path.read_text().splitlines(keepends=True) == lines


def test_what_a_failing_server_said_is_kept(server, tmp_path):
    path = tmp_path / "part.jsonl"
    server.faults = [None] * 4 + [status(401)]
    with pytest.raises(MissingError, match="401"), recording(path, Server(Connection(server.url), Sampling())) as chat:
        tree(chat)
    before = len(server.bodies)
    with recording(path, Server(Connection(server.url), Sampling())) as chat:
        tree(chat)
    bodies = [json.dumps(body) for body in server.bodies]
    assert not set(bodies[:4]) & set(bodies[before:])


def test_another_search_is_not_in_it(tmp_path):
    path = tmp_path / "farmer.jsonl"
    tree(Recording(path, Chat()))
    for settings, text in ((Settings(candidates=8, rollouts=8, seed=5), FARMER), (SETTINGS, f"{FARMER}!")):
        with pytest.raises(InputError, match=r"farmer\.jsonl lacks a request") as caught:
            tree(Recording(path), settings, text)
        assert "seed" in known(caught.value.hint)


def test_answers_of_another_model_are_not_mixed_in(tmp_path):
    path = tmp_path / "farmer.jsonl"
    Recording(path, Chat())
    other = Chat()
    other.about = type(other.about)("openai", "other", Sampling())
    with pytest.raises(InputError, match="'model': 'scripted'"):
        Recording(path, other)


def test_two_writers_exclude_each_other(tmp_path):
    path = tmp_path / "farmer.jsonl"
    with recording(path, Chat()), pytest.raises(InputError, match="is held by"), recording(path, Chat()):
        pass


HEAD = '{"schema": "icml25/recording/1", "backend": "openai", "model": "m", "temperature": 1.0, "max_tokens": 9}\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"", "no recording"),
        (b"\xff\xfe\n", "no recording"),
        (b"one line without an end", "no recording"),
        (b"prose\n", "line 1: Expecting value"),
        (b"[]\n", "line 1: the whole"),
        (b"{}\n", "line 1: the field schema"),
        (HEAD.replace("recording/1", "recording/9").encode(), "of the form icml25/recording/9"),
        (f"{HEAD}{{}}\n".encode(), "line 2: the field system"),
        (
            f'{HEAD}{{"system": "", "user": "", "count": 1, "seed": 0, "answers": [1]}}\n'.encode(),
            "line 2: an answer is no text",
        ),
    ],
    ids=range(10),
)
def test_what_is_no_recording_is_refused_and_left_alone(tmp_path, content, said):
    path: Path = tmp_path / "odd.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        Recording(path)
    if content:
        with pytest.raises(InputError, match=said):
            Recording(path, Chat())
        assert path.read_bytes() == content


def test_the_same_request_is_asked_once(tmp_path):
    chat = Chat()
    recorded = Recording(tmp_path / "r.jsonl", chat)
    request = Request("", '{"score": ...}', 2, 7)
    assert recorded.complete([request, request]) == recorded.complete([request]) * 2
    assert len(chat.requests) == 1


def test_answers_that_hold_no_json_are_asked_for_anew(tmp_path):
    class Chatty:
        about = About("openai", "m", Sampling(1.0, 10))
        notes = ()

        def __init__(self, said: str) -> None:
            self.usage, self._said = Usage(), said

        def complete(self, requests):
            return [[self._said] * request.count for request in requests]

    path, request = tmp_path / "answers.jsonl", Request("s", "u", 2, 0)
    assert Recording(path, Chatty("%%")).complete([request]) == [["%%", "%%"]]
    assert Recording(path, Chatty('{"score": 5}')).complete([request]) == [['{"score": 5}'] * 2]
    assert Recording(path, Chatty('{"score": 9}')).complete([request]) == [['{"score": 5}'] * 2]
    assert Recording(path).complete([request]) == [['{"score": 5}'] * 2]

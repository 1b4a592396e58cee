"""A server that speaks OpenAI's protocol, with its faults: each is mended, or ends in one clear sentence."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from icml25cli.core.errors import InputError, MissingError, UsageError
from icml25cli.papers.formulate.backends.chat import Request, Sampling
from icml25cli.papers.formulate.backends.server import RETRIES, Connection, Server, shown_address
from tests.papers.formulate.backends import scripted
from tests.papers.formulate.backends.scripted import completion, content, cut, silent, status

pytest.importorskip("openai")
REQUEST = Request("Answer with JSON.", 'Mark it: {"score": ...}', 3, 11, {"type": "object"})
SECRET = "sk-very-secret"


@pytest.fixture(autouse=True)
def pauses(monkeypatch) -> list[float]:
    """The client's pauses between tries, which the tests do not wait for."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return waited


def client(server, sampling=Sampling(), **options) -> Server:  # noqa: B008 -- frozen
    return Server(Connection(server.url, "scripted", **options), sampling)


# --- what is asked and answered ----------------------------------------------------------------------------------


def test_one_request_brings_all_answers(server):
    asked = client(server, Sampling(0.5, 99), key=SECRET)
    texts = asked.complete([REQUEST])[0]
    assert texts == [scripted.drawn(server.bodies[0], place) for place in range(3)]
    (body,) = server.bodies
    assert body["n"] == 3
    assert body["seed"] == 11
    assert (body["temperature"], body["max_tokens"], body["model"]) == (0.5, 99, "scripted")
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert server.keys == [f"Bearer {SECRET}"]
    assert vars(asked.usage) == {"requests": 1, "prompt_tokens": 7, "answer_tokens": 9}
    assert asked.notes == ()


def test_without_a_name_the_only_model_is_taken(server):
    assert Server(Connection(server.url), Sampling()).about.model == "scripted"
    server.models = ["small", "large"]
    with pytest.raises(UsageError, match="2 models: small, large"):
        Server(Connection(server.url), Sampling())


@pytest.mark.parametrize("ignored", [False, True], ids=["refused", "ignored"])
def test_without_n_answers_are_asked_for_one_by_one(server, ignored):
    server.ignores_n = ignored
    server.refuses = set() if ignored else {"n"}
    asked = client(server, concurrency=2)
    texts = asked.complete([REQUEST])[0]
    singles = [body for body in server.bodies if "n" not in body]
    assert len(singles) == (2 if ignored else 3)
    seeds = [11, 12, 13]
    assert texts == [scripted.drawn({**server.bodies[0], "seed": seed}, 0) for seed in seeds]  # in the order of seeds
    assert "without n" in asked.notes[0]
    before = len(server.bodies)
    asked.complete([REQUEST])[0]
    assert len(server.bodies) == before + 3  # it is not asked for n again


@pytest.mark.parametrize("field", ["response_format", "seed", "temperature"])
def test_what_a_server_refuses_is_left_out_from_then_on(server, field):
    server.refuses = {field}
    asked = client(server)
    assert all(asked.complete([REQUEST])[0])
    assert [field in body for body in server.bodies] == [True, False]
    asked.complete([REQUEST])[0]
    assert field not in server.bodies[-1]


def test_a_server_without_system_messages_or_max_tokens(server):
    server.refuses = {"system", "max_tokens"}
    assert all(client(server).complete([REQUEST])[0])
    last = server.bodies[-1]
    assert [message["role"] for message in last["messages"]] == ["user"]
    assert last["messages"][0]["content"].startswith("Answer with JSON.")
    assert last["max_completion_tokens"] == Sampling().max_tokens


def test_a_refused_or_empty_answer_is_none(server):
    server.answer = lambda body, place: ["{}", "", " \n"][place]
    assert client(server).complete([REQUEST])[0] == ["{}", None, None]
    refused = b'{"choices": [{"message": {"content": null, "refusal": "no"}}, {"message": {"content": ["part"]}}]}'
    server.faults = [content(refused)]
    assert client(server).complete([REQUEST])[0] == [
        None,
        None,
        "{}",
    ]  # the third, which did not come, is asked for again


# --- faults that pass --------------------------------------------------------------------------------------------


def test_retry_after_is_kept_to(server, pauses):
    server.faults = [status(429, Retry_After="7"), status(429, Retry_After="3")]
    assert all(client(server).complete([REQUEST])[0])
    assert pauses == [7, 3]


@pytest.mark.parametrize(
    "fault",
    [
        status(500),
        status(503),
        cut,
        content(b'{"choices": ['),
        content(b"<html>busy</html>", "text/html"),
        content(b'{"error": {"message": "overloaded"}}'),
    ],
    ids=["500", "503", "cut", "half-json", "html", "error-as-200"],
)
def test_a_fault_that_passes_is_not_noticed(server, fault):
    server.faults = [fault, fault]
    asked = client(server)
    assert asked.complete([REQUEST])[0] == [scripted.drawn(server.bodies[-1], place) for place in range(3)]
    assert len(server.bodies) == 3


def test_a_silent_server_is_asked_again(server):
    server.faults = [silent]
    assert all(client(server, timeout=0.2).complete([REQUEST])[0])
    assert len(server.bodies) == 2


# --- faults that stay --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "kind", "said", "tries"),
    [
        (status(500, "kaput"), MissingError, r"failed 5 times \(500\): kaput", RETRIES + 1),
        (status(429, "slow down", Retry_After="30"), MissingError, r"\(429\) and asks to wait 30 s: slow", RETRIES + 1),
        (status(429, "quota", Retry_After="86400"), MissingError, "asks to wait 86400 s", 1),
        (cut, MissingError, "cannot be reached", RETRIES + 1),
        (content(b'{"choices": ['), MissingError, "not with chat completions", 3),
        (content(b"<html></html>", "text/html"), MissingError, "not with chat completions", 3),
        (status(401, f"bad key {SECRET}"), MissingError, r"refuses the key \(401\): bad key \.\.\.", 1),
        (status(404, "no such model"), MissingError, r"\(404\): no such model", 1),
        (status(400, "too many tokens"), InputError, r"refuses the request \(400\): too many tokens", 4),
    ],
    ids=["500", "429", "429-tomorrow", "cut", "half-json", "html", "401", "404", "400"],
)
def test_a_fault_that_stays_ends_in_a_sentence(server, fault, kind, said, tries):
    server.always = fault
    with pytest.raises(kind, match=said) as caught:
        client(server, key=SECRET).complete([REQUEST])
    assert len(server.bodies) == tries  # bounded
    assert SECRET not in caught.value.message
    assert caught.value.hint


def test_a_server_that_stays_silent(server):
    server.always = silent
    with pytest.raises(MissingError, match=r"silent for 0\.1 s, 5 times"):
        client(server, timeout=0.1).complete([REQUEST])


def test_no_server(server):
    address = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(MissingError, match=r"cannot be reached: .*refused"):
        Server(Connection(address, "scripted"), Sampling()).complete([REQUEST])


def test_one_of_several_requests_at_once_fails(server):
    server.refuses = {"n"}
    server.faults = [None, None, status(401)]
    asked = client(server)
    requests = [REQUEST, replace(REQUEST, seed=21)]
    with pytest.raises(MissingError, match="401"):
        asked.complete(requests)
    assert all(all(texts) for texts in asked.complete(requests))  # and the next time all is well


def test_several_requests_go_out_together(server):
    server.refuses = {"n"}
    requests = [replace(REQUEST, seed=seed) for seed in (11, 21, 31)]
    together = client(server, concurrency=4).complete(requests)
    one_by_one = client(server, concurrency=1)
    assert together == [one_by_one.complete([request])[0] for request in requests]


def test_the_budget_is_kept(server):
    asked = client(server, calls=2)
    asked.complete([REQUEST])[0]
    asked.complete([REQUEST])[0]
    with pytest.raises(MissingError, match="budget of 2 requests"):
        asked.complete([REQUEST])
    assert len(server.bodies) == 2


def test_addresses_and_keys(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)  # which was not named, and is sent to nobody
    with pytest.raises(UsageError, match="no address"):
        Server(Connection("localhost:8000", "m"), Sampling())
    with pytest.raises(MissingError, match="neither a server nor a key"):
        Server(Connection(None, "m", key_name="OTHER"), Sampling())
    client(server).complete([REQUEST])
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    Server(Connection(None, "m"), Sampling()).complete([REQUEST])
    assert server.keys == ["Bearer none"] * 2
    assert shown_address("https://me:pass@host:1/v1/?key=x#y") == "https://host:1/v1"


def test_two_servers_share_nothing(server):
    server.refuses = {"n"}
    first = client(server)
    first.complete([REQUEST])[0]
    assert first.notes
    assert client(server).notes == ()


def test_answers_beyond_what_was_asked_are_left_out(server):
    server.faults = [content(json.dumps(completion(*"abcde")).encode())]
    assert client(server).complete([REQUEST])[0] == ["a", "b", "c"]

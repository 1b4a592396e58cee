"""A server on loopback that speaks OpenAI's protocol: it answers from lists, and fails as it is told."""

from __future__ import annotations

import contextlib
import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.papers.formulate.test_search import EQUALITIES, INEQUALITIES, OBJECTIVES, VARIABLES

FARMER = "A farmer has 10 acres and $100. Wheat costs $2 an acre and earns $20, corn costs $5 and earns $30."
COMPONENTS: dict[str, list[Any]] = {
    "parameters": [{"acres": 10}],
    "decision_variables": VARIABLES[:2],
    "objective": OBJECTIVES,
    "equality_constraints": EQUALITIES,
    "inequality_constraints": INEQUALITIES,
}
Fault = Callable[["Handler"], None]


def drawn(body: dict[str, Any], place: int, components: dict[str, list[Any]] | None = None) -> str:
    """The text of an answer: a component from the lists, or a vote for what stands early in them."""
    lists = COMPONENTS | (components or {})
    question = body["messages"][-1]["content"]
    draw = random.Random(body.get("seed", 0) * 1000 + place)
    if asked := re.search(r"Now the component (\w+) alone", question):
        value = draw.choice(lists[asked[1]])
        return value if isinstance(value, str) else f"Well.\n```json\n{json.dumps({asked[1]: value})}\n```"
    labels = re.findall(r"^([A-Z]\d*): ", question, re.MULTILINE)
    if '"groups"' in question:
        return json.dumps({"reason": "all differ", "groups": [[label] for label in labels]})
    if '"ranks"' in question:
        return json.dumps({"reason": "as listed", "ranks": {label: i + 1 for i, label in enumerate(labels)}})
    if '"score"' in question:
        return json.dumps({"reason": "fair", "score": draw.randint(1, 100)})
    assert '"better"' in question
    return json.dumps({"reason": "a coin", "better": draw.choice("AB")})


class Scripted(ThreadingHTTPServer):
    """Requests that came are kept; ``faults`` are committed one a request, ``always`` at every one after them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.faults: list[Fault | None] = []
        self.always: Fault | None = None
        self.refuses: set[str] = set()  # fields of a request
        self.ignores_n = False
        self.models = ["scripted"]
        self.answer: Callable[[dict[str, Any], int], str] = drawn
        self.ended = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def do_GET(self) -> None:
        self.reply(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in self.server.models]})

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.bodies.append(body)
            server.keys.append(self.headers.get("Authorization", ""))
            fault = server.faults.pop(0) if server.faults else server.always
        if fault is not None:
            return fault(self)
        for field in ("response_format", "n", "seed", "max_tokens", "temperature"):
            if field in body and field in server.refuses:
                return self.reply(400, {"error": {"message": f"'{field}' is not supported", "param": field}})
        if "system" in server.refuses and body["messages"][0]["role"] == "system":
            return self.reply(400, {"error": {"message": "the system role is not supported by this template"}})
        count = 1 if server.ignores_n else body.get("n", 1)
        texts = [server.answer(body, place) for place in range(count)]
        return self.reply(200, completion(*texts))

    def reply(self, status: int, content: dict[str, Any] | bytes, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        kind = {"Content_Type": "application/json", "Content_Length": str(len(data))}
        for name, value in (kind | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def completion(*texts: str | None) -> dict[str, Any]:
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for i, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 7, "completion_tokens": 3 * len(texts), "total_tokens": 7 + 3 * len(texts)}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": choices,
        "usage": usage,
    }


# --- faults ------------------------------------------------------------------------------------------------------


def status(code: int, message: str = "no", **headers: str) -> Fault:
    return lambda handler: handler.reply(code, {"error": {"message": message}}, **headers)


def content(data: bytes, kind: str = "application/json") -> Fault:
    return lambda handler: handler.reply(200, data, Content_Type=kind)


def cut(handler: Handler) -> None:
    """Promise a thousand bytes and hang up after ten."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices"')
    handler.close_connection = True


def silent(handler: Handler) -> None:
    """Say nothing until the test is over."""
    handler.server.ended.wait()
    handler.close_connection = True


@contextlib.contextmanager
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()

"""A language model behind a server that speaks OpenAI's protocol, through the `openai` client.

    server = Server(Connection("http://localhost:8000/v1"), Sampling())
    server.complete([Request("Answer with JSON.", "Name a colour.", count=3, seed=0)])

The client repeats what failed for a while (busy, rate limited, cut connections, timeouts) and keeps to `Retry-After`;
here is decided what to leave out of a request that a server does not take, and what to say when all was in vain. Knows
the protocol. Does not know what is asked.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from icml25cli.core.errors import InputError, MissingError, ToolboxError, UsageError
from icml25cli.papers.formulate.backends.chat import About, Request, Sampling, Usage

T = TypeVar("T")
R = TypeVar("R")
RETRIES = 4  # by the client, with growing pauses or those that the server asks for
DAMAGED = 2  # further tries after a reply that is no completion
CONNECT = 10.0  # seconds
SHOWN = 300  # characters of what a server says
# What a server may refuse, in the order in which it is left out where the server does not say which it was.
_OPTIONAL = ("response_format", "n", "seed", "system", "max_tokens", "temperature")
_BY_GUESS = _OPTIONAL[:3]


@dataclass(frozen=True)
class Connection:
    """Where a server is and how much may be asked of it."""

    base_url: str | None = None  # None: the client's own, from OPENAI_BASE_URL or OpenAI itself
    model: str | None = None  # None: the only one that the server has
    key: str | None = None  # never shown
    key_name: str = "OPENAI_API_KEY"  # the variable it comes from, for messages
    timeout: float = 300.0  # seconds that a server may be silent
    calls: int | None = None  # requests in all
    concurrency: int = 8  # requests at the same time


class Server:
    """A model on a server.

    Raises:
        MissingError: the client is not installed, the server is out of reach, wants a key, or lacks the model.
        UsageError: no model is named and the server has several, or the address is none.
    """

    def __init__(self, connection: Connection, sampling: Sampling) -> None:
        self._connection = connection
        self._client = _client(connection)
        self._where = shown_address(str(self._client.base_url))
        self._left_out: set[str] = set()
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(connection.concurrency)
        self.usage = Usage()
        model = self._only_model() if connection.model is None else connection.model
        self.about = About("openai", model, sampling)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the server does not take, and is asked without."""
        names = [name for name in _OPTIONAL if name in self._left_out]
        return (f"{self._where} is asked without {', '.join(names)}, which it does not take.",) if names else ()

    def complete(self, requests: Sequence[Request]) -> list[list[str | None]]:
        """As ``Chat``; several requests are sent at the same time."""
        try:
            return self._at_once(self._answers, requests)
        except (KeyboardInterrupt, SystemExit):
            self._client.close()  # ends the requests under way: nobody waits for them any more
            raise

    def _at_once(self, ask: Callable[[T], R], what: Sequence[T]) -> list[R]:
        """``ask`` of each, by threads, of which ``_ask`` lets only so many through to the server."""
        if len(what) == 1:
            return [ask(what[0])]
        pool = ThreadPoolExecutor(min(self._connection.concurrency, len(what)))
        try:
            return list(pool.map(ask, what))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _answers(self, request: Request) -> list[str | None]:
        answers: list[str | None] = []
        if request.count == 1 or "n" not in self._left_out:
            answers = self._ask(request, request.count, request.seed)[: request.count]
        missing = range(len(answers), request.count)
        if not missing:
            return answers
        if len(answers) <= 1:  # n was refused, or silently not done
            self._left_out.add("n")
        singles = self._at_once(lambda i: self._ask(request, 1, request.seed + i), missing)
        return answers + [texts[0] if texts else None for texts in singles]

    # --- one request -------------------------------------------------------------------------------------------------

    def _ask(self, request: Request, count: int, seed: int) -> list[str | None]:
        """The answers of one request, repeated without what the server refuses and where its reply is damaged."""
        import openai

        damaged = 0
        while True:
            left_out = frozenset(self._left_out)
            body = self._body(request, count, seed, left_out)
            self._spend()
            try:
                with self._free:
                    reply = self._client.chat.completions.create(**body)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                if not self._leave_out(error, body, left_out):
                    raise self._failure(error) from error
                continue
            except openai.APIStatusError as error:
                if error.status_code == 501 and self._leave_out(error, body, left_out):
                    continue
                raise self._failure(error) from error
            except openai.APIConnectionError as error:
                raise self._failure(error) from error
            except (openai.APIResponseValidationError, ValueError):  # the latter from reading JSON
                reply = None
            texts = _texts(reply)
            if texts is not None:
                self._count(reply)
                return texts
            damaged += 1
            if damaged > DAMAGED:
                raise MissingError(
                    f"{self._where} answers, but not with chat completions",
                    hint="--base-url ends in /v1 for most servers",
                )

    def _body(self, request: Request, count: int, seed: int, left_out: frozenset[str]) -> dict[str, Any]:
        sampling = self.about.sampling
        system = [] if "system" in left_out else [{"role": "system", "content": request.system}]
        text = request.user if system else request.whole
        body: dict[str, Any] = {
            "model": self.about.model,
            "messages": [*system, {"role": "user", "content": text}],
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "seed": seed,
        }
        if count > 1:
            body["n"] = count
        if request.schema:
            form = {"name": "answer", "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        for name in left_out & body.keys():
            del body[name]
        if "max_tokens" in left_out:
            body["max_completion_tokens"] = sampling.max_tokens  # the newer name of the same
        return body

    def _leave_out(self, error: Any, body: dict[str, Any], left_out: frozenset[str]) -> bool:
        """Decide what to leave out from now on; False where nothing is left to try."""
        if self._left_out - left_out:  # decided meanwhile, for another request
            return True
        said = f"{getattr(error, 'param', None)} {self._said(error)}".replace("json_schema", "response_format")
        used = [name for name in _OPTIONAL if name in body or (name == "system" and len(body["messages"]) > 1)]
        named = [name for name in used if re.search(rf"(?<![\w.]){name}(?!\w)", said)]
        guessed = [name for name in used if name in _BY_GUESS]
        if not (named or guessed):
            return False
        self._left_out.add((named or guessed)[0])
        return True

    def _spend(self) -> None:
        with self._lock:
            limit = self._connection.calls
            if limit is not None and self.usage.requests >= limit:
                raise MissingError(f"the budget of {limit} requests is spent", hint="raise --max-calls")
            self.usage.requests += 1

    def _count(self, reply: Any) -> None:
        used = getattr(reply, "usage", None)
        with self._lock:
            for name, said in (("prompt_tokens", "prompt_tokens"), ("answer_tokens", "completion_tokens")):
                value = getattr(used, said, None)
                setattr(self.usage, name, getattr(self.usage, name) + (value if isinstance(value, int) else 0))

    # --- models and failures -----------------------------------------------------------------------------------------

    def models(self) -> list[str]:
        """Names of the models that the server offers."""
        import openai

        try:
            return [str(model.id) for model in self._client.models.list()]
        except openai.APIError as error:
            raise self._failure(error) from error
        except (ValueError, AttributeError, TypeError) as error:
            raise MissingError(f"{self._where} lists no models", hint="name one with --model") from error

    def _only_model(self) -> str:
        models = self.models()
        if len(models) != 1:
            shown = ", ".join(models[:10]) or "none"
            raise UsageError(f"{self._where} has {len(models)} models: {shown}", hint="choose one with --model")
        return models[0]

    def _failure(self, error: Any) -> ToolboxError:
        """What to say of a request that failed for good."""
        import openai

        where, connection = self._where, self._connection
        if isinstance(error, openai.APITimeoutError):
            return MissingError(
                f"{where} was silent for {connection.timeout:g} s, {RETRIES + 1} times",
                hint="a slow server needs a longer --request-timeout, or a smaller --candidates or --max-tokens",
            )
        if isinstance(error, openai.APIConnectionError):
            return MissingError(f"{where} cannot be reached: {_reason(error)}", hint="is the server running?")
        if not isinstance(error, openai.APIStatusError):
            return MissingError(f"{where} failed: {self._said(error)}", hint="check --base-url")
        status, said = error.status_code, self._said(error)
        if status in (401, 403):
            key = "refuses the key" if connection.key else "wants a key"
            return MissingError(f"{where} {key} ({status}): {said}", hint=f"put it into {connection.key_name}")
        if status == 404:
            return MissingError(f"{where} does not know this ({status}): {said}", hint="check --model and --base-url")
        if status == 429:
            wait = error.response.headers.get("retry-after")
            asks = f" and asks to wait {wait[:40]}{' s' if wait.isdecimal() else ''}" if wait else ""
            return MissingError(
                f"{where} limits the rate (429){asks}: {said}", hint="try later, or lower --concurrency"
            )
        if status >= 500:
            return MissingError(f"{where} failed {RETRIES + 1} times ({status}): {said}", hint="try later")
        return InputError(f"{where} refuses the request ({status}): {said}", hint="a shorter problem or other options")

    def _said(self, error: Any) -> str:
        """What the server said, on one line and without the key, which some servers quote."""
        body = getattr(error, "body", None)
        if isinstance(body, dict):
            body = body.get("message") or body.get("detail") or body.get("error") or body
        text = " ".join(str(body or error).split())[:SHOWN]
        return text.replace(self._connection.key, "...") if self._connection.key else text


def _client(connection: Connection) -> Any:
    try:
        import openai
    except ImportError as error:
        raise MissingError(
            "openai is not installed", hint="pip install 'icml25[openai]', or pip install openai"
        ) from error
    if connection.base_url is not None and urlsplit(connection.base_url).scheme not in ("http", "https"):
        raise UsageError(f"--base-url {connection.base_url} is no address", hint="such as http://localhost:8000/v1")
    if not connection.key and not (connection.base_url or os.environ.get("OPENAI_BASE_URL")):
        raise MissingError(
            "neither a server nor a key is given",
            hint=f"--base-url http://localhost:8000/v1, or put a key into {connection.key_name}",
        )
    return openai.OpenAI(
        base_url=connection.base_url,
        # Never None, for which the client takes a key from a variable of its own choice. Local servers want none.
        api_key=connection.key or "none",
        timeout=openai.Timeout(connection.timeout, connect=CONNECT),
        max_retries=RETRIES,
    )


def shown_address(url: str) -> str:
    """An address without a name and password that may stand in it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def _reason(error: BaseException) -> str:
    """The innermost cause of a failed connection."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return " ".join(str(error).split())[:SHOWN] or type(error).__name__


def _texts(reply: Any) -> list[str | None] | None:
    """The texts of a reply; None where it is no completion. (The client checks no types.)"""
    try:
        contents = [choice.message.content for choice in reply.choices]
    except (AttributeError, TypeError):
        return None
    return [content if isinstance(content, str) and content.strip() else None for content in contents]

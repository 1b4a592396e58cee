"""Who drafts and judges for `icml25 formulate`: the options, and what they open."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icml25cli.core import options as opt
from icml25cli.core.report import Report, show

if TYPE_CHECKING:
    from icml25cli.core.runs import Run
    from icml25cli.papers.formulate.backends.chat import Chat, Sampling


class BackendOption(StrEnum):
    grammar = "grammar"
    openai = "openai"
    hf = "hf"
    replay = "replay"


Backend = Annotated[
    BackendOption,
    typer.Option(
        "--backend",
        help="Who drafts and judges: an offline grammar, a model on a server that speaks OpenAI's protocol, a model in "
        "this process (hf), or a recording.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="The server's model, or for hf an alias, a directory, an id or a .gguf file. "
        "[default: the server's only one; for hf tiny]",
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", help="The server, such as http://localhost:8000/v1."),
]
ApiKeyEnv = Annotated[
    str, typer.Option("--api-key-env", metavar="VARIABLE", help="Environment variable that holds the server's key.")
]
Cassette = Annotated[
    Path | None, typer.Option("--cassette", metavar="FILE", help="The recording that --backend replay plays.")
]
Record = Annotated[
    Path | None,
    typer.Option("--record", metavar="FILE", help="Keep a model's answers; what FILE has already is not asked again."),
]
MaxCalls = Annotated[
    int | None, typer.Option("--max-calls", min=1, help="Requests to the server in all. [default: no limit]")
]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=1, help="Tokens of one answer of a model.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0, max=5, help="Of a model's answers.")]
Concurrency = Annotated[
    int, typer.Option("--concurrency", min=1, max=256, help="Requests at the same time, to servers that answer singly.")
]
RequestTimeout = Annotated[float, typer.Option("--request-timeout", min=0.1, help="Seconds a server may be silent.")]


@dataclass(frozen=True)
class Drafter:
    """Who drafts and judges.

    Attributes:
        chat: opens the language model; what it opens is None for the grammar.
    """

    backend: BackendOption
    server: str | None
    record: Path | None
    chat: "contextlib.AbstractContextManager[Chat | None]"

    @contextlib.contextmanager
    def journal(
        self, inputs: dict[str, Any], *, many: str, resume: bool, fresh: bool
    ) -> "Iterator[tuple[Run | None, Chat | None]]":
        """Where the work of these inputs goes on after a stop: finished problems of many, and a model's answers.

        ``many`` says what is made of many problems, and is empty for one. Of one problem without a model there is
        nothing to keep: the grammar draws the same tree again, and a recording is its own journal.
        """
        from icml25cli.core.errors import UsageError
        from icml25cli.core.runs import Run, fingerprint, run_directory
        from icml25cli.papers.formulate.backends.recording import Recording, recording

        with contextlib.ExitStack() as stack:
            chat = stack.enter_context(self.chat)
            asks = chat is not None and not isinstance(chat, Recording)
            if not many and not asks:
                if resume:
                    raise UsageError(
                        "--resume goes with a model's answers or a .jsonl file",
                        hint="leave it out: it begins anew and draws the same tree",
                    )
                yield None, chat
                return
            inputs |= {"server": self.server, "answers": chat.about.document() if chat else None}
            # Not under -o, which appears whole: a run that was cut short is continued with or without it.
            where = run_directory(f"formulate-{many}" if many else "formulate", fingerprint(inputs), None)
            run = stack.enter_context(Run.open(where, inputs, resume=resume, fresh=fresh))
            if asks:
                assert chat is not None
                chat = stack.enter_context(recording(run.path("answers.jsonl"), chat))
            yield run, chat


def drafter(
    backend: Backend = BackendOption.grammar,
    model: ModelName = None,
    base_url: BaseUrl = None,
    api_key_env: ApiKeyEnv = "OPENAI_API_KEY",
    cassette: Cassette = None,
    record: Record = None,
    max_calls: MaxCalls = None,
    max_tokens: MaxTokens = 1500,
    temperature: Temperature = 1.0,
    concurrency: Concurrency = 8,
    request_timeout: RequestTimeout = 300.0,
    device: opt.Device = "auto",
    allow_download: opt.AllowDownload = False,
    trust_remote_code: opt.TrustRemoteCode = False,
) -> Drafter:
    """Who was asked for."""

    @contextlib.contextmanager
    def opened() -> "Iterator[Chat | None]":
        from icml25cli.core.errors import UsageError
        from icml25cli.core.progress import warn
        from icml25cli.core.runs import keeps
        from icml25cli.papers.formulate.backends.chat import Sampling
        from icml25cli.papers.formulate.backends.recording import Recording, recording

        if (backend is BackendOption.replay) != (cassette is not None):
            raise UsageError("--backend replay and --cassette FILE go together", hint="give both or neither")
        if record is not None and backend in (BackendOption.grammar, BackendOption.replay):
            raise UsageError(
                f"--record keeps answers of a model, and --backend {backend} asks none", hint="leave it out"
            )
        if backend is BackendOption.grammar:
            for name, value in (("--model", model), ("--base-url", base_url)):
                if value is not None:
                    warn(f"{name} has no effect with --backend grammar")
            yield None
            return
        if cassette is not None:
            yield Recording(cassette)
            return
        sampling = Sampling(temperature, max_tokens)
        if backend is BackendOption.openai:
            from icml25cli.papers.formulate.backends.server import Connection, Server

            key = os.environ.get(api_key_env)
            connection = Connection(base_url, model, key, api_key_env, request_timeout, max_calls, concurrency)
            chat: Chat = Server(connection, sampling)
        else:
            chat = _local(model or "tiny", sampling, device, allow_download, trust_remote_code)
        if record is None:
            yield chat
        else:
            keeps(record)
            with recording(record, chat) as recorded:
                yield recorded

    return Drafter(backend, base_url, record, opened())


def _local(name: str, sampling: "Sampling", device: str, allow_download: bool, trust_remote_code: bool) -> "Chat":
    from icml25cli.core.models import resolve
    from icml25cli.papers.formulate.backends.local import Local

    source = resolve(name, allow_download=allow_download, trust_remote_code=trust_remote_code)
    return Local(source, sampling, device)


def backends(
    base_url: BaseUrl = None,
    api_key_env: ApiKeyEnv = "OPENAI_API_KEY",
    request_timeout: RequestTimeout = 30.0,
    as_json: opt.Json = False,
) -> None:
    """Show who can draft and judge here; with --base-url, which models a server has."""
    from importlib.util import find_spec

    from icml25cli.core.errors import MissingError
    from icml25cli.papers.formulate.backends.chat import Sampling
    from icml25cli.papers.formulate.backends.server import Connection, Server

    report = Report("formulate", params={"verb": "backends"})
    ready, says = find_spec("openai") is not None, "name a server with --base-url"
    if not ready:
        says = "pip install 'icml25[openai]'"
    elif base_url is not None:
        connection = Connection(base_url, "", os.environ.get(api_key_env), api_key_env, request_timeout)
        try:
            says = f"models: {', '.join(Server(connection, Sampling()).models()) or 'none'}"
        except MissingError as error:
            ready, says = False, error.message
    report.rows = [
        {"backend": "grammar", "ready": True, "says": "built in, for small problems"},
        {"backend": "openai", "ready": ready, "says": says},
        {"backend": "hf", "ready": True, "says": "name a model with --model"},
        {"backend": "replay", "ready": True, "says": "name a recording with --cassette"},
    ]
    show(report, as_json=as_json)

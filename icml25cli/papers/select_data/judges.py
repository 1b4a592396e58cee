"""Rewards that run something: unit tests in a sandbox, a reward model, a judging server, a function or a command.

Knows texts, processes and models by name. Does not know what rewards are used for.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from icml25cli.core import sandbox
from icml25cli.core.errors import InputError, MissingError, UsageError
from icml25cli.core.models import first_line
from icml25cli.papers.select_data.function_reward import Function
from icml25cli.papers.select_data.rewards import Asked, Each

COMMAND_SECONDS = 600.0


# --- unit tests --------------------------------------------------------------------------------------------------


def unit_tests(*, unsafe_local: bool = False) -> Each:
    """1 for code that passes the row's ``test``, as HumanEval has it: with ``entry_point`` the test defines ``check``.

    Raises:
        MissingError: no namespaces are to be had, and ``unsafe_local`` is not given.
    """
    if not unsafe_local:
        sandbox.check_sandbox()

    def judge(one: Asked) -> float:
        test, entry = one.record.get("test"), one.record.get("entry_point")
        if not isinstance(test, str):
            raise InputError("--reward unit-tests needs a field test in every validation row", hint="HumanEval's form")
        program = f"{code_of(one, entry)}\n\n{test}\n"
        if isinstance(entry, str):
            program += f"\ncheck({entry})\n"
        return sandbox.run_python(program, unsafe_local=unsafe_local).passed

    used = sandbox.UNSAFE if unsafe_local else sandbox.NAMESPACES
    return Each("unit-tests", judge, note=f"Unit tests ran in this sandbox: {used}.")


def code_of(one: Asked, entry: Any) -> str:
    """The program in an answer: what stands between fences, else all of it; after the prompt's own code where it only
    continues that."""
    fenced = re.search(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", one.answer, re.DOTALL)
    code = fenced[1] if fenced else one.answer
    if isinstance(entry, str) and not re.search(rf"^\s*(?:async\s+)?def\s+{re.escape(entry)}\b", code, re.MULTILINE):
        asked = one.record.get("prompt")
        return f"{asked}{code}" if isinstance(asked, str) and f"def {entry}" in asked else code
    return code


# --- models ------------------------------------------------------------------------------------------------------


class RewardModel:
    """A sequence classifier with one output, or two of which the second is for a good answer."""

    note, needs_reference = None, False

    def __init__(self, name: str) -> None:
        from icml25cli.core.models import load_classifier

        self.spec = f"rm:{name}"
        self.files = (Path(name),)
        self._model, self._tokenizer = load_classifier(Path(name))

    def __call__(self, asked: Sequence[Asked]) -> list[float]:
        import torch

        values: list[float] = []
        for first in range(0, len(asked), 16):
            some = asked[first : first + 16]
            pairs = [one.question for one in some], [one.answer for one in some]
            batch = self._tokenizer(*pairs, truncation=True, padding=True, return_tensors="pt")
            with torch.no_grad():
                values += self._model(**batch).logits[:, -1].float().tolist()
        return values


_RATE = (
    "Rate how well the answer does what the request asks, from 0 (useless) to 10 (perfect). Reply with the number "
    "alone.\n\nRequest:\n{}\n\nAnswer:\n{}"
)
_PREFER = (
    "Which answer does better what the request asks? Reply with A, B or tie alone.\n\nRequest:\n{}\n\nAnswer A:\n{}\n\n"
    "Answer B:\n{}"
)


def judge(address: str) -> _Judge:
    """A judging model on a server that speaks OpenAI's protocol: ``http://localhost:8000/v1#model``.

    Raises:
        UsageError: the address names no model.
        MissingError: the client is not installed.
    """
    url, _, model = address.partition("#")
    if not model:
        raise UsageError(f"--reward judge:{address} names no model", hint="judge:http://localhost:8000/v1#MODEL")
    return _Judge(f"judge:{address}", server(url), model)


class _Judge:
    """Prefers an answer to the row's own, asked both ways round, draws counting half; rates it where there is none."""

    needs_reference, files = False, ()

    def __init__(self, spec: str, client: Any, model: str) -> None:
        self.spec, self._client, self._model = spec, client, model
        self.note = f"Answers were judged by {model}."

    def __call__(self, asked: Sequence[Asked]) -> list[float]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(self._one, asked))

    def _one(self, one: Asked) -> float:
        if one.reference is None:
            found = re.search(r"\d+(?:\.\d+)?", self._say(_RATE.format(one.question, one.answer)))
            return min(float(found[0]), 10.0) / 10 if found else math.nan
        ways = [(one.answer, one.reference, "A"), (one.reference, one.answer, "B")]
        return sum(self._won(self._say(_PREFER.format(one.question, *pair)), ours) for *pair, ours in ways) / 2

    def _won(self, said: str, ours: str) -> float:
        verdict = re.match(r"\W*(?:answer\s+)?(a|b|tie)\b", said.lower())
        if not verdict:
            return math.nan
        return 0.5 if verdict[1] == "tie" else float(verdict[1] == ours.lower())

    def _say(self, text: str) -> str:
        return ask(self._client, self._model, [{"role": "user", "content": text}], temperature=0.0, max_tokens=16)[0]


def server(url: str) -> Any:
    """A client of the server; its key is that of ``OPENAI_API_KEY``, which local servers do not want.

    Raises:
        MissingError: the client is not installed.
        UsageError: it is no address.
    """
    try:
        import openai
    except ImportError as error:
        raise MissingError("openai is not installed", hint="pip install 'icml25[openai]'") from error
    if not re.match(r"https?://", url):
        raise UsageError(f"{url or 'nothing'} is no address of a server", hint="such as http://localhost:8000/v1")
    return openai.OpenAI(base_url=url, api_key=os.environ.get("OPENAI_API_KEY") or "none", timeout=300, max_retries=4)


def ask(client: Any, model: str, messages: Any, *, temperature: float, max_tokens: int, count: int = 1) -> list[str]:
    """``count`` answers of a server to one conversation.

    Raises:
        MissingError: it cannot be reached, or refuses.
    """
    import openai

    texts: list[str] = []
    try:
        while len(texts) < count:  # some give one answer whatever n says
            reply = client.chat.completions.create(
                model=model, messages=messages, temperature=temperature, max_tokens=max_tokens, n=count - len(texts)
            )
            got = [choice.message.content or "" for choice in reply.choices or ()]
            if not got:
                raise MissingError(f"{model} answers with nothing", hint="check the model")
            texts += got
    except openai.OpenAIError as error:
        raise MissingError(
            f"the server of {model} cannot be used: {first_line(error)[:200]}", hint="is it running?"
        ) from error
    return texts[:count]


# --- the user's own ----------------------------------------------------------------------------------------------


def function(named: str) -> Function:
    """A function of the user's; it has as long for the answers to a prompt as a command has."""
    return Function(named, COMMAND_SECONDS)


class Command:
    """A command that reads JSON lines of prompt, answer and row, and writes a number a line."""

    note, needs_reference = None, False

    def __init__(self, command: str) -> None:
        self.spec = f"cmd:{command}"
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"--reward {self.spec}: {first_line(error)}", hint="quote it as for a shell") from error
        if not self._command:
            raise UsageError(f"--reward {self.spec!r} names no command", hint="such as cmd:./judge.py")
        self.files = tuple(path for path in map(Path, self._command) if path.is_file())

    def __call__(self, asked: Sequence[Asked]) -> list[float]:
        lines = [json.dumps({"prompt": o.question, "response": o.answer, "row": dict(o.record)}) for o in asked]
        try:
            status, out, err = _run(self._command, "\n".join([*lines, ""]))
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"--reward {self.spec} cannot be run: {first_line(error)}", hint="check it") from error
        if status:
            said = err.strip().rpartition("\n")[2][:200]
            ended = f"exits {status}" if status > 0 else f"was ended by signal {-status}"
            raise InputError(f"--reward {self.spec} {ended}{said and ': '}{said}", hint="run it by hand")
        found = out.split()
        if len(found) != len(asked):
            raise InputError(
                f"--reward {self.spec} wrote {len(found)} numbers for {len(asked)} answers", hint="one number a line"
            )
        return [_float(text) for text in found]


def _run(command: Sequence[str], given: str) -> tuple[int, str, str]:
    """Exit status and both outputs of a command; what it started ends with it, however this call ends."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(given, timeout=COMMAND_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan

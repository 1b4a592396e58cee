"""The errors a user can meet, each with its exit code.

Every message is one sentence that names the file, row, tensor or option at fault; ``hint`` is the way out. What a
message quotes may be megabytes long, so the middle of a long one is left out here, once for all.
"""

from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST = 1200  # characters of a message: a few long paths fit


class ToolboxError(Exception):
    """A failure we foresaw: one sentence, one hint, one exit code."""

    exit_code = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = _shortened(message)
        self.hint = None if hint is None else _shortened(hint)
        super().__init__(self.message)


def _shortened(text: str) -> str:
    """Both ends of a text: what is at fault stands at its beginning, why at its end."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"


class CheckFailed(ToolboxError):
    """The answer is no, or none can be given: a failed gate, a leak, an undecided question."""

    exit_code = 1


class UsageError(ToolboxError):
    """The command line, the environment or the configuration file asks for something that does not exist."""

    exit_code = 2


class InputError(ToolboxError):
    """A file, model, plan or run directory cannot be used as it is."""

    exit_code = 3


class MissingError(ToolboxError):
    """A needed part is absent or out of reach: an asset, a package, a gated hub, a server."""

    exit_code = 4


class OutputError(ToolboxError):
    """The result cannot be written where it was asked for."""

    exit_code = 74


@contextmanager
def about(where: object) -> Iterator[None]:
    """Name what an input error inside is about: a file, a tensor, a question."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error.message}", hint=error.hint) from error


def unknown_token(token: int, known: int, model: str) -> InputError:
    """For a token id that a model of ``known`` tokens has not."""
    return InputError(
        f"token {token} is not among the {known} of {model}", hint="tokenizer and model do not belong together"
    )

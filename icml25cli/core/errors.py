"""The errors a user can meet, each with its exit code.

Every message is one sentence that names the file, row, tensor or option at fault; ``hint`` is the way out.
"""


class ToolboxError(Exception):
    """A failure we foresaw: one sentence, one hint, one exit code."""

    exit_code = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


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

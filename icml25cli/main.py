"""The root command: a lazy group, and errors turned into exit codes. Nothing else."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer
from typer._completion_classes import completion_init
from typer.completion import install_callback, show_callback
from typer.core import TyperCommand
from typer.exceptions import TyperException
from typer.main import get_command

from icml25cli.catalog import COMMANDS
from icml25cli.core.console import silence
from icml25cli.core.errors import InputError, MissingError, ToolboxError
from icml25cli.core.usage import ENVIRONMENT_PREFIX, explain
from icml25cli.core.verbs import Group, Settings, markup_mode

PLUGINS = "icml25cli.commands"
INTERNAL_ERROR, INTERRUPTED, TERMINATED, PIPE_CLOSED = 70, 130, 143, 141


class Terminated(BaseException):
    """SIGTERM arrived; finished work is kept as after Ctrl-C."""


def _plugins() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=PLUGINS) if point.name not in COMMANDS}


class LazyGroup(Group):
    """Lists commands from the catalogue and imports only the module of the one that is called."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [name for name, command in COMMANDS.items() if command.module] + sorted(_plugins())

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        # For listings only: a stub with the one-line help. `resolve_command` loads the real one.
        if cmd_name in COMMANDS:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name].help)
        point = _plugins().get(cmd_name)
        return point and TyperCommand(cmd_name, help=f"From the package {point.dist.name if point.dist else '?'}.")

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        self.commands = dict.fromkeys(self.list_commands(ctx))  # type: ignore[assignment] -- names for "did you mean"
        name, stub, rest = super().resolve_command(ctx, args)
        if stub is None:
            return name, stub, rest
        return name, self._load(str(name)), rest

    def _load(self, name: str) -> Any:
        if name not in COMMANDS:
            point = _plugins()[name]
            try:
                return get_command(point.load())
            except Exception as error:
                raise MissingError(
                    f"the plug-in command '{name}' does not import: {error}", hint="update or remove its package"
                ) from error
        module = COMMANDS[name].module
        if module is None:
            raise MissingError(f"'{name}' is not built yet", hint="icml25 papers shows what runs today")
        return get_command(import_module(module).app)


def _show_version(value: bool) -> None:
    if value:
        import platform
        from importlib.metadata import version

        typer.echo(f"icml25 {version('icml25')} (Python {platform.python_version()}, torch {version('torch')})")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    help="One toolbox over eighteen ICML 2025 papers: each command is one paper's method on your own models and data.",
    add_completion=False,  # its two options are declared below: Typer's own would load pydantic for every --help
    rich_markup_mode=markup_mode(),
)


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", is_eager=True, callback=_show_version, show_envvar=False
    ),
    install_completion: bool = typer.Option(
        False,
        "--install-completion",
        help="Install completion for this shell.",
        callback=install_callback,
        show_envvar=False,
    ),
    show_completion: bool = typer.Option(
        False,
        "--show-completion",
        help="Print completion for this shell, to copy it.",
        callback=show_callback,
        show_envvar=False,
    ),
) -> None:
    """Carries the options of the program itself."""


def _complain(message: str, hint: str | None = None) -> None:
    from icml25cli.core.console import plain, say

    say(plain("error: ", style="bold red") + plain(message))
    if hint:
        say(plain("hint: ", style="bold") + plain(hint))


def _resume_hint() -> str | None:
    from icml25cli.core.runs import resume_hint

    return resume_hint() or "nothing was finished yet that a repetition could continue"


def _run(args: list[str], settings: Settings) -> int:
    command = get_command(app)
    if "_ICML25_COMPLETE" in os.environ:
        completion_init()  # Typer registers the shells only for apps with its own completion options
        command._main_shell_completion({}, "icml25")
    with command.make_context("icml25", args, auto_envvar_prefix=ENVIRONMENT_PREFIX, obj=settings) as ctx:
        command.invoke(ctx)
    return 0


def _answer_signals() -> None:
    """Both end the command by way of its own clean-up; a SIGINT that our parent lets us ignore stays ignored."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _terminate(_signal: int, _frame: object) -> None:
    raise Terminated


def _ignore_signals() -> None:
    """A second Ctrl-C must not interrupt the sentence that answers the first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main(args: list[str] | None = None) -> int:
    """Run ``icml25`` and return its exit code (the manual page lists them)."""
    settings = Settings()
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal's encoding lacks is shown escaped
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _guarded(sys.argv[1:] if args is None else args, settings)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:  # while another sentence was being printed
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    except BrokenPipeError:
        silence(sys.stdout)
        return PIPE_CLOSED
    except OSError as error:
        silence(sys.stdout)
        _complain(f"standard output cannot be written: {error.strerror}", "free some space")
        return 74


def _guarded(args: list[str], settings: Settings) -> int:
    if not _current_folder_exists():  # first: torch's own libraries abort the process there
        _complain("the current folder does not exist any more", "change to one that does")
        return InputError.exit_code
    try:
        _answer_signals()
        with _traceback_of_errors(settings):
            return _run(args, settings)
    except typer.Exit as done:
        return done.exit_code
    except ToolboxError as error:
        _complain(error.message, error.hint)
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _ignore_signals()
        _complain("interrupted", _resume_hint())
        code = INTERRUPTED
    except Terminated:
        _ignore_signals()
        _complain("terminated", _resume_hint())
        code = TERMINATED
    except BrokenPipeError:
        raise
    except OSError as error:
        if not error.filename:
            raise  # of a stream: the caller says so
        _complain(f"{error.filename}: {(error.strerror or str(error)).lower()}", "check that it is there and yours")
        code = InputError.exit_code
    except RecursionError:
        _complain("an input is nested too deeply to be read", "check the files that were named")
        code = InputError.exit_code
    except MemoryError:
        code = _out_of_memory()
    except TyperException as error:
        _complain(*explain(error))
        code = error.exit_code
    except ModuleNotFoundError as error:
        _complain(f"the Python module {error.name} is needed and not installed", "icml25 doctor shows what is missing")
        code = MissingError.exit_code
    except Exception as error:
        if _is_of_memory(error):
            code = _out_of_memory()
        else:
            _complain(
                f"internal error: {type(error).__name__}: {error}",
                "repeat with --debug and report the traceback with the output of icml25 doctor",
            )
            code = INTERNAL_ERROR
    return code


@contextmanager
def _traceback_of_errors(settings: Settings) -> Iterator[None]:
    """With --debug print it while the error is in flight: once it is handled, there is none to print."""
    try:
        yield
    except typer.Exit:
        raise
    except BaseException:
        if settings.debug:
            import traceback

            traceback.print_exc()
        raise


def _is_of_memory(error: Exception) -> bool:
    """Whether torch could not allocate: it raises no MemoryError, and on a CPU a bare RuntimeError."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


def _out_of_memory() -> int:
    _complain("memory is exhausted", "use fewer --threads or a smaller model")
    return MissingError.exit_code


def _current_folder_exists() -> bool:
    try:
        return bool(os.getcwd())
    except FileNotFoundError:
        return False

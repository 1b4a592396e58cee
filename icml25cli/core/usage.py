"""What is wrong with an option, in the house's words: which value, from where it came, and what was perhaps meant.

Knows Typer's parameters, the environment and names that are near each other. Does not know any command.
"""

from __future__ import annotations

import difflib
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.files import expand

ENVIRONMENT_PREFIX = "ICML25"
# Options many commands share: ICML25_SEED reaches them all, ICML25_QUANTIZE_SEED one, and wins.
SHARED = ("seed", "device", "threads", "method")
# Read by other parts of the house, by its tests and by its check.
HOUSE = ("CACHE_DIR", "CONFIG", "TEST_DATA", "FETCHED_CACHE", "CI_CACHE")
ORIGINS = "icml25.origins"  # key of the context's meta: where values come from that the command line does not give


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def check_values(ctx: Any) -> None:
    """Refuse values that every parameter of their type would take and no command can use.

    Raises:
        BadParameter: a number is not finite, or a text holds a NUL, which no path can.
        InputError: an argument or a path begins with ``~`` and a user who does not exist, or is ``-`` with nothing to
            read.
        UsageError: two options are to read standard input, or a figure would lie in the output that is written whole,
            or the other way round.
    """
    for param in ctx.command.params:
        value = ctx.params.get(param.name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, float) and not math.isfinite(item):  # it passes every range, or orders like nothing
                raise typer.BadParameter(f"{item} is not a finite number.", ctx=ctx, param=param)
            if "\0" in str(item):
                raise typer.BadParameter("a text with a NUL character names nothing.", ctx=ctx, param=param)
            if param.param_type_name == "argument" or isinstance(item, Path):
                expand(str(item))
            if item == "-" and sys.stdin is None:
                raise InputError("standard input is closed", hint="name a file, or pipe text into the command")
    if len(piped := [p.opts[0] for p in ctx.command.params if ctx.params.get(p.name) == "-"]) > 1:
        raise UsageError(f"{' and '.join(piped)} cannot both be standard input", hint="give one of them a file")
    output, plot = (ctx.params.get(name) for name in ("output", "plot"))
    if isinstance(output, Path) and isinstance(plot, Path):
        whole, figure = (Path(os.path.realpath(path)) for path in (output, plot))
        if figure.is_relative_to(whole) or whole.is_relative_to(figure):  # either would stand in the other's way
            raise UsageError(
                f"--plot {plot} and --output {output} are the same or one in the other",
                hint="write the figure to another place",
            )


def explain(error: Any) -> tuple[str, str | None]:
    """The sentence and the hint for an error of Typer's."""
    ctx, param = getattr(error, "ctx", None), getattr(error, "param", None)
    hint = f"{ctx.command_path} --help shows the options" if ctx else None
    if near := nearest(getattr(error, "option_name", ""), getattr(error, "possibilities", None) or ()):
        return str(error.message), f"did you mean {near}?"
    if ctx and ctx.parent is None and (option := getattr(error, "option_name", None)):
        hint = f"options come behind the command: {ctx.command_path} COMMAND {option}"
    # pydantic's words say nothing of what was typed, and its prefix says nothing at all
    message = error.format_message().replace("Value error, ", "")
    if param is not None and (typed := _typed(error)):
        message = message.replace("Input should", f"{typed!r} should", 1)
        words = typed.split(",")
        if len(words) > 1 and param.multiple and param.opts:
            hint = f"repeat it: {' '.join(f'{param.opts[0]} {word.strip()}' for word in words)}"
        elif near := nearest(typed.lower(), [str(choice) for choice in param.type_descriptor.choices or ()]):
            hint = f"did you mean {near}?"
    origin = _origin(ctx, param)
    return (f"{origin}: {message}" if origin else message), hint


def _typed(error: Any) -> str:
    """The value that pydantic refused; empty where it was not pydantic."""
    details = getattr(error.__cause__, "errors", list)()
    value = details[0]["input"] if details else ""
    return str(value[0] if isinstance(value, list) and len(value) == 1 else value)


def _origin(ctx: Any, param: Any) -> str | None:
    """The variable or file that gave a parameter its value; None for the command line."""
    if ctx is None or param is None:
        return None
    source = getattr(ctx.get_parameter_source(param.name), "name", "")
    if source == "ENVIRONMENT":
        names = {param.envvar, f"{ctx.auto_envvar_prefix}_{param.name.upper()}"}
        return next((name for name in sorted(filter(None, names)) if os.environ.get(name)), None)
    return ctx.meta.get(ORIGINS, {}).get(param.name) if source == "DEFAULT_MAP" else None


def variable(option: str, prefix: str = ENVIRONMENT_PREFIX) -> str:
    """The environment variable of a long option: ``--calib-tokens`` has ``ICML25_QUANTIZE_CALIB_TOKENS``."""
    return f"{prefix}_{option.lstrip('-').replace('-', '_').upper()}"


def unknown_variables(ctx: Any) -> list[str]:
    """A sentence for each ``ICML25_*`` variable that neither the house nor the command of ``ctx`` reads.

    Those that begin with another command's name are left to that command, whose options are not imported here.
    """
    path = ctx.command_path.split()[:2]
    mine = variable("_".join(path[1:]))
    group = ctx.parent.command if ctx.parent and ctx.parent.parent else None
    known = {variable(name) for name in (*SHARED, *HOUSE)}
    for verb, command in getattr(group, "commands", {"": ctx.command}).items():
        for prefix in {mine, variable(verb, mine) if verb else mine}:
            known |= {variable(opt, prefix) for param in command.params for opt in (*param.opts, str(param.name))}
    others = tuple(
        f"{variable(name)}_" for name in ctx.find_root().command.list_commands(ctx) if variable(name) != mine
    )
    said = []
    for name in sorted(os.environ):
        if name.startswith(f"{ENVIRONMENT_PREFIX}_") and name not in known and not name.startswith(others):
            near = nearest(name, known, cutoff=0.8)
            said.append(f"nothing reads the variable {name}" + (f", did you mean {near}?" if near else ""))
    return said

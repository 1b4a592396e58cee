"""Option values from a TOML file: a table per command, a sub-table per verb.

Knows TOML and the catalogue. Does not know how options are declared.
"""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from icml25cli.catalog import COMMANDS
from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.usage import nearest


def _unknown(kind: str, word: str, path: Path, known: Iterable[str]) -> UsageError:
    near = nearest(word, known, cutoff=0.5)
    hint = f"did you mean '{near}'?" if near else f"known here: {', '.join(sorted(known))}"
    return UsageError(f"{path}: unknown {kind} '{word}'", hint=hint)


def read_config(path: Path, words: list[str], *, options: dict[str, str], verbs: set[str]) -> dict[str, Any]:
    """The values of ``[command]`` or ``[command.verb]`` as a mapping from option name (with ``_``) to value.

    Args:
        words: the command and, unless it is the default one, its verb.
        options: what may be set (arguments and secrets may not): long option with ``_`` to parameter name.
        verbs: sub-tables that may stand beside the options.

    Raises:
        InputError: the file cannot be read or is not TOML.
        UsageError: a table or key that does not exist, with the nearest name.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}", hint="give --config a TOML file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}", hint="write [quantize] on a line, then seed = 1") from error
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UsageError(
                f"{path}: '{name}' stands outside a table",
                hint=f"write [{words[0]}] on a line and the options below it",
            )
        if name not in COMMANDS:
            raise _unknown("table", name, path, [n for n, command in COMMANDS.items() if command.module])
    table = tables.get(words[0], {})
    for word in words[1:]:
        table = table.get(word, {})
        if not isinstance(table, dict):
            raise UsageError(f"{path}: '{word}' must be one table", hint=f"write [{'.'.join(words)}] once")
    values = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if isinstance(value, dict) and name in {verb.replace("-", "_") for verb in verbs} and len(words) == 1:
            continue
        if name not in options:
            raise _unknown("key", key, path, {option.replace("_", "-") for option in options})
        values[options[name]] = value
    return values

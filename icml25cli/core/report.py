"""What a command answers: one object, shown to a person with Rich or to a program as JSON.

Numbers stay numbers until they are shown. Knows no paper.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icml25cli.catalog import COMMANDS, Paper
from icml25cli.core.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCHEMA = "icml25/report/1"
SPREADS = ("_se", "_sd")  # a standard error, or a standard deviation over runs
Row = Mapping[str, Any]


@dataclass
class Report:
    """The answer of one command.

    ``metrics`` are the headline figures, numbers only; ``answer`` the facts that are no numbers. ``rows`` is the main
    comparison, the main method first; ``tables`` holds further ones by name. Names are snake_case with the unit in
    them. ``records`` are the product of verbs that print CSV. Everything is plain Python: str, int, float, bool, None.
    """

    command: str
    params: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    device: str | None = None
    rows: list[Row] = field(default_factory=list)
    tables: dict[str, list[Row]] = field(default_factory=dict)
    details: dict[str, list[Row]] = field(default_factory=dict)  # tables too long for a person: in the JSON form only
    metrics: dict[str, float | None] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)
    artefacts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    elapsed_seconds: float | None = None
    _started: float = field(default_factory=time.monotonic, repr=False)

    def document(self) -> dict[str, Any]:
        """The JSON form, described by ``assets/report.schema.json``; NaN and infinity become null with a warning."""
        from importlib.metadata import version

        command = COMMANDS.get(self.command)
        document = {
            "schema": SCHEMA,
            "version": version("icml25"),
            "command": self.command,
            "paper": command.title if isinstance(command, Paper) else None,
            "params": self.params,
            "seed": self.seed,
            "device": self.device,
            "elapsed_seconds": self.elapsed_seconds,
            "metrics": self.metrics,
            "answer": self.answer,
            "rows": self.rows,
            "tables": {**self.tables, **self.details},
            "artefacts": self.artefacts,
            "notes": self.notes,
            "warnings": self.warnings,
        }
        lost: list[str] = []
        finite = _finite(document, "", lost)
        if lost:
            finite["warnings"] = [*finite["warnings"], f"not finite, shown as null: {', '.join(lost)}"]
        return finite

    def finish(self) -> None:
        """Stop the clock, once."""
        if self.elapsed_seconds is None:
            self.elapsed_seconds = round(time.monotonic() - self._started, 3)


def _finite(value: Any, path: str, lost: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _finite(v, f"{path}.{k}" if path else str(k), lost) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v, f"{path}[{i}]", lost) for i, v in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        lost.append(path)
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def show(report: Report, *, as_json: bool = False) -> None:
    """Print ``report`` on standard output, whole: as a JSON document or as tables for a person.

    Raises:
        OutputError: standard output cannot take it (a full disk; a closed pipe stays a ``BrokenPipeError``).
    """
    report.finish()
    with standard_output():
        if as_json:
            utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
            print(json.dumps(report.document(), indent=2, ensure_ascii=not utf8, allow_nan=False))
        else:
            from icml25cli.core.console import stdout

            render(report, stdout())
        sys.stdout.flush()


@contextmanager
def standard_output() -> Any:
    """Turn what can go wrong with standard output into one sentence."""
    if sys.stdout is None:
        raise OutputError("standard output is closed", hint="write to a file with -o, or leave the stream open")
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror}", hint="free some space") from error


def render(report: Report, console: Console) -> None:
    """Print ``report`` for a person."""
    from icml25cli.core.console import plain

    command = COMMANDS.get(report.command)
    title = f"icml25 {report.command}"
    if isinstance(command, Paper):
        title += f" · {command.title}"
    console.print(plain(title, style="bold"))
    facts = {**report.params, **({"seed": report.seed} if report.seed is not None else {})}
    if report.device:
        facts["device"] = report.device
    if facts:
        console.print(plain(" · ".join(f"{key} {_cell(value)}" for key, value in facts.items()), style="dim"))
    if report.rows:
        console.print(_fitting(console, None, report.rows))
    for name, rows in report.tables.items():
        if rows:
            console.print(_fitting(console, name.replace("_", " "), rows))
    headline = {**report.answer, **(report.metrics if not report.rows else {})}
    for key, value in headline.items():
        console.print(plain(f"{key.replace('_', ' ')}: ", style="bold") + plain(_cell(value)))
    for text in report.notes:
        console.print(plain(text), soft_wrap=True)
    for text in report.warnings:
        console.print(plain("warning: ", style="bold yellow") + plain(text), soft_wrap=True)
    for path in report.artefacts:
        console.print(plain("wrote ", style="green") + plain(path))
    if report.elapsed_seconds is not None:
        console.print(plain(f"{report.elapsed_seconds:.1f} s", style="dim"))


def _fitting(console: Console, name: str | None, rows: Sequence[Row]) -> Table:
    """A row a method; on a terminal too narrow for that a column a method, where that fits."""
    from icml25cli.core.console import UNBOUNDED_WIDTH

    upright = _table(name, rows)
    unbounded = console.options.update(width=UNBOUNDED_WIDTH)
    if console.measure(upright, options=unbounded).maximum <= console.width:
        return upright
    first, *others = list(dict.fromkeys(key for row in rows for key in row if not key.endswith(SPREADS)))
    labels = [_cell(row.get(first)) for row in rows]
    across = [
        {first: key.replace("_", " "), **{f"{i}": _with_error(row, key) for i, row in enumerate(rows)}}
        for key in others
    ]
    turned = _table(name, across, headings=[first.replace("_", " "), *labels])
    return turned if console.measure(turned, options=unbounded).maximum <= console.width else upright


def _table(name: str | None, rows: Sequence[Row], headings: Sequence[str] | None = None) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from icml25cli.core.console import plain

    named = list(dict.fromkeys(key for row in rows for key in row))
    keys = [key for key in named if not (key.endswith(SPREADS) and key[:-3] in named)]
    table = Table(title=plain(name, style="italic") if name else None, title_justify="left", box=SIMPLE_HEAD)
    for key, heading in zip(keys, headings or [key.replace("_", " ") for key in keys], strict=True):
        numeric = any(isinstance(row.get(key), (int, float)) and not isinstance(row.get(key), bool) for row in rows)
        table.add_column(
            plain(heading), justify="right" if numeric else "left", overflow="fold", no_wrap=numeric or bool(headings)
        )
    for row in rows:
        table.add_row(*(plain(_with_error(row, key)) for key in keys))
    return table


def _with_error(row: Row, key: str) -> str:
    """A figure with its standard error or deviation, which then needs no column of its own, to two digits."""
    error = next((row[key + spread] for spread in SPREADS if key + spread in row), None)
    if not isinstance(error, float) or not math.isfinite(error) or not error:
        return _cell(row.get(key))
    return f"{_cell(row.get(key))} ± {error:.2g}"


def _cell(value: Any) -> str:
    """A value as a person reads it: four significant digits, whole numbers in full, nothing for a missing one."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        if value == 0 or 1e-3 <= abs(value) < 1e5:
            digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
            return f"{value:,.{digits}f}"
        if value.is_integer() and abs(value) < 1e9:
            return f"{value:,.0f}"
        return f"{value:.3e}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_cell(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(_cell(v) for v in value)
    return str(value)

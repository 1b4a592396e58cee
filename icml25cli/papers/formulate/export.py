"""Exports that were read again and solved again before anybody is told of them.

    text = export(model, "lp").text

Knows the formats' readers. Does not know where the text goes.
"""

import json
import math
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from icml25cli.core.errors import OutputError
from icml25cli.papers.formulate.compiler import compile_model
from icml25cli.papers.formulate.formulation import Formulation, parse_formulation
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.rationals import exact
from icml25cli.papers.formulate.reading import read_model
from icml25cli.papers.formulate.solve import TIME_LIMIT, Solution, solve
from icml25cli.papers.formulate.writing import flat_formulation, lp_text, mps_text, portable, script_text

Format = Literal["lp", "mps", "py", "json"]
FORMATS: tuple[Format, ...] = ("lp", "mps", "py", "json")
AGREEMENT = 1e-6  # of two optima, relative
MEMORY = 4 * 2**30  # bytes that a script may take while it is tried


@dataclass(frozen=True)
class Export:
    """A model as text, and its solution.

    ``confirmed``: solving the text gave the same status and optimum; False where time was up.
    """

    text: str
    solution: Solution
    confirmed: bool


def export(
    model: LinearModel,
    form: Format,
    *,
    formulation: Formulation | None = None,
    time_limit: float | None = TIME_LIMIT,
) -> Export:
    """Write a model in a format, read it back, compare every number, solve it and compare the optimum.

    Names are sanitised where the format asks for it. ``formulation``, of which the model was compiled, is what JSON
    holds; without it JSON has every variable and row written out.

    Raises:
        InputError: the model holds what no solver can (``solve``).
        OutputError: what was read or solved again is not the model.
    """
    if form not in FORMATS:
        raise ValueError(f"no format {form!r}")
    first = solve(model, time_limit=time_limit)  # and thereby learn whether a solver can hold it
    whole = portable(model)
    if form == "py":
        text = script_text(whole)
        again: Solution | None = None
    else:
        text, read = _written(model, whole, form, formulation)
        again = solve(read, time_limit=time_limit)
    if again is None:
        confirmed = _confirm(first, *_run_script(text, time_limit), form)
    else:
        confirmed = _confirm(first, again.status, again.objective, form)
    return Export(text, first, confirmed)


def _written(
    model: LinearModel, whole: LinearModel, form: Format, formulation: Formulation | None
) -> tuple[str, LinearModel]:
    """The text in a format other than Python, and the model that a reader finds in it."""
    if form == "json":
        document = (formulation or flat_formulation(model)).document()
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        if not text.replace("\n", "").isprintable():  # a name with control characters would reach a terminal
            text = json.dumps(document, indent=2) + "\n"
        read = compile_model(parse_formulation(text, "the JSON export"))
        _compare(
            _content(portable(model), _names(model), lambda x: x),
            _content(portable(read), _names(read), lambda x: x),
            form,
        )
        return text, read
    text = lp_text(whole) if form == "lp" else mps_text(whole)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"model.{form}")
        path.write_text(text, encoding="ascii")
        read = read_model(path)[1]
    _compare(
        _content(whole, whole.column_names, lambda x: exact(float(x))), _content(read, _names(read), lambda x: x), form
    )
    return text, read


def _names(model: LinearModel) -> tuple[str, ...]:
    return tuple(column.name for column in model.columns)


def _content(model: LinearModel, names: tuple[str, ...], rounded: Callable[[Any], Any]) -> dict[str, Any]:
    """All that a model says, in no order, with numbers as a format holds them."""

    def bound(value: Any) -> Any:
        return None if value is None else rounded(value)

    rows = (row for row in model.rows if row.terms or not row.admits(0))
    return {
        "sense": model.sense,
        "constant": rounded(model.constant),
        "objective": {names[j]: rounded(a) for j, a in model.objective},
        "variables": {
            name: (bound(column.lower), bound(column.upper), column.integer)
            for name, column in zip(names, model.columns, strict=True)
        },
        "rows": Counter(
            (frozenset((names[j], rounded(a)) for j, a in row.terms), bound(row.lower), bound(row.upper))
            for row in rows
        ),
    }


def _compare(meant: dict[str, Any], read: dict[str, Any], form: Format) -> None:
    for part, value in meant.items():
        if value != read[part]:
            raise OutputError(
                f"the {form} export was read back with other {part} than the model has", hint="choose another format"
            )


def _confirm(first: Solution, status: str, objective: float | None, form: Format) -> bool:
    """Whether two solutions agree; False where one ran out of time, or CBC calls infeasible what is unbounded."""
    statuses = {first.status, status}
    if statuses & {"feasible", "unknown"} or statuses == {"infeasible", "unbounded"}:
        return False
    same = first.status == status
    if same and first.objective is not None and objective is not None:
        same = math.isclose(first.objective, objective, rel_tol=AGREEMENT, abs_tol=AGREEMENT)
    if not same:
        raise OutputError(
            f"the {form} export solves to {status} {objective}, the model to {first.status} {first.objective}",
            hint="choose another format, and report the model",
        )
    return True


# --- scripts -----------------------------------------------------------------------------------------------------

_STATUSES = {"Optimal": "optimal", "Infeasible": "infeasible", "Unbounded": "unbounded"}


def _run_script(text: str, time_limit: float | None) -> tuple[str, float | None]:
    """Status and objective that a script prints, run by this Python alone in an empty folder, within limits."""
    seconds = math.ceil(time_limit or TIME_LIMIT)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.py")
        path.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(
                [sys.executable, "-I", str(path)],
                cwd=folder,
                env={"PATH": "/usr/bin:/bin", "TMPDIR": folder, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=seconds,
                preexec_fn=limit,
            )
        except subprocess.TimeoutExpired:
            return "unknown", None
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    if done.returncode < 0:  # by a signal: a limit
        return "unknown", None
    if done.returncode or "status" not in said:
        last = (done.stderr.strip().splitlines() or ["it printed no status"])[-1]
        raise OutputError(f"the py export does not run: {last}", hint="choose another format, and report the model")
    return _STATUSES.get(said["status"], "unknown"), float(said["objective"]) if "objective" in said else None

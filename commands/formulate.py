"""`icml25 formulate`: optimisation models checked, explained and written out."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icml25cli.commands import formulate_backend, formulate_bench, formulate_run
from icml25cli.core import options as opt
from icml25cli.core.report import Report, Row, show, standard_output
from icml25cli.core.verbs import paper_group

if TYPE_CHECKING:
    from icml25cli.papers.formulate.solve import Solution

app = paper_group("formulate")

SHOWN = 40  # rows of a table that a person is shown; --json has all


class SolverOption(StrEnum):
    highs = "highs"
    cbc = "cbc"


class FormatOption(StrEnum):
    lp = "lp"
    mps = "mps"
    py = "py"
    json = "json"


_KINDS = (
    "A formulation (.json), an LP file (.lp), an MPS file (.mps), a folder that run -o wrote, or - for any of the "
    "files on standard input."
)
Model = Annotated[Path, typer.Argument(metavar="MODEL", help=_KINDS)]
Solver = Annotated[SolverOption, typer.Option("--solver", help="HiGHS, or the CBC that comes with PuLP.")]
TimeLimit = Annotated[float, typer.Option("--time-limit", min=0.1, help="Seconds a solver may take.")]


@app.command()
def explain(
    model: Model,
    solver: Solver = SolverOption.highs,
    time_limit: TimeLimit = 60.0,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 unless an optimum is found.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Solve MODEL and say why the answer is what it is: prices, ranges, what excludes each other, what is unlimited."""
    from icml25cli.core.errors import CheckFailed
    from icml25cli.papers.formulate.explain import explain as find_out
    from icml25cli.papers.formulate.reading import read_model

    report = Report("formulate", params={"verb": "explain", "model": str(model), "solver": solver.value})
    found = find_out(read_model(model)[1], solver.value, time_limit)
    solution = found.solution
    report.rows = [{"model": model.name, **_summary(solution), **found.model.size, "seconds": solution.seconds}]
    report.metrics = {"objective": solution.objective}
    if as_json or solution.values is not None:
        report.tables = {
            "variables": _shown(report, "variables", found.variables(), "value", as_json),
            "constraints": _shown(report, "constraints", found.constraints(), "binds", as_json),
        }
    report.details = {"conflict": [*found.members()]}
    report.answer = {"status": solution.status}
    if found.prices is not None:
        report.answer["prices_of"] = found.prices.of
    if as_json:
        report.answer["solution"] = solution.by_name(found.model)
    report.notes += found.sentences()
    report.warnings = found.warnings()
    show(report, as_json=as_json)
    if strict and solution.status != "optimal":
        raise CheckFailed(f"{model} has no optimum that is known: {solution.status}", hint="leave out --strict")


@app.command()
def check(
    a: Annotated[Path, typer.Argument(metavar="A", help=_KINDS)],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another.")],
    same: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="NAME=NAME", help="A variable of B and what it is called in A; repeatable."),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.01, help="Seconds a question to z3 may take.")] = 10.0,
    as_json: opt.Json = False,
) -> None:
    """Say whether A and B are the same model: equivalent, different with a point that shows it, or undecided."""
    from icml25cli.core.errors import CheckFailed, UsageError
    from icml25cli.papers.formulate.matching import compare, parse_names
    from icml25cli.papers.formulate.reading import read_model
    from icml25cli.papers.formulate.solve import solve

    report = Report("formulate", params={"verb": "check", "a": str(a), "b": str(b)})
    if str(a) == str(b) == "-":
        raise UsageError("standard input can be one model only", hint="name a file for the other")
    first, second = read_model(a)[1], read_model(b)[1]
    verdict, names = compare(first, second, parse_names(same or [], first, second), timeout=timeout, called=("A", "B"))
    solutions = [solve(model, time_limit=timeout) for model in (first, second)]
    report.rows = [
        {"model": path.name, **_summary(solution), **model.size}
        for path, model, solution in zip((a, b), (first, second), solutions, strict=True)
    ]
    report.metrics = {"objective": solutions[0].objective, "objective_other": solutions[1].objective}
    report.tables = {
        "witness": [{"variable": name, "value": float(value)} for name, value in (verdict.witness or {}).items()],
        "names": [{"in_a": there, "in_b": here} for here, there in names.items()],
    }
    report.answer = {"status": verdict.status, "reason": verdict.reason, "method": verdict.method}
    report.notes = [*first.notes, *second.notes]
    show(report, as_json=as_json)
    if verdict.status != "equivalent":
        hint = "--map says which variables are the same" if "different variables" in verdict.reason else None
        raise CheckFailed(f"{a} and {b}: {verdict.status}", hint=hint)


@app.command("compile")
def compile_(
    model: Model,
    to: Annotated[
        FormatOption | None, typer.Option("--to", help="Format. [default: that of the output file, else lp]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write. [default: standard output]")
    ] = None,
    force: opt.Force = False,
    time_limit: TimeLimit = 60.0,
    as_json: opt.Json = False,
) -> None:
    """Write MODEL as an LP or MPS file, a PuLP script or JSON, read and solved again before you get it."""
    from icml25cli.core.errors import UsageError
    from icml25cli.core.files import atomic_path, check_file
    from icml25cli.core.progress import note, warn
    from icml25cli.papers.formulate.export import export
    from icml25cli.papers.formulate.reading import read_model

    suffix = output.suffix.lstrip(".").lower() if output else ""
    if output and to is None and suffix not in [*FormatOption]:
        raise UsageError(f"{output} does not say its format", hint="name it .lp, .mps, .py or .json, or give --to")
    form = to or (FormatOption(suffix) if output else FormatOption.lp)
    report = Report("formulate", params={"verb": "compile", "model": str(model), "to": form.value})
    if output:
        check_file(output, force=force)
    formulation, linear = read_model(model)
    done = export(linear, form.value, formulation=formulation, time_limit=time_limit)
    report.rows = [{"format": form.value, **_summary(done.solution), **linear.size, "bytes": len(done.text.encode())}]
    report.metrics = {"objective": done.solution.objective}
    report.answer = {"status": "confirmed" if done.confirmed else "not confirmed"}
    report.notes = [*linear.notes]
    if not done.confirmed:
        warn("the export says what the model says, but time was up before both were solved to the same end")
    if output:
        with atomic_path(output, force=force) as temporary:
            temporary.write_text(done.text, encoding="utf-8")
        report.artefacts = [str(output)]
    elif not as_json:
        with standard_output():
            print(done.text, end="", flush=True)
        note(
            f"solved again: {done.solution.status} {'' if done.solution.objective is None else done.solution.objective}"
        )
        return
    else:
        report.answer["text"] = done.text
    show(report, as_json=as_json)


def _summary(solution: "Solution") -> dict[str, Any]:
    return {"status": solution.status, "objective": solution.objective}


def _shown(report: Report, name: str, rows: Sequence[Row], first: str, as_json: bool) -> list[Row]:
    """A table of a length that a person can read: in front what is not zero, and what binds."""
    if as_json or len(rows) <= SHOWN:
        return [*rows]
    report.notes.append(f"{SHOWN} of {len(rows)} {name} are shown; --json has all")
    return sorted(rows, key=lambda row: not row.get(first))[:SHOWN]


for verb in (*formulate_run.VERBS, *formulate_bench.VERBS, formulate_backend.backends):
    app.command()(verb)

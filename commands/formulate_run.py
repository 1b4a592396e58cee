"""The main verb of `icml25 formulate`: a problem in words becomes a solved model."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icml25cli.commands import formulate_answer as answer
from icml25cli.commands import formulate_backend as who
from icml25cli.commands import formulate_search as how
from icml25cli.core import options as opt
from icml25cli.core.report import Report
from icml25cli.core.verbs import taking

if TYPE_CHECKING:
    from icml25cli.papers.formulate.settings import Settings

EXAMPLE = (
    "A farmer has 10 acres of land and a budget of $100. An acre of wheat costs $2 to plant and brings a profit"
    " of $20. An acre of corn costs $5 to plant and brings a profit of $30. How many acres of each should be "
    "planted to maximize the profit?"
)


@taking(settings=how.settings, drafter=who.drafter)
def run(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM",
            help="The problem: a text file, - for standard input, or the text itself. Of a .jsonl file every line.",
        ),
    ] = EXAMPLE,
    *,
    settings: "Settings",
    min_confidence: how.MinConfidence = 0.2,
    top: Annotated[int, typer.Option("--top", min=1, help="Rival readings that are shown.")] = 3,
    trace: Annotated[
        bool, typer.Option("--trace", help="Tell of every expansion on standard error; with --json, list all drafts.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 unless an optimum is found.")] = False,
    drafter: who.Drafter,
    seed: opt.Seed = 0,
    output: opt.Output = None,
    force: opt.Force = False,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Turn PROBLEM into a model, solve it, and show the rival readings and how sure the answer is.

    Works offline with a grammar of small word problems: a few things are decided, every number is in the text; also
    formulas, tables, shipping, assignment, shifts and cutting. It abstains (exit 1) from what it does not understand.
    Language models, with --backend, read any problem; their answers are kept, so that what was cut short goes on.
    """
    from dataclasses import asdict

    from icml25cli.core.runs import check_output

    if output:
        check_output(output, force=force)
    many = Path(problem) if problem.lower().endswith(".jsonl") else None
    text, source = ("", problem) if many else _text(problem)
    report = Report("formulate", params={"verb": "run", "problem": source, "backend": drafter.backend.value}, seed=seed)
    report.params |= {name: getattr(settings, name) for name in ("search", "prune", "rollouts", "domain")}
    inputs = {"problem": many or text, "search": asdict(settings), "least": min_confidence}
    with drafter.journal(inputs, many="run" if many else "", resume=resume, fresh=fresh) as (kept, answers):
        if many is not None:
            assert kept is not None
            answer.solve_many(
                many, settings, kept, min_confidence, answers, report, output, force=force, as_json=as_json
            )
        else:
            if source == "the built-in example":
                report.notes.append(
                    "This is the built-in example: name a text file, - for standard input, or the text."
                )
            answer.solve_one(
                text,
                settings,
                answers,
                report,
                least=min_confidence,
                top=top,
                trace=trace,
                strict=strict,
                output=output,
                force=force,
                as_json=as_json,
            )


def _text(problem: str) -> tuple[str, str]:
    """The text of a problem, and what to call where it came from."""
    from icml25cli.core.errors import InputError, UsageError
    from icml25cli.papers.formulate.job import LONGEST

    if problem == EXAMPLE:
        if _has_input():
            raise UsageError(
                "no PROBLEM is given, and standard input holds something",
                hint="icml25 formulate - reads it; the built-in example: icml25 formulate run < /dev/null",
            )
        return problem, "the built-in example"
    if Path(problem).suffix.lower() in (".lp", ".mps", ".mod", ".json") and len(problem.split()) == 1:
        raise InputError(f"{problem} is a model, not a problem in words", hint=f"icml25 formulate explain {problem}")
    if problem != "-" and not 0 < len(problem.split()) <= 3 and not _is_a_file(problem):
        return problem, "the command line"
    source = "standard input" if problem == "-" else problem
    most = 4 * LONGEST + 4  # bytes that its characters may take, and more: what has no end is not read to it
    try:
        if problem == "-":
            content = sys.stdin.buffer.read(most)
        else:
            with Path(problem).open("rb") as file:
                content = file.read(most)
        return content.decode("utf-8-sig", "replace" if len(content) == most else "strict"), source
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is no text", hint="a problem is words in UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{source} cannot be read: {reason.lower()}", hint="give a file, -, or the text in quotes"
        ) from error


def _has_input() -> bool:
    """Whether a pipe or a file with something in it stands at standard input; looked at without reading, or waiting."""
    import select
    import stat

    try:
        descriptor = sys.stdin.fileno()
        kind = os.fstat(descriptor)
        if stat.S_ISREG(kind.st_mode):
            return kind.st_size > os.lseek(descriptor, 0, os.SEEK_CUR)
        if not stat.S_ISFIFO(kind.st_mode):
            return False
        events = select.poll()
        events.register(descriptor, select.POLLIN)
        return any(event & select.POLLIN for _, event in events.poll(0))
    except (OSError, ValueError, AttributeError):  # closed, none, or no file of the system
        return False


def _is_a_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


VERBS = (run,)

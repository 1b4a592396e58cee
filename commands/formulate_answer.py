"""What `icml25 formulate` shows and writes of a problem that it solved, and of many."""

from pathlib import Path
from typing import TYPE_CHECKING

from icml25cli.commands import formulate_backend as who
from icml25cli.core.report import Report, show

if TYPE_CHECKING:
    from icml25cli.core.runs import Run
    from icml25cli.papers.formulate.backends.chat import Chat
    from icml25cli.papers.formulate.explain import Explanation
    from icml25cli.papers.formulate.job import Outcome
    from icml25cli.papers.formulate.settings import Settings
    from icml25cli.papers.formulate.tree import Node


def solve_one(
    text: str,
    settings: "Settings",
    chat: "Chat | None",
    report: Report,
    *,
    least: float,
    top: int,
    trace: bool,
    strict: bool,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    from icml25cli.core.errors import CheckFailed, about
    from icml25cli.core.progress import Progress, note, warnings_so_far
    from icml25cli.papers.formulate.batch import explained, unanswered
    from icml25cli.papers.formulate.job import formulate_text
    from icml25cli.papers.formulate.tree import document, expansion

    with Progress("expansions", sum(settings.keep**depth for depth in range(4))) as progress:

        def expanded(node: "Node") -> None:
            progress.advance()
            if trace:
                note(expansion(node))

        with about(report.params["problem"]):
            outcome = formulate_text(text, settings, expanded, chat)
    report.warnings = [*warnings_so_far()]
    report.metrics = {"objective": None, "confidence": outcome.confidence}
    if chat is not None:
        _tell(report, chat, outcome)
    if trace and as_json and outcome.found is not None:
        report.details["nodes"] = [*document(outcome.found.root)]
    reason = unanswered(outcome, least)
    if reason:
        report.answer = {"status": "abstained", "reason": reason, "solution": {}}
        show(report, as_json=as_json)
        hint = "say it in plain sentences with every number, or write it as JSON"
        if outcome.best is not None:
            hint = "say it in other words, or lower --min-confidence to see the likeliest reading"
        elif chat is not None:
            hint = (
                "a stronger model, another --temperature, or more --candidates and --max-tokens; --fresh asks all anew"
            )
        raise CheckFailed(f"no answer is given: {reason}", hint=hint)
    explanation = explained(outcome, settings)
    _fill(report, outcome, explanation, top, as_json)
    if output:
        _write(output, outcome, explanation, report, settings, force=force)
    show(report, as_json=as_json)
    if outcome.cut is not None:
        raise outcome.cut
    if strict and explanation.solution.status != "optimal":
        raise CheckFailed(f"there is no optimum: {explanation.solution.status}", hint="leave out --strict")


def solve_many(
    path: Path,
    settings: "Settings",
    kept: "Run",
    least: float,
    chat: "Chat | None",
    report: Report,
    output: Path | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Every line of a file; with -o a folder each."""
    import shutil

    from icml25cli.core.files import write_json
    from icml25cli.core.runs import commit_output
    from icml25cli.papers.formulate.batch import read_texts, solve_texts, unit_of

    records = solve_texts(read_texts(path), settings, kept, least, chat)
    report.rows = [{key: value for key, value in record.items() if key != "solution"} for record in records]
    report.details = {
        "solutions": [
            {"name": record["name"], "variable": variable, "value": value}
            for record in records
            for variable, value in record["solution"].items()
        ]
    }
    solved = sum(record["status"] == "optimal" for record in records)
    report.metrics = {"problems": len(records), "optimal": solved}
    if chat is not None:
        report.params["model"] = chat.about.model
        report.metrics |= vars(chat.usage)
        report.notes += chat.notes
    report.answer = {"status": "done"}
    if output:
        with commit_output(output, force=force) as folder:
            for place in range(1, len(records) + 1):
                shutil.copytree(kept.path(unit_of(place)), folder / unit_of(place))
            report.artefacts = [str(output)]
            report.finish()
            write_json(folder / "report.json", report.document())
    show(report, as_json=as_json)


def _tell(report: Report, chat: "Chat", outcome: "Outcome") -> None:
    """Which model answered, what that took, and how much its answers differ."""
    from icml25cli.papers.formulate.tree import diversity

    report.params["model"] = chat.about.model
    report.metrics |= vars(chat.usage)
    report.notes += chat.notes
    if outcome.cut is not None:
        report.warnings.append(f"the search was cut short: {outcome.cut.message}")
    if outcome.found is not None:
        report.metrics["diversity"] = diversity(outcome.found.root)
        if report.metrics["diversity"] == 0:
            report.warnings.append("the model gave the same answer every time, so there are no rival readings")


def _fill(report: Report, outcome: "Outcome", explanation: "Explanation", top: int, as_json: bool) -> None:
    from icml25cli.papers.formulate.tree import counters

    assert outcome.best is not None
    assert outcome.found is not None
    model, solution = explanation.model, explanation.solution
    ranked = outcome.ranked()
    report.rows = [*(ranked if as_json else ranked[:top])]
    report.metrics["objective"] = solution.objective
    report.answer = {"status": solution.status}
    if as_json:
        report.answer["solution"] = solution.by_name(model)
        report.answer["formulation"] = outcome.best.formulation.document()
    aim = f"{model.sense} {model.written(model.objective, model.constant)}"
    report.tables = {
        "model": [
            {"part": "objective", "says": aim},
            *({"part": row.name, "says": model.row_text(row)} for row in model.rows),
        ],
        "solution": [*explanation.variables()],
        "constraints": [*explanation.constraints()],
    }
    report.notes.append(
        "Among the readings, value is the mean along a draft's path in the search of prior and reward, in [0, 1], and "
        "bradley_terry its strength in comparisons."
    )
    report.details |= {"conflict": [*explanation.members()], "levels": [*counters(outcome.found.root)]}
    if report.params["backend"] == who.BackendOption.grammar:
        told = "that this is what the text means. No language model was asked: a grammar read it"
    else:
        told = (
            "is the share of this optimum among the model's readings and one more that it may have missed (of two that "
            "agree two thirds), no chance of being right"
        )
    if outcome.guesses_domain:
        guess = "are whole" if model.is_integer else "need not be whole"
        report.notes.append(f"That amounts {guess} is a guess: --domain integer or continuous says it.")
    report.warnings += [f"{doubt[0].upper()}{doubt[1:]}." for doubt in outcome.doubts]
    report.notes += [
        f"Confidence {outcome.confidence:.2f} {told}, so compare the model with the text before you rely on it.",
        *explanation.sentences(),
    ]
    report.warnings += explanation.warnings()


def _write(
    output: Path,
    outcome: "Outcome",
    explanation: "Explanation",
    report: Report,
    settings: "Settings",
    *,
    force: bool,
) -> None:
    from icml25cli.core.files import write_json
    from icml25cli.core.runs import commit_output
    from icml25cli.papers.formulate.results import write_results

    with commit_output(output, force=force) as folder:
        write_results(folder, outcome, explanation, settings.time_limit)
        report.artefacts = [str(output)]
        report.finish()
        write_json(folder / "report.json", report.document())

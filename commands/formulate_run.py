"""The main verb of `icml25 formulate`: a problem in words becomes a solved model."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icml25cli.commands import formulate_backend as who
from icml25cli.commands import formulate_search as how
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show

if TYPE_CHECKING:
    from icml25cli.core.runs import Run
    from icml25cli.papers.formulate.backends.chat import Chat
    from icml25cli.papers.formulate.explain import Explanation
    from icml25cli.papers.formulate.job import Outcome
    from icml25cli.papers.formulate.settings import Settings
    from icml25cli.papers.formulate.tree import Node

EXAMPLE = (
    "A farmer has 10 acres of land and a budget of $100. An acre of wheat costs $2 to plant and brings a profit"
    " of $20. An acre of corn costs $5 to plant and brings a profit of $30. How many acres of each should be "
    "planted to maximize the profit?"
)


def run(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM",
            help="The problem: a text file, - for standard input, or the text itself. Of a .jsonl file every line.",
        ),
    ] = EXAMPLE,
    candidates: how.Candidates = 10,
    keep: how.Keep = 3,
    rollouts: how.Rollouts = 16,
    weight: how.Weight = 0.5,
    omega: how.Omega = 1.0,
    prior_votes: how.PriorVotes = 5,
    compare_votes: how.CompareVotes = 5,
    baselines: how.Baselines = 3,
    search: how.SearchBy = how.SearchOption.mcts,
    prune: how.Prune = how.PruneOption.smt,
    prior: how.Prior = how.PriorOption.rank,
    reward: how.Reward = how.RewardOption.compare,
    order: how.Order = how.OrderOption.path,
    update_baselines: how.UpdateBaselines = False,
    pre_expand: how.PreExpand = False,
    domain: how.Domain = how.DomainOption.auto,
    smt_timeout: how.SmtTimeout = 2.0,
    solver: how.Solver = how.SolverOption.highs,
    time_limit: how.TimeLimit = 10.0,
    min_confidence: how.MinConfidence = 0.2,
    top: Annotated[int, typer.Option("--top", min=1, help="Rival readings that are shown.")] = 3,
    trace: Annotated[
        bool, typer.Option("--trace", help="Tell of every expansion on standard error; with --json, list all drafts.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 unless an optimum is found.")] = False,
    backend: who.Backend = who.BackendOption.grammar,
    model: who.ModelName = None,
    base_url: who.BaseUrl = None,
    api_key_env: who.ApiKeyEnv = "OPENAI_API_KEY",
    cassette: who.Cassette = None,
    record: who.Record = None,
    max_calls: who.MaxCalls = None,
    max_tokens: who.MaxTokens = 1500,
    temperature: who.Temperature = 1.0,
    concurrency: who.Concurrency = 8,
    request_timeout: who.RequestTimeout = 300.0,
    device: opt.Device = "auto",
    allow_download: opt.AllowDownload = False,
    trust_remote_code: opt.TrustRemoteCode = False,
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
    from icml25cli.papers.formulate.settings import Settings

    if output:
        check_output(output, force=force)
    settings = Settings(
        candidates=candidates,
        keep=keep,
        rollouts=rollouts,
        weight=weight,
        exploration=omega,
        prior_votes=prior_votes,
        compare_votes=compare_votes,
        baselines=baselines,
        update_baselines=update_baselines,
        search=search.value,
        prune=prune.value,
        prior=prior.value,
        reward=reward.value,
        order=order.value,
        pre_expand=pre_expand,
        domain=domain.value,
        smt_timeout=smt_timeout,
        solver=solver.value,
        time_limit=time_limit,
        seed=seed,
    )
    many = Path(problem) if problem.lower().endswith(".jsonl") else None
    text, source = ("", problem) if many else _text(problem)
    report = Report("formulate", params={"verb": "run", "problem": source, "backend": backend.value}, seed=seed)
    report.params |= {"search": search.value, "prune": prune.value, "rollouts": rollouts, "domain": domain.value}
    asked = who.opened(
        backend,
        model=model,
        base_url=base_url,
        api_key_env=api_key_env,
        cassette=cassette,
        record=record,
        max_calls=max_calls,
        max_tokens=max_tokens,
        temperature=temperature,
        concurrency=concurrency,
        request_timeout=request_timeout,
        device=device,
        allow_download=allow_download,
        trust_remote_code=trust_remote_code,
    )
    inputs = {"problem": many or text, "search": asdict(settings), "server": base_url, "least": min_confidence}
    with (
        asked as chat,
        who.journal(chat, inputs, record=record, many="run" if many else "", resume=resume, fresh=fresh) as (
            kept,
            answers,
        ),
    ):
        if many is not None:
            assert kept is not None
            _solve_many(many, settings, kept, min_confidence, answers, report, output, force=force, as_json=as_json)
        else:
            _solve_one(
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


def _solve_one(
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
            hint = "lower --min-confidence to see the likeliest reading"
        elif chat is not None:
            hint = "a stronger model, another --temperature, or more --candidates and --max-tokens"
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


def _solve_many(
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


def _is_a_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def _text(problem: str) -> tuple[str, str]:
    """The text of a problem, and what to call where it came from."""
    from icml25cli.core.errors import InputError
    from icml25cli.papers.formulate.job import LONGEST

    if problem == EXAMPLE:
        return problem, "the built-in example"
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
        "levels": [*counters(outcome.found.root)],
    }
    report.details |= {"conflict": [*explanation.members()]}
    if report.params["backend"] == who.BackendOption.grammar:
        told = "that this is what the text means. No language model was asked: a grammar read it"
    else:
        told = "is the share of the model's readings that have this optimum, no chance of being right"
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


VERBS = (run,)

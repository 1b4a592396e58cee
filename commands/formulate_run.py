"""The main verb of `icml25 formulate`: a problem in words becomes a solved model."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icml25cli.commands import formulate_backend as who
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show

if TYPE_CHECKING:
    from icml25cli.papers.formulate.backends.chat import Chat
    from icml25cli.papers.formulate.explain import Explanation
    from icml25cli.papers.formulate.job import Outcome

EXAMPLE = (
    "A farmer has 10 acres of land and a budget of $100. An acre of wheat costs $2 to plant and brings a profit"
    " of $20. An acre of corn costs $5 to plant and brings a profit of $30. How many acres of each should be "
    "planted to maximize the profit?"
)


class SearchOption(StrEnum):
    mcts = "mcts"
    dfs = "dfs"
    sequential = "sequential"
    greedy = "greedy"
    random = "random"


class PruneOption(StrEnum):
    smt = "smt"
    canon = "canon"
    none = "none"


class PriorOption(StrEnum):
    rank = "rank"
    score = "score"
    uniform = "uniform"


class RewardOption(StrEnum):
    compare = "compare"
    score = "score"
    solver = "solver"


class RunSolver(StrEnum):
    highs = "highs"
    cbc = "cbc"


def run(
    problem: Annotated[
        str,
        typer.Argument(metavar="PROBLEM", help="The problem: a text file, - for standard input, or the text itself."),
    ] = EXAMPLE,
    candidates: Annotated[int, typer.Option("--candidates", "-H", min=1, max=200, help="Drafts of a component.")] = 10,
    keep: Annotated[int, typer.Option("--keep", "-I", min=1, max=20, help="Drafts kept, the best ranked.")] = 3,
    rollouts: Annotated[int, typer.Option("--rollouts", "-T", min=1, max=500, help="Whole models to judge.")] = 16,
    weight: Annotated[float, typer.Option("--lambda", min=0, max=1, help="Of the prior against the reward.")] = 0.5,
    omega: Annotated[float, typer.Option("--omega", min=0, max=10, help="How much the search explores.")] = 1.0,
    search: Annotated[SearchOption, typer.Option("--search", help="How the tree is walked.")] = SearchOption.mcts,
    prune: Annotated[
        PruneOption, typer.Option("--prune", help="Drafts that say the same: proved by z3, by form alone, or kept.")
    ] = PruneOption.smt,
    prior: Annotated[PriorOption, typer.Option("--prior", help="What a draft's prior comes from.")] = PriorOption.rank,
    reward: Annotated[
        RewardOption, typer.Option("--reward", help="Of a model: against others, alone, or whether it solves.")
    ] = RewardOption.compare,
    update_baselines: Annotated[
        bool, typer.Option("--update-baselines", help="Compare with the three best so far, not the three first.")
    ] = False,
    pre_expand: Annotated[bool, typer.Option("--pre-expand", help="Build the whole tree before it is walked.")] = False,
    smt_timeout: Annotated[
        float, typer.Option("--smt-timeout", min=0.01, help="Seconds a question to z3 may take.")
    ] = 2.0,
    solver: Annotated[
        RunSolver, typer.Option("--solver", help="HiGHS, or the CBC that comes with PuLP.")
    ] = RunSolver.highs,
    time_limit: Annotated[float, typer.Option("--time-limit", min=0.1, help="Seconds a solver may take.")] = 10.0,
    min_confidence: Annotated[
        float, typer.Option("--min-confidence", min=0, max=1, help="Abstain (exit 1) below it.")
    ] = 0.2,
    top: Annotated[int, typer.Option("--top", min=1, help="Rival readings that are shown.")] = 3,
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
    as_json: opt.Json = False,
) -> None:
    """Turn PROBLEM into a model, solve it, and show the rival readings and how sure the answer is.

    Works offline with a grammar of small word problems: a few things are decided, every number is in the text. It
    abstains (exit 1) from what it does not understand. Language models, with --backend, read any problem.
    """
    from icml25cli.core.errors import CheckFailed
    from icml25cli.core.progress import Progress, warnings_so_far
    from icml25cli.core.runs import check_output
    from icml25cli.papers.formulate.explain import explain
    from icml25cli.papers.formulate.job import formulate_text
    from icml25cli.papers.formulate.search import Settings

    if output:
        check_output(output, force=force)
    text, source = _text(problem)
    report = Report("formulate", params={"verb": "run", "problem": source, "backend": backend.value}, seed=seed)
    report.params |= {"search": search.value, "prune": prune.value, "rollouts": rollouts}
    settings = Settings(
        candidates=candidates,
        keep=keep,
        rollouts=rollouts,
        weight=weight,
        exploration=omega,
        update_baselines=update_baselines,
        search=search.value,
        prune=prune.value,
        prior=prior.value,
        reward=reward.value,
        pre_expand=pre_expand,
        smt_timeout=smt_timeout,
        solver=solver.value,
        time_limit=time_limit,
        seed=seed,
    )
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
    with asked as chat, Progress("expansions", sum(keep**depth for depth in range(4))) as progress:
        outcome = formulate_text(text, settings, lambda node: progress.advance(), chat)
    report.warnings = [*warnings_so_far()]
    report.metrics = {"objective": None, "confidence": outcome.confidence}
    if chat is not None:
        _tell(report, chat, outcome)
    unsure = outcome.best is not None and outcome.confidence < min_confidence
    if outcome.best is None or unsure:
        reason = outcome.reason or f"the confidence is {outcome.confidence:.2f}"
        report.answer = {"status": "abstained", "reason": reason, "solution": {}}
        show(report, as_json=as_json)
        hint = "say it in plain sentences with every number, or write it as JSON"
        if unsure:
            hint = "lower --min-confidence"
        elif chat is not None:
            hint = "a stronger model, another --temperature, or more --candidates and --max-tokens"
        raise CheckFailed(f"no answer is given: {reason}", hint=hint)
    assert outcome.best.model is not None
    explanation = explain(outcome.best.model, solver.value, time_limit, outcome.wording)
    _fill(report, outcome, explanation, top, as_json)
    if output:
        _write(output, outcome, explanation, report, force=force, time_limit=time_limit)
    show(report, as_json=as_json)
    if outcome.cut is not None:
        raise outcome.cut
    if strict and explanation.solution.status != "optimal":
        raise CheckFailed(f"there is no optimum: {explanation.solution.status}", hint="leave out --strict")


def _text(problem: str) -> tuple[str, str]:
    """The text of a problem, and what to call where it came from."""
    from icml25cli.core.errors import InputError

    if problem == EXAMPLE:
        return problem, "the built-in example"
    if problem == "-":
        return sys.stdin.buffer.read().decode("utf-8-sig", "replace"), "standard input"
    words = problem.split()
    if len(words) > 3:
        return problem, "the command line"
    try:
        return Path(problem).read_text(encoding="utf-8-sig"), problem
    except UnicodeDecodeError as error:
        raise InputError(f"{problem} is no text", hint="a problem is words in UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{problem} cannot be read: {reason.lower()}", hint="give a file, -, or the text in quotes"
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

    assert outcome.found is not None
    model, solution = explanation.model, explanation.solution
    ranked = outcome.ranked()
    report.rows = [*(ranked if as_json else ranked[:top])]
    report.metrics["objective"] = solution.objective
    report.answer = {"status": solution.status}
    if as_json:
        report.answer["solution"] = solution.by_name(model)
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
    report.details = {"conflict": [*explanation.members()]}
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
    output: Path, outcome: "Outcome", explanation: "Explanation", report: Report, *, force: bool, time_limit: float
) -> None:
    """The folder of results; every model file is read and solved again before it stands there."""
    import json

    from icml25cli.core.files import write_json
    from icml25cli.core.runs import commit_output
    from icml25cli.papers.formulate.export import FORMATS, export
    from icml25cli.papers.formulate.page import blocks, markdown, webpage
    from icml25cli.papers.formulate.tree import document

    assert outcome.best is not None
    assert outcome.found is not None
    parts = blocks(outcome, explanation)
    with commit_output(output, force=force) as folder:
        for form in FORMATS:
            done = export(
                explanation.model, form, formulation=outcome.best.formulation, time_limit=max(time_limit, 10.0)
            )
            (folder / f"model.{form}").write_text(done.text, encoding="utf-8")
        tree = {"best": outcome.best.name, "nodes": document(outcome.found.root)}
        (folder / "tree.json").write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")
        (folder / "report.md").write_text(markdown(parts), encoding="utf-8")
        (folder / "report.html").write_text(webpage(parts), encoding="utf-8")
        report.artefacts = [str(output)]
        report.finish()
        write_json(folder / "report.json", report.document())


VERBS = (run,)

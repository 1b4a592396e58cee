"""`icml25 claims`: the papers' claims, measured here."""

from enum import StrEnum
from typing import Annotated

import typer

from icml25cli.catalog import PAPERS
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show
from icml25cli.core.verbs import service

app = service("claims")

RUNNING = [paper.name for paper in PAPERS if paper.module]


class RunSize(StrEnum):
    quick = "quick"
    full = "full"


def complete_command(incomplete: str) -> list[str]:
    return [name for name in RUNNING if name.startswith(incomplete)]


@app.command()
def claims(
    commands: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="Papers to check. [default: all]", autocompletion=complete_command),
    ] = None,
    size: Annotated[RunSize, typer.Option("--size", help="A minute on built-ins, or assets too.")] = RunSize.quick,
    only_list: Annotated[bool, typer.Option("--list", help="Say what is claimed, and measure nothing.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 unless every claim holds.")] = False,
    output: opt.Output = None,
    force: opt.Force = False,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Measure what each paper claims, beside a control that must fail; with -o, write COMMAND.json into a directory.

    Claims that were finished before a run was cut short are not measured again, as long as the code is the same.
    """
    import platform
    from datetime import date
    from importlib import import_module
    from importlib.metadata import version

    from icml25cli.core.claims import all_hold, check_each, figures, words
    from icml25cli.core.errors import CheckFailed, UsageError
    from icml25cli.core.files import check_file, write_json

    chosen = commands or RUNNING
    targets = {name: output / f"{name}.json" for name in chosen} if output else {}
    for name in chosen:
        if name not in RUNNING:
            raise UsageError(f"no claims for '{name}'", hint=f"papers that run today: {', '.join(RUNNING)}")
    for target in targets.values():
        check_file(target, force=force)
    report = Report("claims", params={"size": size.value, "commands": chosen})
    report.tables["claims"] = []
    made = {name: import_module(f"icml25cli.papers.{name.replace('-', '_')}.claims").CLAIMS for name in chosen}
    if only_list and (output or strict):
        raise UsageError("--list measures nothing", hint="leave out --output and --strict")
    if only_list:
        report.rows = [
            {"command": name, "claim": claim.name, "sizes": [*claim.sizes], **words(claim)}
            for name in chosen
            for claim in made[name]
        ]
        report.metrics = {"claims": len(report.rows)}
        show(report, as_json=as_json)
        return
    outcomes = []
    for name in chosen:
        claims = [claim for claim in made[name] if size.value in claim.sizes]
        done = check_each(claims, size.value, name, resume=resume, fresh=fresh)
        if name in targets:
            facts = {"version": version("icml25"), "date": date.today().isoformat(), "machine": platform.platform()}
            rows = [{**words(outcome.claim), **figures(outcome), "reason": outcome.reason} for outcome in done]
            write_json(targets[name], {**facts, "size": size.value, "claims": rows}, force=force)
            report.artefacts.append(str(targets[name]))
        report.rows += [{"command": name, **figures(outcome)} for outcome in done]
        report.tables["claims"] += [words(claim) for claim in claims]
        report.notes += [f"{outcome.claim.name}: {outcome.reason}" for outcome in done if outcome.reason]
        outcomes += done
    report.metrics = {
        "claims": len(outcomes),
        "hold": sum(outcome.verdict == "holds" for outcome in outcomes),
        "controls_failing": sum(outcome.control_fails for outcome in outcomes),
    }
    show(report, as_json=as_json)
    if strict and not all_hold(outcomes):
        raise CheckFailed("not every claim holds", hint="the table shows which, and what was measured")

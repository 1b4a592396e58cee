"""The verb `bench` of `icml25 formulate`: accuracy on a file of problems with labels."""

import re
from pathlib import Path
from typing import Annotated

import typer

from icml25cli.core import options as opt
from icml25cli.core.report import Report, show


def bench(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="JSON lines: en_question, question or document, with en_answer, Answer or NL4OPT's declarations.",
        ),
    ],
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Rows from the top. [default: all]")] = None,
    shard: Annotated[str, typer.Option("--shard", metavar="I/N", help="Every N-th row, from the I-th.")] = "1/1",
    candidates: Annotated[int, typer.Option("--candidates", "-H", min=1, max=200, help="Drafts of a component.")] = 10,
    keep: Annotated[int, typer.Option("--keep", "-I", min=1, max=20, help="Drafts kept, the best ranked.")] = 3,
    rollouts: Annotated[int, typer.Option("--rollouts", "-T", min=1, max=500, help="Whole models to judge.")] = 16,
    jobs: opt.Jobs = None,
    engine: opt.Engine = opt.EngineOption.local,
    seed: opt.Seed = 0,
    output: opt.Output = None,
    force: opt.Force = False,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Solve every problem of DATA with the grammar, and count how often the labelled objective is met.

    Whoever abstains is wrong. Within 5 %, as papers measure, and within a millionth, which tells whole variables from
    others. With -o, records.jsonl has a line a problem, in the order of rows: those of all shards make the whole.
    """
    import json

    from icml25cli.core.errors import UsageError
    from icml25cli.core.files import write_json
    from icml25cli.core.runs import Run, check_output, commit_output, fingerprint, run_directory
    from icml25cli.papers.formulate.bench import by_kind, read_problems, scores, solve_problems
    from icml25cli.papers.formulate.search import Settings

    part = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
    if part is None or not 1 <= int(part[1]) <= int(part[2]):
        raise UsageError(f"--shard {shard} is no part of a whole", hint="--shard 2/8 is the second of eight")
    if output:
        check_output(output, force=force)
    settings = Settings(candidates=candidates, keep=keep, rollouts=rollouts, seed=seed)
    problems = read_problems(data, limit, (int(part[1]), int(part[2])))
    inputs = {
        "data": data,
        "search": {"candidates": candidates, "keep": keep, "rollouts": rollouts, "seed": seed},
        "rows": {"limit": limit, "shard": shard},
    }
    report = Report("formulate", params={"verb": "bench", "data": str(data), "backend": "grammar"}, seed=seed)
    report.params |= {"rollouts": rollouts, "shard": shard, "engine": engine.value}
    # Not under -o, which appears whole: a run that was cut short is continued with or without it.
    where = run_directory("formulate-bench", fingerprint(inputs), None)
    with Run.open(where, inputs, resume=resume, fresh=fresh) as run:
        records = solve_problems(problems, settings, run, jobs=jobs, engine=engine.value)
    found = scores(records)
    shown = ("pass_at_1", "pass_at_3", "pass_at_16", "pass_at_all", "best_of_3", "best_of_16", "answered_right")
    report.rows = [
        {"measure": name, "within_5_percent": found[f"{name}_5pct"], "within_1e_6": found[f"{name}_1e6"]}
        for name in shown
    ]
    report.metrics = {**found}
    report.tables = {
        "kinds": [*by_kind(records)],
        "without_answer": [
            {key: record[key] for key in ("row", "name", "status", "reason")}
            for record in records
            if not record["readings"]
        ],
    }
    report.answer = {"status": "done"}
    report.notes = [
        "Shares of the labelled problems; pass_at_k: any of the first k readings; best_of_k: the one of them that the "
        "search prefers; answered_right: of the answers whose confidence is at least 0.2."
    ]
    if output:
        with commit_output(output, force=force) as folder:
            lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            (folder / "records.jsonl").write_text(lines, encoding="utf-8")
            report.artefacts = [str(output)]
            report.finish()
            write_json(folder / "report.json", report.document())
    show(report, as_json=as_json)


VERBS = (bench,)

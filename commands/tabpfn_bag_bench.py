"""The verb `bench` of `icml25 tabpfn-bag`: methods compared over many tables."""

from typing import Annotated

import typer

from icml25cli.commands import tabpfn_bag_options as own
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show


def bench(
    ctx: typer.Context,
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE|SUITE", help="As run takes them, or builtin, development, held-out."),
    ] = None,
    target: own.Target = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="NAMES",
            help="Compared, with commas between or repeated. [default: beta, its parts and controls, baselines]",
        ),
    ] = None,
    splits: Annotated[int, typer.Option("--splits", min=1, max=100, help="Splits of each table.")] = 3,
    test: Annotated[float, typer.Option("--test", min=0.01, max=0.9, help="Share of rows held out.")] = 0.3,
    most_rows: Annotated[
        int, typer.Option("--most-rows", min=20, help="Of a table, to fit on at most; as many to judge on.")
    ] = 3000,
    pfn: own.Pfn = "nano",
    k: own.K = 8,
    arch: own.ArchName = own.Arch.mini,
    plr: own.Plr = True,
    dropout: own.Dropout = 0.15,
    context_size: own.ContextSize = 1000,
    batch: own.Batch = 256,
    epochs: own.Epochs = 200,
    patience: own.Patience = 10,
    lr: own.Rate = 2e-3,
    wd: own.Decay = 0.02,
    overlap: own.Overlap = False,
    aggregate: own.Aggregate = own.AggregateName.logit,
    many_class: own.ManyClass = own.ManyClassName.alphabet,
    fallback: own.Fallback = True,
    time_limit: own.TimeLimit = 120.0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes side by side.")] = 1,
    output: opt.Output = None,
    force: opt.Force = False,
    plot: opt.Plot = None,
    seed: opt.Seed = 0,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Fit every method on the same rows of each table, and rank them; what is finished is kept.

    With -o, records.jsonl has a line a fit and report.json the answer; --plot draws mean ranks by log-loss.
    """
    from dataclasses import asdict
    from importlib.util import find_spec

    from icml25cli.core.files import write_json
    from icml25cli.core.plots import check_figure, save_figure
    from icml25cli.core.progress import note, warnings_so_far
    from icml25cli.core.runs import Run, check_output, commit_output, fingerprint, run_directory
    from icml25cli.papers.tabpfn_bag.readers import read_tables
    from icml25cli.papers.tabpfn_bag.suites import SUITES

    if output:
        check_output(output, force=force)
    if plot:
        check_figure(plot, force=force)
    report = Report("tabpfn-bag", seed=seed, device="cpu")
    names = [name for source in tables or ("builtin",) for name in SUITES.get(source, (source,))]
    read = read_tables(names, target)

    # Only now what takes seconds to import.
    from icml25cli.papers.tabpfn_bag import bench as work
    from icml25cli.papers.tabpfn_bag import figures
    from icml25cli.papers.tabpfn_bag.job import known_methods, table_print, what_is_fitted
    from icml25cli.papers.tabpfn_bag.nets import load_net

    installed = ("xgb",) if find_spec("xgboost") else ()
    methods = known_methods(opt.listed(method, (*work.METHODS, *installed)))
    net, options = load_net(pfn), own.fit_options(ctx.params, processor_time=True)
    protocol = work.Protocol(splits, test, most_rows, most_rows)
    inputs = {
        "tables": {name: table_print(*read[name]) for name in read},
        **what_is_fitted(net, options),
        "protocol": {key: value for key, value in asdict(protocol).items() if key != "splits"},  # more may follow
    }
    # Not under -o, which appears whole: a run that was cut short is continued with or without it.
    where = run_directory("tabpfn-bag-bench", fingerprint(inputs), None)
    with Run.open(where, inputs, resume=resume, fresh=fresh) as run:
        records = work.carry_out(read, net, methods, options, run, protocol, jobs=jobs)
    asked = {"splits": splits, "test": test, "most_rows": most_rows, "k": k, "time_limit": time_limit}
    report.params = {"verb": "bench", "tables": len(read), **asked}
    report.rows = [*work.summary(records)]
    report.tables = {name: [*rows] for name, rows in work.by_table(records).items()}
    _, ranks = work.ranked(records, "log_loss")
    report.metrics = {"critical_difference": ranks.critical_difference, "friedman_p": ranks.p}
    report.metrics = {key: value for key, value in report.metrics.items() if value == value}
    report.metrics |= {key: value for key, value in report.rows[0].items() if isinstance(value, float)}
    first = min(row["rank_log_loss"] for row in report.rows)
    best = [row["method"] for row in report.rows if row["rank_log_loss"] == first]
    report.answer = {"status": "done", "best_log_loss": ", ".join(best)}
    report.notes = work.fallback_notes(report.rows)
    if len(read) > 1:
        report.notes += [
            f"Mean ranks by log-loss that differ by {ranks.critical_difference:.2f} or more differ at 5 % (Nemenyi)."
        ]
    report.warnings = list(warnings_so_far())
    if plot:
        save_figure(figures.critical_difference(*work.ranked(records, "log_loss"), "log-loss"), plot, force=force)
        report.artefacts.append(str(plot))
    if output:
        with commit_output(output, force=force) as folder:
            (folder / "records.jsonl").write_text(work.as_lines(records), encoding="utf-8")
            report.artefacts.append(str(output))
            report.finish()
            write_json(folder / "report.json", report.document())
    else:
        note("what was fitted is kept: repeat the command with -o DIR to write it")
    show(report, as_json=as_json)


VERBS = (bench,)

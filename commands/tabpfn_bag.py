"""`icml25 tabpfn-bag`: classes of a table's rows by a bagged and tuned prior-fitted network."""

import time
from pathlib import Path
from typing import Annotated

import typer

from icml25cli.commands import tabpfn_bag_bench, tabpfn_bag_more
from icml25cli.commands import tabpfn_bag_options as own
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show
from icml25cli.core.verbs import paper_group

app = paper_group("tabpfn-bag")


@app.command()
def run(
    ctx: typer.Context,
    table: own.Table = "builtin:wine",
    target: own.Target = None,
    method: own.Method = own.MethodName.beta,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="NAMES",
            help="Methods beside it, with commas between or repeated. [default: frozen, tabm, hgb, rf, logreg]",
        ),
    ] = None,
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
    time_limit: own.TimeLimit = 300.0,
    plot: opt.Plot = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Hold out a fifth of TABLE, fit the method and its baselines on the rest, judge; --plot draws calibration."""
    from icml25cli.core.plots import check_figure, save_figure
    from icml25cli.papers.tabpfn_bag.readers import read_classes

    if plot:
        check_figure(plot, force=force)
    report = Report("tabpfn-bag", seed=seed, device="cpu")
    frame, classes = read_classes(table, target)

    # Only now what takes seconds to import: a table that cannot be read is answered at once.
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.tabpfn_bag import figures
    from icml25cli.papers.tabpfn_bag.job import MAIN, compare
    from icml25cli.papers.tabpfn_bag.nets import load_net

    net = load_net(pfn)
    set_threads(threads)
    beside = opt.listed(baseline, ("frozen", "tabm", "hgb", "rf", "logreg"))
    methods = list(dict.fromkeys([method.value, *beside]))
    rows, found, labels = compare(frame, classes, net, methods, own.fit_options(ctx.params), resume=resume, fresh=fresh)
    if plot:
        save_figure(figures.calibration(found, labels), plot, force=force)
        report.artefacts.append(str(plot))
    report.params = {"table": table, "target": classes.name, "rows": len(frame), "method": method.value, "k": k}
    report.rows = [{key: row[key] for key in MAIN} for row in rows]
    report.details = {"fits": [*rows]}
    report.notes = [
        f"{row['method']} is the network as it is here, as frozen: training was no better, or there were too few rows."
        for row in rows
        if row["used"] != row["method"]
    ]
    report.metrics = {key: v for key, v in report.rows[0].items() if isinstance(v, float)}
    report.answer = {"status": "done"}
    report.warnings = list(warnings_so_far())
    show(report, as_json=as_json)


@app.command()
def fit(
    ctx: typer.Context,
    table: own.Table,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="The model's file.")],
    target: own.Target = None,
    method: own.Method = own.MethodName.beta,
    valid: Annotated[
        str, typer.Option("--valid", metavar="SHARE|TABLE", help="Rows that decide when to stop: a share, or others.")
    ] = "0.2",
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
    time_limit: own.TimeLimit = 300.0,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Fit TABLE and write the model, one file without code in it; training that was cut short goes on."""
    from icml25cli.core.errors import InputError
    from icml25cli.core.files import check_file
    from icml25cli.papers.tabpfn_bag.readers import read_classes, read_table, separated

    report = Report("tabpfn-bag", seed=seed, device="cpu")
    began = time.monotonic() - time_limit / 100  # to start the program and to end it take time, too
    check_file(output, force=force)
    frame, classes = read_classes(table, target)
    named = str(classes.name)
    share, other = own.share(valid), None
    if share is None:
        check = read_table(valid)
        if named not in check.columns:
            raise InputError(f"{valid} has no column '{named}'", hint="the table of --valid needs the target, too")
        other = separated(check, named)

    # Only now what takes seconds to import.
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.tabpfn_bag.job import fit_resumably
    from icml25cli.papers.tabpfn_bag.nets import load_net
    from icml25cli.papers.tabpfn_bag.saved import save_model

    net = load_net(pfn)
    set_threads(threads)
    options = own.fit_options(ctx.params, valid=share or 0.2)
    model = fit_resumably(frame, classes, net, options, valid=other, resume=resume, fresh=fresh, began=began)
    save_model(model, output, force=force)
    facts = {key: value for key, value in model.facts.items() if key != "history"}
    report.params = {"verb": "fit", "table": table, "target": named, "rows": len(frame), "method": method.value, "k": k}
    report.metrics = {key: v for key, v in facts.items() if isinstance(v, int | float)}
    report.answer = {"status": "done", "used": facts["used"], "classes": len(model.classes)}
    report.artefacts = [str(output)]
    report.warnings = list(warnings_so_far())
    show(report, as_json=as_json)


@app.command()
def predict(
    model: own.ModelFile,
    table: own.Table,
    proba: Annotated[bool, typer.Option("--proba", help="A column of probabilities for each class.")] = False,
    form: Annotated[str, typer.Option("--format", help="csv or jsonl.")] = "csv",
    output: opt.Output = None,
    force: opt.Force = False,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Predict the class of each row of TABLE, in order."""
    from icml25cli.core.errors import UsageError
    from icml25cli.core.files import check_file
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import Progress, warnings_so_far
    from icml25cli.core.records import show_records
    from icml25cli.papers.tabpfn_bag.readers import read_table
    from icml25cli.papers.tabpfn_bag.saved import load_model

    report = Report("tabpfn-bag", device="cpu")
    if form not in ("csv", "jsonl"):
        raise UsageError(f"--format is csv or jsonl, not {form}", hint="leave it out for csv")
    if output is not None:
        check_file(output, force=force)
    fitted, frame = load_model(model), read_table(table)
    set_threads(threads)
    fitted.schema.note_unknown_values(frame)
    with Progress("rows", len(frame)) as progress:
        p = fitted.probabilities(frame, progress.advance)
    names = [f"p_{name}" for name in fitted.classes]
    records = []
    for best, row in zip(p.argmax(1).tolist(), p.tolist(), strict=True):
        shares = dict(zip(names, row, strict=True)) if proba else {}
        records.append({"class": fitted.classes[best], "probability": row[best], **shares})
    report.params = {"verb": "predict", "model": str(model), "table": table, "rows": len(frame)}
    report.warnings = list(warnings_so_far())
    show_records(report, records, form=form, output=output, force=force, as_json=as_json)


@app.command("eval")
def evaluate_model(
    model: own.ModelFile,
    table: own.Table,
    target: Annotated[
        str | None, typer.Option("--target", metavar="COLUMN", help="The class. [default: as MODEL was fitted]")
    ] = None,
    min_auc: Annotated[float, typer.Option("--min-auc", min=0.0, max=1.0, help="Exit 1 below this.")] = 0.0,
    plot: opt.Plot = None,
    force: opt.Force = False,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Judge MODEL on the rows of TABLE, whose classes are known; --plot draws its calibration."""
    from icml25cli.core.errors import CheckFailed
    from icml25cli.core.plots import check_figure, save_figure
    from icml25cli.papers.tabpfn_bag.readers import read_table, separated, target_of

    if plot:
        check_figure(plot, force=force)
    report = Report("tabpfn-bag", device="cpu")
    frame = read_table(table)
    if target is not None:
        target_of(frame, target)

    # Only now what takes seconds to import.
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warn, warnings_so_far
    from icml25cli.papers.tabpfn_bag.figures import calibration
    from icml25cli.papers.tabpfn_bag.job import on_known_classes
    from icml25cli.papers.tabpfn_bag.metrics import evaluate
    from icml25cli.papers.tabpfn_bag.saved import load_model

    fitted = load_model(model)
    named = target_of(frame, target or fitted.facts.get("target"))  # which models of older versions do not know
    set_threads(threads)
    features, classes = separated(frame, named)
    fitted.schema.note_unknown_values(features)
    p, labels = on_known_classes(fitted, features, classes)
    if len(labels) < len(frame):
        warn(f"{len(frame) - len(labels):,} rows have no class that the model knows and are left out")
    figures = evaluate(p, labels)
    report.params = {"verb": "eval", "model": str(model), "table": table, "target": named, "rows": len(labels)}
    report.rows = [{"method": fitted.options.method, **figures}]
    report.metrics = {**figures}
    if (used := fitted.facts["used"]) != fitted.options.method:
        report.notes = [f"The model predicts by the network as it is ({used}): see its fit."]
    report.warnings = list(warnings_so_far())
    if plot:
        save_figure(calibration({fitted.options.method: p}, labels), plot, force=force)
        report.artefacts.append(str(plot))
    below = min_auc > 0 and not figures["auc"] >= min_auc  # an AUC of rows of one class is no number
    report.answer = {"status": "below" if below else "done"}
    show(report, as_json=as_json)
    if below:
        raise CheckFailed(
            f"the AUC is {figures['auc']:.4f}, below --min-auc {min_auc:g}", hint="fit on more rows, or for longer"
        )


for verb in (*tabpfn_bag_bench.VERBS, *tabpfn_bag_more.VERBS):
    app.command(verb.__name__.replace("_", "-"))(verb)

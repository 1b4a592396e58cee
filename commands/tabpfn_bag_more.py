"""Verbs of `icml25 tabpfn-bag` beside fitting: bias-var, inspect, pretrain, ecoc."""

from pathlib import Path
from typing import Annotated

import typer

from icml25cli.commands import tabpfn_bag_options as own
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show


def bias_var(
    ctx: typer.Context,
    table: own.Table,
    target: own.Target = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", metavar="NAMES", help="With commas between or repeated. [default: beta, frozen, bag, encoder]"
        ),
    ] = None,
    size: Annotated[
        list[int] | None, typer.Option("--size", min=20, help="Rows of a training set. [default: 256, 512, ...]")
    ] = None,
    sets: Annotated[int, typer.Option("--sets", min=2, max=200, help="Training sets of each size.")] = 5,
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
    plot: opt.Plot = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Split losses on TABLE into bias and variance over training sets, which are disjoint where there are rows enough.

    Log-loss and Brier score are bias plus variance; of errors, bias is whether the commonest guess is wrong, variance
    how often a guess is another one. --plot draws log-loss.
    """
    from dataclasses import asdict

    from icml25cli.core.plots import check_figure, save_figure
    from icml25cli.papers.tabpfn_bag.labels import labelled
    from icml25cli.papers.tabpfn_bag.readers import read_classes

    if plot:
        check_figure(plot, force=force)
    report = Report("tabpfn-bag", seed=seed, device="cpu")
    features, classes = read_classes(table, target)
    frame, _, labels = labelled(features, classes)

    # Only now what takes seconds to import.
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.core.runs import Run, fingerprint, run_directory
    from icml25cli.papers.tabpfn_bag import figures
    from icml25cli.papers.tabpfn_bag.job import known_methods, table_print, what_is_fitted
    from icml25cli.papers.tabpfn_bag.nets import load_net
    from icml25cli.papers.tabpfn_bag.spread import Design, spread

    methods = known_methods(opt.listed(method, ("beta", "frozen", "bag", "encoder")))
    net, options = load_net(pfn), own.fit_options(ctx.params)
    set_threads(threads)
    design = Design(tuple(size or ()), sets)
    # Not the sizes: sets of other sizes are of the same run.
    inputs = {"table": table_print(frame, labels), **what_is_fitted(net, options), "sets": sets}
    where = run_directory("tabpfn-bag-bias-var", fingerprint(inputs), None)
    with Run.open(where, inputs, resume=resume, fresh=fresh) as run:
        report.rows = [*spread(frame, labels, net, methods, options, run, design)]
    report.params = {"verb": "bias-var", "table": table, "target": classes.name, **asdict(design), "k": k}
    report.answer = {"status": "done"}
    report.metrics = {key: value for key, value in report.rows[0].items() if isinstance(value, float)}
    report.warnings = list(warnings_so_far())
    if plot:
        save_figure(figures.bias_and_variance(report.rows), plot, force=force)
        report.artefacts.append(str(plot))
    show(report, as_json=as_json)


def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL|PFN", help="A file that fit wrote, or what --pfn takes.")],
    as_json: opt.Json = False,
) -> None:
    """Show what is in a model or a network."""
    from icml25cli.papers.tabpfn_bag.inspection import describe

    report = Report("tabpfn-bag", params={"verb": "inspect", "model": model})
    facts, columns, history = describe(model)
    report.rows = [*columns]
    report.details = {"history": [*history]} if history else {}
    report.metrics = {key: value for key, value in facts.items() if isinstance(value, int | float)}
    report.answer = {"status": "whole", **facts}
    show(report, as_json=as_json)


def pretrain(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="For checkpoints and the network.")],
    steps: Annotated[int, typer.Option("--steps", min=2, help="At the peak rate.")] = 5000,
    fall: Annotated[int, typer.Option("--fall", min=1, help="Steps after them, while the rate falls.")] = 3000,
    rows: Annotated[
        int | None, typer.Option("--rows", min=64, help="Of a table at most. [default: 256, later 512 and 1,024]")
    ] = None,
    columns: Annotated[int, typer.Option("--columns", min=2, max=512, help="That the network takes.")] = 64,
    classes: Annotated[int, typer.Option("--classes", min=2, max=64, help="That the network tells apart.")] = 10,
    width: Annotated[int, typer.Option("--width", min=8, max=4096, help="Of the network; four heads share it.")] = 160,
    layers: Annotated[int, typer.Option("--layers", min=1, max=64, help="Of the network.")] = 6,
    lr: Annotated[float, typer.Option("--lr", min=1e-8, max=1.0, help="Peak learning rate.")] = 2e-3,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Train a network on synthetic tables, as the built-in one was; the same command continues what was cut short.

    FOLDER/network is then what --pfn takes. At the defaults it takes more than an hour of one core.
    """
    from dataclasses import asdict

    from icml25cli.core.errors import UsageError
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import Progress, warnings_so_far
    from icml25cli.papers.tabpfn_bag.network import PfnConfig
    from icml25cli.papers.tabpfn_bag.pretraining import Plan, whole_training

    if width % 8:
        raise UsageError(f"--width {width} is no multiple of 8", hint="four heads share it evenly")
    report = Report("tabpfn-bag", seed=seed, device="cpu")
    set_threads(threads)
    config = PfnConfig(columns=columns, classes=classes, width=width, layers=layers, hidden=2 * width)
    plan = Plan.of(config, steps + fall, rows=rows, rate=lr, seed=seed)
    with Progress("steps", steps + fall) as progress:
        log = whole_training(output, plan, steps, fall, progress.advance)
    report.params = {"verb": "pretrain", "steps": steps, "fall": fall, **asdict(config), "rate": lr}
    report.rows = [line for line in log["steps"] if "validation" in line]
    report.metrics = {key: float(log[key]) for key in ("parameters", "rows", "tables", "processor_seconds")}
    report.answer = {"status": "done"}
    report.artefacts = [str(output / "network")]
    report.warnings = list(warnings_so_far())
    show(report, as_json=as_json)


def ecoc(
    classes: Annotated[int, typer.Option("--classes", min=3, max=2000, help="Rows of the code.")],
    length: Annotated[int | None, typer.Option("--length", min=2, max=512, help="Symbols. [default: 4 log2 C]")] = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Show a code of CLASSES and how many wrong symbols it forgives."""
    from icml25cli.papers.tabpfn_bag.codes import binary_code, binary_length

    report = Report("tabpfn-bag", seed=seed)
    code = binary_code(classes, length or binary_length(classes, 1), seed, least=1 if length else 3)
    report.params = {"verb": "ecoc", "classes": classes, "length": code.matrix.shape[1]}
    report.rows = [{"class": i, "word": "".join(map(str, row))} for i, row in enumerate(code.matrix.tolist())]
    report.metrics = {"distance": code.distance, "forgiven": (code.distance - 1) // 2}
    report.answer = {"distance": code.distance, "forgiven": (code.distance - 1) // 2}
    show(report, as_json=as_json)


VERBS = (bias_var, inspect, pretrain, ecoc)

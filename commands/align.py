"""`icml25 align`: how aligned two representations are, above chance and how surely; its other verbs are apart."""

from pathlib import Path
from typing import Annotated

import typer

from icml25cli.commands import align_more, align_options, align_simulate
from icml25cli.commands.align_options import IndexName, NormalizeName
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show
from icml25cli.core.verbs import paper_group


def _known_inputs() -> list[str]:
    return ["digits-left", "digits-right"]


app = paper_group("align", known_inputs=_known_inputs)


@app.command()
def run(
    first: align_options.First = "digits-left",
    second: align_options.Second = "digits-right",
    metric: align_options.AllMetrics = None,
    k: align_options.K = 10,
    permutations: align_options.Permutations = 200,
    interval: Annotated[bool, typer.Option("--ci/--no-ci", help="Intervals, by leaving out parts of the rows.")] = True,
    layers: Annotated[
        bool, typer.Option("--layers", help="Compare every layer of A with every one of B, of (items, layers, width).")
    ] = False,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            metavar="FILE.csv",
            help="A label a row of A, or by --ids where it has that column: is what A and B know of it redundant?",
        ),
    ] = None,
    groups: Annotated[
        Path | None,
        typer.Option(
            "--groups",
            metavar="FILE.csv",
            help="A group a row of A, as --labels: what is left of alignment inside them?",
        ),
    ] = None,
    normalize: align_options.Normalize = NormalizeName.l2,
    clip_quantile: align_options.Clip = 1.0,
    sigma: Annotated[
        str, typer.Option("--sigma", metavar="median|WIDTH", help="Width of cka_rbf's Gaussian kernel.")
    ] = "1",
    rank: Annotated[int, typer.Option("--rank", min=1, help="Singular vectors of svcca.")] = 10,
    ids: align_options.Ids = None,
    match_n: align_options.MatchN = None,
    queries: align_options.Queries = None,
    index: align_options.Index = IndexName.exact,
    drop_bad: align_options.DropBad = False,
    fail_below: Annotated[
        list[str] | None, typer.Option("--fail-below", metavar="METRIC=VALUE", help="Exit 1 below it; repeatable.")
    ] = None,
    plot: opt.Plot = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Compare the same items under two encoders by many metrics, each beside chance and with its interval."""
    from icml25cli.core.plots import check_figure

    report = Report("align", seed=seed)
    bounds = align_options.bounds(fail_below or [])
    width = align_options.sigma_of(sigma)
    if plot:
        check_figure(plot, force=force)

    from icml25cli.core.errors import CheckFailed, UsageError
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.plots import save_figure
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.align import figures, job

    wanted = align_options.joined(metric, "all")
    if other := [name for name in bounds if name not in job.asked_metrics(wanted)]:
        raise UsageError(f"--fail-below {other[0]} needs that metric", hint=f"add it: --metric {wanted},{other[0]}")
    set_threads(threads)
    rows = align_options.rows_of(normalize, clip_quantile, ids, match_n, drop_bad, seed)
    settings = align_options.settings_of(
        k=k,
        permutations=permutations,
        intervals=interval,
        seed=seed,
        queries=queries,
        index=index.value,
        rank=rank,
        sigma=width,
    )
    report.params = {"a": first, "b": second}
    asked = {"k": k, "null": permutations, "normalize": normalize.value, "clip_quantile": clip_quantile}
    if layers:
        count, found = job.compare_layers(first, second, None if wanted == "all" else wanted, rows, settings)
        report.params |= {"rows": count, **asked}
        report.rows = [row for swept in found for row in swept.rows()]
        report.details = {f"layers_{swept.metric}": [*job.layers.as_table(swept)] for swept in found}
        report.notes = [align_options.LAYERS]
        figure = figures.of_layers(found[0])
    else:
        with job.compare(
            first, second, wanted, rows, settings, labels=labels, groups=groups, resume=resume, fresh=fresh
        ) as compared:
            report.params |= {"rows": compared.pair.count, **asked}
            report.rows = [m.row() for m in compared.measured]
            report.tables = {"within_groups": [*compared.within()], "probes": [*compared.probes()]}
            report.metrics = {**compared.headline()}
            report.notes = [align_options.EXPLAINED, *compared.notes()]
            if compared.labelled:
                report.answer["verdict"] = compared.labelled.verdict
        figure = figures.beside_chance(report.rows)
    if plot:
        save_figure(figure, plot, force=force)
        report.artefacts.append(str(plot))
    low = align_options.below(report.rows, bounds)
    report.answer = {"status": "below" if low else "compared", **report.answer}
    report.warnings = [*warnings_so_far()]
    show(report, as_json=as_json)
    if low:
        raise CheckFailed(low, hint="the table shows values and chance")


for verb in (*align_more.VERBS, *align_simulate.VERBS):
    app.command(verb.__name__.rstrip("_"))(verb)

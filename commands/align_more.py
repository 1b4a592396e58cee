"""Verbs of `icml25 align` on items, on several files and on a table of models."""

from pathlib import Path
from typing import Annotated

import typer

from icml25cli.commands import align_options
from icml25cli.commands.align_options import Form, IndexName, NormalizeName
from icml25cli.core import options as opt
from icml25cli.core.records import show_records
from icml25cli.core.report import Report, show


def items(
    first: align_options.First = "digits-left",
    second: align_options.Second = "digits-right",
    k: align_options.K = 10,
    normalize: align_options.Normalize = NormalizeName.l2,
    clip_quantile: align_options.Clip = 1.0,
    ids: align_options.Ids = None,
    match_n: align_options.MatchN = None,
    queries: align_options.Queries = None,
    index: align_options.Index = IndexName.exact,
    drop_bad: align_options.DropBad = False,
    form: align_options.Format = Form.csv,
    output: align_options.RecordsOutput = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Say of every item how many neighbours A and B share, the worst first, and which neighbours it has."""
    from icml25cli.core.files import check_file

    report = Report("align", seed=seed)
    if output:
        check_file(output, force=force)

    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.align.job import items as scored

    set_threads(threads)
    rows = align_options.rows_of(normalize, clip_quantile, ids, match_n, drop_bad, seed)
    settings = align_options.settings_of(k=k, seed=seed, queries=queries, index=index.value)
    records, means = scored(first, second, rows, settings)
    report.params = {"verb": "items", "a": first, "b": second, "k": k, "normalize": normalize.value}
    report.metrics = {"items": len(records), **means}
    report.answer = {"status": "scored"}
    report.warnings = [*warnings_so_far()]
    show_records(report, records, form=form.value, output=output, force=force, as_json=as_json)


def matrix(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help=f"The same items: {align_options.FORMATS}.")],
    metric: align_options.Metrics = None,
    k: align_options.K = 10,
    permutations: align_options.Permutations = 0,
    normalize: align_options.Normalize = NormalizeName.l2,
    clip_quantile: align_options.Clip = 1.0,
    ids: align_options.Ids = None,
    match_n: align_options.MatchN = None,
    queries: align_options.Queries = None,
    index: align_options.Index = IndexName.exact,
    drop_bad: align_options.DropBad = False,
    plot: opt.Plot = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Compare every pair of several representations; neighbours are sought once a file."""
    from icml25cli.core.plots import check_figure

    report = Report("align", seed=seed)
    if plot:
        check_figure(plot, force=force)

    from icml25cli.core.parallel import set_threads
    from icml25cli.core.plots import save_figure
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.align import figures
    from icml25cli.papers.align.job import all_pairs

    set_threads(threads)
    rows = align_options.rows_of(normalize, clip_quantile, ids, match_n, drop_bad, seed)
    settings = align_options.settings_of(
        k=k, permutations=permutations, intervals=False, seed=seed, queries=queries, index=index.value
    )
    found = list(
        all_pairs(files, align_options.joined(metric, "ucka,mknn"), rows, settings, resume=resume, fresh=fresh)
    )
    report.params = {"verb": "matrix", "files": len(files), "k": k, "normalize": normalize.value}
    report.rows = [{"a": files[i], "b": files[j], **m.row()} for i, j, measured in found for m in measured]
    report.answer = {"status": "compared"}
    if plot:
        save_figure(figures.of_pairs(files, found), plot, force=force)
        report.artefacts.append(str(plot))
    report.warnings = [*warnings_so_far()]
    show(report, as_json=as_json)


def sweep(
    table: Annotated[
        Path, typer.Argument(metavar="MODELS.csv", help="A model a line: path,performance and, if they differ, other.")
    ],
    against: Annotated[
        str | None, typer.Option("--with", metavar="FILE", help="What every model is compared with.")
    ] = None,
    metric: align_options.Metrics = None,
    k: align_options.K = 10,
    normalize: align_options.Normalize = NormalizeName.l2,
    clip_quantile: align_options.Clip = 1.0,
    ids: align_options.Ids = None,
    match_n: align_options.MatchN = None,
    drop_bad: align_options.DropBad = False,
    plot: opt.Plot = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Say whether alignment goes with performance over models, with intervals over them."""
    from icml25cli.core.plots import check_figure

    report = Report("align", seed=seed)
    if plot:
        check_figure(plot, force=force)

    from icml25cli.core.parallel import set_threads
    from icml25cli.core.plots import save_figure
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.align import figures
    from icml25cli.papers.align.job import sweep_models
    from icml25cli.papers.align.sweep import as_row

    set_threads(threads)
    rows = align_options.rows_of(normalize, clip_quantile, ids, match_n, drop_bad, seed)
    settings = align_options.settings_of(k=k, permutations=0, intervals=False, seed=seed)
    swept = sweep_models(table, against, align_options.joined(metric, "ucka,mknn"), rows, settings)
    report.params = {"verb": "sweep", "table": str(table), "k": k, "normalize": normalize.value}
    report.rows = [as_row(found) for found in swept.correlations]
    report.tables = {"models": [*swept.as_table()]}
    report.answer = {"status": "compared"}
    report.notes = ["Intervals are bootstraps over models (BCa): with few of them they are wide, and a rank is coarse."]
    if plot:
        save_figure(figures.against_performance(swept.points()), plot, force=force)
        report.artefacts.append(str(plot))
    report.warnings = [*warnings_so_far()]
    show(report, as_json=as_json)


VERBS = (sweep, matrix, items)

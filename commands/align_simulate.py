"""Verbs of `icml25 align` that make pairs: bits whose redundancy is known, and real pictures with captions."""

from pathlib import Path
from typing import Annotated

import typer

from icml25cli.commands import align_options
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show


def simulate(
    unique: Annotated[
        str, typer.Option("--unique", metavar="RANGE", help="Bits of the label's eight that one view alone holds.")
    ] = "0:8",
    het: Annotated[
        str, typer.Option("--het", metavar="RANGE", help="Depths of the map the second view goes through; -1 for none.")
    ] = "1",
    depths: Annotated[
        str, typer.Option("--depths", metavar="RANGE", help="Layers of the second view's encoders.")
    ] = "1,3,6",
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=100, help="Encoders of each kind.")] = 2,
    count: Annotated[
        int, typer.Option("--rows", min=2000, help="Items; the paper's are 65,536. Split 70/15/15.")
    ] = 24_576,
    epochs: Annotated[
        int, typer.Option("--epochs", min=1, help="Of the second view's encoders; half of it of the first's.")
    ] = 60,
    lr: Annotated[float, typer.Option("--lr", min=1e-6, max=1.0, help="Of learning.")] = 0.01,
    data_only: Annotated[
        Path | None, typer.Option("--data-only", metavar="DIR", help="Write the views and labels there, train nothing.")
    ] = None,
    output: opt.Output = None,
    force: opt.Force = False,
    plot: opt.Plot = None,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Train encoders on bits with known unique information and see alignment fall as it grows (the paper's figure)."""
    from icml25cli.core.plots import check_figure
    from icml25cli.core.runs import check_output

    report = Report("align", seed=seed)
    levels = {
        "unique": align_options.whole_numbers(unique, "--unique"),
        "heterogeneity": align_options.whole_numbers(het, "--het"),
        "depths": align_options.whole_numbers(depths, "--depths"),
    }
    for directory in (output, data_only):
        if directory:
            check_output(directory, force=force)
    if plot:
        check_figure(plot, force=force)

    from icml25cli.core.files import write_json
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.plots import save_figure
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.core.runs import commit_output
    from icml25cli.papers.align import figures
    from icml25cli.papers.align.simulate import carry_out, checked, write_data

    set_threads(threads)
    design = checked(**levels, seeds=seeds, rows=count, epochs=epochs, rate=lr)
    report.params = {"verb": "simulate", **levels, "seeds": seeds, "rows": count, "epochs": epochs}
    if data_only:
        with commit_output(data_only, force=force) as directory:
            report.artefacts = [str(data_only / name) for name in write_data(design, directory, seed)]
        report.answer = {"status": "written"}
        show(report, as_json=as_json)
        return
    done = carry_out(design, seed, resume=resume, fresh=fresh)
    report.rows = [*done.rows]
    report.tables = {"trend": [*done.trends]}
    report.details = {"encoders": [*done.encoders()]}
    report.metrics = {**done.headline()}
    report.answer = {"status": "simulated"}
    report.notes = [align_options.SIMULATED]
    if plot:
        save_figure(figures.by_uniqueness(done.rows), plot, force=force)
        report.artefacts.append(str(plot))
    report.warnings = [*warnings_so_far()]
    if output:
        with commit_output(output, force=force) as directory:
            names = done.write(directory)
            report.artefacts += [str(output / name) for name in (*names, "report.json")]
            report.finish()
            write_json(directory / "report.json", report.document())
    show(report, as_json=as_json)


def demo(
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Show alignment and the verdict on two views of bits whose redundancy is known exactly."""
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.align.demo import demonstrate

    report = Report("align", params={"verb": "demo"}, seed=seed)
    set_threads(threads)
    settings = align_options.settings_of(permutations=0, intervals=False, seed=seed)
    report.rows = [*demonstrate(settings, seed)]
    report.answer = {"status": "compared"}
    report.notes = [align_options.DEMONSTRATED]
    report.warnings = [*warnings_so_far()]
    show(report, as_json=as_json)


def stamps(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Write the embeddings here.")],
    force: opt.Force = False,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Write embeddings of Tux Paint's stamps, of their captions and of the words in these, from fetched assets."""
    from icml25cli.core.runs import check_output, commit_output

    report = Report("align", params={"verb": "stamps"})
    check_output(output, force=force)

    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.align.stamps import FILES, write_stamps

    set_threads(threads)
    with commit_output(output, force=force) as directory:
        found = write_stamps(directory)
    categories = found.pop("categories")
    report.rows = [{"category": name, "items": number} for name, number in categories.items()]
    report.metrics = found
    report.answer = {"status": "written"}
    report.artefacts = [str(output / name) for name in FILES]
    report.warnings = [*warnings_so_far()]
    show(report, as_json=as_json)


VERBS = (simulate, demo, stamps)

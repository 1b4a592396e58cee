"""`icml25 sae`: train a sparse autoencoder on embeddings and judge it; verbs on trained ones are in other modules."""

from typing import Annotated

import typer

from icml25cli.commands import sae_codes, sae_concepts, sae_more, sae_options
from icml25cli.commands.sae_options import BaselineName, LossName, MethodName, WeightsName
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show
from icml25cli.core.verbs import paper_group


def _known_inputs() -> list[str]:
    from icml25cli.core.models import aliases

    return ["synthetic", *aliases()]


app = paper_group("sae", known_inputs=_known_inputs)


@app.command("train", help="Train as run does, alone: without a baseline, unless --baseline names one.")
@app.command()
def run(
    ctx: typer.Context,
    embeddings: sae_options.Source = "synthetic",
    method: Annotated[MethodName, typer.Option("--method", help="The main method.")] = MethodName.msae,
    weights: Annotated[
        WeightsName, typer.Option("--weights", help="Of msae's levels: all alike, or the smallest k the most.")
    ] = WeightsName.uw,
    baseline: Annotated[
        list[BaselineName] | None,
        typer.Option("--baseline", help="Methods beside it at the same budget, or none. [default of run: topk]"),
    ] = None,
    levels: Annotated[
        str, typer.Option("--levels", metavar="auto|LIST", help="Of msae: 64, doubled up to all latents, or a list.")
    ] = "auto",
    k: Annotated[
        int | None, typer.Option("--k", min=1, help="Entries a row keeps, of methods with one. [default: 64 or 32]")
    ] = None,
    l1: Annotated[float, typer.Option("--l1", min=0.0, help="Weight of the penalty of relu and jumprelu.")] = 0.003,
    expansion: Annotated[float, typer.Option("--expansion", min=0.01, max=1e5, help="Latents over columns.")] = 8,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the training rows.")] = 30,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Rows of a step; fewer make more steps.")] = 4096,
    lr: Annotated[
        str, typer.Option("--lr", metavar="auto|RATE", help="Of learning; auto is the authors', raised for few steps.")
    ] = "auto",
    loss: Annotated[
        LossName, typer.Option("--loss", help="Mean squared error, or over each row's own.")
    ] = LossName.mse,
    soft_cap: Annotated[float, typer.Option("--soft-cap", min=0.0, help="Cap codes smoothly here; 0 for none.")] = 0.0,
    center: Annotated[bool, typer.Option("--center/--no-center", help="Take off the mean of training rows.")] = True,
    geometric_median: Annotated[
        bool, typer.Option("--geometric-median", help="Start the decoder's bias there instead of at 0.")
    ] = False,
    val: Annotated[float, typer.Option("--val", min=0.0, max=0.9, help="Share of rows held out to judge on.")] = 0.05,
    ks: sae_options.Ks = None,
    drop_bad: sae_options.DropBad = False,
    output: opt.Output = None,
    force: opt.Force = False,
    plot: opt.Plot = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    allow_download: opt.AllowDownload = False,
    as_json: opt.Json = False,
) -> None:
    """Train on EMBEDDINGS beside a baseline, judge every k on held-out rows, and write the autoencoder with -o."""
    from icml25cli.core.models import pick_device
    from icml25cli.core.plots import check_figure
    from icml25cli.core.runs import check_output

    report = Report("sae", seed=seed)
    asked = None if levels == "auto" else sae_options.numbers(levels, "--levels")
    table = None if ks is None else sae_options.numbers(ks, "--ks")
    rate = sae_options.learning_rate(lr)
    if output:
        check_output(output, force=force)
    if plot:
        check_figure(plot, force=force)

    from icml25cli.core.parallel import set_threads
    from icml25cli.core.plots import save_figure
    from icml25cli.core.progress import note, warnings_so_far
    from icml25cli.core.runs import commit_output
    from icml25cli.papers.sae import figures
    from icml25cli.papers.sae.config import Budget, Config, checked_levels
    from icml25cli.papers.sae.job import carry_out, named
    from icml25cli.papers.sae.metrics import checked_ks, default_ks

    set_threads(threads)
    chosen = pick_device(device)
    report.device = str(chosen)
    x, _ = sae_options.opened(embeddings, drop_bad=drop_bad, allow_download=allow_download, seed=seed)
    n = max(2, round(expansion * x.columns))
    like = Config(
        "msae",
        x.columns,
        n,
        weights.value,
        checked_levels(asked, n) if asked else (),
        k or 0,
        l1,
        soft_cap,
        loss.value,
        center,
        geometric_median,
    )
    main = f"msae-{weights.value}" if method == MethodName.msae else method.value
    others = baseline or ([BaselineName.topk] if ctx.info_name == "run" else [])
    labels = dict.fromkeys([main, *(other.value for other in others if other != BaselineName.none)])
    configs = [named(label, like) for label in labels]
    table = checked_ks(table, n) if table else default_ks(configs)
    budget = Budget(epochs, batch, rate, seed)
    with carry_out(
        x,
        configs,
        budget,
        table,
        held_out=val,
        device=str(chosen),
        output=output,
        resume=resume,
        fresh=fresh,
    ) as job:
        report.params = {
            "embeddings": embeddings,
            "method": main,
            "latents": n,
            "width": x.columns,
            "training_rows": job.train_rows,
            "held_out_rows": job.held_out_rows,
            "epochs": epochs,
            "batch": batch,
            "loss": loss.value,
        }
        report.rows = [*job.rows()]
        report.tables = {"models": [*job.models()]}
        report.metrics = {**job.headline()}
        report.answer = {"status": "trained"}
        report.notes = [sae_options.EXPLAINED]
        if plot:
            save_figure(figures.pareto(job.rows()), plot, force=force)
            report.artefacts.append(str(plot))
        report.warnings = [*warnings_so_far()]
        if output:
            with commit_output(output, force=force) as directory:
                sae_options.write_report(report, directory, output, job.write(directory))
        else:
            note("what was trained is kept: repeat the command with -o DIR to write it")
    show(report, as_json=as_json)


for verb in (*sae_codes.VERBS, *sae_concepts.VERBS, *sae_more.VERBS):
    app.command(verb.__name__.rstrip("_"))(verb)

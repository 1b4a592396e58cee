"""Verbs of `icml25 prune` that set models side by side, or bring one back: compare, bench and tune."""

from pathlib import Path
from typing import Annotated

import typer

from icml25cli.commands import prune_options
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show

COMPARED = ("slimllm", "lorap-ffn", "flap", "wanda-sp", "magnitude-sp", "random", "depth")


def compare(
    model: opt.Model = "tiny",
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "--methods",
            metavar="NAMES",
            help="With commas between or repeated; the first is what others are against. [default: all, slimllm first]",
        ),
    ] = None,
    targets: Annotated[
        str, typer.Option("--target", metavar="SHARES", help="Shares of parameters to remove, with commas between.")
    ] = "0.2,0.5",
    of: prune_options.Of = prune_options.Share.decoder,
    gqa: prune_options.GqaMode = prune_options.Gqa.group,
    protect: prune_options.Protect = "",
    multiple_of: prune_options.MultipleOf = 1,
    calib: prune_options.Calib = "builtin",
    calib_tokens: prune_options.CalibTokens = 4096,
    evaluation: prune_options.Eval = "builtin",
    eval_tokens: prune_options.EvalTokens = 8192,
    window: prune_options.Window = 128,
    speed: prune_options.MeasureSpeed = True,
    plot: opt.Plot = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    allow_download: opt.AllowDownload = False,
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.Json = False,
) -> None:
    """Prune MODEL by several methods to equal shares of its parameters, and judge all on the same held-out text."""
    from icml25cli.core.models import pick_device, resolve
    from icml25cli.core.plots import check_figure, save_figure
    from icml25cli.core.progress import warnings_so_far

    report = Report("prune", seed=seed)
    protected = prune_options.layer_numbers(protect)
    names, shares = prune_options.method_names(opt.listed(method, COMPARED)), prune_options.target_shares(targets)
    if plot:
        check_figure(plot, force=force)
    source = resolve(model, allow_download=allow_download, trust_remote_code=trust_remote_code)

    from icml25cli.core.parallel import set_threads
    from icml25cli.papers.prune import figures, tables
    from icml25cli.papers.prune.job import Texts, carry_out, measure
    from icml25cli.papers.prune.methods import Options

    set_threads(threads)
    chosen = pick_device(device)
    report.device = str(chosen)
    shared = Options(of=of.value, gqa=gqa.value, protect=protected, multiple_of=multiple_of, seed=seed)
    compared = [prune_options.named(name, shared, share) for share in shares for name in names]
    texts = Texts(calib, calib_tokens, evaluation, eval_tokens, window, seed)
    with carry_out(source, compared, texts, device=chosen, resume=resume, fresh=fresh) as job:
        measured = measure(job) if speed else (None,) * len(job.pruned)
        report.params = {"verb": "compare", "model": source.name, "gqa": gqa.value, **job.params}
        compared_rows = tables.comparison(job, measured)
        report.rows = [*compared_rows]
        report.tables = {"differences": [*tables.differences(job)], "speed": [*tables.speeds(job, measured)]}
        report.metrics = {key: value for key, value in report.rows[0].items() if isinstance(value, float)}
        report.answer = {"status": "done"}
        report.notes = [*source.notes, *tables.comparison_notes(job), tables.EXPLAINED]
        if plot:
            save_figure(figures.perplexities(compared_rows), plot, force=force)
            report.artefacts.append(str(plot))
        report.warnings = [*warnings_so_far()]
    show(report, as_json=as_json)


def bench(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL",
            help="Directories that prune wrote, or any models; the first is what others are compared with.",
            autocompletion=opt.complete_model,
        ),
    ],
    prompt: Annotated[int, typer.Option("--prompt", min=1, max=2**20, help="Tokens that are read at once.")] = 512,
    continuation: Annotated[int, typer.Option("--continuation", min=1, max=2**20, help="Tokens made one by one.")] = 32,
    turns: Annotated[int, typer.Option("--turns", min=1, max=1000, help="How often each model is measured.")] = 5,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    allow_download: opt.AllowDownload = False,
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.Json = False,
) -> None:
    """Measure how fast each MODEL reads and writes, turn by turn, and the memory of its weights and cache."""
    from icml25cli.core.models import load_model, pick_device, resolve
    from icml25cli.core.parallel import set_threads

    report = Report("prune", params={"verb": "bench", "prompt": prompt, "continuation": continuation, "turns": turns})
    sources = [
        resolve(model, allow_download=allow_download, trust_remote_code=trust_remote_code)
        for model in dict.fromkeys(models)
    ]
    from icml25cli.papers.prune.speed import footprint, measure_speed
    from icml25cli.papers.prune.tables import speed_figures

    set_threads(threads)
    chosen = pick_device(device)
    report.device = str(chosen)
    loaded = {source.name: load_model(source, device=str(chosen)) for source in sources}
    measured = measure_speed(loaded, prompt=prompt, continuation=continuation, turns=turns)
    first = measured[sources[0].name]
    report.rows = [
        {"model": name, **speed_figures(speed, first), **footprint(loaded[name])} for name, speed in measured.items()
    ]
    report.metrics = {key: value for key, value in report.rows[0].items() if isinstance(value, float)}
    report.notes = [
        "Medians of turns, in which the models take each other's place; low and high are the slowest and the fastest. "
        "Weights and cache are in float32, as loaded here; a speedup is the median of the turns' own."
    ]
    show(report, as_json=as_json)


def tune(
    model: Annotated[
        str, typer.Argument(metavar="DIR", help="A directory that prune wrote, or a model of a family it knows.")
    ],
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="FILE.jsonl",
            help='Rows to learn from, one JSON object a line: {"text": "..."} or {"prompt": "...", "response": "..."}.',
        ),
    ],
    rank: Annotated[int, typer.Option("--rank", min=1, max=2**12, help="Of the adapters.")] = 8,
    alpha: Annotated[float, typer.Option("--alpha", min=0.0, help="Their scale, times the rank.")] = 16.0,
    dropout: Annotated[float, typer.Option("--dropout", min=0.0, max=0.9, help="Of their inputs.")] = 0.05,
    learning_rate: Annotated[float, typer.Option("--lr", min=0.0, help="At its highest.")] = 1e-4,
    epochs: Annotated[int, typer.Option("--epochs", min=1, max=1000, help="Times that every row is seen.")] = 2,
    batch_size: Annotated[int, typer.Option("--batch", min=1, help="Rows of a step.")] = 16,
    cutoff: Annotated[int, typer.Option("--cutoff", min=2, help="Tokens of a row that are read.")] = 256,
    held_out: Annotated[
        float, typer.Option("--held-out", min=0.01, max=0.9, help="Share of rows to judge on, which are not learnt.")
    ] = 0.1,
    output: opt.Output = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    allow_download: opt.AllowDownload = False,
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.Json = False,
) -> None:
    """Recover what pruning lost: train adapters (LoRA) on your rows, merge them, and write the model with -o."""
    from icml25cli.core.files import write_json
    from icml25cli.core.models import pick_device, resolve
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import note, warnings_so_far
    from icml25cli.core.runs import check_output, commit_output

    report = Report("prune", seed=seed)
    if output:
        check_output(output, force=force)
    source = resolve(model, allow_download=allow_download, trust_remote_code=trust_remote_code)

    from icml25cli.papers.prune.tune import Options, carry_out, read_rows

    set_threads(threads)
    chosen = pick_device(device)
    report.device = str(chosen)
    options = Options(rank, alpha, dropout, learning_rate, epochs, batch_size, cutoff, held_out, seed)
    rows = read_rows(data, source, cutoff)
    with carry_out(source, rows, options, device=str(chosen), output=output, resume=resume, fresh=fresh) as tuned:
        report.params = {"verb": "tune", "model": source.name, "data": str(data), "rows": len(rows), "rank": rank}
        report.rows = [*tuned.rows]
        report.metrics = {
            "nll_more": tuned.difference.mean,
            "nll_more_se": tuned.difference.standard_error,
            "trained_parameters": tuned.trained_parameters,
            "steps": tuned.steps,
        }
        report.tables = {"change": [report.metrics]}
        report.details = {"steps": [{"step": i + 1, "nll": loss} for i, loss in enumerate(tuned.training)]}
        report.answer = {"status": "done"}
        report.notes = [*source.notes, f"Losses are of {len(tuned.before.counts)} held-out rows, in nats a token."]
        report.warnings = [*warnings_so_far()]
        if output:
            with commit_output(output, force=force) as directory:
                tuned.write(directory)
                report.artefacts.append(str(output))
                report.finish()
                write_json(directory / "report.json", report.document())
        else:
            note("the adapters are kept: repeat the command with -o DIRECTORY to write the model")
    show(report, as_json=as_json)


VERBS = (compare, bench, tune)

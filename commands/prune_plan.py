"""Verbs of `icml25 prune` on plans: what would go, as a file one can edit, and a model cut by such a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icml25cli.commands import prune_options
from icml25cli.commands.prune_options import MethodName
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show

if TYPE_CHECKING:
    from icml25cli.papers.prune.job import Job


def plan(
    model: opt.Model = "tiny",
    method: prune_options.Method = MethodName.slimllm,
    target: prune_options.Target = 0.2,
    of: prune_options.Of = prune_options.Share.decoder,
    gqa: prune_options.GqaMode = prune_options.Gqa.group,
    alpha: prune_options.Alpha = None,
    layers: prune_options.Layers = None,
    protect: prune_options.Protect = "",
    multiple_of: prune_options.MultipleOf = 1,
    head_score: prune_options.HeadScoreName = None,
    search: prune_options.SearchName = None,
    ffn_score: prune_options.FfnScoreName = None,
    repair: prune_options.RepairName = None,
    layer_ratio: prune_options.LayerRatioName = None,
    keep_low: prune_options.KeepLow = None,
    calib: prune_options.Calib = "builtin",
    calib_tokens: prune_options.CalibTokens = 4096,
    window: prune_options.Window = 128,
    export: prune_options.ExportForm = prune_options.Export.custom,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.json", help="File for apply to read.")
    ] = None,
    force: opt.Force = False,
    plot: opt.Plot = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    allow_download: opt.AllowDownload = False,
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.Json = False,
) -> None:
    """Say which heads and channels of MODEL would go, layer by layer, and write it as a file to edit and apply."""
    from icml25cli.core.files import check_file
    from icml25cli.core.models import pick_device, resolve
    from icml25cli.core.plots import check_figure, save_figure
    from icml25cli.core.progress import note, warnings_so_far

    report = Report("prune", seed=seed)
    protected = prune_options.layer_numbers(protect)
    if output:
        check_file(output, force=force)
    if plot:
        check_figure(plot, force=force)
    source = resolve(model, allow_download=allow_download, trust_remote_code=trust_remote_code)

    from icml25cli.core.parallel import set_threads
    from icml25cli.papers.prune import figures, tables
    from icml25cli.papers.prune.job import Texts, carry_out
    from icml25cli.papers.prune.methods import Options
    from icml25cli.papers.prune.plan import write_plan

    set_threads(threads)
    chosen = pick_device(device)
    report.device = str(chosen)
    options = Options(
        method=method.value,
        target=target,
        of=of.value,
        gqa=gqa.value,
        alpha=alpha,
        layers=layers,
        protect=protected,
        multiple_of=multiple_of,
        alike=export == prune_options.Export.uniform,
        head_score=head_score and head_score.value,
        search=search and search.value,
        ffn_score=ffn_score and ffn_score.value,
        repair=repair and repair.value,
        layer_ratio=layer_ratio and layer_ratio.value,
        keep_low=keep_low,
        seed=seed,
    )
    texts = Texts(calib, calib_tokens, None, 0, window, seed)
    with carry_out(source, (options,), texts, kind=export.value, device=chosen, resume=resume, fresh=fresh) as job:
        main = job.pruned[0]
        report.params = {"verb": "plan", "model": source.name, "method": method.value, "target": target, **job.params}
        report.rows = [*tables.by_layer(main)]
        report.tables = {"totals": [*tables.totals(job)]}
        report.metrics = {"parameters": job.sizes(main).parameters, "share_removed": main.share_removed}
        report.metrics["seconds"] = round(main.seconds, 3)
        report.answer = {"status": "planned"}
        report.notes = [*source.notes, *tables.export_notes(job)]
        if plot:
            save_figure(figures.kept(main), plot, force=force)
            report.artefacts.append(str(plot))
        if output:
            write_plan(output, main.plan, force=force)
            report.artefacts.append(str(output))
        else:
            note("the plan is kept: repeat the command with -o FILE.json to write it")
        report.warnings = [*warnings_so_far()]
    show(report, as_json=as_json)


def apply(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="The model that the plan is for.", autocompletion=opt.complete_model)
    ],
    plan: Annotated[Path, typer.Argument(metavar="PLAN.json", help="As plan wrote it, perhaps edited.")],
    repair: prune_options.RepairName = None,
    calib: prune_options.Calib = "builtin",
    calib_tokens: prune_options.CalibTokens = 4096,
    evaluation: prune_options.Eval = "builtin",
    eval_tokens: prune_options.EvalTokens = 8192,
    window: prune_options.Window = 128,
    max_perplexity_increase: prune_options.MaxIncrease = None,
    speed: prune_options.MeasureSpeed = True,
    sample: prune_options.Sample = None,
    export: prune_options.ExportForm = prune_options.Export.custom,
    output: opt.Output = None,
    force: opt.Force = False,
    plot: opt.Plot = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    allow_download: opt.AllowDownload = False,
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.Json = False,
) -> None:
    """Cut MODEL to what PLAN.json keeps, repair it on calibration text, judge it, and write it with -o."""
    from dataclasses import replace

    from icml25cli.core.models import pick_device, resolve
    from icml25cli.core.plots import check_figure
    from icml25cli.core.runs import check_output
    from icml25cli.papers.prune.plan import read_plan

    report = Report("prune", seed=seed)
    if output:
        check_output(output, force=force)
    if plot:
        check_figure(plot, force=force)
    wanted = read_plan(plan)
    source = resolve(model, allow_download=allow_download, trust_remote_code=trust_remote_code)

    from icml25cli.core.parallel import set_threads
    from icml25cli.papers.prune.job import Texts, carry_out, check_sample
    from icml25cli.papers.prune.methods import read_options

    if sample is not None:
        check_sample(source, sample)
    set_threads(threads)
    chosen = pick_device(device)
    report.device = str(chosen)
    options = read_options(wanted.options)
    if repair:
        options = replace(options, repair=repair.value)
    texts = Texts(calib, calib_tokens, evaluation, eval_tokens, window, seed)
    report.params = {"verb": "apply", "model": source.name, "plan": str(plan)}
    with carry_out(
        source,
        (options,),
        texts,
        plan=wanted,
        kind=export.value,
        device=chosen,
        output=output,
        resume=resume,
        fresh=fresh,
    ) as job:
        finish(
            report,
            job,
            speed=speed,
            sample=sample,
            output=output,
            force=force,
            plot=plot,
            gate=max_perplexity_increase,
            as_json=as_json,
        )


def finish(
    report: Report,
    job: "Job",
    *,
    speed: bool,
    sample: str | None,
    output: Path | None,
    force: bool,
    plot: Path | None,
    gate: float | None,
    as_json: bool,
) -> None:
    """Measure, write and show what became of a model.

    Raises:
        CheckFailed: perplexity rose by more than ``gate``, once everything is written and shown.
    """
    from dataclasses import asdict

    from icml25cli.core.errors import CheckFailed
    from icml25cli.core.files import write_json
    from icml25cli.core.plots import save_figure
    from icml25cli.core.progress import note, warnings_so_far
    from icml25cli.core.runs import commit_output
    from icml25cli.papers.prune import figures, tables
    from icml25cli.papers.prune.job import measure

    main = job.pruned[0]
    measured = measure(job, prompt=sample) if speed or sample else (None,) * len(job.pruned)
    report.params |= job.params
    report.rows = [*tables.comparison(job, measured)]
    report.metrics = {key: value for key, value in report.rows[0].items() if isinstance(value, float)}
    report.tables = {
        "differences": [*tables.differences(job)],
        "totals": [*tables.totals(job)],
        "speed": [*tables.speeds(job, measured)],
        "stages": [*tables.stages(main)],
        "layers": [*tables.by_layer(main)],
    }
    if measured[0] and measured[0].continuations:
        names = (main.options.method, tables.DENSE)
        report.tables["samples"] = [
            {"method": name, "continuation": said}
            for name, said in zip(names, reversed(measured[0].continuations), strict=True)
        ]
    report.details = {"options": [asdict(pruned.options) for pruned in job.pruned]}
    report.notes = [*job.model.source.notes, *tables.export_notes(job), *tables.comparison_notes(job), tables.EXPLAINED]
    if plot:
        save_figure(figures.kept(main), plot, force=force)
        report.artefacts.append(str(plot))
    increase = report.rows[0]["perplexity"] / report.rows[-1]["perplexity"] - 1
    report.metrics["perplexity_increase"] = increase
    report.metrics["share_removed"] = main.share_removed
    passed = gate is None or increase <= gate
    report.answer = {"status": "done" if passed else "beyond the gate"}
    report.warnings = [*warnings_so_far()]
    if output:
        with commit_output(output, force=force) as directory:
            job.write(directory)
            report.artefacts.append(str(output))
            report.finish()
            write_json(directory / "report.json", report.document())
    else:
        note("finished work is kept: repeat the command with -o DIRECTORY to write the model")
    show(report, as_json=as_json)
    if not passed:
        raise CheckFailed(
            f"perplexity rose by {increase:.1%}, more than --max-perplexity-increase {gate} allows",
            hint="allow more, remove less, or recover with prune tune",
        )


VERBS = (plan, apply)

"""`icml25 prune`: SlimLLM on a language model; verbs on plans and on several models are in modules of their own."""

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icml25cli.commands import prune_bench, prune_options, prune_plan
from icml25cli.commands.prune_options import MethodName
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show
from icml25cli.core.verbs import paper_group

if TYPE_CHECKING:
    from icml25cli.papers.prune.estimate import Estimate


def _model_names() -> list[str]:
    from icml25cli.core.models import aliases

    return list(aliases())


app = paper_group("prune", known_inputs=_model_names)


class BaselineName(StrEnum):  # spelt out: neither typer nor pyright takes one made from the other
    slimllm = "slimllm"
    wanda_sp = "wanda-sp"
    flap = "flap"
    lorap_ffn = "lorap-ffn"
    magnitude_sp = "magnitude-sp"
    random = "random"
    depth = "depth"
    none = "none"


@app.command()
def run(
    model: opt.Model = "tiny",
    method: prune_options.Method = MethodName.slimllm,
    baseline: Annotated[
        list[BaselineName] | None,
        typer.Option("--baseline", help="Methods beside it at the same target, or none. [default: flap]"),
    ] = None,
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
    evaluation: prune_options.Eval = "builtin",
    eval_tokens: prune_options.EvalTokens = 8192,
    window: prune_options.Window = 128,
    max_perplexity_increase: prune_options.MaxIncrease = None,
    speed: prune_options.MeasureSpeed = True,
    sample: prune_options.Sample = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what time, memory and disk it would take; rehearses one layer.")
    ] = False,
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
    """Cut heads and channels out of MODEL, judge it beside baselines on held-out text, and write it with -o."""
    from icml25cli.core.models import pick_device, resolve
    from icml25cli.core.plots import check_figure
    from icml25cli.core.runs import check_output

    report = Report("prune", seed=seed)
    protected = prune_options.layer_numbers(protect)
    if output:
        check_output(output, force=force)
    if plot:
        check_figure(plot, force=force)
    source = resolve(model, allow_download=allow_download, trust_remote_code=trust_remote_code)

    # Only now what takes seconds to import: a mistyped name is answered at once.
    from icml25cli.core.parallel import set_threads
    from icml25cli.papers.prune.job import Texts, carry_out, check_sample
    from icml25cli.papers.prune.methods import Options

    if sample is not None:
        check_sample(source, sample)
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
    others = dict.fromkeys(MethodName(b.value) for b in baseline or (BaselineName.flap,) if b != BaselineName.none)
    compared = (options, *(prune_options.named(other, options) for other in others if other != method))
    texts = Texts(calib, calib_tokens, evaluation, eval_tokens, window, seed)
    report.params = {"model": source.name, "method": method.value, "target": target, "gqa": gqa.value}
    if dry_run:
        from icml25cli.papers.prune.estimate import estimate

        _show_estimate(report, estimate(source, compared, texts, device=chosen), as_json=as_json)
        return
    with carry_out(
        source, compared, texts, kind=export.value, device=chosen, output=output, resume=resume, fresh=fresh
    ) as job:
        prune_plan.finish(
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


def _show_estimate(report: Report, found: "Estimate", *, as_json: bool) -> None:
    mib = 2**20
    report.params |= {"dry_run": True}
    report.rows = [asdict(stage) for stage in found.stages]
    totals: dict[str, Any] = {
        "seconds": sum(stage.seconds for stage in found.stages),
        "memory_mib": found.memory_bytes / mib,
        "run_mib": found.run_bytes / mib,
        "export_mib": found.export_bytes / mib,
    }
    report.metrics = totals
    report.tables = {"total": [totals]}
    report.answer = {"status": "estimated, nothing was written"}
    report.notes = [
        "Seconds are of this machine as busy as it is now, without measuring speed. Memory is beyond what the loaded "
        "libraries take. The run directory holds finished layers and hidden states while it works; the export is what "
        "-o writes."
    ]
    show(report, as_json=as_json)


for verb in (*prune_plan.VERBS, *prune_bench.VERBS):
    app.command()(verb)

"""`icml25 quantize`: NestQuant on a language model; its verbs on arrays and on codes alone are modules of their own."""

import time
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icml25cli.commands import quantize_arrays, quantize_bench
from icml25cli.commands.quantize_arrays import Betas, RotationName
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show
from icml25cli.core.verbs import paper_group

if TYPE_CHECKING:
    from icml25cli.papers.quantize.estimate import Estimate


def _model_names() -> list[str]:
    from icml25cli.core.models import aliases

    return list(aliases())


app = paper_group("quantize", known_inputs=_model_names)


class MethodName(StrEnum):
    nestquant = "nestquant"
    nestquant_m = "nestquant-m"
    rtn = "rtn"
    gptq = "gptq"
    nf4 = "nf4"
    absmax = "absmax"


class BaselineName(StrEnum):  # spelt out: neither typer nor pyright takes one made from the other
    nestquant = "nestquant"
    nestquant_m = "nestquant-m"
    rtn = "rtn"
    gptq = "gptq"
    nf4 = "nf4"
    absmax = "absmax"
    hqq = "hqq"
    torchao = "torchao"
    quanto = "quanto"
    bitsandbytes = "bitsandbytes"
    peers = "peers"
    none = "none"


class ScopeName(StrEnum):
    w = "w"
    w_kv = "w+kv"
    w_kv_a = "w+kv+a"


class Noise(StrEnum):
    auto = "auto"
    off = "off"
    white = "white"
    normalized = "normalized"
    diagonal = "diagonal"
    full = "full"


class BetaRule(StrEnum):
    opt = "opt"
    first = "first"


class Format(StrEnum):
    both = "both"
    bf16 = "bf16"
    packed = "packed"


@app.command()
def run(
    model: opt.Model = "tiny",
    method: Annotated[MethodName, typer.Option("--method", help="The main method.")] = MethodName.nestquant,
    baseline: Annotated[
        list[BaselineName] | None,
        typer.Option(
            "--baseline", help="Methods beside it, peers for all installed libraries, none. [default: rtn, gptq]"
        ),
    ] = None,
    scope: Annotated[
        list[ScopeName] | None,
        typer.Option(
            "--scope", help="Weights, also keys and values, also activations; repeat to compare. [default: w]"
        ),
    ] = None,
    q: Annotated[
        int | None, typer.Option("--q", min=2, max=16, help="Levels per dimension of the lattice code. [default: 14]")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", min=1, max=8, help="Scales a block may choose from. [default: 4]")
    ] = None,
    bits: Annotated[
        float | None,
        typer.Option(
            "--bits",
            min=1.0,
            max=4.25,
            help="In place of --q and --k: at most so many bits for digits and scale index.",
        ),
    ] = None,
    betas: Betas = "auto",
    beta_rule: Annotated[
        BetaRule, typer.Option("--beta-rule", help="A block's scale: of least error, or the first that holds it.")
    ] = BetaRule.opt,
    entropy: Annotated[
        bool, typer.Option("--entropy", help="Compress the scale indices of weights; smaller, slower to load.")
    ] = False,
    ldlq: Annotated[bool, typer.Option("--ldlq/--no-ldlq", help="Feed errors forward (LDLQ).")] = True,
    qa: Annotated[
        Noise, typer.Option("--qa", help="What LDLQ takes the noise of quantised activations to be, if they are.")
    ] = Noise.auto,
    rotation: Annotated[
        list[RotationName] | None,
        typer.Option("--rotation", help="Repeat to run every method under each. [default: random-hadamard]"),
    ] = None,
    scalar_bits: Annotated[
        int | None,
        typer.Option("--scalar-bits", min=2, max=8, help="Bits of rtn and gptq. [default: no fewer than nestquant's]"),
    ] = None,
    group_size: Annotated[
        int, typer.Option("--group-size", min=8, help="Weights a scale of rtn and gptq serves.")
    ] = 64,
    include: Annotated[str, typer.Option("--include", metavar="REGEX", help="Quantise tensors it matches.")] = "",
    exclude: Annotated[
        str | None, typer.Option("--exclude", metavar="REGEX", help="Leave tensors it matches as they are.")
    ] = None,
    calib: Annotated[
        str, typer.Option("--calib", metavar="TEXT", help="Calibration text: a file, a folder, an asset, - or builtin.")
    ] = "builtin",
    calib_tokens: Annotated[int, typer.Option("--calib-tokens", min=1, help="Tokens of it.")] = 16_384,
    evaluation: Annotated[
        str, typer.Option("--eval", metavar="TEXT", help="Text to judge on, disjoint from calibration.")
    ] = "builtin",
    eval_tokens: Annotated[int, typer.Option("--eval-tokens", min=1, help="Tokens of it.")] = 16_384,
    window: Annotated[
        int, typer.Option("--window", min=2, help="Tokens of one window, for calibration and judging.")
    ] = 512,
    damping: Annotated[
        float,
        typer.Option("--damp", min=0.0, max=1000.0, help="Added to the Hessian's diagonal, in parts of its mean."),
    ] = 0.01,
    max_perplexity_increase: Annotated[
        float | None,
        typer.Option("--max-perplexity-increase", min=0.0, help="Exit 1 if the main method's is larger, 0.05 for 5 %."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what time, memory and disk it would take; rehearses one block.")
    ] = False,
    format: Annotated[Format, typer.Option("--format", help="What -o writes.")] = Format.both,
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
    """Quantise MODEL, judge it beside baselines on held-out text, and write it with -o."""
    from icml25cli.core.errors import CheckFailed, UsageError
    from icml25cli.core.files import write_json
    from icml25cli.core.models import pick_device, resolve
    from icml25cli.core.plots import check_figure, save_figure
    from icml25cli.core.progress import note, warnings_so_far
    from icml25cli.core.runs import check_output, commit_output

    report = Report("quantize", seed=seed)
    if format == Format.packed and method not in (MethodName.nestquant, MethodName.nestquant_m):
        raise UsageError(f"--format packed is of codes, and {method.value} has none", hint="use --format bf16")
    if bits is not None and (q, k) != (None, None):
        raise UsageError("--bits chooses q and k itself", hint="leave out --bits, or --q and --k")
    if dry_run and (resume or fresh):
        raise UsageError("--dry-run neither continues a run nor starts one", hint="leave out --resume or --fresh")
    if output:
        check_output(output, force=force)
    if plot:
        check_figure(plot, force=force)
    source = resolve(model, allow_download=allow_download, trust_remote_code=trust_remote_code)

    # Only now what takes seconds to import: a mistyped name is answered at once.
    from icml25cli.core.parallel import set_threads
    from icml25cli.papers.quantize import figures
    from icml25cli.papers.quantize.export import write_model
    from icml25cli.papers.quantize.job import carry_out
    from icml25cli.papers.quantize.model import by_block, cautions, comparison, differences, rate
    from icml25cli.papers.quantize.plan import Options

    set_threads(threads)
    chosen = pick_device(device)
    options = Options(
        method=method.value,
        baselines=tuple(b.value for b in baseline or (BaselineName.rtn, BaselineName.gptq) if b != BaselineName.none),
        scopes=tuple(s.value for s in scope or (ScopeName.w,)),
        q=14 if q is None else q,
        k=4 if k is None else k,
        rate=bits,
        betas=betas,
        beta_rule=beta_rule.value,
        entropy=entropy,
        ldlq=ldlq,
        qa=qa.value,
        rotations=tuple(r.value for r in rotation or (RotationName.random_hadamard,)),
        scalar_bits=scalar_bits,
        group_size=group_size,
        include=include,
        exclude=exclude,
        calibration=calib,
        calibration_tokens=calib_tokens,
        evaluation=evaluation,
        evaluation_tokens=eval_tokens,
        window=window,
        damping=damping,
        seed=seed,
    )
    report.device = str(chosen)
    if dry_run:
        from icml25cli.core.streaming import StreamedModel
        from icml25cli.papers.quantize.estimate import estimate
        from icml25cli.papers.quantize.plan import make_plan

        started = time.monotonic()
        streamed = StreamedModel(source, chosen)
        plan, facts = make_plan(streamed, options)
        report.rows = [{"stage": "planning", "seconds": time.monotonic() - started}]  # which a real run does just so
        _show_estimate(report, estimate(streamed, plan), {"model": source.name, **facts.params}, as_json=as_json)
        return
    with carry_out(source, options, device=chosen, output=output, resume=resume, fresh=fresh) as job:
        report.params = {"model": source.name, "method": method.value, **job.facts.params}
        report.rows = [*comparison(job.judged)]
        report.metrics = {key: value for key, value in report.rows[0].items() if isinstance(value, float)}
        report.tables = {
            "codes": [*job.facts.codes],
            "differences": [*differences(job.judged)],
            "rate": [*rate(job.judged)],
            "blocks": [*by_block(job.judged[0])],
        }
        report.details = {"options": [asdict(options)], "tensors": list(job.judged[0].tensors)}
        report.notes = list(job.notes)
        report.warnings = [*warnings_so_far(), *cautions(job.judged)]
        if plot:
            save_figure(figures.losses(job.judged), plot, force=force)
            report.artefacts.append(str(plot))
        increase = report.rows[0]["perplexity"] / report.rows[-1]["perplexity"] - 1
        report.metrics["perplexity_increase"] = increase
        passed = max_perplexity_increase is None or increase <= max_perplexity_increase
        report.answer = {"status": "done" if passed else "beyond the gate"}
        if output:
            kinds = ("bf16", "packed") if format == Format.both else (format.value,)
            with commit_output(output, force=force) as directory:
                written = [*write_model(job, directory, kinds), "report.json"]
                report.artefacts += [str(output / name) for name in written]
                report.finish()
                write_json(directory / "report.json", report.document())
        else:
            note("finished work is kept: repeat the command with -o DIRECTORY to write the model")
    show(report, as_json=as_json)
    if not passed:
        raise CheckFailed(
            f"perplexity rose by {increase:.1%}, more than --max-perplexity-increase {max_perplexity_increase} allows",
            hint="allow more, or give more --q, --k or --calib-tokens",
        )


def _show_estimate(report: Report, found: "Estimate", params: dict[str, Any], *, as_json: bool) -> None:
    mib = 2**20
    report.params = {**params, "dry_run": True}
    report.rows += [{"stage": stage.stage, "seconds": stage.seconds} for stage in found.stages]
    report.metrics = {
        "seconds": sum(row["seconds"] for row in report.rows),
        "memory_mib": found.memory_bytes / mib,
        "run_mib": found.run_bytes / mib,
        "bf16_mib": found.bf16_bytes / mib,
        "packed_mib": found.packed_bytes / mib,
    }
    report.tables = {"total": [report.metrics]}
    report.answer = {"status": "estimated, nothing was written"}
    report.notes = [
        "Seconds are of this machine as busy as it is now. Memory is beyond what the loaded libraries take. The run "
        "directory holds finished blocks and hidden states while it works; the other figures are what -o writes."
    ]
    show(report, as_json=as_json)


for verb in (*quantize_arrays.VERBS, *quantize_bench.VERBS):
    app.command()(verb)

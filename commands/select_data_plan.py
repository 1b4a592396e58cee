"""The job that every verb of `icml25 select-data` but `demo` works on: a model, a pool, validation rows.

``on_a_job`` puts the options of a job in front of a verb's own and hands the verb a ``Plan``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from icml25cli.commands.select_data_options import Dtype, PolicyName, Precondition, Projector, RewardBaseline
from icml25cli.core import options as opt
from icml25cli.core.verbs import taking

if TYPE_CHECKING:
    from icml25cli.core.models import ModelSource
    from icml25cli.core.report import Report
    from icml25cli.papers.select_data.job import Job


@dataclass(frozen=True)
class Plan:
    """What the options of a job say, checked as far as no model is needed."""

    report: "Report"
    source: "ModelSource"
    options: dict[str, Any]
    policy: Any

    @contextmanager
    def job(self, *, test: Path | None = None, hold_out: bool = False) -> "Iterator[Job]":
        """Read the data and open the job; ``job.test`` then holds the rows to judge tuned models by."""
        from icml25cli.core.models import pick_device
        from icml25cli.core.parallel import set_threads
        from icml25cli.core.progress import warnings_so_far
        from icml25cli.papers.select_data.adapters import Adapter
        from icml25cli.papers.select_data.job import Job
        from icml25cli.papers.select_data.prepare import ask_for_answers, fitting_length, read_answers, read_data
        from icml25cli.papers.select_data.sampling import Sampling
        from icml25cli.papers.select_data.training import Recipe
        from icml25cli.papers.select_data.warmup import Foreign
        from icml25cli.papers.select_data.workspace import Means, Settings, Workspace

        o = self.options
        jobs, threads = o["jobs"] or 1, o["threads"]
        set_threads(threads)
        data = read_data(
            o["pool"],
            o["val"],
            test=test,
            hold_out=hold_out,
            subtask_field=o["subtask_field"],
            subtasks=o["subtasks"],
            drop_leak=o["drop_leak"],
        )
        device = pick_device(o["device"])
        dtype = o["dtype"].value
        if dtype == "auto":
            dtype = "float32" if device.type == "cpu" else "bfloat16"
        length = fitting_length(self.source, o["max_length"])
        sampling = Sampling(
            o["mc"], o["temperature"], o["top_k"], o["top_p"], min(o["max_new_tokens"], length - 1), o["seed"]
        )
        settings = Settings(
            adapter=Adapter(o["lora_r"], o["lora_alpha"], o["lora_dropout"], o["lora_targets"], o["seed"]),
            recipe=Recipe(o["epochs"], o["lr"], o["batch_size"], seed=o["seed"], batch_tokens=o["batch_tokens"]),
            warmup_fraction=o["warmup_frac"],
            checkpoints=o["checkpoints"],
            max_length=length,
            precondition=o["precond"].value,
            projector=o["projector"].value,
            projected=o["proj_dim"],
            sampling=sampling,
            policy=self.policy,
            guidance=o["guidance"],
            protect=o["protect"],
            dtype=dtype,
            seed=o["seed"],
        )
        given = None
        if o["samples"]:
            given = read_answers(o["samples"], data.validation)
        elif o["assist_url"]:
            given = ask_for_answers(o["assist_url"], data.validation, sampling)
        foreign = Foreign(o["adapter"], o["optimizer"]) if o["adapter"] else None
        self.report.device = str(device)
        self.report.params |= {"rows": len(data.pool.rows), "validation": len(data.validation), "dtype": dtype}
        import torch

        means = Means(str(device), jobs, threads or (1 if jobs > 1 else torch.get_num_threads()), o["engine"].value)
        with Workspace(o["work"], o["resume"], o["fresh"]) as space:
            yield Job(
                self.source,
                data.pool,
                data.validation,
                data.subtasks,
                settings,
                space,
                means,
                foreign=foreign,
                given=given,
                test=data.test,
            )
        self.report.warnings = [*warnings_so_far()]


def plan(
    pool: Annotated[
        list[Path],
        typer.Argument(
            metavar="POOL...",
            help="Rows to pick from: JSON lines (also .gz), Parquet, or a folder of datasets' save_to_disk; messages, "
            "prompt (question, query) and completion (answer, response), Alpaca's or ShareGPT's form.",
        ),
    ],
    val: Annotated[Path, typer.Option("--val", metavar="FILE", help="Validation rows; they need no answers.")],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="An alias (tiny, smollm2-135m ...), a Hugging Face id, a model directory or a .gguf file.",
            autocompletion=opt.complete_model,
        ),
    ] = "tiny",
    subtask_field: Annotated[
        str | None,
        typer.Option("--subtask-field", metavar="NAME", help="Of validation rows: what tells subtasks apart."),
    ] = None,
    subtasks: Annotated[
        int, typer.Option("--subtasks", min=1, help="Without it: so many, of consecutive rows of equal number.")
    ] = 1,
    drop_leak: Annotated[
        bool, typer.Option("--drop-leak", help="Leave out rows that ask what a validation row asks.")
    ] = False,
    policy: Annotated[
        PolicyName, typer.Option("--policy", help="How rewards weigh the drawn answers.")
    ] = PolicyName.vanilla,
    reward_baseline: Annotated[
        RewardBaseline,
        typer.Option("--reward-baseline", help="Less the other answers' mean reward (beyond the paper)."),
    ] = RewardBaseline.none,
    pass_at: Annotated[
        int | None, typer.Option("--pass-at", min=1, metavar="K", help="Raise pass@K instead (beyond the paper).")
    ] = None,
    token_mean: Annotated[
        bool, typer.Option("--token-mean", help="Of an answer's log-likelihood, instead of its sum.")
    ] = False,
    guidance: Annotated[
        bool, typer.Option("--guidance", help="Give the first half of the reference answer before drawing.")
    ] = False,
    protect: Annotated[
        bool, typer.Option("--protect", help="Where no drawn answer weighs anything, use the reference answer.")
    ] = False,
    mc: Annotated[int, typer.Option("--mc", min=1, max=10_000, help="Answers to draw to each prompt.")] = 20,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, max=10.0, help="Of drawing.")] = 1.0,
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="Of drawing; 0 for all tokens.")] = 50,
    top_p: Annotated[float, typer.Option("--top-p", min=0.01, max=1.0, help="Of drawing.")] = 0.95,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Of an answer.")] = 300,
    samples: Annotated[
        Path | None,
        typer.Option("--samples", metavar="FILE", help="Answers of another model, as JSON lines of row and responses."),
    ] = None,
    assist_url: Annotated[
        str | None, typer.Option("--assist-url", metavar="URL#MODEL", help="Draw them from a model on a server.")
    ] = None,
    projector: Annotated[Projector, typer.Option("--projector", help="How gradients are made small.")] = Projector.auto,
    proj_dim: Annotated[int, typer.Option("--proj-dim", min=1, max=2**20, help="Numbers kept of a gradient.")] = 8192,
    precond: Annotated[
        Precondition, typer.Option("--precond", help="What a row's gradient becomes.")
    ] = Precondition.adam,
    warmup_frac: Annotated[
        float, typer.Option("--warmup-frac", min=0.0, max=1.0, help="Share of rows to warm up on.")
    ] = 0.05,
    epochs: Annotated[int, typer.Option("--epochs", min=1, max=1000, help="Of warm-up and tuning.")] = 4,
    lr: Annotated[float, typer.Option("--lr", min=0.0, max=1.0, help="Peak learning rate.")] = 2e-5,
    batch_size: Annotated[int, typer.Option("--batch", min=1, help="Rows of a training step.")] = 128,
    lora_r: Annotated[int, typer.Option("--lora-r", min=1, max=4096, help="Rank of the adapters.")] = 128,
    lora_alpha: Annotated[float, typer.Option("--lora-alpha", min=0.0, help="Their scale times the rank.")] = 512.0,
    lora_dropout: Annotated[float, typer.Option("--lora-dropout", min=0.0, max=0.9, help="Of training.")] = 0.1,
    lora_targets: Annotated[
        str,
        typer.Option("--lora-targets", metavar="NAMES", help="attention, all-linear, or names with commas between."),
    ] = "attention",
    checkpoints: Annotated[
        str, typer.Option("--checkpoints", metavar="WHICH", help="all, last, or numbers as 1,3.")
    ] = "all",
    adapter: Annotated[
        Path | None,
        typer.Option("--adapter", metavar="DIR", help="An adapter trained elsewhere, instead of the warm-up."),
    ] = None,
    optimizer: Annotated[
        Path | None, typer.Option("--optimizer", metavar="FILE", help="Its optimizer.pt, for Adam's features.")
    ] = None,
    max_length: Annotated[
        int, typer.Option("--max-length", min=8, help="Tokens of a row; longer ones lose their beginning.")
    ] = 2048,
    batch_tokens: Annotated[
        int, typer.Option("--batch-tokens", min=8, help="Tokens of a batch with its padding.")
    ] = 2048,
    dtype: Annotated[Dtype, typer.Option("--dtype", help="Of the model. auto: bfloat16 on a GPU.")] = Dtype.auto,
    work: Annotated[
        Path | None,
        typer.Option("--work", metavar="DIR", help="Where finished work is kept. [default: the user's cache]"),
    ] = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Processes side by side, each with a model. [default: 1]")
    ] = None,
    engine: opt.Engine = opt.EngineOption.local,
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    allow_download: opt.AllowDownload = False,
    trust_remote_code: opt.TrustRemoteCode = False,
) -> Plan:
    """Check the options of a job."""
    from icml25cli.core.errors import UsageError
    from icml25cli.core.models import resolve
    from icml25cli.core.report import Report

    options = dict(locals())
    report = Report("select-data", seed=seed)
    if samples and assist_url:
        raise UsageError("--samples and --assist-url exclude each other", hint="leave one out")
    if pass_at and not samples and pass_at > mc:
        raise UsageError(f"--pass-at {pass_at} needs so many answers, and --mc is {mc}", hint="raise --mc")
    if resume and fresh:
        raise UsageError("--resume and --fresh exclude each other", hint="give one of them")
    if optimizer and not adapter:
        raise UsageError("--optimizer goes with --adapter", hint="give both, or neither")
    for path in (*pool, val, samples, adapter, optimizer):
        _check_there(path)
    source = resolve(model, allow_download=allow_download, trust_remote_code=trust_remote_code)
    from icml25cli.papers.select_data.policy import Policy

    chosen = Policy(policy.value, reward_baseline.value, pass_at, token_mean)
    report.params = {"model": source.name, "pool": [str(path) for path in pool], "val": str(val)}
    return Plan(report, source, options, chosen)


def _check_there(path: Path | None) -> None:
    """Refuse a file that is not there before a model is loaded."""
    from icml25cli.core.errors import InputError

    if path is not None and not path.exists():
        raise InputError(f"{path} does not exist", hint="check the path")


on_a_job = taking(plan=plan)

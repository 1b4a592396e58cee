"""What is asked for, carried out on a model, in a run that continues where an earlier one stopped.

Knows texts, runs and exports. Does not know the command line.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor
from transformers import PreTrainedModel

from icml25cli.core.checkpoint import model_files
from icml25cli.core.errors import UsageError
from icml25cli.core.held_out import calibration_sample, evaluation_sample
from icml25cli.core.models import ModelSource, context_length, load_model, load_tokenizer, quiet_transformers, resolve
from icml25cli.core.progress import warn
from icml25cli.core.runs import Run, fingerprint, run_directory
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.prune.anatomy import Anatomy, check_family, examine
from icml25cli.papers.prune.export import check_export, check_kind, write_export
from icml25cli.papers.prune.methods import Options, check_options
from icml25cli.papers.prune.pipeline import Pruned, check_job, prune_model, prune_models
from icml25cli.papers.prune.plan import Plan, write_plan
from icml25cli.papers.prune.sizes import Sizes, dense_sizes, pruned_sizes
from icml25cli.papers.prune.speed import Speed, measure_speed

SAMPLED_TOKENS = 40  # of a continuation


@dataclass(frozen=True)
class Texts:
    """What is calibrated on and judged by."""

    calibration: str = "builtin"
    calibration_tokens: int = 4096
    evaluation: str | None = "builtin"  # None: nothing is judged
    evaluation_tokens: int = 8192
    window: int = 128
    seed: int = 0


@dataclass(frozen=True)
class Job:
    """A model pruned by one method or several, with what is needed to write it out and to measure it."""

    model: StreamedModel
    anatomy: Anatomy
    run: Run
    pruned: tuple[Pruned, ...]  # the main method first
    params: dict[str, Any]  # what a report says of texts and of the export
    kind: str = "custom"  # of the main method's export; the others' are custom

    @property
    def dense(self) -> Sizes:
        return dense_sizes(self.model, self.anatomy)

    def sizes(self, pruned: Pruned) -> Sizes:
        biases = pruned.options.chosen.repair != "none"
        kind = self.kind_of(pruned)
        return pruned_sizes(self.model, self.anatomy, pruned.plan.layers, biases=biases, kind=kind)

    def kind_of(self, pruned: Pruned) -> str:
        return self.kind if pruned is self.pruned[0] else "custom"

    def write(self, directory: Path) -> list[str]:
        """Write the main method's model and plan into ``directory``; returns names of what is there beside weights."""
        main = self.pruned[0]
        write_export(directory, self.model, self.anatomy, main.plan, main.layer_tensors, self.kind)
        write_plan(directory / "plan.json", main.plan)
        return ["config.json", "plan.json"]


@dataclass(frozen=True)
class Measured:
    """One pruned model beside the dense one, both loaded whole in float32."""

    dense: Speed
    pruned: Speed
    continuations: tuple[str, str] | None  # of a prompt, dense and pruned


@contextlib.contextmanager
def carry_out(
    source: ModelSource,
    options: Sequence[Options],
    texts: Texts,
    *,
    plan: Plan | None = None,
    kind: str = "custom",
    device: torch.device | str = "cpu",
    output: Path | None = None,
    resume: bool = False,
    fresh: bool = False,
) -> Iterator[Job]:
    """Prune and judge ``source``, continuing what an earlier call with the same inputs finished.

    Finished layers live in ``output/.run``, or without ``output`` in the user's cache.

    Args:
        options: one or several methods; with a ``plan`` one, whose repair is made for what the plan keeps.
        kind: of export; what it cannot hold is refused before any work.

    Raises:
        ToolboxError: as ``prune_models``, ``check_kind``, ``check_export``, ``Run.open`` and ``held_out``.
    """
    check_family(source)
    for option in options:
        check_options(option)
    model = StreamedModel(source, device)
    anatomy = examine(model)
    check_kind(kind, source, anatomy, biases=options[0].chosen.repair != "none")
    check_job(model, anatomy, options, plan)
    if plan:
        check_export(kind, source, anatomy, plan)
    calibration, evaluation, params = windows_of(source, texts)
    inputs = {
        "model": model_files(source.path),
        "options": [asdict(option) for option in options],
        "plan": plan and asdict(plan),
        "calibration text": calibration,
        "evaluation text": evaluation,
    }
    with Run.open(run_directory("prune", fingerprint(inputs), output), inputs, resume=resume, fresh=fresh) as run:
        if plan:
            pruned = (prune_model(model, options[0], calibration, evaluation, run, plan),)
        else:
            pruned = prune_models(model, options, calibration, evaluation, run)
            check_export(kind, source, anatomy, pruned[0].plan)
        yield Job(model, anatomy, run, pruned, params | {"export": kind}, kind)


def measure(job: Job, *, prompt: str | None = None, turns: int = 3) -> tuple[Measured | None, ...]:
    """Speed of every pruned model beside the dense one, and how both continue ``prompt``; None where memory is short.

    Models are loaded whole, two at a time: as users of an export load them.
    """
    needed = 4 * (job.dense.parameters + max(job.sizes(pruned).parameters for pruned in job.pruned))
    if job.model.device.type == "cpu" and needed > 0.7 * _memory():
        warn(f"speed was not measured: two models of float32 take {needed / 2**30:.0f} GiB; prune bench does it")
        return (None,) * len(job.pruned)
    device = str(job.model.device)
    dense = load_model(job.model.source, device=device)
    return tuple(_measure(job, dense, pruned, prompt, turns, device) for pruned in job.pruned)


def _measure(job: Job, dense: PreTrainedModel, pruned: Pruned, prompt: str | None, turns: int, device: str) -> Measured:
    # In the run's folder, which has room for a model, and where what a killed process leaves is removed.
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=job.run.directory) as folder:
        write_export(Path(folder), job.model, job.anatomy, pruned.plan, pruned.layer_tensors, job.kind_of(pruned))
        model = load_model(resolve(folder), device=device)
        window = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 1024
        sizes = {"prompt": min(256, window // 2), "continuation": max(1, min(16, window // 4))}
        speeds = measure_speed({"dense": dense, "pruned": model}, turns=turns, **sizes)
        said = None
        if prompt is not None:
            said = continued(dense, job.model.source, prompt), continued(model, job.model.source, prompt)
    return Measured(speeds["dense"], speeds["pruned"], said)


def check_sample(source: ModelSource, prompt: str) -> None:
    """Refuse, before any work, a prompt that cannot be continued.

    Raises:
        UsageError: it is empty, or does not fit the model's window with its continuation.
    """
    tokens = len(load_tokenizer(source)(prompt)["input_ids"]) if prompt else 0
    if not tokens:
        raise UsageError("--sample is empty", hint="give a text to continue")
    window = context_length(source.config)
    if window and tokens + SAMPLED_TOKENS > window:
        raise UsageError(
            f"--sample has {tokens} tokens, which with {SAMPLED_TOKENS} more do not fit {source.name}'s window of "
            f"{window}",
            hint="give a shorter text",
        )


@torch.inference_mode()
def continued(model: PreTrainedModel, source: ModelSource, prompt: str) -> str:
    """The likeliest continuation of ``prompt``, token by token."""
    tokenizer: Any = load_tokenizer(source)
    tokens = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False).to(model.device)
    generate: Any = model.generate
    with quiet_transformers():
        out = generate(**tokens, do_sample=False, max_new_tokens=SAMPLED_TOKENS, pad_token_id=0)
    return tokenizer.decode(out[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True)


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def windows_of(
    source: ModelSource, texts: Texts
) -> tuple[Int64[Tensor, "windows length"], Int64[Tensor, "windows length"], dict[str, Any]]:
    """Calibration and evaluation windows, and what a report says of them.

    Raises:
        ToolboxError: as ``held_out``.
    """
    tokenizer = load_tokenizer(source)
    calibration = calibration_sample(
        source, tokenizer, texts.calibration, tokens=texts.calibration_tokens, window=texts.window, seed=texts.seed
    )
    params: dict[str, Any] = {"calibration": calibration.origin, "window": calibration.windows.shape[1]}
    evaluation = torch.empty(0, calibration.windows.shape[1], dtype=torch.int64)
    if texts.evaluation is not None:
        judged = evaluation_sample(tokenizer, texts.evaluation, tokens=texts.evaluation_tokens, calibration=calibration)
        evaluation, params["evaluation"] = torch.from_numpy(judged.windows), judged.origin
    return torch.from_numpy(calibration.windows), evaluation, params

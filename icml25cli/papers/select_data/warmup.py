"""The warm-up: adapters trained on a random part of the pool, or brought from elsewhere, and their checkpoints.

Knows the job it is a stage of. Does not know what is done at a checkpoint.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icml25cli.core.checkpoint import model_files
from icml25cli.core.errors import UsageError
from icml25cli.core.runs import Run
from icml25cli.papers.select_data.adapters import (
    Checkpoint,
    adapted,
    foreign_moments,
    load_adapter,
    save_adapter,
    save_moments,
)
from icml25cli.papers.select_data.training import checkpoint_weights, shares, train

if TYPE_CHECKING:
    from icml25cli.papers.select_data.job import Job


@dataclass(frozen=True)
class Foreign:
    """An adapter trained elsewhere, instead of the warm-up."""

    adapter: Path
    optimizer: Path | None  # transformers' optimizer.pt; without it features cannot be Adam's


def warmup_rows(job: Job) -> list[int]:
    """Places of the rows that the warm-up sees, drawn by the seed."""
    n = len(job.pool.rows)
    count = max(1, round(job.settings.warmup_fraction * n))
    return np.random.default_rng(job.settings.seed).permutation(n)[:count].tolist()


def warmup_inputs(job: Job) -> dict[str, Any]:
    model = {"model": model_files(job.source.path), "dtype": job.settings.dtype}
    if job.foreign:
        optimizer = job.foreign.optimizer
        return model | {"adapter": sorted(job.foreign.adapter.glob("adapter_*")), "optimizer": optimizer}
    recipe = asdict(job.settings.recipe)
    examples = [job.examples[i].fingerprint for i in job.warmup_rows]
    return model | {"adapter": asdict(job.settings.adapter), "recipe": recipe, "rows": examples}


def checkpoints(job: Job) -> list[Checkpoint]:
    """The checkpoints that count, their weights summing to one."""
    run = job.space.open("warmup", job.warmup_inputs)
    found = _bring(job, run) if job.foreign else _warm_up(job, run)
    chosen = [found[i] for i in chosen_checkpoints(job.settings.checkpoints, len(found))]
    weights = shares([checkpoint.weight for checkpoint in chosen])
    return [replace(checkpoint, weight=w) for checkpoint, w in zip(chosen, weights, strict=True)]


def _warm_up(job: Job, run: Run) -> list[Checkpoint]:
    settings, recipe = job.settings, job.settings.recipe
    names = [f"checkpoint-{i + 1}" for i in range(recipe.epochs)]
    if all(map(run.has, names)):  # no need for the model
        each = -(-len(job.warmup_rows) // min(recipe.batch_size, len(job.warmup_rows)))
        ends = [each * (i + 1) for i in range(recipe.epochs)]
        weights = checkpoint_weights(ends, ends[-1], recipe.rising, recipe.learning_rate)
        return [Checkpoint(run.path(name), w) for name, w in zip(names, weights, strict=True)]
    model = adapted(job.source, settings.adapter, dtype=settings.dtype, device=job.means.device)
    return train(model, [job.examples[i] for i in job.warmup_rows], recipe, run, "warm-up")


def _bring(job: Job, run: Run) -> list[Checkpoint]:
    """Check an adapter trained elsewhere, with its moments, and keep both as a checkpoint of ours."""
    assert job.foreign
    if not run.has("checkpoint-1"):
        model = load_adapter(job.source, job.foreign.adapter, dtype=job.settings.dtype)
        moments = foreign_moments(model, job.foreign.optimizer) if job.foreign.optimizer else ({}, {})

        def write(folder: Path) -> None:
            folder.mkdir()
            save_adapter(model, folder)
            save_moments(folder, *moments)

        run.write("checkpoint-1", write)
    return [Checkpoint(run.path("checkpoint-1"), 1.0)]


def chosen_checkpoints(listed: str, count: int) -> list[int]:
    """``all``, ``last`` or ``1,3`` as places among ``count`` checkpoints."""
    if listed in ("all", "last"):
        return list(range(count)) if listed == "all" else [count - 1]
    numbers = [int(part) for part in listed.split(",") if re.fullmatch(r"\s*\d{1,6}\s*", part)]
    if len(numbers) != listed.count(",") + 1 or not all(1 <= n <= count for n in numbers):
        raise UsageError(f"--checkpoints {listed} is not among {count} checkpoints", hint="all, last, or such as 1,3")
    return sorted({n - 1 for n in numbers})

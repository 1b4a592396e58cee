"""Selections judged by what they are for: the model tuned on them, its answers to other prompts, and the metric.

Every method's rows are tuned on from the untuned model by one recipe, over the same seeds. Knows jobs, training and
rewards. Does not know how selections come about.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from icml25cli.core.checkpoint import model_files
from icml25cli.core.files import write_json
from icml25cli.papers.select_data.adapters import adapted
from icml25cli.papers.select_data.answers import DRAWN_TOKENS
from icml25cli.papers.select_data.job import Job
from icml25cli.papers.select_data.rewards import Asked, Reward, check_failures, judge_all
from icml25cli.papers.select_data.rows import Row
from icml25cli.papers.select_data.sampling import Sampling, draw, prompt_groups
from icml25cli.papers.select_data.training import Recipe, train


@dataclass(frozen=True)
class Trial:
    """How selections are judged."""

    test: tuple[Row, ...]
    sampling: Sampling
    recipe: Recipe


@dataclass(frozen=True)
class Judged:
    """The metric of one model on every test prompt, its mean over the answers drawn."""

    values: Float64[ndarray, " prompts"]
    seconds: float  # of tuning and drawing, when it was done


def judge_selection(job: Job, places: Sequence[int], trial: Trial, reward: Reward, seed: int) -> Judged:
    """Tune on the rows at ``places`` and judge; without any, judge the model as it is."""
    settings = job.settings
    recipe = replace(trial.recipe, seed=seed)
    examples = [job.examples[i] for i in places]
    inputs: dict[str, Any] = {
        "model": model_files(job.source.path),
        "adapter": asdict(settings.adapter),
        "recipe": asdict(recipe) if examples else None,
        "dtype": settings.dtype,
        "rows": [example.fingerprint for example in examples],
        "test": [row.raw for row in trial.test],
        "reward": reward.spec,
        "sampling": asdict(trial.sampling),
        "max length": settings.max_length,
        "seed": seed,
    }
    run = job.space.open("tuned", inputs)
    if not run.has("metric.json"):
        began = time.monotonic()
        model = adapted(job.source, replace(settings.adapter, seed=seed), dtype=settings.dtype, device=job.means.device)
        if examples:
            train(model, examples, recipe, run, f"tuning, seed {seed}")
            for epoch in range(recipe.epochs):
                run.discard(f"checkpoint-{epoch + 1}")
        values = _judged(job, model, trial, reward, seed)
        document = {"values": values, "seconds": time.monotonic() - began}
        run.write("metric.json", lambda path: write_json(path, document))
    held = json.loads(run.path("metric.json").read_text(encoding="utf-8"))
    return Judged(np.array(held["values"]), held["seconds"])


def _judged(job: Job, model: Any, trial: Trial, reward: Reward, seed: int) -> list[float]:
    room = min(trial.sampling.max_new_tokens, job.settings.max_length - 1)
    prompts = [job.coder.prompt(row, room) for row in trial.test]
    asked: list[Asked] = []
    owners: list[int] = []
    for j, places in enumerate(prompt_groups(prompts, trial.sampling.count, DRAWN_TOKENS)):
        some = [prompts[p] for p in places]
        for p, answers in zip(places, draw(model, job.coder, some, trial.sampling, seed * 1_000_003 + j), strict=True):
            asked += [Asked.of(trial.test[p], answer.text) for answer in answers]
            owners += [p] * len(answers)
    values = judge_all(reward, asked)
    check_failures(reward, values)
    means = np.zeros(len(prompts))
    for p in range(len(prompts)):
        mine = np.array([value for value, owner in zip(values, owners, strict=True) if owner == p])
        means[p] = np.nanmean(mine) if not np.isnan(mine).all() else 0.0
    return means.tolist()

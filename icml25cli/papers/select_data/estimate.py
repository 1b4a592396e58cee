"""What a selection will take, from a rehearsal of a few rows: seconds, operations and disk, before it starts.

Knows jobs. Does not know what they are for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from icml25cli.papers.select_data.adapters import adapted, linear_maps
from icml25cli.papers.select_data.gradients import feature_of, row_features
from icml25cli.papers.select_data.job import Job
from icml25cli.papers.select_data.projection import make_projection
from icml25cli.papers.select_data.sampling import draw
from icml25cli.papers.select_data.tokens import Example
from icml25cli.papers.select_data.warmup import chosen_checkpoints

REHEARSED = 8  # rows


@dataclass(frozen=True)
class Stage:
    """Part of the work."""

    stage: str
    rows: int
    tokens: int
    seconds: float
    teraflop: float
    disk_mib: float


def estimate(job: Job) -> list[Stage]:
    """Stages of NICE on ``job``. Seconds are of one process of this machine as busy as it is now.

    Operations are the usual counts: 4 a parameter and token for a gradient with respect to adapters, forward and
    backward, and 2 for a drawn token.
    """
    settings = job.settings
    model = adapted(job.source, settings.adapter, dtype=settings.dtype, device=job.means.device).eval()
    parameters = sum(x.numel() for x in model.parameters())
    sizes = {name: module.weight.numel() for name, module in linear_maps(model).items()}
    projection = make_projection(settings.projector, sizes, settings.projected, settings.seed)
    order = np.random.default_rng(settings.seed).permutation(len(job.examples))[:REHEARSED]
    some = [job.examples[i] for i in order]
    began = time.monotonic()
    row_features(model, some, projection, feature_of("sgd"), mean=True, batch_tokens=settings.recipe.batch_tokens)
    a_token = (time.monotonic() - began) / sum(len(example.tokens) for example in some)
    shortest = min(job.prompts, key=len)
    few = replace(settings.sampling, count=min(8, settings.sampling.count), max_new_tokens=8)
    began = time.monotonic()
    drawn = draw(model, job.coder, [shortest], few, settings.seed)[0]
    # A batch takes about as long whatever its size on a GPU, and a little longer with it on a CPU.
    a_step = (time.monotonic() - began) / max(1, max(len(answer.tokens) for answer in drawn))

    checkpoints = len(chosen_checkpoints(settings.checkpoints, settings.recipe.epochs))
    warm = [job.examples[i] for i in job.warmup_rows]
    answers = len(job.prompts) * settings.sampling.count
    longest = settings.sampling.max_new_tokens
    width = projection.width * 4 / 2**20
    trained = sum(sizes.values()) * 4 / 2**20
    prompts = sum(len(prompt) for prompt in job.prompts)
    answered = settings.sampling.count * prompts + answers * longest

    def gradients(name: str, rows: int, tokens: int, disk: float) -> Stage:
        return Stage(name, rows, tokens, tokens * a_token, 4e-12 * parameters * tokens, disk)

    epochs = settings.recipe.epochs
    steps = longest * -(-answers // few.count)
    return [
        gradients("warm-up", epochs * len(warm), epochs * _tokens(warm), 3 * trained * epochs),
        gradients("pool", checkpoints * len(job.examples), checkpoints * _tokens(job.examples),
                  checkpoints * len(job.examples) * width),
        Stage("answers, at most", checkpoints * answers, checkpoints * answers * longest, checkpoints * steps * a_step,
              2e-12 * parameters * checkpoints * answered, 0.0),
        gradients("gradients of answers, at most", checkpoints * answers, checkpoints * answered,
                  3 * checkpoints * len(job.prompts) * width),
    ]  # fmt: skip


def _tokens(examples: Sequence[Example]) -> int:
    return sum(len(example.tokens) for example in examples)

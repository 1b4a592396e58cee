"""Gradients of the validation rows: of the expected reward, or, as LESS has it, of the losses of reference answers.

Knows the job that it is a stage of. Does not know how rows of the pool are scored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32, Float64
from numpy import ndarray

from icml25cli.core.runs import Run
from icml25cli.papers.select_data.adapters import Checkpoint
from icml25cli.papers.select_data.answers import Drawn
from icml25cli.papers.select_data.rewards import Asked, Reward, judge_all
from icml25cli.papers.select_data.scoring import normalized
from icml25cli.papers.select_data.store import ROWS, block_name, sound_block
from icml25cli.papers.select_data.tokens import Example
from icml25cli.papers.select_data.work import Block, collect

if TYPE_CHECKING:
    from icml25cli.papers.select_data.job import Job

PARTS = ("all", "first half", "second half")  # of the drawn answers, each with a validation gradient


def validation_gradients(job: Job, drawn: Drawn, reward: Reward) -> list[dict[str, Float32[ndarray, "v k"]]]:
    """The policy gradient at every validation prompt, by checkpoint and part of the answers, of length one.

    It is minus the gradient of the expected reward: the way in which losses fall, as rows' own gradients are.
    """
    weights = job.weights(drawn, reward)
    inputs = job.feature_inputs | {
        "prompts": job.prompts,
        "answers": [[[list(a.tokens) for a in some] for some in by_prompt] for by_prompt in drawn.answers],
        "weights": weights,
        "token mean": job.settings.policy.token_mean,
        "protect": job.settings.protect,
    }
    run = job.space.open("policy", inputs)
    most = max(len(some) for by_prompt in drawn.answers for some in by_prompt)
    size = max(1, ROWS // max(1, most))
    groups = [range(i, min(i + size, len(job.prompts))) for i in range(0, len(job.prompts), size)]
    blocks = [
        _policy_block(job, run, i, j, checkpoint, group, drawn, weights[i], reward)
        for i, checkpoint in enumerate(job.checkpoints)
        for j, group in enumerate(groups)
    ]
    collect(blocks, job.means, "gradients of answers, blocks")
    found = []
    for i in range(len(job.checkpoints)):
        parts = [sound_block(run.path(block_name(i, j))).reshape(3, len(group), -1) for j, group in enumerate(groups)]
        joined = np.concatenate(parts, axis=1)
        found.append({name: normalized(joined[p]) for p, name in enumerate(PARTS)})
    return found


def _policy_block(
    job: Job,
    run: Run,
    i: int,
    j: int,
    checkpoint: Checkpoint,
    group: range,
    drawn: Drawn,
    weights: list[Float64[ndarray, "3 m"]],
    reward: Reward,
) -> Block:
    examples: list[Example] = []
    columns: list[tuple[int, Float64[ndarray, " 3"]]] = []
    for place, p in enumerate(group):
        for a, answer in enumerate(drawn.answers[i][p]):
            examples.append(answer.example(job.prompts[p]))
            columns.append((place, weights[p][:, a]))
        if job.settings.protect and not weights[p][0].any() and job.validation[p].conversation.answer:
            row = job.validation[p]
            value = judge_all(reward, [Asked.of(row, row.conversation.answer or "")])[0]
            examples.append(job.coder.example(row))
            columns.append((place, np.full(3, np.nan_to_num(value))))
    combined = np.zeros((3, len(group), len(examples)))
    for column, (place, values) in enumerate(columns):
        combined[:, place, column] = values
    settings = job.settings
    return Block(
        run,
        block_name(i, j),
        job.place(checkpoint),
        tuple(examples),
        "sgd",
        settings.projector,
        settings.projected,
        settings.seed,
        settings.policy.token_mean,
        settings.recipe.batch_tokens,
        combined.reshape(3 * len(group), -1),
    )


def reference_gradients(job: Job) -> list[Float32[ndarray, "v k"]]:
    """LESS's validation gradients: of the reference answers' losses, by checkpoint, of length one.

    Raises:
        InputError: a validation row has no answer.
    """
    job.check_answers()
    examples = tuple(job.coder.example(row) for row in job.validation)
    inputs = job.feature_inputs | {"rows": [example.fingerprint for example in examples]}
    run = job.space.open("reference", inputs)
    settings = job.settings
    starts = range(0, len(examples), ROWS)
    blocks = [
        Block(
            run,
            block_name(i, j),
            job.place(checkpoint),
            examples[start : start + ROWS],
            "sgd",
            settings.projector,
            settings.projected,
            settings.seed,
            True,
            settings.recipe.batch_tokens,
        )
        for i, checkpoint in enumerate(job.checkpoints)
        for j, start in enumerate(starts)
    ]
    collect(blocks, job.means, "gradients of references, blocks")
    return [
        normalized(np.concatenate([sound_block(run.path(block_name(i, j))) for j in range(len(starts))]))
        for i in range(len(job.checkpoints))
    ]

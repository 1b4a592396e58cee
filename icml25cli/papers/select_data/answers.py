"""Answers to the validation prompts at every checkpoint, their rewards, and what each answer then weighs.

Knows the job that it is a stage of, and rewards. Does not know gradients.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from icml25cli.core.errors import CheckFailed, InputError
from icml25cli.core.files import write_json
from icml25cli.core.progress import track
from icml25cli.papers.select_data.rewards import Asked, Reward, check_failures, judge_all
from icml25cli.papers.select_data.sampling import Answer, prompt_groups
from icml25cli.papers.select_data.signal import ADVICE, halves
from icml25cli.papers.select_data.store import held
from icml25cli.papers.select_data.work import Draw, draw_all

if TYPE_CHECKING:
    from icml25cli.papers.select_data.job import Job

DRAWN_TOKENS = 8192  # about so many are in one call that draws


@dataclass(frozen=True)
class Drawn:
    """Answers to the validation prompts at every checkpoint, their rewards, and what they weigh."""

    answers: list[list[list[Answer]]]  # by checkpoint, prompt
    rewards: list[list[Float64[ndarray, " m"]]]  # NaN where one could not be had
    failed: int


def begun(job: Job) -> list[str]:
    """What of its reference answer each prompt is given, with ``guidance`` the first half of its words."""
    if not job.settings.guidance:
        return [""] * len(job.validation)
    found = []
    for row in job.validation:
        words = (row.conversation.answer or "").split(" ")
        found.append(" ".join(words[: len(words) // 2]))
    return found


def prompts(job: Job) -> list[Any]:
    """The validation prompts as tokens, with room for an answer."""
    room = min(job.settings.sampling.max_new_tokens, job.settings.max_length - 1)
    return [job.coder.prompt(row, room, begun) for row, begun in zip(job.validation, job.begun, strict=True)]


def answer_inputs(job: Job) -> dict[str, Any]:
    inputs = {"warm-up": job.warmup_inputs, "checkpoints": job.settings.checkpoints, "prompts": job.prompts}
    if job.given is not None:
        return inputs | {"answers": [list(answers) for answers in job.given]}
    return inputs | {"sampling": asdict(job.settings.sampling), "begun": job.begun}


def answers(job: Job) -> list[list[list[Answer]]]:
    """Answers to every validation prompt, by checkpoint and prompt."""
    if job.given is not None:
        found = [[_encoded(job, text) for text in texts] for texts in job.given]
        return [found] * len(job.checkpoints)
    checkpoints, sampling = job.checkpoints, job.settings.sampling
    run = job.space.open("answers", answer_inputs(job))
    groups = list(prompt_groups(job.prompts, sampling.count, DRAWN_TOKENS))
    draws = [
        Draw(
            run,
            f"answers-{i + 1}-{j:05d}.json",
            job.place(checkpoint),
            job.settings.max_length,
            tuple(job.prompts[p] for p in places),
            tuple(job.begun[p] for p in places),
            sampling,
            sampling.seed + 1_000_003 * i + j,
        )
        for i, checkpoint in enumerate(checkpoints)
        for j, places in enumerate(groups)
    ]
    draw_all(draws, job.means, "answers, groups of prompts")
    by_checkpoint: list[list[list[Answer]]] = []
    for i in range(len(checkpoints)):
        found: list[list[Answer]] = [[] for _ in job.prompts]
        for j, places in enumerate(groups):
            drawn = draws[i * len(groups) + j].done()
            if drawn is None:
                raise InputError(f"{run.directory} has lost answers", hint="repeat the command")
            for place, answers in zip(places, drawn, strict=True):
                found[place] = answers
        by_checkpoint.append(found)
    return by_checkpoint


def _encoded(job: Job, text: str) -> Answer:
    """An answer from elsewhere: its text's tokens and an end, cut where it does not fit."""
    room = max(1, job.settings.max_length - 1)
    ids = [*job.coder.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]]
    kept = [*ids, job.coder.tokenizer.eos_token_id][:room]
    return Answer(tuple(kept), text, len(kept) > len(ids))


def rewarded(job: Job, reward: Reward) -> Drawn:
    """Answers with their rewards.

    Raises:
        InputError: too many rewards cannot be had.
        CheckFailed: all rewards are alike: there is nothing to select by.
    """
    answers = job.answers
    inputs = answer_inputs(job) | {"reward": reward.spec, "rows": [row.raw for row in job.validation]}
    if reward.files:
        inputs |= {"reward files": list(reward.files)}
    run = job.space.open("rewards", inputs)
    found: list[list[Float64[ndarray, " m"]]] = []
    for i, by_prompt in enumerate(answers):
        rewards = []
        for j, (row, some) in enumerate(zip(track(job.validation, "rewards, prompts"), by_prompt, strict=True)):
            unit = f"rewards-{i + 1}-{j:05d}.json"
            values = held(run, unit, lambda document: np.array(document, np.float64))
            if values is None or values.shape != (len(some),) or not np.isfinite(values).all():
                values = np.array(judge_all(reward, [Asked.of(row, answer.text) for answer in some]))
                run.discard(unit)
                if np.isfinite(values).all():  # one that could not be had is asked for again, next time
                    run.write(unit, lambda path, known=values: write_json(path, known.tolist()))
            rewards.append(values)
        found.append(rewards)
    values = np.concatenate([rewards for by_prompt in found for rewards in by_prompt])
    failed = check_failures(reward, values.tolist())
    known = values[~np.isnan(values)]
    if not len(known) or np.ptp(known) == 0:
        alike = f"all {len(values)} answers have the reward {known[0]:g}" if len(known) else "no answer has a reward"
        raise CheckFailed(f"no reward signal: {alike}", hint=ADVICE)
    return Drawn(answers, found, failed)


def weights(job: Job, drawn: Drawn, reward: Reward) -> list[list[Float64[ndarray, "3 m"]]]:
    """What every answer weighs, in all and in either half of the answers, by checkpoint and prompt."""
    policy = job.settings.policy
    references: list[float | None] = [None] * len(job.validation)
    if policy.needs_reference or job.settings.protect:
        job.check_policy()
        asked = [Asked.of(row, row.conversation.answer or "") for row in job.validation]
        references = [None if np.isnan(value) else value for value in judge_all(reward, asked)]
    found = []
    for by_prompt in drawn.rewards:
        rows = []
        for rewards, reference in zip(by_prompt, references, strict=True):
            weights = np.zeros((3, len(rewards)))
            for part, mask in enumerate((np.ones(len(rewards), bool), *halves(len(rewards)))):
                known = mask & ~np.isnan(rewards)
                if known.any():
                    chosen = policy
                    if policy.pass_at:  # of half the answers there may not be so many
                        chosen = replace(policy, pass_at=min(policy.pass_at, int(known.sum())))
                    weights[part, known] = chosen.weights(rewards[known], reference)
            rows.append(weights)
        found.append(rows)
    return found

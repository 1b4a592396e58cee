"""Selections by every method, on the same rows and at the same budget.

Knows the job, the baselines and scores. Does not know how a selection is judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from icml25cli.core.errors import UsageError
from icml25cli.core.models import load_model
from icml25cli.papers.select_data import baselines
from icml25cli.papers.select_data.job import Job
from icml25cli.papers.select_data.rewards import Reward, check_references
from icml25cli.papers.select_data.scoring import Scores, diverse, normalized, top
from icml25cli.papers.select_data.signal import Signal, measure, overlap
from icml25cli.papers.select_data.store import ROWS, read_block
from icml25cli.papers.select_data.validation import PARTS

METHODS = ("nice", "less", "random", "bm25", "dsir", "rds", "loss", "length", "full")
WIDER = 5  # times the budget: the candidates of a diverse selection


@dataclass(frozen=True)
class Choice:
    """How scores become a selection; beyond the paper but for the budget."""

    rows: int
    dedupe: bool = False
    diversity: bool = False
    per_source: float | None = None  # largest share of one file


@dataclass(frozen=True)
class Selection:
    """What one method picks: places in the pool, best first."""

    method: str
    places: Int64[ndarray, " k"]
    scores: Scores
    seconds: float
    signal: Signal | None = None  # of NICE
    notes: tuple[str, ...] = field(default=())


def check_methods(job: Job, methods: Sequence[str], reward: Reward | None) -> None:
    """Refuse, before any work, what one of the methods cannot do.

    Raises:
        UsageError: NICE has no reward.
        InputError: a validation or test row lacks an answer that LESS, a reward or a policy needs.
    """
    if "nice" in methods:
        if reward is None:
            raise UsageError("--method nice needs a --reward", hint="such as exact, json-valid or length:max=50")
        job.check_policy()
    if reward is not None:
        check_references(reward, [*job.validation, *job.test])
    if "less" in methods:
        job.check_answers()


def select(job: Job, method: str, choice: Choice, reward: Reward | None, *, seed: int | None = None) -> Selection:
    """The rows that ``method`` picks.

    Args:
        reward: for NICE.
        seed: of methods that draw; the job's without.

    Raises:
        UsageError: NICE has no reward.
        CheckFailed: all rewards are alike.
        InputError: LESS has a validation row without an answer, or the budget cannot be met.
    """
    began = time.monotonic()
    seed = job.settings.seed if seed is None else seed
    check_methods(job, [method], reward)
    if method == "nice":
        assert reward
        return _nice(job, choice, reward, began)
    if method == "full":
        scores = _plain(np.zeros(len(job.pool.rows), np.float32))
        return Selection(method, np.arange(len(job.pool.rows)), scores, time.monotonic() - began)
    scores = _SCORED[method](job, seed)
    return Selection(method, _take(job, scores, choice), scores, time.monotonic() - began)


def _nice(job: Job, choice: Choice, reward: Reward, began: float) -> Selection:
    drawn = job.rewarded(reward)
    weights = job.weights(drawn, reward)
    scores = job.scores(job.validation_gradients(drawn, reward))
    places = {part: _take(job, scores[part], choice) for part in PARTS}
    signal = measure(
        [rewards for by_prompt in drawn.rewards for rewards in by_prompt],
        [w[0] for by_prompt in weights for w in by_prompt],
        [[answer.finished for answer in some] for by_prompt in drawn.answers for some in by_prompt],
        drawn.failed,
        overlap(places[PARTS[1]], places[PARTS[2]]) if drawn.answers[0] and len(drawn.answers[0][0]) > 1 else None,
    )
    notes = [reward.note] if reward.note else []
    if job.given:
        notes.append(
            "Answers are not of the model that is tuned, and no importance weights correct for it: off-policy."
        )
    elif not job.settings.sampling.unbiased:
        notes.append("Filters of drawing bias the gradient a little; --temperature 1 --top-k 0 --top-p 1 does without.")
    return Selection("nice", places["all"], scores["all"], time.monotonic() - began, signal, tuple(notes))


def _take(job: Job, scores: Scores, choice: Choice) -> Int64[ndarray, " k"]:
    rows = job.pool.rows
    groups = [row.source for row in rows] if choice.per_source is not None else None
    distinct = [row.raw for row in rows] if choice.dedupe else None
    if not choice.diversity:
        return top(scores.total, choice.rows, groups=groups, cap=choice.per_source, distinct=distinct)
    wide = min(WIDER * choice.rows, len(rows))
    cap = None if choice.per_source is None else min(1.0, WIDER * choice.per_source)
    candidates = top(scores.total, wide, groups=groups, cap=cap, distinct=distinct)
    files = job.gradients()[-1]
    blocks: dict[int, Any] = {int(j): read_block(files[j]) for j in np.unique(candidates // ROWS)}
    features = np.stack([blocks[i // ROWS][i % ROWS] for i in candidates.tolist()])
    return candidates[diverse(normalized(features), scores.total[candidates], choice.rows)]


def _plain(total: Float32[ndarray, " n"]) -> Scores:
    """Scores of a method that knows neither subtasks nor checkpoints."""
    return Scores(total, np.zeros(len(total), np.int64), total[:, None])


def _by_subtask(job: Job, values: Float32[ndarray, "n v"]) -> Scores:
    means = job.subtasks.means(values)
    return Scores(means.max(1), means.argmax(1), means.max(1)[:, None])


def _less(job: Job, seed: int) -> Scores:
    return job.scores([{"all": gradients} for gradients in job.reference_gradients()])["all"]


def _rds(job: Job, seed: int) -> Scores:
    model = load_model(job.source, dtype=job.settings.dtype, device=job.means.device)
    tokens = job.settings.recipe.batch_tokens
    asked = [job.coder.example(row) if row.conversation.answer else job.coder.asked(row) for row in job.validation]
    mine, theirs = (baselines.states(model, examples, tokens) for examples in (job.examples, asked))
    return _by_subtask(job, mine @ theirs.T)


def _loss(job: Job, seed: int) -> Scores:
    model = load_model(job.source, dtype=job.settings.dtype, device=job.means.device)
    return _plain(baselines.losses(model, job.examples, job.settings.recipe.batch_tokens))


def _texts(job: Job) -> tuple[list[str], list[str]]:
    return [row.conversation.text for row in job.pool.rows], [row.conversation.text for row in job.validation]


_SCORED: dict[str, Callable[[Job, int], Scores]] = {
    "less": _less,
    "random": lambda job, seed: _plain(baselines.chance(len(job.pool.rows), seed)),
    "bm25": lambda job, seed: _by_subtask(job, baselines.bm25(*_texts(job))),
    "dsir": lambda job, seed: _plain(baselines.dsir(*_texts(job), seed)),
    "rds": _rds,
    "loss": _loss,
    "length": lambda job, seed: _plain(baselines.answer_lengths(job.examples)),
}

"""The stages of a selection on a user's data: warm-up, gradients of the pool, answers, rewards, validation gradients.

Each stage continues what an earlier call with the same inputs finished. Knows all of the method's parts. Does not know
what else there is to select by, nor the command line.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64
from numpy import ndarray

from icml25cli.core.checkpoint import model_files
from icml25cli.core.errors import CheckFailed, InputError, UsageError
from icml25cli.core.files import write_json
from icml25cli.core.models import ModelSource, load_tokenizer
from icml25cli.core.progress import track, warn
from icml25cli.core.runs import Run
from icml25cli.papers.select_data.adapters import (
    Checkpoint,
    adapted,
    foreign_moments,
    load_adapter,
    save_adapter,
    save_moments,
)
from icml25cli.papers.select_data.rewards import Asked, Reward, check_failures, judge_all
from icml25cli.papers.select_data.rows import Pool, Row
from icml25cli.papers.select_data.sampling import Answer, prompt_groups
from icml25cli.papers.select_data.scoring import Scores, Subtasks, influence, normalized, score
from icml25cli.papers.select_data.signal import ADVICE, halves
from icml25cli.papers.select_data.store import ROWS, block_name, held, sound_block
from icml25cli.papers.select_data.tokens import Coder, Example
from icml25cli.papers.select_data.training import checkpoint_weights, shares, train
from icml25cli.papers.select_data.work import Block, Draw, Place, collect, draw_all
from icml25cli.papers.select_data.workspace import Means, Settings, Workspace

PARTS = ("all", "first half", "second half")  # of the drawn answers, each with a validation gradient
DRAWN_TOKENS = 8192  # about so many are in one call that draws


@dataclass(frozen=True)
class Foreign:
    """An adapter trained elsewhere, instead of the warm-up."""

    adapter: Path
    optimizer: Path | None  # transformers' optimizer.pt; without it features cannot be Adam's


@dataclass(frozen=True)
class Drawn:
    """Answers to the validation prompts at every checkpoint, their rewards, and what they weigh."""

    answers: list[list[list[Answer]]]  # by checkpoint, prompt
    rewards: list[list[Float64[ndarray, " m"]]]  # NaN where one could not be had
    failed: int


class Job:
    """One selection. Stages are methods; each calls the ones it needs."""

    def __init__(
        self,
        source: ModelSource,
        pool: Pool,
        validation: Sequence[Row],
        subtasks: Subtasks,
        settings: Settings,
        space: Workspace,
        means: Means,
        *,
        foreign: Foreign | None = None,
        given: Sequence[Sequence[str]] | None = None,
        test: Sequence[Row] = (),
    ) -> None:
        """
        Args:
            given: answers of another model to each validation prompt, instead of drawn ones.
            test: rows to judge tuned models by.
        """
        self.source, self.pool, self.validation, self.subtasks = source, pool, list(validation), subtasks
        self.settings, self.space, self.means = settings, space, means
        self.test = tuple(test)
        self._foreign, self.given = foreign, given
        if foreign and foreign.optimizer is None and settings.precondition == "adam":
            raise UsageError("--adapter needs --optimizer for Adam's features", hint="or use --precond sgd")

    @cached_property
    def coder(self) -> Coder:
        return Coder(load_tokenizer(self.source), self.settings.max_length)

    @cached_property
    def examples(self) -> list[Example]:
        """The pool as tokens."""
        found = [self.coder.example(row) for row in self.pool.rows]
        if cut := sum(example.cut for example in found):
            warn(f"{cut} of {len(found)} rows are longer than {self.settings.max_length} tokens and lose the beginning "
                 "of their prompt")  # fmt: skip
        return found

    # --- warm-up -------------------------------------------------------------------------------------------------

    @cached_property
    def warmup_rows(self) -> list[int]:
        """Places of the rows that the warm-up sees, drawn by the seed."""
        n = len(self.pool.rows)
        count = max(1, round(self.settings.warmup_fraction * n))
        return np.random.default_rng(self.settings.seed).permutation(n)[:count].tolist()

    @cached_property
    def _warmup_inputs(self) -> dict[str, Any]:
        model = {"model": model_files(self.source.path), "dtype": self.settings.dtype}
        if self._foreign:
            optimizer = self._foreign.optimizer
            return model | {"adapter": sorted(self._foreign.adapter.glob("adapter_*")), "optimizer": optimizer}
        recipe = asdict(self.settings.recipe)
        examples = [self.examples[i].fingerprint for i in self.warmup_rows]
        return model | {"adapter": asdict(self.settings.adapter), "recipe": recipe, "rows": examples}

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints that count, their weights summing to one."""
        run = self.space.open("warmup", self._warmup_inputs)
        found = self._bring(run) if self._foreign else self._warm_up(run)
        chosen = [found[i] for i in chosen_checkpoints(self.settings.checkpoints, len(found))]
        weights = shares([checkpoint.weight for checkpoint in chosen])
        return [replace(checkpoint, weight=w) for checkpoint, w in zip(chosen, weights, strict=True)]

    def _warm_up(self, run: Run) -> list[Checkpoint]:
        settings, recipe = self.settings, self.settings.recipe
        names = [f"checkpoint-{i + 1}" for i in range(recipe.epochs)]
        if all(map(run.has, names)):  # no need for the model
            each = -(-len(self.warmup_rows) // min(recipe.batch_size, len(self.warmup_rows)))
            ends = [each * (i + 1) for i in range(recipe.epochs)]
            weights = checkpoint_weights(ends, ends[-1], recipe.rising, recipe.learning_rate)
            return [Checkpoint(run.path(name), w) for name, w in zip(names, weights, strict=True)]
        model = adapted(self.source, settings.adapter, dtype=settings.dtype, device=self.means.device)
        return train(model, [self.examples[i] for i in self.warmup_rows], recipe, run, "warm-up")

    def _bring(self, run: Run) -> list[Checkpoint]:
        """Check an adapter trained elsewhere, with its moments, and keep both as a checkpoint of ours."""
        assert self._foreign
        if not run.has("checkpoint-1"):
            model = load_adapter(self.source, self._foreign.adapter, dtype=self.settings.dtype)
            moments = foreign_moments(model, self._foreign.optimizer) if self._foreign.optimizer else ({}, {})

            def write(folder: Path) -> None:
                folder.mkdir()
                save_adapter(model, folder)
                save_moments(folder, *moments)

            run.write("checkpoint-1", write)
        return [Checkpoint(run.path("checkpoint-1"), 1.0)]

    def _place(self, checkpoint: Checkpoint) -> Place:
        return Place(self.source, checkpoint, self.settings.dtype, self.means.device)

    @property
    def _feature_inputs(self) -> dict[str, Any]:
        """What every feature depends on beside its row."""
        settings = self.settings
        projection = {"projector": settings.projector, "projected": settings.projected, "seed": settings.seed}
        return {"warm-up": self._warmup_inputs, "checkpoints": settings.checkpoints, "projection": projection}

    # --- gradients of the pool -------------------------------------------------------------------------------------

    @property
    def block_count(self) -> int:
        return -(-len(self.pool.rows) // ROWS)

    def gradients(self, shard: tuple[int, int] = (1, 1)) -> list[list[Path]]:
        """Features of all rows: for each checkpoint the files of its blocks.

        Args:
            shard: i of n: only every n-th block from the i-th, kept beside the whole's directory. Whoever asks for
                the whole takes over what shards have finished.
        """
        settings = self.settings
        inputs = self._feature_inputs | {
            "precondition": settings.precondition,
            "rows": [example.fingerprint for example in self.examples],
        }
        part = "" if shard == (1, 1) else f".{shard[0]}of{shard[1]}"
        checkpoints = self.checkpoints
        run = self.space.open("grads", inputs, part)
        if not part:
            _take_over(run)
        blocks = [
            Block(
                run,
                block_name(i, j),
                self._place(checkpoint),
                tuple(self.examples[j * ROWS : (j + 1) * ROWS]),
                settings.precondition,
                settings.projector,
                settings.projected,
                settings.seed,
                True,
                settings.recipe.batch_tokens,
            )
            for i, checkpoint in enumerate(checkpoints)
            for j in range(self.block_count)
            if j % shard[1] == shard[0] - 1
        ]
        collect(blocks, self.means, "gradients of the pool, blocks")
        return [[run.path(block_name(i, j)) for j in range(self.block_count)] for i in range(len(checkpoints))]

    def check_answers(self) -> None:
        """Refuse validation rows whose answers LESS would be about.

        Raises:
            InputError: a row has no answer.
        """
        for row in self.validation:
            if not (row.conversation.answer or "").strip():
                raise InputError(
                    f"{row.place} has no answer, and LESS is about the loss of answers",
                    hint="give every validation row an answer, or use --method nice, which needs none",
                )

    def check_policy(self) -> None:
        """Refuse validation rows whose answers the policy compares with.

        Raises:
            InputError: a row has no answer.
        """
        name = self.settings.policy.name
        missing = next((row for row in self.validation if row.conversation.answer is None), None)
        if missing and self.settings.policy.needs_reference:
            raise InputError(
                f"{missing.place} has no answer, and --policy {name} compares with it",
                hint="use --policy vanilla or rejection",
            )

    # --- answers and rewards -----------------------------------------------------------------------------------------

    @cached_property
    def begun(self) -> list[str]:
        """What of its reference answer each prompt is given, with ``guidance`` the first half of its words."""
        if not self.settings.guidance:
            return [""] * len(self.validation)
        found = []
        for row in self.validation:
            words = (row.conversation.answer or "").split(" ")
            found.append(" ".join(words[: len(words) // 2]))
        return found

    @cached_property
    def prompts(self) -> list[Any]:
        """The validation prompts as tokens, with room for an answer."""
        room = min(self.settings.sampling.max_new_tokens, self.settings.max_length - 1)
        return [self.coder.prompt(row, room, begun) for row, begun in zip(self.validation, self.begun, strict=True)]

    @property
    def _answer_inputs(self) -> dict[str, Any]:
        inputs = {"warm-up": self._warmup_inputs, "checkpoints": self.settings.checkpoints, "prompts": self.prompts}
        if self.given is not None:
            return inputs | {"answers": [list(answers) for answers in self.given]}
        return inputs | {"sampling": asdict(self.settings.sampling), "begun": self.begun}

    @cached_property
    def answers(self) -> list[list[list[Answer]]]:
        """Answers to every validation prompt, by checkpoint and prompt."""
        if self.given is not None:
            found = [[self._encoded(text) for text in texts] for texts in self.given]
            return [found] * len(self.checkpoints)
        checkpoints, sampling = self.checkpoints, self.settings.sampling
        run = self.space.open("answers", self._answer_inputs)
        groups = list(prompt_groups(self.prompts, sampling.count, DRAWN_TOKENS))
        draws = [
            Draw(
                run,
                f"answers-{i + 1}-{j:05d}.json",
                self._place(checkpoint),
                self.settings.max_length,
                tuple(self.prompts[p] for p in places),
                tuple(self.begun[p] for p in places),
                sampling,
                sampling.seed + 1_000_003 * i + j,
            )
            for i, checkpoint in enumerate(checkpoints)
            for j, places in enumerate(groups)
        ]
        draw_all(draws, self.means, "answers, groups of prompts")
        by_checkpoint: list[list[list[Answer]]] = []
        for i in range(len(checkpoints)):
            found: list[list[Answer]] = [[] for _ in self.prompts]
            for j, places in enumerate(groups):
                drawn = draws[i * len(groups) + j].done()
                if drawn is None:
                    raise InputError(f"{run.directory} has lost answers", hint="repeat the command")
                for place, answers in zip(places, drawn, strict=True):
                    found[place] = answers
            by_checkpoint.append(found)
        return by_checkpoint

    def _encoded(self, text: str) -> Answer:
        """An answer from elsewhere: its text's tokens and an end, cut where it does not fit."""
        room = max(1, self.settings.max_length - 1)
        ids = [*self.coder.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]]
        kept = [*ids, self.coder.tokenizer.eos_token_id][:room]
        return Answer(tuple(kept), text, len(kept) > len(ids))

    def rewarded(self, reward: Reward) -> Drawn:
        """Answers with their rewards.

        Raises:
            InputError: too many rewards cannot be had.
            CheckFailed: all rewards are alike: there is nothing to select by.
        """
        answers = self.answers
        inputs = self._answer_inputs | {"reward": reward.spec, "rows": [row.raw for row in self.validation]}
        if reward.files:
            inputs |= {"reward files": list(reward.files)}
        run = self.space.open("rewards", inputs)
        found: list[list[Float64[ndarray, " m"]]] = []
        for i, by_prompt in enumerate(answers):
            rewards = []
            for j, (row, some) in enumerate(zip(track(self.validation, "rewards, prompts"), by_prompt, strict=True)):
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
            alike = (
                f"all {len(values)} answers have the reward {known[0]:g}" if len(known) else "no answer has a reward"
            )
            raise CheckFailed(f"no reward signal: {alike}", hint=ADVICE)
        return Drawn(answers, found, failed)

    def weights(self, drawn: Drawn, reward: Reward) -> list[list[Float64[ndarray, "3 m"]]]:
        """What every answer weighs, in all and in either half of the answers, by checkpoint and prompt."""
        policy = self.settings.policy
        references: list[float | None] = [None] * len(self.validation)
        if policy.needs_reference or self.settings.protect:
            self.check_policy()
            asked = [Asked.of(row, row.conversation.answer or "") for row in self.validation]
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

    # --- validation gradients ----------------------------------------------------------------------------------------

    def validation_gradients(self, drawn: Drawn, reward: Reward) -> list[dict[str, Float32[ndarray, "v k"]]]:
        """The policy gradient at every validation prompt, by checkpoint and part of the answers, of length one.

        It is minus the gradient of the expected reward: the way in which losses fall, as rows' own gradients are.
        """
        weights = self.weights(drawn, reward)
        inputs = self._feature_inputs | {
            "prompts": self.prompts,
            "answers": [[[list(a.tokens) for a in some] for some in by_prompt] for by_prompt in drawn.answers],
            "weights": weights,
            "token mean": self.settings.policy.token_mean,
            "protect": self.settings.protect,
        }
        run = self.space.open("policy", inputs)
        most = max(len(some) for by_prompt in drawn.answers for some in by_prompt)
        size = max(1, ROWS // max(1, most))
        groups = [range(i, min(i + size, len(self.prompts))) for i in range(0, len(self.prompts), size)]
        blocks = [
            self._policy_block(run, i, j, checkpoint, group, drawn, weights[i], reward)
            for i, checkpoint in enumerate(self.checkpoints)
            for j, group in enumerate(groups)
        ]
        collect(blocks, self.means, "gradients of answers, blocks")
        found = []
        for i in range(len(self.checkpoints)):
            parts = [
                sound_block(run.path(block_name(i, j))).reshape(3, len(group), -1) for j, group in enumerate(groups)
            ]
            joined = np.concatenate(parts, axis=1)
            found.append({name: normalized(joined[p]) for p, name in enumerate(PARTS)})
        return found

    def _policy_block(
        self,
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
                examples.append(answer.example(self.prompts[p]))
                columns.append((place, weights[p][:, a]))
            if self.settings.protect and not weights[p][0].any() and self.validation[p].conversation.answer:
                row = self.validation[p]
                value = judge_all(reward, [Asked.of(row, row.conversation.answer or "")])[0]
                examples.append(self.coder.example(row))
                columns.append((place, np.full(3, np.nan_to_num(value))))
        combined = np.zeros((3, len(group), len(examples)))
        for column, (place, values) in enumerate(columns):
            combined[:, place, column] = values
        settings = self.settings
        return Block(
            run,
            block_name(i, j),
            self._place(checkpoint),
            tuple(examples),
            "sgd",
            settings.projector,
            settings.projected,
            settings.seed,
            settings.policy.token_mean,
            settings.recipe.batch_tokens,
            combined.reshape(3 * len(group), -1),
        )

    def reference_gradients(self) -> list[Float32[ndarray, "v k"]]:
        """LESS's validation gradients: of the reference answers' losses, by checkpoint, of length one.

        Raises:
            InputError: a validation row has no answer.
        """
        self.check_answers()
        examples = tuple(self.coder.example(row) for row in self.validation)
        inputs = self._feature_inputs | {"rows": [example.fingerprint for example in examples]}
        run = self.space.open("reference", inputs)
        settings = self.settings
        starts = range(0, len(examples), ROWS)
        blocks = [
            Block(
                run,
                block_name(i, j),
                self._place(checkpoint),
                examples[start : start + ROWS],
                "sgd",
                settings.projector,
                settings.projected,
                settings.seed,
                True,
                settings.recipe.batch_tokens,
            )
            for i, checkpoint in enumerate(self.checkpoints)
            for j, start in enumerate(starts)
        ]
        collect(blocks, self.means, "gradients of references, blocks")
        return [
            normalized(np.concatenate([sound_block(run.path(block_name(i, j))) for j in range(len(starts))]))
            for i in range(len(self.checkpoints))
        ]

    # --- scores ------------------------------------------------------------------------------------------------------

    def scores(self, validation: Sequence[dict[str, Float32[ndarray, "v k"]]]) -> dict[str, Scores]:
        """Scores of every row of the pool by each of several validation gradients, given by checkpoint and name."""
        files = self.gradients()
        means: dict[str, list[Any]] = {name: [] for name in validation[0]}
        for i, checkpoint in enumerate(self.checkpoints):
            by_block: dict[str, list[Any]] = {name: [] for name in means}
            for file in files[i]:
                block = sound_block(file)
                for name, gradients in validation[i].items():
                    values = influence(block, gradients, checkpoint.weight)
                    by_block[name].append(self.subtasks.means(values))
            for name, parts in by_block.items():
                means[name].append(np.concatenate(parts))
        return {name: score(parts) for name, parts in means.items()}

    def pulls(self, place: int, validation: Sequence[dict[str, Float32[ndarray, "v k"]]]) -> Float32[ndarray, " v"]:
        """How much each validation prompt asks for one row of the pool: its influence, summed over checkpoints."""
        files = self.gradients()
        total = np.zeros(len(self.validation), np.float32)
        for i, checkpoint in enumerate(self.checkpoints):
            row = sound_block(files[i][place // ROWS])[place % ROWS][None]
            total += influence(row, validation[i]["all"], checkpoint.weight)[0]
        return total


def chosen_checkpoints(listed: str, count: int) -> list[int]:
    """``all``, ``last`` or ``1,3`` as places among ``count`` checkpoints."""
    if listed in ("all", "last"):
        return list(range(count)) if listed == "all" else [count - 1]
    numbers = [int(part) for part in listed.split(",") if re.fullmatch(r"\s*\d{1,6}\s*", part)]
    if len(numbers) != listed.count(",") + 1 or not all(1 <= n <= count for n in numbers):
        raise UsageError(f"--checkpoints {listed} is not among {count} checkpoints", hint="all, last, or such as 1,3")
    return sorted({n - 1 for n in numbers})


def _take_over(run: Run) -> None:
    """Move blocks that shards finished, in directories beside this run's, into it."""
    for shard in sorted(run.directory.parent.glob(f"{run.directory.name}.*of*")):
        for unit in sorted((shard / "units").glob("grads-*.safetensors")):
            if not run.has(unit.name):
                run.write(unit.name, lambda path, unit=unit: shutil.copyfile(unit, path))

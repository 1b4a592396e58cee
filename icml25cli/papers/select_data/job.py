"""The stages of a selection on a user's data: warm-up, gradients of the pool, answers, rewards, validation gradients.

Each stage continues what an earlier call with the same inputs finished. Knows all of the method's parts. Does not know
what else there is to select by, nor the command line.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64
from numpy import ndarray

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.models import ModelSource, load_tokenizer
from icml25cli.core.progress import warn
from icml25cli.core.runs import Run
from icml25cli.papers.select_data import answers, validation, warmup
from icml25cli.papers.select_data.adapters import Checkpoint
from icml25cli.papers.select_data.answers import Drawn
from icml25cli.papers.select_data.rewards import Reward
from icml25cli.papers.select_data.rows import Pool, Row
from icml25cli.papers.select_data.sampling import Answer
from icml25cli.papers.select_data.scoring import Scores, Subtasks, influence, score
from icml25cli.papers.select_data.store import ROWS, block_name, sound_block
from icml25cli.papers.select_data.tokens import Coder, Example
from icml25cli.papers.select_data.warmup import Foreign
from icml25cli.papers.select_data.work import Block, Place, collect
from icml25cli.papers.select_data.workspace import Means, Settings, Workspace


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
        self.foreign, self.given = foreign, given
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
        return warmup.warmup_rows(self)

    @cached_property
    def warmup_inputs(self) -> dict[str, Any]:
        """What the warm-up depends on."""
        return warmup.warmup_inputs(self)

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints that count, their weights summing to one."""
        return warmup.checkpoints(self)

    def place(self, checkpoint: Checkpoint) -> Place:
        return Place(self.source, checkpoint, self.settings.dtype, self.means.device)

    @property
    def feature_inputs(self) -> dict[str, Any]:
        """What every feature depends on beside its row."""
        settings = self.settings
        projection = {"projector": settings.projector, "projected": settings.projected, "seed": settings.seed}
        return {"warm-up": self.warmup_inputs, "checkpoints": settings.checkpoints, "projection": projection}

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
        inputs = self.feature_inputs | {
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
                self.place(checkpoint),
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
        """What of its reference answer each prompt is given."""
        return answers.begun(self)

    @cached_property
    def prompts(self) -> list[Any]:
        """The validation prompts as tokens, with room for an answer."""
        return answers.prompts(self)

    @cached_property
    def answers(self) -> list[list[list[Answer]]]:
        """Answers to every validation prompt, by checkpoint and prompt."""
        return answers.answers(self)

    def rewarded(self, reward: Reward) -> Drawn:
        """Answers with their rewards, see ``answers.rewarded``."""
        return answers.rewarded(self, reward)

    def weights(self, drawn: Drawn, reward: Reward) -> list[list[Float64[ndarray, "3 m"]]]:
        """What every answer weighs, in all and in either half of the answers, by checkpoint and prompt."""
        return answers.weights(self, drawn, reward)

    # --- validation gradients ----------------------------------------------------------------------------------------

    def validation_gradients(self, drawn: Drawn, reward: Reward) -> list[dict[str, Float32[ndarray, "v k"]]]:
        """The policy gradient at every validation prompt, by checkpoint and part of the answers, of length one."""
        return validation.validation_gradients(self, drawn, reward)

    def reference_gradients(self) -> list[Float32[ndarray, "v k"]]:
        """LESS's validation gradients, by checkpoint, of length one, see ``validation.reference_gradients``."""
        return validation.reference_gradients(self)

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


def _take_over(run: Run) -> None:
    """Move blocks that shards finished, in directories beside this run's, into it."""
    for shard in sorted(run.directory.parent.glob(f"{run.directory.name}.*of*")):
        for unit in sorted((shard / "units").glob("grads-*.safetensors")):
            if not run.has(unit.name):
                run.write(unit.name, lambda path, unit=unit: shutil.copyfile(unit, path))

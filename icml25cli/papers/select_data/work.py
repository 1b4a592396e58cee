"""Units of work that any process can do alone: features of a block of rows, answers to a group of prompts.

A process keeps the model it used last. Knows adapters, gradients and sampling. Does not know what the results are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int32
from numpy import ndarray

from icml25cli.core.files import write_json
from icml25cli.core.models import ModelSource, load_tokenizer
from icml25cli.core.parallel import parallel_map
from icml25cli.core.progress import warn
from icml25cli.core.runs import Run
from icml25cli.papers.select_data.adapters import Checkpoint, linear_maps, load_adapter
from icml25cli.papers.select_data.gradients import feature_of, row_features
from icml25cli.papers.select_data.projection import make_projection
from icml25cli.papers.select_data.sampling import Answer, Sampling, draw
from icml25cli.papers.select_data.store import held, is_sound, write_block
from icml25cli.papers.select_data.tokens import Coder, Example
from icml25cli.papers.select_data.workspace import Means


@dataclass(frozen=True)
class Place:
    """A model at a checkpoint, and where it computes."""

    source: ModelSource
    checkpoint: Checkpoint
    dtype: str
    device: str

    def model(self) -> Any:
        """The adapted model, loaded once as long as the process stays with it."""
        key = (str(self.source.path), str(self.checkpoint.folder), self.dtype, self.device)
        if key not in _loaded:
            _loaded.clear()
            _loaded[key] = load_adapter(self.source, self.checkpoint.folder, dtype=self.dtype, device=self.device)
        return _loaded[key]


_loaded: dict[Any, Any] = {}
_projections: dict[Any, Any] = {}


@dataclass(frozen=True)
class Block:
    """Features of some rows, to be written as one unit."""

    run: Run
    unit: str
    place: Place
    examples: tuple[Example, ...]
    kind: str  # of feature: adam, sgd or sign
    projector: str
    width: int
    seed: int
    mean: bool
    batch_tokens: int
    combined: Float64[ndarray, "out rows"] | None = None  # sums of features to keep instead of them

    def carry_out(self) -> None:
        model = self.place.model()
        sizes = {name: module.weight.numel() for name, module in linear_maps(model).items()}
        key = (self.projector, self.width, self.seed, tuple(sizes.items()))
        if key not in _projections:
            _projections.clear()
            _projections[key] = make_projection(self.projector, sizes, self.width, self.seed)
        projection = _projections[key]
        used = range(len(self.examples)) if self.combined is None else np.flatnonzero(self.combined.any(0)).tolist()
        features = np.zeros((len(self.examples), projection.width), np.float32)
        if len(used):
            feature = feature_of(self.kind, self.place.checkpoint, self.place.device)
            rows = [self.examples[i] for i in used]
            found = row_features(
                model, rows, projection, feature, mean=self.mean, batch_tokens=self.batch_tokens
            ).numpy()
            if bad := int((~np.isfinite(found).all(1)).sum()):
                warn(f"{bad} gradients were not finite and count as zero")
                found[~np.isfinite(found).all(1)] = 0.0
            features[used] = found
        if self.combined is not None:
            features = np.asarray(self.combined @ features.astype(np.float64), np.float32)
        write_block(self.run, self.unit, features)


def collect(blocks: Sequence[Block], means: Means, description: str) -> None:
    """Do the blocks that are not there yet, or are damaged."""
    waiting = [block for block in blocks if not is_sound(block.run, block.unit)]
    if waiting:
        parallel_map(Block.carry_out, waiting, means.jobs, means.threads, description, means.engine)


@dataclass(frozen=True)
class Draw:
    """Answers to prompts of one length, to be written as one unit."""

    run: Run
    unit: str
    place: Place
    max_length: int
    prompts: tuple[Int32[ndarray, " n"], ...]
    begun: tuple[str, ...]
    sampling: Sampling
    seed: int

    def carry_out(self) -> None:
        coder = Coder(load_tokenizer(self.place.source), self.max_length)
        found = draw(self.place.model(), coder, self.prompts, self.sampling, self.seed, self.begun)
        document = [[answer.document() for answer in answers] for answers in found]
        self.run.write(self.unit, lambda path: write_json(path, document))

    def done(self) -> list[list[Answer]] | None:
        """The answers to each prompt, where they were drawn before and are not damaged."""
        found = held(self.run, self.unit, lambda document: [[Answer.read(a) for a in some] for some in document])
        if found is not None and [len(some) for some in found] != [self.sampling.count] * len(self.prompts):
            self.run.discard(self.unit)
            return None
        return found


def draw_all(draws: Sequence[Draw], means: Means, description: str) -> None:
    """Do the draws that are not there yet, or are damaged."""
    waiting = [draw for draw in draws if draw.done() is None]
    if waiting:
        parallel_map(Draw.carry_out, waiting, means.jobs, means.threads, description, means.engine)

"""The main job: split rows, train a method and its baselines at the same budget, judge all on held-out rows.

Knows everything of this paper but the command line.
"""

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from icml25cli.core.embeddings import Embeddings
from icml25cli.core.errors import InputError
from icml25cli.core.files import remove
from icml25cli.core.plots import save_figure
from icml25cli.core.progress import warn
from icml25cli.core.runs import Run, fingerprint, run_directory
from icml25cli.core.survey import Survey, survey
from icml25cli.papers.sae.batches import batch_count
from icml25cli.papers.sae.config import DEFAULT_K, LEAST_STEPS, METHODS, Budget, Config, auto_levels
from icml25cli.papers.sae.figures import pareto
from icml25cli.papers.sae.metrics import Quality, as_row, decoder_orthogonality, evaluate
from icml25cli.papers.sae.model import Scaling
from icml25cli.papers.sae.saved import write_model
from icml25cli.papers.sae.training import Trained, train

LEAST_HELD_OUT = 2
SMALLEST_BATCH = 16  # that is advised


@dataclass(frozen=True)
class Job:
    """Trained models, the main one first, and the quality of each on the held-out rows."""

    trained: tuple[Trained, ...]
    quality: tuple[tuple[Quality, ...], ...]
    train_rows: int
    held_out_rows: int

    def rows(self) -> list[dict[str, Any]]:
        """All methods at all k, the main one first."""
        return [
            as_row(trained.model.config.label, quality, trained.seconds)
            for trained, qualities in zip(self.trained, self.quality, strict=True)
            for quality in qualities
        ]

    def headline(self) -> dict[str, float]:
        """The main method's full code, or batchtopk's own, in figures."""
        label, quality = self.trained[0].model.config.label, self.quality[0][-1]
        return {k: v for k, v in as_row(label, quality, self.trained[0].seconds).items() if isinstance(v, float)}

    def models(self) -> list[dict[str, Any]]:
        """One row a method, of what does not depend on k."""
        return [
            {
                "method": t.model.config.label,
                "latents": t.model.config.n,
                "levels": list(t.model.config.levels) or None,
                "trained_k": t.model.config.k or None,
                "learning_rate": t.rate,
                "steps": t.steps,
                "final_loss": t.log[-1]["loss"] if t.log else None,
                "decoder_orthogonality": decoder_orthogonality(t.model.parameters.W_dec),
                "dead": next((q.dead for q in qs if q.code == "full"), None),
                "seconds": t.seconds,
            }
            for t, qs in zip(self.trained, self.quality, strict=True)
        ]

    def write(self, directory: Path) -> list[str]:
        """Write the main model, its epochs and the figure; names of the files."""
        write_model(directory, self.trained[0].model)
        lines = [json.dumps(row) for trained in self.trained for row in trained.log]
        (directory / "train.jsonl").write_text("".join(line + "\n" for line in lines))
        save_figure(pareto(self.rows()), directory / "pareto.svg")
        return ["sae.safetensors", "cfg.json", "train.jsonl", "pareto.svg"]


def named(label: str, like: Config) -> Config:
    """The method called ``label`` (msae-uw, msae-rw, topk ...) with the shape, loss and levels of another.

    Raises:
        InputError: no method has that name.
    """
    method, _, weights = label.partition("-") if label.startswith("msae") else (label, "", "")
    if method not in METHODS:
        raise InputError(f"there is no method {label}", hint=f"methods: {', '.join(METHODS)}")
    levels = like.levels or auto_levels(like.n)
    return replace(
        like,
        method=method,
        weights=weights or like.weights,
        levels=levels if method == "msae" else (),
        k=min(like.n, like.k or DEFAULT_K[method]) if method in DEFAULT_K else 0,
    )


def split_rows(x: Embeddings, share: float, seed: int) -> tuple[Embeddings, Embeddings]:
    """Training and held-out rows, drawn without replacement.

    Raises:
        InputError: too few are left on either side.
    """
    held_out = round(share * x.rows)
    if held_out < LEAST_HELD_OUT or x.rows - held_out < LEAST_HELD_OUT:
        raise InputError(f"{x.name} has {x.rows} rows: {held_out} held out are too few", hint="give a larger --val")
    drawn = np.zeros(x.rows, bool)
    drawn[np.random.default_rng((seed, 1)).choice(x.rows, held_out, replace=False)] = True
    return x.select(np.flatnonzero(~drawn)), x.select(np.flatnonzero(drawn))


def few_steps(rows: int, budget: Budget) -> str:
    """Why so many steps are too few to train in, and a batch that makes enough; empty where they are not."""
    each = batch_count(rows, budget.batch)
    steps = budget.epochs * each
    if steps >= LEAST_STEPS:
        return ""
    enough = 2 ** int(math.log2(max(1.0, rows * budget.epochs / LEAST_STEPS)))
    hint = f"--batch {enough} makes {budget.epochs * batch_count(rows, enough):,}"
    if enough < SMALLEST_BATCH:
        hint = f"--epochs {-(-LEAST_STEPS // each)} makes {LEAST_STEPS} or more"
    batches = "1 batch" if each == 1 else f"{each} batches"
    return (
        f"training is {steps} steps in all ({batches} of at most {budget.batch} rows an epoch, epochs {budget.epochs})"
        f", too few to converge: {hint}"
    )


@contextlib.contextmanager
def carry_out(
    x: Embeddings,
    configs: Sequence[Config],
    budget: Budget,
    ks: Sequence[int],
    *,
    held_out: float = 0.05,
    device: str = "cpu",
    output: Path | None = None,
    resume: bool = False,
    fresh: bool = False,
) -> Iterator[Job]:
    """Train and judge ``configs``, continuing what an earlier call with the same inputs finished.

    Checkpoints live in ``output/.run``, or without ``output`` in the user's cache.

    Raises:
        ToolboxError: as ``split_rows``, ``train`` and ``Run.open``.
    """
    training, test = split_rows(x, held_out, budget.seed)
    if training.rows < configs[0].n:
        warn(f"{training.rows} training rows are fewer than {configs[0].n} latents: lower --expansion")
    if hurried := few_steps(training.rows, budget):
        warn(hurried)
    inputs = {
        "embeddings": [*x.files, x[:64]] if x.files else x[:],  # rows tell apart what one file holds under two keys
        "rows": [x.rows, x.columns, x.chosen is not None],
        "methods": [config.to_json() for config in configs],
        "budget": asdict(budget),
        "held out": held_out,
        "device": device,
    }
    with Run.open(run_directory("sae", fingerprint(inputs), output), inputs, resume=resume, fresh=fresh) as run:
        found: Survey = survey(training)
        trained = tuple(
            train(config, budget, training, Scaling.of(found, config.center), run, unit=config.label, device=device)
            for config in configs
        )
        quality = tuple(evaluate(t.model, test, ks) for t in trained)
        yield Job(trained, quality, training.rows, test.rows)
    if output:  # what was finished is in the output now
        remove(output / ".run")

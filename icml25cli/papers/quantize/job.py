"""A plan carried out on a model, in a run that continues where an earlier one stopped.

Knows runs. Does not know the command line, or how a plan is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from icml25cli.core.checkpoint import model_files
from icml25cli.core.models import ModelSource
from icml25cli.core.runs import Run, fingerprint, run_directory
from icml25cli.core.streaming import StreamedModel
from icml25cli.papers.quantize.model import Judged, quantize_model
from icml25cli.papers.quantize.pipeline import Plan
from icml25cli.papers.quantize.plan import LATTICE, Facts, Options, make_plan


@dataclass(frozen=True)
class Job:
    """A model quantised and judged, with what is needed to write it out."""

    model: StreamedModel
    plan: Plan
    run: Run
    facts: Facts
    judged: tuple[Judged, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences a report on this job must show."""
        said = [*self.model.source.notes]
        if any(c.method.name in LATTICE and not c.method.calibrated for c in self.plan.candidates):
            said.append(
                "Without LDLQ the lattice code has one scale a row against one a group for RTN, and need not beat it."
            )
        said.append(
            "Calibration is the same for all methods: Hessians of the float model. Bits count codes, scales, zero "
            "points and padding as stored; embedding, head and norms are not quantised, and written in bfloat16. KL "
            "and NLL are in nats a token, ± one standard error over windows; lower is better. Differences are to the "
            "first row."
        )
        if self.plan.candidates[0].scope.keys_values:
            said.append(
                "The bfloat16 directory holds the weights alone: what loads it quantises nothing else. The packed one "
                "says how keys, values and activations are coded, too, and icml25cli.hf does it."
            )
        return tuple(said)


@contextlib.contextmanager
def carry_out(
    source: ModelSource,
    options: Options,
    *,
    device: torch.device | str = "cpu",
    output: Path | None = None,
    resume: bool = False,
    fresh: bool = False,
) -> Iterator[Job]:
    """Quantise and judge ``source``, continuing what an earlier call with the same inputs finished.

    Finished blocks live in ``output/.run``, or without ``output`` in the user's cache.

    Raises:
        ToolboxError: as ``make_plan``, ``Run.open`` and ``quantize_model``.
    """
    model = StreamedModel(source, device)
    plan, facts = make_plan(model, options)
    inputs = {
        "model": model_files(source.path),
        "options": asdict(options),
        "candidates": [candidate.spec() for candidate in plan.candidates],
        "calibration text": plan.calibration,
        "evaluation text": plan.evaluation,
    }
    with Run.open(run_directory("quantize", fingerprint(inputs), output), inputs, resume=resume, fresh=fresh) as run:
        yield Job(model, plan, run, facts, quantize_model(model, plan, run))

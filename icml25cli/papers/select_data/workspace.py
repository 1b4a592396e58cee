"""What a selection is made of, and where its finished work is kept: one run directory a stage.

A stage's directory is keyed by what the stage depends on and by nothing else, so that another budget, reward or policy
costs only what it changes. Knows runs. Does not know what the stages do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icml25cli.core.errors import InputError
from icml25cli.core.parallel import Engine
from icml25cli.core.runs import Run, cache_dir, fingerprint
from icml25cli.papers.select_data.adapters import Adapter
from icml25cli.papers.select_data.policy import Policy
from icml25cli.papers.select_data.sampling import Sampling
from icml25cli.papers.select_data.training import Recipe


@dataclass(frozen=True)
class Settings:
    """Everything that shapes a selection but data, reward and budget; the defaults are the paper's."""

    adapter: Adapter = field(default_factory=Adapter)
    recipe: Recipe = field(default_factory=Recipe)
    warmup_fraction: float = 0.05
    checkpoints: str = "all"  # or last, or numbers from 1 with commas between
    max_length: int = 2048  # tokens of a row
    precondition: str = "adam"
    projector: str = "auto"
    projected: int = 8192
    sampling: Sampling = field(default_factory=Sampling)
    policy: Policy = field(default_factory=Policy)
    guidance: bool = False  # the first half of the reference is given when answers are drawn
    protect: bool = False  # a prompt whose answers all weigh nothing falls back on its reference answer
    dtype: str = "float32"
    seed: int = 0


@dataclass(frozen=True)
class Means:
    """What work is done with; none of it changes a result."""

    device: str = "cpu"
    jobs: int = 1
    threads: int = 1
    engine: Engine = "local"


@dataclass
class Workspace:
    """The run directories of one call, opened as stages come up and closed together."""

    root: Path | None = None  # None: the user's cache
    resume: bool = False
    fresh: bool = False
    _open: dict[Path, Run] = field(default_factory=dict)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def directory(self, stage: str, inputs: Mapping[str, Any]) -> Path:
        root = self.root if self.root is not None else cache_dir() / "runs"
        return root / f"select-data-{stage}-{fingerprint(dict(inputs))[:12]}"

    def open(self, stage: str, inputs: Mapping[str, Any], part: str = "") -> Run:
        """The run of a stage, continued where it stands.

        Args:
            part: of the stage, where several processes share it out; each has a directory beside the whole's.

        Raises:
            InputError: another process is at it; or ``resume`` and nothing of this call was begun before.
        """
        whole = self.directory(stage, inputs)
        directory = whole.with_name(whole.name + part)
        if directory not in self._open:
            if self.resume and not self._open and not (directory / "manifest.json").exists():
                raise InputError(f"{directory} holds no run to resume", hint="leave out --resume to begin one")
            run = Run.open(directory, dict(inputs), fresh=self.fresh)
            self._open[directory] = self._stack.enter_context(run)
        return self._open[directory]

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

"""Random models of every family, made once, and runs to prune them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from icml25cli.core.models import resolve
from icml25cli.core.runs import Run
from icml25cli.core.streaming import StreamedModel
from tests.make_models import make_model


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A model of a family, made when first asked for. Not to be written to."""
    directory = tmp_path_factory.mktemp("families")

    def make(family: str) -> Path:
        return directory / family if (directory / family).exists() else make_model(directory / family, family)

    return make


@pytest.fixture
def streamed(made: Callable[[str], Path]) -> Callable[[str], StreamedModel]:
    return lambda family: StreamedModel(resolve(made(family)))


@pytest.fixture
def new_run(tmp_path: Path) -> Iterator[Callable[[], Run]]:
    """A fresh run at every call."""
    opened: list[Run] = []

    def open_run() -> Run:
        opened.append(Run.open(tmp_path / f"run-{len(opened)}", {}))
        return opened[-1]

    yield open_run
    for run in opened:
        run.close()


@pytest.fixture
def windows() -> Callable[..., Tensor]:
    """Random token ids, ``count`` windows of ``length``."""

    def draw(count: int, length: int = 16, seed: int = 0) -> Tensor:
        return torch.randint(0, 257, (count, length), generator=torch.Generator().manual_seed(seed))

    return draw

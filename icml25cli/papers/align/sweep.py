"""Whether alignment tells performance over several models (section 3.4): a table of them, correlations, intervals.

Knows CSV files and pairs. Does not know metrics' insides.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from icml25cli.core.claims import Interval
from icml25cli.core.errors import InputError
from icml25cli.core.plain_text import check_text
from icml25cli.core.progress import warn
from icml25cli.papers.align.resampling import bca

FEW = 6  # models below which an interval says little
LEAST = 3


@dataclass(frozen=True)
class Model:
    """A line of the table: representations, what they are compared with, and how well the model does."""

    path: str
    other: str | None
    performance: float


@dataclass(frozen=True)
class Correlation:
    """How one metric goes with performance over models."""

    metric: str
    pearson: Interval | None
    spearman: Interval | None
    models: int


def read_models(file: Path) -> list[Model]:
    """The columns path, performance and, where models differ in it, other; paths are relative to the file.

    Raises:
        InputError: it cannot be read, lacks a column, a performance is no number, or there are fewer than three models.
    """
    try:
        check_text(file)
        with open(file, newline="", encoding="utf-8-sig") as stream:
            lines = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{file} cannot be read as CSV: {error}", hint="write path,performance and a model a line"
        ) from error
    missing = [name for name in ("path", "performance") if not lines or name not in lines[0]]
    if missing:
        raise InputError(
            f"{file} has no column {' or '.join(missing)}", hint="write path,performance and a model a line"
        )
    models = []
    for number, line in enumerate(lines, 2):
        try:
            performance = float(line["performance"])
        except (TypeError, ValueError):
            performance = float("nan")
        if not np.isfinite(performance):
            raise InputError(f"{file}, line {number}: performance {line['performance']} is no number")
        if not line["path"]:
            raise InputError(f"{file}, line {number}: path is empty")
        models.append(Model(_beside(file, line["path"]), _beside(file, line.get("other") or ""), performance))
    if len(models) < LEAST:
        raise InputError(f"{file} has {len(models)} models, three are needed", hint="add models")
    if len(models) < FEW:
        warn(f"{len(models)} models: correlations of so few say little")
    return models


def _beside(file: Path, named: str) -> str:
    if not named:
        return ""
    return named if Path(named).is_absolute() else str(file.parent / named)


def correlate(metric: str, alignment: Sequence[float], performance: Sequence[float], seed: int) -> Correlation:
    """Pearson's and Spearman's correlation over models, each with its BCa interval."""
    from scipy.stats import rankdata

    pairs = np.column_stack([alignment, performance]).astype(np.float64)
    return Correlation(
        metric,
        bca(_pearson, pairs, seed),
        bca(lambda rows: _pearson(np.apply_along_axis(rankdata, 0, rows)), pairs, seed),
        len(pairs),
    )


def _pearson(rows: Float64[ndarray, "m 2"]) -> float:
    apart = rows - rows.mean(axis=0)
    length = np.sqrt(np.square(apart).sum(axis=0).prod())
    return float((apart[:, 0] * apart[:, 1]).sum() / length) if length > 1e-300 else float("nan")


def as_row(found: Correlation) -> dict[str, Any]:
    row: dict[str, Any] = {"metric": found.metric, "models": found.models}
    for name in ("pearson", "spearman"):
        interval = getattr(found, name)
        row |= {name: interval and interval.value, f"{name}_low": interval and interval.low}
        row[f"{name}_high"] = interval and interval.high
    return row

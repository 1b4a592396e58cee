"""From features to scores, and from scores to a selection.

The score of a row is the mean cosine with the validation gradients of a subtask, summed over checkpoints by their
weights, the best of all subtasks. Knows arrays. Does not know where features come from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from icml25cli.core.errors import InputError, UsageError


def normalized(rows: Float32[ndarray, "n k"]) -> Float32[ndarray, "n k"]:
    """Rows of length one; zero rows stay zero, and rows that are not finite become zero."""
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    clean = np.where(finite, rows, 0.0)
    # Scaled by the largest first, lest the squares of large gradients overflow.
    peak = np.abs(clean).max(axis=1, keepdims=True)
    scaled = clean / np.where(peak > 0, peak, 1.0)
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(scaled / np.where(length > 0, length, 1.0), np.float32)


def influence(
    training: Float32[ndarray, "n k"], validation: Float32[ndarray, "v k"], weight: float
) -> Float32[ndarray, "n v"]:
    """One checkpoint's part: weight times the cosine of every row with every validation gradient.

    Args:
        validation: as ``normalized`` makes it.
    """
    return np.asarray(weight * (normalized(training) @ validation.T), np.float32)


@dataclass(frozen=True)
class Subtasks:
    """Which subtask each validation row belongs to."""

    names: tuple[str, ...]
    of_row: Int64[ndarray, " v"]

    @classmethod
    def by_name(cls, names: Sequence[str]) -> Subtasks:
        known = tuple(dict.fromkeys(names))
        return cls(known, np.array([known.index(name) for name in names]))

    @classmethod
    def of_equal_size(cls, rows: int, count: int) -> Subtasks:
        """``count`` subtasks of consecutive rows.

        Raises:
            UsageError: the rows cannot be shared out evenly.
        """
        if count < 1 or rows % count:
            raise UsageError(f"--subtasks {count} does not divide {rows} validation rows", hint="use --subtask-field")
        return cls(tuple(str(i + 1) for i in range(count)), np.arange(rows) // (rows // count))

    def means(self, values: Float32[ndarray, "n v"]) -> Float32[ndarray, "n tasks"]:
        """Mean over the rows of each subtask; what is NaN counts as zero."""
        clean = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        return np.stack([clean[:, self.of_row == i].mean(1) for i in range(len(self.names))], axis=1)


@dataclass(frozen=True)
class Scores:
    """Of every row of the pool."""

    total: Float32[ndarray, " n"]
    best: Int64[ndarray, " n"]  # the subtask that the score is of
    parts: Float32[ndarray, "n checkpoints"]  # each checkpoint's share of it


def score(by_checkpoint: Sequence[Float32[ndarray, "n tasks"]]) -> Scores:
    """The best subtask's sum over checkpoints.

    Args:
        by_checkpoint: means over each subtask's rows, weighted, one array a checkpoint.
    """
    total = np.sum(by_checkpoint, axis=0, dtype=np.float64)
    best = total.argmax(1)
    parts = np.stack([part[np.arange(len(part)), best] for part in by_checkpoint], axis=1)
    return Scores(total.max(1).astype(np.float32), best, parts)


def budget_rows(budget: str, total: int) -> int:
    """How many rows ``5%`` or ``2000`` of ``total`` are, at least one.

    Raises:
        UsageError: it is no such number.
        InputError: there are not so many.
    """
    written = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,18})?|\.\d{1,18})(%?)\s*", budget, re.ASCII)
    share = bool(written and written[2])
    number = float(written[1]) if written and share else int(written[1]) if written and written[1].isdecimal() else -1
    if not (0 < number <= 100 if share else number >= 1):
        raise UsageError(f"--budget {budget} is no number of rows and no percentage", hint="such as 2000 or 5%")
    count = max(1, round(total * number / 100)) if share else int(number)
    if count > total:
        raise InputError(f"the budget of {count} rows is larger than the pool of {total}", hint="lower --budget")
    return count


def top(
    scores: Float32[ndarray, " n"],
    count: int,
    *,
    groups: list[str] | None = None,
    cap: float | None = None,
    distinct: list[bytes] | None = None,
) -> Int64[ndarray, " count"]:
    """The places of the ``count`` highest scores, in that order; of equal ones the first.

    Args:
        groups: the source of every row, with ``cap`` the largest share of the selection that one may have.
        distinct: a key of every row; of equal keys only the best is taken.

    Raises:
        InputError: fewer than ``count`` rows can be taken.
    """
    order = np.argsort(-scores, kind="stable")
    if cap is None and not distinct:
        if count > len(order):
            raise InputError(
                f"the budget of {count} rows is larger than the pool of {len(order)}", hint="lower --budget"
            )
        return order[:count]
    most = count if cap is None else max(1, int(cap * count))
    taken: list[int] = []
    used: dict[str, int] = {}
    seen: set[bytes] = set()
    for i in order.tolist():
        group = groups[i] if groups else ""
        if len(taken) == count or (used.get(group, 0) >= most) or (distinct and distinct[i] in seen):
            continue
        taken.append(i)
        used[group] = used.get(group, 0) + 1
        if distinct:
            seen.add(distinct[i])
    if len(taken) < count:
        raise InputError(
            f"only {len(taken)} rows are left for a budget of {count}", hint="lower --budget or raise --per-source-cap"
        )
    return np.array(taken)


def diverse(features: Float32[ndarray, "n k"], scores: Float32[ndarray, " n"], count: int) -> Int64[ndarray, " count"]:
    """``count`` rows by greedy facility location: those that the candidates are most like, weighted by score.

    Each step takes the row that adds most to the sum over candidates of score times the largest similarity to a row
    taken, which is within 1 - 1/e of the best sum (Nemhauser, Wolsey and Fisher 1978). Beyond the paper.

    Args:
        features: of the candidates, as ``normalized`` makes them.
    """
    similar = np.maximum(features @ features.T, 0.0)
    worth = np.maximum(scores, 0.0) + 1e-12
    covered = np.zeros(len(scores))
    taken: list[int] = []
    for _ in range(count):
        gain = (np.maximum(similar - covered, 0.0) * worth).sum(1)
        gain[taken] = -1.0
        i = int(gain.argmax())
        taken.append(i)
        covered = np.maximum(covered, similar[i])
    return np.array(taken)

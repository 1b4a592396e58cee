"""How well scores tell edges from other pairs, always with the number of negatives that they were told from.

With N negatives Hits@100 is a different task for every N, so figures at different N are never averaged or compared.
Knows scores. Does not know graphs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.core.progress import warn

KS = (1, 3, 10, 20, 50, 100)


@dataclass(frozen=True)
class Evaluation:
    """Figures of one set of scores.

    Attributes:
        values: hits_at_K for each of ``KS``, mrr, auc and ap by name, all in [0, 1].
        positives: how many edges were scored.
        negatives: how many pairs each of them was compared with.
    """

    values: dict[str, float]
    positives: int
    negatives: int


def evaluate(positive: Float[ndarray, "p"], negative: Float[ndarray, "q"] | Float[ndarray, "p k"]) -> Evaluation:
    """All figures of the scores of edges and of other pairs, shared by all edges or each edge's own.

    AUC and AP pool the negatives. Where there are fewer negatives than K, Hits@K is 1, with a warning.

    Raises:
        InputError: a score is not finite, or there is none.
    """
    for name, scores in (("edges", positive), ("negatives", negative)):
        if not scores.size:
            raise InputError(f"there are no scores of {name}")
        if not np.isfinite(scores).all():
            bad = int(np.flatnonzero(~np.isfinite(scores.ravel()))[0])
            raise InputError(f"score {bad} of the {name} is {scores.ravel()[bad]}", hint="scores have to be finite")
    count = negative.shape[-1]
    if few := [k for k in KS if k > count]:
        named = f"Hits@{', @'.join(map(str, few))} {'is' if len(few) == 1 else 'are'}"
        warn(f"{named} 1 by definition: there are only {count} negatives")
    values = {f"hits_at_{k}": hits_at_k(positive, negative, k) for k in KS}
    values["mrr"] = mrr(positive, negative)
    from sklearn.metrics import average_precision_score, roc_auc_score

    scores = np.concatenate([positive, negative.ravel()])
    truth = np.arange(len(scores)) < len(positive)
    values["auc"] = float(roc_auc_score(truth, scores))
    values["ap"] = float(average_precision_score(truth, scores))
    return Evaluation(values, len(positive), count)


def headline_notes(metric: str, negatives: int) -> list[str]:
    """What must be said beside figures by ``metric`` where so few negatives make it 1 for every method."""
    k = int(metric.rpartition("_")[2]) if metric.startswith("hits_at_") else 0
    if k <= negatives:
        return []
    return [
        f"Hits@{k} is 1 for every method here, good or bad, as there are only {negatives} negatives: "
        "compare by AUC or MRR."
    ]


def hits_at_k(positive: Float[ndarray, "p"], negative: Float[ndarray, "q"] | Float[ndarray, "p k"], k: int) -> float:
    """Share of edges that score strictly higher than the K-th best negative; 1 if there are fewer than K negatives."""
    if negative.shape[-1] < k:
        return 1.0
    bar = np.partition(negative, -k, axis=-1)[..., -k]
    return float(np.mean(positive > bar))


def mrr(positive: Float[ndarray, "p"], negative: Float[ndarray, "q"] | Float[ndarray, "p k"]) -> float:
    """Mean of 1/rank, where an edge's rank among the negatives is in the middle of those it ties with:
    ½ (#{negative ≥ s} + #{negative > s}) + 1."""
    if negative.ndim == 1:
        ordered = np.sort(negative)
        above = len(ordered) - np.searchsorted(ordered, positive, side="right")
        not_below = len(ordered) - np.searchsorted(ordered, positive, side="left")
    else:
        above = (negative > positive[:, None]).sum(axis=1)
        not_below = (negative >= positive[:, None]).sum(axis=1)
    return float(np.mean(1 / ((above + not_below) / 2 + 1)))


def summary(runs: Sequence[Evaluation]) -> dict[str, float | int | None]:
    """Mean of each figure over runs, its standard deviation as ``NAME_sd`` (None for one run), and ``negatives``.

    Raises:
        InputError: the runs had different numbers of negatives.
    """
    counts = {run.negatives for run in runs}
    if len(counts) != 1:
        raise InputError(
            f"runs with {', '.join(map(str, sorted(counts)))} negatives cannot be averaged",
            hint="use the same graph, protocol and fractions for all",
        )
    row: dict[str, float | int | None] = {}
    for name in runs[0].values:
        values = [run.values[name] for run in runs]
        row[name] = float(np.mean(values))
        row[f"{name}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {**row, "negatives": counts.pop()}

"""Heuristics judged on a split, as every method is: they see the observed edges, and are asked about the test part.

Knows splits, heuristics and metrics. Does not know learning.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from icml25cli.core.errors import UsageError
from icml25cli.core.usage import nearest
from icml25cli.papers.linkpred.graph import Graph, adjacency
from icml25cli.papers.linkpred.heuristics import HEURISTICS, score_pairs
from icml25cli.papers.linkpred.metrics import Evaluation, evaluate, summary
from icml25cli.papers.linkpred.splits import Split


@dataclass(frozen=True)
class Judged:
    """A method on one split."""

    method: str
    evaluation: Evaluation
    seconds: float  # of scoring, and of fitting where there is any


def applicable(graph: Graph, asked: Sequence[str] = ()) -> tuple[str, ...]:
    """The heuristics that were ``asked`` for, each once, or all that can say something of ``graph``.

    Raises:
        UsageError: there is none of a name that was asked for, or it needs attributes, and there are none.
    """
    for name in asked:
        if name not in HEURISTICS:
            near = nearest(name, HEURISTICS)
            hint = f"did you mean {near}?" if near else f"one of {', '.join(HEURISTICS)}"
            raise UsageError(f"no heuristic is called '{name}'", hint=hint)
    if "feature_cosine" in asked and graph.features is None:
        raise UsageError(f"feature_cosine needs attributes, {graph.name} has none", hint="--features FILE")
    return tuple(name for name in HEURISTICS if name in asked) if asked else HEURISTICS


def judge_heuristics(graph: Graph, split: Split, methods: Sequence[str] = HEURISTICS) -> list[Judged]:
    """Each heuristic on the test part of ``split``; the cosine of attributes where there are any.

    Raises:
        InputError: a heuristic is unknown.
    """
    observed = adjacency(split.observed, split.num_nodes)
    judged = []
    for method in methods:
        if method == "feature_cosine" and graph.features is None:
            continue
        score_pairs(observed, split.test.positives[:0], [method], graph.features)  # compiling is no scoring
        started = time.monotonic()
        scores = [
            score_pairs(observed, pairs, [method], graph.features)[method]
            for pairs in (split.test.positives, split.test.negatives)
        ]
        seconds = time.monotonic() - started
        judged.append(Judged(method, evaluate(*scores), seconds))
    return judged


def comparison(runs: Sequence[Sequence[Judged]], metric: str) -> list[dict[str, Any]]:
    """A row a method, best by ``metric``, then AUC, first: means and ``_sd`` over runs, negatives, mean seconds.

    Raises:
        InputError: runs had different numbers of negatives.
    """
    rows = []
    for judged in zip(*runs, strict=True):
        seconds = sum(one.seconds for one in judged) / len(judged)
        rows.append({"method": judged[0].method, **summary([one.evaluation for one in judged]), "seconds": seconds})
    return sorted(rows, key=lambda row: (-row[metric], -row["auc"]))

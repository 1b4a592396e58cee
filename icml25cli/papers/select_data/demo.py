"""The demonstration: methods on the small worlds, where it is known which rows help.

Knows worlds, jobs and comparisons. Does not know the command line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icml25cli.core.models import resolve
from icml25cli.papers.select_data.compare import Trial, judge_selection
from icml25cli.papers.select_data.job import Job
from icml25cli.papers.select_data.methods import Choice, Selection, select
from icml25cli.papers.select_data.rows import make_pool, read_rows
from icml25cli.papers.select_data.scoring import Subtasks
from icml25cli.papers.select_data.workspace import Means, Settings, Workspace
from icml25cli.papers.select_data.worlds import Name, Sizes, final_recipe, make_world, right_colour, settings_of

BUDGET = 120
METHODS = ("nice", "less", "random", "full")


@dataclass(frozen=True)
class Result:
    """One method in one world."""

    method: str
    seed: int
    picked: dict[str, int]  # rows of each kind
    accuracy: float | None  # of drawn answers after tuning
    selection: Selection | None
    seconds: float

    @property
    def helping(self) -> int:
        """Rows with a right colour."""
        return self.picked.get("helpful", 0) + self.picked.get("same style", 0)


def run_world(
    folder: Path,
    name: Name,
    seed: int,
    space: Workspace,
    means: Means,
    *,
    methods: Sequence[str] = METHODS,
    budget: int = BUDGET,
    sizes: Sizes | None = None,
    settings: Settings | None = None,
    model: Path | None = None,
    tune: bool = True,
) -> list[Result]:
    """Every method's selection in a new world of ``folder``, and with ``tune`` what the model then answers; last the
    model as it is."""
    world = make_world(folder, name, seed, sizes, model)
    validation = read_rows([world.validation])
    pool = make_pool(read_rows([world.pool]), validation)
    settings = settings or settings_of(seed)
    job = Job(
        resolve(world.model), pool, validation, Subtasks.of_equal_size(len(validation), 1), settings, space, means
    )
    reward = right_colour()
    trial = Trial(tuple(validation), settings.sampling, final_recipe(seed))
    found = []
    for method in methods:
        selection = select(job, method, Choice(budget), reward)
        judged = judge_selection(job, selection.places.tolist(), trial, reward, seed) if tune else None
        picked = dict(Counter(world.kinds[i] for i in selection.places.tolist()))
        seconds = selection.seconds + (judged.seconds if judged else 0.0)
        accuracy = float(judged.values.mean()) if judged else None
        found.append(Result(method, seed, picked, accuracy, selection, seconds))
    if tune:
        base = judge_selection(job, [], trial, reward, seed)
        found.append(Result("base", seed, {}, float(base.values.mean()), None, base.seconds))
    return found


def rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A row a method and seed."""
    return [
        {
            "method": result.method,
            "seed": result.seed,
            "helping": result.helping if result.selection else None,
            **{
                kind.replace(" ", "_"): result.picked.get(kind, 0)
                for kind in ("helpful", "same style", "wrong", "other")
            },
            "metric": result.accuracy,
            "half_overlap": result.selection.signal.half_overlap
            if result.selection and result.selection.signal
            else None,
        }
        for result in results
    ]


def summary(results: Sequence[Result]) -> list[dict[str, Any]]:
    """A row a method: means over seeds."""
    found = []
    for method in dict.fromkeys(result.method for result in results):
        mine = [result for result in results if result.method == method]
        metrics = [result.accuracy for result in mine if result.accuracy is not None]
        found.append(
            {
                "method": method,
                "selected": len(mine[0].selection.places) if mine[0].selection else 0,
                "helping": float(np.mean([result.helping for result in mine])),
                "metric": float(np.mean(metrics)) if metrics else None,
                "metric_sd": float(np.std(metrics, ddof=1)) if len(metrics) > 1 else None,
                "seconds": round(sum(result.seconds for result in mine), 3),
            }
        )
    return found

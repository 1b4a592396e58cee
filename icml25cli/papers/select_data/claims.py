"""What the paper and its scripts say, as checks that can fail.

Exact values of the scripts, and the small worlds, in which it is known which rows help. The paper's own models and
pools are out of reach. Differences are paired over worlds made from different seeds. Knows worlds and methods. Does not
know the command line.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from icml25cli.core.claims import Claim, Interval, Size, at_least, at_most
from icml25cli.core.errors import MissingError
from icml25cli.papers.select_data.demo import BUDGET, METHODS, Result, run_world
from icml25cli.papers.select_data.gradients import adam_direction
from icml25cli.papers.select_data.signal import SHAKY
from icml25cli.papers.select_data.training import BETAS, EPS, checkpoint_weights, learning_rate
from icml25cli.papers.select_data.workspace import Means, Workspace
from icml25cli.papers.select_data.worlds import Name, Sizes, settings_of

# The scripts' run: 420 steps in four epochs, a rate logged after every fourth.
ENDS, STEPS, LOGGED = (105, 211, 317, 420), 420, 4
WEIGHTS = (1.7069e-05, 1.2875e-05, 7.6658e-06)
SMALL = Sizes(helpful=70, same_style=40, wrong=120, other=370)
NOISY = Sizes(same_style=160, wrong=160)
SEEDS = {"quick": 3, "full": 5}


# --- exact values ------------------------------------------------------------------------------------------------


def direction_error(direction: Callable[..., torch.Tensor]) -> Interval:
    """Largest relative error of two directions without history: of a gradient of 1, and of one of a millionth."""
    zero = torch.zeros(1, dtype=torch.float64)
    found = [direction(torch.tensor([g], dtype=torch.float64), zero, zero).item() for g in (1.0, 1e-6)]
    return Interval.exact(max(abs(x / wanted - 1) for x, wanted in zip(found, (3.162262, 1.0e-3), strict=True)))


def outside(gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Adam's direction with ε added to the root."""
    moved = BETAS[0] * first + (1 - BETAS[0]) * gradient
    return moved / (torch.sqrt(BETAS[1] * second + (1 - BETAS[1]) * gradient.square()) + EPS)


def weight_error(weights: list[float]) -> Interval:
    return Interval.exact(max(abs(x / wanted - 1) for x, wanted in zip(weights, WEIGHTS, strict=False)))


# --- worlds ------------------------------------------------------------------------------------------------------


@lru_cache
def results(name: Name, size: Size, sizes: Sizes | None = None) -> tuple[dict[str, Result], ...]:
    """Every method in worlds of several seeds, by name; claims share these runs.

    The quick ones are smaller, share one model, take the last checkpoint alone and do not tune.
    """
    found = []
    quick = size == "quick"
    with tempfile.TemporaryDirectory() as folder, Workspace(Path(folder, "work")) as space:
        for seed in range(SEEDS[size]):
            settings = settings_of(seed)
            if quick:
                settings = replace(settings, checkpoints="last", warmup_fraction=0.2)
            made = run_world(
                Path(folder, f"world-{seed}"),
                name,
                seed,
                space,
                Means(),
                model=Path(folder, "model") if quick else None,
                methods=("nice", "less") if quick else ("nice",) if sizes else METHODS,
                budget=BUDGET // 2 if quick else BUDGET,
                sizes=SMALL if quick else sizes,
                settings=settings,
                tune=not quick and sizes is None,
            )
            found.append({result.method: result for result in made})
    return tuple(found)


def helping_more(name: Name, size: Size, one: str, other: str) -> Interval:
    """Share of helping rows in the selection of one method, less that of another."""
    found = results(name, size)
    return Interval.of_mean([(r[one].helping - r[other].helping) / sum(r[one].picked.values()) for r in found])


def right_more(name: Name, size: Size, one: str, other: str) -> Interval:
    """Share of right answers after tuning on one method's rows, less another's."""
    pairs = [(r[one].accuracy, r[other].accuracy) for r in results(name, size)]
    return Interval.of_mean([a - b for a, b in pairs if a is not None and b is not None])


def rightly_called(size: Size, threshold: float) -> Interval:
    """Share of runs whose overlap of halves is below the threshold if and only if a tenth of their rows do not help."""
    runs = [r["nice"] for sizes in (None, NOISY) for r in results("unseen-style", size, sizes)]
    called = []
    for run in runs:
        signal = run.selection and run.selection.signal
        if signal and signal.half_overlap is not None:
            called.append((signal.half_overlap < threshold) == (run.helping < 0.9 * BUDGET))
    return Interval.of_mean(np.array(called, float))


def out_of_reach(size: Size) -> Interval:
    raise MissingError("a model of seven billion parameters and a pool of 270,000 rows are needed", hint="a GPU")


LESS = "the policy gradient of the metric; the gradient of the reference answers' loss, which is LESS"
CLAIMS = (
    Claim(
        "adam-direction",
        says="a row's feature is Adam's update, ε inside the root, without bias correction",
        source="the authors' scripts, collect_grad_reps",
        published="3.162262 of a gradient of 1, 0.001 of one of 1e-6",
        quantity="largest relative error",
        predicts=at_most(1e-4),
        measure=lambda size: direction_error(adam_direction),
        control=lambda size: direction_error(outside),
        without="ε inside the root: it is added to it",
    ),
    Claim(
        "checkpoint-weights",
        says="a checkpoint weighs the mean learning rate of its epoch",
        source="the authors' scripts",
        published="1.7069e-05, 1.2875e-05, 7.6658e-06 of the first three epochs",
        quantity="largest relative error",
        predicts=at_most(5e-5),
        measure=lambda size: weight_error(checkpoint_weights(ENDS, STEPS, every=LOGGED)),
        control=lambda size: weight_error([learning_rate(end, STEPS, 0.03, 2e-5) for end in ENDS]),
        without="the mean: the last rate of each epoch",
    ),
    Claim(
        "helping-rows",
        says="selection by the metric finds rows that the loss of reference answers does not",
        source="abstract: NICE beats methods of next-token loss in all scenarios",
        published="no figure that could be read",
        quantity="share of rows with a right colour in NICE's selection, less LESS's, unseen style",
        predicts=at_least(0.3),
        measure=lambda size: helping_more("unseen-style", size, "nice", "less"),
        control=lambda size: helping_more("unseen-style", size, "less", "less"),
        without=LESS,
    ),
    Claim(
        "helping-rows-seen",
        says="it finds more of them as well where the references are in a style that the model speaks",
        source="abstract",
        published="no figure that could be read",
        quantity="share of rows with a right colour in NICE's selection, less LESS's, seen style",
        predicts=at_least(0.05),
        measure=lambda size: helping_more("seen-style", size, "nice", "less"),
        control=lambda size: helping_more("seen-style", size, "less", "less"),
        without=LESS,
        sizes=("full",),
    ),
    Claim(
        "metric-less",
        says="the model tuned on NICE's rows answers better than on those of LESS",
        source="abstract",
        published="no figure that could be read",
        quantity="share of right answers, NICE less LESS, unseen style",
        predicts=at_least(0.3),
        measure=lambda size: right_more("unseen-style", size, "nice", "less"),
        control=lambda size: right_more("unseen-style", size, "less", "less"),
        without=LESS,
        sizes=("full",),
    ),
    Claim(
        "metric-full",
        says="a tenth of the rows does better than all of them",
        source="abstract: often better than the full data",
        published="no figure that could be read",
        quantity="share of right answers, NICE's tenth less all rows, unseen style",
        predicts=at_least(0.0),
        measure=lambda size: right_more("unseen-style", size, "nice", "full"),
        control=lambda size: right_more("unseen-style", size, "random", "full"),
        without="scores: a tenth of the rows at random",
        sizes=("full",),
    ),
    Claim(
        "halves-tell",
        says="two halves of the drawn answers agree where the selection is good, and not where it is noise (ours)",
        source="the signal report; not in the paper",
        published="none",
        quantity="share of runs rightly called, with common and with rare helpful rows",
        predicts=at_least(0.5),
        measure=lambda size: rightly_called(size, SHAKY),
        control=lambda size: rightly_called(size, 2.0),
        without="the overlap: every run is called noise",
        sizes=("full",),
    ),
    Claim(
        "published-tables",
        says="on AlpacaEval, TLDR, RLHF and HumanEval 5 % by NICE beats LESS, BM25, DSIR, RDS and random",
        source="section of experiments",
        published="the tables could not be read here",
        quantity="metric, NICE less the best other",
        predicts=at_least(0.0),
        measure=out_of_reach,
        control=out_of_reach,
        without="scores",
        sizes=("full",),
    ),
)

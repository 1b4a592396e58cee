"""What the paper says, as checks that can fail, on its own controlled task, over seeds.

Its models of pictures and language are out of reach. Knows the simulation. Does not know the command line.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from icml25cli.core.claims import Claim, Interval, Size, at_least, at_most
from icml25cli.core.errors import MissingError
from icml25cli.papers.align import generator
from icml25cli.papers.align.simulate import Design, Encoded, simulate

RUNS: dict[Size, Design] = {
    "quick": Design((0, 8), (1,), (1, 6), seeds=4, rows=12_000, epochs=(12, 30)),
    "full": Design((0, 2, 4, 6, 8), (1,), (1, 2, 3, 4, 6), seeds=4, rows=16_000, epochs=(25, 50)),
}
# Accuracy depends on depth where a view is bent most, so performance is asked over heterogeneities, as published.
PERFORMANCE = Design((0, 8), (1, 5, 9), (1, 2, 3, 4, 6, 8), seeds=5, rows=12_000, epochs=(20, 40))
UNTRAINED = 1e-12  # a rate of learning at which nothing is learnt, in one epoch as in many
TOTAL = 1.158839  # nats, of the authors' own file


@lru_cache
def encoded(design: Design) -> tuple[Encoded, ...]:
    """The encoders of a design; claims share these runs."""
    return tuple(simulate(design))


def untrained(size: Size) -> Design:
    """Nothing learnt, which takes no time: so that what is random is averaged over many seeds."""
    seeds = 24 if size == "full" else RUNS[size].seeds
    return replace(RUNS[size], rate=UNTRAINED, epochs=(1, 1), rows=4000, seeds=seeds)


def by_seed(design: Design, statistic: Callable[[list[Encoded]], float]) -> Interval:
    """Mean over seeds of a statistic of a seed's encoders."""
    found = encoded(design)
    seeds = dict.fromkeys(row.seed for row in found)
    return Interval.of_mean([statistic([row for row in found if row.seed == seed]) for seed in seeds])


def largest(rows: list[Encoded], unique: int) -> float:
    return max(row.alignment for row in rows if row.unique == unique)


def fall(rows: list[Encoded]) -> float:
    return largest(rows, 0) - largest(rows, 8)


def rank_of(rows: list[Encoded]) -> float:
    """Spearman's correlation of unique bits with the largest alignment."""
    from scipy.stats import rankdata

    levels = sorted({row.unique for row in rows})
    return float(np.corrcoef(levels, rankdata([largest(rows, unique) for unique in levels]))[0, 1])


def rise(unique: int) -> Callable[[list[Encoded]], float]:
    """Alignment of the deepest encoder over that of the shallowest."""

    def statistic(rows: list[Encoded]) -> float:
        at = {row.depth: row.alignment for row in rows if row.unique == unique}
        return at[max(at)] - at[min(at)]

    return statistic


def with_performance(rows: list[Encoded], unique: int, turned: int = 0) -> float:
    """Correlation of alignment and accuracy over depths, the median over heterogeneities.

    Args:
        turned: with the accuracy of the encoder so many depths on.
    """
    found = []
    for bend in dict.fromkeys(row.heterogeneity for row in rows):
        here = [row for row in rows if (row.unique, row.heterogeneity) == (unique, bend)]
        accuracy = np.roll([row.accuracy for row in here], turned)
        found.append(np.corrcoef([row.alignment for row in here], accuracy)[0, 1])
    return float(np.median(found))


def lost(rows: list[Encoded]) -> float:
    return with_performance(rows, 0) - with_performance(rows, 8)


def lost_at_other_depths(rows: list[Encoded]) -> float:
    """The same of all pairings of depths but the true one."""
    turns = range(1, len({row.depth for row in rows}))
    return float(np.mean([with_performance(rows, 0, t) - with_performance(rows, 8, t) for t in turns]))


def far_from_total(view: str) -> Callable[[Size], Interval]:
    """The largest distance over uniquenesses of a view's information from the total."""

    def measure(size: Size) -> Interval:
        found = [getattr(generator.exact(generator.task(8 - unique)), view) for unique in range(9)]
        return Interval.exact(float(np.max(np.abs(np.array(found) - TOTAL))))

    return measure


def out_of_reach(size: Size) -> Interval:
    raise MissingError("needs DINOv2, LLaMA and the captioned pictures of WIT", hint="align --layers does it on yours")


CLAIMS = (
    Claim(
        "same-information",
        says="tasks differ in where information is, not in how much there is",
        source="section 4.1, the controlled task",
        published="1.159 nats",
        quantity="largest distance from 1.158839 nats over nine uniquenesses",
        predicts=at_most(1e-5),
        measure=far_from_total("total"),
        control=far_from_total("first"),
        without="the second view",
    ),
    Claim(
        "falls-with-uniqueness",
        says="the more information is unique, the less encoders align",
        source="section 5.1, figure of largest alignment",
        published="about 0.91 with none, at most 0.015 with all of it unique",
        quantity="largest unbiased CKA with no unique bit less that with eight",
        predicts=at_least(0.5),
        measure=lambda size: by_seed(RUNS[size], fall),
        control=lambda size: by_seed(untrained(size), fall),
        without="training",
    ),
    Claim(
        "rank",
        says="largest alignment falls at every step of uniqueness",
        source="section 5.1",
        published="Spearman -0.95 at heterogeneity 1",
        quantity="Spearman correlation of unique bits and largest unbiased CKA",
        predicts=at_most(-0.7),
        measure=lambda size: by_seed(RUNS[size], rank_of),
        control=lambda size: by_seed(untrained(size), rank_of),
        without="training",
        sizes=("full",),
    ),
    Claim(
        "emerges-with-depth",
        says="where information is redundant, alignment emerges with depth",
        source="section 5.1",
        published="correlation with depth 0.93 with no unique bit, about 0.1 with eight",
        quantity="unbiased CKA of the deepest encoder less that of the shallowest",
        predicts=at_least(0.05),
        measure=lambda size: by_seed(RUNS[size], rise(0)),
        control=lambda size: by_seed(RUNS[size], rise(8)),
        without="redundancy: all bits unique",
    ),
    Claim(
        "performance",
        says="alignment tells performance where information is redundant, and stops to where it is unique",
        source="section 5.2",
        published="median correlation 0.68 with no unique bit, 0.12 with eight",
        quantity="correlation of alignment and accuracy over depths, no unique bit less eight; "
        "median of three heterogeneities",
        predicts=at_least(0.2),
        measure=lambda size: by_seed(PERFORMANCE, lost),
        control=lambda size: by_seed(PERFORMANCE, lost_at_other_depths),
        without="pairing: accuracies of encoders of other depths",
        sizes=("full",),
    ),
    Claim(
        "vision-language",
        says="pictures and rewritten captions align less the more these differ",
        source="section 5.3",
        published="Spearman -0.95 for DINOv2 and language models",
        quantity="Spearman correlation of uniqueness and mutual neighbours",
        predicts=at_most(-0.7),
        measure=out_of_reach,
        control=out_of_reach,
        without="captions' own difference",
        sizes=("full",),
    ),
)

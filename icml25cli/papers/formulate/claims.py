"""What the paper says, as checks that can fail.

Its tables need GPT-4. What can be measured here are the search's own rules, what pruning spares, and orders between
searches, all on the grammar back end; published figures stand beside them. Differences are paired over problems. Orders
are measured on NL4OPT's development problems where those are at hand. Knows searches and records. Does not know the
command line.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from icml25cli.core.claims import Claim, Interval, Size, at_least, at_most
from icml25cli.core.errors import MissingError
from icml25cli.core.parallel import parallel_map
from icml25cli.papers.formulate import nl4opt
from icml25cli.papers.formulate.bench import Labelled, Record, is_right, read_problems, read_rows, solve_one
from icml25cli.papers.formulate.formulation import Formulation
from icml25cli.papers.formulate.grammar.grammar import Grammar
from icml25cli.papers.formulate.samples import SAMPLES
from icml25cli.papers.formulate.search import Found, Search
from icml25cli.papers.formulate.settings import PruneName, Settings
from icml25cli.papers.formulate.tree import Node, counters, upper_bound

LOOSE = 0.05  # the paper's tolerance


# --- rules of the search -----------------------------------------------------------------------------------------


def bound_error(exploration: float) -> Interval:
    """Largest error of upper confidence bounds against values worked out by hand, at lambda 0.5."""
    root = Node(Formulation(), visits=4)
    seen = Node(Formulation(), root, prior=0.75, visits=2, total=1.0)
    unseen = Node(Formulation(), root, prior=0.75)
    errors = [
        upper_bound(seen, 0.5, exploration) - 1.457555,
        upper_bound(unseen, 0.5, exploration) - 1.927410,
    ]
    return Interval.exact(float(np.abs(errors).max()))


# --- pruning, on problems that come with the program ---------------------------------------------------------------


@lru_cache
def searched(prune: PruneName) -> tuple[Found, ...]:
    """The built-in problems, searched with one way to prune."""
    found = []
    for text, _ in SAMPLES:
        grammar = Grammar(text)
        found.append(Search(grammar, grammar, Settings(prune=prune)).run())
    return tuple(found)


def retained(prune: PruneName) -> Interval:
    """Share of the drafts that compile which pruning leaves, a problem."""
    shares = []
    for found in searched(prune):
        rows = counters(found.root)
        made = sum(row["generated"] - row["empty"] - row["invalid"] for row in rows)
        shares.append(1 - sum(row["pruned"] for row in rows) / made)
    return Interval.of_mean(shares)


def saving(prune: PruneName) -> Interval:
    """How many times fewer whole models there are to search: over the levels, the product of drafts over those left."""
    logs = []
    for found in searched(prune):
        rows = counters(found.root)
        logs.append(
            math.fsum(math.log10(row["generated"] / (row["generated"] - row["pruned"])) for row in rows),
        )
    return Interval.of_mean(logs)


def new_optima(prune: PruneName) -> Interval:
    """Share of the models reached by 16 rollouts whose optimum none before them has, a problem."""
    return Interval.of_mean([_different(found) / len(found.leaves) for found in searched(prune)])


def _different(found: Found) -> int:
    return len({leaf.solution and (leaf.solution.status, leaf.solution.objective) for leaf in found.leaves})


# --- orders of searches, on problems with labels -------------------------------------------------------------------


def development_file() -> Path:
    """NL4OPT's development problems with their declarations.

    Raises:
        MissingError: they are not on this machine.
    """
    path = Path(os.environ.get("ICML25_TEST_DATA", "."), "formulate", "nl4opt_dev_structured.jsonl")
    if not path.is_file():
        raise MissingError(
            "NL4OPT's development problems are not here",
            hint="set ICML25_TEST_DATA to a folder with formulate/nl4opt_dev_structured.jsonl",
        )
    return path


@lru_cache
def problems() -> tuple[Labelled, ...]:
    return tuple(problem for problem in read_problems(development_file()) if problem.labels)


@lru_cache
def solved(settings: Settings) -> tuple[Record, ...]:
    """A record a problem."""
    return tuple(parallel_map(partial(_solved, settings), problems(), description="problems"))


def _solved(settings: Settings, problem: Labelled) -> Record:
    return solve_one(problem, settings)


TREE = Settings()
SHORT = Settings(rollouts=3)
ONE_DRAFT = Settings(candidates=1)  # of every component: a tree without branches
BLIND = Settings(rollouts=3, prior="uniform", reward="solver")  # nobody ranks or compares
THREE_IN_SEQUENCE = Settings(search="sequential", rollouts=3)
GREEDY = Settings(search="greedy", rollouts=1)
PATHS = 8  # at random, on either side of a comparison


@lru_cache
def equal_draws() -> tuple[Record, ...]:
    """Sequential drafts of every problem, as many as the tree drew for its first three models."""
    drawn = [record["drawn"] for record in solved(SHORT)]
    work = [(problem, max(3, count // 4)) for problem, count in zip(problems(), drawn, strict=True)]
    return tuple(parallel_map(_in_sequence, work, description="problems"))


def _in_sequence(work: tuple[Labelled, int]) -> Record:
    problem, rollouts = work
    return solve_one(problem, Settings(search="sequential", rollouts=rollouts))


@lru_cache
def at_random(first: int) -> np.ndarray:
    """How often the end of a path at random is right, for each problem, over paths of its own seeds from ``first``."""
    paths = range(first, first + PATHS)
    work = [(problem, 1000 * problem.row + path) for problem in problems() for path in paths]
    records = tuple(parallel_map(_one_path, work, description="paths"))
    return within(records, 1).reshape(-1, PATHS).mean(1)


def _one_path(work: tuple[Labelled, int]) -> Record:
    problem, seed = work
    return solve_one(problem, Settings(search="random", rollouts=1, seed=seed))


def within(records: tuple[Record, ...], first: int | None) -> np.ndarray:
    """Whether any of the first readings of each problem is right."""
    return np.array([any(is_right(v, r["labels"], LOOSE) for v in r["readings"][:first]) for r in records], float)


def more(settings: Settings, first: int | None) -> Interval:
    """By how much the first readings hold the right one more often than the first alone."""
    records = solved(settings)
    return Interval.of_mean(within(records, first) - within(records, 1))


def chosen(records: tuple[Record, ...]) -> np.ndarray:
    """Whether the reading that the search preferred at its end is right, for each problem."""
    return np.array([is_right((r["leaders"] or [None])[-1], r["labels"], LOOSE) for r in records], float)


# --- what a value says of a model ----------------------------------------------------------------------------------


def with_optimum(constrained: bool) -> Interval:
    """Share of development problems whose declarations have an optimum: the ceiling of any accuracy on them."""
    rows = read_rows(development_file())
    taken = rows if constrained else [{**row, nl4opt.DECLARED: []} for row in rows]
    return Interval.of_mean(np.array([bool(nl4opt.optima(row)) for row in taken], float))


def told_apart(by_value: bool) -> Interval:
    """Share of declarations with one limit left out or turned around that are told from the right ones.

    By the optimum, within the paper's tolerance, or by whether there is one alone.
    """
    shares = []
    for row in read_rows(development_file()):
        labels = nl4opt.optima(row)
        if not labels:
            continue
        told = []
        for changed in _one_limit_changed(row):
            values = nl4opt.optima(changed)
            told.append(not values or (by_value and not any(is_right(v, labels, LOOSE) for v in values)))
        shares.append(float(np.mean(told)))
    return Interval.of_mean(shares)


def _one_limit_changed(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    turned = {"LESS_OR_EQUAL": "GREATER_OR_EQUAL", "GREATER_OR_EQUAL": "LESS_OR_EQUAL"}
    limits = row[nl4opt.DECLARED]
    for place, limit in enumerate(limits):
        rest = [*limits[:place], *limits[place + 1 :]]
        yield {**row, nl4opt.DECLARED: rest}
        yield {**row, nl4opt.DECLARED: [*rest, {**limit, "operator": turned[limit["operator"]]}]}


def out_of_reach(size: Size) -> Interval:
    raise MissingError("needs GPT-4", hint="formulate bench shows what the grammar reaches")


CLAIMS = (
    Claim(
        "upper-confidence",
        says="selection weighs a prior, a mean reward and how seldom a node was passed",
        source="section 3, selection",
        published="1.457555 and 1.927410 in a worked example",
        quantity="largest error of two upper confidence bounds",
        predicts=at_most(1e-6),
        measure=lambda size: bound_error(1.0),
        control=lambda size: bound_error(0.0),
        without="exploration",
    ),
    Claim(
        "pruned",
        says="most drafts say what another says, and pruning finds them",
        source="the study of pruning",
        published="about 20 % of GPT-4's drafts are left",
        quantity="share of drafts left",
        predicts=at_most(0.5),
        measure=lambda size: retained("smt"),
        control=lambda size: retained("none"),
        without="pruning",
    ),
    Claim(
        "space-saved",
        says="over the levels pruning makes the space to search orders of magnitude smaller",
        source="the study of pruning",
        published="454.55 times (10^2.66) on GPT-4's drafts",
        quantity="decimal logarithm of whole models spared",
        predicts=at_least(1.0),
        measure=lambda size: saving("smt"),
        control=lambda size: saving("none"),
        without="pruning",
    ),
    Claim(
        "rollouts-differ",
        says="with pruning equally many rollouts reach more different models",
        source="the study of pruning",
        published="not given",
        quantity="share of the models reached whose optimum is new",
        predicts=at_least(0.3),
        measure=lambda size: new_optima("smt"),
        control=lambda size: new_optima("none"),
        without="pruning",
    ),
    Claim(
        "ceiling",
        says="declarations of annotators bound what any method can reach",
        source="the protocol of evaluation",
        published="not given",
        quantity="share of development declarations with an optimum",
        predicts=at_least(0.8),
        measure=lambda size: with_optimum(constrained=True),
        control=lambda size: with_optimum(constrained=False),
        without="the declared constraints",
        sizes=("full",),
    ),
    Claim(
        "value-for-model",
        says="the objective's value is a fair stand-in for the model",
        source="the protocol of evaluation",
        published="agrees with an expert on 82 % of answers",
        quantity="share of declarations with one limit changed that their optimum gives away",
        predicts=at_least(0.5),
        measure=lambda size: told_apart(by_value=True),
        control=lambda size: told_apart(by_value=False),
        without="the value: only whether there is an optimum",
        sizes=("full",),
    ),
    Claim(
        "more-readings",
        says="the first sixteen models hold the right one more often than the first",
        source="table 1",
        published="NL4OPT: 92.62 % of all, 85.24 % of the first",
        quantity="share of problems",
        predicts=at_least(0.02),
        measure=lambda size: more(TREE, None),
        control=lambda size: more(ONE_DRAFT, None),
        without="branches: one draft of every component",
        sizes=("full",),
    ),
    Claim(
        "three-readings",
        says="the first three models hold the right one more often than the first",
        source="table 1",
        published="NL4OPT: 92.21 % of three, 85.24 % of one",
        quantity="share of problems",
        predicts=at_least(0.01),
        measure=lambda size: more(TREE, 3),
        control=lambda size: more(ONE_DRAFT, 3),
        without="branches: one draft of every component",
        sizes=("full",),
    ),
    Claim(
        "tree-against-sequence",
        says="the best of three models from the tree is right more often than the best of three drafted in sequence",
        source="table 1",
        published="NL4OPT, three models: 88.11 % against 60.82 % in sequence",
        quantity="share of problems",
        predicts=at_least(0.02),
        measure=lambda size: Interval.of_mean(chosen(solved(SHORT)) - chosen(solved(THREE_IN_SEQUENCE))),
        control=lambda size: Interval.of_mean(chosen(solved(BLIND)) - chosen(solved(THREE_IN_SEQUENCE))),
        without="ranks and comparisons: the tree prefers nothing",
        sizes=("full",),
    ),
    Claim(
        "tree-at-equal-draws",
        says="the best of three models from the tree is right more often than the best of as many drafts in sequence",
        source="table 1",
        published="not given at equal draws",
        quantity="share of problems",
        predicts=at_least(0.02),
        measure=lambda size: Interval.of_mean(chosen(solved(SHORT)) - chosen(equal_draws())),
        control=lambda size: Interval.of_mean(chosen(solved(BLIND)) - chosen(equal_draws())),
        without="ranks and comparisons: the tree prefers nothing",
        sizes=("full",),
    ),
    Claim(
        "scores-guide",
        says="the path of best scores is right more often than a path at random",
        source="figure 3",
        published="a figure without numbers",
        quantity="share of problems",
        predicts=at_least(0.05),
        measure=lambda size: Interval.of_mean(within(solved(GREEDY), 1) - at_random(0)),
        control=lambda size: Interval.of_mean(at_random(PATHS) - at_random(0)),
        without="scores: other paths at random",
        sizes=("full",),
    ),
    Claim(
        "accuracy",
        says="the method solves nearly all of NL4OPT's test problems",
        source="table 1",
        published="92.62 % of 244",
        quantity="share of problems within 5 %",
        predicts=at_least(0.9),
        measure=out_of_reach,
        control=out_of_reach,
        without="the search",
        sizes=("full",),
    ),
)

"""Rewards of leaves: each is compared with a baseline set, or scored alone (section 3 of the paper).

Knows leaves and a judge. Does not know the tree between them.
"""

import math
from collections.abc import Callable, Sequence
from itertools import combinations

from icml25cli.papers.formulate.backend import Judge
from icml25cli.papers.formulate.canonical import Canonical
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.ranking import bradley_terry
from icml25cli.papers.formulate.settings import Settings
from icml25cli.papers.formulate.tree import Node, is_optimal

Shares = list[tuple[int, int, float]]  # of comparisons, by positions of leaves: the share of the first


def mean_score(judge: Judge, node: Node, votes: int, seed: int) -> float:
    """Mean mark of a draft alone, in [0, 1]; 0 where no mark could be read."""
    marks = [mark for mark in judge.score(node.draft, votes, seed) if mark is not None]
    return math.fsum(marks) / len(marks) / 100 if marks else 0.0


class Rewards:
    """Rewards new leaves in the order in which they are reached; ``shares`` grows with the comparisons made."""

    def __init__(
        self,
        judge: Judge,
        settings: Settings,
        leaves: list[Node],
        shares: Shares,
        form: Callable[[LinearModel], Canonical],
        seed: Callable[..., int],
    ) -> None:
        self._judge, self._settings, self._form, self._seed = judge, settings, form, seed
        self._leaves, self._made = leaves, shares
        self._baseline: list[int] = []  # positions of leaves
        self._known: dict[tuple[int, int], float] = {}  # shares of comparisons made

    def of(self, leaf: Node) -> float:
        """The reward of a new leaf, which joins the leaves."""
        settings, leaves = self._settings, self._leaves
        leaves.append(leaf)
        position = len(leaves) - 1
        if settings.reward == "score":
            return mean_score(self._judge, leaf, settings.compare_votes, self._seed(leaf.name, "score"))
        if not is_optimal(leaf):
            return 0.0
        if settings.reward == "solver":
            return 1.0
        rivals = [other for other in self._baseline if other != position]
        won = self._shares([(position, other) for other in rivals])
        joins = len(self._baseline) < settings.baselines and not settings.update_baselines
        if joins and all(self._form(leaves[other].compiled) != self._form(leaf.compiled) for other in self._baseline):
            self._baseline.append(position)
            return 0.5
        if settings.update_baselines:
            reward = math.fsum(won) / len(won) if len(won) >= settings.baselines else 0.5
            self._choose_baseline()
            return reward
        return math.fsum(won) / len(won) if won else 0.5

    def _shares(self, pairs: Sequence[tuple[int, int]]) -> list[float]:
        """For pairs of leaves the mean share of votes for the one against the other, with either shown first."""
        leaves, new = self._leaves, [pair for pair in pairs if pair not in self._known]
        shown, seeds = [], []
        for one, other in new:
            first, second = leaves[one].draft, leaves[other].draft
            seed = self._seed("compare", leaves[one].name, leaves[other].name)
            shown += [(first, second), (second, first)]
            seeds += [seed, seed + 1]
        won = self._judge.compare(shown, self._settings.compare_votes, seeds) if new else ()
        for (one, other), first, second in zip(new, won[::2], won[1::2], strict=True):
            share = (first + 1.0 - second) / 2
            self._known[one, other], self._known[other, one] = share, 1.0 - share
            self._made.append((one, other, share))
        return [self._known[pair] for pair in pairs]

    def _choose_baseline(self) -> None:
        """The baseline set becomes the strongest of all leaves with an optimum."""
        usable = [position for position, leaf in enumerate(self._leaves) if is_optimal(leaf)]
        if len(usable) < 3:
            self._shares([*combinations(usable, 2)])
        strengths = bradley_terry(self._made, len(self._leaves))
        self._baseline = sorted(usable, key=lambda position: -strengths[position])[: self._settings.baselines]

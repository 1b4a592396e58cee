"""Drafts that say what another says: found by canonical rows, by points, and proved by z3 (section 3 of the paper).

Knows drafts of one parent. Does not know how they were drawn, nor how they are ranked.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from icml25cli.papers.formulate.backend import Draft, Proposer
from icml25cli.papers.formulate.canonical import Canonical, canonical
from icml25cli.papers.formulate.equivalence import equivalent
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.probing import told_apart
from icml25cli.papers.formulate.settings import Settings
from icml25cli.papers.formulate.tree import Node

CLUSTER_VOTES = 8  # of the paper


class Pruner:
    """Marks drafts that are equivalent to one before them.

    Args:
        seed: makes the seed of a draw from what it is for.
    """

    def __init__(self, proposer: Proposer, settings: Settings, seed: Callable[..., int]) -> None:
        self._proposer, self._settings, self._seed = proposer, settings, seed
        self._forms: dict[int, Canonical] = {}

    def form(self, model: LinearModel) -> Canonical:
        """The canonical form of a model that stays in use."""
        if id(model) not in self._forms:
            self._forms[id(model)] = canonical(model)
        return self._forms[id(model)]

    def distinct(self, candidates: list[Node], parent: Node) -> list[Node]:
        """Those that say something that none before them says; the others are marked."""
        if self._settings.prune == "none":
            return candidates
        if parent.depth == 0:
            return self._distinct_variables(candidates, parent)
        kept: list[Node] = []
        for each in candidates:
            same = next((other for other in kept if self._says_the_same(other, each)), None)
            if same is None:
                kept.append(each)
            else:
                each.status, each.reason = "pruned-equivalent", f"says what {same.name} says"
        return kept

    def _says_the_same(self, one: Node, other: Node) -> bool:
        if self.form(one.compiled) == self.form(other.compiled):
            return True
        if self._settings.prune == "canon" or told_apart(self.form(one.compiled), self.form(other.compiled)):
            return False
        verdict = equivalent(one.compiled, other.compiled, timeout=self._settings.smt_timeout)
        return verdict.status == "equivalent"  # undecided counts as different, as in the paper

    def _distinct_variables(self, candidates: list[Node], parent: Node) -> list[Node]:
        """Variables have no domain in common, so a back end says which choices lead to the same model."""
        if not candidates:
            return []
        drafts = [Draft(each.formulation, each.compiled) for each in candidates]
        votes = self._proposer.cluster(drafts, CLUSTER_VOTES, self._seed(parent.name, "cluster"))
        clusters = commonest_partition(votes, len(candidates))
        kept = sorted(min(cluster) for cluster in clusters)
        for cluster in clusters:
            for position in cluster:
                if position != min(cluster):
                    candidates[position].status = "pruned-equivalent"
                    candidates[position].reason = f"says what {candidates[min(cluster)].name} says"
        return [candidates[position] for position in kept]


def commonest_partition(votes: Sequence[Sequence[Sequence[int]]], count: int) -> list[list[int]]:
    """The partition of ``range(count)`` voted for most often, in whatever order; single members where none is whole."""
    whole = [
        frozenset(frozenset(cluster) for cluster in vote)
        for vote in votes
        if sorted(position for cluster in vote for position in cluster) == list(range(count))
    ]
    if not whole:
        return [[position] for position in range(count)]
    chosen, _ = Counter(whole).most_common(1)[0]
    return sorted(sorted(cluster) for cluster in chosen)

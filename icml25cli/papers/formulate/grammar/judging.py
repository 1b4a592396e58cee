"""Votes of a grammar: sums of logarithms with noise, so that rankings of near ties vary as an expert's would.

Knows likelihoods. Does not know where they come from.
"""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from icml25cli.papers.formulate.backend import Draft
from icml25cli.papers.formulate.formulation import Formulation

NOISE = 0.5  # of a vote, in logarithms
BAD = -8.0  # for a formulation without an optimum
NOTHING_DONE = -4.0  # for an optimum where nothing is made


class Judge(ABC):
    """Ranks, scores and compares formulations by how likely a text means them."""

    name = "grammar"

    @abstractmethod
    def likelihood(self, draft: Draft) -> float:
        """How well a formulation agrees with the text: a logarithm, comparable among those of the same depth."""

    @property
    @abstractmethod
    def guesses_domain(self) -> bool:
        """Whether what is whole is neither said by the user nor by the text."""

    @abstractmethod
    def unread(self, formulation: Formulation) -> list[str]:
        """Sentences of the text that seem to say something about the model, and that the formulation lacks."""

    @abstractmethod
    def missing(self, formulation: Formulation) -> list[str]:
        """Numbers of the text, as it writes them, that the formulation makes nothing of."""

    def cluster(self, drafts: Sequence[Draft], votes: int, seed: int) -> list[list[list[int]]]:
        """One partition: choices of the same names, types and sizes of index sets belong together."""
        groups: dict[Any, list[int]] = {}
        for position, draft in enumerate(drafts):
            key = frozenset((v.name, v.type, v.space, v.lower) for v in draft.formulation.variables or ())
            groups.setdefault(key, []).append(position)
        return [[*groups.values()]]

    def rank(self, drafts: Sequence[Draft], votes: int, seed: int) -> list[list[int]]:
        draw = random.Random(seed)
        scores = [self.likelihood(draft) for draft in drafts]
        ranked = []
        for _ in range(votes):
            noisy = [score + draw.gauss(0, NOISE) for score in scores]
            order = sorted(range(len(drafts)), key=lambda i: -noisy[i])
            ranked.append([order.index(i) + 1 for i in range(len(drafts))])
        return ranked

    def score(self, draft: Draft, votes: int, seed: int) -> list[float]:
        return [1 + 99 * math.exp(min(0.0, self.likelihood(draft)) / 10)] * votes

    def compare(self, pairs: Sequence[tuple[Draft, Draft]], votes: int, seeds: Sequence[int]) -> list[float]:
        gaps = [self.likelihood(first) - self.likelihood(second) for first, second in pairs]
        return [1 / (1 + math.exp(-max(-50.0, min(50.0, gap)))) for gap in gaps]


def solved_as_meant(draft: Draft) -> float:
    """What the solver says for or against a formulation, a logarithm: people ask for optima that do something."""
    if draft.solution is None:
        return 0.0
    if draft.solution.status != "optimal":
        return BAD
    return 0.0 if any(draft.solution.values or ()) else NOTHING_DONE

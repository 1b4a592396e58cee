"""What a search asks of those who propose components and judge formulations: a language model, a grammar, a recording.

Components travel as JSON values, since that is what a model writes and what a journal keeps. Knows the questions. Does
not know who answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from icml25cli.papers.formulate.formulation import Formulation
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.solve import Solution

UNREADABLE = None  # a proposal or a vote of which nothing could be made


@dataclass(frozen=True)
class Draft:
    """A partial formulation as a judge sees it; ``solution`` is that of a whole one."""

    formulation: Formulation
    model: LinearModel
    solution: Solution | None = None


class Proposer(Protocol):
    """Draws components for a problem that it knows."""

    name: str

    def propose(self, key: str, partial: Formulation, count: int, seed: int) -> Sequence[Any]:
        """``count`` values for the component ``key`` given what is decided; ``UNREADABLE`` for what is no JSON."""
        ...

    def cluster(self, drafts: Sequence[Draft], votes: int, seed: int) -> Sequence[Sequence[Sequence[int]]]:
        """``votes`` partitions, or fewer, of choices of variables that lead to the same objective and constraints."""
        ...


class Judge(Protocol):
    """Says how well formulations agree with the problem."""

    def rank(self, drafts: Sequence[Draft], votes: int, seed: int) -> Sequence[Sequence[int] | None]:
        """For every vote the rank, 1 for the best, of each draft."""
        ...

    def score(self, draft: Draft, votes: int, seed: int) -> Sequence[float | None]:
        """For every vote a mark from 1 to 100 for a draft alone."""
        ...

    def compare(self, pairs: Sequence[tuple[Draft, Draft]], votes: int, seeds: Sequence[int]) -> Sequence[float]:
        """For every pair, with a seed each, the share of votes for the one that is shown first."""
        ...

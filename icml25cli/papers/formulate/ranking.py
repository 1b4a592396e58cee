"""Numbers out of judgements: priors from rankings, strengths from comparisons (section 3 of the paper).

Knows votes. Does not know what they are about.
"""

from collections.abc import Sequence

import numpy as np

REGULARISATION = 1.0  # of Bradley-Terry: half its inverse times the squared strengths is added to the loss


def rank_order(votes: Sequence[Sequence[int] | None], count: int) -> list[int]:
    """Positions from best to worst, by the sum of the ranks 1 to ``count`` that the votes give; ties by position.

    Votes that are no strict ranking are left out.
    """
    whole = [vote for vote in votes if vote is not None and sorted(vote) == list(range(1, count + 1))]
    sums = [sum(vote[position] for vote in whole) for position in range(count)]
    return sorted(range(count), key=lambda position: sums[position])


def spaced(order: Sequence[int]) -> list[float]:
    """A prior for every position: equally spaced inside (0, 1), the largest for the first of ``order``."""
    count = len(order)
    priors = [0.0] * count
    for place, position in enumerate(order):
        priors[position] = (count - place) / (count + 1)
    return priors


def bradley_terry(shares: Sequence[tuple[int, int, float]], count: int) -> np.ndarray:
    """Strengths of ``count`` players, float64, from ``(i, j, share of i)``; a share of a half says nothing.

    Logistic regression without intercept on rows of +1 and -1 with an L2 penalty (C = 1), by Newton's method.
    """
    decided = [(i, j) if share > 0.5 else (j, i) for i, j, share in shares if share != 0.5]
    strengths = np.zeros(count)
    if not decided:
        return strengths
    rows = np.zeros((len(decided), count))
    for row, (winner, loser) in zip(rows, decided, strict=True):
        row[winner], row[loser] = 1.0, -1.0
    for _ in range(50):
        chance = 1.0 / (1.0 + np.exp(-rows @ strengths))
        gradient = strengths / REGULARISATION - rows.T @ (1.0 - chance)
        curvature = np.eye(count) / REGULARISATION + (rows * (chance * (1.0 - chance))[:, None]).T @ rows
        step = np.linalg.solve(curvature, gradient)
        strengths -= step
        if np.abs(step).max() < 1e-12:
            break
    return strengths

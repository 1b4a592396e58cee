"""Which attention heads go: SlimLLM's score, and its search for a set that correlates better with the whole.

P(K), the sum over output columns of the absolute Pearson correlation of what
heads K contribute with what all do, needs only the covariances of contributions. "Units" are heads, or groups of heads
that go together. Knows covariances. Does not know tokens or models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from icml25cli.papers.prune.statistics import ROUNDING, HeadSums

# An exchange must gain more than rounding of sums in float64 can: else a full search might go in circles.
GAIN = 1e-12


@dataclass(frozen=True)
class Choice:
    """Kept units, ascending, and how the search came to them."""

    kept: tuple[int, ...]
    pearson: float  # P(kept)
    pearson_static: float  # P of the set that the score alone keeps
    evaluations: int  # of P, during the search


def correlation_sum(sums: HeadSums, kept: Sequence[int]) -> float:
    """P(K): between 0 and the number of columns; a column without variance counts 0."""
    g = sums.covariance
    k = torch.tensor(kept, device=g.device)
    return float(_absolute_correlation(sums, g.sum(2)[:, k].sum(1), g[:, k][:, :, k].sum((1, 2))).sum())


def removal_correlations(sums: HeadSums) -> Float64[Tensor, " units"]:
    """P(all but i) for every unit i. The unit for which it is highest is missed least."""
    g, own = sums.covariance, sums.covariance.diagonal(dim1=1, dim2=2)
    shared = g.sum(2)
    total = shared.sum(1, keepdim=True)
    return _absolute_correlation(sums, total - shared, total - 2 * shared + own).sum(0)


def drop_order(scores: Float[Tensor, " units"]) -> Int64[Tensor, " units"]:
    """Units from the first to go, of the lowest score, to the last; of equals the first."""
    return torch.sort(scores, stable=True).indices


def split(order: Sequence[int], drop: int, partition: Sequence[int]) -> tuple[list[int], list[int]]:
    """The first ``drop`` units of every part in ``order``, and the others, both in that order."""
    left = dict.fromkeys(partition, drop)
    dropped, kept = [], []
    for unit in order:
        gone = left[partition[unit]] > 0
        left[partition[unit]] -= gone
        (dropped if gone else kept).append(unit)
    return dropped, kept


def search(
    sums: HeadSums, dropped: Sequence[int], kept: Sequence[int], partition: Sequence[int], how: str = "greedy"
) -> Choice:
    """A set of as many units as ``kept``, whose P is no lower.

    Args:
        dropped: units in the order in which they may come back.
        kept: units in the order in which their places are tried.
        partition: the part that each unit belongs to; exchanges stay within parts.
        how: ``none``; ``greedy``, the paper's: each dropped unit in turn takes the place of the kept one for which P
            rises most, if it rises, and who has lost a place is not tried again; ``full``: after that, the best
            exchange of any two, until none helps.
    """
    kept = list(kept)
    static = best = correlation_sum(sums, kept)
    evaluations = 0

    def exchange(unit: int) -> tuple[float, int] | None:
        """The highest P above ``best`` that putting ``unit`` in some place gives, and the place."""
        nonlocal evaluations
        places = [j for j, other in enumerate(kept) if partition[other] == partition[unit]]
        evaluations += len(places)
        values = _exchanged(sums, kept, unit)[places]
        value, at = values.max(0)
        return (value.item(), places[int(at)]) if value > best * (1 + GAIN) else None

    for unit in dropped if how != "none" else ():
        if found := exchange(unit):
            best, kept[found[1]] = found[0], unit
    while how == "full":
        outside = [unit for unit in range(sums.units) if unit not in kept]
        found = max(((*f, unit) for unit in outside if (f := exchange(unit))), default=None)
        if found is None:
            break
        best, kept[found[1]] = found[0], found[2]
    return Choice(tuple(sorted(kept)), best, static, evaluations)


def _exchanged(sums: HeadSums, kept: Sequence[int], unit: int) -> Float64[Tensor, " kept"]:
    """P of ``kept`` with each of its places in turn given to ``unit``: O(d) each, from sums that all share."""
    g = sums.covariance
    k = torch.tensor(kept, device=g.device)
    shared = g.sum(2)
    rows = g[:, :, k].sum(2)  # of each unit with all kept
    with_all = shared[:, k].sum(1, keepdim=True) - shared[:, k] + shared[:, unit, None]
    own = g.diagonal(dim1=1, dim2=2)
    # Out goes i, in comes p: 1'G1 - 2 (G1)_i + G_ii + 2 ((G1)_p - G_pi) + G_pp over the kept set before.
    variance = rows[:, k].sum(1, keepdim=True) - 2 * rows[:, k] + own[:, k]
    variance = variance + 2 * (rows[:, unit, None] - g[:, unit][:, k]) + own[:, unit, None]
    return _absolute_correlation(sums, with_all, variance).sum(0)


def _absolute_correlation(
    sums: HeadSums, with_all: Float64[Tensor, " d *sets"], variance: Float64[Tensor, " d *sets"]
) -> Float64[Tensor, " d *sets"]:
    total, least = sums.covariance.sum((1, 2)), ROUNDING * sums.second
    if variance.ndim == 2:
        total, least = total[:, None], least[:, None]
    sound = (variance > least) & (total > least)
    product = torch.where(sound, variance * total, 1.0)
    return torch.where(sound, (with_all.abs() / product.sqrt()).clamp(max=1), 0.0)

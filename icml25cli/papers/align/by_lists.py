"""Metrics of neighbour lists with nulls and intervals: lists are sought once, then relabelled or thinned.

Knows pairs. Does not know files.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from icml25cli.core.claims import Interval
from icml25cli.core.neighbours import Kernel, kernel_alignment, masked_kernel
from icml25cli.papers.align import overlap
from icml25cli.papers.align.lists import Lists
from icml25cli.papers.align.metrics import Measured, Pair
from icml25cli.papers.align.resampling import Null, jackknife, of_permutations, of_queries

_BY_ROW: dict[str, Callable[[ndarray, ndarray, int], Float64[ndarray, "m"]]] = {
    "mknn": overlap.mutual,
    "cycle": lambda x, y, _: overlap.cycle(x, y),
    "cycle_swapped": lambda x, y, _: overlap.cycle(y, x),
    "lcs": lambda x, y, _: overlap.longest_common(x, y),
    "edit": lambda x, y, _: overlap.edit_similarity(x, y),
}
_OF_ALL = ("cknna", "cknna_sym", "cycle", "cycle_swapped")  # need a list of every row


def by_row(name: str, x: Lists, y: Lists) -> Float64[ndarray, "m"]:
    """Scores of the rows that have lists, all of one length."""
    return _BY_ROW[name](np.ascontiguousarray(x.index), np.ascontiguousarray(y.index), x.count)


def _list_values(names: Sequence[str], x: Lists, y: Lists, kernel: Kernel | None) -> dict[str, float]:
    """Values of lists of one length; ``kernel`` is that of x, where CKNNA is among them."""
    out = {name: float(by_row(name, x, y).mean()) for name in names if name in _BY_ROW}
    if kernel is not None:
        one, other = kernel_alignment(kernel, masked_kernel(y.neighbours()))
        out |= {"cknna": one, "cknna_sym": (one + other) / 2}
    return {name: out[name] for name in names}


def neighbours(pair: Pair, asked: Sequence[str]) -> list[Measured]:
    s = pair.settings
    lists = pair.lists()
    x, y = (side.first(s.k) for side in lists)
    names, out = list(asked), []
    for name in asked:
        why = None
        if name in _OF_ALL and not x.whole:
            why = "needs neighbours of every row: --queries 0"
        elif name.startswith("cknna") and s.k < 2:
            why = "needs --k of two or more"
        if why:
            names.remove(name)
            out.append(Measured(name, None, why=why))
    if not names:
        return out
    kernel = masked_kernel(x.neighbours()) if any(name.startswith("cknna") for name in names) else None
    values = _list_values(names, x, y, kernel)
    nulls: dict[str, Null] = {}
    within: dict[str, Null] = {}
    for grouped, into in ((False, nulls), (True, within)):
        if not s.permutations or (grouped and s.groups is None):
            continue
        drawn = [_list_values(names, x, y.permuted(order), kernel) for order in pair.orders(grouped=grouped)]
        known = {"mknn": s.k / (x.count - 1)} if not grouped else {}
        into |= {name: of_permutations([d[name] for d in drawn], mean=known.get(name)) for name in names}
    if not s.permutations and "mknn" in names:
        nulls["mknn"] = Null(*overlap.mutual_null(s.k, x.count, len(x.of)))
    intervals = _list_intervals(pair, lists, names, values) if s.intervals else {}
    return out + [Measured(n, values[n], nulls.get(n), intervals.get(n), within.get(n)) for n in names]


def _list_intervals(
    pair: Pair, lists: tuple[Lists, Lists], names: Sequence[str], values: dict[str, float]
) -> dict[str, Interval | None]:
    k = pair.settings.k
    if not lists[0].whole:  # rows are drawn, and all others are there: a mean over them
        x, y = (side.first(k) for side in lists)
        return {name: of_queries(by_row(name, x, y)) for name in names}
    left = []
    for part in pair.parts:
        there = np.ones(pair.count, bool)
        there[part] = False
        x, y = (side.without(there, k) for side in lists)
        if x is None or y is None or x.count < 4:
            return {}
        kernel = masked_kernel(x.neighbours()) if any(name.startswith("cknna") for name in names) else None
        left.append(_list_values(names, x, y, kernel))
    return {name: jackknife(values[name], [part[name] for part in left]) for name in names}

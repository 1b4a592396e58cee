"""CKA and its kin with nulls and intervals: of linear kernels for any number of rows, of all pairs of some rows.

Knows pairs. Does not know files.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.papers.align import hsic, symmetric
from icml25cli.papers.align.metrics import PAIR_ROWS, SQUARE_ROWS, Measured, Pair
from icml25cli.papers.align.resampling import Null, jackknife, of_permutations, orders, parts


def linear(pair: Pair, asked: Sequence[str]) -> list[Measured]:
    n = pair.count
    squares = n <= SQUARE_ROWS
    total, rest = pair.sums
    if rest is None and pair.settings.intervals:
        rest_values = hsic.without_each(pair.x, pair.y, pair.parts)[1]
    else:
        rest_values = [part.values() for part in rest or ()]
    values = total.values()
    exact = {"ucka": hsic.unbiased_null(n)}
    if np.isfinite(values["cka"]):
        exact["cka"] = hsic.permutation_moments(total.xx, total.yy)
    forms = {"ucka": symmetric.u_centred, "cka": symmetric.centred, "cmd": symmetric.unit}
    kernels = [symmetric.linear_kernel(side[:]) for side in (pair.x, pair.y)] if squares else None
    out = []
    for name in asked:
        null = within = None
        if not np.isfinite(values[name]):
            out.append(Measured(name, None, why="a side does not vary"))
            continue
        if kernels and pair.settings.permutations:
            a, b = (forms[name](kernel) for kernel in kernels)
            null = of_permutations(symmetric.permuted(a, b, pair.orders()), exact.get(name))
            if pair.settings.groups is not None:
                within = of_permutations(symmetric.permuted(a, b, pair.orders(grouped=True)))
        elif name in exact:
            null = Null(*exact[name], exact=True)
        interval = jackknife(values[name], [part[name] for part in rest_values]) if rest_values else None
        out.append(Measured(name, values[name], null, interval, within))
    return out


def _drawn_rows(pair: Pair) -> Int64[ndarray, "m"]:
    if pair.count <= PAIR_ROWS:
        return np.arange(pair.count)
    return np.sort(np.random.default_rng((pair.settings.seed, 6)).choice(pair.count, PAIR_ROWS, replace=False))


def _of_squares(
    pair: Pair, name: str, raw: Callable[[ndarray], ndarray], finished: Callable[[ndarray], ndarray]
) -> Measured:
    """A metric of all pairs of some rows: ``raw`` makes a matrix of rows, ``finished`` one of length 1 of it."""
    s, rows = pair.settings, _drawn_rows(pair)
    k, l = raw(pair.x[rows]), raw(pair.y[rows])  # noqa: E741 -- K and L of the papers
    a, b = finished(k), finished(l)
    value = symmetric.association(a, b)
    if not np.isfinite(value):
        return Measured(name, None, why="a side does not vary")
    null = within = interval = None
    if s.permutations:
        null = of_permutations(symmetric.permuted(a, b, orders(len(rows), s.permutations, s.seed)))
        if s.groups is not None:
            drawn = orders(len(rows), s.permutations, s.seed, groups=s.groups[rows])
            within = of_permutations(symmetric.permuted(a, b, drawn))
    if s.intervals:
        left = []
        for part in parts(len(rows), s.seed):
            others = np.delete(np.arange(len(rows)), part)
            inside = np.ix_(others, others)
            left.append(symmetric.association(finished(k[inside]), finished(l[inside])))
        interval = jackknife(value, left)
    return Measured(name, value, null, interval, within)


def rsa(pair: Pair, asked: Sequence[str]) -> list[Measured]:
    return [_of_squares(pair, name, symmetric.distance_ranks, symmetric.about_their_mean) for name in asked]


def rbf(pair: Pair, asked: Sequence[str]) -> list[Measured]:
    def kernel(x: ndarray) -> ndarray:
        return symmetric.rbf_kernel(x, pair.settings.sigma)

    return [_of_squares(pair, name, kernel, symmetric.centred) for name in asked]

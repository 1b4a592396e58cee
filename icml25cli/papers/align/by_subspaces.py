"""Metrics of subspaces with nulls and intervals.

Knows pairs. Does not know files.
"""

from collections.abc import Sequence

import numpy as np
from numpy import ndarray

from icml25cli.papers.align import hsic, subspaces
from icml25cli.papers.align.metrics import SQUARE_ROWS, Measured, Pair
from icml25cli.papers.align.prepared import Prepared
from icml25cli.papers.align.resampling import Null, jackknife, of_permutations


def of_subspaces(pair: Pair, asked: Sequence[str]) -> list[Measured]:
    s, n = pair.settings, pair.count
    wide = [side.columns > n for side in (pair.x, pair.y)]
    sides = [subspaces.narrowed(side) if w else side for side, w in zip((pair.x, pair.y), wide, strict=True)]
    total, rest = pair.sums if not any(wide) else pair._sums(sides[0], sides[1])
    names, out = list(asked), []
    if max(pair.x.columns, pair.y.columns) >= n / 2:
        for name in [name for name in asked if "cca" in name and name != "svcca"]:
            names.remove(name)
            why = f"{max(pair.x.columns, pair.y.columns)} columns of {n} rows correlate by chance: svcca, or more rows"
            out.append(Measured(name, None, why=why))
    raw = "procrustes" in names and any(wide)  # its lengths are those of the columns as they are
    if raw:
        names.remove("procrustes")
        out.append(_wide_procrustes(pair))
    if not names:
        return out

    standardise = (not wide[0], not wide[1])

    def values_of(sums: hsic.Triple) -> dict[str, float]:
        c = subspaces.covariances(sums)
        found: dict[str, float] = {}
        if "svcca" in names:
            found["svcca"] = subspaces.svcca(c, sums.xy.n, s.rank, standardise)
        if "procrustes" in names:
            found["procrustes"] = subspaces.procrustes(c)
        if any(name in names for name in ("cca", "cca_square", "pwcca")):
            found |= subspaces.cca(c)
        return found

    values = values_of(total)
    narrow = max(side.columns for side in sides) <= subspaces.WIDEST
    left = [values_of(part) for part in rest or ()] if narrow else []
    nulls = within = None
    defined = [name for name in names if np.isfinite(values[name])]
    if s.permutations and n <= SQUARE_ROWS:
        nulls = _permuted_subspaces(total, sides, defined, pair.orders(), s.rank, standardise)
        if s.groups is not None:
            within = _permuted_subspaces(total, sides, defined, pair.orders(grouped=True), s.rank, standardise)
    for name in names:
        if name not in defined:
            out.append(Measured(name, None, why="a side does not vary"))
            continue
        interval = jackknife(values[name], [part[name] for part in left]) if left else None
        out.append(
            Measured(name, values[name], nulls[name] if nulls else None, interval, within[name] if within else None)
        )
    return out


def _permuted_subspaces(
    total: hsic.Triple,
    sides: Sequence[Prepared],
    names: Sequence[str],
    drawn: Sequence[ndarray],
    rank: int,
    standardise: tuple[bool, bool],
) -> dict[str, Null]:
    c = subspaces.covariances(total)
    rows = [side[:].astype(np.float64) for side in sides]
    rows = [r - r.mean(axis=0) for r in rows]
    found: dict[str, list[float]] = {name: [] for name in names}

    def both(maps) -> tuple[ndarray, ndarray]:
        return rows[0] @ maps[0], rows[1] @ maps[1]

    if "svcca" in names:
        a, b = both(subspaces.svcca_maps(c, total.xy.n, rank, standardise))
        found["svcca"] = [float(subspaces.correlations(a.T @ b[order]).mean()) for order in drawn]
    if "procrustes" in names:
        scale = np.sqrt(np.trace(c.xx) * np.trace(c.yy))
        x, y = rows
        found["procrustes"] = [float(subspaces.correlations(x.T @ y[order]).sum() / scale) for order in drawn]
    if any(name in names for name in ("cca", "cca_square", "pwcca")):
        maps = subspaces.cca_maps(c)
        a, b = both(maps)
        weights = maps[0].T @ c.xx
        for order in drawn:
            for name, value in subspaces.cca_values(a.T @ b[order], weights).items():
                if name in names:
                    found[name].append(value)
    return {name: of_permutations(values) for name, values in found.items()}


def _wide_procrustes(pair: Pair) -> Measured:
    """Where columns are more than rows: by roots of the kernels, which have as many columns as rows."""
    sides = []
    for side in (pair.x, pair.y):
        rows = side[:].astype(np.float64)
        if side.columns > side.rows:
            rows -= rows.mean(axis=0)
            values, vectors = np.linalg.eigh(rows @ rows.T)
            rows = vectors * np.sqrt(np.maximum(values, 0))
        sides.append(rows)

    def value(order: ndarray, rows: ndarray | slice = slice(None)) -> float:
        a, b = sides[0][rows], sides[1][order][rows]
        a, b = a - a.mean(axis=0), b - b.mean(axis=0)
        scale = float(np.sqrt(np.square(a).sum() * np.square(b).sum()))
        return float(subspaces.correlations(a.T @ b).sum() / scale) if scale > 0 else float("nan")

    own = np.arange(pair.count)
    found = value(own)
    if not np.isfinite(found):
        return Measured("procrustes", None, why="a side does not vary")
    null = within = interval = None
    if pair.settings.permutations:
        null = of_permutations([value(order) for order in pair.orders()])
        if pair.settings.groups is not None:
            within = of_permutations([value(order) for order in pair.orders(grouped=True)])
    if pair.settings.intervals:
        interval = jackknife(found, [value(own, np.delete(own, part)) for part in pair.parts])
    return Measured("procrustes", found, null, interval, within)

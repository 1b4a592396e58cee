"""Why there is no optimum: constraints that exclude each other, or a direction in which nothing limits the objective.

Knows models and the solver. Does not know how its findings are told.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import highspy
import numpy as np

from icml25cli.papers.formulate.highs import arrays, new_solver
from icml25cli.papers.formulate.linear import Column, LinearModel, Row, Terms
from icml25cli.papers.formulate.rationals import Number, exact
from icml25cli.papers.formulate.solve import solve

QUESTION = 1.0  # seconds: whole variables without bounds can keep a solver busy for ever
Member = tuple[str, int]  # ("row", i), ("lower", j) or ("upper", j)


@dataclass(frozen=True)
class Conflict:
    """Rows, and bounds of columns, that no point satisfies together.

    ``irreducible``: without any one of them there is a point, which was tried for each. ``whole``: there would be one
    if variables might be fractions.
    """

    rows: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    irreducible: bool
    whole: bool


@dataclass(frozen=True)
class Ray:
    """From any feasible point, ``direction`` may be added without end, and each time the objective changes by ``gain``.

    A number a column, whole if possible; that no row and no bound limits it was checked exactly.
    """

    direction: tuple[Number, ...]
    gain: Number


def find_conflict(model: LinearModel, time_limit: float = 30.0) -> Conflict | None:
    """An irreducible infeasible subsystem of an infeasible model; None where it cannot be shown to be infeasible.

    Begins with HiGHS's own where that passes the test of being infeasible (some strategies give an empty one), and
    filters by deletion: what can go without making the rest feasible, goes. Bounds of variables are tried first, so
    that what stays is, where possible, what the user wrote.
    """
    deadline = time.monotonic() + time_limit
    search = _Search(model, deadline)
    every = [*(("lower", j) for j, c in enumerate(model.columns) if c.lower is not None)]
    every += [("upper", j) for j, c in enumerate(model.columns) if c.upper is not None]
    every += [("row", i) for i in range(len(model.rows))]
    kept = next((some for some in (_from_highs(model), every) if some and search.infeasible(some)), None)
    if kept is None:
        return None
    size = max(1, len(kept) // 2)
    while True:  # in ever smaller pieces: few of many rows stay
        position = 0
        while position < len(kept):
            rest = kept[:position] + kept[position + size :]
            if search.infeasible(rest):
                kept = rest
            else:
                position += size
        if size == 1:
            break
        size = max(1, size // 2)
    relaxed = replace(model, columns=tuple(replace(column, integer=False) for column in model.columns))
    return Conflict(
        tuple(i for kind, i in kept if kind == "row"),
        tuple(i for kind, i in kept if kind == "lower"),
        tuple(i for kind, i in kept if kind == "upper"),
        irreducible=not search.undecided,
        whole=model.is_integer and not _Search(relaxed, deadline).infeasible(kept),
    )


class _Search:
    """Asks whether some rows and bounds of a model exclude each other."""

    def __init__(self, model: LinearModel, deadline: float) -> None:
        self._lp = arrays(replace(model, objective=(), constant=0))
        self._bounds = {
            "lower": np.array(self._lp.col_lower_),
            "upper": np.array(self._lp.col_upper_),
            "row": np.array([self._lp.row_lower_, self._lp.row_upper_]),
        }
        self._deadline = deadline
        self.undecided = False  # whether any question found no answer in time

    def infeasible(self, members: Sequence[Member]) -> bool:
        kept = {kind: [i for of, i in members if of == kind] for kind in ("lower", "upper", "row")}
        lower, upper = np.full(self._lp.num_col_, -np.inf), np.full(self._lp.num_col_, np.inf)
        rows = np.array([np.full(self._lp.num_row_, -np.inf), np.full(self._lp.num_row_, np.inf)])
        lower[kept["lower"]] = self._bounds["lower"][kept["lower"]]
        upper[kept["upper"]] = self._bounds["upper"][kept["upper"]]
        rows[:, kept["row"]] = self._bounds["row"][:, kept["row"]]
        self._lp.col_lower_, self._lp.col_upper_ = lower, upper
        self._lp.row_lower_, self._lp.row_upper_ = rows
        highs = new_solver(min(QUESTION, max(0.1, self._deadline - time.monotonic())))
        highs.passModel(self._lp)
        highs.run()
        status = highs.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return True
        if status != highspy.HighsModelStatus.kOptimal:
            self.undecided = True
        return False


def _from_highs(model: LinearModel) -> list[Member]:
    """What HiGHS takes for the members; empty where it has no opinion."""
    highs = new_solver()
    highs.setOptionValue("iis_strategy", 4)  # irreducible; the names of strategies differ between versions
    highs.passModel(arrays(model, relaxed=True))
    status, iis = highs.getIis()
    if status == highspy.HighsStatus.kError or not iis.valid_:
        return []
    columns = [("lower", j) for j in iis.col_index_ if model.columns[j].lower is not None]
    columns += [("upper", j) for j in iis.col_index_ if model.columns[j].upper is not None]
    return [*columns, *(("row", i) for i in iis.row_index_)]


def find_ray(model: LinearModel) -> Ray | None:
    """A direction without end that improves the objective, with few variables in it; None where none is found.

    Of a feasible model it proves that the objective is unbounded, also over whole variables. Solves: least sum of
    |d_j| such that the objective improves by 1 along d, and no row or bound limits d.
    """
    if not model.objective:
        return None
    better = 1 if model.sense == "max" else -1
    columns: list[Column] = []
    for column in model.columns:  # d = up - down
        columns.append(Column("up", 0, None if column.upper is None else 0))
        columns.append(Column("down", 0, None if column.lower is None else 0))
    rows = [Row("gain", _split(model.objective), better, better)]
    for row in model.rows:
        rows.append(Row(row.name, _split(row.terms), *_cone(row)))
    total = tuple((j, 1) for j in range(len(columns)))
    found = solve(LinearModel("min", total, 0, tuple(columns), tuple(rows)))
    if found.values is None:
        return None
    steps = zip(found.values[::2], found.values[1::2], strict=True)
    fractions = [Fraction(up - down).limit_denominator(_DENOMINATOR) for up, down in steps]
    scale = math.lcm(*(part.denominator for part in fractions))
    direction = tuple(exact(part * (scale if scale <= _DENOMINATOR else 1)) for part in fractions)
    cone = replace(
        model,
        columns=tuple(Column(c.name, *_cone(c)) for c in model.columns),
        rows=tuple(replace(row, lower=_cone(row)[0], upper=_cone(row)[1]) for row in model.rows),
    )
    gain = exact(model.value(model.objective, direction))
    return Ray(direction, gain) if gain * better > 0 and not cone.violations(direction) else None


_DENOMINATOR = 10_000  # of the fractions that a direction from the solver is taken to mean


def _cone(limits: Row | Column) -> tuple[Number | None, Number | None]:
    """What bounds ask of a direction: not to run against them."""
    return (None if limits.lower is None else 0), (None if limits.upper is None else 0)


def _split(terms: Terms) -> Terms:
    parts: list[tuple[int, Number]] = []
    for column, coefficient in terms:
        parts += [(2 * column, coefficient), (2 * column + 1, -coefficient)]
    return tuple(parts)

"""The questions of `smt`, put to HiGHS: is there a point in one model that is not in the other?

An answer by optimisation: by how much can a row of the other be broken inside the one? It is as sure as floating point
is: a violation too small to be told from rounding makes the answer unknown. Knows canonical models and the solver.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Literal

from icml25cli.papers.formulate.canonical import Canonical
from icml25cli.papers.formulate.linear import Column, LinearModel, Row, Terms
from icml25cli.papers.formulate.rationals import Number, exact
from icml25cli.papers.formulate.solve import solve

Answer = Literal["yes", "no", "unknown"]
Point = Mapping[str, Number]
CLEAR, NOISE = 1e-4, 1e-6  # a violation that the solver means, and one that it may not see


def find_point(
    inside: Canonical,
    outside: Canonical | None = None,
    nonzero: tuple[Mapping[str, Number], Number] | None = None,
    *,
    timeout: float = 2.0,
) -> tuple[Answer, Point | None]:
    """As ``smt.find_point``, within tolerances; of ``outside`` and ``nonzero`` at most one may be given."""
    names = sorted(inside.names)
    place = {name: j for j, name in enumerate(names)}
    whole = dict(inside.variables)
    columns = tuple(Column(name, None, None, whole[name]) for name in names)
    rows = tuple(Row("", tuple((place[n], a) for n, a in terms), None, bound) for terms, bound in inside.rows)
    model = LinearModel("max", (), 0, columns, rows)
    if outside is None and nonzero is None:
        found = solve(model, time_limit=timeout)
        if found.values is None:
            return ("no" if found.status == "infeasible" else "unknown"), None
        return "yes", _point(names, found.values)
    if nonzero is not None:
        terms = tuple((place[name], a) for name, a in nonzero[0].items())
        goals = [(terms, -nonzero[1]), (tuple((j, -a) for j, a in terms), nonzero[1])]
    else:
        assert outside is not None
        goals = [
            (tuple((place[n], a) for n, a in terms), bound)
            for terms, bound in sorted(outside.rows - inside.rows, key=repr)
        ]
    answer, point = _exceed(model, names, goals, time.monotonic() + timeout)
    if answer == "no" and outside is not None and any(is_whole and not whole[n] for n, is_whole in outside.variables):
        return "unknown", None  # a point that is feasible but for being whole is not looked for
    return answer, point


def _exceed(
    model: LinearModel, names: list[str], goals: Iterable[tuple[Terms, Number]], deadline: float
) -> tuple[Answer, Point | None]:
    """A point of the model where one of the sums is above its bound."""
    doubt = False
    for terms, bound in goals:
        excess = len(model.columns)
        asked = LinearModel(
            "max",
            ((excess, 1),),
            0,
            (*model.columns, Column("excess", None, 1)),
            (*model.rows, Row("", (*terms, (excess, -1)), bound, None)),
        )
        left = deadline - time.monotonic()
        found = solve(asked, time_limit=left) if left > 0 else None
        if found is None or found.status not in ("optimal", "infeasible"):
            doubt = True
        elif found.objective is not None and found.objective > CLEAR:
            assert found.values is not None
            return "yes", _point(names, found.values)
        elif found.objective is not None and found.objective > NOISE:
            doubt = True
    return ("unknown" if doubt else "no"), None


def _point(names: list[str], values: tuple[float, ...]) -> Point:
    return {name: exact(round(value, 9)) for name, value in zip(names, values, strict=False)}

"""Questions to z3 about canonical models: is there a point in one that is not in the other?

z3 decides linear arithmetic over exact numbers, whole and real; nothing is rounded. Knows z3. Does not know what the
answers mean for a model.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import z3

from icml25cli.papers.formulate.canonical import Canonical, Sum
from icml25cli.papers.formulate.implication import Answer, Point
from icml25cli.papers.formulate.rationals import Number, exact


def find_point(
    inside: Canonical,
    outside: Canonical | None = None,
    nonzero: tuple[Mapping[str, Number], Number] | None = None,
    *,
    timeout: float = 2.0,
) -> tuple[Answer, Point | None]:
    """Whether a point is feasible in one model, and, where they are given, infeasible in another, and makes a sum
    with a constant nonzero; the point, where the answer is yes.

    Args:
        timeout: seconds, after which the answer is unknown.
    """
    whole, whole_outside = dict(inside.variables), dict(outside.variables if outside else inside.variables)
    # A variable that is whole in both models is an integer to z3; in one alone, a real with the wish to be whole.
    sorts = {name: whole[name] and whole_outside[name] for name in whole}
    variables = {name: (z3.Int if integer else z3.Real)(name) for name, integer in sorts.items()}
    solver = z3.Solver()
    solver.set("timeout", math.ceil(timeout * 1000))
    solver.add(_system(inside, variables, sorts))
    if outside is not None:
        solver.add(z3.Not(z3.And(_system(outside, variables, sorts))))
    if nonzero is not None:
        terms, constant = nonzero
        scale = math.lcm(constant.denominator, *(a.denominator for a in terms.values()))
        scaled = tuple((name, int(a * scale)) for name, a in terms.items())
        solver.add(_sum(scaled, variables) != int(-constant * scale))
    answer = solver.check()
    if answer == z3.unsat:
        return "no", None
    if answer != z3.sat:
        return "unknown", None
    found = solver.model()
    return "yes", {name: _number(found.eval(variable, model_completion=True)) for name, variable in variables.items()}


def _system(model: Canonical, variables: Mapping[str, Any], sorts: Mapping[str, bool]) -> list[Any]:
    parts = []
    for terms, bound in sorted(model.rows, key=repr):
        limit = z3.IntVal(bound) if isinstance(bound, int) else z3.Q(bound.numerator, bound.denominator)
        parts.append(_sum(terms, variables) <= limit)
    return parts + [z3.IsInt(variables[name]) for name, whole in sorted(model.variables) if whole and not sorts[name]]


def _sum(terms: Sum, variables: Mapping[str, Any]) -> Any:
    return z3.Sum([coefficient * variables[name] for name, coefficient in terms]) if terms else z3.IntVal(0)


def _number(value: Any) -> Number:
    return value.as_long() if z3.is_int_value(value) else exact(Fraction(value.as_fraction()))

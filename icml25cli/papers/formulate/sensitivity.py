"""Prices of an optimum: duals, reduced costs, and the ranges over which they hold.

A dual is the change of the objective for one unit more of a row's bound, a reduced cost that for one unit more of a
variable, both in the objective's own sense: a positive dual of a maximum is a gain. They come from HiGHS's simplex
method and are checked here, since solvers and modelling layers disagree on their signs. A model with whole variables
has no duals: those given are of the linear program with these fixed at their values, and say so.

Knows solved models. Does not know how they are shown.
"""

import math
from dataclasses import dataclass
from typing import Literal

import highspy
import numpy as np

from icml25cli.papers.formulate.highs import INFINITE, Highs, arrays, new_solver
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.solve import Solution

Basis = Literal["linear program", "fixed-integer linear program"]
Range = tuple[float, float]
RESOLVED = 10  # duals that are confirmed by solving again, the largest first
STEP = 0.01  # by which their bounds are moved, relative to their size


@dataclass(frozen=True)
class Sensitivity:
    """Prices of an optimum, a number or a range a row or column; ranges may be infinite."""

    of: Basis
    duals: tuple[float, ...]  # objective per unit of the row's bound
    reduced_costs: tuple[float, ...]  # objective per unit of the variable
    bound_ranges: tuple[Range, ...]  # of a row's bound, over which its dual holds
    cost_ranges: tuple[Range, ...] | None  # of a variable's coefficient, over which the solution stays optimal
    faults: tuple[str, ...]  # what the check found wrong; empty as a rule


def sensitivity(model: LinearModel, solution: Solution) -> Sensitivity | None:
    """Prices at an optimal solution; None where there are none, as with nothing but whole variables.

    The check is that of Karush, Kuhn and Tucker on every row and column (stationarity, signs and slackness together
    prove the duals), and for the largest duals a second and third solution with the bound a little lower and higher,
    between whose slopes a dual lies because the optimal value is convex in the bound (concave for a maximum).
    """
    if solution.status != "optimal" or solution.values is None or all(column.integer for column in model.columns):
        return None
    lp = arrays(model, relaxed=True)
    fixed = np.array([column.integer for column in model.columns])
    values = np.array(solution.values)
    lp.col_lower_ = np.where(fixed, values, lp.col_lower_)
    lp.col_upper_ = np.where(fixed, values, lp.col_upper_)
    highs = new_solver()
    highs.setOptionValue("solver", "simplex")  # for a vertex and its basis, of which ranges are made
    highs.passModel(lp)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    found = highs.getSolution()
    activity = np.array(found.row_value)
    duals, reduced = np.array(found.row_dual) + 0.0, np.array(found.col_dual) + 0.0
    faults = [*_kkt_faults(model, lp, np.array(found.col_value), activity, duals, reduced)]
    bounds, costs = _ranges(highs, model, activity)
    faults += _slope_faults(highs, model, lp, activity, duals)
    return Sensitivity(
        "fixed-integer linear program" if model.is_integer else "linear program",
        tuple(duals.tolist()),
        tuple(reduced.tolist()),
        bounds,
        costs,
        tuple(faults),
    )


def _kkt_faults(
    model: LinearModel,
    lp: highspy.HighsLp,
    x: np.ndarray,
    activity: np.ndarray,
    duals: np.ndarray,
    reduced: np.ndarray,
) -> list[str]:
    """Which columns and rows break the optimality conditions of a linear program, by name."""
    cost = np.array(lp.col_cost_)
    gradient, scale = cost.copy(), 1 + abs(cost)
    for row, dual in zip(model.rows, duals, strict=True):
        for column, coefficient in row.terms:
            gradient[column] -= dual * float(coefficient)
            scale[column] += abs(dual * float(coefficient))
    wrong = np.flatnonzero(abs(gradient - reduced) > 1e-6 * scale)
    faults = [f"the reduced cost of {model.columns[j].name} does not follow from the duals" for j in wrong]
    sign = 1 if model.sense == "min" else -1
    for names, price, at, low, high in (
        ([row.name for row in model.rows], duals, activity, lp.row_lower_, lp.row_upper_),
        ([column.name for column in model.columns], reduced, x, lp.col_lower_, lp.col_upper_),
    ):
        low, high = np.array(low), np.array(high)
        near = 1e-6 * (1 + abs(at))
        tolerance = 1e-6 * (1 + np.max(abs(price), initial=0.0))
        bad = ((sign * price > tolerance) & (at - low > near)) | ((sign * price < -tolerance) & (high - at > near))
        faults += [
            f"the price of {names[i]} has the wrong sign, or is of a bound that does not bind"
            for i in np.flatnonzero(bad)
        ]
    return faults


def _ranges(
    highs: Highs, model: LinearModel, activity: np.ndarray
) -> tuple[tuple[Range, ...], tuple[Range, ...] | None]:
    if not model.rows:  # HiGHS has no ranges without rows
        return (), None
    ranging = highs.getRanging()[1]
    bounds = []
    for row, at, status, low, high in zip(
        model.rows,
        activity.tolist(),
        highs.getBasis().row_status,
        ranging.row_bound_dn.value_,
        ranging.row_bound_up.value_,
        strict=True,
    ):
        if status != highspy.HighsBasisStatus.kBasic:
            bounds.append(_range(low, high))
        elif row.upper is not None and (row.lower is None or at - float(row.lower) > float(row.upper) - at):
            bounds.append((at, math.inf))  # a bound with slack matters to nobody until it binds
        else:
            bounds.append((-math.inf, at))
    costs = zip(ranging.col_cost_dn.value_, ranging.col_cost_up.value_, strict=True)
    return tuple(bounds), tuple(_range(*ends) for ends in costs)[: len(model.columns)]  # HiGHS adds one a row


def _range(low: float, high: float) -> Range:
    return (low if low > -INFINITE else -math.inf) + 0.0, (high if high < INFINITE else math.inf) + 0.0


def _slope_faults(
    highs: Highs, model: LinearModel, lp: highspy.HighsLp, activity: np.ndarray, duals: np.ndarray
) -> list[str]:
    """Which of the largest duals do not lie between the slopes to both sides of their bound."""
    value = highs.getInfo().objective_function_value
    sign = 1 if model.sense == "min" else -1
    faults = []
    lowers, uppers, at = (np.array(part).tolist() for part in (lp.row_lower_, lp.row_upper_, activity))
    for i in np.argsort(-abs(duals), kind="stable")[:RESOLVED]:
        if not duals[i]:
            break
        low, high = lowers[i], uppers[i]
        for step in (-STEP, STEP):
            step *= max(1.0, abs(at[i]))
            # The bound that binds moves; an equation moves as a whole.
            moved_low = low + step if at[i] - low <= high - at[i] else low
            moved_high = high + step if high - at[i] <= at[i] - low else high
            highs.changeRowBounds(int(i), min(moved_low, moved_high), max(moved_low, moved_high))
            highs.run()
            if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
                change = highs.getInfo().objective_function_value - value
                if sign * (change - duals[i] * step) < -1e-6 * (1 + abs(value)):
                    faults.append(f"solving again does not confirm the dual {duals[i]:g} of '{model.rows[i].name}'")
        highs.changeRowBounds(int(i), low, high)
    return list(dict.fromkeys(faults))

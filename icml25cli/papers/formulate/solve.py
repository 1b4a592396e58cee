"""Solving a linear model: HiGHS in this process, or CBC through PuLP.

    solution = solve(model)
    solution.status, solution.objective, solution.by_name(model)

Knows linear models and two solvers. Does not know why the answer is what it is; that is `explain`.
"""

import math
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

import highspy

from icml25cli.core.errors import InputError, MissingError
from icml25cli.papers.formulate.highs import arrays, new_solver
from icml25cli.papers.formulate.linear import Column, LinearModel, Row

SolverName = Literal["highs", "cbc"]
# "feasible": time was up with a point in hand; "unknown": without one
Status = Literal["optimal", "infeasible", "unbounded", "feasible", "unknown"]
TIME_LIMIT = 60.0  # seconds; both solvers can run for ever on an unbounded set of whole points
SMALL = 200  # variables
TOLERANCE = 1e-6  # of HiGHS and CBC: by how much a row may be broken


@dataclass(frozen=True)
class Solution:
    """What a solver found: ``values`` is a number a column, None where there is no point."""

    status: Status
    objective: float | None
    values: tuple[float, ...] | None
    solver: SolverName
    seconds: float
    bound: float | None = None  # on the objective, where whole variables leave a gap
    violation: float = 0.0  # the most by which the point breaks a row or bound, recomputed here

    def by_name(self, model: LinearModel) -> dict[str, float]:
        """Values by the names that the user gave."""
        values = self.values or ()
        return {column.name: value for column, value in zip(model.columns, values, strict=bool(values))}


def solve(model: LinearModel, solver: SolverName = "highs", time_limit: float | None = TIME_LIMIT) -> Solution:
    """Solve a model. Whole variables come out exactly whole, and the objective is recomputed from the values.

    Args:
        time_limit: seconds; None for no limit.

    Raises:
        InputError: the model has no variables, or numbers beyond what a solver can hold.
        MissingError: CBC does not run on this machine.
    """
    if not model.columns:
        raise InputError("the model has no decision variables", hint="declare what is to be decided")
    started = time.monotonic()
    if any(_crossed(limits) for limits in (*model.columns, *model.rows)):  # which CBC does not survive
        return Solution("infeasible", None, None, solver, 0.0)
    by_highs = solver == "highs" or not model.rows  # without rows CBC crashes on a variable without bounds
    found = (_with_highs if by_highs else _with_cbc)(model, time_limit)
    found = replace(found, seconds=time.monotonic() - started)
    if found.values is None:
        return found
    values = tuple(
        float(round(value)) if column.integer else value + 0.0  # which makes -0.0 plain
        for column, value in zip(model.columns, found.values, strict=True)
    )
    objective = math.fsum([float(model.constant), *(float(a) * values[column] for column, a in model.objective)])
    return replace(found, values=values, objective=objective, violation=violation(model, values))


def _crossed(limits: Column | Row) -> bool:
    return limits.lower is not None and limits.upper is not None and limits.lower > limits.upper


def violation(model: LinearModel, values: tuple[float, ...]) -> float:
    """The most by which a point breaks a bound or row, the latter relative to the size of its terms."""
    worst = 0.0
    for column, value in zip(model.columns, values, strict=True):
        worst = max(worst, _beyond(value, column.lower, column.upper))
    for row in model.rows:
        parts = [float(coefficient) * values[column] for column, coefficient in row.terms]
        scale = max(1.0, *(abs(part) for part in parts)) if parts else 1.0
        worst = max(worst, _beyond(math.fsum(parts), row.lower, row.upper) / scale)
    return worst


def _beyond(value: float, lower: Any, upper: Any) -> float:
    below = 0.0 if lower is None else float(lower) - value
    above = 0.0 if upper is None else value - float(upper)
    return max(0.0, below, above)


# --- HiGHS -------------------------------------------------------------------------------------------------------

_HIGHS_STATUS: dict[Any, Status] = {
    highspy.HighsModelStatus.kOptimal: "optimal",
    highspy.HighsModelStatus.kInfeasible: "infeasible",
    highspy.HighsModelStatus.kUnbounded: "unbounded",
}


def _with_highs(model: LinearModel, time_limit: float | None) -> Solution:
    highs = new_solver(time_limit)
    if len(model.columns) <= SMALL:  # what pays for large models takes 7 ms of small ones, twenty times all the rest
        highs.setOptionValue("mip_heuristic_run_feasibility_jump", False)
        highs.setOptionValue("mip_allow_restart", False)
    highs.passModel(arrays(model))
    highs.run()
    found = highs.getModelStatus()
    status = _HIGHS_STATUS.get(found, "unknown")
    undecided = found == highspy.HighsModelStatus.kUnboundedOrInfeasible
    if undecided or (status == "unbounded" and model.is_integer):
        status = _unbounded_or_not(model, time_limit)  # presolve and the relaxation stop before they know
    info = highs.getInfo()
    feasible = info.primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    if status == "unknown" and feasible:
        status = "feasible"
    if status not in ("optimal", "feasible"):
        return Solution(status, None, None, "highs", 0.0)
    bound = info.mip_dual_bound if model.is_integer and math.isfinite(info.mip_dual_bound) else None
    return Solution(status, None, tuple(map(float, highs.getSolution().col_value)), "highs", 0.0, bound)


def _unbounded_or_not(model: LinearModel, time_limit: float | None) -> Status:
    """Of a model that has no optimum: unbounded only if some point, whole as asked, is feasible."""
    feasibility = _with_highs(replace(model, objective=(), constant=0), time_limit).status
    return "unbounded" if feasibility in ("optimal", "feasible") else feasibility


# --- CBC ---------------------------------------------------------------------------------------------------------


def _with_cbc(model: LinearModel, time_limit: float | None) -> Solution:
    import pulp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of PuLP 3 about PuLP 4
        arrays(model)  # for its checks: CBC takes the same sizes of numbers
        problem = pulp.LpProblem("model", pulp.LpMaximize if model.sense == "max" else pulp.LpMinimize)
        variables = [
            problem.add_variable(
                f"x{position}",
                None if column.lower is None else float(column.lower),
                None if column.upper is None else float(column.upper),
                pulp.LpInteger if column.integer else pulp.LpContinuous,
            )
            for position, column in enumerate(model.columns)
        ]
        problem.setObjective(_expression(pulp, variables, model.objective, model.constant))
        for row in model.rows:
            expression = _expression(pulp, variables, row.terms, 0)
            if row.lower is not None and row.lower == row.upper:
                problem.addConstraint(pulp.LpConstraint(expression, pulp.LpConstraintEQ, rhs=float(row.lower)))
                continue
            if row.lower is not None:
                problem.addConstraint(pulp.LpConstraint(expression, pulp.LpConstraintGE, rhs=float(row.lower)))
            if row.upper is not None:
                problem.addConstraint(pulp.LpConstraint(expression, pulp.LpConstraintLE, rhs=float(row.upper)))
        cbc = pulp.PULP_CBC_CMD(msg=False, threads=1, timeLimit=time_limit)
        if not cbc.available():
            raise MissingError("the CBC that comes with PuLP does not run here", hint="use --solver highs")
        try:
            problem.solve(cbc)
        except pulp.PulpSolverError as error:
            raise MissingError(f"CBC failed: {error}", hint="use --solver highs") from error
    statuses: dict[int, Status] = {
        pulp.LpSolutionOptimal: "optimal",
        pulp.LpSolutionIntegerFeasible: "feasible",
        pulp.LpSolutionInfeasible: "infeasible",
        pulp.LpSolutionUnbounded: "unbounded",
    }
    status = statuses.get(problem.sol_status, "unknown")
    if status in ("infeasible", "unbounded") and model.objective:
        status = _unbounded_or_not(model, time_limit)  # CBC, too, calls one what is the other
    if status not in ("optimal", "feasible"):
        return Solution(status, None, None, "cbc", 0.0)
    values = [
        _near_zero(column) if variable.varValue is None else variable.varValue
        for variable, column in zip(variables, model.columns, strict=True)
    ]
    return Solution(status, None, tuple(values), "cbc", 0.0)


def _expression(pulp: Any, variables: list[Any], terms: Any, constant: Any) -> Any:
    return pulp.LpAffineExpression([(variables[column], float(a)) for column, a in terms], float(constant))


def _near_zero(column: Column) -> float:
    """A value for a variable that no row and no objective has, which PuLP does not pass on."""
    if column.lower is not None and column.lower > 0:
        return float(math.ceil(column.lower) if column.integer else column.lower)
    if column.upper is not None and column.upper < 0:
        return float(math.floor(column.upper) if column.integer else column.upper)
    return 0.0

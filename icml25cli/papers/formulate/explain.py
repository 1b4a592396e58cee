"""Everything there is to say about a model once it is solved, or cannot be.

    explanation = explain(model)

Knows the parts of this package that find things out. Does not know how they are shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from icml25cli.papers.formulate.conflict import Conflict, Ray, find_conflict, find_ray
from icml25cli.papers.formulate.linear import LinearModel, Row, between
from icml25cli.papers.formulate.sensitivity import Sensitivity, sensitivity
from icml25cli.papers.formulate.solve import TIME_LIMIT, TOLERANCE, Solution, SolverName, solve


@dataclass(frozen=True)
class Explanation:
    """A solution, and what belongs to its status: prices of an optimum, a conflict, or a ray."""

    model: LinearModel
    solution: Solution
    prices: Sensitivity | None
    conflict: Conflict | None
    ray: Ray | None
    wording: Mapping[str, str] = field(default_factory=dict)  # the user's own words for constraints, by label

    def variables(self) -> list[dict[str, object]]:
        """A row a variable: its value, and where there are prices its reduced cost and the range of its coefficient."""
        rows: list[dict[str, object]] = []
        costs = dict(self.model.objective)
        for j, column in enumerate(self.model.columns):
            row: dict[str, object] = {"variable": column.name}
            if self.solution.values is not None:
                row["value"] = self.solution.values[j]
            if self.prices is not None:
                row |= {"reduced_cost": self.prices.reduced_costs[j], "coefficient": float(costs.get(j, 0))}
                if self.prices.cost_ranges is not None:
                    low, high = self.prices.cost_ranges[j]
                    row |= {"coefficient_from": _finite(low), "coefficient_to": _finite(high)}
            rows.append(row)
        return rows

    def constraints(self) -> list[dict[str, object]]:
        """A row a constraint: its text, activity, slack, whether it binds, its dual, and for what bounds that holds."""
        rows: list[dict[str, object]] = []
        for i, row in enumerate(self.model.rows):
            said: dict[str, object] = {"constraint": row.name, "says": self.model.row_text(row)}
            if self.solution.values is not None:
                activity = float(self.model.value(row.terms, self.solution.values))
                slack = _slack(row, activity)
                said |= {
                    "activity": activity,
                    "slack": slack,
                    "binds": abs(slack) <= TOLERANCE * max(1.0, abs(activity)),
                }
            if self.prices is not None:
                low, high = self.prices.bound_ranges[i]
                said |= {"dual": self.prices.duals[i], "bound_from": _finite(low), "bound_to": _finite(high)}
            rows.append(said)
        return rows

    def sentences(self) -> list[str]:
        """What a person should know, in words."""
        said = list(self.model.notes)
        solution = self.solution
        if self.conflict is not None:
            said += self._conflict_sentences(self.conflict)
        elif solution.status == "infeasible":
            said.append("No point satisfies all constraints; which of them exclude each other was not found in time.")
        if self.ray is not None:
            said += self._ray_sentences(self.ray)
        elif solution.status == "unbounded":
            said.append("The objective has no limit.")
        if solution.status == "feasible":
            said.append(f"Time was up: no better point is known, and the optimum is at best {solution.bound}.")
        if solution.status == "unknown":
            said.append("Time was up before a point was found, or it was known that there is none.")
        if self.prices is not None and self.prices.of != "linear program":
            said.append(
                "A model with whole variables has no duals: prices and ranges are those of the linear program in which "
                "the whole variables are fixed at their values."
            )
        if solution.status == "optimal" and self.prices is None:
            said.append("All variables are whole, so there are no duals: solve again with other bounds to price them.")
        return said

    def warnings(self) -> list[str]:
        """What may be wrong with the answer; empty as a rule."""
        found = list(self.prices.faults) if self.prices is not None else []
        if self.solution.violation > 10 * TOLERANCE:
            found.append(f"the solution breaks a constraint by {self.solution.violation:.1e} of its size")
        return found

    def members(self) -> list[dict[str, str]]:
        """The members of the conflict: constraints as the user wrote them, and bounds of variables."""
        if self.conflict is None:
            return []
        rows = [self.model.rows[i] for i in self.conflict.rows]
        said = [
            {
                "constraint": row.name,
                "says": self.model.row_text(row),
                "written": row.text,
                **({"words": self.wording[row.name]} if row.name in self.wording else {}),
            }
            for row in rows
        ]
        for places, side in ((self.conflict.lower, "lower"), (self.conflict.upper, "upper")):
            for column in (self.model.columns[j] for j in places):
                lower, upper = (column.lower, None) if side == "lower" else (None, column.upper)
                said.append({"constraint": f"{side} bound", "says": between(column.name, lower, upper), "written": ""})
        return said

    def _conflict_sentences(self, conflict: Conflict) -> list[str]:
        said = [
            f'"{member["words"]}": {member["says"]}'
            if "words" in member
            else f"{member['constraint']}: {member['written'] or member['says']}"
            + (f" (here {member['says']})" if "[" in member["constraint"] else "")
            for member in self.members()
        ]
        reason = " for whole numbers" if conflict.whole else ""
        if len(said) == 1:
            return [f"This cannot hold{reason}:", *said]
        smallest = "; without any one of them there is a solution" if conflict.irreducible else ""
        return [f"These exclude each other{reason}{smallest}:", *said]

    def _ray_sentences(self, ray: Ray) -> list[str]:
        moving = [(j, step) for j, step in enumerate(ray.direction) if step]
        names = [self.model.columns[j].name for j, _ in moving]
        steps = ", ".join(f"{self.model.columns[j].name} by {float(step):+.6g}" for j, step in moving[:10])
        return [
            f"Nothing limits {_listed(names)}: changing {steps} keeps every constraint and moves the objective by "
            f"{float(ray.gain):+.6g}, as often as one likes.",
            f"A limit on {names[0] if len(names) == 1 else 'one of them'} is missing, or {self.model.sense} should be "
            f"{'min' if self.model.sense == 'max' else 'max'}.",
        ]


def explain(
    model: LinearModel,
    solver: SolverName = "highs",
    time_limit: float | None = TIME_LIMIT,
    wording: Mapping[str, str] | None = None,
) -> Explanation:
    """Solve a model and find out why its answer is what it is.

    Args:
        wording: the user's own words for constraints, by label.

    Raises:
        InputError: as ``solve``.
    """
    solution = solve(model, solver, time_limit)
    infeasible, unbounded = solution.status == "infeasible", solution.status == "unbounded"
    return Explanation(
        model,
        solution,
        sensitivity(model, solution),
        find_conflict(model) if infeasible else None,
        find_ray(model) if unbounded else None,
        wording or {},
    )


def _slack(row: Row, activity: float) -> float:
    """How far a row is from the bound that is nearer; negative where it is broken by more than a solver may."""
    gaps = [activity - float(row.lower)] if row.lower is not None else []
    gaps += [float(row.upper) - activity] if row.upper is not None else []
    gap = min(gaps, default=float("inf"))
    return 0.0 if abs(gap) <= 1e-9 * max(1.0, abs(activity)) else gap


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def _listed(names: list[str]) -> str:
    shown = names if len(names) <= 10 else [*names[:10], f"{len(names) - 10} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"

"""Whether two models are the same: the same feasible points, and the same objective on them (section 3 of the paper).

    verdict = equivalent(a, b)
    verdict.status    # "equivalent", "different" with a witness, or "undecided"

Canonical forms first; then z3, which is exact; HiGHS as a second opinion, or alone where z3 is not installed. Four
traps of symbolic comparison are minded: senses are brought together (max f is min -f), whole variables are whole,
bounds belong to the systems, and two infeasible systems, of which everything holds, are not called the same unless
their rows are. Knows compiled models. Does not know the search that prunes with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from typing import Any, Literal

from icml25cli.papers.formulate import implication
from icml25cli.papers.formulate.canonical import Canonical, canonical
from icml25cli.papers.formulate.implication import Answer, Point
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.rationals import Number, text

SECONDS = 2.0  # that a question may take
DECIMALS = Fraction(1, 10**6)  # by which a point that HiGHS found may break what it is to satisfy


@dataclass(frozen=True)
class Verdict:
    """The answer, and what shows it."""

    status: Literal["equivalent", "different", "undecided"]
    reason: str  # a sentence: what the witness shows, or what decided
    method: Literal["canonical rows", "z3", "HiGHS"]
    witness: Point | None = None  # a point by the names of the first model


def equivalent(
    a: LinearModel,
    b: LinearModel,
    *,
    names: Mapping[str, str] | None = None,
    timeout: float = SECONDS,
    called: tuple[str, str] = ("the first", "the second"),
) -> Verdict:
    """Compare two models over the same variables.

    Args:
        names: what variables of the second model are called in the first, where that differs.
        timeout: seconds a question to a solver may take; beyond it the answer is undecided, which a search has to take
            for different, as the paper does.
        called: what the reasons call the two.
    """
    return _Comparison(a, b, names or {}, timeout, called).verdict()


class _Comparison:
    def __init__(
        self, a: LinearModel, b: LinearModel, names: Mapping[str, str], timeout: float, called: tuple[str, str]
    ) -> None:
        self._models = a, b
        self._names = [column.name for column in a.columns], [names.get(c.name, c.name) for c in b.columns]
        self._forms = canonical(a), canonical(b, names)
        self._called = called
        self._timeout = timeout
        self._method: Literal["z3", "HiGHS"] = "z3" if find_spec("z3") else "HiGHS"

    def verdict(self) -> Verdict:
        first, second = self._forms
        if first == second:
            return Verdict("equivalent", "their canonical rows are the same", "canonical rows")
        if first.names != second.names:
            return self._undecided(f"they have different variables: {self._other_variables()}")
        same_points = (first.variables, first.rows) == (second.variables, second.rows)
        for one in () if same_points else (0, 1):
            answer, point = self._find(self._forms[one], outside=self._forms[1 - one])
            if answer == "unknown":
                return self._undecided(f"whether a point of {self._called[one]} is outside the other is not known")
            if point is not None:
                return self._point_of_one(one, point)
        return self._objectives()

    def _find(self, inside: Canonical, **asked: Any) -> tuple[Answer, Point | None]:
        if self._method == "HiGHS":
            return implication.find_point(inside, timeout=self._timeout, **asked)
        from icml25cli.papers.formulate.smt import find_point  # z3 takes half a second to load, and is rarely asked

        return find_point(inside, timeout=self._timeout, **asked)

    def _point_of_one(self, one: int, point: Point) -> Verdict:
        broken = self._broken(1 - one, point)
        if self._broken(one, point) or not broken:
            return self._undecided("the point that tells them apart did not stand the test")
        reason = f"a point of {self._called[one]} breaks {', '.join(broken[:3])} of {self._called[1 - one]}"
        return Verdict("different", reason, self._method, point)

    def _objectives(self) -> Verdict:
        """The verdict on two models with the same points."""
        first, second = self._forms
        answer, _ = self._find(first)
        if answer == "no":
            return self._undecided(
                "both are infeasible, so no point can tell them apart, and they are not the same in words"
            )
        if answer == "unknown":
            return self._undecided("whether they have any point is not known")
        if (first.objective, first.constant) != (second.objective, second.constant):
            difference: dict[str, Number] = dict(first.objective)
            for name, coefficient in second.objective:
                difference[name] = difference.get(name, 0) - coefficient
            difference = {name: value for name, value in difference.items() if value}
            unequal = difference, first.constant - second.constant
            answer, point = self._find(first, nonzero=unequal)
            if answer == "unknown":
                return self._undecided("whether their objectives differ is not known")
            if point is not None:
                return self._point_of_both(point)
        if self._method == "z3" and not any(whole for _, whole in first.variables):
            for one in (0, 1):  # a second opinion, by other means
                answer, _ = implication.find_point(first if one == 0 else second, self._forms[1 - one])
                if answer == "yes":
                    return self._undecided("z3 finds no point that tells them apart, and HiGHS does")
        beyond = "" if self._method == "z3" else f" by more than {implication.NOISE:g}, which is all that HiGHS can see"
        return Verdict("equivalent", f"no point tells them apart{beyond}", self._method)

    def _point_of_both(self, point: Point) -> Verdict:
        values = [model.objective_at(self._at(one, point)) for one, model in enumerate(self._models)]
        said = [
            f"{model.sense} {text(value)} to {called}"
            for model, value, called in zip(self._models, values, self._called, strict=True)
        ]
        return Verdict("different", f"a point of both is worth {said[0]} and {said[1]}", self._method, point)

    def _at(self, one: int, point: Point) -> list[Number]:
        return [point[name] for name in self._names[one]]

    def _broken(self, one: int, point: Point) -> list[str]:
        return self._models[one].violations(self._at(one, point), 0 if self._method == "z3" else DECIMALS)

    def _other_variables(self) -> str:
        first, second = (form.names for form in self._forms)
        parts = [
            f"{', '.join(sorted(only)[:3])} only in {called}"
            for only, called in zip((first - second, second - first), self._called, strict=True)
            if only
        ]
        return " and ".join(parts)

    def _undecided(self, reason: str) -> Verdict:
        return Verdict("undecided", reason, self._method)

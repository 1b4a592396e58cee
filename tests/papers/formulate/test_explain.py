"""Prices with the right sign and range, conflicts that are irreducible, rays that are rays."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from icml25cli.papers.formulate import conflict as conflict_module
from icml25cli.papers.formulate import sensitivity as sensitivity_module
from icml25cli.papers.formulate.conflict import find_conflict, find_ray
from icml25cli.papers.formulate.explain import explain
from icml25cli.papers.formulate.linear import Column, LinearModel, Row
from icml25cli.papers.formulate.rationals import exact
from icml25cli.papers.formulate.sensitivity import sensitivity
from icml25cli.papers.formulate.solve import solve
from tests.papers.formulate.models import CONT, INT, farmer, known, model
from tests.papers.formulate.test_solve import models


def test_farmer_of_figure_1():
    found = explain(farmer())
    assert (found.solution.status, found.solution.objective) == ("optimal", 300)
    assert known(found.prices).of == "linear program"
    assert known(found.prices).faults == ()
    land, budget = found.constraints()
    assert (land["dual"], land["slack"], land["binds"]) == (30, 0, True)
    assert (budget["dual"], budget["slack"], budget["binds"]) == (0, 50, False)
    wheat, corn = found.variables()
    assert (wheat["value"], wheat["reduced_cost"]) == (0, -10)
    assert (corn["value"], corn["reduced_cost"]) == (10, 0)
    # one more acre is worth 30 until the budget binds at 20 acres; corn stays best above 20 a unit
    assert (land["bound_from"], land["bound_to"]) == (0, 20)
    assert (budget["bound_from"], budget["bound_to"]) == (50, None)
    assert (corn["coefficient_from"], corn["coefficient_to"]) == (20, None)
    assert (wheat["coefficient_from"], wheat["coefficient_to"]) == (None, 30)
    assert found.sentences() == found.warnings() == found.members() == []


@pytest.mark.parametrize(("sense", "sign"), [("max", 1), ("min", -1)])
def test_prices_are_in_the_objectives_own_sense(sense, sign):
    turned = replace(farmer(), sense=sense, objective=tuple((j, sign * a) for j, a in farmer().objective))
    prices = known(sensitivity(turned, solve(turned)))
    assert prices.duals == (sign * 30, 0)
    assert prices.reduced_costs == (sign * -10, 0)


def test_a_lower_bound_and_an_equation_have_prices():
    # a cheap source limited from above, a dear one, a demand from below, and a fixed mix
    compiled = model(
        {"cheap": CONT, "dear": CONT, "extra": CONT},
        {"min": "2 * cheap + 5 * dear + extra"},
        {"demand": "cheap + dear >= 10", "limit": "cheap <= 6"},
        {"mix": "extra == 3"},
    )
    found = explain(compiled)
    assert dict(zip([row["constraint"] for row in found.constraints()], known(found.prices).duals, strict=True)) == {
        "mix": 1,
        "demand": 5,
        "limit": -3,
    }
    assert found.warnings() == []


def test_duals_of_whole_variables_are_of_the_fixed_program_and_say_so():
    compiled = model(
        {"plants": INT, "make": CONT},
        {"max": "3 * make - 10 * plants"},
        {"cap": "make <= 8 * plants", "demand": "make <= 20"},
    )
    found = explain(compiled)
    assert found.solution.by_name(compiled) == {"plants": 3, "make": 20}
    assert known(found.prices).of == "fixed-integer linear program"
    assert known(found.prices).duals == (0, 3)
    assert any("no duals" in sentence for sentence in found.sentences())


def test_nothing_but_whole_variables_has_no_prices():
    found = explain(model({"x": INT}, {"max": "x"}, {"a": "2 * x <= 5"}))
    assert found.prices is None
    assert "dual" not in found.constraints()[0]
    assert any("no duals" in sentence for sentence in found.sentences())


def test_a_model_without_rows_is_explained():
    found = explain(model({"x": CONT}, {"min": "2 * x"}))
    assert found.variables() == [{"variable": "x", "value": 0, "reduced_cost": 2, "coefficient": 2}]


@pytest.mark.parametrize("fault", ["duals", "reduced", "both", "scaled"])
def test_wrong_prices_do_not_pass_the_check(fault, monkeypatch):
    """As modelling layers have them: turned around for a maximum."""

    rows = {"duals": -1, "reduced": 1, "both": -1, "scaled": 2}[fault]
    columns = -1 if fault in ("reduced", "both") else 1

    class Turned(sensitivity_module.Highs):
        def getSolution(self):  # noqa: N802
            found = super().getSolution()
            return SimpleNamespace(
                col_value=found.col_value,
                row_value=found.row_value,
                row_dual=rows * np.array(found.row_dual),
                col_dual=columns * np.array(found.col_dual),
            )

    monkeypatch.setattr(sensitivity_module, "new_solver", Turned)
    found = known(sensitivity(farmer(), solve(farmer())))
    assert found.faults


def test_solving_again_catches_what_the_conditions_alone_would_not(monkeypatch):
    monkeypatch.setattr(sensitivity_module, "_kkt_faults", lambda *_: [])
    test_wrong_prices_do_not_pass_the_check("both", monkeypatch)


@st.composite
def programs(draw) -> LinearModel:
    """Feasible bounded linear programs with real numbers in general position."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n, m = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    point = rng.uniform(0.5, 2, n)
    rows = []
    for i in range(m):
        a = rng.uniform(-3, 3, n).round(3)
        at, gap = float(a @ point), rng.uniform(0.1, 2)
        side = rng.integers(3)
        low = None if side == 0 else round(at - (gap if side == 1 else 0), 6)
        high = None if side == 1 else round(at + (gap if side == 0 else 0), 6) if side == 0 else low
        if side == 2 and i:  # one equation keeps it feasible
            low, high = None, round(at + gap, 6)
        terms = tuple(enumerate(map(exact, a.tolist())))
        rows.append(Row(f"r{i}", terms, None if low is None else exact(low), None if high is None else exact(high)))
    columns = tuple(Column(f"x{j}", 0, 5) for j in range(n))
    objective = tuple(enumerate(map(exact, rng.uniform(-5, 5, n).round(3).tolist())))
    return LinearModel(draw(st.sampled_from(["min", "max"])), objective, 0, columns, tuple(rows))


@given(programs())
@settings(max_examples=60, deadline=None)
def test_prices_predict_other_solutions(compiled):
    """Inside a range the objective moves along its dual, and another coefficient leaves the solution as it is."""
    solution = solve(compiled)
    assume(solution.status == "optimal")
    found = known(sensitivity(compiled, solution))
    assert found.faults == ()
    for i, (row, dual, (low, high)) in enumerate(zip(compiled.rows, found.duals, found.bound_ranges, strict=True)):
        if not dual:
            continue
        at = float(compiled.value(row.terms, known(solution.values)))
        for end in (low, high):
            new = at + 0.9 * ((end if math.isfinite(end) else at + math.copysign(10, end)) - at)
            lower, upper = (None if bound is None else exact(new) for bound in (row.lower, row.upper))
            moved = replace(row, lower=lower, upper=upper)
            again = solve(replace(compiled, rows=(*compiled.rows[:i], moved, *compiled.rows[i + 1 :])))
            assert again.objective == pytest.approx(known(solution.objective) + dual * (new - at), abs=1e-5)
    costs = dict.fromkeys(range(len(compiled.columns)), 0.0) | {j: float(a) for j, a in compiled.objective}
    for j, (low, high) in enumerate(known(found.cost_ranges)):
        for end in (low, high):
            new = costs[j] + 0.9 * ((end if math.isfinite(end) else costs[j] + math.copysign(10, end)) - costs[j])
            new = new if abs(new) > 1e-6 else 0.0  # what is left of a difference is below what solvers take
            other = replace(compiled, objective=tuple((k, exact(new) if k == j else a) for k, a in compiled.objective))
            assert solve(other).objective == pytest.approx(float(other.objective_at(solution.values)), abs=1e-5)


# --- no solution -------------------------------------------------------------------------------------------------

CONFLICT = model({"a": CONT, "b": CONT}, {"min": "a"}, {"cap": "a + b <= 1", "dem": "a + b >= 2", "other": "a <= 5"})


def test_the_conflict_is_cap_and_dem_in_the_users_words():
    found = explain(CONFLICT)
    assert found.solution.status == "infeasible"
    assert [member["constraint"] for member in found.members()] == ["cap", "dem"]
    assert known(found.conflict).irreducible
    assert not known(found.conflict).whole
    assert found.sentences() == [
        "These exclude each other; without any one of them there is a solution:",
        "cap: a + b <= 1",
        "dem: a + b >= 2",
    ]


@pytest.mark.parametrize("answer", [[], [("row", 2)], [("row", 0), ("row", 1), ("row", 2), ("lower", 0)]])
def test_a_wrong_or_empty_answer_of_highs_is_filtered(answer, monkeypatch):
    monkeypatch.setattr(conflict_module, "_from_highs", lambda _: answer)
    found = known(find_conflict(CONFLICT))
    assert (found.rows, found.lower, found.upper, found.irreducible) == ((0, 1), (), (), True)


def test_bounds_of_variables_are_members_too():
    found = explain(
        model({"x": {"type": CONT, "upper": 2}, "y": CONT}, {"min": "x"}, {"sum": "x + y <= -1", "far": "x >= 3"})
    )
    said = {(member["constraint"], member["says"]) for member in found.members()}
    assert said in (
        {("upper bound", "x <= 2"), ("far", "x >= 3")},
        {("lower bound", "x >= 0"), ("lower bound", "y >= 0"), ("sum", "x + y <= -1")},
        {("far", "x >= 3"), ("lower bound", "y >= 0"), ("sum", "x + y <= -1")},
    )


def test_a_conflict_of_whole_numbers_alone():
    found = explain(
        model(
            {"i": {"type": INT, "upper": 9}, "j": INT}, {"min": "i"}, {"spare": "i <= 7"}, {"parity": "2*i + 2*j == 5"}
        )
    )
    assert known(found.conflict).whole
    assert found.sentences()[0] == "This cannot hold for whole numbers:"
    assert [member["constraint"] for member in found.members()] == ["parity"]


def test_one_pass_of_a_loop_is_named_with_its_numbers():
    found = explain(
        model(
            {"x": {"type": CONT, "iteration_space": "days"}},
            {"min": "sum(x.values())"},
            {"need": "x[d] >= need[d] for d in days", "cap": "x[d] <= 8 for d in days"},
            parameters={"days": ["mon", "tue"], "need": {"mon": 5, "tue": 9}},
        )
    )
    assert found.sentences()[1:] == [
        "need[tue]: x[d] >= need[d] for d in days (here x[tue] >= 9)",
        "cap[tue]: x[d] <= 8 for d in days (here x[tue] <= 8)",
    ]


def only(compiled: LinearModel, members: list[tuple[str, int]]) -> LinearModel:
    """A model with nothing of another but some rows and bounds."""
    columns = tuple(
        replace(
            c, lower=c.lower if ("lower", j) in members else None, upper=c.upper if ("upper", j) in members else None
        )
        for j, c in enumerate(compiled.columns)
    )
    rows = tuple(row for i, row in enumerate(compiled.rows) if ("row", i) in members)
    return LinearModel("min", (), 0, columns, rows)


@given(models(whole=False))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])  # most have a solution
def test_every_conflict_is_one_and_none_of_it_can_go(compiled):
    found = find_conflict(compiled) if solve(compiled).status == "infeasible" else None
    assume(found is not None)
    found = known(found)
    sides = {"row": found.rows, "lower": found.lower, "upper": found.upper}
    members = [(side, i) for side, places in sides.items() for i in places]
    assert solve(only(compiled, members)).status == "infeasible"
    assert found.irreducible
    for gone in members:
        assert solve(only(compiled, [member for member in members if member != gone])).status == "optimal"


def test_a_question_without_an_answer_keeps_its_member_and_is_said(monkeypatch):
    original = conflict_module._Search.infeasible

    def tired(self, members):
        answer = original(self, members)
        self.undecided |= not answer
        return answer

    monkeypatch.setattr(conflict_module._Search, "infeasible", tired)
    found = explain(CONFLICT)
    assert not known(found.conflict).irreducible
    assert found.sentences()[0] == "These exclude each other:"


def test_an_unbounded_model_names_what_is_not_limited():
    found = explain(model({"x": CONT, "y": CONT, "z": CONT}, {"max": "x + z"}, {"a": "x - y <= 1", "b": "z <= 4"}))
    assert found.solution.status == "unbounded"
    assert known(found.ray).direction == (1, 1, 0)
    assert known(found.ray).gain == 1
    assert found.sentences()[0].startswith("Nothing limits x and y:")
    assert "max should be min" in found.sentences()[1]


def test_the_step_along_a_ray_is_whole():
    found = known(find_ray(model({"i": INT, "j": INT}, {"min": "-i"}, {"a": "3*i - 2*j == 0"})))
    assert (found.direction, found.gain) == ((2, 3), -2)


@given(models(), st.sets(st.integers(0, 2)))
@settings(max_examples=60, deadline=None)
def test_a_ray_is_found_just_where_the_objective_has_no_limit(compiled, opened):
    columns = tuple(
        replace(c, upper=None if j in opened else c.upper, lower=None if j in opened and j else c.lower)
        for j, c in enumerate(compiled.columns)
    )
    wide = replace(compiled, columns=columns)
    status = solve(wide).status
    assume(status in ("optimal", "unbounded"))
    found = find_ray(wide)
    assert (found is not None) == (status == "unbounded")
    if found is not None:
        start = known(solve(replace(wide, objective=(), constant=0)).values)
        far = [value + 1000 * float(step) for value, step in zip(start, found.direction, strict=True)]
        assert not [name for name in wide.violations(far, 1e-4) if "whole" not in name]
        gain = float(wide.objective_at(far)) - float(wide.objective_at(start))
        assert gain == pytest.approx(1000 * float(found.gain), rel=1e-6)
        assert (gain > 0) == (wide.sense == "max")

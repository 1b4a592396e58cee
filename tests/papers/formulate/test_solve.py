"""Two solvers give one answer, and their known traps do not reach it."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import InputError
from icml25cli.papers.formulate.linear import Column, LinearModel, Row
from icml25cli.papers.formulate.solve import solve
from tests.papers.formulate.models import BIN, CONT, INT, farmer, known, model

FREE = {"type": CONT, "lower": None}
NINE = {"type": INT, "upper": 9}
KNOWN = {
    "farmer": (farmer(), "optimal", 300),
    "whole": (
        model({"x": INT, "y": INT}, {"max": "5*x + 4*y"}, {"a": "6*x + 4*y <= 24", "b": "x + 2*y <= 6"}),
        "optimal",
        20,
    ),
    "mixed": (model({"x": CONT, "y": INT}, {"max": "x + 10*y"}, {"a": "x + 3*y <= 7.5"}), "optimal", 21.5),
    "constant": (model({"x": CONT}, {"min": "x + 3"}), "optimal", 3),
    "no objective": (model({"x": {"type": INT, "lower": 1.5}}), "optimal", 0),
    "unplaced": (model({"x": CONT, "y": {"type": INT, "lower": 1.5}}, {"max": "x"}, {"a": "x <= 2"}), "optimal", 2),
    "infeasible": (model({"x": CONT}, {"min": "x"}, {"a": "x <= 1", "b": "x >= 2"}), "infeasible", None),
    "false row": (model({"x": CONT}, {"min": "x"}, {"a": "3 <= 2"}), "infeasible", None),
    "crossed bounds": (model({"x": {"type": CONT, "lower": 5, "upper": 3}}), "infeasible", None),
    "infeasible whole": (
        model({"i": {"type": INT, "upper": 9}, "j": {"type": INT, "upper": 9}}, equations={"a": "2*i + 2*j == 5"}),
        "infeasible",
        None,
    ),
    "unbounded": (model({"x": CONT, "y": CONT}, {"max": "x"}, {"a": "x - y <= 1"}), "unbounded", None),
    "unbounded free": (model({"x": FREE}, {"min": "x"}), "unbounded", None),
    "unbounded whole": (model({"x": INT, "y": CONT}, {"max": "x + y"}, {"a": "x - y <= 1"}), "unbounded", None),
    # unbounded in its relaxation, and yet without a point: 29 is no sum of sixes, tens and fifteens
    "neither": (
        model(
            {"x": CONT, **dict.fromkeys("abc", NINE)}, {"max": "x"}, {"s": "x >= a"}, {"f": "6*a + 10*b + 15*c == 29"}
        ),
        "infeasible",
        None,
    ),
    "infeasible and unbounded": (model({"x": CONT, "y": CONT}, {"max": "x"}, {"a": "y <= -1"}), "infeasible", None),
}


@pytest.mark.parametrize("name", KNOWN)
def test_highs_knows_the_answer(name):
    compiled, status, objective = KNOWN[name]
    found = solve(compiled)
    assert (found.status, found.objective) == (status, pytest.approx(objective) if objective is not None else None)
    assert (found.values is not None) == (status == "optimal")
    if found.values is not None:
        assert not compiled.violations([Fraction(value) for value in found.values], Fraction(1, 10**6))


# Of `infeasible whole` and `neither` CBC may not know the answer.
@pytest.mark.parametrize("name", [name for name in KNOWN if name not in ("infeasible whole", "neither")])
def test_cbc_gives_the_same(name):
    compiled, status, objective = KNOWN[name]
    found = solve(compiled, "cbc", time_limit=20)
    assert (found.status, found.objective) == (status, pytest.approx(objective) if objective is not None else None)


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_whole_variables_are_whole_and_zero_has_no_sign(solver):
    compiled = model({"x": INT, "y": BIN}, {"max": "3*x - y"}, {"a": "7*x <= 22"})
    found = solve(compiled, solver)
    assert found.values == (3.0, 0.0)
    assert str(known(found.values)[1]) == "0.0"
    assert found.by_name(compiled) == {"x": 3, "y": 0}


def test_a_gap_of_a_hundredth_of_a_percent_is_no_optimum():
    # At its own relative gap of 1e-4 HiGHS calls 8,687,383 optimal.
    random_items = random.Random(0)
    weights = [random_items.randint(100, 999) for _ in range(30)]
    values = [1000 * weight + random_items.randint(0, 400) for weight in weights]
    best = [0] * (sum(weights) // 2 + 1)  # by dynamic programming: the best value of every capacity
    for weight, value in zip(weights, values, strict=True):
        for room in range(len(best) - 1, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + value)
    compiled = model(
        {"x": {"type": BIN, "iteration_space": "range(30)"}},
        {"max": "sum(v * x[i] for i, v in enumerate(values))"},
        {"sack": "sum(w * x[i] for i, w in enumerate(weights)) <= sum(weights) // 2"},
        parameters={"weights": weights, "values": values},
    )
    assert solve(compiled).objective == best[-1] == 8_687_645


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_time_up_is_said(solver):
    # market split: no point at all, which takes a search to show
    numbers = [[(31 * i * i + 17 * j * j + 7 * i * j) % 100 for i in range(30)] for j in range(4)]
    compiled = model(
        {"x": {"type": BIN, "iteration_space": "range(30)"}},
        {"min": "x[0]"},
        equations={"split": "sum(a * x[i] for i, a in enumerate(row)) == sum(row) // 2 for row in rows"},
        parameters={"rows": numbers},
    )
    found = solve(compiled, solver, time_limit=0.2)
    assert (found.status, found.values) == ("unknown", None)


@pytest.mark.parametrize(
    ("compiled", "named"),
    [
        (model({"x": CONT}, {"min": "1e30 * x"}), "1e+30 of x in the objective is too large"),
        (model({"x": CONT}, rows={"cap": "1e-14 * x <= 1"}), "of x in 'cap' is too small"),
        (model({"x": CONT}, rows={"cap": "x <= 1e25"}), "1e+25 in cap is infinite"),
        (model({"x": {"type": CONT, "upper": 1e22}}), "the bounds of x"),
        (LinearModel("min", (), 0, (), ()), "no decision variables"),
    ],
)
@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_numbers_that_a_solver_would_drop_or_take_for_infinite_are_refused(compiled, named, solver):
    with pytest.raises(InputError) as caught:
        solve(compiled, solver)
    assert named in caught.value.message


def test_nothing_is_printed(capfd):
    solve(farmer())
    solve(farmer(), "cbc")
    assert capfd.readouterr() == ("", "")


@st.composite
def models(draw, whole: bool | None = None) -> LinearModel:
    """Small models with bounded variables, feasible or not."""
    n = draw(st.integers(1, 3))
    number = st.integers(-6, 6)
    columns = tuple(
        Column(
            f"x{j}", draw(st.integers(-2, 0)), draw(st.integers(1, 4)), draw(st.booleans()) if whole is None else whole
        )
        for j in range(n)
    )
    rows = []
    for i in range(draw(st.integers(0, 4))):
        terms = tuple((j, a) for j in range(n) if (a := draw(number)))
        low, high = sorted((draw(number), draw(number)))
        side = draw(st.integers(0, 3))
        rows.append(Row(f"r{i}", terms, low if side != 0 else None, {0: high, 1: None, 2: low, 3: high}[side]))
    objective = tuple((j, a) for j in range(n) if (a := draw(number)))
    return LinearModel(draw(st.sampled_from(["min", "max"])), objective, draw(number), columns, tuple(rows))


@given(models(whole=True))
@settings(max_examples=60, deadline=None)
def test_highs_agrees_with_counting(compiled):
    """Whole variables within bounds can all be tried."""
    points = [()]
    for column in compiled.columns:
        points = [(*point, value) for point in points for value in range(int(column.lower), int(column.upper) + 1)]
    feasible = [compiled.objective_at(point) for point in points if not compiled.violations(point)]
    found = solve(compiled)
    assert found.status == ("optimal" if feasible else "infeasible")
    if feasible:
        assert found.objective == pytest.approx((max if compiled.sense == "max" else min)(feasible))


@given(models())
@settings(max_examples=30, deadline=None)
def test_a_maximum_is_the_minimum_of_the_negative(compiled):
    turned = replace(
        compiled,
        sense="min" if compiled.sense == "max" else "max",
        objective=tuple((j, -a) for j, a in compiled.objective),
        constant=-compiled.constant,
    )
    first, second = solve(compiled), solve(turned)
    assert first.status == second.status
    if first.objective is not None:
        assert first.objective == pytest.approx(-known(second.objective), abs=1e-6)

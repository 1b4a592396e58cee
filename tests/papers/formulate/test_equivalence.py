"""Models that are the same are found to be, others are told apart by a point, and nothing is claimed of nothing."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.formulate import equivalence, implication, matching, smt
from icml25cli.papers.formulate.canonical import canonical
from icml25cli.papers.formulate.equivalence import equivalent
from icml25cli.papers.formulate.linear import Column, LinearModel, Row
from icml25cli.papers.formulate.matching import compare, parse_names
from icml25cli.papers.formulate.solve import solve
from tests.papers.formulate.models import CONT, INT, farmer, known, model
from tests.papers.formulate.test_solve import models

XY = {"x": CONT, "y": CONT}
WHOLE = {"x": INT, "y": INT}
FREE = {"type": CONT, "lower": None}


@pytest.fixture(params=["z3", "HiGHS"])
def oracle(request, monkeypatch) -> str:
    """What answers where canonical rows do not: z3, or HiGHS as where z3 is not installed."""
    if request.param == "HiGHS":
        monkeypatch.setattr(equivalence, "find_spec", lambda _: None)
    return request.param


def system(*rows: str, variables: dict | None = None, objective: dict | None = None) -> LinearModel:
    return model(variables or XY, objective, {f"r{i}": row for i, row in enumerate(rows)})


CASES = [
    # scaled and turned around
    (system("2*x + 3*y <= 12", "x >= 1"), system("3*y + 2*x <= 12", "-x <= -1"), "equivalent"),
    (system("x <= 5"), system("x <= 5", "x <= 7"), "equivalent"),
    (system("x + y == 2", "x - y == 0"), system("x == 1", "y == 1"), "equivalent"),
    (system("x <= 2.5"), system("x <= 2"), "different"),
    (system("x <= 2.5", variables={"x": INT}), system("x <= 2", variables={"x": INT}), "equivalent"),
    # a bound of the domain is a row like any other
    (system("x >= 0"), system(), "equivalent"),
    (system("x >= 0", variables={"x": FREE}), system(variables={"x": FREE}), "different"),
    # of nothing everything holds
    (system("x + y <= 1", "x + y >= 2"), system("x + y <= 1", "x + y >= 3"), "undecided"),
    (system("x + y <= 1", "x + y >= 3"), system("x + y <= 1"), "different"),
    # objectives
    (system(objective={"max": "x"}), system(objective={"min": "x"}), "different"),
    (system(objective={"max": "x - 2*y"}), system(objective={"min": "2*y - x"}), "equivalent"),
    (system(objective={"max": "2*x"}), system(objective={"max": "x"}), "different"),
    (system(objective={"max": "x + 1"}), system(objective={"max": "x"}), "different"),
    (system("x + y == 5", objective={"min": "x + y"}), system("x + y == 5", objective={"min": "5"}), "equivalent"),
    # rationals, not floats
    (system("x <= 0.1 + 0.2"), system("x <= 0.3"), "equivalent"),
    # deeper than rows
    (system("x <= 4", "y <= 4", "x + y <= 9"), system("x <= 4", "y <= 4"), "equivalent"),
    (system("2*x + 2*y <= 5", variables=WHOLE), system("x + y <= 2", variables=WHOLE), "equivalent"),
    (system("3*x + 3*y <= 7", "x <= 3", variables=WHOLE), system("x + y <= 2", variables=WHOLE), "equivalent"),
    (system("2*x + 3*y <= 5", variables=WHOLE), system("x + y <= 2", "y <= 1", variables=WHOLE), "equivalent"),
    (system("2*x + 3*y <= 5"), system("x + y <= 2", "y <= 1"), "different"),
    (system("2*x - 2*y == 1", "x <= 9", variables=WHOLE), system(variables=WHOLE), "different"),
]


@pytest.mark.parametrize(("a", "b", "expected"), CASES)
def test_known_answers(a, b, expected, oracle):
    for one, other in ((a, b), (b, a)):
        verdict = equivalent(one, other)
        assert verdict.status == expected, verdict
        assert (verdict.witness is not None) == (expected == "different")
        assert verdict.method in ("canonical rows", oracle)


@pytest.mark.parametrize(("limit", "expected"), [(2, "different"), (0, "equivalent")])
def test_whole_in_one_and_not_in_the_other(limit, expected, oracle):
    one, other = (system(f"x <= {limit}", variables={"x": kind}) for kind in (INT, CONT))
    for a, b in ((one, other), (other, one)):
        # HiGHS alone does not look for points that are not whole
        assert equivalent(a, b).status == (expected if oracle == "z3" else "undecided")


def test_a_witness_is_exact_and_says_what_it_breaks():
    verdict = equivalent(system("x <= 1"), system("x < 1"), called=("A", "B"))
    assert verdict.status == "different"
    assert 1 - Fraction(1, 10**8) < known(verdict.witness)["x"] <= 1
    assert verdict.reason == "a point of A breaks r0 of B"
    verdict = equivalent(system(objective={"max": "2*x"}), system(objective={"max": "x"}), called=("A", "B"))
    point = known(verdict.witness)["x"]
    assert verdict.reason == f"a point of both is worth max {2 * point} to A and max {point} to B"


def test_what_highs_cannot_see_is_said(monkeypatch):
    monkeypatch.setattr(equivalence, "find_spec", lambda _: None)
    assert "by more than 1e-06" in equivalent(system("x <= 1"), system("x < 1")).reason


def test_time_up_is_undecided(monkeypatch):
    monkeypatch.setattr(smt, "find_point", lambda *_, **__: ("unknown", None))
    verdict = equivalent(system("x + y == 2", "x - y == 0"), system("x == 1", "y == 1"))
    assert verdict.status == "undecided"


def test_z3_is_stopped_in_time():
    # market split: whether any point exists takes a search that z3 does not finish
    numbers = [[(31 * i * i + 17 * j * j + 7 * i * j) % 100 for i in range(30)] for j in range(4)]
    split = model(
        {"x": {"type": "BINARY", "iteration_space": "range(30)"}},
        equations={"split": "sum(a * x[i] for i, a in enumerate(row)) == sum(row) // 2 for row in rows"},
        parameters={"rows": numbers},
    )
    assert smt.find_point(canonical(split), timeout=0.05) == ("unknown", None)
    looser = replace(split, rows=tuple(replace(row, upper=known(row.upper) + 1) for row in split.rows))
    assert equivalent(split, looser, timeout=0.05).status == "undecided"


def test_a_second_opinion_that_disagrees_leaves_it_undecided(monkeypatch):
    original = smt.find_point

    def blind(inside, outside=None, nonzero=None, **rest):
        return ("no", None) if outside is not None else original(inside, outside, nonzero, **rest)

    monkeypatch.setattr(smt, "find_point", blind)
    assert "HiGHS does" in equivalent(system("x <= 2"), system("x <= 3")).reason


def test_a_point_that_does_not_stand_the_test_is_no_witness(monkeypatch):
    monkeypatch.setattr(smt, "find_point", lambda *_, **__: ("yes", {"x": 0, "y": 0}))
    assert equivalent(system("x <= 2"), system("x <= 3")).status == "undecided"


# --- canonical form ----------------------------------------------------------------------------------------------


@st.composite
def reworded(draw) -> tuple[LinearModel, LinearModel]:
    """A model, and the same with rows scaled, turned, repeated, loosened copies added, and all in other order."""
    first = draw(models())
    rows = []
    for row in first.rows:
        factor = draw(st.sampled_from([Fraction(1, 3), Fraction(-2), Fraction(5, 7), Fraction(-1)]))
        sides = [None if bound is None else bound * factor for bound in (row.lower, row.upper)]
        low, high = sides if factor > 0 else sides[::-1]
        rows.append(Row(f"other {row.name}", tuple((j, a * factor) for j, a in row.terms), low, high))
        if draw(st.booleans()):
            rows.append(row)
        if row.upper is not None and draw(st.booleans()):
            rows.append(Row("looser", row.terms, None, row.upper + 1))
        if row.lower is not None and row.lower == row.upper and draw(st.booleans()):
            rows[-1:] = [Row("half", row.terms, row.lower, None), Row("half", row.terms, None, row.upper)]
            rows.append(row)
    for j, column in enumerate(first.columns):
        if draw(st.booleans()):
            rows.append(Row("domain", ((j, 1),), column.lower, column.upper))
    order = draw(st.permutations(range(len(first.columns))))
    place = {old: new for new, old in enumerate(order)}
    moved = tuple(
        replace(row, terms=tuple(sorted((place[j], a) for j, a in row.terms))) for row in draw(st.permutations(rows))
    )
    turn = draw(st.sampled_from([1, -1]))
    second = LinearModel(
        first.sense if turn == 1 else "max" if first.sense == "min" else "min",
        tuple(sorted((place[j], turn * a) for j, a in first.objective)),
        turn * first.constant,
        tuple(first.columns[j] for j in order),
        moved,
    )
    return first, second


@given(reworded())
@settings(max_examples=80, deadline=None)
def test_the_canonical_form_does_not_depend_on_wording(pair):
    first, second = map(canonical, pair)
    assert first == second
    assert first.key == second.key
    renamed = {column.name: f"{column.name} anew" for column in pair[0].columns}
    assert canonical(pair[0], renamed) == canonical(pair[1], renamed) != first


@given(models(), st.data())
@settings(max_examples=80, deadline=None)
def test_points_of_a_canonical_form_are_points_of_the_model(compiled, data):
    form = canonical(compiled)
    point = {
        column.name: data.draw(st.integers(-2, 4) if column.integer else st.fractions(-2, 4, max_denominator=4))
        for column in compiled.columns
    }
    inside = all(sum(a * point[name] for name, a in terms) <= bound for terms, bound in form.rows)
    assert inside == (not compiled.violations([point[column.name] for column in compiled.columns]))


def test_the_form_of_a_sum_of_whole_variables_has_a_whole_bound():
    assert canonical(system("2*x + 4*y <= 5", variables=WHOLE)) == canonical(system("x + 2*y <= 2", variables=WHOLE))
    assert canonical(system("2*x + 4*y <= 5")) != canonical(system("x + 2*y <= 2"))


def test_the_key_is_the_same_in_every_process():
    assert canonical(farmer()).key == "10782d9bea012209413adc818ba207ecb49d09a0a8152d52cce701cc2e57b559"


def test_two_variables_of_one_name_are_refused():
    with pytest.raises(InputError, match="two variables are called 'y'"):
        canonical(system("x <= 1"), {"x": "y"})


# --- z3 against other means --------------------------------------------------------------------------------------


@st.composite
def pairs(draw, whole: bool) -> tuple[LinearModel, LinearModel]:
    """Two systems over the same variables, often nearly the same."""
    first = draw(models(whole=whole))
    second = draw(models(whole=whole).filter(lambda m: len(m.columns) == len(first.columns)))
    rows = list(first.rows)
    if draw(st.booleans()):
        rows = draw(st.permutations(rows))[: max(1, len(rows) - 1)]
    if draw(st.booleans()):
        rows = [*rows, *second.rows[:1]]
    return first, replace(first, rows=tuple(rows))


@given(pairs(whole=False))
@settings(max_examples=50, deadline=None)
def test_z3_agrees_with_linear_programs(pair):
    for one, other in (pair, pair[::-1]):
        exact = smt.find_point(canonical(one), canonical(other))
        rounded = implication.find_point(canonical(one), canonical(other))
        assert exact[0] == rounded[0]
        for _, point in (exact, rounded):
            if point is not None:
                values = [point[column.name] for column in one.columns]
                assert not one.violations(values, Fraction(1, 10**6))
                assert other.violations(values, Fraction(1, 10**6))


@given(pairs(whole=True))
@settings(max_examples=60, deadline=None)
def test_verdicts_on_whole_variables_agree_with_counting(pair):
    points = [()]
    for column in pair[0].columns:
        points = [(*point, value) for point in points for value in range(int(column.lower), int(column.upper) + 1)]
    feasible = [{point for point in points if not each.violations(point)} for each in pair]
    verdict = equivalent(*pair)
    if not feasible[0] and not feasible[1]:
        assert verdict.status == "undecided" or verdict.method == "canonical rows"
    else:
        assert verdict.status == ("equivalent" if feasible[0] == feasible[1] else "different")


# --- other names -------------------------------------------------------------------------------------------------

HERS = model(
    {"x1": CONT, "x2": CONT}, {"max": "30*x1 + 20*x2"}, {"area": "x1 + x2 <= 10", "money": "10*x1 + 4*x2 <= 200"}
)


def test_names_that_differ_in_spelling_are_matched():
    his = model({"X WHEAT": CONT, "x_corn": CONT}, {"max": "20*X WHEAT + 30*x_corn"}, {"a": "X WHEAT + x_corn <= 10"})
    verdict, names = compare(farmer(), his)
    assert names == {"X WHEAT": "x[wheat]", "x_corn": "x[corn]"}
    assert verdict.status == "equivalent", "at 10 acres the budget cannot bind"


def test_a_renaming_is_found():
    verdict, names = compare(farmer(), HERS)
    assert (verdict.status, verdict.method) == ("equivalent", "canonical rows")
    assert names == {"x1": "x[corn]", "x2": "x[wheat]"}


def test_other_optima_are_different_whatever_the_names():
    other = model({"x1": CONT, "x2": CONT}, {"max": "30*x1 + 20*x2"}, {"area": "x1 + x2 <= 11"})
    verdict, _ = compare(farmer(), other)
    assert verdict.status == "different"
    assert "300" in verdict.reason
    assert "330" in verdict.reason


def test_without_names_the_rest_is_undecided_and_with_names_it_is_not():
    other = model({"x1": CONT, "x2": CONT}, {"max": "30*x1 + 20*x2"}, {"area": "x1 + x2 <= 10"})
    verdict, _ = compare(farmer(), other, called=("A", "B"))
    assert verdict.status == "undecided"
    assert "x[corn], x[wheat] only in A and x1, x2 only in B" in verdict.reason
    names = parse_names(["x1=x[corn]", "x2 = x[wheat]"], farmer(), other)
    assert compare(farmer(), other, names)[0].status == "equivalent"
    with pytest.raises(UsageError, match="no variable 'x3'"):
        parse_names(["x3=x[corn]"], farmer(), other)
    with pytest.raises(UsageError, match="no variable ''"):
        parse_names(["x1"], farmer(), other)


def cycle(length: int, prefix: str, step: int = 1, copies: int = 1) -> LinearModel:
    """Neighbours on a cycle (or on several) exclude each other; every variable looks the same."""
    n = length * copies
    edges = [
        (c * length + i * step % length, c * length + (i + 1) * step % length)
        for c in range(copies)
        for i in range(length)
    ]
    rows = tuple(Row(f"{i}-{j}", tuple(sorted(((i, 1), (j, 1)))), None, 1) for i, j in edges)
    columns = tuple(Column(f"{prefix}{i}") for i in range(n))
    return LinearModel("max", tuple((i, 1) for i in range(n)), 0, columns, rows)


def test_variables_that_all_look_the_same_are_paired_by_trial():
    verdict, names = compare(cycle(12, "x"), cycle(12, "y", step=5))
    assert verdict.status == "equivalent"
    assert set(names) == {f"y{i}" for i in range(12)}
    assert canonical(cycle(12, "y", step=5), names) == canonical(cycle(12, "x"))


def test_two_cycles_are_not_one():
    assert solve(cycle(12, "x")).objective == solve(cycle(6, "y", copies=2)).objective
    assert matching.find_renaming(canonical(cycle(12, "x")), canonical(cycle(6, "y", copies=2))) is None
    assert compare(cycle(12, "x"), cycle(6, "y", copies=2))[0].status == "undecided"


@given(models(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_renamed_model_is_found_again(compiled, data):
    order = data.draw(st.permutations(range(len(compiled.columns))))
    renamed = replace(
        compiled, columns=tuple(replace(c, name=f"other {order[j]}") for j, c in enumerate(compiled.columns))
    )
    verdict, names = compare(compiled, renamed)
    assert verdict.status == "equivalent"
    assert canonical(renamed, names) == canonical(compiled)

"""Formulations become linear models without being run, and what is no linear model is named."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from fractions import Fraction

import pulp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icml25cli.core.errors import InputError
from icml25cli.papers.formulate.compiler import STRICT_STEP, FormulaError, LimitError, Limits, NonLinear, compile_model
from icml25cli.papers.formulate.solve import solve
from tests.papers.formulate.models import BIN, CONT, INT, farmer, formulation, model

# --- known answers: hand-written PuLP of the same problems -------------------------------------------------------


def by_pulp(build) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = build()
        problem.solve(pulp.PULP_CBC_CMD(msg=False, timeLimit=20))
    assert pulp.LpStatus[problem.status] == "Optimal"
    return pulp.value(problem.objective)


def test_farmer_of_figure_1():
    compiled = farmer()
    assert compiled.sense == "max"
    assert compiled.written(compiled.objective) == "20 x[wheat] + 30 x[corn]"
    assert [compiled.row_text(row) for row in compiled.rows] == [
        "x[wheat] + x[corn] <= 10",
        "2 x[wheat] + 5 x[corn] <= 100",
    ]
    assert [column.description for column in compiled.columns] == ["acres of a crop"] * 2
    found = solve(compiled)
    assert found.objective == 300
    assert found.by_name(compiled) == {"x[wheat]": 0, "x[corn]": 10}


SUPPLY, DEMAND = {"A": 35, "B": 50, "C": 40}, {"P": 45, "Q": 20, "R": 30, "S": 30}
COST = [[8, 6, 10, 9], [9, 12, 13, 7], [14, 9, 16, 5]]


def test_transport_of_3_by_4():
    cost = {f"({a}, {b})": COST[i][j] for i, a in enumerate(SUPPLY) for j, b in enumerate(DEMAND)}
    compiled = model(
        {"ship": {"type": CONT, "iteration_space": "[(i, j) for i in supply for j in demand]"}},
        {"min": "sum(cost[i, j] * ship[i, j] for i in supply for j in demand)"},
        {
            "stock": "sum(ship[i, j] for j in demand) <= supply[i] for i in supply",
            "need": "sum(ship[i, j] for i in supply) >= demand[j] for j in demand",
        },
        parameters={"supply": SUPPLY, "demand": DEMAND, "cost": cost},
    )
    assert compiled.size == {"variables": 12, "constraints": 7}
    assert compiled.rows[1].name == "stock[B]"

    def hand_written():
        problem = pulp.LpProblem("transport", pulp.LpMinimize)
        x = [[pulp.LpVariable(f"x{i}{j}", 0) for j in range(4)] for i in range(3)]
        problem += pulp.lpSum(COST[i][j] * x[i][j] for i in range(3) for j in range(4))
        for i, stock in enumerate(SUPPLY.values()):
            problem += pulp.lpSum(x[i]) <= stock
        for j, need in enumerate(DEMAND.values()):
            problem += pulp.lpSum(x[i][j] for i in range(3)) >= need
        return problem

    assert solve(compiled).objective == pytest.approx(by_pulp(hand_written)) == 1020


def test_knapsack():
    weights, values = [12, 2, 1, 4, 1, 7], [4, 2, 1, 10, 2, 9]
    compiled = model(
        {"take": {"type": BIN, "iteration_space": "range(len(value))"}},
        {"max": "sum(v * take[i] for i, v in enumerate(value))"},
        {"sack": "sum(weight[i] * take[i] for i in range(len(weight))) <= 15"},
        parameters={"weight": weights, "value": values},
    )

    def hand_written():
        problem = pulp.LpProblem("knapsack", pulp.LpMaximize)
        x = [pulp.LpVariable(f"x{i}", cat="Binary") for i in range(6)]
        problem += pulp.lpDot(values, x)
        problem += pulp.lpDot(weights, x) <= 15
        return problem

    assert solve(compiled).objective == by_pulp(hand_written) == 24


def test_inventory_over_periods_with_a_boundary_value():
    demand, price = [40, 60, 30, 70], [3, 5, 4, 6]
    compiled = model(
        {"make": {"type": CONT, "iteration_space": "range(1, T + 1)", "upper": "cap"}, "stock": {**PERIODS}},
        {"min": "sum(price[t - 1] * make[t] + 0.5 * stock[t] for t in range(1, T + 1))"},
        equations={
            "balance": "stock[t] == stock[t - 1] + make[t] - demand[t - 1] for t in range(1, T + 1)",
            "start": "stock[0] = 10",
        },
        parameters={"T": 4, "demand": demand, "price": price, "cap": 65},
    )
    assert compiled.notes == ("stock[0] is outside the index set and taken as a boundary value",)
    assert [column.name for column in compiled.columns][-1] == "stock[0]"

    def hand_written():
        problem = pulp.LpProblem("inventory", pulp.LpMinimize)
        make = [pulp.LpVariable(f"m{t}", 0, 65) for t in range(4)]
        stock = [pulp.LpVariable(f"s{t}", 0) for t in range(4)]
        problem += pulp.lpDot(price, make) + 0.5 * pulp.lpSum(stock)
        for t in range(4):
            problem += stock[t] == (stock[t - 1] if t else 10) + make[t] - demand[t]
        return problem

    assert solve(compiled).objective == pytest.approx(by_pulp(hand_written))


PERIODS = {"type": CONT, "iteration_space": "[t for t in range(1, T + 1)]"}

# --- how things are read -----------------------------------------------------------------------------------------


def rows(text: str, variables: dict | None = None, **kwargs) -> list[str]:
    compiled = model(variables or {"x": CONT, "y": CONT}, rows={"r": text}, **kwargs)
    return [compiled.row_text(row) for row in compiled.rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2*x + 3*y <= 12", ["2 x + 3 y <= 12"]),
        ("2*(x + 3*y) - x/4 <= 12 - y", ["1.75 x + 7 y <= 12"]),
        ("5 <= x + y", ["x + y >= 5"]),
        ("5 <= x - y", ["x - y >= 5"]),
        ("10 - x - y >= 0", ["x + y <= 10"]),
        ("x >= y", ["x - y >= 0"]),
        ("1 <= x + y <= 4", ["x + y >= 1", "x + y <= 4"]),
        ("x == y == 4", ["x - y == 0", "y == 4"]),
        ("[x + y <= 3]", ["x + y <= 3"]),
        ("x = 3", ["x == 3"]),
        ("x <= 0.1 + 0.2", ["x <= 0.3"]),
        ("x / 3 + y <= 1", ["1/3 x + y <= 1"]),
        ("x <= 1e3", ["x <= 1000"]),
        ("x * 2 ** 3 <= 7 // 2 + 7 % 4", ["8 x <= 6"]),
        ("(y - y + 2) * x <= 4", ["2 x <= 4"]),
        ("x - x + y <= 1", ["y <= 1"]),
        ("+x - -y <= abs(-3) + min(4, 5) + max([1, 2])", ["x + y <= 9"]),
        ("sum([x, y, 2 * x]) <= sum([1, 2])", ["3 x + y <= 3"]),
    ],
)
def test_rows(text, expected):
    assert rows(text) == expected


def test_numbers_stay_exact():
    compiled = model({"x": CONT}, {"min": "0.1 * x + 0.1 * x + 0.1 * x"}, {"third": "x / 3 >= 1 / 7"})
    assert compiled.objective == ((0, Fraction(3, 10)),)
    assert compiled.rows[0].terms == ((0, Fraction(1, 3)),)
    assert compiled.rows[0].lower == Fraction(1, 7)


def test_names_may_be_any_text():
    compiled = model(
        {
            "large pill": INT,
            "lambda": CONT,
            "µ": CONT,
            "x": CONT,
            "price (USD)": {"type": CONT, "lower": None, "upper": 3.5},
        },
        {"min": "2 * large pill + unit cost * lambda + µ + price (USD)"},
        {"at least (pills)": "large pill - x >= unit cost"},
        parameters={"unit cost": 0.5},
    )
    assert compiled.written(compiled.objective) == "2 large pill + 0.5 lambda + µ + price (USD)"
    assert compiled.column_names == ("large_pill", "lambda_", "v3", "x", "price_USD")
    assert compiled.row_names == ("at_least_pills",)
    assert (compiled.columns[4].lower, compiled.columns[4].upper) == (None, Fraction(7, 2))


def test_index_sets_of_all_kinds():
    compiled = model(
        {
            "list": {"type": CONT, "iteration_space": "towns"},
            "pairs": {"type": CONT, "iteration_space": "[(a, b) for a in towns for b in towns if a != b]"},
            "literal": {"type": CONT, "iteration_space": "['red', 'blue']"},
            "given": {"type": BIN, "iteration_space": "arcs"},
        },
        rows={
            "out": "sum(pairs[a, b] for b in towns if b != a) <= 1 for a in towns",
            "nested": "list[a] + pairs[a][b] <= far[a][b] for a, b in arcs",
            "all": "sum(list.values()) + sum(v for k, v in pairs.items() if 'u' in towns) <= len(pairs)",
            "zipped": "list[a] <= c for a, c in zip(towns, caps)",
            "colour": "literal['red'] + given['u', 'v'] <= 2",
        },
        parameters={
            "towns": ["u", "v", "w"],
            "arcs": [["u", "v"], ["v", "w"]],
            "far": {"u": {"v": 4}, "v": {"w": 5}},
            "caps": [7, 8, 9],
        },
    )
    said = {row.name: compiled.row_text(row) for row in compiled.rows}
    assert said["out[u]"] == "pairs[u, v] + pairs[u, w] <= 1"
    assert said["nested[v, w]"] == "list[v] + pairs[v, w] <= 5"
    assert said["all"].endswith("<= 6")
    assert said["all"].count("pairs") == 6
    assert said["zipped[w, 9]"] == "list[w] <= 9"
    assert said["colour"] == "literal[red] + given[u, v] <= 2"
    assert compiled.size["variables"] == 3 + 6 + 2 + 2


def test_indices_from_json_are_numbers_where_they_look_like_numbers():
    compiled = model(
        {"x": {"type": CONT, "iteration_space": "[i for i in cost]"}},
        {"min": "cost[1] * x[1] + cost['2'] * x['2']"},
        {"last": "x[i] <= 9 for i in cost if i == 2"},
        parameters={"cost": {"1": 5, "2": 6}},
    )
    assert compiled.objective == ((0, 5), (1, 6))
    assert [row.name for row in compiled.rows] == ["last[2]"]


def test_strict_inequalities_say_how_they_were_read():
    compiled = model(
        {"n": INT, "m": BIN, "y": CONT},
        rows={"whole": "2*n + 4*m < 7", "fraction": "n/2 > 1", "real": "n + y < 3", "list": "y < 1 for i in range(2)"},
    )
    bounds = {row.name: (row.lower, row.upper) for row in compiled.rows}
    assert bounds["whole"] == (None, 6)  # sums are even
    assert bounds["fraction"] == (Fraction(3, 2), None)  # halves: more than 1 is at least 1.5
    assert bounds["real"] == (None, 3 - STRICT_STEP)
    assert len(compiled.notes) == 4, "one note a label, not a row"
    assert "'whole': whole variables" in compiled.notes[0]
    assert model({"n": INT}, rows={"a": "3*n < 6"}).rows[0].upper == 3


def test_a_row_without_variables_stays_only_if_it_is_false():
    compiled = model({"x": CONT}, rows={"true": "3 <= 5", "false": "5 <= 3", "empty": "x <= 1 for i in range(0)"})
    assert [row.name for row in compiled.rows] == ["false"]
    assert "'true' holds" in compiled.notes[0]
    assert solve(compiled).status == "infeasible"


def test_domains_and_binary_bounds():
    compiled = model(
        {
            "b": BIN,
            "h": {"type": BIN, "upper": 0.5},
            "i": {"type": INT, "lower": "lo - 1", "upper": "2 * 4"},
            "f": CONT,
        },
        parameters={"lo": -2},
    )
    found = [(column.lower, column.upper, column.integer) for column in compiled.columns]
    assert found == [(0, 1, True), (0, Fraction(1, 2), True), (-3, 8, True), (0, None, False)]


def test_loop_variables_hide_other_names():
    assert rows(
        "x[i] <= y for i, y in enumerate([5, 6])", {"x": {"type": CONT, "iteration_space": "range(2)"}, "y": CONT}
    ) == [
        "x[0] <= 5",
        "x[1] <= 6",
    ]


def test_a_sum_of_a_thousand_terms_is_no_nesting():
    names = {f"v{i}": CONT for i in range(900)}
    (row,) = model(names, rows={"r": " + ".join(f"{i} * v{i}" for i in range(900)) + " <= 1"}).rows
    assert len(row.terms) == 899
    (row,) = model(names, rows={"r": f"sum([{', '.join(names)}]) <= 1"}).rows
    assert len(row.terms) == 900


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.sampled_from("xyz")), min_size=1, max_size=8),
    st.integers(-20, 20),
    st.integers(1, 9),
)
def test_a_written_sum_is_the_sum_of_its_terms(terms, constant, divisor):
    text = " + ".join(f"({a}) * {name}" for a, name in terms)
    compiled = model({"x": CONT, "y": CONT, "z": CONT}, {"min": f"({text} + ({constant})) / {divisor}"})
    wanted = {name: Fraction(sum(a for a, other in terms if other == name), divisor) for name in "xyz"}
    assert dict(compiled.objective) == {"xyz".index(name): value for name, value in wanted.items() if value}
    assert compiled.constant == Fraction(constant, divisor)


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x * y <= 3", "x * y"),
        ("2 + (x + 1) * (y - 2) <= 3", "(x + 1) * (y - 2)"),
        ("x / y <= 3", "x / y"),
        ("1 / x <= 3", "1 / x"),
        ("x ** 2 <= 3", "x ** 2"),
        ("2 ** x <= 3", "2 ** x"),
        ("x // 2 <= 3", "x // 2"),
        ("x % 2 == 1", "x % 2"),
        ("abs(x - y) <= 3", "abs(x - y)"),
        ("max(x, y) <= 3", "max(x, y)"),
        ("min([x, 3]) >= 1", "min([x, 3])"),
    ],
)
def test_what_is_not_linear_is_named(text, named):
    with pytest.raises(NonLinear) as caught:
        rows(text)
    assert named in caught.value.message
    assert "inequality_constraints 'r'" in caught.value.message
    assert caught.value.hint


def test_non_linear_in_an_index_names_the_part():
    space = {"type": CONT, "iteration_space": "range(3)"}
    with pytest.raises(NonLinear, match=r"x\[i\] \* x\[j\]"):
        model({"x": space}, {"max": "sum(x[i] * x[j] for i in range(3) for j in range(i))"})


PAYLOADS = (
    "__import__('os').system('touch /tmp/pwned')",
    "().__class__.__bases__[0].__subclasses__()",
    "x.__class__",
    "x.solve()",
    "exec('x = 1')",
    "eval('1')",
    "open('/etc/passwd').read()",
    "getattr(x, 'name')",
    "globals()['x']",
    "(lambda: 1)()",
    "[x for x in ().__class__]",
    "f'{x}'",
    "x if 1 else y",
    "(y := 3)",
    "{1: 2}[1]",
    "{i for i in range(3)}",
    "print(x)",
    "sum(x, start=1)",
    "sum(*[1])",
    "x[1:2]",
    "True",
    "None",
    "b'x'",
    "1j",
    "x @ y",
    "x << 2",
    "not x.y",
    "__builtins__",
    "'{0.__class__}'.format(x)",
    "x.items(1)",
    "[await x]",
    "1; import os",
    "x\nimport os",
    "x <= 1) or (exec('1')",
)


@pytest.fixture(scope="module")
def events() -> Iterator[list[str]]:
    """What the interpreter reports while a test listens: code that is run, files and processes that are opened."""
    heard: list[str] = []
    listening = [True]

    def hear(event: str, _args: tuple) -> None:
        if listening[0] and event.partition(".")[0] in ("exec", "os", "subprocess", "open", "import", "socket"):
            heard.append(event)

    sys.addaudithook(hear)  # which cannot be taken away again, only told not to listen
    yield heard
    listening[0] = False


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("where", ["row", "equation", "objective", "space", "bound", "condition", "dead"])
def test_code_is_refused_wherever_it_stands(payload, where, events):
    if where == "dead" and payload in ("__builtins__", "sum(x, start=1)"):
        pytest.skip("names that are not declared are found where they are needed")
    variables = {"x": CONT, "y": CONT}
    places = {
        "row": (variables, {"rows": {"r": f"x <= {payload}"}}),
        "equation": (variables, {"equations": {"r": f"x == {payload}"}}),
        "objective": (variables, {"objective": {"min": payload}}),
        "space": ({**variables, "z": {"type": CONT, "iteration_space": payload}}, {}),
        "bound": ({**variables, "z": {"type": CONT, "upper": payload}}, {}),
        "condition": (variables, {"rows": {"r": f"x <= 1 for i in range(3) if {payload}"}}),
        "dead": (variables, {"rows": {"r": f"x <= ({payload}) for i in range(0)"}}),
    }
    declared, rest = places[where]
    written = formulation(declared, **rest)
    farmer()  # whatever has to be imported once
    events.clear()
    try:
        compile_model(written)
    except FormulaError as error:
        refused = error
    else:
        pytest.fail("it was compiled")
    assert events == []
    assert refused.message.startswith(("inequality", "equality", "objective", "decision"))


def test_the_ear_of_that_test_hears(events):
    events.clear()
    exec("pass")
    assert events == ["exec"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x <= z", "z is neither"),
        ("x + 1", "no comparison"),
        ("x != 3", "only <="),
        ("x in [1]", "is a list"),
        ("x <= 1 and y <= 1", "no comparison"),
        ("x <= 'a'", "'a' is a text"),
        ("x <= [1]", "[1] is a list"),
        ("x <= w", "w is a list"),
        ("x <= z9 for i in range(3)", "z9"),
        ("x <= w[2]", "w[2]: there is no position 2 in a list of 2"),
        ("x <= w[-1]", "no position -1"),
        ("x <= w[0][1]", "w[0][1]"),
        ("x <= d['c']", "there is no c in it"),
        ("x <= s", "s is a text"),
        ("x <= sum(d)", "write d.values()"),
        ("v[3] <= 1", "v has no index 3"),
        ("v <= 1", "v has an index"),
        ("sum(v) <= 1", "write v.values()"),
        ("x[0] <= 1", "x has no index 0"),
        ("x <= 1 / 0", "divides by zero"),
        ("x <= 0 ** -1", "divides by zero"),
        ("x <= 2 ** 0.5", "not whole"),
        ("x <= 1 for i in 5", "nothing to loop over"),
        ("x <= 1 for i in 'abc'", "nothing to loop over"),
        ("x <= 1 for i, j in w", "does not unpack"),
        ("x <= 1 for i in range(2) if i", "no condition"),
        ("x <= 1 for i in range(2) if v[i] > 0", "depends on decision variables"),
        ("x <= 1 for i in range(2) if i < 'a'", "no order"),
        ("x <= min([])", "nothing to take"),
        ("x <= len(3)", "does not take that"),
        ("x <= range('a')", "does not take that"),
        ("x <=", "no expression"),
        ("x <= 5%", "no expression"),
        ("x <= 1,000", "thousands"),
        ("x <= $5", "no expression"),
        ("", "no expression"),
    ],
)
def test_mistakes_are_named_with_their_place(text, named):
    variables = {"x": CONT, "y": CONT, "v": {"type": CONT, "iteration_space": "range(2)"}}
    with pytest.raises(FormulaError) as caught:
        rows(text, variables, parameters={"w": [5, 6], "d": {"a": 1, "b": 2}, "s": "five"})
    assert named in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.message.startswith("inequality_constraints 'r': ")


@pytest.mark.parametrize(
    ("declared", "rest", "named"),
    [
        ({"x": CONT, "p": CONT}, {"parameters": {"p": 1}}, "'p': the name is declared twice"),
        ({"x": {"type": CONT, "iteration_space": "[1, 1]"}}, {}, "'x': the index 1 stands twice"),
        ({"x": {"type": CONT, "iteration_space": "[i / 2 for i in range(3)]", "upper": "y"}}, {}, "y is neither"),
        ({"x": {"type": CONT, "iteration_space": "[[1, [2]], {}]"}}, {}, "not part of the language"),
        ({"x": {"type": CONT, "upper": "'a'"}}, {}, "'a' is a text"),
        ({"x": CONT}, {"parameters": {"p": True}}, "'p': True is no number"),
        ({"x": CONT}, {"parameters": {"p": [1, None]}}, "'p': None is no number"),
        ({"x": CONT}, {"parameters": {"p": float("nan")}}, "'p': nan is no number"),
        ({"x": CONT}, {"parameters": {"p": {"1": 2, "1.0": 3}}}, "'p': two of its fields"),
        ({"x": CONT}, {"objective": {"min": "x for i in range(3)"}}, "objective: there is a loop"),
        ({"x": CONT}, {"objective": {"min": "x <= 3"}}, "objective: "),
        ({"x": CONT}, {"equations": {"e": "x[0] == 3"}}, "equality_constraints 'e'"),
    ],
)
def test_wrong_declarations_are_named(declared, rest, named):
    with pytest.raises(InputError) as caught:
        model(declared, **rest)
    assert named in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "x <= " + "(" * 80 + "1" + ")" * 80 + " + " + "-" * 80 + "1",
        "x <= " + "-" * 5000 + "1",
        "x <= " + "[" * 100 + "]" * 100,
        "x <= " + " + ".join(["1"] * 20_000),
        "x <= " + "1 + " * 300_000 + "1",
        "x <= 10 ** 10 ** 10",
        "x <= 9 ** 9 ** 9",
        "x <= " + " * ".join(["10 ** 1000"] * 9),
        "x <= sum(1 for a in range(10**9) for b in range(10**9))",
        "x <= sum(range(10**12))",
        "x <= min(range(10**12))",
        "x <= 1 for i in range(10**12)",
        "x <= 1 for i in range(10**12) if i < 0",
        "x <= 1 for i in range(3) if 'a' in [j for j in range(10**12)]",
        "x <= len([j for j in range(10**12)])",
        "x <= sum(1 for i in zip(range(10**12)))",
    ],
    ids=range(16),
)
def test_bombs_meet_a_limit(text):
    with pytest.raises(LimitError):
        compile_model(formulation({"x": CONT}, rows={"r": text}), Limits(rows=1000, seconds=0.3))


def test_too_many_variables_meet_a_limit():
    endless = formulation({"x": {"type": CONT, "iteration_space": "range(10**12)"}})
    with pytest.raises(LimitError, match="more than 1000 variables"):
        compile_model(endless, Limits(rows=1000))
    wide = formulation({"x": {"type": CONT, "iteration_space": "range(50)"}}, rows={"r": "sum(x.values()) <= 1"})
    with pytest.raises(LimitError, match="coefficients"):
        compile_model(wide, Limits(terms=49))


@given(st.text("xyv0123456789.+-*/%<>=!()[]{},'\" forinsum_if#:;@\n", max_size=40))
def test_any_text_is_compiled_or_refused(text):
    written = formulation({"x": CONT, "y": CONT, "v": {"type": CONT, "iteration_space": "range(2)"}}, rows={"r": text})
    said = "inequality_constraints 'r': "
    try:
        compile_model(written, Limits(rows=100, seconds=1.0))
    except InputError as error:
        said = error.message
    assert said.startswith("inequality_constraints 'r': ")

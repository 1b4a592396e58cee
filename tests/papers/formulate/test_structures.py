"""Texts of a known form: what they hold becomes their model, and other texts are left to the grammar."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.papers.formulate.grammar.structures import read_structure
from icml25cli.papers.formulate.grammar.structures.algebra import read as read_formulas
from icml25cli.papers.formulate.grammar.structures.drawn import table_of
from icml25cli.papers.formulate.grammar.structures.structure import Structured
from icml25cli.papers.formulate.grammar.text import Problem
from icml25cli.papers.formulate.job import formulate_text
from icml25cli.papers.formulate.settings import Settings


def form(text: str) -> str | None:
    found = read_structure(Problem(text))
    return found.form if found else None


def optimum(text: str, settings: Settings | None = None) -> float:
    best = formulate_text(text, settings or Settings()).best
    assert best is not None
    assert best.solution is not None
    assert best.solution.objective is not None
    return best.solution.objective


# --- formulas ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("max 3x + 2y subject to x + y <= 4, x + 3y <= 6, x, y >= 0", 12),
        ("Minimise 2a+b s.t. a + b ≥ 5; a >= 1 and b <= 3.", 7),
        ("Maximize z = 5x_1 + 4x_2 where 6x_1 + 4x_2 <= 24, x_1 + 2x_2 <= 6, both nonnegative.", 21),
        ("Maximize 2 (x + y) - y, subject to 0 <= x <= 3 and x + y = 5 (x, y not negative).", 8),
        ("Maximize 3 wheat + 4 corn subject to wheat + corn <= 10, wheat >= 2.", 38),
        ("maximize 7x + 5y with 3x + 2y <= 10.5, x and y integers, nonnegative", 25),
        ("Minimize x + 2y s.t. 1 <= x <= y = 4, x, y >= 0.", 9),
        ("Minimize x + y if x >= 1.5, y >= 2 and x is free.", 3.5),
    ],
)
def test_formulas_in_a_text(text, value):
    assert form(text) == "formulas"
    assert optimum(text) == pytest.approx(value)


@settings(deadline=None)
@given(st.lists(st.integers(1, 99), min_size=5, max_size=5))
def test_coefficients_of_formulas_are_those_of_the_text(numbers):
    a, b, c, d, e = numbers
    found = read_formulas(f"Maximise {a}x + {b}y subject to {c}x + {d}y <= {e}, x, y >= 0.")
    assert found is not None
    ((objective, _),) = found.objectives
    ((_, rows, _),) = found.constraints
    assert objective == {"max": f"{a} * x + {b} * y"}
    assert [*rows.values()] == [f"{c} * x + {d} * y <= {e}"]
    assert not found.missing


@pytest.mark.parametrize(
    "text",
    [
        "Maximize 3 a day and 4 a week, at most 10 and 20.",
        "Maximize the profit of 3 chairs + 4 tables.",  # a sum without limits
        "The minimum is x = 4.",
        "max",
        "maximize x+ <= >= 3",
    ],
)
def test_what_are_no_formulas(text):
    assert read_formulas(text) is None


@settings(deadline=None)
@given(st.text(alphabet="xy123+-*/()<>= .,maximze", max_size=60))
def test_any_marks_are_read_or_left(text):
    read_formulas(f"maximize {text}")


# --- tables ------------------------------------------------------------------------------------------------------

TABLE = [
    ["", "desk", "shelf", "on hand"],
    ["boards", "6", "3", "96"],
    ["hours", "4", "5", "100"],
    ["profit", "$60", "$45"],
]
DRAWN = {
    "bars": "\n".join(" | ".join(row) for row in TABLE),
    "markdown": "\n".join(
        [
            f"| {' | '.join(TABLE[0])} |",
            "|---|---|---|---|",
            *(f"| {' | '.join((*row, '')[:4])} |" for row in TABLE[1:]),
        ]
    ),
    "tabs": "\n".join("\t".join(row) for row in TABLE),
    "blanks": "\n".join("".join(f"{cell:10}" for cell in row) for row in TABLE),
    "commas": "\n".join(",".join(row) for row in TABLE),
}


@pytest.mark.parametrize("drawn", DRAWN)
def test_a_table_of_products_however_it_is_drawn(drawn):
    text = f"We make desks and shelves.\n\n{DRAWN[drawn]}\n\nWhat gives the greatest profit?"
    assert form(text) == "mix"
    assert optimum(text) == 1140


def test_products_may_be_the_rows():
    text = (
        "| | wood | hours | price |\n|---|---|---|---|\n| stool | 2 | 1 | $9 |\n| bench | 5 | 2 | $20 |\n"
        "| available | 40 | 18 | |\nMake as much money as possible."
    )
    assert optimum(text) == 170  # 10 stools and 4 benches


def test_a_table_of_costs_with_margins_is_shipping():
    text = (
        "from/to  | shop A | shop B | shop C | supply\nmill 1   | 2      | 4      | 5      | 30\n"
        "mill 2   | 3      | 1      | 7      | 40\ndemand   | 20     | 25     | 15     |\n"
        "Send flour as cheaply as possible."
    )
    assert form(text) == "shipping"
    assert optimum(text) == 145  # 15 + 15 from mill 1, 5 + 25 from mill 2


def test_a_square_table_of_who_does_what_is_assignment():
    text = (
        "     | paint | wire | plumb\nAnn  | 5     | 9    | 4\nBob  | 7     | 6    | 8\nCleo | 6     | 5    | 7\n"
        "Each does one job; the total time is to be as little as possible."
    )
    assert form(text) == "assignment"
    assert optimum(text) == 16


@pytest.mark.parametrize(
    "text",
    ["", "a | b", "a | b | c\n1 | 2 | 3", "one, two, three\nare, words, here\nand, no, table", "x | y\n" * 50],
)
def test_what_is_no_table(text):
    assert table_of(text) is None


@settings(deadline=None)
@given(st.text(alphabet="|\t -12a,\n", max_size=120))
def test_any_drawing_is_a_table_or_none(text):
    read_structure(Problem(f"maximize {text}"))


# --- lists -------------------------------------------------------------------------------------------------------


def test_shipping_with_drawn_numbers():
    draw = random.Random(5)
    for _ in range(3):
        cost = [[draw.randint(2, 30) for _ in range(2)] for _ in range(2)]
        want = [draw.randint(20, 60) for _ in range(2)]
        held = [sum(want), sum(want)]
        text = (
            f"Depot A holds {held[0]} crates and depot B holds {held[1]} crates. The shops need {want[0]} and "
            f"{want[1]} crates. Shipping a crate costs ${cost[0][0]} and ${cost[0][1]} from depot A to the shops, and "
            f"${cost[1][0]} and ${cost[1][1]} from depot B. Find the cheapest plan."
        )
        assert form(text) == "shipping"
        assert optimum(text) == sum(want[j] * min(cost[0][j], cost[1][j]) for j in range(2))


def test_whole_cuts_of_stock():
    text = "Planks of 10 feet are cut into pieces of 6, 4 and 3 feet; 4, 4 and 6 of them are ordered. Use few planks."
    assert form(text) == "cutting"
    assert optimum(text) == 6


@pytest.mark.parametrize(
    "text",
    [
        "All paper goes through a cutting machine. Lined paper takes 2 minutes there and 6 minutes on the press, graph "
        "paper 2 minutes and 10 minutes. Each machine has 3500 minutes. Profit is $11 and $13. Maximize the profit.",
        "A gardener mixes soil. The indoor soil costs $2 and has 2 units of compost and 3 units of loam. The outdoor "
        "soil costs $3 and has 4 units of compost and 6 units of loam. He requires at least 80 units of compost and 70 "
        "units of loam. Minimize the cost.",
        "Anna, Bert and Carl each get one apple of 3, 4 and 5 grams.",
    ],
    ids=["machine", "soil", "apples"],
)
def test_texts_that_only_look_alike_are_left_to_the_grammar(text):
    assert form(text) is None


# --- a distribution ----------------------------------------------------------------------------------------------


def test_the_variants_of_a_form_are_drawn_by_their_chances():
    found = read_structure(Problem("max 3x + 2y subject to x + y <= 4, x + 3y <= 6"))
    assert found is not None
    drawn = Structured(found).propose("decision_variables", _nothing(), 400, 0)
    lower = [value["x"]["lower"] for value in drawn]
    assert 0.1 < lower.count(None) / len(lower) < 0.3  # nobody said that they are not negative
    whole = Structured(found, "INTEGER").propose("decision_variables", _nothing(), 50, 0)
    assert {value["x"]["type"] for value in whole} == {"INTEGER"}


def _nothing():
    from icml25cli.papers.formulate.formulation import Formulation

    return Formulation(parameters={})


def test_the_domain_may_be_said():
    text = "max 7x + 5y subject to 3x + 2y <= 10.5, x, y >= 0"
    assert optimum(text) == pytest.approx(26.25)
    assert optimum(text, Settings(domain="integer")) == 25
    bakery = (
        "A baker has 30 kg of flour and 12 hours. A cake takes 7 kg of flour and 1 hour, a loaf takes 1 kg of flour "
        "and 0.25 hours. Each cake earns $9 and each loaf earns $3. How many cakes and loaves maximize the profit?"
    )
    assert optimum(bakery, Settings(domain="integer")) <= optimum(bakery, Settings(domain="continuous"))
    values = formulate_text(bakery, Settings(domain="continuous")).best
    assert values is not None
    assert values.model is not None
    assert not values.model.is_integer

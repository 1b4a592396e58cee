"""What a reader of a known form did not use is named, and the answer is not relied on; what it may use, it uses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from icml25cli.papers.formulate.batch import unanswered
from icml25cli.papers.formulate.grammar.scope import ambiguous_number, foreign
from icml25cli.papers.formulate.job import formulate_text
from icml25cli.papers.formulate.settings import Settings

LEAST = 0.2  # of the command

# --- formulas ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("max 4x + 3y\n2x + y <= 12\nx + 3y <= 21\nx, y >= 0", 30),
        ("minimise 5p + 4q\nsubject to p + q >= 6\n3p + q >= 12\np, q >= 0 and integer", 27),
        ("maximize 6u + 5v s.t.\n(1) u + v <= 9\n(2) 3u + v <= 15\n(3) u, v >= 0", 48),
        ("max 4x + 3y\nlabour: 2x + y <= 12\nwood: x + 3y <= 21  (2)", 30),
        ("max 2x + 3y\n + z\ns.t. x + y + z <= 10\n-x + z <= 3\nx - y >= -2", 26),
        ("min 2a + 3b\n- a + b >= 4\n- a + 3b >= 6", 9),
        ("max x + y subject to\n1. x + 2y <= 8\n2. 3x + y <= 9\n3. y >= 1", 5),
        ("max 4x - y s.t. x - 3y <= 15; x + y <= 3; y >= -20", 27),
        ("max 3x + y s.t. x + y <= 7.5, x <= 2.5, x integer, y >= 0", 11.5),
        ("max 5x + 2y s.t. x + y <= 9 and x is at most twice y", 36),
        ("max 5x + 2y s.t. x + y no more than 9; x does not exceed 4; y should be 2 or more", 30),
        ("min 3u + 2v s.t. u + v is at least 6; u cannot be less than half of v", 14),
        ("max 3x + 2y s.t. x + y <= 8, y in {0, 1}", 24),
        ("max 2x + y s.t. 3(x - 1) + y <= 9, x >= 1", 11),
        ("Let x be the number of mugs and y the number of cups. Maximise 2x + y where 2x + y <= 9. Thanks!", 9),
    ],
)
def test_rows_labels_bounds_and_relations_in_words(text, value):
    outcome = formulate_text(text, Settings())
    assert not outcome.doubts
    assert outcome.confidence > 0.5
    assert outcome.best is not None
    assert outcome.best.solution is not None
    assert outcome.best.solution.objective == pytest.approx(value)


def test_free_is_said_of_all_that_stand_before_it():
    outcome = formulate_text("min x + y s.t. x + y >= -4, x - y <= 2, x and y free", Settings())
    assert outcome.best is not None
    assert outcome.best.model is not None
    assert [column.lower for column in outcome.best.model.columns] == [None, None]


@pytest.mark.parametrize(
    "tail",
    [
        "p <= 2 or q <= 3",
        "either p <= 2 or q <= 3",
        "if p >= 1 then q <= 4",
        "unless it rains p <= 4",
        "p is an odd integer",
        "|p - q| <= 2",
        "p mod 2 = 0",
        "p != 3, q <= 5",
        "q is a multiple of 4",
        "p <= 5. Swap the two rows.",
        "p <= 5 whenever q >= 1",
        "p or q must be zero",
    ],
)
def test_words_that_formulas_do_not_use_are_named(tail):
    outcome = formulate_text(f"max 5p + 4q s.t. p + q <= 9, {tail}", Settings())
    assert outcome.confidence < LEAST
    assert unanswered(outcome, LEAST)


@pytest.mark.parametrize("text", ["max 1,5x + y s.t. x + y <= 4", "max x + y s.t. 2x + y <= 12,75"])
def test_a_comma_between_digits_is_not_guessed(text):
    assert "comma" in formulate_text(text, Settings()).reason


@pytest.mark.parametrize("text", ["at most 1,200 hours", "3, 4 and 5", "y in {0,1}", "$12,500.50", "x_1,x_2"])
def test_other_commas_stand(text):
    assert ambiguous_number(text) is None


# --- known forms -------------------------------------------------------------------------------------------------

SACK = (
    "A diver can lift 20 kg. An anchor weighs 9 kg and is worth 40 points, a lantern weighs 6 kg and is worth 24 "
    "points, a bell weighs 8 kg and is worth 31 points, and a plate weighs 3 kg and is worth 10 points. {} Which finds "
    "should the diver take to maximize the total points?"
)
BLEND = (
    "A dyer mixes indigo and madder into 400 litres of dye. Indigo has 12% pigment and costs $9 a litre, madder has 5% "
    "pigment and costs $4 a litre. The dye must have at least 8% pigment. {} What is the cheapest mix?"
)
TABLE = (
    "Find the mix with the greatest profit.\n\n| | oak | glue | profit |\n|---|---|---|---|\n| stool | 3 | 2 | 20 |\n"
    "| bench | 7 | 3 | 45 |\n| available | 80 | 40 | |\n\n{}"
)
SHIPS = (
    "Send the grain as cheaply as possible.\n\n| | Bern | Lyon | supply |\n|---|---|---|---|\n| Ulm | 4 | 7 | 60 |\n"
    "| Graz | 6 | 3 | 50 |\n| demand | 40 | 45 | |\n\n{}"
)
SHIFTS = (
    "Guards work five consecutive days and then rest two. The museum needs 5 guards on Monday, 4 on Tuesday, 6 on "
    "Wednesday, 5 on Thursday, 7 on Friday, 9 on Saturday and 8 on Sunday. {} Minimize the number of guards."
)
CUTS = "Beams of 10 m are sawn into pieces of 6, 4 and 3 m; 4, 4 and 6 of them are ordered. {} Use few beams."


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        (SACK, "Each find can be taken at most once."),
        (SACK, "The weather is fine today."),
        (BLEND, "The dyer lives in Basel."),
        (TABLE, "Thank you very much."),
        (SHIPS, "All orders have to be met."),
        (SHIFTS, "It stands in Vienna."),
        (CUTS, "The mill is in Kent."),
    ],
)
def test_talk_does_no_harm(text, harmless):
    outcome = formulate_text(text.format(harmless), Settings())
    assert not outcome.doubts
    assert outcome.confidence > 0.5


@pytest.mark.parametrize(
    ("text", "further"),
    [
        (SACK, "He can't bring up both the anchor and the bell."),
        (SACK, "The plate has to be taken."),
        (SACK, "The lantern remains on board."),
        (SACK, "His suit already weighs 4 kg."),
        (SACK, "Each find can be taken any number of times."),
        (SACK, "At least two of the finds have to be lifted."),
        (BLEND, "Indigo must not exceed madder."),
        (BLEND, "There has to be three times as much madder as indigo."),
        (BLEND, "No more than a fifth of madder may be used per part of indigo."),
        (BLEND, "Madder comes in casks of 60 litres."),
        (TABLE, "Half of the glue is set aside for repairs."),
        (TABLE, "At least as many stools as benches are wanted."),
        (TABLE, "We can sell no more than 9 benches."),
        (SHIPS, "The pass from Graz to Bern is closed."),
        (SHIPS, "All of the supply must be sent."),
        (SHIPS, "Ulm must not serve Lyon."),
        (SHIFTS, "Nobody begins on a Sunday."),
        (SHIFTS, "Guards who begin on Saturday cost double."),
        (SHIFTS, "At least 2 guards must begin on Friday."),
        (CUTS, "The pieces of 6 m must not be cut from the same beam as others."),
        (CUTS, "Each cut wastes 0.1 m."),
    ],
)
def test_a_further_condition_is_named(text, further):
    outcome = formulate_text(text.format(further), Settings())
    reason = unanswered(outcome, LEAST)
    assert reason
    assert outcome.best is None or outcome.doubts


def test_a_table_in_several_units_is_refused():
    text = TABLE.format("").replace("| 3 | 2 |", "| 3 | 90 min |").replace("| 80 | 40 |", "| 80 | 40 h |")
    assert '"glue" in h and in min' in formulate_text(text, Settings()).reason
    whole = TABLE.format("").replace("| 3 | 2 |", "| 3 | 2 h |").replace("| 80 | 40 |", "| 80 | 40 h |")
    assert not unanswered(formulate_text(whole, Settings()), LEAST)


README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
SHOWN = re.split(r"^-- (\w+)\n", README.partition("```text\n-- formulas")[2].partition("```")[0], flags=re.MULTILINE)
FORMS = dict(zip(["formulas", *SHOWN[1::2]], SHOWN[::2], strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_the_examples_of_forms_are_answered(form):
    outcome = formulate_text(FORMS[form], Settings())
    assert not outcome.doubts
    assert not unanswered(outcome, LEAST)


# --- stories ------------------------------------------------------------------------------------------------------

BAKER = (
    "A baker makes rolls and buns. A roll takes 3 minutes and brings $2, a bun takes 5 minutes and brings $4. There "
    "are at most 300 minutes. {} How many rolls and buns maximize the money that they bring?"
)


def test_a_story_is_answered_unless_it_binds_in_a_way_that_is_not_read():
    assert not unanswered(formulate_text(BAKER.format("The shop smells good."), Settings()), LEAST)
    outcome = formulate_text(BAKER.format("Rolls and buns must be baked together."), Settings())
    assert "together" in unanswered(outcome, LEAST)


def test_a_least_where_nothing_is_done_is_doubted():
    text = (
        "Tea costs $3 per box and coffee costs $5 per box. There are at most 40 boxes of tea and at most 30 boxes of "
        "coffee. How many boxes of tea and coffee minimize the cost?"
    )
    outcome = formulate_text(text, Settings())
    assert outcome.best is None or any("nothing is done" in doubt for doubt in outcome.doubts)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Wir backen Brot und Kuchen. Wie viele von jedem sollen wir backen, um den Gewinn zu erhöhen?", "German"),
        ("Une usine fabrique des tables et des chaises pour les vendre. Combien de tables doit-elle faire ?", "French"),
    ],
)
def test_other_languages_are_named(text, language):
    assert language in (foreign(text) or "")


def test_a_price_less_a_cost_is_not_read():
    text = (
        "A mug sells for $9 and costs $4 to make, a jug sells for $15 and costs $8 to make. A mug takes 2 hours, a jug "
        "takes 3 hours, and there are 60 hours. How many mugs and jugs maximize the profit?"
    )
    assert "less a cost" in formulate_text(text, Settings()).reason

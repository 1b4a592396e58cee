"""Everyday wordings with their optima: so many of one for so many of another, verbs of profit, what there is, and
conditions that are not read, which have to be named."""

from __future__ import annotations

import pytest

from icml25cli.papers.formulate.batch import unanswered
from icml25cli.papers.formulate.job import formulate_text
from icml25cli.papers.formulate.settings import Settings

SURE = 0.2  # what the command takes for an answer


def optimum(text: str) -> float:
    outcome = formulate_text(text, Settings())
    assert not unanswered(outcome, SURE)
    assert not outcome.doubts
    assert outcome.best is not None
    assert outcome.best.solution is not None
    assert outcome.best.solution.objective is not None
    return outcome.best.solution.objective


# --- so many of one for so many of another ------------------------------------------------------------------------

CAMP = (
    "A camp takes children and adults on a boat trip. There are 30 seats. A child brings $10 and an adult brings $4. "
    "{} How many children and adults maximize the takings?"
)


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("There must be at least one adult for every four children.", 264),  # 24 children, 6 adults
        ("For every four children there must be at least one adult.", 264),
        ("Every 4 children must be accompanied by at least one adult.", 264),
        ("At least two adults per ten children are required.", 270),  # 25 and 5
        ("The ratio of adults to children must be at least 1 to 4.", 264),
        ("At least one adult has to come along with each child.", 210),
        ("There may be no more than four children to each adult.", 264),
        ("The adults must outnumber the children by at least 4.", 198),  # 13 and 17
        ("There have to be at least 4 more adults than children.", 198),
        ("There must never be fewer adults than children.", 210),
        ("At most five adults are allowed for every child.", 300),  # no adult at all
    ],
)
def test_a_relation_with_numbers_of_its_own_is_a_constraint(said, value):
    assert optimum(CAMP.format(said)) == value


def test_a_relation_that_is_exact_or_not_is_no_less_than_what_is_needed():
    text = (
        "A workshop employs workers and supervisors. A worker produces 12 parts a day and a supervisor produces 3 "
        "parts a day. A worker is paid $100 a day and a supervisor is paid $180 a day. The payroll is at most $2,000 a "
        "day. There must be one supervisor for every 5 workers. How many workers and supervisors maximize the number "
        "of parts?"
    )
    assert optimum(text) == 177  # 14 workers, 3 supervisors


# --- verbs of profit ----------------------------------------------------------------------------------------------

RANCH = (
    "A rancher raises cows and sheep. A cow grazes 4 acres and a sheep grazes 1 acre; the ranch has 120 acres. A cow "
    "takes 5 hours and a sheep takes 2 hours of care a week; 180 hours can be spared. A cow {verb} 300 and a sheep "
    "{verb} 90. How many cows and sheep maximize the income?"
)


@pytest.mark.parametrize("verb", ["brings", "earns", "fetches", "sells for", "yields", "makes", "gives", "nets"])
def test_what_one_brings_is_the_aim(verb):
    assert optimum(RANCH.format(verb=verb)) == 9600  # 20 cows, 40 sheep


# --- what there is ------------------------------------------------------------------------------------------------

COURIER = (
    "A courier uses mopeds and vans. A moped carries 10 parcels and needs 1 worker, a van carries 45 parcels and needs "
    "3 workers. A moped costs $20 a day, a van costs $95 a day. At least 110 parcels must be delivered{} How many "
    "mopeds and vans minimize the cost?"
)


@pytest.mark.parametrize(
    "said",
    [
        " with just 8 workers.",
        ". There are only 8 workers.",
        ". No more than 8 workers can be used.",
        ". There are a mere 8 workers.",
        ". There are 8 workers at hand.",
        ". There are 8 workers on duty.",
        ". There are 8 workers on the payroll.",
        ". 8 workers are on the payroll.",
    ],
)
def test_what_there_is_limits_from_above(said):
    assert optimum(COURIER.format(said)) == 230  # 2 mopeds, 2 vans


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            "A print shop makes posters and flyers. A poster takes 4 minutes on the press and a flyer takes 1 minute "
            "on the press. The press runs 480 minutes. A poster takes 2 sheets and a flyer takes 1 sheet, with only "
            "300 sheets at hand. A poster brings $3 and a flyer brings $1. How many posters and flyers maximize the "
            "revenue?",
            390,
        ),
        (
            "A nurse mixes powder and syrup. A scoop of powder supplies 6 mg of iron and 10 mg of zinc, a scoop of "
            "syrup supplies 4 mg of iron and 2 mg of zinc. The patient must get 48 mg of iron and 40 mg of zinc. "
            "Powder costs $3 a scoop and syrup costs $1 a scoop. Not more than 9 scoops of syrup may be taken. "
            "Minimize the cost.",
            17,
        ),
        (
            "A smallholder grows beans and maize. An acre of beans yields $400 and an acre of maize yields $250. He "
            "has 30 acres. Beans need 20 hours an acre and maize needs 10 hours an acre, and he can find 450 hours. "
            "How many acres of beans and maize maximize the income?",
            9750,
        ),
        (
            "A gym employs trainers and receptionists. A trainer costs $25 an hour and a receptionist costs $14 an "
            "hour. At least 12 people have to be on duty. The trainers must make up at least half of the staff. "
            "Minimize the cost of trainers and receptionists.",
            234,
        ),
        (
            "A ski school hires instructors and assistants. An instructor teaches 8 pupils and an assistant teaches 5 "
            "pupils. An instructor costs $150 and an assistant costs $80. 120 pupils have signed up. Every assistant "
            "has to be backed by at least 1 instructor. How many instructors and assistants keep the cost lowest?",
            2140,
        ),
    ],
)
def test_an_amount_said_of_nobody_is_no_coefficient(text, value):
    assert optimum(text) == value


# --- what is not read is named ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("Safety rules ask for one guard for every 5 seats.", "one guard for every 5 seats"),
        ("The skipper wants at least one whistle for each of them.", "at least one whistle"),
    ],
)
def test_a_clause_with_a_count_of_no_use_is_named_and_not_answered(said, named):
    outcome = formulate_text(CAMP.format(said), Settings())
    assert outcome.confidence < SURE
    assert any("not used" in doubt and named in doubt for doubt in outcome.doubts)
    assert named in unanswered(outcome, SURE)


def test_a_number_in_mere_talk_is_named_and_answered():
    outcome = formulate_text(CAMP.format("We met on platform 9."), Settings())
    assert not unanswered(outcome, SURE)
    assert any("9" in doubt for doubt in outcome.doubts)

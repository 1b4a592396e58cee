"""Texts of language models become JSON that is checked, or nothing."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icml25cli.papers.formulate.backends import answers
from icml25cli.papers.formulate.formulation import KEYS
from tests.papers.formulate.models import FARMER

OBJECTIVE = '{"objective": {"max": "20*wheat"}}'


@pytest.mark.parametrize(
    "text",
    [
        OBJECTIVE,
        f"Sure, here it is:\n```json\n{OBJECTIVE}\n```\nI hope this helps! {{}}",
        f'<think>perhaps {{"objective": {{"min": "0"}}}} or {{x}} </think> {OBJECTIVE}',
        '{"max": "20*wheat"}',
        'The answer: {"max": "20*wheat"}.',
        f'{{"parameters": {{}}, {OBJECTIVE[1:]}',
        f'{{"oops": {OBJECTIVE}',  # what is around it was cut off, but it names itself
    ],
)
def test_the_last_object_of_that_name_is_taken(text):
    assert answers.component("objective", text) == {"max": "20*wheat"}


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "maximize 20 wheat",
        "[1, 2]",
        '{"objective": {"max": "20*wheat"',
        '{"variables": {"max": "20*wheat"}',  # a part of what was cut off
        '{"objective": {"max": NaN}}',
        '{"objective": {"max": 1e999}}',
        '{"objective": {"max": "1", "max": "2"}}',
        '{"decision_variables": {}}',  # another component
        '{"a":' * 5000,
        "{" * 100_000,
        "{" * 300_000,
    ],
    ids=range(13),
)
def test_anything_else_is_nothing(text):
    assert answers.component("objective", text) is None


def test_none_of_this_kind_is_an_answer():
    assert answers.component("equality_constraints", '{"equality_constraints": null}') == {}
    assert answers.component("equality_constraints", '{"equality_constraints": {}}') == {}
    assert answers.component("parameters", '{"parameters": null}') is None


def test_votes():
    labels = ["A", "B", "C"]
    assert answers.ranks('{"reason": "C lacks {b}", "ranks": {"B": 1, "A": 2, "C": 3}}', labels) == [2, 1, 3]
    for bad in (
        '{"A": 1, "B": 1, "C": 2}',
        '{"A": 1, "B": 2}',
        '{"A": 1, "B": 2, "C": 3.0}',
        '{"A": true}',
        "[1, 2, 3]",
    ):
        assert answers.ranks(f'{{"ranks": {bad}}}', labels) is None
    assert answers.groups('{"groups": [["C", "A"], ["B"]]}', labels) == [[2, 0], [1]]
    for bad in ('[["A", "B"]]', '[["A", "B"], ["B", "C"]]', '["A", "B", "C"]', '[[1], ["B"], ["C"]]', '{"A": 1}'):
        assert answers.groups(f'{{"groups": {bad}}}', labels) is None
    assert answers.score('{"score": 71}') == 71
    assert [answers.score(f'{{"score": {bad}}}') for bad in ('"71"', "0", "101", "true", "null")] == [None] * 5
    assert answers.first_is_better('{"reason": "b", "better": " a"}') is True
    assert answers.first_is_better('{"better": "B"}') is False
    assert answers.first_is_better('{"better": "neither"}') is None
    assert answers.first_is_better("A") is None


@given(st.text(alphabet='{}[]",:abAB1 \n\\', max_size=200))
def test_no_text_breaks_the_reader(text):
    for key in KEYS:
        answers.component(key, text)
    answers.ranks(text, ["A", "B"])
    answers.groups(text, ["A", "B"])
    assert answers.score(text) is None
    assert answers.first_is_better(text) is None


def test_schemas_admit_what_is_asked_for():
    for key in KEYS:
        jsonschema.Draft202012Validator.check_schema(answers.SCHEMAS[key])
        jsonschema.validate({key: FARMER[key]}, answers.SCHEMAS[key])
    jsonschema.validate({"reason": "", "ranks": {"A": 1}}, answers.SCHEMAS["ranks"])
    jsonschema.validate({"reason": "", "groups": [["A"]]}, answers.SCHEMAS["groups"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"objective": {"max": 3}}, answers.SCHEMAS["objective"])
    assert json.dumps(answers.SCHEMAS)

"""The five components: their form, what is not filled yet, and what proposals lose."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icml25cli.core.errors import InputError
from icml25cli.papers.formulate.compiler import compile_model
from icml25cli.papers.formulate.formulation import (
    KEYS,
    NONE,
    Formulation,
    Objective,
    Variable,
    cleaned,
    load_formulation,
    parse_formulation,
    read_formulation,
)
from tests.papers.formulate.models import FARMER, known


def changed(**components: object) -> dict:
    return {**copy.deepcopy(FARMER), **components}


def test_the_json_form_comes_back_as_it_was_and_in_order():
    found = read_formulation(FARMER, "here")
    assert found.objective == Objective("max", "sum(profit[c] * x[c] for c in cost)")
    assert found.variables == (Variable("x", "CONTINUOUS", "[c for c in cost]", 0, None, "acres of a crop"),)
    assert [label for label, _ in known(found.inequalities)] == ["land", "budget"]
    document = found.document()
    assert tuple(document) == KEYS
    assert read_formulation(json.loads(json.dumps(document)), "again") == found


def test_pairs_as_keys_are_written_as_text_and_read_as_pairs():
    whole = Formulation().filled("parameters", {"d": {("mill", 3): 5, "(shop, 4)": 7}})
    whole = whole.filled("decision_variables", {"y": {"type": "CONTINUOUS"}})
    whole = whole.filled("objective", {"min": "d['mill', 3] * y + d['shop', 4]"})
    again = read_formulation(json.loads(json.dumps(whole.document())), "again", partial=True)
    for each in (whole, again):
        model = compile_model(each)
        assert (model.objective, model.constant) == (((0, 5),), 7)


def test_none_of_a_kind_is_an_answer_and_unfilled_is_not():
    bare = Formulation()
    assert bare.depth == 0
    assert bare.filled("parameters", {"n": 1}).depth == 0, "parameters alone are no level"
    level1 = bare.filled("parameters", {}).filled("decision_variables", {"x": {"type": "integer"}})
    level2 = level1.filled("objective", {"Maximize": "x"})
    level3 = level2.filled("equality_constraints", {})
    assert [f.depth for f in (level1, level2, level3)] == [1, 2, 3]
    assert level2.equalities is None
    assert level3.equalities == NONE
    assert level2.document()["equality_constraints"] is None
    assert level3.document()["equality_constraints"] == {}
    assert read_formulation(level3.document(), "a level", partial=True) == level3
    assert compile_model(level3).columns[0].integer, "what is there is compiled"
    with pytest.raises(InputError, match="inequality_constraints is missing"):
        read_formulation(level3.document(), "a level")


def test_the_references_word_for_none_is_understood():
    assert Formulation().filled("equality_constraints", {None: None}).equalities == NONE
    assert Formulation().filled("equality_constraints", {"null": None}).equalities == NONE


VARIABLE = {"type": "CONTINUOUS"}


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ([], "the whole"),
        (changed(extra={}), "'extra'"),
        (changed(parameters=3), "parameters"),
        (changed(decision_variables={}), "no decision variable"),
        (changed(decision_variables={"x": {}}), "decision_variables.x.type"),
        (changed(decision_variables={"x": "CONTINUOUS"}), "decision_variables.x"),
        (changed(decision_variables={"x": {"type": "REAL"}}), "'REAL'"),
        (changed(decision_variables={"x": {**VARIABLE, "lb": 3}}), "'lb'"),
        (changed(decision_variables={"x": {**VARIABLE, "lower": True}}), "lower of 'x'"),
        (changed(decision_variables={"x": {**VARIABLE, "iteration_space": [1, 2]}}), "iteration_space"),
        (changed(decision_variables={" x": VARIABLE}), "' x'"),
        (changed(objective={}), "objective"),
        (changed(objective={"max": "x", "min": "x"}), "objective"),
        (changed(objective={"largest": "x"}), "objective"),
        (changed(objective={"max": 3}), "objective.max"),
        (changed(inequality_constraints={"a": ["x <= 1"]}), "inequality_constraints.a"),
        ({key: value for key, value in FARMER.items() if key != "objective"}, "objective is missing"),
    ],
)
def test_what_has_not_the_form_is_named(document, named):
    with pytest.raises(InputError) as caught:
        read_formulation(document, "model.json")
    assert named in caught.value.message
    assert caught.value.message.startswith("model.json")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ('{"parameters": {"a": NaN}}', "NaN"),
        ('{"parameters": {"a": -Infinity}}', "-Infinity"),
        ('{"parameters": {"a": 1e999}}', "out of range"),
        ('{"parameters": {"a": ' + "9" * 5000 + "}}", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"inequality_constraints": {"cap": "x <= 1", "cap": "x <= 2"}}', "'cap' stands twice"),
    ],
)
def test_text_that_is_no_sound_json_is_refused(text, named):
    with pytest.raises(InputError, match=named):
        parse_formulation(text, "model.json")


def test_files_that_cannot_be_read_are_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"absent\.json"):
        load_formulation(tmp_path / "absent.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="is no text"):
        load_formulation(tmp_path / "binary.json")
    (tmp_path / "marked.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(FARMER).encode())
    assert load_formulation(tmp_path / "marked.json").depth == 4


# --- proposals ---------------------------------------------------------------------------------------------------

DECLARED = (
    Variable("x", space="[i for i in range(3)]"),
    Variable("free", lower=None),
    Variable("large pill", "BINARY"),
)


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("x[i] >= 0 for i in range(3)", False),
        ("[x[i] >= 0 for i in range(3)]", False),
        ("0 <= large pill", False),
        ("free >= 0", True),  # its declaration allows less
        ("x[0] - x[1] >= 0", True),  # a constraint, not a domain
        ("x[0] >= 1", True),
        ("x[i] <= 0 for i in range(3)", True),
        ("0 <= x[0] <= 3", True),
        ("x[0] == 0", True),
        ("x[", True),  # the compiler will say what is wrong
    ],
)
def test_of_inequalities_only_bounds_that_are_declared_already_are_dropped(text, stays):
    kept, dropped = cleaned("inequality_constraints", {"it": text, "other": "x[0] <= 3"}, DECLARED)
    assert ("it" in kept) == stays
    assert "other" in kept
    assert len(dropped) == (not stays)


def test_of_equalities_inequalities_are_dropped_but_not_those_with_a_condition():
    proposed = {
        "balance": "x[i] = x[i - 1] + 2 for i in range(3) if i > 0",
        "list": "[x[0] == 3]",
        "wrong": "x[0] <= 3",
        "chained": "0 <= x[0] == x[1]",
    }
    kept, dropped = cleaned("equality_constraints", proposed, DECLARED)
    assert list(kept) == ["balance", "list"]
    assert len(dropped) == 2
    assert "'wrong'" in dropped[0]


def test_nothing_left_is_none_of_this_kind():
    kept, _ = cleaned("inequality_constraints", {"domain": "x[i] >= 0 for i in range(3)"}, DECLARED)
    assert Formulation().filled("inequality_constraints", kept).inequalities == NONE


@given(st.text("x0[]()<>=! for in if free,'\"\0#\n*", max_size=30) | st.integers())
def test_proposals_of_any_text_are_cleaned_without_error(value):
    for key in KEYS:
        kept, dropped = cleaned(key, {"it": value}, DECLARED)
        assert kept == {"it": value} or len(dropped) == 1

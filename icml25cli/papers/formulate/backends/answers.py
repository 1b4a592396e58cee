"""What is made of a language model's texts: JSON that is looked for, read strictly and checked, and never run.

Knows the forms of answers. Does not know who wrote them.
"""

from collections.abc import Sequence
from typing import Any

from icml25cli.papers.formulate.formulation import DECODER, KEYS, TYPES

LONGEST = 200_000  # characters of an answer that are looked at
BROKEN = 500  # opening braces that open no object, before an answer is given up
_TEXT = {"type": "string"}
_NUMBER_OR_TEXT = {"type": ["number", "string", "null"]}
_CONSTRAINTS = {"type": "object", "additionalProperties": _TEXT}
_VARIABLE = {
    "type": "object",
    "properties": {
        "description": _TEXT,
        "type": {"type": "string", "enum": list(TYPES)},
        "iteration_space": {"type": ["string", "null"]},
        "lower": _NUMBER_OR_TEXT,
        "upper": _NUMBER_OR_TEXT,
    },
    "required": ["description", "type", "iteration_space"],
    "additionalProperties": False,
}
_COMPONENTS: dict[str, Any] = {
    "parameters": {"type": "object"},
    "decision_variables": {"type": "object", "additionalProperties": _VARIABLE},
    "objective": {"type": "object", "properties": {"min": _TEXT, "max": _TEXT}, "additionalProperties": False},
    "equality_constraints": _CONSTRAINTS,
    "inequality_constraints": _CONSTRAINTS,
}


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}


# JSON schemas of the answers, for servers that can hold a model to one.
SCHEMAS: dict[str, Any] = {key: _object(**{key: _COMPONENTS[key]}) for key in KEYS} | {
    "groups": _object(reason=_TEXT, groups={"type": "array", "items": {"type": "array", "items": _TEXT}}),
    "ranks": _object(reason=_TEXT, ranks={"type": "object", "additionalProperties": {"type": "integer"}}),
    "score": _object(reason=_TEXT, score={"type": "number"}),
    "better": _object(reason=_TEXT, better={"type": "string", "enum": ["A", "B"]}),
}


def component(key: str, text: str | None) -> Any:
    """The value of the component ``key`` that a text gives; None where none can be read.

    The answer asked for is ``{key: value}``. A bare ``value`` is taken, too, unless it stands in something that was cut
    off, where it is but a part. "None of this kind", said as null, becomes ``{}``.
    """
    found = last_object(key, text)
    if found is None or (key not in found and found.keys() & set(KEYS)):
        return None  # or another component than the one asked for
    value = found.get(key, found)
    return {} if value is None and key in KEYS[3:] else value


def groups(text: str | None, labels: Sequence[str]) -> list[list[int]] | None:
    """A partition of positions from labels; None where it is none."""
    found = _field("groups", text)
    if not isinstance(found, list) or not all(isinstance(group, list) for group in found):
        return None
    named = [label for group in found for label in group]
    if sorted(map(str, named)) != sorted(labels):
        return None
    return [[labels.index(label) for label in group] for group in found]


def ranks(text: str | None, labels: Sequence[str]) -> list[int] | None:
    """The rank of every label; None where one is missing or the ranks are not 1, 2, 3 ..."""
    found = _field("ranks", text)
    if not isinstance(found, dict) or found.keys() != set(labels):
        return None
    given = [found[label] for label in labels]
    whole = all(isinstance(rank, int) and not isinstance(rank, bool) for rank in given)
    return given if whole and sorted(given) == list(range(1, len(labels) + 1)) else None


def score(text: str | None) -> float | None:
    """A mark from 1 to 100."""
    found = _field("score", text)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 1 <= found <= 100:
        return None
    return float(found)


def first_is_better(text: str | None) -> bool | None:
    """Whether A was chosen over B; None where neither was."""
    found = _field("better", text)
    return {"A": True, "B": False}.get(found.strip().upper()) if isinstance(found, str) else None


def _field(name: str, text: str | None) -> Any:
    found = last_object(name, text)
    return None if found is None else found.get(name)


def last_object(name: str, text: str | None) -> dict[str, Any] | None:
    """The last JSON object in a text that has the field ``name``, else the last that is part of no other.

    Thoughts, fences and prose around it do not matter. Numbers that are none (NaN), or out of range, and fields that
    stand twice make an object unreadable.
    """
    if not text or len(text) > LONGEST:
        return None
    named = bare = None
    position, broken = text.find("{"), 0
    while position >= 0 and broken <= BROKEN:
        try:
            value, end = DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            broken += 1  # what follows may be a part of what was cut off here
            end = position + 1
        else:
            if name in value:
                named = value
            elif not broken:
                bare = value
        position = text.find("{", end)
    return named if named is not None else bare

"""A text that has a known form, as a back end of the search: each component with the chances of its variants.

Knows components. Does not know how a text was found to have the form.
"""

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from icml25cli.papers.formulate.backend import Draft
from icml25cli.papers.formulate.formulation import Formulation
from icml25cli.papers.formulate.grammar.judging import Judge, solved_as_meant

Component = dict[str, Any]
WHOLE, REAL = "INTEGER", "CONTINUOUS"


class Unreadable(Exception):
    """A text has a known form, and something in it that would be read wrongly; the message says what."""


@dataclass(frozen=True)
class Structure:
    """A form with its data. Variants carry chances that sum to one; constraints are equalities and inequalities."""

    form: str  # what it is, in words
    parameters: Component
    variables: tuple[tuple[Component, float], ...]
    objectives: tuple[tuple[Component, float], ...]
    constraints: tuple[tuple[Component, Component, float], ...]
    missing: tuple[str, ...] = ()  # numbers of the text that have no place in it
    wording: Mapping[str, str] = field(default_factory=dict)  # what the text says for constraints, by their labels
    unread: tuple[str, ...] = ()  # sentences of the text that it does not account for
    sure: float = 0.0  # logarithm of the chance that the text has this form


class Structured(Judge):
    """Proposer and judge for a text of known form.

    Args:
        domain: type of all variables but yes-or-no ones, where the user says it.
    """

    def __init__(self, structure: Structure, domain: str | None = None) -> None:
        self.structure, self._domain = structure, domain
        self.wording = dict(structure.wording)

    def propose(self, key: str, partial: Formulation, count: int, seed: int) -> list[Any]:
        draw = random.Random(seed)
        if key == "parameters":
            return [self.structure.parameters] * count
        options = self._options(key, partial)
        if not options:  # the equalities are not as they were proposed
            return [None] * count
        drawn = draw.choices(range(len(options)), [chance for _, chance in options], k=count)
        return [options[place][0] for place in drawn]

    def _options(self, key: str, partial: Formulation) -> list[tuple[Component, float]]:
        structure = self.structure
        if key == "decision_variables":
            return _merged([(self._typed(value), chance) for value, chance in structure.variables])
        if key == "objective":
            return _merged(structure.objectives)
        if key == "equality_constraints":
            return _merged([(equal, chance) for equal, _, chance in structure.constraints])
        decided = dict(partial.equalities or ())
        return _merged([(other, chance) for equal, other, chance in structure.constraints if equal == decided])

    def _typed(self, variables: Component) -> Component:
        if self._domain is None:
            return variables
        return {
            name: fields if fields["type"] == "BINARY" else {**fields, "type": self._domain}
            for name, fields in variables.items()
        }

    def likelihood(self, draft: Draft) -> float:
        document = draft.formulation.document()
        total = self.structure.sure
        for key in ("decision_variables", "objective", "equality_constraints", "inequality_constraints"):
            if document[key] is None:
                break
            options = self._options(key, draft.formulation)
            said = next((chance for value, chance in options if _form(key, value) == _form(key, document[key])), 1e-6)
            total += math.log(said / math.fsum(chance for _, chance in options))
        return total + solved_as_meant(draft)

    def missing(self, formulation: Formulation) -> list[str]:
        return [*self.structure.missing]

    def unread(self, formulation: Formulation) -> list[str]:
        return [*self.structure.unread]

    @property
    def guesses_domain(self) -> bool:
        return self._domain is None and len({*map(_types, self.structure.variables)}) > 1


def _types(option: tuple[Component, float]) -> str:
    """Types of a choice of variables, to compare."""
    return json.dumps([fields["type"] for fields in option[0].values()])


def _merged(options: Sequence[tuple[Component, float]]) -> list[tuple[Component, float]]:
    """Options that are the same as one, the likeliest first."""
    chances: dict[str, float] = {}
    for value, chance in options:
        text = json.dumps(value)
        chances[text] = chances.get(text, 0.0) + chance
    return sorted(((json.loads(text), chance) for text, chance in chances.items()), key=lambda option: -option[1])


def _form(key: str, value: Component) -> Any:
    """A component without descriptions and the fields that are as they are by default."""
    if key != "decision_variables":
        return value
    plain = {"iteration_space": None, "lower": 0, "upper": None}
    return {name: {**plain, **fields, "description": ""} for name, fields in value.items()}

"""The formulation of a problem: five components, filled one after the other (section 3 of the paper).

    parameters, decision_variables    m1, the first level of the search
    objective                         m2
    equality_constraints              m3
    inequality_constraints            m4

Each component is JSON, and expressions are text over names of parameters and variables; `compiler` reads them. A
component that is None is not filled yet; ``{}`` says that the problem has none of this kind, which is an answer of its
own. Knows the form of a formulation. Does not know what its expressions mean, nor whether they can be solved.
"""

import ast
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from icml25cli.core.errors import InputError
from icml25cli.core.forms import check_form
from icml25cli.papers.formulate.expressions import FormulaError, Language
from icml25cli.papers.formulate.linear import Sense

KEYS = ("parameters", "decision_variables", "objective", "equality_constraints", "inequality_constraints")
VariableType = Literal["CONTINUOUS", "INTEGER", "BINARY"]
TYPES: tuple[VariableType, ...] = ("CONTINUOUS", "INTEGER", "BINARY")
SENSES: dict[str, Sense] = {"min": "min", "minimize": "min", "max": "max", "maximize": "max"}

Constraints = tuple[tuple[str, str], ...]  # labels and texts, in order
NONE: Constraints = ()  # "no constraint of this kind", said explicitly
Bound = int | float | str | None


@dataclass(frozen=True)
class Variable:
    """A decision variable, or a family of them with one for every element of ``space``."""

    name: str
    type: VariableType = "CONTINUOUS"
    space: str | None = None  # text of a list, such as ``[(i, j) for i in plants for j in markets]``
    lower: Bound = 0  # a number or the text of one over parameters; None is no bound
    upper: Bound = None
    description: str = ""


@dataclass(frozen=True)
class Objective:
    sense: Sense
    expression: str


@dataclass(frozen=True)
class Formulation:
    """A formulation, whole or filled down to some level; ``None`` marks what is not filled yet."""

    parameters: Mapping[str, Any] | None = None  # numbers, texts, and lists and objects of them
    variables: tuple[Variable, ...] | None = None
    objective: Objective | None = None
    equalities: Constraints | None = None
    inequalities: Constraints | None = None

    @property
    def depth(self) -> int:
        """Levels filled, 0 to 4; parameters alone are not a level yet."""
        levels = (self.variables, self.objective, self.equalities, self.inequalities)
        return next((depth for depth, level in enumerate(levels) if level is None), len(levels))

    def filled(self, key: str, value: Any, where: object = "the component") -> "Formulation":
        """This formulation with the component ``key``, one of ``KEYS``, read from its JSON form.

        Raises:
            InputError: the value has not the form of that component; the message begins with ``where``.
        """
        field, read = _READERS[key]
        return replace(self, **{field: read(value, where)})

    def of_type(self, kind: "VariableType | None") -> "Formulation":
        """This formulation with all variables but yes-or-no ones of one type; None leaves them as they are."""
        if kind is None or self.variables is None:
            return self
        typed = (each if each.type == "BINARY" else replace(each, type=kind) for each in self.variables)
        return replace(self, variables=tuple(typed))

    def document(self) -> dict[str, Any]:
        """The JSON form: the five keys in order, null for what is not filled."""
        variables = None if self.variables is None else {v.name: _variable_document(v) for v in self.variables}
        return {
            "parameters": None if self.parameters is None else _named_by_text(self.parameters),
            "decision_variables": variables,
            "objective": None if self.objective is None else {self.objective.sense: self.objective.expression},
            "equality_constraints": None if self.equalities is None else dict(self.equalities),
            "inequality_constraints": None if self.inequalities is None else dict(self.inequalities),
        }


def read_formulation(document: Any, where: object, *, partial: bool = False) -> Formulation:
    """A formulation from its JSON form; without ``partial`` all five components have to be there.

    Raises:
        InputError: a component is missing or has not its form; the message names ``where`` and the field.
    """
    check_form(document, {}, where)
    if unknown := [name for name in document if name not in KEYS]:
        raise InputError(f"{where}: there is no component {unknown[0]!r}", hint=f"the five are {', '.join(KEYS)}")
    formulation = Formulation()
    for key in KEYS:
        value = document.get(key)
        if value is None and not partial:
            hint = "write {} where there is none of this kind" if key != "objective" else 'write {"min": "0"} for none'
            raise InputError(f"{where}: the component {key} is missing", hint=hint)
        if value is not None:
            formulation = formulation.filled(key, value, where)
    return formulation


def parse_formulation(content: str, where: object) -> Formulation:
    """A formulation from JSON text: its own five keys, or a report of `icml25 formulate --json`, whose answer has it.

    Raises:
        InputError: the text is no JSON, names a field twice, holds NaN, infinity or a number out of range, or
            ``read_formulation`` refuses it.
    """
    try:
        document = DECODER.decode(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is no JSON: {error}", hint="a formulation is one object of five keys") from error
    if isinstance(document, dict) and document.get("command") == "formulate":
        answer = document.get("answer")
        if not isinstance(answer, dict) or "formulation" not in answer:
            raise InputError(f"{where} is a report without an answer", hint="formulate a problem that has one")
        document = answer["formulation"]
    return read_formulation(document, where)


def load_formulation(path: Path) -> Formulation:
    """A formulation from a JSON file; ``InputError`` as ``parse_formulation``, or where it cannot be read."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}", hint="check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text", hint="a formulation is a JSON file in UTF-8") from error
    return parse_formulation(content, path)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of a model")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:40]} is out of range")
    return value


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Of two constraints with one label JSON readers keep the last: the model would lack one and nobody would know.
    names = dict(pairs)
    if len(names) < len(pairs):
        twice = next(name for name in names if sum(name == other for other, _ in pairs) > 1)
        raise ValueError(f"the field {twice!r} stands twice in one object")
    return names


DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unrepeated)


# --- components from JSON and back -------------------------------------------------------------------------------


def _parameters(value: Any, where: object) -> dict[str, Any]:
    check_form({"parameters": value}, {"parameters": {}}, where)
    return {_name(name, where): inner for name, inner in value.items()}


def _variables(value: Any, where: object) -> tuple[Variable, ...]:
    check_form({"decision_variables": value}, {"decision_variables": {str: {"type": str}}}, where)
    if not value:
        raise InputError(f"{where}: there is no decision variable", hint="a model decides something")
    return tuple(_variable(_name(name, where), fields, where) for name, fields in value.items())


def _variable(name: str, fields: Mapping[str, Any], where: object) -> Variable:
    known = {"description", "type", "iteration_space", "lower", "upper"}
    if unknown := sorted(fields.keys() - known):
        raise InputError(
            f"{where}: the variable '{name}' has no field {unknown[0]!r}", hint=f"it may have {sorted(known)}"
        )
    kind = fields["type"].upper()
    if kind not in TYPES:
        raise InputError(f"{where}: the variable '{name}' is of no type {kind!r}", hint=f"there are {', '.join(TYPES)}")
    space, description = fields.get("iteration_space"), fields.get("description", "")
    if not isinstance(space, str | None) or not isinstance(description, str):
        check_form({name: fields}, {name: {"iteration_space": str, "description": str}}, where)
    for side in ("lower", "upper"):
        bound = fields.get(side)
        if isinstance(bound, bool) or not isinstance(bound, int | float | str | None):
            raise InputError(
                f"{where}: {side} of '{name}' is no bound", hint="a number, an expression, or null for none"
            )
    return Variable(name, kind, space, fields.get("lower", 0), fields.get("upper"), description)


def _variable_document(variable: Variable) -> dict[str, Any]:
    return {
        "description": variable.description,
        "type": variable.type,
        "iteration_space": variable.space,
        "lower": variable.lower,
        "upper": variable.upper,
    }


def _objective(value: Any, where: object) -> Objective:
    check_form({"objective": value}, {"objective": {str: str}}, where)
    if len(value) != 1 or next(iter(value)).lower() not in SENSES:
        raise InputError(f"{where}: the objective is not one entry, min or max", hint='{"max": "20*wheat + 30*corn"}')
    ((sense, expression),) = value.items()
    return Objective(SENSES[sense.lower()], expression)


def _constraints(key: str) -> Callable[[Any, object], Constraints]:
    def read(value: Any, where: object) -> Constraints:
        check_form({key: value}, {key: {}}, where)
        said = {label: text for label, text in value.items() if text is not None}  # {null: null} is "none" too
        check_form({key: said}, {key: {str: str}}, where)
        return tuple((_name(label, where), text) for label, text in said.items())

    return read


_READERS: dict[str, tuple[str, Callable[[Any, object], Any]]] = {
    "parameters": ("parameters", _parameters),
    "decision_variables": ("variables", _variables),
    "objective": ("objective", _objective),
    "equality_constraints": ("equalities", _constraints("equality_constraints")),
    "inequality_constraints": ("inequalities", _constraints("inequality_constraints")),
}


def _name(name: Any, where: object) -> str:
    if not isinstance(name, str) or not name.strip() or name != name.strip():
        raise InputError(f"{where}: {name!r} is no name", hint="names are texts without blanks around them")
    return name


def _named_by_text(value: Any) -> Any:
    """A parameter with the keys of its objects as texts: a pair becomes ``(mill, 3)``."""
    if isinstance(value, Mapping):
        return {_field(key): _named_by_text(inner) for key, inner in value.items()}
    return [_named_by_text(inner) for inner in value] if isinstance(value, list | tuple) else value


def _field(key: Any) -> str:
    return f"({', '.join(map(_field, key))})" if isinstance(key, tuple) else str(key)


# --- proposals ---------------------------------------------------------------------------------------------------


def cleaned(key: str, value: Any, variables: Iterable[Variable]) -> tuple[Any, tuple[str, ...]]:
    """A proposed component without what belongs elsewhere, and a sentence for each entry that was dropped.

    For proposals, which are many and may lose an entry; what a user wrote is never dropped. Of equalities go those that
    are inequalities. Of inequalities goes a lone variable that is not below zero (``x[i] >= 0 for i in S``), where its
    declaration says so already. Brackets around an entry, a lone ``=`` and strict inequalities are left to the
    compiler, which reads them alike wherever they come from.
    """
    if key not in KEYS[3:] or not isinstance(value, Mapping):
        return value, ()
    declared = {variable.name: variable for variable in variables}
    language = Language(declared)
    kept: dict[Any, Any] = {}
    dropped = []
    for label, text in value.items():
        reason = _misplaced(key, text, language, declared)
        if reason is None:
            kept[label] = text
        else:
            dropped.append(f"'{label}' is dropped: {reason}")
    return kept, tuple(dropped)


def _misplaced(key: str, text: Any, language: Language, declared: Mapping[str, Variable]) -> str | None:
    """Why an entry is not to be in a component; None where it may stay, or cannot be read."""
    try:
        body = language.parse(text).body if isinstance(text, str) else None
    except FormulaError:  # the compiler will say what is wrong with it
        return None
    if not isinstance(body, ast.Compare):
        return None
    if key == "equality_constraints":
        return None if all(isinstance(op, ast.Eq) for op in body.ops) else "it is an inequality"
    if len(body.ops) != 1:
        return None
    sides = (body.left, body.comparators[0])
    if isinstance(body.ops[0], ast.LtE):
        sides = sides[::-1]
    elif not isinstance(body.ops[0], ast.GtE):
        return None
    lone, zero = sides
    while isinstance(lone, ast.Subscript):
        lone = lone.value
    variable = declared.get(language.name(lone.id)) if isinstance(lone, ast.Name) else None
    if variable is None or not isinstance(zero, ast.Constant) or zero.value != 0:
        return None
    bounded = variable.type == "BINARY" or (isinstance(variable.lower, int | float) and variable.lower >= 0)
    return f"{variable.name} is declared not to be below zero" if bounded else None

"""The development problems of NL4OPT with their declarations as models, for measuring accuracy."""

import json
import re
from pathlib import Path
from typing import Any

from icml25cli.papers.formulate.compiler import compile_model
from icml25cli.papers.formulate.formulation import read_formulation
from icml25cli.papers.formulate.grammar.numbers import quantities
from icml25cli.papers.formulate.grammar.tagger import words_of
from icml25cli.papers.formulate.solve import solve

SIDES = {"LESS_OR_EQUAL": "<=", "GREATER_OR_EQUAL": ">="}


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def optima(row: dict[str, Any]) -> tuple[float | None, float | None]:
    """Optima of the declarations with whole variables and without; None where there is none, or they do not compile."""
    try:
        found = [
            solve(compile_model(read_formulation(_document(row, kind), "gold"))) for kind in ("INTEGER", "CONTINUOUS")
        ]
    except (ValueError, KeyError):
        return None, None
    except Exception as error:
        if type(error).__name__ != "FormulaError":
            raise
        return None, None
    whole, real = (each.objective if each.status == "optimal" else None for each in found)
    return whole, real


def agrees(value: float | None, gold: float | None, tolerance: float) -> bool:
    """Whether an objective is within a relative tolerance of the label."""
    return value is not None and gold is not None and abs(value - gold) <= tolerance * max(abs(gold), 1e-9)


def _number(text: str) -> float:
    found = quantities([word.text for word in words_of(text)])
    return float(found[0].value) if found else {"one": 1.0, "a": 1.0}[text.strip().lower()]


def _document(row: dict[str, Any], kind: str) -> dict[str, Any]:
    names = [f"x{i}" for i in range(len(row["vars"]))]
    place = {name: names[i] for i, name in enumerate(row["vars"])}
    place |= {mention: place[first] for mention, first in row["var_mention_to_first_var"].items()}
    everything = " + ".join(names)

    def total(terms: dict[str, str]) -> str:
        return " + ".join(f"{_number(value)} * {place[name]}" for name, value in terms.items())

    constraints = {}
    for i, each in enumerate(row["const_declarations"]):
        side = SIDES[each["operator"]]
        constraints[f"c{i}"] = {
            "linear": lambda e, s: f"{total(e['terms'])} {s} {_number(e['limit'])}",
            "sum": lambda e, s: f"{everything} {s} {_number(e['limit'])}",
            "upperbound": lambda e, s: f"{place[e['var']]} {s} {_number(e['limit'])}",
            "lowerbound": lambda e, s: f"{place[e['var']]} {s} {_number(e['limit'])}",
            "ratio": lambda e, s: f"{place[e['var']]} {s} {_number(e['limit'])} * ({everything})",
            "xby": lambda e, s: f"{place[e['x_var']]} {s} {_number(e['param'])} * {place[e['y_var']]}",
            "xy": lambda e, s: f"{place[e['x_var']]} {s} {place[e['y_var']]}",
        }[each["type"]](each, side)
    aim = row["obj_declaration"]
    sense = "min" if re.search("min|decreas|least|lowest|reduc|fewest", aim["direction"], re.IGNORECASE) else "max"
    return {
        "parameters": {},
        "decision_variables": {name: {"type": kind} for name in names},
        "objective": {sense: total(aim["terms"]) if aim.get("terms") else everything},
        "equality_constraints": {},
        "inequality_constraints": constraints,
    }

"""Problems of NL4OPT: texts with typed declarations, which are labels once they are solved.

Knows the declarations of the generation data (Ramamonjison et al. 2023). Does not know what is measured with them.
"""

from collections.abc import Mapping
from typing import Any

from icml25cli.core.errors import InputError
from icml25cli.papers.formulate.compiler import compile_model
from icml25cli.papers.formulate.formulation import read_formulation
from icml25cli.papers.formulate.grammar.lexicon import MINIMISE
from icml25cli.papers.formulate.grammar.numbers import quantities
from icml25cli.papers.formulate.grammar.tagger import words_of
from icml25cli.papers.formulate.solve import solve

SIDES = {"LESS_OR_EQUAL": "<=", "GREATER_OR_EQUAL": ">="}
DECLARED = "const_declarations"  # which tells such a row from others


def optima(row: Mapping[str, Any]) -> list[float]:
    """Optima of the declarations, with whole variables and without; none where they have none or do not compile."""
    found = []
    for kind in ("INTEGER", "CONTINUOUS"):
        try:
            solution = solve(compile_model(read_formulation(declared(row, kind), "the declarations")))
        except (InputError, KeyError, TypeError, AttributeError):  # annotators left things out
            return []
        if solution.status == "optimal" and solution.objective is not None:
            found.append(solution.objective)
    return found


def kinds(row: Mapping[str, Any]) -> list[str]:
    """The kinds of constraints that are declared."""
    found = (str(each.get("type")) for each in row.get(DECLARED) or () if isinstance(each, dict))
    return sorted({*found})


def declared(row: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The declarations as a formulation whose variables are all of one type.

    Raises:
        KeyError: a declaration lacks a part, or names no variable.
    """
    names = [f"x{i}" for i in range(len(row["vars"]))]
    place = dict(zip(row["vars"], names, strict=True))
    place |= {mention: place[first] for mention, first in row["var_mention_to_first_var"].items()}
    everything = " + ".join(names)

    def total(terms: Mapping[str, str]) -> str:
        return " + ".join(f"{_number(value)} * {place[name]}" for name, value in terms.items())

    constraints = {}
    for i, each in enumerate(row[DECLARED]):
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
    return {
        "parameters": {},
        "decision_variables": {name: {"type": kind} for name in names},
        "objective": {
            "min" if MINIMISE.search(aim["direction"]) else "max": total(aim["terms"])
            if aim.get("terms")
            else everything
        },
        "equality_constraints": {},
        "inequality_constraints": constraints,
    }


def _number(text: str) -> float:
    found = quantities([word.text for word in words_of(text)])
    return float(found[0].value) if found else {"one": 1.0, "a": 1.0}[text.strip().lower()]

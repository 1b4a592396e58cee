"""Formulations that several tests use, built as users write them: as the JSON object of five keys."""

from __future__ import annotations

from typing import Any, TypeVar

from icml25cli.papers.formulate.compiler import compile_model
from icml25cli.papers.formulate.formulation import Formulation, read_formulation
from icml25cli.papers.formulate.linear import LinearModel

T = TypeVar("T")

FARMER: dict[str, Any] = {
    "parameters": {"acres": 10, "budget": 100, "cost": {"wheat": 2, "corn": 5}, "profit": {"wheat": 20, "corn": 30}},
    "decision_variables": {
        "x": {"description": "acres of a crop", "type": "CONTINUOUS", "iteration_space": "[c for c in cost]"}
    },
    "objective": {"max": "sum(profit[c] * x[c] for c in cost)"},
    "equality_constraints": {},
    "inequality_constraints": {
        "land": "sum(x[c] for c in cost) <= acres",
        "budget": "sum(cost[c] * x[c] for c in cost) <= budget",
    },
}

CONT, INT, BIN = "CONTINUOUS", "INTEGER", "BINARY"


def formulation(
    variables: dict[str, Any],
    objective: dict[str, str] | None = None,
    rows: dict[str, str] | None = None,
    equations: dict[str, str] | None = None,
    parameters: dict[str, Any] | None = None,
) -> Formulation:
    """A formulation; a variable is its type alone, or all its fields."""
    document = {
        "parameters": parameters or {},
        "decision_variables": {n: {"type": v} if isinstance(v, str) else v for n, v in variables.items()},
        "objective": objective or {"min": "0"},
        "equality_constraints": equations or {},
        "inequality_constraints": rows or {},
    }
    return read_formulation(document, "the test")


def model(*args: Any, **kwargs: Any) -> LinearModel:
    return compile_model(formulation(*args, **kwargs))


def known(value: T | None) -> T:
    """A value that has to be there."""
    assert value is not None
    return value


def farmer() -> LinearModel:
    return compile_model(read_formulation(FARMER, "the farmer"))

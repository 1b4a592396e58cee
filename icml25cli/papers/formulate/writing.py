"""A linear model as text: LP file, MPS file, PuLP script, and a formulation of single variables.

Knows formats. Does not know whether what it wrote says what the model says; that is for `export` to find out.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from icml25cli.core.console import clean
from icml25cli.papers.formulate.formulation import Formulation, Objective, Variable
from icml25cli.papers.formulate.linear import Column, LinearModel, Row, Terms
from icml25cli.papers.formulate.rationals import Number, text

WIDTH = 100  # characters of a line of LP or Python
_LONG = 20  # terms from which a sum is written as a list: Python cannot read a sum of thousands


def portable(model: LinearModel) -> LinearModel:
    """The same model as every format can hold it: no row with two bounds or none, whole bounds of whole variables.

    A row with two bounds becomes two, ``name_lo`` and ``name_up``; formats and readers disagree on ranges.
    """
    rows: list[Row] = []
    for row in model.rows:
        if row.lower is not None and row.upper is not None and row.lower != row.upper:
            rows += [replace(row, name=f"{row.name}_lo", upper=None), replace(row, name=f"{row.name}_up", lower=None)]
        elif row.lower is not None or row.upper is not None:
            rows.append(row)
    return replace(model, columns=tuple(map(_whole_bounds, model.columns)), rows=tuple(rows))


def _whole_bounds(column: Column) -> Column:
    if not column.integer:
        return column
    lower = None if column.lower is None else math.ceil(column.lower)
    return replace(column, lower=lower, upper=None if column.upper is None else math.floor(column.upper))


def lp_text(model: LinearModel) -> str:
    """A portable model in the LP format of CPLEX, Gurobi, GLPK and HiGHS; numbers as the nearest floats."""
    names = model.column_names
    objective = dict(model.objective)
    placed = objective.keys() | {column for row in model.rows for column, _ in row.terms}
    terms = [(j, objective.get(j, 0)) for j in range(len(names)) if j in objective or j not in placed]
    constant = [_signed(model.constant)] if model.constant else []
    lines = ["Maximize" if model.sense == "max" else "Minimize"]
    lines += _wrapped(["obj:", *_lp_terms(terms, names), *constant])
    lines.append("Subject To")
    for name, row in zip(model.row_names, model.rows, strict=True):
        side = "=" if row.lower == row.upper else "<=" if row.lower is None else ">="
        bound = row.upper if row.lower is None else row.lower
        lines += _wrapped([f"{name}:", *_lp_terms(row.terms or ((0, 0),), names), f"{side} {_number(bound)}"])
    lines.append("Bounds")
    lines += [f" {_lp_bounds(column, name)}" for column, name in zip(model.columns, names, strict=True)]
    whole = [name for column, name in zip(model.columns, names, strict=True) if column.integer]
    if whole:
        lines += ["General", *_wrapped(whole)]
    return "\n".join([*lines, "End", ""])


def _lp_terms(terms: Iterable[tuple[int, Number]], names: tuple[str, ...]) -> list[str]:
    return [f"{_signed(coefficient)} {names[column]}" for column, coefficient in terms]


def _lp_bounds(column: Column, name: str) -> str:
    if column.lower is None and column.upper is None:
        return f"{name} free"
    if column.lower == column.upper:
        return f"{name} = {_number(column.lower)}"
    lower = "-inf" if column.lower is None else _number(column.lower)
    return f"{lower} <= {name}" if column.upper is None else f"{lower} <= {name} <= {_number(column.upper)}"


def _wrapped(parts: Iterable[str]) -> list[str]:
    lines, line = [], ""
    for part in parts:
        if line and len(line) + len(part) > WIDTH:
            lines.append(line)
            line = " "
        line += f" {part}"
    return [*lines, line]


def _number(value: Number | None) -> str:
    assert value is not None
    return repr(float(value)) if value.denominator != 1 else str(value.numerator)


def _signed(value: Number) -> str:
    return f"{'-' if value < 0 else '+'} {_number(abs(value))}"


def mps_text(model: LinearModel) -> str:
    """A portable model in free MPS, with the section that says whether to maximise; numbers as the nearest floats.

    Not by HiGHS, which closes the last block of whole variables too late where there are no rows.
    """
    names, row_names = model.column_names, model.row_names
    lines = ["NAME model", *(["OBJSENSE", "    MAX"] if model.sense == "max" else []), "ROWS", " N  obj"]
    kinds = ["E" if row.lower == row.upper else "L" if row.lower is None else "G" for row in model.rows]
    lines += [f" {kind}  {name}" for kind, name in zip(kinds, row_names, strict=True)]
    lines.append("COLUMNS")
    entries: list[list[str]] = [[] for _ in names]
    for j, coefficient in model.objective:
        entries[j].append(f"obj {_number(coefficient)}")
    for name, row in zip(row_names, model.rows, strict=True):
        for j, coefficient in row.terms:
            entries[j].append(f"{name} {_number(coefficient)}")
    whole = False
    for column, name, entry in zip(model.columns, names, entries, strict=True):
        if column.integer != whole:
            lines.append(f"    MARK 'MARKER' '{'INTEND' if whole else 'INTORG'}'")
            whole = column.integer
        lines += [f"    {name} {part}" for part in entry or ["obj 0"]]
    lines += [*(["    MARK 'MARKER' 'INTEND'"] if whole else []), "RHS"]
    if model.constant:
        lines.append(f"    RHS obj {_number(-model.constant)}")  # a constant stands there with its sign turned
    for name, row in zip(row_names, model.rows, strict=True):
        lines.append(f"    RHS {name} {_number(row.upper if row.lower is None else row.lower)}")
    lines.append("BOUNDS")
    for column, name in zip(model.columns, names, strict=True):
        lines += [f" {bound}" for bound in _mps_bounds(column, name)]
    return "\n".join([*lines, "ENDATA", ""])


def _mps_bounds(column: Column, name: str) -> list[str]:
    """Every bound said, since readers differ in what they assume, of whole variables above all."""
    if column.lower is None and column.upper is None:
        return [f"FR BND {name}"]
    if column.lower == column.upper:
        return [f"FX BND {name} {_number(column.lower)}"]
    lower = f"MI BND {name}" if column.lower is None else f"LO BND {name} {_number(column.lower)}"
    return [lower, f"PL BND {name}" if column.upper is None else f"UP BND {name} {_number(column.upper)}"]


# --- PuLP --------------------------------------------------------------------------------------------------------

_HEAD = '''"""A linear model, written by icml25 formulate. It needs PuLP alone: pip install pulp"""

import warnings

import pulp

warnings.simplefilter("ignore", DeprecationWarning)  # PuLP 3 warns of PuLP 4
problem = pulp.LpProblem("model", pulp.{sense})
variable = getattr(problem, "add_variable", pulp.LpVariable)
'''
_TAIL = """
if __name__ == "__main__":
    solvers = pulp.listSolvers(onlyAvailable=True)
    name = "PULP_CBC_CMD" if "PULP_CBC_CMD" in solvers else solvers[0]
    problem.solve(pulp.getSolver(name, msg=False))
    print("status:", pulp.LpStatus[problem.status])
    if problem.status == pulp.LpStatusOptimal:
        print("objective:", pulp.value(problem.objective))
        for each in problem.variables():
            print(f"{each.name} = {each.varValue}")
"""


def script_text(model: LinearModel) -> str:
    """A portable model as a Python script over PuLP that solves it and prints status, objective and values."""
    names = model.column_names
    lines = [_HEAD.format(sense="LpMaximize" if model.sense == "max" else "LpMinimize")]
    for column, name in zip(model.columns, names, strict=True):
        bounds = ", ".join("None" if bound is None else _number(bound) for bound in (column.lower, column.upper))
        kind = "Integer" if column.integer else "Continuous"
        said = clean(f"{column.name}: {column.description}" if column.description else column.name)
        comment = "" if said == name else f"  # {said}"
        lines.append(f'{name} = variable("{name}", {bounds}, "{kind}"){comment}')
    lines += ["", f'problem += {_python_sum(model.objective, names, model.constant)}, "objective"']
    for name, row in zip(model.row_names, model.rows, strict=True):
        side = "==" if row.lower == row.upper else "<=" if row.lower is None else ">="
        bound = _number(row.upper if row.lower is None else row.lower)
        said = clean(row.text)
        comment = f"  # {said}" if said else ""
        lines.append(f'problem += {_python_sum(row.terms, names)} {side} {bound}, "{name}"{comment}')
    return "\n".join([*lines, _TAIL])


def _python_sum(terms: Terms, names: tuple[str, ...], constant: Number = 0) -> str:
    if not terms:
        terms = ((0, 0),)  # a comparison of two numbers would be a truth value to Python
    parts = [_product(_number(coefficient), " * ", names[column]) for column, coefficient in terms]
    if constant:
        parts.append(_number(constant))
    if len(parts) <= _LONG:
        return " + ".join(parts).replace("+ -", "- ")
    return (
        "pulp.lpSum([\n" + "\n".join(f"    {line.strip()}" for line in _wrapped(f"{part}," for part in parts)) + "\n])"
    )


def _product(coefficient: str, times: str, name: str) -> str:
    return {"1": name, "-1": f"-{name}"}.get(coefficient, f"{coefficient}{times}{name}")


# --- formulations ------------------------------------------------------------------------------------------------


def flat_formulation(model: LinearModel) -> Formulation:
    """A model as a formulation without parameters and index sets: every number and variable written out."""
    variables = tuple(
        Variable(
            column.name,
            "INTEGER" if column.integer else "CONTINUOUS",
            None,
            _json_bound(column.lower),
            _json_bound(column.upper),
            column.description,
        )
        for column in model.columns
    )
    labels: dict[str, int] = {}
    equalities, inequalities = [], []
    for row in model.rows:
        labels[row.name] = labels.get(row.name, 0) + 1
        label = row.name if labels[row.name] == 1 else f"{row.name} ({labels[row.name]})"
        inner = _flat_sum(model, row.terms)
        if row.lower is not None and row.lower == row.upper:
            equalities.append((label, f"{inner} == {text(row.lower)}"))
        elif row.lower is not None or row.upper is not None:
            lower = "" if row.lower is None else f"{text(row.lower)} <= "
            upper = "" if row.upper is None else f" <= {text(row.upper)}"
            inequalities.append((label, f"{lower}{inner}{upper}"))
    objective = Objective(model.sense, _flat_sum(model, model.objective, model.constant))
    return Formulation({}, variables, objective, tuple(equalities), tuple(inequalities))


def _json_bound(bound: Number | None) -> int | float | str | None:
    if bound is None or isinstance(bound, int):
        return bound
    return text(bound) if "/" in text(bound) else float(bound)


def _flat_sum(model: LinearModel, terms: Terms, constant: Number = 0) -> str:
    parts = [_product(text(coefficient), "*", model.columns[column].name) for column, coefficient in terms]
    if constant or not parts:
        parts.append(text(constant))
    if len(parts) > _LONG:
        return f"sum([{', '.join(parts)}])"
    return " + ".join(parts).replace("+ -", "- ")

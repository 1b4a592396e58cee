"""From a formulation to a linear model, without running anything that it says.

    model = compile_model(load_formulation(Path("farmer.json")))

Reads every expression with `expressions`, evaluates it exactly with `evaluation`, and collects columns and rows. A
formulation that is filled only down to some level is compiled as far as it goes. Knows what a formulation means. Does
not know solvers.
"""

import ast
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fractions import Fraction
from typing import Any

from icml25cli.core.errors import InputError
from icml25cli.papers.formulate import rationals
from icml25cli.papers.formulate.evaluation import Evaluator, Limits
from icml25cli.papers.formulate.expressions import FormulaError, Language, LimitError, NonLinear, Parsed
from icml25cli.papers.formulate.formulation import Bound, Constraints, Formulation, Variable
from icml25cli.papers.formulate.linear import Column, LinearModel, Row, Terms
from icml25cli.papers.formulate.rationals import Number
from icml25cli.papers.formulate.values import Family, Linear, shown_index

__all__ = ["FormulaError", "LimitError", "Limits", "NonLinear", "compile_model"]

STRICT_STEP = Fraction(1, 10**8)  # what a strict inequality between continuous sums means, as in the reference


def compile_model(formulation: Formulation, limits: Limits | None = None) -> LinearModel:
    """The linear model that a formulation describes.

    A chained comparison ``a <= e <= b`` is two rows; one label with a loop is a row a pass, named ``label[i, j]``. An
    equation ``x[0] == number`` on an index outside the index set of ``x`` brings that variable into being, which is how
    boundary values of recursions are written. A strict inequality between whole variables moves its bound to the next
    value that their sum can take, any other by ``STRICT_STEP``; ``notes`` of the model say so.

    Raises:
        NonLinear: an expression is not linear in the decision variables; the message has the part that is not.
        LimitError: the formulation is beyond ``limits``.
        FormulaError: an expression is not of the language, names what is not declared, or has no number as its value.
        InputError: a declaration is wrong. All messages name the component and the entry.
    """
    return _Compiler(formulation, limits or Limits()).model()


class _Compiler:
    def __init__(self, formulation: Formulation, limits: Limits) -> None:
        self._formulation = formulation
        self._limits = limits
        self._variables = {variable.name: variable for variable in formulation.variables or ()}
        self._language = Language([*(formulation.parameters or {}), *self._variables])
        self._evaluator = Evaluator(self._language, limits)
        self._bounds: dict[str, tuple[Number | None, Number | None]] = {}
        self._columns: list[Column] = []
        self._rows: list[Row] = []
        self._terms = 0
        self._notes: dict[str, None] = {}  # in order, each once

    def model(self) -> LinearModel:
        formulation = self._formulation
        for name, value in (formulation.parameters or {}).items():
            with _naming(f"parameters '{name}'"):
                self._declare(name, _parameter(value))
        for variable in formulation.variables or ():
            with _naming(f"decision_variables '{variable.name}'"):
                self._declare_variable(variable)
        equalities = list(self._read("equality_constraints", formulation.equalities))
        for where, _, _, parsed in equalities:
            with _naming(where):
                self._add_boundary(parsed)
        with _naming("objective"):
            objective = self._objective()
        inequalities = self._read("inequality_constraints", formulation.inequalities)
        for where, label, text, parsed in (*equalities, *inequalities):
            with _naming(where):
                self._add_rows(label, text, parsed)
        return LinearModel(
            sense=formulation.objective.sense if formulation.objective else "min",
            objective=objective.sorted_terms(),
            constant=rationals.exact(objective.constant),
            columns=tuple(self._columns),
            rows=tuple(self._rows),
            notes=tuple(self._notes),
        )

    # --- declarations --------------------------------------------------------------------------------------------

    def _declare(self, name: str, value: Any) -> None:
        if name in self._evaluator.names:
            raise FormulaError("the name is declared twice", hint="give parameters and variables different names")
        self._evaluator.names[name] = value

    def _declare_variable(self, variable: Variable) -> None:
        family = Family(variable.name)
        lower, upper = self._bound(variable.lower), self._bound(variable.upper)
        if variable.type == "BINARY":
            lower, upper = max(0, lower or 0), 1 if upper is None else min(1, upper)
        self._bounds[variable.name] = lower, upper
        if variable.space is None:
            self._add_column(variable, family, ())
        else:
            for index in self._evaluator.indices(self._language.parse(variable.space)):
                if index in family.columns:
                    raise FormulaError(f"the index {shown_index(index)} stands twice in its index set")
                self._add_column(variable, family, index)
        self._declare(variable.name, family)

    def _add_column(self, variable: Variable, family: Family, index: tuple) -> None:
        if len(self._columns) >= self._limits.rows:
            raise LimitError(f"there are more than {self._limits.rows} variables", hint="make the index sets smaller")
        family.columns[index] = len(self._columns)
        name = f"{variable.name}[{shown_index(index)}]" if variable.space is not None else variable.name
        integer = variable.type != "CONTINUOUS"
        self._columns.append(Column(name, *self._bounds[variable.name], integer, variable.description))

    def _bound(self, bound: Bound) -> Number | None:
        if isinstance(bound, str):
            return self._evaluator.number(self._language.parse(bound).body, {})
        return None if bound is None else rationals.exact(bound)

    # --- objective and rows --------------------------------------------------------------------------------------

    def _objective(self) -> Linear:
        if self._formulation.objective is None:
            return Linear({})
        parsed = self._language.parse(self._formulation.objective.expression)
        if parsed.loops:
            raise FormulaError("there is a loop behind the expression", hint="write sum(... for ... in ...)")
        return self._evaluator.linear(parsed.body, {})

    def _read(self, key: str, constraints: Constraints | None) -> Iterator[tuple[str, str, str, Parsed]]:
        for label, text in constraints or ():
            where = f"{key} '{label}'"
            with _naming(where):
                parsed = self._language.parse(text)
                if not isinstance(parsed.body, ast.Compare):
                    hint = "write <=, >= or =="
                    if isinstance(parsed.body, ast.Tuple):
                        hint = "write numbers without commas between thousands"
                    raise FormulaError(f"{self._language.shown(parsed.body)} is no comparison", hint=hint)
            yield where, label, text, parsed

    def _add_boundary(self, parsed: Parsed) -> None:
        """Bring variables into being that an equation with a number puts outside their index set."""
        body = parsed.body
        if len(body.ops) != 1 or not isinstance(body.ops[0], ast.Eq):  # type: ignore[attr-defined]
            return
        for side, other in ((body.left, body.comparators[0]), (body.comparators[0], body.left)):  # type: ignore[attr-defined]
            base: ast.expr = side
            while isinstance(base, ast.Subscript):
                base = base.value
            variable = self._variables.get(self._language.name(base.id)) if isinstance(base, ast.Name) else None
            if variable is None or variable.space is None or base is side:
                continue
            family = self._evaluator.names[variable.name]
            for scope in self._evaluator.scopes(parsed):
                index = self._evaluator.index(side, scope)[1]
                if index in family.columns:
                    continue
                with suppress(FormulaError):  # no number: the row itself will say what is wrong
                    self._evaluator.number(other, scope)
                    self._add_column(variable, family, index)
                    self._note(f"{self._columns[-1].name} is outside the index set and taken as a boundary value")

    def _add_rows(self, label: str, text: str, parsed: Parsed) -> None:
        body = parsed.body
        assert isinstance(body, ast.Compare)
        operands = (body.left, *body.comparators)
        for scope in self._evaluator.scopes(parsed):
            name = f"{label}[{self._evaluator.names_of(parsed.loops, scope)}]" if parsed.loops else label
            sums = [self._evaluator.linear(operand, scope) for operand in operands]
            for position, op in enumerate(body.ops):
                part = name if len(body.ops) == 1 else f"{name} ({position + 1})"
                self._add_row(part, label, text, op, sums[position], sums[position + 1])

    def _add_row(self, name: str, label: str, text: str, op: ast.cmpop, left: Linear, right: Linear) -> None:
        difference = Linear(dict(left.terms), left.constant)
        difference.add(right, -1)
        terms, bound = difference.sorted_terms(), rationals.exact(-difference.constant)
        if isinstance(op, ast.Eq):
            lower, upper = bound, bound
        elif isinstance(op, ast.LtE):
            lower, upper = None, bound
        elif isinstance(op, ast.GtE):
            lower, upper = bound, None
        elif isinstance(op, ast.Lt):
            lower, upper = None, self._below(terms, bound, label)
        elif isinstance(op, ast.Gt):
            lower, upper = -self._below(tuple((c, -a) for c, a in terms), -bound, label), None
        else:
            raise FormulaError("it compares with what bounds nothing", hint="only <=, >=, ==, < and > are constraints")
        if terms and (not any(left.terms.values()) or all(coefficient < 0 for _, coefficient in terms)):
            # `demand <= sum(...)` and `stock - use >= 0` bound what stands on their other side: so reads their dual.
            terms = tuple((column, -coefficient) for column, coefficient in terms)
            lower, upper = _negative(upper), _negative(lower)
        row = Row(name, terms, lower, upper, text)
        if not terms and row.admits(0):
            self._note(f"the constraint '{name}' holds whatever the variables are, and is left out")
            return
        self._terms += len(terms)
        if len(self._rows) >= self._limits.rows or self._terms > self._limits.terms:
            raise LimitError(
                f"there are more than {self._limits.rows} rows or {self._limits.terms} coefficients",
                hint="make the index sets smaller",
            )
        self._rows.append(row)

    def _below(self, terms: Terms, bound: Number, label: str) -> Number:
        """The largest bound that keeps ``terms`` strictly below ``bound``."""
        if terms and all(self._columns[column].integer for column, _ in terms):
            scale = math.lcm(*(coefficient.denominator for _, coefficient in terms))
            step = Fraction(math.gcd(*(int(coefficient * scale) for _, coefficient in terms)), scale)
            self._note(f"strict inequality in '{label}': whole variables, so the next value their sum can take")
            return rationals.exact((math.ceil(bound / step) - 1) * step)
        self._note(f"strict inequality in '{label}': taken as {float(STRICT_STEP):g} beyond the bound")
        return rationals.exact(bound - STRICT_STEP)

    def _note(self, text: str) -> None:
        self._notes[text] = None


def _negative(bound: Number | None) -> Number | None:
    return None if bound is None else -bound


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Begin the message of an error in the body with the component and the entry at fault."""
    try:
        yield
    except InputError as error:
        kind = type(error) if isinstance(error, FormulaError) else FormulaError
        raise kind(f"{where}: {error.message}", hint=error.hint) from error


def _parameter(value: Any) -> Any:
    """A parameter as expressions see it: exact numbers, and objects by the index that their fields mean."""
    if isinstance(value, Mapping):
        by_index = {rationals.key(name): _parameter(inner) for name, inner in value.items()}
        if len(by_index) < len(value):
            raise FormulaError("two of its fields mean the same index", hint="keep one of them")
        return by_index
    if isinstance(value, list | tuple):
        return [_parameter(inner) for inner in value]
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise FormulaError(f"{value!r} is no number, text, list or object", hint="give a number")
    return rationals.exact(value)

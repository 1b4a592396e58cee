"""Values of expressions: exact numbers, and sums that are linear in decision variables.

Walks the syntax trees that `expressions` let through; nothing is compiled or run. Knows parameters and variables by
name. Does not know constraints or solvers.
"""

import ast
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from icml25cli.papers.formulate import rationals
from icml25cli.papers.formulate.expressions import FormulaError, Language, LimitError, NonLinear, Parsed
from icml25cli.papers.formulate.rationals import Number
from icml25cli.papers.formulate.values import Family, Linear, element, shown_index, times


@dataclass(frozen=True)
class Limits:
    """What evaluating a formulation may cost; beyond it ``LimitError`` is raised."""

    rows: int = 1_000_000  # of rows, and of columns
    terms: int = 20_000_000  # of coefficients in all rows together
    seconds: float = 5.0
    bits: int = 4096  # of a numerator or denominator


Scope = Mapping[str, Any]
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class Evaluator:
    """Evaluates expressions over ``names``: parameters and families of columns, under common limits."""

    def __init__(self, language: Language, limits: Limits) -> None:
        self.language = language
        self.names: dict[str, Any] = {}
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._steps = 0
        self._visitors: dict[type, Callable[[Any, Scope], Any]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.BoolOp: self._junction,
            ast.Compare: self._compare,
            ast.Subscript: self._subscript,
            ast.Tuple: lambda node, scope: tuple(self.value(part, scope) for part in node.elts),
            ast.List: lambda node, scope: [self.value(part, scope) for part in node.elts],
            ast.GeneratorExp: self._comprehension,
            ast.ListComp: lambda node, scope: list(self._comprehension(node, scope)),
            ast.Call: self._call,
        }

    # --- what callers ask for ------------------------------------------------------------------------------------

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """The value of a syntax tree where loop variables have the values in ``scope``."""
        self._tick()
        return self._visitors[type(node)](node, scope)

    def linear(self, node: ast.expr, scope: Scope) -> Linear:
        """The value of a syntax tree as a new linear sum."""
        value = self._arithmetic(self.value(node, scope), node)
        return Linear(dict(value.terms), value.constant) if isinstance(value, Linear) else Linear({}, value)

    def number(self, node: ast.expr, scope: Scope) -> Number:
        """The value of a syntax tree that has to be a number."""
        value = self._arithmetic(self.value(node, scope), node)
        if isinstance(value, Linear):
            raise FormulaError(f"{self.language.shown(node)} has to be a number, and depends on decision variables")
        return value

    def scopes(self, parsed: Parsed) -> Iterator[Scope]:
        """The values of loop variables, once for each pass through the loops behind an expression."""
        return self._loops(parsed.loops, {})

    def index(self, node: ast.Subscript, scope: Scope) -> tuple[ast.expr, tuple]:
        """What is indexed and the whole index: ``x[i][j]`` and ``x[i, j]`` are the same."""
        parts: list[Any] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Subscript):
            part = self.value(inner.slice, scope)
            parts[:0] = part if isinstance(part, (tuple, list)) else (part,)
            inner = inner.value
        return inner, tuple(rationals.key(self._hashable(part, node)) for part in parts)

    def indices(self, parsed: Parsed) -> Iterator[tuple]:
        """The elements of an index set, each as a whole index: what a comprehension yields, or a list holds."""
        if parsed.loops:
            items = (self.value(parsed.body, scope) for scope in self.scopes(parsed))
        else:
            items = self._iterable(self.value(parsed.body, {}), parsed.body)
        for item in items:
            parts = item if isinstance(item, tuple | list) else (item,)
            yield tuple(rationals.key(self._hashable(part, parsed.body)) for part in parts)

    def names_of(self, targets: Iterable[ast.comprehension], scope: Scope) -> str:
        """The index of a row: the values of its loop variables, as ``mill, 3``."""
        found = [part.id for loop in targets for part in ast.walk(loop.target) if isinstance(part, ast.Name)]
        return ", ".join(shown_index(scope[name]) for name in found)

    # --- nodes ---------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._steps += 1
        if not self._steps & 1023 and time.monotonic() > self._deadline:
            raise LimitError(
                f"it takes longer than {self._limits.seconds:g} seconds", hint="make the index sets smaller"
            )

    def _constant(self, node: ast.Constant, _scope: Scope) -> Any:
        value: Any = node.value  # a number or a text, as the language has no other constants
        if type(value) is int and value < 2**62:
            return value
        return value if isinstance(value, str) else self._small(rationals.exact(value), node)

    def _name(self, node: ast.Name, scope: Scope) -> Any:
        name = self.language.name(node.id)
        if node.id in scope:
            return scope[node.id]
        if name not in self.names:
            raise FormulaError(
                f"{name} is neither a parameter nor a decision variable", hint="declare it or mend its name"
            )
        value = self.names[name]
        if isinstance(value, Family) and () in value.columns:
            return Linear({value.columns[()]: 1})
        return value

    def _binary(self, node: ast.BinOp, scope: Scope) -> Any:
        if isinstance(node.op, ast.Add | ast.Sub):
            return self._sum_of_terms(node, scope)
        left = self._arithmetic(self.value(node.left, scope), node.left)
        right = self._arithmetic(self.value(node.right, scope), node.right)
        if isinstance(node.op, ast.Mult):
            product = times(left, right)
            if product is None:
                raise NonLinear(
                    f"{self.language.shown(node)} multiplies decision variables",
                    hint="a product with a binary variable can be written with a bound: y <= upper * b",
                )
            return self._small(product, node)
        if isinstance(right, Linear):
            raise NonLinear(
                f"{self.language.shown(node)} has decision variables behind {_SYMBOLS[type(node.op)]}",
                hint="multiply the constraint by the divisor where its sign is known",
            )
        if isinstance(node.op, ast.Pow):
            return self._power(left, right, node)
        if not right:
            raise FormulaError(f"{self.language.shown(node)} divides by zero")
        if isinstance(node.op, ast.Div):
            return self._small(times(left, Fraction(1) / right), node)
        if isinstance(left, Linear):
            raise NonLinear(f"{self.language.shown(node)} rounds decision variables", hint="declare a whole variable")
        return rationals.exact(left // right if isinstance(node.op, ast.FloorDiv) else left % right)

    def _sum_of_terms(self, node: ast.BinOp, scope: Scope) -> Any:
        """A chain of ``+`` and ``-``, which leans to the left however long it is, without recursion."""
        chain: list[tuple[int, ast.expr]] = []
        inner: ast.expr = node
        while isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add | ast.Sub):
            chain.append((1 if isinstance(inner.op, ast.Add) else -1, inner.right))
            inner = inner.left
        total = self.linear(inner, scope)
        for sign, term in reversed(chain):
            total.add(self._arithmetic(self.value(term, scope), term), sign)
        return self._small(total if total.terms else total.constant, node)

    def _power(self, left: Any, right: Number, node: ast.BinOp) -> Any:
        if isinstance(left, Linear):
            if right == 1:
                return left
            raise NonLinear(
                f"{self.language.shown(node)} is a power of decision variables", hint="only sums are linear"
            )
        if not isinstance(right, int):
            raise FormulaError(f"{self.language.shown(node)} has an exponent that is not whole", hint="give its value")
        size = max(abs(left.numerator), left.denominator).bit_length()
        if size * abs(right) > self._limits.bits:
            raise LimitError(f"{self.language.shown(node)} is too large a number", hint="choose other units")
        if not left and right < 0:
            raise FormulaError(f"{self.language.shown(node)} divides by zero")
        return rationals.exact(Fraction(left) ** right)

    def _unary(self, node: ast.UnaryOp, scope: Scope) -> Any:
        if isinstance(node.op, ast.Not):
            return not self._truth(node.operand, scope)
        value = self._arithmetic(self.value(node.operand, scope), node.operand)
        return value if isinstance(node.op, ast.UAdd) else times(-1, value)

    def _junction(self, node: ast.BoolOp, scope: Scope) -> bool:
        parts = (self._truth(part, scope) for part in node.values)
        return all(parts) if isinstance(node.op, ast.And) else any(parts)

    def _truth(self, node: ast.expr, scope: Scope) -> bool:
        value = self.value(node, scope)
        if not isinstance(value, bool):
            raise FormulaError(f"{self.language.shown(node)} is no condition", hint="compare it with something")
        return value

    def _compare(self, node: ast.Compare, scope: Scope) -> bool:
        values = [self.value(part, scope) for part in (node.left, *node.comparators)]
        if any(isinstance(value, Linear | Family) for value in values):
            raise FormulaError(
                f"{self.language.shown(node)} depends on decision variables, which no condition can",
                hint="a switch needs a binary variable and a bound",
            )
        for left, op, right in zip(values, node.ops, values[1:], strict=False):
            if isinstance(op, ast.In | ast.NotIn):
                holds = self._is_in(left, right, node) == isinstance(op, ast.In)
            elif isinstance(op, ast.Eq | ast.NotEq):
                holds = _COMPARISONS[type(op)](rationals.key(left), rationals.key(right))
            else:
                try:
                    holds = _COMPARISONS[type(op)](left, right)
                except TypeError:
                    raise FormulaError(f"{self.language.shown(node)} compares what has no order") from None
            if not holds:
                return False
        return True

    def _is_in(self, left: Any, right: Any, node: ast.Compare) -> bool:
        wanted = rationals.key(self._hashable(left, node))
        if isinstance(right, Mapping | range):
            return wanted in right
        return any(rationals.key(self._hashable(item, node)) == wanted for item in self._iterable(right, node))

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        inner, index = self.index(node, scope)
        value = self.names.get(self.language.name(inner.id)) if isinstance(inner, ast.Name) else None
        if isinstance(value, Family) and inner.id not in scope:  # type: ignore[attr-defined]
            column = value.columns.get(index)
            if column is None:
                raise FormulaError(
                    f"{value.name} has no index {shown_index(index)}",
                    hint=f"its index set has {len(value.columns)} elements",
                )
            return Linear({column: 1})
        try:
            return element(self.value(inner, scope), index)
        except FormulaError as error:
            raise FormulaError(f"{self.language.shown(node)}: {error.message}", hint=error.hint) from None

    def _comprehension(self, node: ast.GeneratorExp | ast.ListComp, scope: Scope) -> Iterator[Any]:
        return (self.value(node.elt, inner) for inner in self._loops(tuple(node.generators), scope))

    def _loops(self, loops: tuple[ast.comprehension, ...], scope: Scope) -> Iterator[Scope]:
        if not loops:
            yield scope
            return
        loop, *rest = loops
        for item in self._iterable(self.value(loop.iter, scope), loop.iter):
            inner = dict(scope)
            self._assign(loop.target, item, inner)
            if all(self._truth(condition, inner) for condition in loop.ifs):
                yield from self._loops(tuple(rest), inner)

    def _assign(self, target: ast.expr, item: Any, scope: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = item
            return
        parts = getattr(target, "elts", None)
        if parts is None or not isinstance(item, tuple | list) or len(item) != len(parts):
            raise FormulaError(f"{shown_index(item)} does not unpack into {self.language.shown(target)}")
        for part, value in zip(parts, item, strict=True):
            self._assign(part, value, scope)

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        if isinstance(node.func, ast.Attribute):
            return self._method(node.func, scope)
        name = node.func.id  # type: ignore[attr-defined]
        values = [self.value(part, scope) for part in node.args]
        if name == "sum":
            return self._sum(values, node)
        if name in ("min", "max", "abs"):
            listed = len(values) == 1 and name != "abs"
            return self._extreme(name, self._summands(values[0], node.args[0]) if listed else values, node)
        try:
            if name == "len":
                (value,) = values
                return len(value.columns) if isinstance(value, Family) else len(value)
            if name == "range":
                return range(*values)
            if name == "enumerate":
                return enumerate(self._iterable(values[0], node.args[0]), *values[1:])
            return zip(*(self._iterable(value, node) for value in values), strict=False)
        except (TypeError, ValueError, IndexError, OverflowError):
            raise FormulaError(f"{self.language.shown(node)}: {name} does not take that") from None

    def _sum(self, values: list[Any], node: ast.Call) -> Any:
        if len(values) != 1:
            raise FormulaError(f"{self.language.shown(node)}: sum takes one list", hint="sum(... for ... in ...)")
        total = Linear({})
        for item in self._summands(values[0], node.args[0]):
            total.add(self._arithmetic(item, node))
        return self._small(total if total.terms else total.constant, node)

    def _summands(self, value: Any, node: ast.expr) -> Iterable[Any]:
        if isinstance(value, Mapping | Family):  # Python would take the keys, which nobody means
            raise FormulaError(
                f"{self.language.shown(node)} has an index", hint=f"write {self.language.shown(node)}.values()"
            )
        return self._iterable(value, node)

    def _extreme(self, name: str, values: Iterable[Any], node: ast.Call) -> Number:
        numbers = [self._arithmetic(value, node) for value in values]
        if any(isinstance(value, Linear) for value in numbers):
            raise NonLinear(
                f"{self.language.shown(node)} is not linear in decision variables",
                hint=f"a new variable t can stand for it, with {_LINEARISED[name]}",
            )
        if not numbers or (name == "abs" and len(numbers) != 1):
            raise FormulaError(f"{self.language.shown(node)}: {name} has nothing to take", hint="give it numbers")
        return abs(numbers[0]) if name == "abs" else (min if name == "min" else max)(numbers)

    def _method(self, node: ast.Attribute, scope: Scope) -> Any:
        inner = node.value
        value = self.names.get(self.language.name(inner.id)) if isinstance(inner, ast.Name) else None
        if not isinstance(value, Family):
            value = self.value(inner, scope)
        if isinstance(value, Family):
            pairs = [(index[0] if len(index) == 1 else index, Linear({c: 1})) for index, c in value.columns.items()]
        elif isinstance(value, Mapping):
            pairs = list(value.items())
        else:
            raise FormulaError(f"{self.language.shown(inner)} is no object", hint=f"only objects have .{node.attr}()")
        return pairs if node.attr == "items" else [pair[node.attr == "values"] for pair in pairs]

    # --- what values may be --------------------------------------------------------------------------------------

    def _iterable(self, value: Any, node: ast.AST) -> Iterable[Any]:
        if isinstance(value, Family):
            return [index[0] if len(index) == 1 else index for index in value.columns]
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise FormulaError(
                f"{self.language.shown(node)} is nothing to loop over", hint="a list, an object or a range is"
            )
        return self._ticking(value)

    def _ticking(self, value: Iterable[Any]) -> Iterator[Any]:
        for item in value:
            self._tick()
            yield item

    def _hashable(self, value: Any, node: ast.AST) -> Any:
        if type(value) in _INDICES:
            return value
        if isinstance(value, (tuple, list)):
            return tuple(self._hashable(part, node) for part in value)
        raise FormulaError(f"{self.language.shown(node)}: only numbers, texts and pairs of them can be an index")

    def _arithmetic(self, value: Any, node: ast.expr) -> Any:
        if type(value) in _NUMBERS:
            return value
        shown = self.language.shown(node)
        if isinstance(value, Family):
            raise FormulaError(f"{shown} has an index", hint=f"write {shown}[...] or sum({shown}.values())")
        kind = {str: "a text", bool: "a condition"}.get(type(value), "a list")
        raise FormulaError(f"{shown} is {kind}, where a number is needed")

    def _small(self, value: Any, node: ast.expr) -> Any:
        """``value``, unless a number in it has grown beyond the limit of bits."""
        numbers = (*value.terms.values(), value.constant) if isinstance(value, Linear) else (value,)
        for number in numbers:
            if max(abs(number.numerator), number.denominator).bit_length() > self._limits.bits:
                raise LimitError(f"{self.language.shown(node)} has too large a number", hint="choose other units")
        return value if isinstance(value, Linear) else rationals.exact(value)


_LINEARISED = {
    "min": "t <= each of them, where t is to be large",
    "max": "t >= each of them, where t is to be small",
    "abs": "t >= e and t >= -e, where t is to be small",
}
# Asked of every value: looked up by type, which `isinstance` of a union is several times slower at.
_NUMBERS = frozenset((int, Fraction, Linear))
_INDICES = frozenset((int, Fraction, str))
_SYMBOLS = {ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"}

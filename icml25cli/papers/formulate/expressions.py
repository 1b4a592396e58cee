"""The language of expressions: a small part of Python's, read with `ast` and never run.

    2*wheat + 5*corn <= budget
    sum(ship[i, j] for j in markets) <= supply[i] for i in plants if supply[i] > 0

Numbers, names, texts, ``+ - * / // % **``, comparisons, ``and or not in``, indices, tuples, lists, comprehensions, the
functions of ``FUNCTIONS``, ``.items() .keys() .values()``, and behind a constraint ``for`` and ``if``. Anything else is
refused here, before a value exists. Knows syntax. Does not know what a name stands for.
"""

import ast
import keyword
import re
import unicodedata
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from icml25cli.core.errors import InputError

FUNCTIONS = ("sum", "min", "max", "abs", "len", "range", "zip", "enumerate")
METHODS = ("items", "keys", "values")
LONGEST = 1_000_000  # characters of an expression
DEEPEST = 60  # levels of nesting; a sum of many terms is one level

_NODES = (
    *(ast.Name, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Subscript, ast.Tuple, ast.List),
    *(ast.GeneratorExp, ast.ListComp, ast.comprehension, ast.expr_context),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UAdd, ast.USub),
    *(ast.And, ast.Or, ast.Not, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.In, ast.NotIn),
)
_SUMS = (ast.Add, ast.Sub)
_LONE_EQUALS = re.compile(r"(\"[^\"]*\"|'[^']*')|(?<![<>=!])=(?!=)")  # or a text in quotes, to leave it alone


class FormulaError(InputError):
    """An expression that does not belong to the language, or whose value is not what its place needs."""


class NonLinear(FormulaError):
    """An expression that is not linear in the decision variables."""


class LimitError(FormulaError):
    """An expression that is too long, too deep, or too large to be evaluated."""


@dataclass(frozen=True)
class Parsed:
    """An expression and the loops behind it: ``body for ... in ... if ...``."""

    body: ast.expr
    loops: tuple[ast.comprehension, ...]


class Language:
    """Reads expressions over declared names, which may be any text: ``2 * large pill + small pill``."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        names = list(names)
        odd = sorted((name for name in names if not _is_identifier(name)), key=len, reverse=True)
        prefix = "name_"
        while any(name.startswith(prefix) for name in names):
            prefix += "_"
        self._aliases = {name: f"{prefix}{position}" for position, name in enumerate(odd)}
        self._names = {alias: name for name, alias in self._aliases.items()}
        self._lengths = sorted({len(name) for name in odd}, reverse=True)
        self._beginnings = {name[0] for name in odd}

    def parse(self, text: str) -> Parsed:
        """The syntax tree of ``text``. A lone ``=`` means ``==``; brackets around the whole are dropped.

        Raises:
            LimitError: the text is too long or too deep.
            FormulaError: it is no expression, or uses what the language lacks.
        """
        if len(text) > LONGEST:
            raise LimitError(f"the expression has {len(text)} characters", hint=f"at most {LONGEST} are read")
        inner = _LONE_EQUALS.sub(lambda found: found[1] or "==", self._with_aliases(text.strip()))
        try:
            with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
                tree = _tree(inner)
        except SyntaxError as error:
            raise FormulaError(
                f"{_excerpt(text)} is no expression: {error.msg}", hint="write it as in Python"
            ) from error
        except (RecursionError, MemoryError):
            raise LimitError("the expression is nested too deeply", hint="use sum(... for ...)") from None
        except ValueError as error:  # a NUL, or digits by the thousand
            raise FormulaError(f"{_excerpt(text)} is no expression: {error}", hint="write it as in Python") from error
        self._check(tree)
        if isinstance(tree, ast.List) and len(tree.elts) == 1:
            tree = tree.elts[0]
        if isinstance(tree, ast.GeneratorExp | ast.ListComp):
            return Parsed(tree.elt, tuple(tree.generators))
        return Parsed(tree, ())

    def name(self, identifier: str) -> str:
        """The declared name that an identifier of a syntax tree stands for."""
        return self._names.get(identifier, identifier)

    def shown(self, node: ast.AST) -> str:
        """A part of a syntax tree as the user wrote it, but for blanks."""
        try:
            text = ast.unparse(node)
        except RecursionError:  # of a sum of a thousand terms, which the evaluation of sums can do without
            return "a long sum"
        return _excerpt(re.sub(r"\w+", lambda found: self.name(found[0]), text))

    def _with_aliases(self, text: str) -> str:
        """``text`` with identifiers in the place of declared names that are none, the longest name first."""
        if not self._aliases:
            return text
        parts: list[str] = []
        position = 0
        while position < len(text):
            name = self._name_at(text, position) if text[position] in self._beginnings else None
            if name is not None:
                parts.append(self._aliases[name])
                position += len(name)
                continue
            end = position
            if text[position] in "\"'":
                end = max(position, text.find(text[position], position + 1))
            parts.append(text[position : end + 1])
            position = end + 1
        return "".join(parts)

    def _name_at(self, text: str, position: int) -> str | None:
        if _joined(text, position):
            return None
        candidates = (text[position : position + length] for length in self._lengths)
        return next((n for n in candidates if n in self._aliases and not _joined(text, position + len(n))), None)

    def _check(self, tree: ast.expr) -> None:
        """Refuse what the language lacks, wherever it stands, also where it would never be evaluated."""
        waiting: list[tuple[ast.AST, int]] = [(tree, 1)]
        while waiting:
            node, depth = waiting.pop()
            if depth > DEEPEST:
                raise LimitError("the expression is nested too deeply", hint="use sum(... for ...)")
            children = list(ast.iter_child_nodes(node))
            if isinstance(node, ast.Call):
                self._check_call(node)
                if isinstance(node.func, ast.Attribute):
                    children = [node.func.value]
                else:
                    children = node.args
            elif isinstance(node, ast.Constant):
                if type(node.value) not in (int, float, str):
                    self._refuse(node)
            elif not isinstance(node, _NODES) or getattr(node, "is_async", False):
                self._refuse(node)
            for child in children:
                sums = isinstance(node, ast.BinOp) and isinstance(node.op, _SUMS) and child is node.left
                waiting.append((child, depth if sums and isinstance(child, ast.BinOp) else depth + 1))

    def _check_call(self, node: ast.Call) -> None:
        named = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        method = isinstance(node.func, ast.Attribute) and node.func.attr in METHODS and not node.args
        if not (named or method) or node.keywords:
            self._refuse(node)

    def _refuse(self, node: ast.AST) -> None:
        raise FormulaError(
            f"{self.shown(node)} is not part of the language of formulations",
            hint=f"there are arithmetic, comparisons, indices, loops, {', '.join(FUNCTIONS)}, .items() and the like",
        )


def _tree(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:  # loops behind an expression are Python only inside brackets
        tree = ast.parse(f"({text}\n)", mode="eval").body
        if not isinstance(tree, ast.GeneratorExp):
            raise
        return tree


def _joined(text: str, position: int) -> bool:
    """Whether the characters before and at a position belong to one word."""
    return 0 < position < len(text) and bool(re.match(r"\w\w", text[position - 1 : position + 1]))


def _is_identifier(name: str) -> bool:
    # Python reads identifiers in their NFKC form: the micro sign becomes a Greek letter.
    return name.isidentifier() and not keyword.iskeyword(name) and unicodedata.normalize("NFKC", name) == name


def _excerpt(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:80]} … {text[-30:]}"

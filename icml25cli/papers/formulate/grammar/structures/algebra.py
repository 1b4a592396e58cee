"""Texts that hold the model as formulas already: ``maximise 3x + 4y subject to x + 2y <= 14``.

Knows formulas in a text. Does not know words, but those for directions and kinds of numbers.
"""

import re
from dataclasses import dataclass

from icml25cli.papers.formulate.grammar.structures.structure import REAL, WHOLE, Component, Structure
from icml25cli.papers.formulate.linear import Sense

_NUMBER = r"\d+(?:,\d{3})+(?:\.\d+)?|(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_SIGNS = {"=<": "<=", "≤": "<=", "=>": ">=", "≥": ">=", "=": "=="} | {
    sign: sign for sign in ("<=", ">=", "==", "<", ">")
}
_OPERATORS = {"\N{MINUS SIGN}": "-", "·": "*", "\N{MULTIPLICATION SIGN}": "*"} | {sign: sign for sign in "+-*/()"}
_TOKEN = re.compile(
    rf"(?P<number>{_NUMBER})|(?P<name>[A-Za-z]\w*)|"
    rf"(?P<sign>{'|'.join(map(re.escape, sorted([*_SIGNS, *_OPERATORS], key=len, reverse=True)))})|(?P<other>\S)"
)
_AIM = re.compile(r"(?P<min>min(?:imi[sz]e|imum)?)|(?P<max>max(?:imi[sz]e|imum)?)", re.I)
_SYMBOL = re.compile(r"[A-Za-z](?:_?\d+)?")
_SIGNED = re.compile(r"non-?\s?negative|not negative|positive|≥ ?0|>= ?0", re.I)
_FREE = re.compile(r"\b(\w+)(?: is| are)? (?:free|unrestricted)", re.I)
AHEAD = 8  # tokens between "maximise" and the formula


@dataclass(frozen=True)
class Token:
    text: str
    kind: str
    start: int
    end: int


def read(text: str) -> Structure | None:
    """The model in a text's formulas; None where it has none."""
    tokens = [Token(found.group(), str(found.lastgroup), found.start(), found.end()) for found in _TOKEN.finditer(text)]
    aim = _objective(tokens)
    if aim is None:
        return None
    sense, first, last = aim
    names = {token.text for token in tokens[first:last] if token.kind == "name"}
    equal: Component = {}
    other: Component = {}
    wording = {}
    used = {*range(first, last)}
    place = last
    while place < len(tokens):
        relation = _relation(tokens, place, last, names)
        if relation is None:
            break
        begin, end, said = relation
        for formula in said:
            if re.fullmatch(r"\w+ >= 0", formula):  # which declarations say
                continue
            title = f"row_{len(equal) + len(other) + 1}"
            (equal if "==" in formula else other)[title] = formula
            wording[title] = " ".join(text[tokens[begin].start : tokens[end - 1].end].split())
        used |= {*range(begin, end)}
        names |= {token.text for token in tokens[begin:end] if token.kind == "name" and _is_name(token, names)}
        place = end
    if not equal and not other:
        return None
    missing = tuple(
        token.text
        for i, token in enumerate(tokens)
        if token.kind == "number" and i not in used and token.text != "0" and not _is_title(tokens, i)
    )
    expression = written(tokens[first:last])
    return Structure(
        "formulas",
        {},
        _variables(text, sorted(names)),
        (({sense: expression}, 1.0),),
        ((equal, other, 1.0),),
        missing,
        wording,
        -0.2,
    )


def _is_title(tokens: list[Token], place: int) -> bool:
    """Whether a number counts texts: ``Exercise 3``."""
    titles = ("exercise", "problem", "question", "example", "task", "no", "section", "chapter", "part")
    return place > 0 and tokens[place - 1].text.lower() in titles


def _objective(tokens: list[Token]) -> tuple[Sense, int, int] | None:
    """Direction, and the formula that follows it: a sum of at least two terms, or a number times a symbol."""
    for i, token in enumerate(tokens):
        said = _AIM.fullmatch(token.text) if token.kind == "name" else None
        if said is None:
            continue
        for first in range(i + 1, min(i + AHEAD, len(tokens))):
            last = _end(tokens, first, None)
            body = tokens[first:last]
            names = [each for each in body if each.kind == "name"]
            joined = any(each.text in _OPERATORS for each in body[1:]) or (body[:1] and body[0].kind == "number")
            if names and joined and all(_SYMBOL.fullmatch(each.text) or len(names) > 1 for each in names):
                return ("min" if said["min"] else "max"), first, last
    return None


def _end(tokens: list[Token], first: int, names: set[str] | None) -> int:
    """Behind the formula that begins at ``first``: terms and operators in turn, a number before a symbol its factor."""
    i, wants = first, True  # a term
    opened: list[int] = []
    while i < len(tokens):
        token = tokens[i]
        operator = _OPERATORS.get(token.text)
        if token.kind == "number" and wants:
            wants = False
        elif token.kind == "name" and (names is None or _is_name(token, names)):
            factor = i > first and tokens[i - 1].kind == "number"
            if not wants and not factor:
                break
            wants = False
        elif operator == "(" and (wants or tokens[i - 1].kind == "number"):
            opened.append(i)
            wants = True
        elif operator == ")" and opened and not wants:
            opened.pop()
        elif (operator in ("+", "-") and (not wants or i == first or tokens[i - 1].text == "(")) or (
            operator in ("*", "/") and not wants
        ):
            wants = True
        else:
            break
        i += 1
    i = min([i, *opened])  # a bracket that is not closed belongs to the words around
    while i > first and tokens[i - 1].text in _OPERATORS and tokens[i - 1].text != ")":  # a dash behind a formula
        i -= 1
    return i


def _is_name(token: Token, names: set[str]) -> bool:
    return token.text in names or (bool(_SYMBOL.fullmatch(token.text)) and token.text not in ("a", "A", "I"))


def _relation(tokens: list[Token], place: int, floor: int, names: set[str]) -> tuple[int, int, list[str]] | None:
    """The next relation from ``place``: its first token, the one behind its last, and its formulas."""
    for i in range(place, len(tokens)):
        if tokens[i].text not in _SIGNS:
            continue
        begin = next((first for first in range(place, i) if _end(tokens, first, names) == i), None)
        if begin is None or begin < floor:
            continue
        sides, signs, end = [written(tokens[begin:i])], [], i
        while end < len(tokens) and tokens[end].text in _SIGNS:
            last = _end(tokens, end + 1, names)
            if last == end + 1:
                break
            signs.append(_SIGNS[tokens[end].text])
            sides.append(written(tokens[end + 1 : last]))
            end = last
        if not signs:
            continue
        links = zip(sides, signs, sides[1:], strict=False)
        said = [f"{left} {sign} {right}" for left, sign, right in links]
        first = begin
        while first >= place + 2 and tokens[first - 1].text in (",", "and") and tokens[first - 2].text in names:
            first -= 2  # x, y >= 2 is said of both
            said.insert(0, f"{tokens[first].text} {signs[0]} {sides[1]}")
        return first, end, said
    return None


def written(tokens: list[Token]) -> str:
    """A formula as the compiler reads it: with every multiplication said."""
    parts: list[str] = []
    for i, token in enumerate(tokens):
        before = tokens[i - 1] if i else None
        factor = before is not None and (before.kind == "number" or before.text == ")")
        if factor and (token.kind == "name" or token.text == "("):
            parts.append("*")
        parts.append(_OPERATORS.get(token.text) or token.text.replace(",", ""))
    return " ".join(parts).replace("( ", "(").replace(" )", ")")


def _variables(text: str, names: list[str]) -> tuple[tuple[Component, float], ...]:
    lower = text.lower()
    free = {found[1] for found in _FREE.finditer(text)}
    if re.search(r"\bbinary\b|\b0-1\b|\{0, ?1\}", lower):
        kinds = {"BINARY": 1.0}
    elif re.search(r"\bintegers?\b|\bwhole\b|\bintegral\b", lower):
        kinds = {WHOLE: 1.0}
    else:
        kinds = {REAL: 0.95, WHOLE: 0.05}
    signed = 1.0 if _SIGNED.search(text) or "BINARY" in kinds else 0.8
    found = []
    for kind, chance in kinds.items():
        for lower_bound, share in ((0, signed), (None, 1 - signed)):
            if share:
                declared = {
                    name: {"description": name, "type": kind, "lower": None if name in free else lower_bound}
                    for name in names
                }
                found.append((declared, chance * share))
    return tuple(found)

"""Texts that hold the model as formulas already: ``maximise 3x + 4y subject to x + 2y <= 14``.

Every mark behind the aim is either of a formula, says what variables are, or joins what stands around it. What is none
of these ("or", "unless", "drop the second") would change the model: it is named, and the reading is not relied on.
Knows formulas in a text. Does not know words, but those for directions, relations and kinds of numbers.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from icml25cli.papers.formulate.grammar.structures.declared import declared
from icml25cli.papers.formulate.grammar.structures.marks import OPERATORS, SIGNS, Token, tokens
from icml25cli.papers.formulate.grammar.structures.structure import Component, Structure
from icml25cli.papers.formulate.grammar.text import Problem
from icml25cli.papers.formulate.grammar.unread import unread
from icml25cli.papers.formulate.linear import Sense

_AIM = re.compile(r"(?P<min>min(?:imi[sz]e|imum)?)|(?P<max>max(?:imi[sz]e|imum)?)", re.I)
_SYMBOL = re.compile(r"[A-Za-z](?:_?\d+)?")
AHEAD = 8  # tokens between "maximise" and the formula
_JOINS = (
    "subject to such that s t st . , ; : where with under the following constraint constraints restriction "
    "restrictions condition conditions and & also but given for all both each variable variables number numbers are is "
    "be being that these this it its we you have as well so let here while which in"
)
_JOINING = {"\n", *_JOINS.split()}
_OPENS = (
    "find please solve what value values of want need function objective linear program lp problem model my our hello "
    "hi dear can could would like me help total z w f exercise question example task determine compute integer "
    "- = ( ) profit cost revenue obj goal"
)
_BEFORE = {*_JOINING, *_OPENS.split()}
_TITLES = ("exercise", "problem", "question", "example", "task", "no", "section", "chapter", "part")


@dataclass(frozen=True)
class _Relation:
    """A relation: its tokens from ``first`` to before ``last``, its formulas, and the names that it bounds alone."""

    first: int
    last: int
    said: list[str]
    names: list[str] = field(default_factory=list)
    at_zero: bool = False


def read(text: str) -> Structure | None:
    """The model in a text's formulas; None where it has none."""
    marks = tokens(text)
    aim = _objective(marks)
    if aim is None:
        return None
    sense, spoken, first, last = aim
    names = {token.text for token in marks[first:last] if token.kind == "name"}
    relations = []
    place = last
    while (relation := _relation(marks, place, last, names)) is not None:
        relations.append(relation)
        names |= {t.text for t in marks[relation.first : relation.last] if t.kind == "name" and _is_name(t, names)}
        place = relation.last
    equal: Component = {}
    other: Component = {}
    wording = {}
    for relation in relations:
        for formula in relation.said:
            if re.fullmatch(r"\w+ >= 0|0 <= \w+", formula):  # which declarations say
                continue
            title = f"row_{len(equal) + len(other) + 1}"
            (equal if "==" in formula else other)[title] = formula
            wording[title] = " ".join(text[marks[relation.first].start : marks[relation.last - 1].end].split())
    if not equal and not other:
        return None
    in_formulas = {*range(first, last), *(i for each in relations for i in range(each.first, each.last))}
    bounds = {each.first: (each.last, each.names, each.at_zero) for each in relations}
    kinds = declared(marks, in_formulas, bounds, names)
    negative = {found[1] or found[2] for row in other.values() if (found := _BELOW_ZERO.fullmatch(row))}
    return Structure(
        "formulas",
        {},
        kinds.variables(sorted(names), negative),
        (({sense: written(marks[first:last])}, 1.0),),
        ((equal, other, 1.0),),
        wording=wording,
        unread=_left(text, marks, spoken, in_formulas | kinds.used | _defining(text, marks), names),
        sure=-0.2,
    )


_DEFINED = re.compile(
    r"\b[A-Za-z]\w? (?:(?:is|are|be|denotes?|means?|represents?|stands? for|counts?) )?(?:the )?"
    r"(?:numbers?|amounts?|quantit(?:y|ies)|units?|tons?|tonnes|kg|litres?|liters?|hours?|acres?|how (?:many|much))\b"
    r"(?: (?!and [A-Za-z]\w? |subject|such that|not|only|at|no|or|more|less)[A-Za-z-]+)*",
    re.I,
)
_BELOW_ZERO = re.compile(r"(\w+) [<>]=? - ?[\d.]+|- ?[\d.]+ [<>]=? (\w+)")


def _left(text: str, marks: Sequence[Token], spoken: int, used: set[int], names: set[str]) -> tuple[str, ...]:
    """Rows of which a mark is neither in a formula nor joins any, and sentences without formulas that say something."""
    found = []
    for first, last in _rows(marks):
        said = " ".join(text[marks[first].start : marks[last - 1].end].split())
        row = marks[first:last]
        if not used & {*range(first, last)}:
            found += _without_formulas(said, row, names if first > spoken else set())
            continue
        allowed = _BEFORE if spoken >= first else _JOINING
        for place in range(first, last):
            token, known = marks[place], place in used or marks[place].text.lower() in allowed
            if known or place == spoken or _is_label(marks, place, first, last) or _is_title(marks, place):
                continue
            is_named = token.text in names or (place < spoken and _SYMBOL.fullmatch(token.text))
            starts = place > 0 and marks[place - 1].kind == "name" and token.text == "if"
            if not (is_named and place < spoken) and not starts and not _gives(marks, place, used):
                found.append(said)
                break
    return tuple(found)


def _without_formulas(said: str, row: Sequence[Token], names: Collection[str]) -> tuple[str, ...]:
    """A sentence that has no formula, where it says something: with a variable in it, that may be anything."""
    if any(token.text in names and token.text.lower() not in ("a", "i") for token in row):
        return (said,)
    return unread(Problem(re.sub(rf"\b(?:{'|'.join(_TITLES)}) \d+", " ", said, flags=re.I)), ())


def _defining(text: str, marks: Sequence[Token]) -> set[int]:
    """Places of what says what variables stand for: ``where x is the number of chairs``."""
    spans = [(found.start(), found.end()) for found in _DEFINED.finditer(text)]
    return {i for i, token in enumerate(marks) if any(a <= token.start and token.end <= b for a, b in spans)}


def _rows(marks: Sequence[Token]) -> list[tuple[int, int]]:
    """Lines and sentences, as the places of their first token and behind their last."""
    cuts = [-1]
    for i, token in enumerate(marks):
        before = marks[i - 1].text.lower() if i else ""
        after = marks[i + 1].text if i + 1 < len(marks) else ""
        numbered = i > 0 and marks[i - 1].kind == "number" and (i == 1 or marks[i - 2].kind == "line")  # "2. x <= 4"
        full = token.text in (".", "?", "!") and not numbered and before not in ("s", "t", "st") and after not in SIGNS
        if token.kind == "line" or token.text == ";" or full:
            cuts.append(i)
    cuts.append(len(marks))
    return [(a + 1, b) for a, b in pairwise(cuts) if b > a + 1]


def _is_label(marks: Sequence[Token], place: int, first: int, last: int) -> bool:
    """Whether a mark is of a label, such as ``(1)``, ``c1:`` or ``Labour hours:``."""
    token = marks[place]
    around = [mark.text for mark in marks[max(first, place - 1) : place + 2]]
    if token.kind in ("number", "name") and len(around) == 3 and around[0] in "([" and around[2] in ")]":
        return True
    if token.text in "([" and [mark.text for mark in marks[place + 2 : place + 3]] in ([")"], ["]"]):
        return marks[place + 1].kind in ("number", "name")
    if token.text in ")]" and place >= 2 and marks[place - 2].text in "([":
        return True
    if token.text in ".)" and place == first + 1 and marks[first].kind in ("number", "name"):
        return True
    if token.kind == "number" and place == first and [m.text for m in marks[place + 1 : place + 2]] in ([")"], ["."]):
        return True
    colon = next((i for i in range(place, min(place + 4, last)) if marks[i].text == ":"), None)
    return colon is not None and all(marks[i].kind in ("name", "number") for i in range(place, colon))


def _is_title(marks: Sequence[Token], place: int) -> bool:
    """Whether a number counts texts: ``Exercise 3``."""
    before = marks[place - 1].text.lower() if place else ""
    return marks[place].text.lower() in _TITLES or (marks[place].kind == "number" and before in _TITLES)


def _gives(marks: Sequence[Token], place: int, used: set[int]) -> bool:
    """Whether "if" stands for "given that", or "or more" behind a number that is read so."""
    said = marks[place].text.lower()
    if said == "if":
        return place - 1 in used and place + 1 in used and not any(mark.text.lower() == "then" for mark in marks)
    return said.startswith("or ") and place - 1 in used and place > 1 and marks[place - 2].text in SIGNS


def _objective(marks: Sequence[Token]) -> tuple[Sense, int, int, int] | None:
    """Direction, where it is said, and the formula that follows: a sum of two terms, or a number times a symbol."""
    for i, token in enumerate(marks):
        said = _AIM.fullmatch(token.text) if token.kind == "name" else None
        if said is None:
            continue
        for first in range(i + 1, min(i + AHEAD, len(marks))):
            if marks[first].kind == "name" and _AIM.fullmatch(marks[first].text):
                break
            last = _end(marks, first, None)
            body = marks[first:last]
            names = [each for each in body if each.kind == "name"]
            joined = any(each.text in OPERATORS for each in body[1:]) or (body[:1] and body[0].kind == "number")
            if names and joined and all(_SYMBOL.fullmatch(each.text) or len(names) > 1 for each in names):
                return ("min" if said["min"] else "max"), i, first, last
    return None


def _end(marks: Sequence[Token], first: int, names: set[str] | None) -> int:
    """Behind the formula that begins at ``first``: terms and operators in turn, a number before a symbol its factor."""
    i, wants = first, True  # a term
    opened: list[int] = []
    while i < len(marks):
        token = marks[i]
        operator = OPERATORS.get(token.text)
        if token.kind == "number" and wants:
            wants = False
        elif token.kind == "name" and (names is None or _is_name(token, names)):
            factor = i > first and (marks[i - 1].kind == "number" or marks[i - 1].text == ")")
            if not wants and not factor:
                break
            wants = False
        elif operator == "(" and (wants or marks[i - 1].kind == "number") and not _ends_row(marks, i):
            opened.append(i)
            wants = True
        elif operator == ")" and opened and not wants:
            opened.pop()
        elif (operator in ("+", "-") and (not wants or i == first or marks[i - 1].text == "(")) or (
            operator in ("*", "/") and not wants
        ):
            wants = True
        else:
            break
        i += 1
    i = min([i, *opened])  # a bracket that is not closed belongs to the words around
    while i > first and marks[i - 1].text in OPERATORS and marks[i - 1].text != ")":  # a dash behind a formula
        i -= 1
    return i


def _ends_row(marks: Sequence[Token], place: int) -> bool:
    """Whether a bracket holds the number of its row, which ends behind it: ``x + y <= 10  (3)``."""
    inside = [mark.kind for mark in marks[place + 1 : place + 2]] == ["number"]
    closed = [mark.text for mark in marks[place + 2 : place + 3]] == [")"]
    return inside and closed and (place + 3 == len(marks) or marks[place + 3].text in ("\n", ";", ",", "."))


def _is_name(token: Token, names: set[str]) -> bool:
    return token.text in names or (bool(_SYMBOL.fullmatch(token.text)) and token.text not in ("a", "A", "I"))


def _relation(marks: Sequence[Token], place: int, floor: int, names: set[str]) -> _Relation | None:
    """The next relation from ``place``."""
    for i in range(place, len(marks)):
        if marks[i].text not in SIGNS:
            continue
        begin = next((first for first in range(place, i) if _end(marks, first, names) == i), None)
        if begin is None or begin < floor:
            continue
        if marks[begin].text == "(" and marks[begin + 2].text == ")" and marks[begin + 1].kind == "number":
            begin += 3  # the number of a row
        sides, signs, end = [written(marks[begin:i])], [], i
        while end < len(marks) and marks[end].text in SIGNS:
            last = _end(marks, end + 1, names)
            if last == end + 1:
                break
            signs.append(SIGNS[marks[end].text])
            sides.append(written(marks[end + 1 : last]))
            end = last
        if not signs or begin >= i:
            continue
        links = zip(sides, signs, sides[1:], strict=False)
        said = [f"{left} {sign} {right}" for left, sign, right in links]
        bounded = [side for side in sides if side in names]
        first = begin
        while first >= place + 2 and marks[first - 1].text in (",", "and") and marks[first - 2].text in names:
            first -= 2  # x, y >= 2 is said of both
            said.insert(0, f"{marks[first].text} {signs[0]} {sides[1]}")
            bounded.append(marks[first].text)
        return _Relation(first, end, said, bounded, any(re.fullmatch(r"\w+ >= 0|0 <= \w+", each) for each in said))
    return None


def written(marks: Sequence[Token]) -> str:
    """A formula as the compiler reads it: with every multiplication said."""
    parts: list[str] = []
    for i, token in enumerate(marks):
        before = marks[i - 1] if i else None
        factor = before is not None and (before.kind == "number" or before.text == ")")
        if factor and (token.kind == "name" or token.text == "("):
            parts.append("*")
        parts.append(OPERATORS.get(token.text) or token.text.replace(",", ""))
    return " ".join(parts).replace("( ", "(").replace(" )", ")")

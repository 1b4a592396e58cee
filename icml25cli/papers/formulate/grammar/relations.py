"""Relations of two variables with numbers of their own: ``one adult for every 4 children``, ``3 more vans than cars``.

    per      so many of one for so many of the other
    excess   one more than the other by a number

A sentence is written out with its numbers and variables as marks, and patterns are sought in that. Knows a text and its
variables. Does not know the table of facts.
"""

import re
from collections.abc import Sequence

from icml25cli.papers.formulate.grammar.lexicon import NEEDED
from icml25cli.papers.formulate.grammar.limits import Kind, Limit, Side, nearest
from icml25cli.papers.formulate.grammar.mentions import Mention
from icml25cli.papers.formulate.grammar.numbers import Quantity
from icml25cli.papers.formulate.grammar.text import Problem

SAID, MEANT, GUESSED = 0.95, 0.8, 0.6  # how sure a direction is: in words, by "must" or "may", by nothing
_ONE = r"(?P<one><\d+@\d+>)"
_OTHER = r"(?P<other><\d+@\d+>)"
_OF = r"(?:\w+ of )?(?:the )?(?:\w+ )?"  # litres of the
_COUNT = r"(?:#(?P<count>\d+)|\bone|\ban?|\ba single)"
_BASE = r"(?:#(?P<base>\d+) |one |an? |single )?"
_ON = r"(?:(?:for|to|with|on|by|behind|beside|alongside) (?:every|each)|per)"
_WORD = r"(?:(?!(?:and|or|while|but)\b)\w+ )"
_LIMITED = re.compile(
    r"\b(?:at least|at most|more than|less than|fewer than|only|just|up to|exactly|minimum|maximum)\b|"
    r"\b(?:must|has to|have to|needs to|can|may|should)(?: \w+)? (?:be|have)\b"
)
_PATTERNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    # at least one adult must go for every four children; one adult to four children
    ("per", re.compile(rf"{_COUNT} {_OF}{_ONE} {_WORD}{{0,5}}?(?:{_ON}|(?:for|to)(?= #)) {_BASE}{_OF}{_OTHER}")),
    # for every four children there must be one adult
    ("per", re.compile(rf"\b{_ON} {_BASE}{_OF}{_OTHER} ,? ?{_WORD}{{0,8}}?{_COUNT} {_OF}{_ONE}")),
    # every four children must be led by at least one adult
    ("per", re.compile(rf"\b(?:every|each) {_BASE}{_OTHER} (?P<said>{_WORD}{{1,10}}?){_COUNT} {_OF}{_ONE}")),
    ("per", re.compile(rf"\bratio of {_OF}{_ONE} (?:to|and) {_OF}{_OTHER} (?:\w+ ){{0,7}}?{_COUNT} (?:to|:) {_BASE}")),
    (
        "excess",
        re.compile(rf"{_ONE} (?:\w+ ){{0,4}}?(?:outnumber|exceed)s? {_OF}{_OTHER} by (?:\w+ ){{0,4}}?#(?P<count>\d+)"),
    ),
    ("excess", re.compile(rf"#(?P<count>\d+) more {_OF}{_ONE} (?:\w+ ){{0,4}}?than {_OF}{_OTHER}")),
)
_BEHIND = re.compile(
    r" ?(?:\w+ ){0,3}?(?P<least>at least|or more|at a minimum)|^ ?(?:\w+ ){0,3}?(?:at most|or (?:fewer|less))"
)
_ALLOWED = re.compile(r"\b(?:may|can|could|allowed|permitted|only|just)\b")


def relations(problem: Problem, mentions: Sequence[Mention]) -> list[list[Limit]]:
    """For every relation its candidates, the likeliest first; a number belongs to one of them at most."""
    found = []
    taken: set[Quantity] = set()
    for begin, end in problem.sentences:
        said = _marked(problem, mentions, begin, end)
        for kind, pattern in _PATTERNS:
            for match in pattern.finditer(said):
                made = _candidates(problem, kind, match)
                numbers = {number for number in (made[0].quantity, made[0].base) if number} if made else set()
                if made and not numbers & taken:
                    found.append(made)
                    taken |= numbers
    return found


def _marked(problem: Problem, mentions: Sequence[Mention], begin: int, end: int) -> str:
    """Words in small letters; ``#3`` is the fourth number and ``<1@20>`` the second variable, named at word 20."""
    marks = {m.first: (f"<{m.which}@{m.first}>", m.last) for m in mentions}
    marks |= {q.first: (f"#{number}", q.last) for number, q in enumerate(problem.quantities)}
    said, place = [], begin
    while place < end:
        word, place = marks.get(place, (problem.lower[place], place + 1))
        said.append(word)
    return " ".join([*said, ""])


def _candidates(problem: Problem, kind: Kind, match: re.Match[str]) -> list[Limit]:
    groups = match.groupdict()
    (one, place), (other, _) = (map(int, groups[name][1:-1].split("@")) for name in ("one", "other"))
    count, base = (
        problem.quantities[int(groups[name])] if groups.get(name) is not None else None for name in ("count", "base")
    )
    if one == other or any(number is not None and number.kind != "plain" for number in (count, base)):
        return []
    if groups.get("said") and not _LIMITED.search(groups["said"] + _behind(match)):
        return []  # each van needs 2 drivers: a fact
    side, sure = _direction(match)

    def limit(way: Side, score: float) -> Limit:
        return Limit(kind, way, score, count, None, (one, other), place, base)

    opposite: Side = "<=" if side == ">=" else ">="
    made = [limit(side, 5.0), limit(opposite, 2.5 - 3 * (sure - GUESSED))]
    return made if sure == SAID else [*made, limit("==", 3.0)]


def _behind(match: re.Match[str]) -> str:
    """What is said behind a relation, up to the next mark, number or name."""
    return re.split(r"[,;:.?!#<]", match.string[match.end() :])[0]


def _direction(match: re.Match[str]) -> tuple[Side, float]:
    """Which way the count limits the variable that it counts."""
    text = match.string
    numbered = match.start("count") if match["count"] is not None else match.start("one")
    own = re.split(r"[,;:]|#\d+|<[^>]*>", text[:numbered])[-1]
    told = nearest(own)
    if told is not None:
        return told, SAID
    tail = _behind(match)
    behind = _BEHIND.match(tail)
    if behind:
        return (">=" if behind["least"] else "<="), SAID
    around = f"{own} {match.group()} {tail}"
    if NEEDED.search(around):
        return ">=", MEANT
    return ("<=", MEANT) if _ALLOWED.search(around) else (">=", GUESSED)

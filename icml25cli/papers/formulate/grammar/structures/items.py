"""Things described alike, one after another: ``the tent weighs 7 kg and is worth 9, the stove weighs 4 kg ...``.

Reads what is chosen among such things as a whole (each is taken or left) and what is blended of them (averages are
limited). Knows parallel descriptions. Does not know problems of amounts, which the grammar reads.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from icml25cli.papers.formulate.grammar.lexicon import NOTHING, root
from icml25cli.papers.formulate.grammar.limits import Side, direction, two_ways
from icml25cli.papers.formulate.grammar.numbers import Quantity, quantities
from icml25cli.papers.formulate.grammar.structures.forms import Product, blend, choice
from icml25cli.papers.formulate.grammar.structures.structure import Structure, Unreadable
from icml25cli.papers.formulate.grammar.structures.tabled import sense_of
from icml25cli.papers.formulate.grammar.tagger import stem
from icml25cli.papers.formulate.grammar.text import Problem
from icml25cli.papers.formulate.grammar.unread import unread

_TAKEN = re.compile(
    r"\b(?:which|what) (?:\w+ ){1,3}(?:do|should|shall|will|to|are|must|can)\b|\bknapsack\b|\b(?:back|ruck)pack\b|"
    r"\bchoose (?:among|which|from|between)\b|\bselect(?:ed)? (?:which|from|among)\b|\bfund(?:ed)?\b|\btake or leave\b",
    re.I,
)
_AMOUNTS = re.compile(r"\bhow (?:many|much)\b|\bnumber of each\b|\bamount of each\b", re.I)
_BLENDED = re.compile(r"\bblend|\bmix(?:ed|ture|es|ing)?\b|\balloy|\bon average\b|\baverage\b", re.I)
_AVERAGED = re.compile(r"\baverage\b|\brating\b|\bgrade\b|\bconcentration\b|\bper cent\b")
_WORTH = re.compile(r"worth|valu|profit|benefit|return|gain|\$|score|point|revenue|sell", re.I)
_ONCE = re.compile(
    r"\b(?:each|every|any|all|no)\b[^.,;]{0,40}\b(?:(?:at most|only|just|more than) once|once|one of each)\b|"
    r"\b(?:either )?(?:taken? or (?:left|leave)|left or taken)\b|\b(?:cannot|can not|can't) be (?:split|divided|cut)\b",
    re.I,
)
_HOLDS = re.compile(
    r"\b(?:carry|carries|holds?|capacity|at most|up to|no more than|budget|spend|limit|fits?|room for|have|has|maximum|"
    r"take|lift|stand|bear|available)\b",
    re.I,
)
_VERBS = {"ha", "has", "have", "is", "are", "contain", "weigh", "cost", "take", "need", "bring", "earn", "hold", "give"}
_MOST = 4  # numbers of a thing


@dataclass(frozen=True)
class Described:
    """Things by their numbers, and the numbers that are not of any of them."""

    names: tuple[str, ...]
    attributes: tuple[str, ...]
    numbers: tuple[tuple[Quantity, ...], ...]
    others: tuple[Quantity, ...]

    @property
    def products(self) -> list[Product]:
        rows = zip(self.names, self.numbers, strict=True)
        return [Product(name, {a: q.value for a, q in zip(self.attributes, row, strict=True)}) for name, row in rows]


def read(problem: Problem) -> Structure | None:
    """The model of a text that describes things alike; None where it is of another kind."""
    described = _described(problem)
    if described is None:
        return None
    return _choice(problem, described) or _blend(problem, described)


def _described(problem: Problem) -> Described | None:
    """The longest run of numbers that are called alike in turn."""
    found = quantities(problem.words)
    signs = [_sign(problem, quantity) for quantity in found]
    best: tuple[int, int, int] | None = None
    for first in range(len(found)):
        for period in range(2, _MOST + 1):
            pattern = signs[first : first + period]
            times = 1
            while signs[first + times * period : first + (times + 1) * period] == pattern:
                times += 1
            whole = len(set(pattern)) == period and "" not in pattern
            if whole and times > 1 and (best is None or times * period > best[1] * best[2]):
                best = first, period, times
    if best is None:
        return None
    first, period, times = best
    rows = [found[first + k * period : first + (k + 1) * period] for k in range(times)]
    names = _names(problem, rows, found[first - 1].last if first else 0)
    if names is None:
        return None
    others = [*found[:first], *found[first + period * times :]]
    return Described(tuple(names), tuple(signs[first : first + period]), tuple(map(tuple, rows)), tuple(others))


def _sign(problem: Problem, quantity: Quantity) -> str:
    """What a number is called: its unit, else the last telling word before it."""
    unit = problem.unit(quantity)
    if unit and unit not in NOTHING:
        return unit
    begin, _ = problem.sentence_of(quantity.first)
    before = [root(word) for word in problem.lower[max(begin, quantity.first - 3) : quantity.first]]
    telling = [word for word in before if word.isalpha() and word not in NOTHING and word not in _VERBS]
    return telling[-1] if telling else ""


def _names(problem: Problem, rows: Sequence[Sequence[Quantity]], behind: int) -> list[str] | None:
    """What stands before the first number of each thing and before none of the others."""
    heads = []
    for row in rows:
        begin, _ = problem.sentence_of(row[0].first)
        start = max(begin, behind)
        words = problem.words[start : row[0].first]
        cuts = [i for i, word in enumerate(words) if word.lower() in (",", ";", ":", "while", "and", ".")]
        words = words[cuts[-1] + 1 :] if cuts else words
        heads.append([word for word in words if word[0].isalnum()])
        behind = row[-1].last
    names = []
    for i, head in enumerate(heads):
        others = {stem(word) for j, other in enumerate(heads) if j != i for word in other}
        own = [place for place, word in enumerate(head) if stem(word) not in others and word.lower() not in NOTHING]
        own = [place for place in own if root(head[place]) not in _VERBS]
        if not own:
            return None
        name = [head[place] for place in own]
        after = head[own[-1] + 1 : own[-1] + 2]
        if after and root(after[0]) not in _VERBS | NOTHING and len(head) > own[-1] + 2:
            name.append(after[0])
        names.append(" ".join(name))
    return names if len({*names}) == len(names) else None


def _choice(problem: Problem, described: Described) -> Structure | None:
    """Each thing is taken or left."""
    if not _TAKEN.search(problem.text) or _AMOUNTS.search(problem.text):
        return None
    worth = [a for a in described.attributes if _WORTH.search(a)]
    limited = _limited(problem, described)
    free = [a for a in described.attributes if a not in {a for a, _ in limited}]
    aims = [a for a in worth if a in free] or free
    if len(aims) != 1 or not limited or len(described.names) < 3:
        return None
    limits = [(a, _side(problem, q), q.value) for a, q in limited]
    made = choice(described.products, limits, (sense_of(problem.text) or "max", aims[0]))
    return replace(made, unread=_unread(problem, described, [q for _, q in limited], _ONCE))


def _limited(problem: Problem, described: Described) -> list[tuple[str, Quantity]]:
    """One limit an attribute: a second number of it, or one that nothing holds, is not for this model."""
    found: dict[str, Quantity] = {}
    for quantity in described.others:
        sign = _sign(problem, quantity)
        said = problem.shown(*problem.sentence_of(quantity.first))
        if sign in described.attributes and sign not in found and _HOLDS.search(said):
            found[sign] = quantity
    return [*found.items()]


def _blend(problem: Problem, described: Described) -> Structure | None:
    """Amounts of things are mixed: what is said of the mixture is an average, a number of their unit its amount."""
    if not _BLENDED.search(problem.text):
        return None
    costs = [a for a in described.attributes if a == "$"]
    rates = [a for a in described.attributes if a != "$"]
    averages: list[tuple[str, Side, Fraction]] = []
    totals: list[tuple[str, Side, Fraction]] = []
    used = []
    for quantity in described.others:
        begin, _ = problem.sentence_of(quantity.first)
        start = max([begin, *(q.last for q in described.others if q.last <= quantity.first)])
        around = {root(word) for word in problem.lower[start : quantity.first]} | {_sign(problem, quantity)}
        named = [a for a in rates if a in around]
        _, end = problem.sentence_of(quantity.first)
        averaged = quantity.kind == "share" or _AVERAGED.search(" ".join(problem.lower[begin:end]))
        of_other = problem.lower[quantity.last : quantity.last + 1] == ["of"]  # a quarter of the heavy one
        if len(named) == 1 and averaged and not of_other and quantity.kind != "money":
            averages.append((named[0], _side(problem, quantity), quantity.value))
            used.append(quantity)
        elif quantity.kind == "plain" and quantity.value != len(described.names):
            totals.append(("total", ">=" if _side(problem, quantity) != "<=" else "<=", quantity.value))
            used.append(quantity)
    if len(costs) != 1 or not averages or len(totals) != 1:
        return None
    made = blend(described.products, averages, totals[0][2], costs[0])
    return replace(made, unread=_unread(problem, described, used))


def _side(problem: Problem, quantity: Quantity) -> Side:
    begin, _ = problem.sentence_of(quantity.first)
    if reason := two_ways(problem, [quantity]):
        raise Unreadable(reason)
    return direction(problem, quantity, begin)[0]


def _unread(
    problem: Problem, described: Described, limits: Sequence[Quantity], known: re.Pattern[str] | None = None
) -> tuple[str, ...]:
    used = {quantity.first for quantity in (*limits, *(q for row in described.numbers for q in row))}
    return unread(problem, used, [described.names], (len(described.names),), known)

"""Typed candidates for every limit of a text, from a closed catalogue: what may be bounded by a number, and how.

    linear   a row of the table of facts, summed, is bounded
    bound    one variable, or each of them
    sum      all variables together
    ratio    one variable is bounded by a share of all
    factor   one variable is bounded by a multiple of another
    order    one variable is bounded by another
    per      one variable is bounded by so many for so many of another
    excess   one variable is bounded by another and a number

Knows a text, variables and the table. Does not know probabilities of whole models.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from icml25cli.papers.formulate.grammar.facts import Attribute, Bag, rarities, similarity
from icml25cli.papers.formulate.grammar.lexicon import (
    AT_LEAST,
    AT_MOST,
    BREAKS,
    BULK,
    EXACTLY,
    HAD,
    NEEDED,
    NOTHING,
    ONLY_NEEDED,
    SCARCE,
    SCARCE_BEHIND,
    STOCK,
    root,
)
from icml25cli.papers.formulate.grammar.mentions import Mention
from icml25cli.papers.formulate.grammar.numbers import Quantity
from icml25cli.papers.formulate.grammar.tagger import stem
from icml25cli.papers.formulate.grammar.text import Problem

Kind = Literal["linear", "bound", "sum", "ratio", "factor", "order", "per", "excess"]
Side = Literal["<=", ">=", "=="]
UNCLEAR = 0.5
_APART = 12  # letters between words that are not about the same number
_CLAUSE_START = re.compile(r"[,;:]|\b(?:and|but|while|whereas|since|because|as|with|though|although)\b")
_MEANS = re.compile(r"\b(?:with|using|by|from|in|on)(?: (?:the|our|its|their|his|her|a total of))*$")
_WANTED = re.compile(  # 120 pupils have signed up
    r"(?:\W*\w+){1,3}? (?:signed up|booked|enrolled|registered|turned up|ordered|on order|called for|turn up)\b"
)
_ENDS = {",", ";", ".", ":", "and"}
_ALL = {"total", "combined", "altogether", "either", "combination", "any", "overall", "together"}


@dataclass(frozen=True)
class Limit:
    """A candidate: what is bounded, by what, and how much speaks for it (a logarithm)."""

    kind: Kind
    side: Side
    score: float
    quantity: Quantity | None = None
    row: int | None = None  # of the table
    which: tuple[int, ...] = ()  # variables: the bounded ones; for factor, order, per and excess the two
    place: int = 0  # of a word that says it, where no number does
    base: Quantity | None = None  # for per: how many of the second there are


def direction(problem: Problem, quantity: Quantity, begin: int) -> tuple[Side, float]:
    """Which way a number limits, and how sure that is: words said for it, else what is needed and what there is.

    UNCLEAR is how sure it is where the words speak for both ways.
    """
    first, end = problem.sentence_of(quantity.first)
    earlier = [q.last for q in problem.quantities if first <= q.first < quantity.first]
    own_start = max([begin, *earlier[-1:]])
    own = " ".join(problem.lower[own_start : quantity.first])
    following: list[str] = []
    for word in problem.lower[quantity.last : end]:
        if any(q.first == quantity.last + len(following) for q in problem.quantities):
            break
        following.append(word)
    after = " ".join(following)
    told = nearest(own)
    scarce = _scarce(own, after)
    if scarce is not None and told in (None, ">="):
        place, needed = scarce
        least = max((match.end() for match in AT_LEAST.finditer(own)), default=-1)
        if told is not None and len(own) - least < 2:  # at least 12 of the available ones
            return told, 0.95
        if needed or (told is not None and place - least < _APART):  # only 12 are required
            return "<=", UNCLEAR
        return "<=", 0.95
    if told is not None:
        return told, 0.95
    behind = re.match(r"(?:\W*\w+){0,3}?\W*(or more|or less|at most|at least)\b", after)
    if behind:
        return (">=" if behind.group(1) in ("or more", "at least") else "<="), 0.9
    if _WANTED.match(after):
        return ">=", 0.8
    whole = " ".join(problem.lower[first : quantity.first])
    weak = _weak(own)
    if weak is not None and not earlier:
        return weak, 0.8
    told = nearest(whole)
    if earlier and weak == "<=" and STOCK.search(_CLAUSE_START.split(own)[-1]):  # ... but we have 12 of them
        return weak, 0.8
    if told == ">=" and weak is None and _MEANS.search(own):  # at least 70 with 12 drivers
        return "<=", UNCLEAR
    if told is not None and (weak is None or len(own.split()) < 6):
        return told, 0.8
    if weak is not None:
        return weak, 0.75
    told = _weak(after) or _weak(whole)
    return (told, 0.7) if told else ("<=", 0.6)


def two_ways(problem: Problem, limits: Sequence[Quantity]) -> str | None:
    """Why the direction of a limit is not known: "only 12 drivers are needed" may be a least or a most."""
    for quantity in limits:
        begin, _ = problem.sentence_of(quantity.first)
        if direction(problem, quantity, begin)[1] == UNCLEAR:
            return f'"{problem.clause(quantity.first)}" may be a least or a most: say "at least" or "at most"'
    return None


def _scarce(own: str, after: str) -> tuple[int, bool] | None:
    """Where the words before a number end that say there is no more (-1: behind it), and whether it is needed, too."""
    needed = bool(re.match(r"(?:\W*\w+){0,3}?\W*\b(?:needed|required|demanded|wanted)\b", after))
    found = [match.end() for match in SCARCE.finditer(own)]
    if found:
        return found[-1], needed or bool(ONLY_NEEDED.search(own))
    if SCARCE_BEHIND.match(after):
        return -1, needed
    return None


def nearest(said: str) -> Side | None:
    """The direction said last."""
    found: list[tuple[int, int, Side]] = []
    patterns: tuple[tuple[re.Pattern[str], Side], ...] = ((AT_LEAST, ">="), (AT_MOST, "<="), (EXACTLY, "=="))
    for pattern, side in patterns:
        for match in pattern.finditer(said):
            found.append((match.end(), match.end() - match.start(), side))
    return max(found)[2] if found else None


def _weak(said: str) -> Side | None:
    needed = max((match.end() for match in NEEDED.finditer(said)), default=-1)
    had = max((match.end() for match in HAD.finditer(said)), default=-1)
    if needed == had == -1:
        return None
    return ">=" if needed >= had else "<="


def candidates(
    problem: Problem,
    quantity: Quantity,
    mentions: Sequence[Mention],
    rows: Sequence[Attribute],
    names: Sequence[tuple[str, ...]],
    taken: frozenset[int],
) -> list[Limit]:
    """Readings of one number as a limit, in no order."""
    first, end = problem.sentence_of(quantity.first)
    side, sure = direction(problem, quantity, first)
    others: dict[Side, Side] = {"<=": ">=", ">=": "<=", "==": "<="}
    here = [m for m in mentions if first <= m.first < end]
    following = [m for m in here if m.first >= quantity.last]
    previous = [m for m in here if m.last <= quantity.first]
    if quantity.kind == "factor":
        return _factors(problem, quantity, side, previous, following)
    if quantity.kind == "share":
        made = _shares(problem, quantity, side, previous, following)
    else:
        made = _plain(problem, quantity, side, here, rows, names, taken)
    flipped = [
        Limit(each.kind, others[each.side], each.score - 2.5 - 3 * (sure - 0.6), each.quantity, each.row, each.which)
        for each in made
    ]
    return [*made, *flipped]


def _factors(
    problem: Problem, quantity: Quantity, side: Side, previous: Sequence[Mention], following: Sequence[Mention]
) -> list[Limit]:
    """``twice as many A as B``, ``A at least twice B``."""
    begin, _ = problem.sentence_of(quantity.first)
    said = " ".join(problem.lower[begin : quantity.first])
    told = nearest(said)
    way: Side = told or ">="
    made = []
    pair = _two(following)
    if pair:
        made.append(Limit("factor", way, 4.0, quantity, None, pair))
        made.append(Limit("factor", way, 1.0, quantity, None, pair[::-1]))
    if previous and following and previous[-1].which != following[0].which:
        between = problem.lower[quantity.last : following[0].first]
        as_many = bool(pair) and bool(set(between) & {"many", "much", "more"} or _is_compared(problem, following))
        strong = not as_many
        made.append(
            Limit("factor", way, 5.0 if strong else 2.0, quantity, None, (previous[-1].which, following[0].which))
        )
    if previous and following and pair is None and previous[-1].which == following[0].which:
        other = [m for m in previous if m.which != following[0].which]
        if other:
            made.append(Limit("factor", way, 2.0, quantity, None, (following[0].which, other[-1].which)))
    return made


def _is_compared(problem: Problem, following: Sequence[Mention]) -> bool:
    """Whether the next two names are set against each other: ``times the amount of A as B``."""
    second = next((m for m in following if m.which != following[0].which), None)
    if second is None:
        return False
    between = problem.lower[following[0].last : second.first]
    return len(between) <= 4 and bool({"as", "than"} & set(between))


def _two(mentions: Sequence[Mention]) -> tuple[int, int] | None:
    """The first two different variables that are named."""
    for mention in mentions[1:]:
        if mention.which != mentions[0].which:
            return mentions[0].which, mention.which
    return None


def _shares(
    problem: Problem, quantity: Quantity, side: Side, previous: Sequence[Mention], following: Sequence[Mention]
) -> list[Limit]:
    made: list[Limit] = []
    if following:
        gap = problem.lower[quantity.last : following[0].first]
        if (
            quantity.value < 1
            and previous
            and set(gap) <= {"of", "the", "number", "amount", "to", "as", "many", "much", "quantity"}
            and previous[-1].which != following[0].which
        ):
            made.append(Limit("factor", side, 5.0, quantity, None, (previous[-1].which, following[0].which)))
            made.append(Limit("ratio", side, 3.0, quantity, None, (previous[-1].which,)))
        made.append(Limit("ratio", side, 4.5 - 0.05 * len(gap), quantity, None, (following[0].which,)))
    if previous:
        gap = problem.lower[previous[-1].last : quantity.first]
        made.append(Limit("ratio", side, 3.8 - 0.1 * len(gap), quantity, None, (previous[-1].which,)))
    return made


def _plain(
    problem: Problem,
    quantity: Quantity,
    side: Side,
    here: Sequence[Mention],
    rows: Sequence[Attribute],
    names: Sequence[tuple[str, ...]],
    taken: frozenset[int],
) -> list[Limit]:
    made: list[Limit] = []
    everyone = tuple(range(len(names)))
    _, end = problem.sentence_of(quantity.first)
    right = problem.right(quantity)
    following = [m for m in here if m.first >= quantity.last]
    previous = [m for m in here if m.last <= quantity.first]
    after = [q for q in problem.quantities if quantity.last <= q.first < end]
    near = following[0] if following else None
    bag = problem.around(quantity, taken)
    # a row of the table
    bags: list[Bag] = [*(row.bag for row in rows), bag]
    rarity = rarities(bags)
    unit = problem.unit(quantity)
    for position, row in enumerate(rows):
        alike = similarity(bag, row.bag, rarity)
        score = 4.5 * alike
        if quantity.kind == "money" or row.unit == "$":
            score += 1.0 if quantity.kind == "money" and row.unit == "$" else -2.0
            if {"@gain"} & row.bag.keys() and side == "<=" and "@cost" not in bag:
                score -= 2.5
        elif unit and unit == row.unit:
            score += 0.8
        score -= 0.6 * (len(names) - len(row.coefficients))
        made.append(Limit("linear", side, score, quantity, position))
    # one variable
    if near is not None:
        gap = problem.lower[quantity.last : near.first]
        between = [q for q in after if q.first < near.first]
        said = gap[1:] if gap[1:2] == ["of"] else gap  # "12 kg of"
        small = [word for word in said if word not in ("of", "the", "units", "unit", "more")]
        telling = [word for word in small if root(word) not in NOTHING and not word.endswith("ed")]
        if not between and not set(gap) & BREAKS:
            score = 4.0 - 0.2 * len(small) - 0.7 * len(telling)
            joined = [m for m in following if m.which != near.which]
            tail = problem.lower[near.last : joined[0].first] if joined else []
            if joined and set(tail) <= {"or", "and", "a", "an", ",", "the"}:
                made.append(Limit("sum", side, score + 0.8 + (0.8 if "or" in tail else 0.0), quantity, None, everyone))
                score -= 1.0
            made.append(Limit("bound", side, score, quantity, None, (near.which,)))
    if previous:
        gap = problem.lower[previous[-1].last : quantity.first]
        crossed = [q for q in problem.quantities if previous[-1].last <= q.first < quantity.first]
        score = 2.2 - 0.12 * len(gap) - 2.0 * len(crossed)
        before = problem.lower[max(0, previous[-1].first - 4) : previous[-1].first]
        if {"number", "amount", "many"} & set(before):
            score += 1.5
        subject = not crossed and not set(gap) & {",", ";", "and"} and bool(nearest(" ".join(gap)))
        if subject and right and _measures(problem, right[0], here=quantity.first):
            score += 2.6  # deliveries of sand shall not be less than 40 tonnes
        elif len(right) and right[0] not in ("per", "each", "a", "in"):
            score -= 1.2
        made.append(Limit("bound", side, score, quantity, None, (previous[-1].which,)))
    # each of them, or all together
    heads = _heads(names)
    stems = {stem(problem.lower[place]) for place in problem.behind(quantity) if place not in taken}
    span = problem.lower[max(0, quantity.first - 6) : min(end, quantity.last + 10)]
    score = 0.0
    if stems & heads:
        score += 2.6
    if _ALL & set(span):
        score += 1.2
    if right and _measures(problem, right[0], here=quantity.first):
        score += 2.2
    if right and right[0] in ("in", "per") and not stems & heads:
        score += 0.3
    if quantity.kind == "money" and any(q.kind == "share" for row in rows for q in row.coefficients.values()):
        score += 3.0
    if any(similarity(bag, row.bag, rarity) > 0.5 for row in rows):
        score -= 1.0
    if quantity.kind == "money":  # people put money into things; elsewhere it is no number of things
        score -= 1.0 if "invest" in problem.text.lower() else 3.0
    made.append(Limit("sum", side, score, quantity, None, everyone))
    if re.match(r"(?:\w+ )?(?:of )?(?:each|both|every)(?: type| kind| one| of|$| \W)", " ".join(right)):
        made.append(Limit("bound", side, 3.5, quantity, None, everyone))
    return made


def _heads(names: Sequence[tuple[str, ...]]) -> set[str]:
    """Words that all variables have in common, and what such things are called."""
    common = set(names[0]).intersection(*names[1:])
    return common | {"item", "product", "trip", "vehicle", "container", "ad", "shift", "worker", "employee", "meal"}


def _measures(problem: Problem, unit: str, here: int) -> bool:
    """Whether variables are counted in a unit elsewhere in the text: ``per acre of corn``."""
    mine = stem(unit)
    if not mine.isalpha() or len(mine) < 2:
        return False
    for i, word in enumerate(problem.lower[:-2]):
        if stem(word) == mine and abs(i - here) > 2 and problem.lower[i + 1] == "of" and i + 2 in problem.named:
            return True
        if stem(word) == mine and i and problem.lower[i - 1] in ("per", "each") and mine in BULK:
            return True
    return False


_MORE = r"more|larger|greater|higher|exceed\w*|at least as (?:many|much)|outnumber\w*"
_FEWER = r"less|fewer|smaller|lower|at most as (?:many|much)"
_COMPARED = re.compile(
    rf"\b(?P<no>not|cannot|can['’]t|no|never)\b[^,;]*?\b(?:(?P<more>{_MORE})|(?P<fewer>{_FEWER}))\b|"
    rf"\b(?P<above>{_MORE})\b|\b(?P<below>{_FEWER})\b"
)


def orders(problem: Problem, mentions: Sequence[Mention]) -> list[Limit]:
    """``the number of A must not exceed the number of B``, ``more A than B``: comparisons of two variables."""
    made: list[Limit] = []
    for begin, end in problem.sentences:
        here = [m for m in mentions if begin <= m.first < end]
        for one, other in pairwise(here):
            if one.which == other.which:
                continue
            if any(one.first <= q.first < other.last for q in problem.quantities):
                continue
            start = max([begin, *(q.last for q in problem.quantities if begin <= q.first and q.last <= one.first)])
            between = " ".join(problem.lower[one.last : other.first])
            ahead = " ".join(problem.lower[max(start, one.first - 8) : one.first])
            if any(q.last >= one.first - 4 and q.first < one.first for q in problem.quantities if q.kind == "factor"):
                continue
            match = _COMPARED.search(between)
            if match is None and re.search(r"\b(?:than|as)\b", between):
                match = _COMPARED.search(ahead)
            if match is None or not re.search(r"\bthan\b|\bexceed|\boutnumber|\bas\b", between):
                continue
            up = bool(match["above"] or match["fewer"])
            strong = bool(
                re.search(
                    r"must|should|need|cannot|at least|require|can|has to|have to|not|never|want|prefer",
                    f"{ahead} {between}",
                )
            )
            made.append(
                Limit(
                    "order",
                    ">=" if up else "<=",
                    3.0 if strong else 0.0,
                    which=(one.which, other.which),
                    place=other.first,
                )
            )
    return made


def unit_is_bulk(problem: Problem, mentions: Sequence[Mention]) -> float:
    """Share of mentions that are measured, not counted: ``acres of corn``, ``$500 in bonds``."""
    asked = [i for i, word in enumerate(problem.lower) if word in ("many", "much") and problem.lower[i - 1] == "how"]
    if any({stem(word), root(word)} & BULK for i in asked for word in problem.lower[i + 1 : i + 2]):
        return 1.0  # how many kg of each
    measured = 0
    for mention in mentions:
        before = problem.lower[max(0, mention.first - 3) : mention.first]
        while set(before) & _ENDS:  # "an sm box holds 4 kg, an lg box" measures no box
            before = before[1:]
        if any(stem(word) in BULK or root(word) in BULK for word in before):
            measured += 1
    return measured / max(len(mentions), 1)

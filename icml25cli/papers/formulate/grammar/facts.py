"""The table of facts: what a unit of each variable takes, costs or brings, read clause by clause.

Knows a text and a choice of variables. Does not know limits.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from icml25cli.papers.formulate.grammar.lexicon import BREAKS, PER
from icml25cli.papers.formulate.grammar.mentions import Mention
from icml25cli.papers.formulate.grammar.numbers import Quantity
from icml25cli.papers.formulate.grammar.text import Problem

Bag = dict[str, float]
REACH = 9  # words between a number and the variable behind it


@dataclass
class Attribute:
    """A row of the table: a quantity for a unit of each variable, and what it is called."""

    coefficients: dict[int, Quantity]  # by variable
    bag: Bag = field(default_factory=dict)
    unit: str = ""


def similarity(one: Bag, other: Bag, rarity: Bag) -> float:
    """Cosine of two bags, rare words counting more: in [0, 1]."""
    if not one or not other:
        return 0.0
    weigh = {word: rarity.get(word, 1.0) for word in one.keys() | other.keys()}
    dot = math.fsum(one[word] * other[word] * weigh[word] ** 2 for word in one.keys() & other.keys())
    sizes = [math.sqrt(math.fsum((bag[word] * weigh[word]) ** 2 for word in bag)) for bag in (one, other)]
    return dot / (sizes[0] * sizes[1]) if all(sizes) else 0.0


def rarities(bags: Iterable[Bag]) -> Bag:
    """How much a word tells: more where few bags have it; groups of words tell less than words."""
    bags = [*bags]
    counts = Counter(word for bag in bags for word in bag)
    return {
        word: (0.5 if word[0] in "@$" else 1.0) * (0.3 + math.log((1 + len(bags)) / (0.5 + count)))
        for word, count in counts.items()
    }


def owners(problem: Problem, mentions: Sequence[Mention], count: int) -> dict[Quantity, list[tuple[int, ...]]]:
    """For every number that may be a coefficient whose it may be, best first: variables, all of them for "each"."""
    listed = _respectively(problem, mentions, count)
    return {
        quantity: [listed[quantity]] if quantity in listed else _owner(problem, mentions, count, quantity)
        for quantity in problem.quantities
    }


def _owner(problem: Problem, mentions: Sequence[Mention], count: int, quantity: Quantity) -> list[tuple[int, ...]]:
    begin, end = problem.sentence_of(quantity.first)
    everyone = tuple(range(count))
    here = [mention for mention in mentions if begin <= mention.first < end]
    if not here:
        before = [mention for mention in mentions if mention.last <= begin]
        sentence = set(problem.lower[begin:end])
        last = [(before[-1].which,)] if before else []
        alone = problem.lower[begin] in ("it", "this", "he", "she") and not sentence & {"both", "each", "every"}
        return [*last, everyone] if alone else [everyone, *last]
    previous = max((m for m in here if m.last <= quantity.first), key=lambda m: m.last, default=None)
    following = min((m for m in here if m.first >= quantity.last), key=lambda m: m.first, default=None)
    if following is None:
        assert previous is not None or here
        return _back(problem, here, previous or here[0], everyone, quantity)
    gap = problem.lower[quantity.last : following.first]
    numbers = [q for q in problem.quantities if quantity.last <= q.first < following.first]
    clear = not set(gap) & BREAKS and not numbers and len(gap) <= REACH
    if previous is None:
        return [(following.which,)]
    bound = clear and (set(gap) & PER or gap[-1:] == ["of"] or (not gap))
    back = _back(problem, here, previous, everyone, quantity)
    if bound:
        return [(following.which,), *back]
    between = problem.lower[previous.last : quantity.first]
    parted = bool(set(between) & {";", "while", "whereas", "but"})
    if parted and clear:
        return [(following.which,), *back]
    return [*back, (following.which,)]


def _back(
    problem: Problem, here: Sequence[Mention], previous: Mention, everyone: tuple[int, ...], quantity: Quantity
) -> list[tuple[int, ...]]:
    """Owners where a number follows its variable; of "A and B take 3 hours each" both."""
    joined = [previous.which]
    last = previous
    for mention in sorted((m for m in here if m.last <= previous.first), key=lambda m: -m.first):
        between = problem.lower[mention.last : last.first]
        if between and set(between) <= {"and", "or", ",", "a", "an", "the", "both"}:
            joined.append(mention.which)
            last = mention
        else:
            break
    if len(set(joined)) > 1:
        return [tuple(sorted(set(joined))), (previous.which,), everyone]
    return [(previous.which,), everyone]


def _respectively(problem: Problem, mentions: Sequence[Mention], count: int) -> dict[Quantity, tuple[int, ...]]:
    """Numbers that stand in a list as long as a list of variables: ``$3 and $5 for A and B``."""
    found: dict[Quantity, tuple[int, ...]] = {}
    for begin, end in problem.sentences:
        here = [q for q in problem.quantities if begin <= q.first < end]
        runs: list[list[Quantity]] = []
        for quantity in here:
            between = problem.lower[runs[-1][-1].last : quantity.first] if runs else ["."]
            if (
                runs
                and len(between) <= 6
                and {",", "and"} & set(between)
                and not _mentioned(mentions, runs[-1][-1].last, quantity.first)
            ):
                runs[-1].append(quantity)
            else:
                runs.append([quantity])
        ordered = [mention for mention in mentions if begin <= mention.first < end]
        told = "respectively" in problem.lower[begin:end]
        for run in runs:
            if len(run) != count:
                continue
            behind = [m.which for m in ordered if m.first >= run[-1].last][:count]
            ahead = [m.which for m in ordered if m.last <= run[0].first][-count:]
            if told and not ordered:  # "they cost $3 and $5 respectively", of what was named before
                found |= {quantity: (which,) for which, quantity in enumerate(run)}
                continue
            same = len({problem.unit(q) for q in run}) == 1
            for group in (behind, ahead):
                if sorted(group) == [*range(count)] and (told or (same and group is behind)):
                    found |= {quantity: (which,) for quantity, which in zip(run, group, strict=True)}
                    break
    return found


def _mentioned(mentions: Sequence[Mention], first: int, last: int) -> bool:
    return any(first <= mention.first < last for mention in mentions)


def table(
    problem: Problem,
    owned: dict[Quantity, tuple[int, ...]],
    coefficients: Sequence[Quantity],
    taken: frozenset[int],
    count: int,
) -> list[Attribute]:
    """Rows of the table: facts about different variables that are called alike are one row."""
    bags = {quantity: problem.around(quantity, taken) for quantity in coefficients}
    _share_left(problem, coefficients, bags)
    rarity = rarities(bags.values())
    rows: list[Attribute] = []
    order = {quantity: position for position, quantity in enumerate(coefficients)}
    waiting = sorted(coefficients, key=lambda q: order[q])
    places: Counter[int] = Counter()
    placed: dict[Quantity, int] = {}
    for quantity in waiting:
        for which in owned[quantity]:
            placed[quantity] = places[which]
            places[which] += 1
    for quantity in waiting:
        best, top = None, 0.25
        for row in rows:
            if any(which in row.coefficients for which in owned[quantity]):
                continue
            near = max(similarity(bags[quantity], bags[other], rarity) for other in row.coefficients.values())
            unit = problem.unit(quantity)
            near += 0.35 if unit and unit == row.unit else -0.4 if unit and row.unit else 0.0
            near += 0.15 * any(placed[quantity] == placed[other] for other in row.coefficients.values())
            if near > top:
                best, top = row, near
        if best is None:
            best = Attribute({}, {}, problem.unit(quantity))
            rows.append(best)
        for which in owned[quantity]:
            best.coefficients[which] = quantity
        for word, weight in bags[quantity].items():
            best.bag[word] = max(best.bag.get(word, 0.0), weight)
        best.unit = best.unit or problem.unit(quantity)
    return _joined(rows, count)


def _share_left(problem: Problem, coefficients: Sequence[Quantity], bags: dict[Quantity, Bag]) -> None:
    """In a list of numbers the later ones are called what the first is, where nothing of their own is said."""
    before: Quantity | None = None
    for quantity in coefficients:
        if (
            before is not None
            and not set(bags[quantity]) - {"$"}
            and problem.sentence_of(before.first) == problem.sentence_of(quantity.first)
        ):
            bags[quantity] = {**bags[before], **bags[quantity]}
        before = quantity


def _joined(rows: list[Attribute], count: int) -> list[Attribute]:
    """Rows of single facts that complete each other, in order, are one row after all."""
    done: list[Attribute] = []
    for row in rows:
        partner = next(
            (
                other
                for other in done
                if len(other.coefficients) + len(row.coefficients) == count
                and not other.coefficients.keys() & row.coefficients.keys()
                and (other.unit == row.unit or not other.unit or not row.unit)
            ),
            None,
        )
        if partner is None:
            done.append(row)
        else:
            partner.coefficients |= row.coefficients
            partner.bag |= row.bag
            partner.unit = partner.unit or row.unit
    return done

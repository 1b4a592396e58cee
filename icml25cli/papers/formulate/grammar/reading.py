"""A reading of a problem for one choice of variables: its table of facts, and candidates for objective and limits.

Knows how sure each part is, as weights. Does not draw.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from icml25cli.papers.formulate.grammar.facts import Attribute, owners, rarities, similarity, table
from icml25cli.papers.formulate.grammar.lexicon import (
    AT_LEAST,
    AT_MOST,
    BREAKS,
    GROUPS,
    MAXIMISE,
    MINIMISE,
    NEEDED,
    NOTHING,
    QUANTIFIED,
    STOCK,
    root,
)
from icml25cli.papers.formulate.grammar.limits import Limit, candidates, orders, unit_is_bulk
from icml25cli.papers.formulate.grammar.mentions import Mention, mentions
from icml25cli.papers.formulate.grammar.numbers import Quantity
from icml25cli.papers.formulate.grammar.relations import relations
from icml25cli.papers.formulate.grammar.tagger import stem
from icml25cli.papers.formulate.grammar.text import Problem
from icml25cli.papers.formulate.linear import Sense

COUNTED = 2.0  # for aiming at a row in the unit that the aim names
FREE = 1.2  # for aiming at a row that no limit is about: every number is there for something
_OWN_SUBJECT = re.compile(
    r"^(?:and |but |with )?(?:the|he|she|they|we|i|there|our|his|her|their) \w+|"
    r"\b(?:(?:is|are|can be) (?:available|spared|left|free|open|had)|can be)\b"
)
_BINDING = (AT_LEAST, AT_MOST, NEEDED, STOCK, re.compile(r"\bfor (?:every|each)\b"))
_FOR_EVERY = re.compile(r"\bfor (?:every|each)$")
Owned = tuple[tuple[Quantity, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Target:
    """What may be made large or small: a row of the table, or the number of all variables (``row`` is None)."""

    sense: Sense
    row: int | None
    score: float


@dataclass(frozen=True)
class Reading:
    """A text with variables chosen: ``names`` are the words of each."""

    problem: Problem
    names: tuple[tuple[str, ...], ...]

    @cached_property
    def mentions(self) -> list[Mention]:
        return mentions(self.problem.words, self.problem.spans, self.names)

    @cached_property
    def own_words(self) -> set[str]:
        """Roots of words in names of variables, which say nothing about quantities."""
        return {root(word) for name in self.names for word in name} | {stem(word) for n in self.names for word in n}

    @cached_property
    def taken(self) -> frozenset[int]:
        """Places of the words that name variables."""
        return frozenset(i for mention in self.mentions for i in range(mention.first, mention.last))

    @cached_property
    def bulk(self) -> float:
        return unit_is_bulk(self.problem, self.mentions)

    @cached_property
    def relations(self) -> list[list[Limit]]:
        """Candidates for every relation of two variables with numbers of its own."""
        return relations(self.problem, self.mentions)

    @cached_property
    def related(self) -> set[Quantity]:
        """The numbers of those relations."""
        limits = [limit for group in self.relations for limit in group]
        return {number for limit in limits for number in (limit.quantity, limit.base) if number is not None}

    @cached_property
    def binding(self) -> list[Quantity]:
        """Numbers that a model must not lack: in a clause that names a variable or limits something."""
        found = []
        for quantity in (*self.problem.told, *self.problem.ignored):
            begin, end = self.problem.clause_of(quantity)
            said = " ".join(self.problem.lower[begin:end])
            named = any(begin <= mention.first < end for mention in self.mentions)
            if quantity.value and (named or any(words.search(said) for words in _BINDING)):
                found.append(quantity)
        return found

    @cached_property
    def factors(self) -> list[Quantity]:
        """Numbers that relate variables: ``twice``, ``three times`` (but not ``five times every month``)."""
        found = []
        for quantity in self.problem.quantities:
            after = self.problem.lower[quantity.last : quantity.last + 1]
            often = after and after[0] in ("every", "per", "a", "each", "in", ".", ",")
            if quantity.kind == "factor" and not often:
                found.append(quantity)
        return found

    @cached_property
    def facts(self) -> list[Quantity]:
        """Numbers taken for coefficients."""
        return [q for q in self._open if q not in self.factors and self._is_fact(q)]

    @cached_property
    def limited(self) -> list[Quantity]:
        """Numbers taken for limits, factors among them."""
        numbers = [q for q in self._open if q in self.factors or not self._is_fact(q)]
        return [
            q for q in numbers if not _FOR_EVERY.search(" ".join(self.problem.lower[max(0, q.first - 2) : q.first]))
        ]

    @property
    def _open(self) -> list[Quantity]:
        return [q for q in self.problem.told if q not in self.related and not self._is_talk(q)]

    def _is_talk(self, quantity: Quantity) -> bool:
        """Whether a number without a role of its own would be said of all: ``on platform 9``, ``for every 5 seats``."""
        begin, end = self.problem.sentence_of(quantity.first)
        said = self.problem.lower[begin:end]
        if quantity.kind != "plain" or not self.problem.is_fact(quantity) or quantity in self._amounts:
            return False
        if said[0] in ("it", "this", "they", "these", "those", "he", "she") or "respectively" in said:
            return False
        if any(begin <= mention.first < end for mention in self.mentions):
            return False
        ahead = " ".join(self.problem.lower[max(begin, quantity.first - 2) : quantity.first])
        return bool(_FOR_EVERY.search(ahead)) or not QUANTIFIED.search(" ".join(said))

    def _is_fact(self, quantity: Quantity) -> bool:
        return self.problem.is_fact(quantity) and quantity not in self._amounts

    @cached_property
    def _amounts(self) -> set[Quantity]:
        """Numbers said of no variable, in a unit in which others are said of every one: what there is or is needed."""
        facts = [q for q in self.problem.told if q not in self.related and self.problem.is_fact(q)]
        alone = [q for q in facts if q.kind == "plain" and self.problem.unit(q) and not self._is_of_someone(q)]
        told = [q for q in facts if q not in alone]
        return {
            q
            for q in alone
            if {
                which
                for other in told
                if self.problem.unit(other) == self.problem.unit(q)
                for which in self.owners[other][0]
            }
            == {*range(len(self.names))}
        }

    def _is_of_someone(self, quantity: Quantity) -> bool:
        """Whether the clause of a number names a variable or, where it has no subject of its own, its sentence does."""
        begin, end = self.problem.sentence_of(quantity.first)
        if self.problem.lower[begin] in ("it", "this"):
            return True
        first, last = self.problem.clause_of(quantity)
        if _OWN_SUBJECT.search(" ".join(self.problem.lower[first:last])):
            begin, end = first, last
        named = any(begin <= mention.first < end for mention in self.mentions)
        return named or bool(QUANTIFIED.search(" ".join(self.problem.lower[begin:end])))

    @cached_property
    def completeness(self) -> float:
        """Share of the table of facts that is filled, in [0, 1]: wrong variables leave holes."""
        rows = self.rows(tuple((quantity, self.owners[quantity][0]) for quantity in self.facts))
        named = {mention.which for mention in self.mentions}
        if not rows:
            return 0.5 * len(named) / len(self.names)
        return sum(len(row.coefficients) for row in rows) / (len(rows) * len(self.names))

    @cached_property
    def owners(self) -> dict[Quantity, list[tuple[int, ...]]]:
        return owners(self.problem, self.mentions, len(self.names))

    def rows(self, owned: Owned) -> list[Attribute]:
        """The table of facts, where ``owned`` says whose each number is."""
        by_number = dict(owned)
        return table(self.problem, by_number, [q for q, _ in owned], self.taken, len(self.names))

    # --- objective -------------------------------------------------------------------------------------------------

    @cached_property
    def aim(self) -> tuple[Sense | None, dict[str, float], int]:
        """Direction, words of what is aimed at, and the position where it is said; None where nothing is."""
        found = [(first, last) for first, last, role in self.problem.spans if role == "OBJ_DIR"]
        said = [(i, i + 1) for i, word in enumerate(self.problem.lower) if re.match(r"(?:min|max)imi[sz]", word)]
        found = said[-1:] or found[-1:]
        if not found:
            found = [
                (i, i + 1) for i, word in enumerate(self.problem.lower) if MINIMISE.match(word) or MAXIMISE.match(word)
            ]
            found = [
                each for each in found if self.problem.lower[each[0]] not in ("least", "most", "minimum", "maximum")
            ][-1:]
        if not found:  # keep the cost as low as possible
            found = [
                (i, i + 3)
                for i, word in enumerate(self.problem.lower)
                if word == "as" and "possible" in self.problem.lower[i + 3 : i + 6]
            ][-1:]
        if not found:  # what brings in the most?
            found = [
                (i, i + 1)
                for i, word in enumerate(self.problem.lower)
                if word in ("most", "least") and self.problem.lower[i - 1 : i] == ["the"]
            ][-1:]
        if not found:
            return None, {}, len(self.problem.words)
        first, last = found[0]
        words = self.problem.lower[first:last]
        sense: Sense = "min" if MINIMISE.search(" ".join(words)) else "max"
        _, end = self.problem.sentence_of(first)
        bag: dict[str, float] = {}
        behind = last
        while behind < end and (self.problem.lower[behind] not in (",", ";", "?", ".") or behind == last):
            behind += 1
        begin, _ = self.problem.sentence_of(first)
        last_words = {*self.problem.lower[last:behind]} <= {",", ";", "?", "."}
        ahead = range(max(begin, first - 3), first) if words[0] == "as" or last_words else range(0)
        for i in (*ahead, *range(last, behind)):
            word = self.problem.lower[i]
            if word[0].isalpha() and root(word) not in NOTHING and word not in NOTHING:
                bag[root(word)] = max(bag.get(root(word), 0.0), 1.0 if i - last < 6 else 0.6)
                for group in GROUPS.get(root(word), ()):
                    bag[group] = 0.6
        return sense, bag, first

    @cached_property
    def is_clear(self) -> bool:
        """Whether the text says in so many words what is to be made large or small."""
        return bool(re.search(r"\b(?:max|min)imi[sz]", self.problem.text, re.IGNORECASE))

    def targets(self, rows: Sequence[Attribute]) -> list[Target]:
        """Candidates for the objective."""
        sense, bag, first = self.aim
        sense = sense or "max"
        _, end = self.problem.sentence_of(min(first, len(self.problem.words) - 1))
        phrase = " ".join(self.problem.lower[first : min(end, first + 9)])
        rarity = rarities([*(row.bag for row in rows), bag])
        own = {word for word in bag if word in self.own_words}
        rest = {word: weight for word, weight in bag.items() if word not in own}
        made = []
        for position, row in enumerate(rows):
            alike = similarity(rest, row.bag, rarity)
            score = 5.0 * alike - 1.2 * (len(self.names) - len(row.coefficients))
            money = {"@gain", "@cost"} & rest.keys()
            if money:
                score += 1.5 if row.unit == "$" or "$" in row.bag else 0.0
                score += 1.0 if money & row.bag.keys() else 0.0
                score -= (
                    2.0
                    if sense == "max" and "@gain" in money and "@cost" in row.bag and "@gain" not in row.bag
                    else 0.0
                )
            made.append(Target(sense, position, score))
        noun = self._counted(first)
        made = [
            replace(each, score=each.score + COUNTED)
            if each.row is not None and noun and rows[each.row].unit == noun
            else each
            for each in made
        ]
        plain = 0.6
        if noun and all(row.unit != noun for row in rows) and self._is_per(noun):
            plain += COUNTED
        counted = re.search(r"(?:total )?(?:number|amount|size) of|how many|total", phrase) is not None
        heads = set(self.names[0]).intersection(*self.names[1:])
        plain += 1.0 if counted else 0.0
        plain += 2.0 if own and not rest.keys() - {"total"} else 0.8 if own else 0.0
        plain += 1.5 if {root(head) for head in heads} & bag.keys() else 0.0
        plain += 1.0 if sense == "min" and not rest else 0.0
        bags = [
            self.problem.around(quantity, self.taken)
            for quantity in self.limited
            if quantity.kind in ("plain", "money")
        ]
        made = [
            replace(each, score=each.score + FREE)
            if each.row is not None and not any(_bounds(rows[each.row], bag, rarity) for bag in bags)
            else each
            for each in made
        ]
        if rest and not heads & bag.keys() and sense == "max":
            plain -= 0.8
        made.append(Target(sense, None, plain))
        return made

    def _counted(self, first: int) -> str:
        """The root of what an aim counts, ``minimize the total number of shifts``; empty where it counts nothing."""
        _, end = self.problem.sentence_of(min(first, len(self.problem.words) - 1))
        said = " ".join(self.problem.lower[first : min(end, first + 9)])
        found = re.search(r"\b(?:number|amount|quantity) of (?:the )?(\w+)", said)
        return root(found[1]) if found else ""

    def _is_per(self, noun: str) -> bool:
        """Whether coefficients are said per such a thing: then it is what is decided that is counted."""
        lower = self.problem.lower
        return any(root(word) == noun and lower[i - 1] in ("per", "every") for i, word in enumerate(lower) if i)

    # --- limits ------------------------------------------------------------------------------------------------------

    def limits(self, rows: Sequence[Attribute]) -> list[list[Limit]]:
        """For every limit its candidates."""
        return [
            *self.relations,
            *(candidates(self.problem, q, self.mentions, rows, self.names, self.taken) for q in self.limited),
        ]

    @cached_property
    def orders(self) -> list[Limit]:
        return orders(self.problem, self.mentions)


def label(problem: Problem, quantity: Quantity) -> str:
    """A name for a number: the first telling word around it."""
    for words in (problem.right(quantity), problem.left(quantity)[::-1]):
        for word in words:
            if word.isalpha() and len(word) > 2 and root(word) not in NOTHING and word not in NOTHING | BREAKS:
                return word
    return "amount"


def _bounds(row: Attribute, bag: dict[str, float], rarity: dict[str, float]) -> bool:
    return ("$" in bag) == ("$" in row.bag) and similarity(row.bag, bag, rarity) > 0.3

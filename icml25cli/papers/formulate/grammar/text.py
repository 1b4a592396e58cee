"""A problem's text taken apart: words, tags, sentences, numbers and what stands around them.

Knows a text. Does not know which variables are chosen.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from icml25cli.papers.formulate.grammar.lexicon import (
    AT_LEAST,
    AT_MOST,
    BREAKS,
    GROUPS,
    HAD,
    NEEDED,
    NOTHING,
    QUANTIFIED,
    RATE,
    STOCK,
    root,
)
from icml25cli.papers.formulate.grammar.numbers import Quantity, quantities
from icml25cli.papers.formulate.grammar.tagger import Word, load_tagger, spans, stem, words_of

_PARTS = {",", ";", ":", "while", "whereas", "but", "however"}
_OF_OTHERS = re.compile(r"(?:of )?(?:the |as )?(?:total )?(?:number|amount|quantity|many|much)\b")
_ABBREVIATED = {
    "approx",
    "vs",
    "hr",
    "hrs",
    "min",
    "mins",
    "lb",
    "lbs",
    "oz",
    "sq",
    "ft",
    "no",
    "st",
    "mr",
    "mrs",
    "dr",
}
_PRONOUNS = {"i", "we", "you", "he", "she", "they", "it"}
_UNIT_OF = re.compile(r"(?:^|[,;] |\b(?:and|while) )(?:an?|each|every|one) \w+")  # an sm box holds
_LINE = re.compile(r"\n\s*\n")
_BULLETS = {"-", "*", "•", "–", "—", "·"}
_AGE = re.compile(r"\bwho (?:is|was) \S+ [,.;)]|\b(?:aged|turned) \S+(?: [,.;)]|$)|\byears? old\b|- year - old\b")
_OWNED = re.compile(
    r"\b(?:i|we|he|she|they|you) (?:\w+ )?(?:own|owns|have|has|possess|possesses)\b|\bthere (?:is|are)\b"
)
_VERBS = {"brings", "earns", "fetches", "gives", "makes", "sells"}
_BRINGS = re.compile(
    r"\b(?:brings?(?: in)?|earns?|fetch(?:es)?|sells? (?:for|at)|yields?|gives?|makes?|nets?)"
    r"(?: (?:us|me|him|her|them|about|around))?$"
)
_MADE_OF = re.compile(
    r"(?:^|[,;] |\b(?:and|while) )(?:an?|each|every|one) \w+ of \w+ (?:\w+ )?(?:has|contains|provides)\b"
)
_TAKES = {"need", "needs", "take", "takes", "require", "requires", "use", "uses"}
_BASE_OF = re.compile(r"\b(?:every|each|per|only|just|exactly)$")
_SHORT = 6  # words of a part of a sentence that does not speak for itself


def _is_short(lower: Sequence[str], place: int) -> bool:
    """Whether a dot ends an abbreviation, such as ``e.g.`` or ``lbs.``: what follows goes on in small letters."""
    before = lower[place - 1] if place else ""
    return (len(before) == 1 and before.isalpha()) or before in _ABBREVIATED


@dataclass(frozen=True)
class Problem:
    """A text; positions are those of its words."""

    text: str

    @cached_property
    def words(self) -> list[str]:
        return [word.text for word in self._places]

    @cached_property
    def lower(self) -> list[str]:
        return [word.lower() for word in self.words]

    @cached_property
    def tags(self) -> list[str]:
        return load_tagger().tags(self.words)

    @cached_property
    def spans(self) -> list[tuple[int, int, str]]:
        found = [self._name_alone(*each) for each in spans(self.tags)]
        return [each for each in found if each[2] != "VAR" or not {*self.lower[each[0] : each[1]]} & _PRONOUNS]

    def _name_alone(self, first: int, last: int, role: str) -> tuple[int, int, str]:
        """A span of a name without what the tagger took along: ``more bowls``, ``bowl gives 40``."""
        if role != "VAR":
            return first, last, role
        if last - first > 1 and self.lower[first] in ("more", "fewer", "less"):
            first += 1
        return first, next((i for i in range(first + 1, last) if self.lower[i] in _VERBS), last), role

    @cached_property
    def sentences(self) -> list[tuple[int, int]]:
        """First word and the one behind the last of every sentence."""
        found, first = [], 0
        places = self._places
        for i, word in enumerate(self.words):
            if i + 1 == len(self.words):
                break
            gap, after = self.text[places[i].end : places[i + 1].start], self.words[i + 1]
            stops = word in ("?", "!") or (word == "." and not _is_short(self.lower, i))
            ends = stops and (bool(gap) or after[0].isupper() or not after[0].isalnum())
            begins = "\n" in gap and (after in _BULLETS or self.words[i + 2 : i + 3] == [":"])
            if ends or begins or _LINE.search(gap):
                found.append((first, i + 1))
                first = i + 1
        if first < len(self.words):
            found.append((first, len(self.words)))
        return found

    def sentence_of(self, position: int) -> tuple[int, int]:
        return next(each for each in self.sentences if each[0] <= position < each[1])

    def clause(self, position: int) -> str:
        """The text around a word as it stands there: from the comma or sentence before to the one behind."""
        begin, end = self.sentence_of(position)
        first = next((i + 1 for i in range(position - 1, begin, -1) if self.lower[i] in _PARTS), begin)
        last = next((i for i in range(position + 1, end) if self.lower[i] in _PARTS), end)
        if last - first < _SHORT:  # "at most 3 vans" needs its sentence
            first, last = begin, end
        return self.shown(first, last).rstrip(".")

    def shown(self, first: int, last: int) -> str:
        """The text from a word to the one before ``last``, as it stands there, on one line."""
        places = self._places
        return " ".join(self.text[places[first].start : places[last - 1].end].split())

    @cached_property
    def _places(self) -> list[Word]:
        return words_of(self.text)

    @cached_property
    def named(self) -> set[int]:
        """Positions of words in names of variables."""
        return {i for first, last, role in self.spans if role == "VAR" for i in range(first, last)}

    @cached_property
    def quantities(self) -> list[Quantity]:
        """Numbers that are worth something: not those in names, nor the base of a rate ("to make 1 ton of")."""
        return [each for each in quantities(self.words) if not self._is_name(each)]

    def _is_name(self, quantity: Quantity) -> bool:
        first, last = quantity.first, quantity.last
        after = self.words[last] if last < len(self.words) else ""
        if first in self.named and (after == "-" or last in self.named or first - 1 in self.named):
            return True
        if after == "-" and self.words[first - 1 : first] != ["$"]:  # a 2-piece suit
            return True
        if _AGE.search(" ".join(self.lower[max(0, first - 2) : last + 2])):  # who is 71
            return True
        if first > 0 and self.words[first - 1][-1:] == "x" and quantity.kind == "plain":
            return True
        return quantity.value == 1 and quantity.kind == "plain" and self._is_base(quantity)

    def _is_base(self, quantity: Quantity) -> bool:
        """Whether a one is what a rate is per: ``to make 1 ton of steel``."""
        ahead = self.lower[quantity.last : quantity.last + 4]
        named = next((k for k in range(4) if quantity.last + k in self.named), 4)
        if set(ahead[:named]) & BREAKS or named == 4:
            return False
        return self.role(quantity) is None or "of" in ahead[:named]

    def role(self, quantity: Quantity) -> str | None:
        """PARAM or LIMIT as the tagger has it, else None."""
        for i in range(quantity.first, quantity.last):
            if self.tags[i][2:] in ("PARAM", "LIMIT"):
                return self.tags[i][2:]
        return None

    @cached_property
    def told(self) -> list[Quantity]:
        """Numbers that say something about the model: tagged ones, and others where a direction stands before them."""
        return [each for each in self.quantities if self.role(each) or self.is_fact(each) or self._is_limit(each)]

    @cached_property
    def ignored(self) -> list[Quantity]:
        """Numbers that the grammar makes nothing of, but for "two types" and the like."""
        return [
            q
            for q in self.quantities
            if q not in self.told and (q.value > 4 or self.words[q.first][0].isdigit() or self._is_binding(q))
        ]

    def _is_binding(self, quantity: Quantity) -> bool:
        """Whether a small number limits, or says for how many another one is: ``at least two``, ``for every four``."""
        begin, _ = self.sentence_of(quantity.first)
        before = " ".join(self.lower[max(begin, quantity.first - 4) : quantity.first])
        return bool(AT_LEAST.search(before) or AT_MOST.search(before) or _BASE_OF.search(before))

    def _is_limit(self, quantity: Quantity) -> bool:
        if quantity.kind in ("factor", "share", "money"):
            return True
        begin, _ = self.sentence_of(quantity.first)
        before = " ".join(self.lower[max(begin, quantity.first - 4) : quantity.first])
        digits = self.words[quantity.first][0].isdigit()
        return digits and (quantity.value >= 10 or bool(AT_LEAST.search(before) or AT_MOST.search(before)))

    def is_fact(self, quantity: Quantity) -> bool:
        """Whether a number is a coefficient: as it is tagged, but for slips that its neighbours give away."""
        return self._facts[quantity]

    @cached_property
    def _facts(self) -> dict[Quantity, bool]:
        return {quantity: self._decided(quantity) for quantity in self.quantities}

    def _is_sum_to_invest(self, quantity: Quantity) -> bool:
        """The only amount of money where what is tagged otherwise are rates."""
        others = [each for each in self.quantities if each is not quantity and self.role(each) == "PARAM"]
        return bool(others) and all(each.kind == "share" for each in others)

    def _clause(self, quantity: Quantity) -> str:
        """Text from the comma before a number to the one behind it."""
        return " ".join(self.lower[slice(*self.clause_of(quantity))])

    def clause_of(self, quantity: Quantity) -> tuple[int, int]:
        """The words from the comma or semicolon before a number to the one behind it."""
        begin, end = self.sentence_of(quantity.first)
        while begin < quantity.first and set(self.lower[begin : quantity.first]) & {",", ";"}:
            begin += 1
        return begin, next((i for i in range(quantity.last, end) if self.lower[i] in (",", ";")), end)

    def _is_held(self, quantity: Quantity) -> bool:
        """Whether a number is of what there is; ``a kg of hay has 9 g`` says what hay is made of."""
        begin, _ = self.sentence_of(quantity.first)
        said = " ".join(self.lower[begin : quantity.first])
        parts = [range(begin, quantity.first), range(*self.clause_of(quantity))]
        of_unit = bool(_UNIT_OF.search(said))
        return any(
            STOCK.search(" ".join(self.lower[i] for i in part if not (of_unit and self._is_made_of(i))))
            for part in parts
        )

    def _is_made_of(self, place: int) -> bool:
        return self.lower[place] in ("has", "have", "having") and (
            self._is_named(place - 1) or self.lower[place - 2] == "of"
        )

    def _is_named(self, place: int) -> bool:
        return place in self.named or stem(self.lower[place]) in self._names

    def _is_stock_apart(self, quantity: Quantity) -> bool:
        """Whether a part of a sentence, behind its semicolon, says what there is: ``; 80 hours are available``."""
        begin, end = self.sentence_of(quantity.first)
        marks = [i for i in range(begin, end) if self.lower[i] == ";"]
        first = max((i + 1 for i in marks if i < quantity.first), default=begin)
        last = min((i for i in marks if i > quantity.first), default=end)
        part = {*range(first, last)}
        return bool(marks) and not part & self.named and bool(STOCK.search(" ".join(self.lower[first:last])))

    @cached_property
    def _names(self) -> set[str]:
        """Tagged names of one word, for where the tagger missed them."""
        return {stem(self.words[first]) for first, last, role in self.spans if role == "VAR" and last - first == 1}

    def _decided(self, quantity: Quantity) -> bool:
        role = self.role(quantity)
        begin, _ = self.sentence_of(quantity.first)
        earlier = [q for q in self.quantities if begin <= q.first < quantity.first]
        own_begin = earlier[-1].last if earlier else begin
        own = " ".join(self.lower[own_begin : quantity.first])
        said = " ".join(self.lower[begin : quantity.first])
        near = bool(AT_LEAST.search(own) or AT_MOST.search(own))
        bounded = near or bool(AT_LEAST.search(said) or AT_MOST.search(said))
        earlier_words = range(begin, quantity.first)
        subject = any(map(self._is_named, earlier_words)) or bool(_MADE_OF.search(said))
        if quantity.kind == "factor":  # restocked five times every month
            after = self.lower[quantity.last] if quantity.last < len(self.lower) else ""
            return subject and after in ("every", "per", "a", "each")
        if quantity.kind == "share" and _OF_OTHERS.match(" ".join(self.lower[quantity.last : quantity.last + 5])):
            return False
        if quantity.kind == "share" and near and self.lower[quantity.last : quantity.last + 1] == ["of"]:
            return False
        if subject and not bounded and quantity.kind in ("plain", "money"):
            takes = quantity.first - begin > 1 and self.lower[quantity.first - 1] in _TAKES
            if _BRINGS.search(own) or (takes and self._is_named(quantity.first - 2)):
                return True
        if role == "PARAM":
            if near and quantity.first - own_begin <= 8 and not subject:
                return False
            follows = bounded and earlier and self.role(earlier[-1]) == "LIMIT" and len(own.split()) <= 6
            if follows and set(self.lower[earlier[-1].last : quantity.first]) & {"and", ","}:
                return False
            if quantity.kind == "money" and self._is_sum_to_invest(quantity):
                return False
            if not subject and not earlier and _OWNED.search(own):  # I own 40 hives
                return False
            if self._is_stock_apart(quantity):
                return False
            here = self.named & {*range(*self.sentence_of(begin))}
            said_of_one = QUANTIFIED.search(self._clause(quantity)) or _UNIT_OF.search(said)
            return bool(here or said_of_one or not HAD.search(said))
        if role == "LIMIT":
            plain = quantity.kind == "plain" or (quantity.kind == "money" and bool(RATE.search(self._clause(quantity))))
            return plain and subject and not bounded and not NEEDED.search(said) and not self._is_held(quantity)
        if quantity.kind in ("plain", "money") and not bounded:
            unit = self.unit(quantity)
            alike = {self.role(q) for q in self.quantities if q is not quantity and self.unit(q) == unit}
            return bool(unit) and ("PARAM" in alike or ("LIMIT" in alike and subject and not NEEDED.search(said)))
        return False

    # --- what stands around a number ------------------------------------------------------------------------------

    def before(self, quantity: Quantity) -> list[int]:
        """Places of the words before a number, back to the number or the break before it."""
        begin, _ = self.sentence_of(quantity.first)
        ends = {each.last for each in self.quantities}
        i = quantity.first
        while i > begin and i not in ends and (self.lower[i - 1] not in BREAKS or i == quantity.first):
            i -= 1
        return [place for place in range(i, quantity.first) if self.lower[place] not in BREAKS]

    def behind(self, quantity: Quantity) -> list[int]:
        """Places of the words behind a number, up to the next number or break."""
        _, end = self.sentence_of(quantity.first)
        starts = {each.first for each in self.quantities}
        i = quantity.last
        while i < end and i not in starts and self.lower[i] not in BREAKS:
            i += 1
        return [*range(quantity.last, i)]

    def left(self, quantity: Quantity) -> list[str]:
        return [self.lower[place] for place in self.before(quantity)]

    def right(self, quantity: Quantity) -> list[str]:
        return [self.lower[place] for place in self.behind(quantity)]

    def around(self, quantity: Quantity, taken: frozenset[int]) -> dict[str, float]:
        """Roots of the words around a number with weights, without the words at ``taken``; its kind is one of them."""
        bag: dict[str, float] = {}
        for places, weight in ((self.before(quantity), 0.7), (self.behind(quantity), 1.0)):
            for place in places:
                word = self.lower[place]
                mine = root(word)
                if word[0].isalpha() and mine not in NOTHING and word not in NOTHING and place not in taken:
                    bag[mine] = max(bag.get(mine, 0.0), weight)
                    for group in GROUPS.get(mine, ()):
                        bag[group] = max(bag.get(group, 0.0), 0.6 * weight)
        if quantity.kind == "money":
            bag["$"] = 1.0
        return bag

    def unit(self, quantity: Quantity) -> str:
        """The root of the word behind a number, such as hour or kg; "$" for money and "" where there is none."""
        if quantity.kind == "money":
            return "$"
        place = quantity.last
        if self.lower[place : place + 2] in (["units", "of"], ["unit", "of"]):
            place += 3 if self.lower[place + 2 : place + 3] == ["the"] else 2
        after = self.lower[place] if place < len(self.lower) else ""
        return root(after) if after[:1].isalpha() and after not in NOTHING | {"units", "unit"} else ""

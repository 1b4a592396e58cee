"""Numbers in a text, as a person reads them: "$1,200", "1.5 million", "40 %", "a third", "twice", "three times".

Knows words. Does not know what a number is for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from icml25cli.papers.formulate.grammar.lexicon import FACTORS, FRACTIONS, SCALES, SMALL, TENS

Kind = Literal["plain", "money", "share", "factor"]  # a share is a percentage or a fraction of something
CURRENCIES = "$€£"


@dataclass(frozen=True)
class Quantity:
    """A number with its words from ``first`` to before ``last``."""

    value: Fraction
    first: int
    last: int
    kind: Kind
    written: str = ""


def quantities(words: Sequence[str]) -> list[Quantity]:
    """All numbers in order; "one" only where a scale follows, since else it is a pronoun or the base of a rate."""
    found: list[Quantity] = []
    i = 0
    lower = [word.lower() for word in words]
    while i < len(words):
        quantity = _number(lower, i)
        if quantity is None:
            i += 1
            continue
        found.append(_with_unit(quantity, words, lower))
        i = found[-1].last
    return found


def _number(lower: list[str], i: int) -> Quantity | None:
    word = lower[i]
    if word in FACTORS:
        return Quantity(Fraction(FACTORS[word]), i, i + 1, "factor")
    if word in FRACTIONS and (i == 0 or lower[i - 1] not in ("the", "second")):
        return _fraction(lower, i)
    value, last = _digits(word), i + 1
    if value is None and (word in SMALL or word in TENS):
        value = Fraction(SMALL.get(word, TENS.get(word, 0)))
        if word in TENS and lower[i + 1 : i + 3][:1] == ["-"] and lower[i + 2 : i + 3] and lower[i + 2] in SMALL:
            value, last = value + SMALL[lower[i + 2]], i + 3
        elif word in TENS and i + 1 < len(lower) and 0 < SMALL.get(lower[i + 1], 0) < 10:
            value, last = value + SMALL[lower[i + 1]], i + 2
    if value is None and word in SCALES and i and lower[i - 1] == "a":
        value, last = Fraction(SCALES[word]), i + 1
    if value is None:
        return None
    while last < len(lower) and lower[last] in SCALES:
        value, last = value * SCALES[lower[last]], last + 1
    if last < len(lower) and lower[last] in FRACTIONS:
        return Quantity(value / FRACTIONS[lower[last]], i, last + 1, "share")
    if word == "one" and last == i + 1:
        return None
    return Quantity(value, i, last, "plain")


def _digits(word: str) -> Fraction | None:
    if not word[0].isdigit() and not (word[0] == "." and len(word) > 1):
        return None
    try:
        return Fraction(word.replace(",", ""))
    except ValueError:
        return None


def _fraction(lower: list[str], i: int) -> Quantity:
    return Quantity(Fraction(1, FRACTIONS[lower[i]]), i, i + 1, "share")


def _with_unit(quantity: Quantity, words: Sequence[str], lower: list[str]) -> Quantity:
    first, last, value, kind = quantity.first, quantity.last, quantity.value, quantity.kind
    after = lower[last] if last < len(lower) else ""
    if after in ("%", "percent"):
        value, kind, last = value / 100, "share", last + 1
    elif after == "times":
        kind, last = "factor", last + 1
    elif first and words[first - 1] in CURRENCIES:
        kind, first = "money", first - 1
    elif after in ("dollars", "dollar", "euros", "usd"):
        kind = "money"
    return Quantity(value, first, last, kind, " ".join(words[first:last]))

"""What a text of formulas says its variables are: ``x, y >= 0 and integer``, ``z is free``, ``all variables binary``.

Knows marks and which of them are formulas. Does not know relations.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from icml25cli.papers.formulate.grammar.structures.marks import Token
from icml25cli.papers.formulate.grammar.structures.structure import REAL, WHOLE, Component

_ALL = {"all", "both", "variables", "every", "each"}
_LINKS = {"is", "are", "be", "must", "should", "have", "has", "to", "being", "an", "also", "or", "of", "them", "the"}
_SIGNED = 0.8  # chance that variables are not negative where nobody says it


@dataclass
class Declarations:
    """Kinds by name, and the places of the words that say them."""

    kinds: dict[str, set[str]] = field(default_factory=dict)
    bounded: set[str] = field(default_factory=set)  # names that are said to be not negative
    used: set[int] = field(default_factory=set)

    def variables(self, names: Sequence[str], negative: Collection[str]) -> tuple[tuple[Component, float], ...]:
        """Choices of variables with their chances.

        Args:
            negative: names with a bound below zero, which then is their only one.
        """
        said = {name: self.kinds.get(name, set()) for name in names}
        told = any(each & {"whole", "binary", "real"} for each in said.values())
        open_ = [n for n in names if not said[n] & {"binary", "free", "signed"} and n not in self.bounded | {*negative}]
        signed = _SIGNED if open_ and not any("signed" in each for each in said.values()) else 1.0
        found = []
        for whole, chance in ((False, 1.0),) if told else ((False, 0.95), (True, 0.05)):
            for lower, share in ((0, signed), (None, 1 - signed)):
                if share < 1e-9:
                    continue
                variant: Component = {}
                for name in names:
                    kinds = said[name]
                    kind = "BINARY" if "binary" in kinds else WHOLE if whole or "whole" in kinds else REAL
                    free = "free" in kinds or name in negative or (lower is None and name in open_)
                    variant[name] = {"description": name, "type": kind, "lower": None if free else 0}
                found.append((variant, chance * share))
        return tuple(found)


def declared(
    marks: Sequence[Token],
    in_formulas: Collection[int],
    relations: Mapping[int, tuple[int, list[str], bool]],
    names: Collection[str],
) -> Declarations:
    """What words of kinds say, and of whom: names before them, names behind, the relation before, or all.

    Args:
        relations: by the place of its first token where a relation ends, the names that it bounds alone, and whether
            the bound is zero.
    """
    found = Declarations()
    subject: list[str] = []  # of whom the next kind is said
    places: list[int] = []
    ahead: list[str] = []  # kinds said before their names: "integers x and y"
    fresh = closed = False  # whether a name continues the subject; whether a kind was said of it
    i = 0
    while i < len(marks):
        token = marks[i]
        if i in relations:
            i, bounded, at_zero = relations[i]
            if at_zero:
                found.bounded |= {*bounded}
            for name in bounded if ahead else ():
                found.kinds.setdefault(name, set()).update(ahead)
            ahead = []
            subject = [*subject, *bounded] if at_zero and fresh and not closed else [*bounded]
            places, fresh, closed = [], at_zero, False
            continue
        said = token.text.lower()
        if i in in_formulas:
            subject, places, ahead, fresh, closed = [], [], [], False, False
        elif token.kind == "kind":
            found.used.add(i)
            if subject:
                for name in subject:
                    found.kinds.setdefault(name, set()).add(token.text)
                found.used |= {*places}
                closed = True
            else:
                ahead.append(token.text)
        elif token.text in names:
            if ahead:
                found.kinds.setdefault(token.text, set()).update(ahead)
                found.used.add(i)
            subject = [*subject, token.text] if fresh and not closed else [token.text]
            places = [*places, i] if fresh and not closed else [i]
            fresh, closed = True, False
        elif said == "variables" and i + 1 < len(marks) and marks[i + 1].text in names:
            pass  # "binary variables x and y"
        elif said in _ALL:
            subject, places, fresh, closed = [*names], [i], False, False
            for name in names if ahead else ():
                found.kinds.setdefault(name, set()).update(ahead)
            ahead = []
        elif said in _LINKS:
            places.append(i)
        elif said in (",", "and"):
            pass
        else:
            _of_all(found, ahead, names, subject)
            subject, places, ahead, fresh, closed = [], [], [], False, False
        i += 1
    _of_all(found, ahead, names, subject)
    return found


def _of_all(found: Declarations, ahead: Sequence[str], names: Collection[str], subject: Sequence[str]) -> None:
    """Kinds of which no name was said are of all."""
    for name in names if ahead and not subject else ():
        found.kinds.setdefault(name, set()).update(ahead)

"""Lists of numbers in prose: ``325, 300 and 275 cases``, ``5 hours for painting, 9 for wiring and 4 for plumbing``.

Knows words and numbers. Does not know what a list is about.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from icml25cli.papers.formulate.grammar.lexicon import SAYS_NOTHING
from icml25cli.papers.formulate.grammar.numbers import Quantity, quantities
from icml25cli.papers.formulate.grammar.tagger import stem
from icml25cli.papers.formulate.grammar.text import Problem

JOINTS = {",", "and", "or", ";"}
_TO = {"for", "on", "to", "in", "at", "from", "by"}
_LABEL = 3  # words of a label


@dataclass(frozen=True)
class Series:
    """Numbers of one kind and unit that stand in a row, each with what it is for, where that is said."""

    numbers: tuple[Quantity, ...]
    labels: tuple[str, ...] = ()  # as many as numbers, or none

    @property
    def first(self) -> int:
        return self.numbers[0].first

    @property
    def kind(self) -> str:
        return self.numbers[0].kind

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class Listed:
    """A text's lists of numbers and of names."""

    problem: Problem

    @cached_property
    def numbers(self) -> list[Quantity]:
        return quantities(self.problem.words)

    @cached_property
    def series(self) -> list[Series]:
        """Lists of two and more numbers, in order."""
        runs: list[list[tuple[Quantity, str]]] = []
        for quantity in self.numbers:
            label, end = self._label(quantity)
            joins = runs and self._joins(runs[-1][-1][0], quantity, end, bool(label))
            if joins:
                runs[-1].append((quantity, label))
            else:
                runs.append([(quantity, label)])
        found = []
        for run in runs:
            if len(run) < 2:
                continue
            labels = tuple(label for _, label in run)
            told = all(labels) and len({*labels}) == len(labels)
            found.append(Series(tuple(quantity for quantity, _ in run), labels if told else ()))
        return found

    def _label(self, quantity: Quantity) -> tuple[str, int]:
        """What a number is for, ``for painting``, within a few words, and the place behind it."""
        lower = self.problem.lower
        _, end = self.problem.sentence_of(quantity.first)
        place = quantity.last
        for place in range(quantity.last, min(quantity.last + 3, end)):
            if lower[place] in JOINTS:
                return "", quantity.last
            if lower[place] in _TO:
                break
        else:
            return "", quantity.last
        words = []
        for i in range(place + 1, min(place + 1 + _LABEL, end)):
            if lower[i] in JOINTS or not lower[i][0].isalnum():
                break
            if lower[i] not in SAYS_NOTHING or len(lower[i]) == 1:
                words.append(self.problem.words[i])
            place = i
        return " ".join(words), place + 1

    def _joins(self, before: Quantity, quantity: Quantity, end: int, labelled: bool) -> bool:
        lower = self.problem.lower
        if self.problem.sentence_of(before.first) != self.problem.sentence_of(quantity.first):
            return False
        if before.kind != quantity.kind:
            return False
        _, behind = self._label(before)
        between = lower[behind : quantity.first]
        if not between or not set(between) <= JOINTS:
            between = lower[before.last : quantity.first]
            others = [word for word in between if word not in JOINTS]
            unit = self.problem.unit(quantity)
            if len(others) > 1 or len(others) == len(between) or (others and stem(others[0]) != stem(unit or "")):
                return False
        return True

    def names(self, count: int) -> list[tuple[str, ...]]:
        """Lists of so many single words: ``Ann, Bob and Cleo``."""
        words, lower = self.problem.words, self.problem.lower
        found = []
        for start, end in self.problem.sentences:
            for first in range(start, end):
                run, place = [], first
                while place < end and lower[place].isalpha() and lower[place] not in SAYS_NOTHING:
                    run.append(words[place])
                    behind = place + 1
                    while behind < end and lower[behind] in JOINTS:
                        behind += 1
                    if behind == place + 1 or (first > start and lower[first - 1] == ","):
                        break
                    place = behind
                if len(run) == count and len({*map(stem, run)}) == count:
                    found.append(tuple(run))
        return found

    def left_over(self, used: Sequence[Quantity], counts: Sequence[int]) -> tuple[str, ...]:
        """Numbers that are neither used nor say how many things there are."""
        places = {quantity.first for quantity in used}
        return tuple(
            each.written
            for each in self.numbers
            if each.first not in places and each.value not in (*counts, 1) and each.kind != "factor"
        )

    def owners(self, series: Sequence[Series]) -> list[str] | None:
        """Whose each list is, by the word that its surroundings alone have; None where they are not told apart."""
        options = []
        for behind in (False, True):
            contexts = [self._context(each, behind) for each in series]
            names = _told_apart(contexts)
            if names is not None:
                proper = sum(name[-1][0].isupper() or name[-1].isdigit() for name in names)
                options.append((proper, not behind, [" ".join(name) for name in names]))
        return max(options)[2] if options else None

    def _context(self, series: Series, behind: bool) -> list[str]:
        begin, end = self.problem.sentence_of(series.first)
        if behind:
            first = series.numbers[-1].last
            last = min([end, *(q.first for q in self.numbers if q.first >= first)])
        else:
            last = series.first
            first = max([begin, *(q.last for q in self.numbers if begin <= q.first and q.last <= last)])
        return [word for word in self.problem.words[first:last] if word[0].isalnum()]

    def after(self, name: str, taken: Sequence[Quantity]) -> Quantity | None:
        """The number that follows a name, in the same sentence and before a comma ends what is said of it."""
        words, lower = self.problem.words, self.problem.lower
        own = name.split()
        places = {quantity.first for quantity in taken}
        for i in range(len(words)):
            if [*map(stem, words[i : i + len(own)])] != [*map(stem, own)] or (
                own[-1][0].isupper() and words[i + len(own) - 1] != own[-1]
            ):
                continue
            _, end = self.problem.sentence_of(i)
            for quantity in self.numbers:
                between = lower[i + len(own) : quantity.first]
                near = i < quantity.first < end and len(between) <= 6
                if near and not set(between) & {",", ";", "and"} and quantity.first not in places:
                    return quantity
        return None


def _told_apart(contexts: Sequence[list[str]]) -> list[tuple[str, ...]] | None:
    """For each context a word that no other has, names first, with the word before it where all have that."""
    found = []
    for i, words in enumerate(contexts):
        others = {stem(word) for j, other in enumerate(contexts) if j != i for word in other}
        own = [
            place
            for place, word in enumerate(words)
            if stem(word) not in others and (word.lower() not in SAYS_NOTHING or re.fullmatch("[A-Z]", word))
        ]
        if not own:
            return None
        place = next((p for p in own if words[p][0].isupper() or words[p].isdigit()), own[0])
        found.append((words[place - 1] if place else "", words[place]))
    heads = {stem(before) for before, _ in found}
    if len(heads) == 1 and heads != {""} and not heads & SAYS_NOTHING:
        return found
    return [(word,) for _, word in found]

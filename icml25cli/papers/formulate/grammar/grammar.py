"""The grammar as a back end of the search: it draws components from its distribution, and judges by its likelihood.

    grammar = Grammar(text, temperature=1.0)
    Search(grammar, grammar, Settings()).run()

Every draw takes each decision (variables, whose a number is, what is aimed at, how a limit is meant) from a softmax of
its weights. The judge adds the logarithms of what was drawn, how many numbers went unused, and what the solver says;
votes are such sums with noise, so that rankings of near ties vary as an expert's would. Knows one text.
"""

import json
import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from icml25cli.papers.formulate.backend import Draft
from icml25cli.papers.formulate.formulation import Formulation
from icml25cli.papers.formulate.grammar.facts import Attribute
from icml25cli.papers.formulate.grammar.judging import Judge, solved_as_meant
from icml25cli.papers.formulate.grammar.limits import Limit
from icml25cli.papers.formulate.grammar.mentions import Choice, choices
from icml25cli.papers.formulate.grammar.numbers import Quantity
from icml25cli.papers.formulate.grammar.reading import Owned, Reading, label
from icml25cli.papers.formulate.grammar.text import Problem
from icml25cli.papers.formulate.grammar.unread import unmet
from icml25cli.papers.formulate.linear import sanitised

UNUSED = -0.8  # for a number that appears nowhere
CHOICES = 8  # of variables that are looked into
FILLED = 4.0  # for a table of facts without holes
FLIP = 0.03  # chance of the direction that is not the one said, where none of "maximize" and "minimize" is
CLEAR = 0.003  # and where one of them is
Item = TypeVar("Item")


class Grammar(Judge):
    """Proposer and judge for one text.

    Args:
        temperature: of all draws; small ones repeat the likeliest reading.
        domain: type of all variables, where the user says it.
    """

    def __init__(self, text: str, temperature: float = 1.0, domain: str | None = None) -> None:
        self.problem = Problem(text)
        self.temperature = temperature
        self._domain = domain
        self._readings: dict[tuple[str, ...], Reading] = {}
        self._logs: dict[tuple[str, str], float] = {}  # likelihood of a component, given those before it
        self._rows: dict[tuple[Any, Owned], list[Attribute]] = {}
        self._aims: dict[str, set[Quantity]] = {}  # numbers of an objective
        self.wording: dict[str, str] = {}  # what the text says for a constraint, by its label
        self._said_at: dict[str, int] = {}  # and where
        self.parameters, self._named = self._parameters()
        found = choices(self.problem.words, self.problem.tags, self.problem.spans)[:CHOICES]
        filled = [Reading(self.problem, choice.phrases).completeness for choice in found]
        scored = [replace(c, score=c.score + FILLED * share) for c, share in zip(found, filled, strict=True)]
        self.choices = sorted(scored, key=lambda choice: -choice.score)

    # --- proposals -------------------------------------------------------------------------------------------------

    def propose(self, key: str, partial: Formulation, count: int, seed: int) -> list[Any]:
        draw = random.Random(seed)
        if key == "parameters":
            return [self.parameters] * count
        if not self.choices:
            return [None] * count
        return [self._drawn(key, partial, draw) for _ in range(count)]

    def _drawn(self, key: str, partial: Formulation, draw: random.Random) -> Any:
        if key == "decision_variables":
            value, log = self._variables(draw)
        else:
            names = tuple(variable.name for variable in partial.variables or ())
            reading = self._readings[names]
            if key == "objective":
                value, log = self._objective(reading, names, draw)
            elif key == "equality_constraints":
                value, log = self._constraints(reading, names, partial, draw, equal=True)
            else:
                value, log = self._constraints(reading, names, partial, draw, equal=False)
        place = (key + "|" + _context(key, partial), json.dumps(value))
        self._logs[place] = max(log, self._logs.get(place, -math.inf))
        return value

    def _parameters(self) -> tuple[dict[str, int | float], dict[Quantity, str]]:
        """Numbers of the text by name, and how each is written in an expression."""
        labels = [label(self.problem, quantity) for quantity in self.problem.quantities]
        wanted = [f"{name}_{labels[:i].count(name) + 1}" for i, name in enumerate(labels)]
        parameters: dict[str, int | float] = {}
        written = {}
        for quantity, name in zip(self.problem.quantities, sanitised(wanted), strict=True):
            value = quantity.value
            if value.denominator == 1:
                parameters[name], written[quantity] = int(value), name
            elif float(value).as_integer_ratio() and len(repr(float(value))) < 14:
                parameters[name], written[quantity] = float(value), name
            else:  # a third is no decimal
                parameters[name], written[quantity] = value.denominator, f"{value.numerator} / {name}"
        return parameters, written

    def _variables(self, draw: random.Random) -> tuple[dict[str, Any], float]:
        choice, log = self._pick(self.choices, lambda c: 1.5 * c.score, draw)
        names = self._names(choice)
        reading = self._readings.setdefault(names, Reading(self.problem, choice.phrases))
        continuous = 0.85 if reading.bulk > 0.3 else 0.04
        kind = "CONTINUOUS" if draw.random() < continuous else "INTEGER"
        if self._domain is None:
            log += math.log(continuous if kind == "CONTINUOUS" else 1 - continuous)
        value = {
            name: {"description": " ".join(words), "type": self._domain or kind}
            for name, words in zip(names, choice.phrases, strict=True)
        }
        return value, log

    def _names(self, choice: Choice) -> tuple[str, ...]:
        taken = set(self.parameters)
        names = sanitised("_".join(words) for words in choice.phrases)
        return tuple(f"x_{name}" if name in taken else name for name in names)

    def _objective(self, reading: Reading, names: tuple[str, ...], draw: random.Random) -> tuple[dict[str, str], float]:
        rows, log = self._table(reading, draw)
        target, chance = self._pick(reading.targets(rows), lambda t: t.score, draw)
        log += chance
        sense = target.sense
        flip = CLEAR if reading.is_clear else FLIP
        if draw.random() < flip:
            sense, log = ("min" if sense == "max" else "max"), log + math.log(flip)
        if target.row is None:
            expression = " + ".join(names)
        else:
            expression = self._sum(rows[target.row], names)
            self._aims[expression] = set(rows[target.row].coefficients.values())
        return {sense: expression}, log

    def _constraints(
        self, reading: Reading, names: tuple[str, ...], partial: Formulation, draw: random.Random, *, equal: bool
    ) -> tuple[dict[str, str], float]:
        """A joint draw: surest limits first, and a row that is bounded already is less likely to be bounded again."""
        rows, log = self._table(reading, draw)
        aimed = self._aims.get(partial.objective.expression if partial.objective else "", set())
        said: dict[str, str] = {}
        used: set[tuple[int | None, str]] = set()
        groups = [group for group in reading.limits(rows) if group]
        for group in sorted(groups, key=_margin, reverse=True):

            def weight(limit: Limit) -> float:
                score = limit.score
                if limit.row is not None and (limit.row, limit.side) in used:
                    score -= 2.5
                if limit.row is not None and aimed & set(rows[limit.row].coefficients.values()):
                    score -= 1.0
                return score

            limit, chance = self._pick(group, weight, draw)
            log += chance
            if limit.row is not None:
                used.add((limit.row, limit.side))
            if (limit.side == "==") == equal:
                said |= self._quoted(limit, rows, names)
        for limit in reading.orders:
            stays = 0.93 if limit.score > 1 else 0.4
            if draw.random() < stays:
                log += math.log(stays)
                if not equal:
                    said |= self._quoted(limit, rows, names)
            else:
                log += math.log(1 - stays)
        return said, log

    def _table(self, reading: Reading, draw: random.Random) -> tuple[list[Attribute], float]:
        log = 0.0
        owned: list[tuple[Quantity, tuple[int, ...]]] = []
        for quantity in reading.facts:
            options = [*enumerate(reading.owners[quantity])]
            (_, whose), chance = self._pick(options, lambda option: -2.8 * option[0], draw)
            log += chance
            owned.append((quantity, whose))
        key = (reading.names, tuple(owned))
        if key not in self._rows:
            self._rows[key] = reading.rows(tuple(owned))
        return self._rows[key], log

    def _pick(
        self, options: Sequence[Item], weight: Callable[[Item], float], draw: random.Random
    ) -> tuple[Item, float]:
        """One of several by the softmax of their weights, and the logarithm of its share of the best."""
        scores = [weight(option) for option in options]
        top = max(scores)
        chances = [math.exp((score - top) / self.temperature) for score in scores]
        place = draw.choices(range(len(options)), chances)[0]
        return options[place], scores[place] - top - math.log(math.fsum(math.exp(score - top) for score in scores))

    # --- writing -----------------------------------------------------------------------------------------------------

    def _sum(self, row: Attribute, names: Sequence[str]) -> str:
        return " + ".join(f"{self._named[row.coefficients[k]]} * {names[k]}" for k in sorted(row.coefficients))

    def _quoted(self, limit: Limit, rows: Sequence[Attribute], names: Sequence[str]) -> dict[str, str]:
        """A limit as constraints by label; where it is said is kept."""
        written = self._written(limit, rows, names)
        for title in written:
            place = limit.quantity.first if limit.quantity else limit.place
            self.wording[title], self._said_at[title] = self.problem.clause(place), place
        return written

    def _written(self, limit: Limit, rows: Sequence[Attribute], names: Sequence[str]) -> dict[str, str]:
        everything = " + ".join(names)
        number = self._named[limit.quantity] if limit.quantity else ""
        title = number.split(" / ")[-1] if number else f"order_{names[limit.which[0]]}"
        if limit.kind == "linear":
            assert limit.row is not None
            return {title: f"{self._sum(rows[limit.row], names)} {limit.side} {number}"}
        if limit.kind == "sum":
            return {title: f"{everything} {limit.side} {number}"}
        if limit.kind == "bound":
            several = len(limit.which) > 1
            return {
                f"{title}_{names[k]}" if several else title: f"{names[k]} {limit.side} {number}" for k in limit.which
            }
        first = names[limit.which[0]]
        if limit.kind == "ratio":
            return {title: f"{first} {limit.side} {number} * ({everything})"}
        second = names[limit.which[1]]
        if limit.kind == "per":
            base = f"{self._named[limit.base]} * " if limit.base else ""
            return {title: f"{base}{first} {limit.side} {number + ' * ' if number else ''}{second}"}
        if limit.kind == "excess":
            return {title: f"{first} {limit.side} {second} + {number}"}
        return {title: f"{first} {limit.side} {number} * {second}" if number else f"{first} {limit.side} {second}"}

    # --- judgement ---------------------------------------------------------------------------------------------------

    def likelihood(self, draft: Draft) -> float:
        document = draft.formulation.document()
        total = 0.0
        for key in ("decision_variables", "objective", "equality_constraints", "inequality_constraints"):
            value = document[key]
            if value is None:
                break
            if key == "decision_variables":
                value = {name: {k: v[k] for k in ("description", "type")} for name, v in value.items()}
            total += self._logs.get((key + "|" + _context(key, draft.formulation), json.dumps(value)), -12.0)
        if draft.formulation.depth == 4:
            total += UNUSED * len(self.unused(draft.formulation))
        return total + solved_as_meant(draft)

    def missing(self, formulation: Formulation) -> list[str]:
        numbers = [*self.problem.told, *self.problem.ignored]
        return [quantity.written for quantity in self._without_place(numbers, formulation)]

    @property
    def guesses_domain(self) -> bool:
        return self._domain is None

    def unread(self, formulation: Formulation) -> list[str]:
        """Sentences that limit without a number, and clauses about a variable or a limit with a number of no use."""
        unused = {*self._without_place(self.problem.quantities, formulation)}
        used = {quantity.first for quantity in self.problem.quantities if quantity not in unused}
        document = formulation.document()
        titles = {*(document["equality_constraints"] or {}), *(document["inequality_constraints"] or {})}
        used |= {place for title, place in self._said_at.items() if title in titles}
        reading = self._readings[tuple(variable.name for variable in formulation.variables or ())]
        lost = [number for number in reading.binding if number in unused]
        return [*dict.fromkeys([*(self.problem.clause(number.first) for number in lost), *unmet(self.problem, used)])]

    def unused(self, formulation: Formulation) -> list[Quantity]:
        """Numbers that say something about the model and do not stand in it."""
        return self._without_place(self.problem.told, formulation)

    def _without_place(self, numbers: Iterable[Quantity], formulation: Formulation) -> list[Quantity]:
        document = formulation.document()
        text = json.dumps([document[key] for key in document if key not in ("parameters", "decision_variables")])
        names = set(re.findall(r"\w+", text))
        return [each for each in numbers if self._named[each].split()[-1] not in names]


def _margin(group: Sequence[Limit]) -> float:
    scores = sorted((limit.score for limit in group), reverse=True)
    return scores[0] - scores[1] if len(scores) > 1 else 9.0


def _context(key: str, partial: Formulation) -> str:
    """What a component depends on: the variables, and for constraints the objective."""
    if key == "decision_variables":
        return ""
    names = ",".join(variable.name for variable in partial.variables or ())
    if key == "objective" or partial.objective is None:
        return names
    return f"{names}|{partial.objective.expression}"

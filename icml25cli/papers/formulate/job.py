"""From a problem in words to a solved model, with its rivals and how sure the answer is.

    outcome = formulate_text(text, Settings())
    outcome.status, outcome.best, outcome.confidence

Knows the search and its back ends. Does not know files, nor how an answer is shown.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from icml25cli.core.errors import InputError, MissingError
from icml25cli.papers.formulate.backends.chat import Chat
from icml25cli.papers.formulate.backends.language import LanguageModel
from icml25cli.papers.formulate.confidence import agreement, answer, confidence, does_nothing
from icml25cli.papers.formulate.grammar.grammar import Grammar
from icml25cli.papers.formulate.grammar.judging import Judge
from icml25cli.papers.formulate.grammar.scope import ambiguous_number, foreign, out_of_scope, too_long
from icml25cli.papers.formulate.grammar.structures import read_structure
from icml25cli.papers.formulate.grammar.structures.structure import Structured, Unreadable
from icml25cli.papers.formulate.grammar.text import Problem
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.search import Found, Search
from icml25cli.papers.formulate.settings import TYPES_OF, Domain, Settings
from icml25cli.papers.formulate.tree import Node, mean_path_value

LONGEST = 200_000  # characters of a text


@dataclass(frozen=True)
class Outcome:
    """What came of a text. ``best`` is None where the grammar abstained or nothing could be made of the text."""

    text: str
    status: str  # of the best leaf, or "abstained"
    reason: str  # why it abstained
    found: Found | None
    best: Node | None
    confidence: float  # in [0, 1], that the best leaf is what the text means
    wording: Mapping[str, str] = field(default_factory=dict)  # what the text says for constraints, by their labels
    cut: MissingError | None = None  # what ended the search before its time
    doubts: tuple[str, ...] = ()  # what speaks against the best
    guesses_domain: bool = False  # whether nobody said what is whole

    def ranked(self) -> list[dict[str, Any]]:
        """A row a distinct reading, best first: what it is worth, and how it differs from the best."""
        if self.found is None or self.best is None:
            return []
        found = self.found
        strengths = dict(zip(map(id, found.leaves), found.strengths(), strict=True))
        order = [self.best, *(leaf for leaf in found.order() if leaf is not self.best)]
        rows = []
        for place, leaf in enumerate(order, 1):
            solution = leaf.solution
            rows.append(
                {
                    "rank": place,
                    "status": solution.status if solution else "unknown",
                    "objective": solution.objective if solution else None,
                    "value": round(mean_path_value(leaf, found.settings.weight), 4),
                    "bradley_terry": round(strengths.get(id(leaf), 0.0), 4),
                    "differs": ""
                    if leaf is self.best
                    else "; ".join(differences(self.best, leaf)) or "in bounds alone",
                }
            )
        return rows


def formulate_text(
    text: str, settings: Settings, expanded: Callable[[Node], None] | None = None, chat: Chat | None = None
) -> Outcome:
    """Read a problem with the grammar or with a language model, search its readings, and solve the best.

    Args:
        chat: a language model; the grammar without.

    Raises:
        InputError: there is no text, or it is no problem in words (binary, overlong).
        MissingError: the language model was out of reach or its budget spent before anything was found; later,
            ``cut`` of the outcome is that error.
    """
    if not text.strip():
        raise InputError("the problem is empty", hint="describe what is decided, its limits and its aim")
    if len(text) > LONGEST:
        raise InputError(f"the problem has {len(text)} characters", hint=f"at most {LONGEST} are read")
    if "\0" in text:
        raise InputError("the problem is no text", hint="give words in UTF-8")
    backend = LanguageModel(text, chat) if chat is not None else _reader(text, settings.domain)
    if isinstance(backend, str):
        return Outcome(text, "abstained", backend, None, None, 0.0)
    search = Search(backend, backend, settings, expanded)
    cut = None
    try:
        search.run()
    except MissingError as error:
        if not search.found.leaves:
            raise
        search.found.stopped, cut = "cut short", error
    found = search.found
    order = found.order()
    if not order:
        reason = "no reading of it became a model"
        if isinstance(backend, LanguageModel) and backend.unreadable:
            reason += f": {backend.unread}"
        elif told := next((node.reason for node in found.root.walk() if node.status == "invalid"), ""):
            reason += f": {told}"
        return Outcome(text, "abstained", reason, found, None, 0.0)
    if isinstance(backend, LanguageModel):
        best, said, guesses = order[0], {}, False
        doubts = (backend.unread,) if backend.unread else ()
        sure = agreement(found, best)
    else:
        best, said = answer(backend, found) or order[0], backend.wording
        sure, doubts, guesses = confidence(backend, found, best), _doubts(backend, best), backend.guesses_domain
    assert best.solution is not None
    return Outcome(text, best.solution.status, "", found, best, sure, said, cut, doubts, guesses)


def _doubts(grammar: Judge, best: Node) -> tuple[str, ...]:
    """What speaks against a reading: what of the text it lacks, and an optimum where nothing is done."""
    missing = grammar.missing(best.formulation)
    said = [f"the model has no place for {', '.join(missing)}"] if missing else []
    said += [f'not used, or not all of it: "{sentence}"' for sentence in grammar.unread(best.formulation)]
    if does_nothing(best):
        said.append("at the least nothing is done, so a demand may not have been read")
    return tuple(said)


def _reader(text: str, domain: Domain) -> Grammar | Structured | str:
    """The reader of a text without a language model: of its form, or any; else why there is none."""
    if reason := foreign(text) or ambiguous_number(text):
        return reason
    problem, kind = Problem(text), TYPES_OF[domain]
    try:
        structure = read_structure(problem)
    except Unreadable as error:
        return str(error)
    if structure is not None:
        return Structured(structure, kind)
    if reason := too_long(problem):
        return reason
    grammar = Grammar(text, domain=kind)
    return out_of_scope(grammar) or grammar


def differences(best: Node, other: Node) -> list[str]:
    """What another leaf says that the best does not, and the other way round, in a sentence each."""
    one, two = best.model, other.model
    assert one is not None
    assert two is not None
    said = []
    names = [[(column.name, column.integer) for column in model.columns] for model in (one, two)]
    if sorted(names[0]) != sorted(names[1]):
        if sorted(name for name, _ in names[0]) == sorted(name for name, _ in names[1]):
            said.append("whole variables" if any(whole for _, whole in names[1]) else "variables need not be whole")
        else:
            said.append(f"decides {', '.join(name for name, _ in names[1])}")
    aims = [f"{model.sense} {model.written(model.objective, model.constant)}" for model in (one, two)]
    if aims[0] != aims[1]:
        said.append(aims[1])
    rows = [{model.row_text(row) for row in model.rows} for model in (one, two)]
    said += [f"with {text}" for text in sorted(rows[1] - rows[0])[:3]]
    said += [f"without {text}" for text in sorted(rows[0] - rows[1])[:3]]
    return said


def mathematics(model: LinearModel) -> list[str]:
    """A model as a person writes it, a line each."""
    whole = [column.name for column in model.columns if column.integer]
    lines = [f"{model.sense} {model.written(model.objective, model.constant)}", "subject to"]
    lines += [f"  {row.name}: {model.row_text(row)}" for row in model.rows]
    lines.append(
        f"  {', '.join(column.name for column in model.columns)} >= 0"
        + (f"; whole: {', '.join(whole)}" if whole else "")
    )
    return lines

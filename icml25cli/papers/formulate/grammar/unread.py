"""Sentences of a text that a model was not made of, though they seem to say something about it.

    unread(problem, used, groups=[["tent", "stove", "rope"]], counts=(3,))

A reader of a known form finds its data and would pass over all else. Here every sentence is accounted for: it holds
data that were used, asks for the optimum, or is talk without a number, a word that limits, or one thing singled out of
many. What is none of these is named. Knows words. Does not know models.
"""

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from icml25cli.papers.formulate.grammar.numbers import Quantity, quantities
from icml25cli.papers.formulate.grammar.tagger import stem
from icml25cli.papers.formulate.grammar.text import Problem

# Ways to ask for an optimum and to greet, whose words limit nothing.
_ASKS = re.compile(
    r"\bas (?:much|many|little|few|cheap|cheaply|soon|early|low|high|small|large|great)\b(?: \w+){0,6}? as possible\b|"
    r"\b(?:min|max)imi[sz]\w*|\bhow (?:many|much|few)\b|\bof each\b|\bin all\b|\beach (?:day|week|month|year)\b|"
    r"\b(?:what|which|who|how|where|why)\b[^.?!;]{0,40}\b(?:should|must|shall|do|does|is|are|can)\b|"
    r"\b(?:should|must|shall)\b(?= \w+ (?:do|make|take|buy|build|carry|pack|choose|send|ship|hire|cut)\b)|"
    r"\b(?:find|choose|gives?|want|get|earn|make|use|need|what|which)\b[^.?!;]{0,60}\b(?:greatest|largest|highest|lowest|smallest|best|"
    r"cheapest|most|fewest|few)\b|\bthan (?:last|before)\b|\bat the (?:least|most)\b",
    re.I,
)
# What every model of that kind says already.
_MET = re.compile(
    r"\b(?:meet|satisfy|fill|cover|fulfil|serve)(?:ing)? (?:all|every|each|any)\b(?: of)?(?: \w+){0,2}|"
    r"\ball (?:the )?(?:demands?|orders?|needs|requirements?)\b[^.,;]{0,30}\b(?:met|satisfied|filled|covered|served)\b",
    re.I,
)
_WEAK = re.compile(r"\b(?:must|has to|have to|should|shall|needs? to|can|could|may)\b", re.I)
_STRONG = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|cannot|without|unless|if|either|or|only|both|together|"
    r"along with|each|every|any|all|twice|half|double|triple|at (?:least|most)|more|less|fewer|exceeds?|"
    r"limit\w*|maximum|minimum|restrict\w*|reserve[ds]?|closed|forbid\w*|forbidden|prohibit\w*|allowed|excluded?|"
    r"except|already|broken|useless|lost|instead|extra|surcharge|exactly|equal|same|different|as many|as much|times|"
    r"ignor\w+|drop|delete|remove|relax|constraints?|conditions?|whole|fraction\w*|split|multiples?|sets? of|packs? of|"
    r"pairs?|free|unavailable|available|mandatory|optional|compulsory|required|otherwise|then|until|while stocks|"
    r"larger|smaller|greater|higher|lower|above|below|between|first|second|third|last)\b|n['’]t\b",
    re.I,
)
_BINDS = re.compile(
    r"\b(?:cannot|(?:can|may|must|should|will) not|can['’]t|mustn['’]t|shouldn['’]t|won['’]t|are not|is not|"
    r"isn['’]t|aren['’]t|never|nobody|unless|exceed\w*|reserved|closed|forbidden|prohibited|unavailable|without|together|neither|"
    r"(?:must|has to|have to|should) (?:also )?(?:be|stay|remain|include|contain|match|equal|outnumber)|already|"
    r"(?:more|fewer|less|as many|as much|larger|smaller) [^.]{1,60}\b(?:than|as)\b)(?!\w)",
    re.I,
)
# Small counts that are words, which are no numbers for the grammar: at least one guide; one guide for every group.
_ONE = re.compile(
    r"\b(?:at (?:least|most|minimum)|(?:no|not) (?:more|fewer|less) than|up to|exactly|only|just) (?:an?|one|single)\b|"
    r"\b(?:an?|one|single) (?:\w+ ){1,4}(?:for|to|with|by) (?:every|each)\b",
    re.I,
)
_PARTS = {",", ";", ":", "but", "while", "whereas"}
_CLAUSE = {",", ";", ":", "but", "while", "whereas", "and"}


def unread(
    problem: Problem,
    used: Collection[int],
    groups: Sequence[Sequence[str]] = (),
    counts: Collection[int] = (),
    known: re.Pattern[str] | None = None,
) -> tuple[str, ...]:
    """Sentences, as they stand in the text, that a model of these data does not account for.

    Args:
        used: places of the numbers, or other words, that the model has.
        groups: names of what the model is about, a group a kind: to single out one of them says something.
        counts: how many there are of a kind, which is no further number.
        known: what such a model says whether it is said or not.
    """
    numbers = quantities(problem.words)
    found = []
    for begin, end in problem.sentences:
        said = problem.shown(begin, end)
        here = [number for number in numbers if begin <= number.first < end]
        if _is_left_over(here, used, counts):
            found.append(said)
        elif {*used} & {*range(begin, end)}:
            clauses = _clauses(problem, begin, end, used)
            if any(_limits(_rest(clause, known), strong_only=False) for clause in clauses):
                found.append(said)
        elif _limits(_rest(said, known), strong_only=bool(here) or bool(_ASKS.search(said))) or (
            not _ASKS.search(said) and any(_singles_out(problem.words[begin:end], names) for names in groups)
        ):
            found.append(said)
    return tuple(found)


def unmet(problem: Problem, used: Collection[int]) -> tuple[str, ...]:
    """Sentences that bind, and their clauses, of which nothing was used: for stories, where most sentences only tell.

    Args:
        used: places of the numbers, or other words, that the model has.
    """
    found = []
    for begin, end in problem.sentences:
        said = problem.shown(begin, end)
        if _ASKS.search(said):
            continue
        if not {*used} & {*range(begin, end)}:
            if _BINDS.search(_MET.sub(" ", said)) or _ONE.search(said):
                found.append(said)
        else:
            found += [part for part in _clauses(problem, begin, end, used, _PARTS) if _ONE.search(part)]
    return tuple(found)


def _is_left_over(numbers: Sequence[Quantity], used: Collection[int], counts: Collection[int]) -> bool:
    return any(
        number.first not in used and (number.kind != "plain" or number.value not in (*counts, 1)) for number in numbers
    )


def _rest(said: str, known: re.Pattern[str] | None) -> str:
    """A sentence without what asks for the optimum, and without what its model says anyhow."""
    for pattern in (known, _MET, _ASKS):
        if pattern is not None:
            said = pattern.sub(" ", said)
    return said


def _limits(said: str, *, strong_only: bool) -> bool:
    return bool(_STRONG.search(said) or (not strong_only and _WEAK.search(said)))


def _clauses(
    problem: Problem, begin: int, end: int, used: Collection[int], marks: Collection[str] = _CLAUSE
) -> list[str]:
    """Parts of a sentence between marks that have none of the numbers, and have a verb of their own."""
    cuts = [begin, *(i for i in range(begin, end) if problem.lower[i] in marks), end]
    parts = [(a, b) for a, b in pairwise(cuts) if b - a > 3 and not {*range(a, b)} & {*used}]
    return [problem.shown(a, b) for a, b in parts]


def _singles_out(words: Sequence[str], names: Sequence[str]) -> bool:
    """Whether some of the names are there and others are not."""
    parts = [name.split() for name in names]
    shared = [{*map(stem, part)} for part in parts]
    named = 0
    for i, part in enumerate(parts):
        own = [word for word in part if all(stem(word) not in other for j, other in enumerate(shared) if j != i)]
        named += any(
            word == mine or (len(mine) > 1 and stem(word) == stem(mine)) for mine in own or part for word in words
        )
    return 0 < named < len(names)

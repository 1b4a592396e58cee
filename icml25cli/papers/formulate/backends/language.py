"""A language model as a back end of the search: it proposes components, and judges formulations by votes.

    model = LanguageModel(text, Server(...))
    Search(model, model, Settings()).run()

Asks with `prompts`, reads with `answers`. An answer of which nothing can be made is no answer: a proposal that is
empty, a vote that does not count. Knows one text.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from icml25cli.papers.formulate.backend import UNREADABLE, Draft
from icml25cli.papers.formulate.backends import answers, prompts
from icml25cli.papers.formulate.backends.chat import Chat, Request
from icml25cli.papers.formulate.formulation import Formulation

SHOWN = 80  # characters of an answer that could not be read


class LanguageModel:
    """Proposer and judge for one text, whose answers come from ``chat``."""

    def __init__(self, text: str, chat: Chat) -> None:
        self._text, self._chat = text, chat
        self.name = chat.about.backend
        self.answers = self.unreadable = 0
        self._sample = ""

    def propose(self, key: str, partial: Formulation, count: int, seed: int) -> list[Any]:
        texts = self._ask(key, prompts.component(self._text, key, partial), count, seed)
        return self._read([answers.component(key, text) for text in texts], texts)

    def cluster(self, drafts: Sequence[Draft], votes: int, seed: int) -> list[list[list[int]]]:
        """Votes on those that differ; what is the same but for its description is not asked about."""
        alike: dict[Any, list[int]] = {}
        for position, draft in enumerate(drafts):
            declared = frozenset(replace(variable, description="") for variable in draft.formulation.variables or ())
            alike.setdefault(declared, []).append(position)
        sets = [*alike.values()]
        if len(sets) < 2:
            return [sets]
        labels = prompts.labelled(len(sets))
        firsts = [drafts[positions[0]].formulation for positions in sets]
        texts = self._ask("groups", prompts.grouping(self._text, firsts, labels), votes, seed)
        read = self._read([answers.groups(text, labels) for text in texts], texts)
        return [[[i for k in group for i in sets[k]] for group in vote] for vote in read if vote is not None] or [sets]

    def rank(self, drafts: Sequence[Draft], votes: int, seed: int) -> list[list[int] | None]:
        labels = prompts.labelled(len(drafts))
        texts = self._ask("ranks", prompts.ranking(self._text, _formulations(drafts), labels), votes, seed)
        return self._read([answers.ranks(text, labels) for text in texts], texts)

    def score(self, draft: Draft, votes: int, seed: int) -> list[float | None]:
        texts = self._ask("score", prompts.scoring(self._text, draft.formulation), votes, seed)
        return self._read([answers.score(text) for text in texts], texts)

    def compare(self, pairs: Sequence[tuple[Draft, Draft]], votes: int, seeds: Sequence[int]) -> list[float]:
        """Shares of the readable votes; a half where there are none. All pairs are asked about at once."""
        requests = [
            _request("better", prompts.comparison(self._text, first.formulation, second.formulation), votes, seed)
            for (first, second), seed in zip(pairs, seeds, strict=True)
        ]
        shares = []
        for texts in self._chat.complete(requests):
            read = self._read([answers.first_is_better(text) for text in texts], texts)
            counted = [vote for vote in read if vote is not None]
            shares.append(sum(counted) / len(counted) if counted else 0.5)
        return shares

    def _ask(self, form: str, question: str, count: int, seed: int) -> list[str | None]:
        (texts,) = self._chat.complete([_request(form, question, count, seed)])
        return texts

    def _read(self, read: list[Any], texts: Sequence[str | None]) -> list[Any]:
        self.answers += len(read)
        lost = [text for each, text in zip(read, texts, strict=True) if each is UNREADABLE]
        self.unreadable += len(lost)
        self._sample = self._sample or next((" ".join(text.split()) for text in lost if text), "")
        return read

    @property
    def unread(self) -> str:
        """How many answers nothing could be made of, with the beginning of one; empty where there are none."""
        if not self.unreadable:
            return ""
        shown = self._sample if len(self._sample) <= SHOWN else f"{self._sample[:SHOWN]} ..."
        begins = f', such as "{shown}"' if shown else ", which were empty"
        return f"of {self.answers} answers {self.unreadable} could not be read{begins}"


def _request(form: str, question: str, count: int, seed: int) -> Request:
    return Request(prompts.SYSTEM, question, count, seed, answers.SCHEMAS[form])


def _formulations(drafts: Sequence[Draft]) -> list[Formulation]:
    return [draft.formulation for draft in drafts]

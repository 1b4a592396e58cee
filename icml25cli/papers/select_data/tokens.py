"""Conversations as token ids, and which of them are answers.

The model's own chat template is used where it has one, else plain turns. A row too long for the window loses the
beginning of its prompt, never its answer. Knows tokenizers and rows. Does not know models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int32
from numpy import ndarray
from transformers import PreTrainedTokenizerBase

from icml25cli.core.errors import InputError
from icml25cli.core.models import first_line
from icml25cli.papers.select_data.rows import Message, Row

_TURN = {"system": "{}\n\n", "user": "User: {}\n", "assistant": "Assistant: {}"}  # of models without a template


@dataclass(frozen=True)
class Example:
    """Token ids of a row, and which of them are answers: their losses count."""

    tokens: Int32[ndarray, " n"]
    answer: Bool[ndarray, " n"]
    cut: bool = False  # the beginning of the prompt is left out

    @property
    def fingerprint(self) -> list[Any]:
        return [self.tokens, self.answer]


class Coder:
    """Turns conversations into tokens, one way for a run.

    Raises:
        InputError: the tokenizer has no end of text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        if tokenizer.eos_token_id is None:
            raise InputError("the tokenizer has no end of text", hint="set eos_token in tokenizer_config.json")
        self.tokenizer: Any = tokenizer
        self.max_length = max_length

    def example(self, row: Row) -> Example:
        """A row with its answer; the answers of earlier turns count as well.

        Raises:
            InputError: it has no answer, or the template cannot take it.
        """
        talk = row.conversation
        if talk.answer is None:
            raise InputError(f"{row.place} has no answer", hint="rows to learn from end with an answer")
        messages = [*talk.prompt, {"role": "assistant", "content": talk.answer}]
        tokens: list[int] = []
        answer: list[bool] = []
        for end, message in enumerate(messages, 1):
            if message["role"] != "assistant":
                continue
            before = self._asked(messages[: end - 1], row)
            whole = self._whole(messages[:end], row)
            # A template may rewrite earlier turns; then the newest form of all counts, its last turn as the answer.
            if tokens != before[: len(tokens)]:
                tokens, answer = [], []
            answer += [False] * (len(before) - len(answer)) + [True] * (len(whole) - len(before))
            tokens = before + whole[len(before) :]
        if not any(answer):
            raise InputError(f"{row.place}: the answer has no token", hint="rows to learn from end with an answer")
        return _cut(np.asarray(tokens, np.int32), np.asarray(answer), self.max_length)

    def asked(self, row: Row) -> Example:
        """A row without its answer; no token counts."""
        ids = self.prompt(row, 0)
        return Example(ids, np.zeros(len(ids), bool))

    def prompt(self, row: Row, room: int, begun: str = "") -> Int32[ndarray, " n"]:
        """The prompt of a row, up to where the answer begins, or after ``begun`` of it; its last tokens, with ``room``
        left in the window."""
        ids = self._asked(list(row.conversation.prompt), row)
        ids += self.tokenizer(begun, add_special_tokens=False, verbose=False)["input_ids"] if begun else []
        return np.asarray(ids[-max(1, self.max_length - room) :], np.int32)

    def text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode([int(token) for token in tokens], skip_special_tokens=True)

    def _asked(self, messages: list[Message], row: Row) -> list[int]:
        if self.tokenizer.chat_template:
            return self._ids(self._templated(messages, row, add_generation_prompt=True))
        return self._begin() + self._ids(_plain(messages) + "Assistant:")

    def _whole(self, messages: list[Message], row: Row) -> list[int]:
        """All messages, the last of them an answer: what was asked, then the answer's own tokens and an end."""
        before = self._asked(messages[:-1], row)
        if self.tokenizer.chat_template:
            asked = self._templated(messages[:-1], row, add_generation_prompt=True)
            text = self._templated(messages, row, add_generation_prompt=False)
            if text.startswith(asked):
                ids = before + self._ids(text[len(asked) :])
                end = self.tokenizer.eos_token_id
                # What a template writes after the end of an answer is never sampled.
                return ids[: len(ids) - ids[::-1].index(end)] if end in ids[len(before) :] else [*ids, end]
        answer = messages[-1]["content"]
        return [
            *before,
            *self._ids(answer if self.tokenizer.chat_template else f" {answer}"),
            self.tokenizer.eos_token_id,
        ]

    def _templated(self, messages: list[Message], row: Row, **how: bool) -> str:
        try:
            return self.tokenizer.apply_chat_template(messages, tokenize=False, **how)
        except Exception as error:  # templates raise what they like
            raise InputError(f"{row.place} does not fit the chat template: {first_line(error)}") from error

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

    def _begin(self) -> list[int]:
        """A token that the tokenizer puts in front of every text."""
        first = self.tokenizer("", verbose=False)["input_ids"][:1]
        return first if first == [self.tokenizer.bos_token_id] else []


def _plain(messages: Sequence[Message]) -> str:
    return "".join(_TURN[message["role"]].format(message["content"]) + "\n" * (message["role"] == "assistant")
                   for message in messages)  # fmt: skip


def _cut(tokens: Int32[ndarray, " n"], answer: Bool[ndarray, " n"], longest: int) -> Example:
    if len(tokens) <= longest:
        return Example(tokens, answer)
    begins = len(answer) - int(np.argmin(answer[::-1])) if not answer.all() else 0  # of the last answer
    first = min(len(tokens) - longest, max(0, begins - 1))  # one token before the answer predicts its first
    return Example(tokens[first : first + longest], answer[first : first + longest], cut=True)

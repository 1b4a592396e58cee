"""Multiple-choice questions: read from a file, put to a language model, and who gets which right.

A question is one line of a JSONL file: ``{"question": "...", "choices": ["...", "..."], "answer": 1}``. The model reads
the question, one blank and a choice, without the blank where the question ends in white space or the choice begins with
it, so whoever wants the choices on a line of their own ends the question in a newline. It picks the choice whose text
is likeliest per byte. Knows tokenizers and loaded models. Does not know how a model was found.
"""

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from icml25cli.core.errors import InputError, about
from icml25cli.core.likelihood import best_choice, byte_lengths, choice_log_likelihoods, paired_difference
from icml25cli.core.progress import track, warn
from icml25cli.core.text import read_json_lines

_FORM = 'each line is {"question": "...", "choices": ["...", "..."], "answer": 0}'


@dataclass(frozen=True)
class Question:
    """One question with its choices."""

    place: str  # file and line, for messages
    text: str
    choices: tuple[str, ...]
    answer: int  # index of the right choice, the first of equal ones


@dataclass(frozen=True)
class Answers:
    """Which questions a model got right, in their order."""

    right: Bool[Tensor, "questions"]  # picking by log-likelihood per byte
    right_raw: Bool[Tensor, "questions"]  # picking by log-likelihood alone, which favours short choices

    @property
    def row(self) -> dict[str, Any]:
        """Figures for a report; the standard error is that of a binomial proportion."""
        n, accuracy = len(self.right), self.right.double().mean().item()
        return {
            "accuracy": accuracy,
            "accuracy_se": math.sqrt(accuracy * (1 - accuracy) / n),
            "accuracy_raw": self.right_raw.double().mean().item(),
            "questions": n,
        }


def read_questions(path: Path) -> tuple[Question, ...]:
    """The questions of a JSONL file.

    ``answer`` is the index of the right choice, from 0; or its text; or, where no choice has that text, its letter,
    from A.

    Raises:
        InputError: the file is unreadable or has no question, or a line is not JSON, lacks a field, has fewer than two
            choices, an empty one, or an answer that is none of them; file and line are named.
    """
    questions = tuple(_question(f"{path}, line {number}", row) for number, row in read_json_lines(path, hint=_FORM))
    if not questions:
        raise InputError(f"{path} is empty", hint=_FORM)
    return questions


def _question(place: str, row: Any) -> Question:
    for field in ("question", "choices", "answer"):
        if not isinstance(row, dict) or field not in row:
            raise InputError(f"{place} has no field '{field}'", hint=_FORM)
    text, choices, answer = row["question"], row["choices"], row["answer"]
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{place}: the question is empty or no string", hint=_FORM)
    if not isinstance(choices, list) or len(choices) < 2:
        raise InputError(f"{place}: 'choices' is no list of at least two", hint=_FORM)
    for i, choice in enumerate(choices):
        if not isinstance(choice, str) or not choice.strip():
            raise InputError(f"{place}: choice {i} is empty or no string", hint=_FORM)
    return Question(place, text, tuple(choices), _answer(place, choices, answer))


def _answer(place: str, choices: list[str], answer: Any) -> int:
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(choices):
        return choices.index(choices[answer])
    if answer in choices:
        return choices.index(answer)
    letters = string.ascii_uppercase[: len(choices)]
    if isinstance(answer, str) and len(answer) == 1 and answer in letters:
        return choices.index(choices[letters.index(answer)])
    raise InputError(
        f"{place}: the answer {answer!r} is none of the {len(choices)} choices",
        hint="give its index, from 0, or its text, or its letter, from A",
    )


def encode_question(tokenizer: PreTrainedTokenizerBase, question: Question) -> tuple[list[int], list[list[int]]]:
    """Token ids of what a model reads before it chooses, and of each choice.

    Question and choice are encoded together, as text is, for a choice encoded alone may get other tokens. Where a
    choice changes the last tokens of the question these count as the choice's, for all choices. A token that the
    tokenizer puts in front of every text stands before the question.
    """
    joints = [
        choice if question.text[-1].isspace() or choice[0].isspace() else f" {choice}" for choice in question.choices
    ]
    texts = [question.text, *(question.text + joint for joint in joints)]
    alone, *together = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    first = tokenizer(question.text, verbose=False)["input_ids"][:1]
    begin = first if first == [tokenizer.bos_token_id] and first != alone[:1] else []
    shared = next((i for i, ids in enumerate(zip(alone, *together, strict=False)) if len(set(ids)) > 1), len(alone))
    return begin + alone[:shared], [ids[shared:] for ids in together]


def ask(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Question],
    description: str = "questions",
) -> Answers:
    """Put every question to the model. Warns where the beginning of a question does not fit the model's window.

    Raises:
        InputError: a choice does not fit the window, or a likelihood is NaN; the question is named.
    """
    window = getattr(model.config.get_text_config(), "max_position_embeddings", None) or math.inf
    right, right_raw, cut = [], [], 0
    for question in track(questions, description):
        context, choices = encode_question(tokenizer, question)
        with about(question.place):
            likelihoods = choice_log_likelihoods(model, context, choices)
        if likelihoods.isnan().any():
            raise InputError(f"{question.place}: a choice gets a likelihood that is NaN", hint="check the weights")
        cut += len(context) + max(map(len, choices)) > window
        right.append(best_choice(likelihoods, byte_lengths(question.choices)) == question.answer)
        right_raw.append(best_choice(likelihoods, [1] * len(choices)) == question.answer)
    if cut:
        warn(
            f"{description}: {cut} of {len(questions)} are longer than the window of {window} and lose their beginning"
        )
    return Answers(torch.tensor(right), torch.tensor(right_raw))


def paired(first: Answers, other: Answers) -> dict[str, Any]:
    """How ``other`` differs from ``first`` on the same questions, as figures for a report.

    ``p_value`` is that of McNemar's exact test: were both equally good, each would win half of the questions that just
    one of them gets right (McNemar 1947; the binomial form).
    """
    from scipy.stats import binomtest

    only_first, only_this = (first.right & ~other.right).sum().item(), (other.right & ~first.right).sum().item()
    discordant = int(only_first + only_this)
    more = paired_difference(other.right, first.right)
    return {
        "accuracy_more": more.mean,
        "accuracy_more_se": more.standard_error,
        "only_first_right": only_first,
        "only_this_right": only_this,
        "p_value": binomtest(int(only_this), discordant).pvalue if discordant else 1.0,
    }

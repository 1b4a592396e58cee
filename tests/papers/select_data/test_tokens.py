"""Which tokens are answers, with a template and without, and what is cut off."""

import json

import numpy as np
import pytest

from icml25cli.core.errors import InputError
from icml25cli.papers.select_data.rows import Row
from icml25cli.papers.select_data.tokens import Coder
from tests.make_models import byte_tokenizer

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' %}<end>{% endif %}"
    "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def row(**record) -> Row:
    return Row("x.jsonl", 1, json.dumps(record).encode())


def shown(coder: Coder, example) -> tuple[str, str]:
    """The whole text, and the text of the answers."""
    text = coder.tokenizer.decode
    return text(example.tokens.tolist()), text(example.tokens[example.answer].tolist())


def test_without_a_template():
    coder = Coder(byte_tokenizer(), 100)
    example = coder.example(row(system="S", prompt="Q", completion="A"))
    assert shown(coder, example) == ("S\n\nUser: Q\nAssistant: A<end>", " A<end>")
    assert coder.tokenizer.decode(coder.prompt(row(prompt="Q"), 10).tolist()) == "User: Q\nAssistant:"
    assert coder.tokenizer.decode(coder.prompt(row(prompt="Q"), 10, " Be").tolist()).endswith("Assistant: Be")
    assert not coder.asked(row(prompt="Q")).answer.any()


def test_with_a_template_every_turn_s_answer_counts_and_nothing_after_its_end():
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    coder = Coder(tokenizer, 100)
    turns = [("user", "Q"), ("assistant", "A"), ("user", "R"), ("assistant", "B")]
    example = coder.example(row(messages=[{"role": role, "content": text} for role, text in turns]))
    whole = "[user]Q\n[assistant]A<end>\n[user]R\n[assistant]B<end>"
    assert shown(coder, example) == (whole, "A<end>B<end>")
    assert coder.tokenizer.decode(coder.prompt(row(prompt="Q"), 10).tolist()) == "[user]Q\n[assistant]"


@pytest.mark.parametrize(("longest", "answer"), [(20, " ABCDEFGH<end>"), (10, " ABCDEFGH<end>"), (5, " ABC")])
def test_long_rows_lose_the_beginning_of_the_prompt_and_never_the_beginning_of_the_answer(longest, answer):
    coder = Coder(byte_tokenizer(), longest)
    example = coder.example(row(prompt="Q" * 50, completion="ABCDEFGH"))
    assert example.cut
    assert len(example.tokens) == longest
    assert shown(coder, example)[1] == answer[: longest - 1] or shown(coder, example)[1] == answer
    assert not example.answer[0]


def test_a_long_prompt_leaves_room():
    coder = Coder(byte_tokenizer(), 40)
    assert len(coder.prompt(row(prompt="Q" * 100), 30)) == 10
    assert len(coder.prompt(row(prompt="Q" * 100), 60)) == 1


def test_what_cannot_be_encoded():
    tokenizer = byte_tokenizer()
    coder = Coder(tokenizer, 40)
    with pytest.raises(InputError, match="has no answer"):
        coder.example(row(prompt="Q"))
    tokenizer.chat_template = "{{ raise_exception('no system') }}"
    with pytest.raises(InputError, match="does not fit the chat template: no system"):
        coder.example(row(prompt="Q", completion="A"))
    tokenizer.eos_token = None
    with pytest.raises(InputError, match="no end of text"):
        Coder(tokenizer, 40)


def test_rows_of_the_built_in_model_are_what_is_asked_and_then_answered():
    from icml25cli.core.models import load_tokenizer, resolve

    coder = Coder(load_tokenizer(resolve("tiny")), 64)
    r = row(prompt="What is a list?", completion="A sequence.")
    example = coder.example(r)
    before = coder.prompt(r, 1)
    np.testing.assert_array_equal(example.tokens[: len(before)], before)
    assert example.answer.sum() == len(example.tokens) - len(before)
    assert example.tokens[-1] == 0

"""A model in this process: what `tiny` writes is no formulation, but it is drawn, bounded and repeated as promised."""

from __future__ import annotations

import pytest

from icml25cli.core.errors import InputError
from icml25cli.core.models import resolve
from icml25cli.papers.formulate.backends.chat import Request, Sampling
from icml25cli.papers.formulate.backends.local import AT_ONCE, FENCE, Local

REQUEST = Request("Write prose.", "The function returns", 3, 5)


@pytest.fixture(scope="module")
def local() -> Local:
    return Local(resolve("tiny"), Sampling(1.0, 12), "cpu")


def test_answers_are_drawn_from_the_seed(local):
    texts = local.complete([REQUEST])[0]
    assert len(set(texts)) == 3
    assert local.complete([REQUEST])[0] == texts
    assert local.complete([Request("Write prose.", "The function returns", 3, 6)])[0] != texts
    assert local.usage.answer_tokens <= 12 * 9
    assert local.about.document() == {"backend": "hf", "model": "tiny", "temperature": 1.0, "max_tokens": 12}


def test_more_answers_than_fit_at_once(local):
    many = Request("Write prose.", "The function returns", AT_ONCE + 2, 5)
    assert len(local.complete([many])[0]) == AT_ONCE + 2


def test_without_a_template_for_conversations_it_answers_in_a_fence(local):
    assert local._answer(f'{{"a": 1}}\n{FENCE}\nmore') == '{"a": 1}\n'
    assert local._answer(f"\n{FENCE}") is None


def test_templates_with_and_without_system_messages(local, monkeypatch):
    ids = []
    for refuse in ("", "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"):
        template = f"{refuse}{{% for message in messages %}}[{{{{ message.content }}}}]{{% endfor %}}"
        monkeypatch.setattr(local._tokenizer, "chat_template", template)
        ids.append(local._tokenizer.decode(local._tokens(REQUEST)[0]))
        assert len(local.complete([REQUEST])[0]) == 3
    assert ids == ["[Write prose.][The function returns]", "[Write prose.\n\nThe function returns]"]


def test_without_temperature_all_answers_are_the_likeliest():
    texts = Local(resolve("tiny"), Sampling(0, 5), "cpu").complete([REQUEST])[0]
    assert len(texts) == 3
    assert len(set(texts)) == 1


def test_a_request_longer_than_the_window_is_refused(local):
    with pytest.raises(InputError, match=r"\d+ tokens, and tiny reads 1024"):
        local.complete([Request("", "word " * 600, 1, 0)])
    assert len(local.complete([Request("", "word " * 490, 1, 0)])[0]) == 1  # what is left of the window is enough

"""Messages of errors: whole as they are, megabytes cut in their middle."""

from icml25cli.core.errors import InputError


def test_a_message_of_megabytes_keeps_both_its_ends():
    error = InputError(f"q.jsonl, line 2: the answer {'x' * 10**7} is none of 3", hint="y" * 10**6)
    assert len(error.message) < 1300
    assert error.message.startswith("q.jsonl, line 2: the answer xxx")
    assert error.message.endswith("xxx is none of 3")
    assert str(error) == error.message
    assert len(error.hint or "") < 1300


def test_an_ordinary_message_is_left_alone():
    path = f"/{'folder/' * 100}file"
    assert InputError(f"{path} is empty").message == f"{path} is empty"

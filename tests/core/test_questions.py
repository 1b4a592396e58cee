"""Questions: what a line may say, what a model reads, and its picks against a loop that knows nothing of batches."""

import json
import math
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, processors
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from icml25cli.core.errors import InputError
from icml25cli.core.questions import Answers, Question, ask, encode_question, paired, read_questions
from tests.make_models import FAMILIES, byte_tokenizer

LINE = {"question": "2 + 2 =", "choices": ["3", "4", "22"], "answer": 1}


def ids(text: str) -> list[int]:
    return byte_tokenizer()(text)["input_ids"]


def question(text: str, *choices: str, answer: int = 0) -> Question:
    return Question("here", text, choices, answer)


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**FAMILIES["llama"])).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return model


# --- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choices", "answer", "index"),
    [
        (["3", "4", "22"], 1, 1),
        (["3", "4", "22"], "4", 1),
        (["3", "4", "22"], "C", 2),
        (["B", "A", "C"], "A", 1),  # a choice's text goes before a letter
        (["yes", "no", "yes"], 2, 0),  # equal choices cannot be told apart
        (["yes", "no", "yes"], "C", 0),
    ],
)
def test_an_answer_is_an_index_a_text_or_a_letter(tmp_path: Path, choices, answer, index):
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps({"question": "Which?", "choices": choices, "answer": answer}) + "\n\n")
    assert read_questions(file) == (Question(f"{file}, line 1", "Which?", tuple(choices), index),)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{'question': 1}", "line 2 is not JSON"),
        ("[1, 2]", "line 2 has no field 'question'"),
        ('{"question": "\\ud800", "choices": ["a", "b"], "answer": 0}', "line 2 holds half a surrogate pair"),
        ({"question": ...}, "line 2 has no field 'question'"),
        ({"choices": ...}, "line 2 has no field 'choices'"),
        ({"answer": ...}, "line 2 has no field 'answer'"),
        ({"question": " "}, "line 2: the question is empty"),
        ({"question": 7}, "line 2: the question is empty or no string"),
        ({"choices": ["3"]}, "line 2: 'choices' is no list of at least two"),
        ({"choices": "34"}, "line 2: 'choices' is no list of at least two"),
        ({"choices": ["3", ""]}, "line 2: choice 1 is empty"),
        ({"choices": [3, 4]}, "line 2: choice 0 is empty or no string"),
        ({"answer": 3}, "line 2: the answer 3 is none of the 3 choices"),
        ({"answer": -1}, "line 2: the answer -1"),
        ({"answer": True}, "line 2: the answer True"),
        ({"answer": 1.0}, "line 2: the answer 1.0"),
        ({"answer": "D"}, "line 2: the answer 'D'"),
        ({"answer": ["4"]}, "line 2: the answer \\['4'\\]"),
        ({"answer": None}, "line 2: the answer None"),
    ],
    ids=str,
)
def test_a_line_that_is_no_question_is_named(tmp_path: Path, line, says):
    if isinstance(line, dict):
        line = json.dumps({key: value for key, value in (LINE | line).items() if value is not ...})
    file = tmp_path / "q.jsonl"
    file.write_text(f"{json.dumps(LINE)}\n{line}\n")
    with pytest.raises(InputError, match=says) as caught:
        read_questions(file)
    assert str(file) in caught.value.message


@pytest.mark.parametrize(("data", "says"), [(b"\n \n", "is empty"), (b"\xff", "not UTF-8"), (None, "cannot be read")])
def test_a_file_without_questions_is_named(tmp_path: Path, data, says):
    file = tmp_path / "q.jsonl"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(InputError, match=f"q.jsonl.* {says}"):
        read_questions(file)


# --- what a model reads ------------------------------------------------------------------------------------------


def test_one_blank_joins_question_and_choice_unless_white_space_does():
    tokenizer = byte_tokenizer()
    assert encode_question(tokenizer, question("Is it?", "yes", "no")) == (ids("Is it?"), [ids(" yes"), ids(" no")])
    assert encode_question(tokenizer, question("It?\n", "yes", "no")) == (ids("It?\n"), [ids("yes"), ids("no")])
    assert encode_question(tokenizer, question("It?", "yes", "\tno")) == (ids("It?"), [ids(" yes"), ids("\tno")])


def test_what_choices_share_is_theirs_and_not_the_questions():
    context, choices = encode_question(byte_tokenizer(), question("The", "red cat", "red dog"))
    assert (context, choices) == (ids("The"), [ids(" red cat"), ids(" red dog")])


def merging(**special: str) -> PreTrainedTokenizerFast:
    """One token a letter of " abcx", but one for an "a" with the blank after it."""
    vocabulary = {token: i for i, token in enumerate([" ", "a", "b", "c", "x", "a ", "<s>", "</s>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", " ")]))
    if special:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 6), ("</s>", 7)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def test_a_token_over_the_seam_belongs_to_every_choice():
    # Alone the question is x a. With a choice its end is another token, for "c" too, though it is no other letter.
    assert encode_question(merging(), question("xa", "b", "c")) == ([4], [[5, 2], [5, 3]])


def test_the_tokenizers_own_beginning_stands_in_front_and_its_end_nowhere():
    tokenizer = merging(bos_token="<s>", eos_token="</s>")
    assert encode_question(tokenizer, question("x", "b", "c")) == ([6, 4], [[0, 2], [0, 3]])


# --- picks -------------------------------------------------------------------------------------------------------


def letters_model():
    """Whatever came before, an "a" is four times as likely as any other token: the same logits at every place."""
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**FAMILIES["llama"])).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.zero_()
        model.model.embed_tokens.weight.fill_(1)  # blocks add nothing, so the head gets ones
        model.lm_head.weight[ids("a")[0]] = math.log(4) / 32
    return model


def test_picks_by_hand():
    # Likelihoods are 4/260 an "a" and 1/260 else, the blank included. "aaaa" costs (ln 260 + 4 ln 65) / 4 = 5.56 nats a
    # byte and 22.3 in all; "b" costs 2 ln 260 = 11.1, a byte and in all.
    asked = [question("Which?", "aaaa", "b", answer=0), question("Which?", "b", "aaaa", answer=0)]
    answers = ask(letters_model(), byte_tokenizer(), asked)
    assert answers.right.tolist() == [True, False]
    assert answers.right_raw.tolist() == [False, True]


def slow_loss(model, context: list[int], choice: list[int]) -> float:
    """One token after the other, nothing padded, in double."""
    total = 0.0
    for i, token in enumerate(choice):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([context + choice[:i]])).logits[0, -1].double()
        total += float(logits.exp().sum().log() - logits[token])
    return total


def test_picks_are_those_of_a_loop_over_tokens(llama):
    words = ["the", "cat", "sat", "on", "a", "mat", "while", "two", "small", "dogs", "barked", "at", "moons", "over"]
    words += ["grey", "hills"]
    asked, per_byte, raw = [], [], []
    for i in range(12):
        choices = tuple(" ".join(words[(i + j) % 9 : (i + j) % 9 + 1 + (i * j + j) % 5]) for j in range(4))
        text = " ".join(words[i : i + 4])
        losses = [slow_loss(llama, ids(text), ids(f" {choice}")) for choice in choices]
        sizes = [loss / len(choice) for loss, choice in zip(losses, choices, strict=True)]
        per_byte.append(sizes.index(min(sizes)))
        raw.append(losses.index(min(losses)))
        asked.append(question(text, *choices, answer=per_byte[-1]))
    assert per_byte != raw
    assert len(set(per_byte)) > 1
    answers = ask(llama, byte_tokenizer(), asked)
    assert answers.right.all()
    assert answers.right_raw.tolist() == [a == b for a, b in zip(raw, per_byte, strict=True)]


def test_a_question_longer_than_the_window_loses_its_beginning_with_a_warning(llama):
    asked = [question("x" * 200, "yes", "no"), question("short", "yes", "no")]
    with pytest.warns(UserWarning, match="for M: 1 of 2 are longer than the window of 128"):
        ask(llama, byte_tokenizer(), asked, "questions for M")


def test_a_choice_longer_than_the_window_is_named(llama):
    with pytest.raises(InputError, match="here: a choice of 201 tokens"):
        ask(llama, byte_tokenizer(), [question("x", "y" * 200, "no")])


def test_a_likelihood_that_is_nan_is_named():
    model = letters_model()
    with torch.no_grad():
        model.lm_head.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match="here: a choice gets a likelihood that is NaN"):
        ask(model, byte_tokenizer(), [question("Which?", "a", "b")])


# --- figures -----------------------------------------------------------------------------------------------------


def answers(right: str) -> Answers:
    return Answers(torch.tensor([c == "1" for c in right]), torch.tensor([c == "0" for c in right]))


def test_accuracy_has_a_binomial_error():
    row = answers("1110").row
    assert row["accuracy"] == 0.75
    assert row["accuracy_se"] == pytest.approx(math.sqrt(3) / 8)  # sqrt(3/4 1/4 / 4)
    assert (row["accuracy_raw"], row["questions"]) == (0.25, 4)


def test_mcnemar_by_hand():
    # Ten questions that one of the two gets right, nine of them the other: 2 (1 + 10) / 2^10. The rest does not matter.
    row = paired(answers("1" + "0" * 9 + "111000"), answers("0" + "1" * 9 + "111000"))
    assert (row["only_first_right"], row["only_this_right"]) == (1, 9)
    assert row["p_value"] == pytest.approx(22 / 1024)
    assert row["accuracy_more"] == pytest.approx(8 / 16)
    assert paired(answers("0110"), answers("0110")) == {
        "accuracy_more": 0, "accuracy_more_se": 0, "only_first_right": 0, "only_this_right": 0, "p_value": 1,
    }  # fmt: skip

"""Models beside each other: closed forms, a loop over single tokens, exact zeros, and what cannot be compared."""

import gc
import math
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.evaluation import beginning, comparison, evaluate, longest_window
from icml25cli.core.likelihood import perplexity, ratio, strided_divergence, strided_nll
from icml25cli.core.models import load_model, resolve
from icml25cli.core.questions import Question
from icml25cli.core.text import Text, token_stream
from tests.make_models import byte_tokenizer, make_model

PROSE = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness."


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Random models: one, another of its shape, one of a larger vocabulary, one of another tokenizer."""
    directory = tmp_path_factory.mktemp("made")
    make_model(directory / "one")
    make_model(directory / "two", seed=1)
    make_model(directory / "wide", seed=2, vocab_size=264)
    make_model(directory / "merged", seed=3, vocab_size=258)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: i for i, character in enumerate(alphabet)} | {"<end>": 256, "it": 257}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("i", "t")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(directory / "merged")
    return directory


@pytest.fixture(scope="module")
def one(made: Path):
    return load_model(resolve(made / "one"))


def text(*documents: str) -> Text:
    return Text("t", documents, "t")


def judged(made: Path, *names: str, load=load_model, **options):
    sources = [replace(resolve(made / name), name=name) for name in names]
    options = {"text": text(PROSE), "window": 32, "stride": 32} | options
    return evaluate(sources, load, **options)


def bytes_of(string: str) -> torch.Tensor:
    return torch.tensor(byte_tokenizer()(string)["input_ids"])


# --- one model ---------------------------------------------------------------------------------------------------


def test_a_model_that_knows_nothing_is_as_perplexed_as_its_vocabulary_is_large(made: Path):
    def uniform(source):
        model = load_model(source)
        torch.nn.init.zeros_(model.lm_head.weight)
        return model

    (row,) = comparison(judged(made, "one", load=uniform))
    assert row["perplexity"] == pytest.approx(257, rel=1e-6)
    assert row["perplexity_se"] == pytest.approx(0, abs=1e-4)
    assert row["bits_per_byte"] == pytest.approx(math.log2(257), rel=1e-6)  # a token a byte
    assert row["tokens"] == len(PROSE) - 4  # four windows, the first token of none
    assert "kl" not in row
    # Documents end in a token that has no bytes, and costs as much as any.
    (row,) = comparison(judged(made, "one", load=uniform, text=text("abcd", "efgh")))
    assert row["bits_per_byte"] == pytest.approx(math.log2(257) * 9 / 8, rel=1e-6)


def slow_figures(model, reference, tokens: torch.Tensor, window: int, stride: int) -> tuple[float, float, int]:
    """Loss and divergence token by token: each once, by the first window that reaches it, from what stands before."""
    loss = divergence = 0.0
    count = 0
    for i in range(1, len(tokens)):
        start = stride * max(0, math.ceil((i - window + 1) / stride))
        if start == i:
            continue
        with torch.no_grad():
            q, p = (m(input_ids=tokens[None, start:i]).logits[0, -1].double().numpy() for m in (model, reference))
        q, p = (np.exp(x) / np.exp(x).sum() for x in (q, p))
        loss -= math.log(q[tokens[i]])
        divergence += float((p * np.log(p / q)).sum())
        count += 1
    return loss, divergence, count


@pytest.mark.parametrize(("window", "stride"), [(32, 32), (32, 12), (20, 1)])
def test_loss_and_divergence_are_those_of_a_loop_over_tokens(made: Path, one, window, stride):
    two = load_model(resolve(made / "two"))
    tokens = bytes_of(PROSE[:60])
    loss, divergence, count = slow_figures(two, one, tokens, window, stride)
    nll, kl, counts = strided_divergence(one, two, tokens, window, stride)
    assert counts.sum() == count
    assert nll.sum().item() == pytest.approx(loss, rel=1e-5)
    assert kl.sum().item() == pytest.approx(divergence, rel=1e-5)
    alone, same_counts = strided_nll(two, tokens, window, stride)
    assert torch.equal(alone, nll)
    assert torch.equal(same_counts, counts)
    rows = comparison(judged(made, "one", "two", text=text(PROSE[:60]), window=window, stride=stride))
    assert rows[1]["perplexity"] == pytest.approx(math.exp(loss / count), rel=1e-5)
    assert rows[1]["kl"] == pytest.approx(divergence / count, rel=1e-5)


@pytest.fixture(scope="module")
def forgetful(made: Path):
    """What a token is followed by depends on that token alone."""
    model = load_model(resolve(made / "one"))
    with torch.no_grad():
        for block in model.model.layers:
            block.self_attn.o_proj.weight.zero_()
    return model


@settings(max_examples=10, deadline=None)
@given(st.integers(3, 40), st.data())
def test_a_model_without_memory_does_not_care_for_windows(forgetful, window, data):
    stride = data.draw(st.integers(1 + window // 4, window - 1))
    tokens = bytes_of(PROSE)
    whole, _ = strided_nll(forgetful, tokens, len(tokens), len(tokens))
    nll, counts = strided_nll(forgetful, tokens, window, stride)
    assert counts.sum() == len(tokens) - 1
    assert nll.sum().item() == pytest.approx(whole.sum().item(), rel=1e-5)


def test_more_context_is_used(one):
    tokens = bytes_of(PROSE)
    losses = [strided_nll(one, tokens, window, 1)[0].sum().item() for window in (2, 8, 64)]
    assert len(set(losses)) == 3


def test_the_error_of_a_ratio_by_hand():
    # 6 and 10 over 2 and 6 tokens: 2 a token; residuals 2 and -2; sqrt((4 + 4) 2/1) / 8
    found = ratio(torch.tensor([6.0, 10.0]), torch.tensor([2, 6]))
    assert (found.mean, found.standard_error, found.n) == (2, 0.5, 2)
    fit = perplexity(torch.tensor([6.0, 10.0]), torch.tensor([2, 6]))
    assert (fit.mean, fit.standard_error) == pytest.approx((math.exp(2), math.exp(2) / 2))


def test_one_window_has_no_error(made: Path):
    (row,) = comparison(judged(made, "one", window=128, stride=128))
    assert math.isnan(row["perplexity_se"])


# --- several -----------------------------------------------------------------------------------------------------


def test_a_model_beside_itself_differs_by_exactly_nothing(made: Path):
    first, second = comparison(judged(made, "one", "one", stride=7))
    for row in (first, second):
        assert [row[key] for key in ("nll_more", "nll_more_se", "kl", "kl_se")] == [0, 0, 0, 0]
    assert first["perplexity"] == second["perplexity"]


def test_the_difference_is_that_of_the_logarithms_with_a_smaller_error(made: Path):
    def nearly(source):
        model = load_model(source)
        if source.name == "two":
            model.load_state_dict(load_model(resolve(made / "one")).state_dict())
            with torch.no_grad():
                model.lm_head.weight.mul_(1.01)
        return model

    first, second = comparison(judged(made, "one", "two", load=nearly))
    more = math.log(second["perplexity"] / first["perplexity"])
    assert second["nll_more"] == pytest.approx(more, rel=1e-9)
    assert 0 < second["nll_more_se"] < second["perplexity_se"] / second["perplexity"] / 2  # hard text is hard for both
    assert 0 < second["kl"] < 0.01


def test_another_tokenizer_is_compared_by_bytes_alone_and_a_note_says_so(made: Path):
    results = judged(made, "one", "merged")
    first, second = comparison(results)
    assert second["tokens"] < first["tokens"]
    assert [second[key] for key in ("nll_more", "nll_more_se", "kl", "kl_se")] == [None] * 4
    assert "merged reads the text as other tokens than one" in results[1].notes[0]
    # bits a byte by hand: the mean loss, for as many tokens as the tokenizer makes of these bytes
    tokens = len(PROSE) - PROSE.count("it")
    assert second["bits_per_byte"] == pytest.approx(math.log2(second["perplexity"]) * tokens / len(PROSE), rel=1e-9)


def test_a_larger_vocabulary_has_a_difference_and_no_divergence_and_a_note_says_so(made: Path):
    results = judged(made, "one", "wide")
    row = comparison(results)[1]
    assert row["nll_more"] == pytest.approx(
        math.log(row["perplexity"] / comparison(results)[0]["perplexity"]), rel=1e-9
    )
    assert (row["kl"], row["kl_se"]) == (None, None)
    assert "wide has another vocabulary than one" in results[1].notes[0]


@pytest.mark.parametrize(("names", "most"), [(("one", "two", "one", "two"), 2), (("merged", "one", "two"), 1)])
def test_no_more_models_are_in_memory_than_are_compared(made: Path, names, most):
    loaded: list[weakref.ref] = []

    def load(source):
        model = load_model(source)
        loaded.append(weakref.ref(model))
        alive.append(sum(ref() is not None for ref in loaded))
        return model

    alive: list[int] = []
    gc.disable()  # memory must not wait for a collector
    try:
        judged(made, *names, load=load)
    finally:
        gc.enable()
    assert max(alive) == most


def test_questions_and_text_make_one_row(made: Path):
    questions = [Question("here", "It was", ("the best", "the worst"), 0)]
    for options, present, absent in (
        ({"questions": questions}, ["perplexity", "accuracy", "seconds"], []),
        ({"questions": questions, "text": None}, ["accuracy", "seconds"], ["perplexity", "kl"]),
    ):
        rows = comparison(judged(made, "one", "two", **options))
        assert all(set(present) <= row.keys() and not set(absent) & row.keys() for row in rows)
        assert [row["model"] for row in rows] == ["one", "two"]


# --- what stands in the way --------------------------------------------------------------------------------------


def test_predictions_that_are_not_finite_are_an_error_with_model_and_window(made: Path):
    def overflowing(source):
        model = load_model(source)
        if source.name == "two":
            with torch.no_grad():
                model.model.embed_tokens.weight[bytes_of("Z")] = torch.nan
        return model

    with pytest.raises(InputError, match="two: predictions are not finite in window 1"):
        judged(made, "one", "two", load=overflowing, text=text(f"{PROSE[:40]}Z{PROSE[40:]}"))


def test_a_tokenizer_of_another_model_is_an_error_with_the_models_name(made: Path, tmp_path: Path):
    model = make_model(tmp_path / "narrow", vocab_size=100, pad_token_id=0, bos_token_id=0, eos_token_id=0)
    with pytest.raises(InputError, match=r"narrow: token \d+ is none of the model's 100"):
        evaluate([resolve(model)], load_model, text=text(PROSE), window=32, stride=32)


def test_text_and_windows_are_refused_before_a_model_is_loaded(made: Path):
    with pytest.raises(InputError, match="a text of 1 tokens"):
        judged(made, "one", load=None, text=text("x"))
    with pytest.raises(UsageError, match="a stride of 33"):
        judged(made, "one", load=None, stride=33)


# --- the text ----------------------------------------------------------------------------------------------------


@given(st.lists(st.text("ab ", min_size=1, max_size=9), min_size=1, max_size=4), st.integers(1, 40))
def test_the_beginning_is_the_tokens_asked_for(documents, count):
    tokenizer = byte_tokenizer()
    whole = token_stream(text(*documents), tokenizer)
    cut = token_stream(beginning(text(*documents), tokenizer, count), tokenizer)
    assert cut.tolist() == whole[: len(cut)].tolist()
    assert min(count, len(whole)) - len(cut) in (0, 1)  # a document's end that nothing follows is left out


def test_a_cut_is_said_and_a_whole_text_stays():
    assert beginning(text(PROSE), byte_tokenizer(), 10).origin == "t, first 10 tokens"
    assert beginning(text("ab", "cd"), byte_tokenizer(), 3) == Text("t", ("ab",), "t, first 3 tokens")
    assert beginning(text("ab", "cd"), byte_tokenizer(), 5) == text("ab", "cd")


def test_a_tokenizer_without_places_cuts_in_proportion():
    class Pairs(SimpleNamespace):
        is_fast, eos_token_id = False, None

        def __call__(self, document, **_):
            return {"input_ids": [0] * (len(document) // 2)}

    assert beginning(text("abcdefgh"), Pairs(), 3).documents == ("abcdef",)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("family", "longest"), [("llama", 128), ("gpt2", 128), ("bloom", math.inf)])
def test_the_longest_window_by_any_name(tmp_path: Path, family, longest):
    assert longest_window(resolve(make_model(tmp_path / family, family))) == longest

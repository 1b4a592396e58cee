"""Likelihood against closed forms, perplexity's error against the bootstrap, windows against counting by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from icml25cli.core import likelihood
from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.likelihood import (
    Span,
    best_choice,
    byte_lengths,
    choice_log_likelihoods,
    chunk_positions,
    estimate,
    kl_divergence,
    next_token_nll,
    paired_difference,
    perplexity,
    strided_nll,
    strided_spans,
    token_nll,
    window_nll,
)

VOCABULARY, WINDOW = 50, 16


@pytest.fixture(scope="module")
def model():
    """A Llama of random weights, large enough that its predictions differ."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=WINDOW,
        initializer_range=0.5,
    )
    return LlamaForCausalLM(config).eval()


def tokens(*shape, seed=0):
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


# --- losses and divergences


def test_uniform_logits_have_the_vocabulary_as_perplexity():
    nll = next_token_nll(torch.full((3, 5, 7), 2.5), tokens(3, 5) % 7)
    assert nll.shape == (3, 4)
    result = perplexity(nll.sum(1), torch.full((3,), 4))
    assert result.mean == pytest.approx(7, rel=1e-6)
    assert result.standard_error == pytest.approx(0, abs=1e-6)


def test_losses_by_hand():
    # probabilities 1/2, 1/4, 1/4 and 1/8, 1/8, 3/4
    logits = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75], [9.0, 9.0, 9.0]]).log()
    assert token_nll(logits[:2], torch.tensor([1, 2])).tolist() == pytest.approx([math.log(4), math.log(4 / 3)])
    # the first token has no prediction, and the last place predicts nothing that is there
    assert next_token_nll(logits, torch.tensor([0, 2, 0])).tolist() == pytest.approx([math.log(4), math.log(8)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_losses_equal_torchs_of_the_same_logits_in_double(dtype, monkeypatch):
    monkeypatch.setattr(
        likelihood, "CHUNK_BYTES", 4 * VOCABULARY * 3
    )  # three positions at a time, the last chunk short
    logits = (10 * torch.randn(2, 5, VOCABULARY, generator=torch.Generator().manual_seed(0))).to(dtype)
    expected = torch.nn.functional.cross_entropy(logits.double().mT, tokens(2, 5), reduction="none")
    torch.testing.assert_close(token_nll(logits, tokens(2, 5)).double(), expected, rtol=1e-6, atol=2e-6)


def test_a_chunk_is_64_mib_of_float32():
    assert chunk_positions(2**17) == 128
    assert chunk_positions(2**30) == 1


def test_divergence_by_hand():
    p, q = torch.tensor([0.5, 0.5, 0.0]).log(), torch.tensor([0.25, 0.5, 0.25]).log()
    assert kl_divergence(p, q).item() == pytest.approx(0.5 * math.log(2), rel=1e-12)
    assert kl_divergence(q, p).item() == math.inf, "p holds impossible what q does not"
    assert kl_divergence(p, p).item() == 0


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(0.01, 30), shift=st.floats(-100, 100))
def test_divergence_is_never_negative_and_zero_only_for_equals(seed, scale, shift):
    generator = torch.Generator().manual_seed(seed)
    p, q = (scale * torch.randn(4, 9, generator=generator, dtype=torch.float64) for _ in range(2))
    assert (kl_divergence(p, q) > 0).all()
    torch.testing.assert_close(kl_divergence(p, p + shift), torch.zeros(4, dtype=torch.float64), atol=1e-12, rtol=0)


def test_small_divergences_are_exact_over_a_large_vocabulary(monkeypatch):
    # Moving eps of probability between two of V equal tokens: KL = -(log(1 - a) + log(1 + a)) / V with a = eps V.
    v, a = 32000, 0.01
    q = torch.full((3, v), 1 / v, dtype=torch.float64)
    q[:, 0] *= 1 - a
    q[:, 1] *= 1 + a
    monkeypatch.setattr(likelihood, "CHUNK_BYTES", 4 * 4 * v * 2)  # two positions at a time
    exact = -(math.log1p(-a) + math.log1p(a)) / v  # 3e-9 nats
    np.testing.assert_allclose(
        kl_divergence(torch.zeros(3, v), q.log()), exact, rtol=1e-4
    )  # float32 is off by 1e-7 nats


def test_other_vocabularies_have_no_divergence():
    with pytest.raises(InputError, match="shape") as caught:
        kl_divergence(torch.zeros(2, 5), torch.zeros(2, 6))
    assert "tokenizer" in str(caught.value.hint)


# --- estimates


def test_mean_and_error_by_hand():
    result = estimate(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert (result.mean, result.n) == (2.5, 4)
    assert result.standard_error == pytest.approx(math.sqrt(5 / 3) / 2)
    assert math.isnan(estimate(torch.tensor([1.0])).standard_error)


def test_pairing_removes_what_windows_share():
    hard = torch.tensor([0.0, 100.0, 1000.0])
    result = paired_difference(hard + torch.tensor([1.0, 2.0, 3.0]), hard)
    assert result.mean == pytest.approx(2)
    assert result.standard_error == pytest.approx(1 / math.sqrt(3))
    with pytest.raises(ValueError, match="same windows"):
        paired_difference(torch.zeros(3), torch.zeros(2))


def test_perplexity_weighs_windows_by_their_tokens():
    # losses of 1 and 3 nats a token, over 30 and 10 tokens: the mean is 1.5
    result = perplexity(torch.tensor([30.0, 30.0]), torch.tensor([30, 10]))
    assert result.mean == pytest.approx(math.exp(1.5))
    # residuals 30 - 45 and 30 - 15: variance 2 / 1 * (225 + 225) / 40^2
    assert result.standard_error == pytest.approx(math.exp(1.5) * math.sqrt(2 * 450) / 40)
    assert math.isnan(perplexity(torch.tensor([30.0]), torch.tensor([30])).standard_error)
    assert perplexity(torch.tensor([1e6, 1e6]), torch.tensor([10, 10])).mean == math.inf


@pytest.mark.parametrize("unequal", [False, True])
def test_the_error_of_perplexity_is_that_of_the_bootstrap(unequal):
    rng = np.random.default_rng(0)
    count = rng.integers(50, 500, 400) if unequal else np.full(400, 100)
    loss = count * (3 + rng.normal(0, 0.3, 400)) + rng.normal(0, 1, 400) * np.sqrt(count)
    result = perplexity(torch.tensor(loss), torch.tensor(count))
    picked = rng.integers(0, 400, (4000, 400))
    bootstrap = np.exp(loss[picked].sum(1) / count[picked].sum(1)).std()
    assert result.standard_error == pytest.approx(bootstrap, rel=0.05)  # the bootstrap's own error is 1.1 %


# --- windows


def test_windows_and_their_losses(model):
    windows = tokens(5, 12)
    with torch.no_grad():
        expected = torch.stack([model(input_ids=w[None], labels=w[None]).loss for w in windows])
    for batch_size in (1, 2, 5):
        losses = window_nll(model, windows, batch_size)
        assert losses.shape == (5, 11)
        torch.testing.assert_close(losses.mean(1), expected, rtol=1e-5, atol=1e-6)


def test_dropout_is_off_and_training_goes_on_after():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=2, n_positions=WINDOW, embd_pdrop=0.5)
    trained = GPT2LMHeadModel(config).train()
    assert torch.equal(window_nll(trained, tokens(2, 8)), window_nll(trained, tokens(2, 8)))
    assert trained.training


def test_a_window_the_model_cannot_read(model):
    with pytest.raises(InputError, match=f"window of {WINDOW + 1} tokens is longer than the model's {WINDOW}"):
        window_nll(model, tokens(1, WINDOW + 1))
    with pytest.raises(InputError, match=f"token {VOCABULARY} is none of the model's {VOCABULARY}"):
        window_nll(model, torch.full((1, 4), VOCABULARY))


def test_spans_by_hand():
    assert strided_spans(10, 4, 4) == [Span(0, 1, 4), Span(4, 5, 8), Span(8, 9, 10)]
    assert strided_spans(10, 4, 2) == [Span(0, 1, 4), Span(2, 4, 6), Span(4, 6, 8), Span(6, 8, 10)]
    assert strided_spans(9, 4, 3) == [Span(0, 1, 4), Span(3, 4, 7), Span(6, 7, 9)]
    assert strided_spans(3, 4, 4) == [Span(0, 1, 3)]
    assert strided_spans(9, 4, 4) == [Span(0, 1, 4), Span(4, 5, 8)], "a last token alone has nothing before it"


@given(length=st.integers(2, 200), window=st.integers(2, 40), data=st.data())
def test_no_token_counts_twice_and_with_overlap_none_is_left_out(length, window, data):
    stride = data.draw(st.integers(1, window))
    spans = strided_spans(length, window, stride)
    counted = [i for span in spans for i in range(span.first, span.stop)]
    expected = range(1, length) if stride < window else [i for i in range(length) if i % window]
    assert counted == list(expected)
    assert all(span.stop - span.start <= window and span.start < span.first < span.stop for span in spans)
    assert all(span.first - span.start >= window - stride for span in spans[1:])


def test_strided_losses_see_what_the_window_holds(model):
    text = tokens(20)
    sums, counts = strided_nll(model, text, window=8, stride=8)
    assert counts.tolist() == [7, 7, 3]
    torch.testing.assert_close(sums[:2], window_nll(model, text[:16].reshape(2, 8)).double().sum(1), rtol=1e-5, atol=0)
    sums, counts = strided_nll(model, text, window=8, stride=1)
    assert counts.tolist() == [7] + [1] * 12
    context = text[3:11]  # with stride 1 every later token is predicted from the seven before it
    with torch.no_grad():
        expected = -model(input_ids=context[None]).logits[0, -2].log_softmax(-1)[context[-1]]
    assert sums[3].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("length", "window", "stride", "error"),
    [
        (10, 1, 1, UsageError),
        (10, 4, 5, UsageError),
        (10, 4, 0, UsageError),
        (1, 4, 4, InputError),
        (0, 4, 4, InputError),
    ],
)
def test_windows_that_predict_nothing(length, window, stride, error):
    with pytest.raises(error):
        strided_spans(length, window, stride)


# --- multiple choice


def test_choices_are_scored_one_by_one_as_together(model):
    context, choices = [3, 1, 4], [[1, 5], [9], [2, 6, 5, 3]]
    together = choice_log_likelihoods(model, context, choices)
    for score, choice in zip(together, choices, strict=True):
        row = torch.tensor([context + choice])
        with torch.no_grad():
            predicted = model(input_ids=row).logits[0].log_softmax(-1)
        by_hand = sum(predicted[len(context) + i - 1, token].item() for i, token in enumerate(choice))
        assert score.item() == pytest.approx(by_hand, rel=1e-5)


def test_the_first_token_after_a_context_of_one_counts(model):
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([[3]])).logits[0, 0].log_softmax(-1)[7]
    assert choice_log_likelihoods(model, [3], [[7]]).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_long_context_loses_its_beginning(model):
    context = tokens(30).tolist()
    expected = choice_log_likelihoods(model, context[-(WINDOW - 2) :], [[1, 2], [3]])
    torch.testing.assert_close(choice_log_likelihoods(model, context, [[1, 2], [3]]), expected)


def test_length_decides_between_choices():
    scores = torch.tensor([-6.0, -8.0])
    assert best_choice(scores, [1, 1]) == 0
    assert best_choice(scores, byte_lengths(["six", "eight"])) == 1  # -2.0 a byte against -1.6
    assert byte_lengths(["é", "ab"]) == [2, 2]
    assert best_choice(torch.tensor([-2.0, -1.0, -1.0]), [1, 1, 1]) == 1, "the first of equals"


@pytest.mark.parametrize(("context", "choices"), [([], [[1]]), ([1], [[1], []])])
def test_a_choice_without_tokens(model, context, choices):
    with pytest.raises(InputError, match="no tokens"):
        choice_log_likelihoods(model, context, choices)


def test_a_choice_longer_than_the_model(model):
    with pytest.raises(InputError, match=f"choice of {WINDOW} tokens does not fit"):
        choice_log_likelihoods(model, [1], [[1] * WINDOW])

"""Likelihood of text under a causal language model: per-token losses, perplexity, divergences, choices, their errors.

Knows logits and token ids, and how to call a loaded model. Does not know how models or text are found, nor what was
done to a model. Losses are in nats. Sums over tokens and windows are in float64.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor
from transformers import PreTrainedModel

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.progress import track

CHUNK_BYTES = 64 * 2**20  # of float32 logits widened at once: a vocabulary is large, and bfloat16 logits small


def chunk_positions(vocabulary: int) -> int:
    """Positions whose float32 logits over ``vocabulary`` fill at most 64 MiB, at least one."""
    return max(1, CHUNK_BYTES // (4 * vocabulary))


def token_nll(logits: Float[Tensor, "*batch v"], targets: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Negative log-likelihood of each target under the logits at the same place, float32 (float64 for float64)."""
    flat, wanted = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1, 1)
    out = torch.empty(len(flat), dtype=torch.promote_types(logits.dtype, torch.float32), device=logits.device)
    step = chunk_positions(flat.shape[1])
    for i in range(0, len(flat), step):
        chunk = flat[i : i + step].to(out.dtype)
        out[i : i + step] = chunk.logsumexp(-1) - chunk.gather(-1, wanted[i : i + step]).squeeze(-1)
    return out.reshape(targets.shape)


def next_token_nll(logits: Float[Tensor, "*batch t v"], tokens: Int[Tensor, "*batch t"]) -> Float[Tensor, "*batch t-1"]:
    """Negative log-likelihood of every token but the first, given those before it, from the logits of a window."""
    return token_nll(logits[..., :-1, :], tokens[..., 1:])


def kl_divergence(
    p_logits: Float[Tensor, "*batch v"], q_logits: Float[Tensor, "*batch v"]
) -> Float64[Tensor, "*batch"]:
    """KL(p || q) in nats at each place, of the distributions with these logits.

    In float64: at 4 bits the divergence is a hundredth of a nat and a difference of two methods a hundredth of that,
    where float32 sums over a large vocabulary are rounding.

    Raises:
        InputError: the vocabularies differ in size.
    """
    if p_logits.shape != q_logits.shape:
        raise InputError(
            f"logits of shape {tuple(p_logits.shape)} and {tuple(q_logits.shape)} have no divergence",
            hint="compare models of one tokenizer",
        )
    p_flat, q_flat = (x.reshape(-1, x.shape[-1]) for x in (p_logits, q_logits))
    out = torch.empty(len(p_flat), dtype=torch.float64, device=p_logits.device)
    step = max(1, chunk_positions(p_flat.shape[1]) // 4)  # two of them, twice as wide
    for i in range(0, len(p_flat), step):
        log_p, log_q = (x[i : i + step].to(torch.float64).log_softmax(-1) for x in (p_flat, q_flat))
        # A token that p excludes adds nothing, whatever q thinks of it.
        out[i : i + step] = torch.where(log_p == -torch.inf, 0.0, log_p.exp() * (log_p - log_q)).sum(-1)
    return out.reshape(p_logits.shape[:-1])


# --- figures with their errors -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A figure over ``n`` windows and its standard error, which is NaN for a single window."""

    mean: float
    standard_error: float
    n: int


def estimate(values: Float[Tensor, "n"]) -> Estimate:
    """Mean of one figure a window, windows taken as independent."""
    x = values.double()
    return Estimate(x.mean().item(), (x.std() / math.sqrt(len(x))).item() if len(x) > 1 else math.nan, len(x))


def paired_difference(a: Float[Tensor, "n"], b: Float[Tensor, "n"]) -> Estimate:
    """Mean of ``a - b`` over the same windows: what they share, such as hard text, cancels from the error."""
    if a.shape != b.shape:
        raise ValueError(f"{tuple(a.shape)} and {tuple(b.shape)} are not the same windows")
    return estimate(a.double() - b.double())


def ratio(totals: Float[Tensor, "n"], counts: Int[Tensor, "n"]) -> Estimate:
    """Sum of ``totals`` over sum of ``counts``, with the standard error over windows that differ in their counts.

    A ratio of two sums varies as the residuals L_i - m T_i do (Cochran, Sampling Techniques, 1977, equation 6.13,
    without finite population).

    Args:
        totals: a figure L_i summed over the counted tokens of each window.
        counts: how many those are, T_i.
    """
    total, count = totals.double(), counts.double()
    n, mean = len(total), total.sum() / count.sum()
    spread = ((total - mean * count).square().sum() * n / (n - 1)).sqrt() if n > 1 else torch.tensor(math.nan)
    return Estimate(mean.item(), (spread / count.sum()).item(), n)


def perplexity(nll_per_window: Float[Tensor, "n"], tokens_per_window: Int[Tensor, "n"]) -> Estimate:
    """exp(total loss / total tokens), with the standard error over windows by the delta method.

    Args:
        nll_per_window: summed loss of the counted tokens of each window.
        tokens_per_window: how many those are.
    """
    loss = ratio(nll_per_window, tokens_per_window)
    value = torch.tensor(loss.mean, dtype=torch.float64).exp().item()  # math.exp would raise where this is infinite
    return Estimate(value, value * loss.standard_error, loss.n)


# --- windows under a model ---------------------------------------------------------------------------------------


def window_nll(
    model: PreTrainedModel, windows: Int[Tensor, "n t"], batch_size: int = 1, description: str = "perplexity"
) -> Float[Tensor, "n t-1"]:
    """Loss of every token but the first of each window, float32 on the CPU.

    Raises:
        InputError: the windows are longer than the model's, or hold tokens it does not know.
    """
    return torch.cat(
        [
            next_token_nll(_logits(model, batch), batch.to(model.device)).cpu()
            for batch in track(windows.split(batch_size), description)
        ]
    )


@torch.inference_mode()
def _logits(model: PreTrainedModel, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t v"]:
    config = model.config.get_text_config()
    longest, known = getattr(config, "max_position_embeddings", None), config.vocab_size
    if longest and tokens.shape[1] > longest:
        raise InputError(
            f"a window of {tokens.shape[1]} tokens is longer than the model's {longest}", hint="use a shorter --window"
        )
    if (highest := int(tokens.max())) >= known:
        raise InputError(f"token {highest} is none of the model's {known}", hint="use the model's own tokenizer")
    training = model.training
    model.eval()  # dropout would make a loss random
    try:
        return model(input_ids=tokens.to(model.device), use_cache=False).logits
    finally:
        model.train(training)


@dataclass(frozen=True)
class Span:
    """The model reads ``tokens[start:stop]``; losses of ``tokens[first:stop]`` count."""

    start: int
    first: int
    stop: int


def strided_spans(length: int, window: int, stride: int) -> list[Span]:
    """Windows over a text of ``length`` tokens, ``stride`` apart, so that no token counts twice.

    The first window counts all its tokens but the first, which has nothing before it. Each later one counts what the
    window before it did not reach, so with ``stride < window`` every token but the text's first counts once, after at
    least ``window - stride`` others. With ``stride == window`` the first token of each window has nothing before it
    and does not count. The last window may be shorter.

    Raises:
        UsageError: not ``1 <= stride <= window`` or ``window < 2``.
        InputError: the text has fewer than two tokens.
    """
    if window < 2:
        raise UsageError(f"a window of {window} tokens predicts nothing", hint="give a --window of at least 2")
    if not 1 <= stride <= window:
        raise UsageError(
            f"a stride of {stride} does not lie between 1 and the window of {window}", hint="give a --stride that does"
        )
    if length < 2:
        raise InputError(f"a text of {length} tokens predicts nothing", hint="give a longer text")
    spans: list[Span] = []
    reached = 0
    for start in range(0, length, stride):
        first, stop = max(reached, start + 1), min(start + window, length)
        if first < stop:
            spans.append(Span(start, first, stop))
        reached = stop
        if stop == length:
            break
    return spans


def strided_nll(
    model: PreTrainedModel, tokens: Int[Tensor, "n"], window: int, stride: int, description: str = "perplexity"
) -> tuple[Float64[Tensor, "windows"], Int[Tensor, "windows"]]:
    """Summed loss and number of the counted tokens of each of the text's ``strided_spans``, for ``perplexity``."""
    sums, counts = [], []
    for span in track(strided_spans(len(tokens), window, stride), description):
        read = tokens[span.start : span.stop].to(model.device)
        losses = next_token_nll(_logits(model, read[None])[0], read)
        sums.append(losses[span.first - span.start - 1 :].double().sum().item())
        counts.append(span.stop - span.first)
    return torch.tensor(sums, dtype=torch.float64), torch.tensor(counts)


def strided_divergence(
    reference: PreTrainedModel,
    model: PreTrainedModel,
    tokens: Int[Tensor, "n"],
    window: int,
    stride: int,
    description: str = "divergence",
) -> tuple[Float64[Tensor, "windows"], Float64[Tensor, "windows"], Int[Tensor, "windows"]]:
    """Summed loss of ``model``, summed KL(reference || model) and number of the counted tokens of each span.

    Loss and number are those of ``strided_nll``, to the bit. One window's logits of both models are in memory at once.

    Raises:
        InputError: the vocabularies differ in size.
    """
    losses, divergences, counts = [], [], []
    for span in track(strided_spans(len(tokens), window, stride), description):
        read = tokens[span.start : span.stop].to(model.device)
        expected, logits = (_logits(m, read[None])[0] for m in (reference, model))
        counted = slice(span.first - span.start - 1, -1)  # a place predicts the token after it
        losses.append(next_token_nll(logits, read)[counted.start :].double().sum().item())
        divergences.append(kl_divergence(expected[counted], logits[counted]).sum().item())
        counts.append(span.stop - span.first)
    return (
        torch.tensor(losses, dtype=torch.float64),
        torch.tensor(divergences, dtype=torch.float64),
        torch.tensor(counts),
    )


# --- multiple choice ---------------------------------------------------------------------------------------------


def choice_log_likelihoods(
    model: PreTrainedModel, context: Sequence[int], choices: Sequence[Sequence[int]]
) -> Float64[Tensor, "c"]:
    """Log-likelihood of the tokens of each choice after ``context``, summed over the choice.

    Choices are padded on the right, where a causal model does not look. A context too long for the model loses its
    beginning.

    Raises:
        InputError: the context or a choice is empty, or a choice alone is longer than the model's window.
    """
    if not context or not all(choices):
        raise InputError("a question or a choice has no tokens", hint="every question and choice needs some text")
    longest = max(map(len, choices))
    window = getattr(model.config.get_text_config(), "max_position_embeddings", None) or len(context) + longest
    if longest >= window:
        raise InputError(f"a choice of {longest} tokens does not fit the model's window of {window}", hint="shorten it")
    kept = list(context[-(window - longest) :])
    rows = torch.tensor([kept + list(c) + [0] * (longest - len(c)) for c in choices])
    losses = next_token_nll(_logits(model, rows), rows.to(model.device)).double().cpu()
    place = torch.arange(1, rows.shape[1])
    counted = (place >= len(kept)) & (place < len(kept) + torch.tensor([[len(c)] for c in choices]))
    return -(losses * counted).sum(-1)


def best_choice(log_likelihoods: Float[Tensor, "c"], lengths: Sequence[int]) -> int:
    """Index of the choice with the highest log-likelihood per unit of length; the first of equals.

    Length in bytes of UTF-8 (``byte_lengths``) is the default of this toolbox: it is the same for models of different
    tokenizers, which are compared here. Token counts, the other usual choice, are not.
    """
    return int((log_likelihoods / torch.tensor(lengths)).argmax())


def byte_lengths(choices: Sequence[str]) -> list[int]:
    """UTF-8 bytes of each choice's text."""
    return [len(choice.encode()) for choice in choices]

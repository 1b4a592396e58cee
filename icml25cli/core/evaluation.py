"""Language models judged on the same text and the same questions, each beside the first.

Perplexity of strided windows, bits per byte, and for models that read the same tokens the paired difference of their
losses and the divergence of their predictions. Knows models by their source and by a function that loads one, so that
forms that only a paper knows can be judged too. Does not know where text and questions come from.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from icml25cli.core.errors import InputError, about
from icml25cli.core.likelihood import perplexity, ratio, strided_divergence, strided_nll, strided_spans
from icml25cli.core.models import ModelSource, load_tokenizer
from icml25cli.core.questions import Answers, Question, ask, paired
from icml25cli.core.report import Row
from icml25cli.core.text import Text, token_stream


@dataclass(frozen=True)
class TextScore:
    """How well a model predicts a text, a figure a window. A window's counted tokens are those of ``strided_spans``."""

    nll: Float64[Tensor, "windows"]  # nats, summed over counted tokens
    kl: Float64[Tensor, "windows"] | None  # KL(first model || this), nats, over the same; None: not defined
    counts: Int[Tensor, "windows"]  # counted tokens
    paired: bool  # the first model reads the same tokens
    tokens_per_byte: float  # of the whole text, ends of documents included

    @property
    def bits_per_byte(self) -> float:
        """Loss in bits a byte of UTF-8, in which models of different tokenizers compare."""
        return ratio(self.nll, self.counts).mean / math.log(2) * self.tokens_per_byte


@dataclass(frozen=True)
class Evaluated:
    """What one model scored."""

    model: str
    text: TextScore | None
    answers: Answers | None
    seconds: float  # loading included; the first model's predictions too, where a divergence from it was measured
    notes: tuple[str, ...]


def beginning(text: Text, tokenizer: PreTrainedTokenizerBase, tokens: int) -> Text:
    """The text up to ``tokens`` tokens of this tokenizer, so that models of other tokenizers can be given the same.

    A tokenizer that cannot say where its tokens lie cuts the last document in proportion, to about that many.
    """
    kept, left, exact = [], tokens, bool(tokenizer.is_fast)
    for document in text.documents:
        encoded = tokenizer(document, add_special_tokens=False, return_offsets_mapping=exact, verbose=False)
        length = len(encoded["input_ids"])
        if length > left:
            end = encoded["offset_mapping"][left - 1][1] if exact else len(document) * left // length
            return replace(text, documents=(*kept, document[:end]), origin=f"{text.origin}, first {tokens} tokens")
        kept.append(document)
        left -= length + (tokenizer.eos_token_id is not None)  # token_stream puts one between documents
        if left < 1:
            break
    cut = len(kept) < len(text.documents)
    return replace(text, documents=tuple(kept), origin=f"{text.origin}, first {tokens} tokens") if cut else text


def longest_window(source: ModelSource) -> float:
    """Tokens that a model reads at most, by its configuration; infinite where that sets no limit."""
    config = AutoConfig.from_pretrained(
        str(source.path), local_files_only=True, trust_remote_code=source.trust_remote_code
    )
    return getattr(config.get_text_config(), "max_position_embeddings", None) or math.inf


def evaluate(
    sources: Sequence[ModelSource],
    load: Callable[[ModelSource], PreTrainedModel],
    *,
    text: Text | None = None,
    questions: Sequence[Question] = (),
    window: int = 512,
    stride: int = 512,
) -> tuple[Evaluated, ...]:
    """Judge every model, in order. No more than two are in memory at once, one where none compares with the first.

    Args:
        sources: from ``models.resolve``.
        load: makes a model of a source; all on the same device.
        text: to measure perplexity on; none to leave that out.
        questions: from ``read_questions``.
        window, stride: tokens, see ``strided_spans``.

    Raises:
        InputError: a model has no tokenizer or not that of its vocabulary, cannot be loaded, or gives a loss that is
            not finite; or the text is shorter than two tokens, or a question does not fit.
        UsageError: ``window`` and ``stride`` do not fit each other.
    """
    readers = [_Reader(source, text) for source in sources]
    if text:
        for reader in readers:  # what is wrong with the text or the window is said before any model is loaded
            strided_spans(len(reader.tokens), window, stride)
    first, *others = readers
    keep_first = text is not None and any(first.same_tokens(other) and first.same_vocabulary(other) for other in others)
    reference: PreTrainedModel | None = None
    results: list[Evaluated] = []
    for reader in readers:
        name, began = reader.source.name, monotonic()
        model = load(reader.source)
        with about(name):
            score, notes = None, ()
            if text:
                score, notes = _read(model, reader, first, reference, window, stride)
            answers = ask(model, reader.tokenizer, questions, f"questions for {name}") if questions else None
        results.append(Evaluated(name, score, answers, monotonic() - began, (*reader.source.notes, *notes)))
        if reader is first and keep_first:
            reference = model
        del model  # before the next is loaded
    return tuple(results)


class _Reader:
    """A model's tokenizer, and the text as its tokens."""

    def __init__(self, source: ModelSource, text: Text | None) -> None:
        self.source = source
        self.tokenizer = load_tokenizer(source)
        documents = text.documents if text else ()
        self.tokens = torch.from_numpy(token_stream(text, self.tokenizer)) if text else torch.empty(0, dtype=torch.long)
        self.tokens_per_byte = len(self.tokens) / max(1, sum(len(document.encode()) for document in documents))

    def same_tokens(self, other: "_Reader") -> bool:
        return torch.equal(self.tokens, other.tokens)

    def same_vocabulary(self, other: "_Reader") -> bool:
        return self._vocabulary() == other._vocabulary()

    def _vocabulary(self) -> dict[str, int]:
        """Added tokens left out: models tuned for chat rename some that stand in no text."""
        added = self.tokenizer.added_tokens_decoder
        return {token: i for token, i in self.tokenizer.get_vocab().items() if i not in added}


def _read(
    model: PreTrainedModel,
    reader: _Reader,
    first: _Reader,
    reference: PreTrainedModel | None,
    window: int,
    stride: int,
) -> tuple[TextScore, tuple[str, ...]]:
    """The score of a model on the text, and sentences on what could not be compared with the first."""
    tokens, name, notes = reader.tokens, reader.source.name, ()
    paired_tokens = reader is first or first.same_tokens(reader)
    sizes = [m.config.get_text_config().vocab_size for m in (model, reference) if m is not None]
    work = f"perplexity of {name}"
    kl = None
    if reference is not None and paired_tokens and first.same_vocabulary(reader) and len(set(sizes)) == 1:
        nll, kl, counts = strided_divergence(reference, model, tokens, window, stride, work)
    else:
        nll, counts = strided_nll(model, tokens, window, stride, work)
        if reader is first:
            kl = torch.zeros_like(nll)
        elif not paired_tokens:
            notes = (
                f"{name} reads the text as other tokens than {first.source.name}: compare their bits per byte; "
                "differences of loss and divergences are not defined.",
            )
        else:
            notes = (f"{name} has another vocabulary than {first.source.name}: a divergence is not defined.",)
    for figure in (nll, kl):
        if figure is not None and not figure.isfinite().all():
            raise InputError(
                f"predictions are not finite in window {int((~figure.isfinite()).nonzero()[0])} of the text",
                hint="the weights are damaged, or too large for float32",
            )
    return TextScore(nll, kl, counts, paired_tokens, reader.tokens_per_byte), notes


# --- as report rows ----------------------------------------------------------------------------------------------


def comparison(results: Sequence[Evaluated]) -> list[Row]:
    """One report row a model; ``nll_more`` and ``kl`` are nats a token against the first, None where undefined."""
    rows: list[Row] = []
    for result in results:
        row: dict[str, Any] = {"model": result.model}
        if result.text and results[0].text:
            row |= _text_figures(result.text, results[0].text, alone=len(results) == 1)
        if result.answers:
            row |= result.answers.row
        rows.append({**row, "seconds": round(result.seconds, 3)})
    return rows


def _text_figures(score: TextScore, first: TextScore, alone: bool) -> dict[str, Any]:
    fit = perplexity(score.nll, score.counts)
    row: dict[str, Any] = {
        "perplexity": fit.mean,
        "perplexity_se": fit.standard_error,
        "bits_per_byte": score.bits_per_byte,
        "tokens": int(score.counts.sum()),
    }
    if alone:
        return row
    nll = ratio(score.nll - first.nll, score.counts) if score.paired else None
    kl = ratio(score.kl, score.counts) if score.kl is not None else None
    return row | {
        "nll_more": nll and nll.mean,
        "nll_more_se": nll and nll.standard_error,
        "kl": kl and kl.mean,
        "kl_se": kl and kl.standard_error,
    }


def answer_differences(results: Sequence[Evaluated]) -> list[Row]:
    """Every other model against the first on the same questions, as report rows."""
    first = results[0].answers
    return [{"model": r.model, **paired(first, r.answers)} for r in results[1:] if first and r.answers]

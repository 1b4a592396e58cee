"""Training of adapters on rows: the warm-up that gradients are taken at, and the tuning that a selection is judged by.

The recipe of the authors' scripts: AdamW without weight decay, a learning rate that rises and then falls to zero along
a line, batches whose loss is the mean over rows of the mean over answer tokens. The state of every epoch's end is kept.
Training cut short continues to the same bytes. Knows adapters, examples and runs. Does not know what rows are for.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from safetensors.torch import load_file, save_file
from torch import Tensor

from icml25cli.core.blockwise import whole
from icml25cli.core.errors import InputError
from icml25cli.core.progress import Progress
from icml25cli.core.runs import Run
from icml25cli.papers.select_data.adapters import Checkpoint, save_adapter, save_moments, trained
from icml25cli.papers.select_data.tokens import Example

KEPT_EVERY = 20  # steps
BETAS, EPS = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Recipe:
    """How adapters are trained; the defaults are the paper's."""

    epochs: int = 4
    learning_rate: float = 2e-5
    batch_size: int = 128
    rising: float = 0.03  # share of all steps in which the rate rises
    seed: int = 0
    batch_tokens: int = 2048  # of a batch in one forward


def learning_rate(step: int, steps: int, rising: float, peak: float) -> float:
    """After ``step`` of ``steps`` updates: it rises to ``peak`` over a share ``rising`` of them, then falls to zero."""
    rise = -(-round(steps * rising * 1e6) // 10**6)  # without the rounding noise of the product
    return peak * (step / rise if step < rise else max(0.0, (steps - step) / max(1, steps - rise)))


def checkpoint_weights(
    ends: Sequence[int], steps: int, rising: float = 0.03, peak: float = 2e-5, every: int = 1
) -> list[float]:
    """Mean learning rate of each epoch, which ends at ``ends``, as logged after every ``every``-th update.

    The weight of a checkpoint in a score is its share of their sum.
    """
    means, first = [], 0
    for end in ends:
        logged = [learning_rate(s, steps, rising, peak) for s in range(every, steps + 1, every) if first < s <= end]
        means.append(float(np.mean(logged)) if logged else 0.0)
        first = end
    return means


def shares(weights: Sequence[float]) -> list[float]:
    """Weights that sum to one; equal ones where all are zero."""
    total = sum(weights)
    return [w / total for w in weights] if total > 0 else [1 / len(weights)] * len(weights)


def train(model: Any, examples: Sequence[Example], recipe: Recipe, run: Run, description: str) -> list[Checkpoint]:
    """Train ``model``'s adapters; every epoch's end becomes a unit ``checkpoint-N`` of ``run``.

    Raises:
        InputError: a loss is not finite.
    """
    size = min(recipe.batch_size, len(examples))
    each = -(-len(examples) // size)
    steps = recipe.epochs * each
    ends = [each * (epoch + 1) for epoch in range(recipe.epochs)]
    if not all(run.has(_checkpoint(epoch)) for epoch in range(recipe.epochs)):
        learnt = trained(model)
        optimizer = torch.optim.AdamW(learnt.values(), lr=0.0, betas=BETAS, eps=EPS, weight_decay=0.0)
        done = _restore(learnt, optimizer, run, steps)
        model.train()
        with Progress(description, steps) as progress:
            progress.advance(done)
            for step in range(done, steps):
                order = np.random.default_rng([recipe.seed, step // each]).permutation(len(examples))
                batch = [examples[i] for i in order[step % each * size :][:size]]
                # Torch's scheduler sets the rate of step s after update s, so that the first update has the rate of 0.
                optimizer.param_groups[0]["lr"] = learning_rate(step, steps, recipe.rising, recipe.learning_rate)
                with seeded(model.device, recipe.seed + 1_000_003 * (step + 1)):  # of dropout, whoever continues here
                    loss = _accumulate(model, batch, recipe.batch_tokens)
                if not np.isfinite(loss):
                    raise InputError(f"the loss of step {step + 1} is not finite", hint="lower --lr")
                optimizer.step()
                optimizer.zero_grad()
                if (step + 1) % each == 0:
                    _keep_checkpoint(model, learnt, optimizer, run, step // each)
                if (step + 1) % KEPT_EVERY == 0 and step + 1 < steps:
                    _keep(learnt, optimizer, run, step + 1)
                progress.advance()
        for left in range(KEPT_EVERY, steps, KEPT_EVERY):
            run.discard(_unit(left))
    weights = checkpoint_weights(ends, steps, recipe.rising, recipe.learning_rate)
    return [Checkpoint(run.path(_checkpoint(i)), weight) for i, weight in enumerate(weights)]


# --- losses ------------------------------------------------------------------------------------------------------


def batches(examples: Sequence[Example], tokens: int) -> Iterator[list[int]]:
    """Places of ``examples``, by length, in batches of about so many tokens with their padding."""
    batch: list[int] = []
    for i in sorted(range(len(examples)), key=lambda i: -len(examples[i].tokens)):
        if batch and (len(batch) + 1) * len(examples[batch[0]].tokens) > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def padded(
    examples: Sequence[Example], device: torch.device | str
) -> tuple[Int64[Tensor, "rows length"], Int64[Tensor, "rows length"], Bool[Tensor, "rows length"]]:
    """Tokens, where they are rather than padding on the right, and which of them are answers."""
    length = max(len(example.tokens) for example in examples)
    tokens = np.zeros((len(examples), length), np.int64)
    there, answer = np.zeros_like(tokens), np.zeros(tokens.shape, bool)
    for i, example in enumerate(examples):
        n = len(example.tokens)
        tokens[i, :n], there[i, :n], answer[i, :n] = example.tokens, 1, example.answer
    return tuple(torch.from_numpy(x).to(device) for x in (tokens, there, answer))  # type: ignore[return-value]


def row_losses(model: Any, examples: Sequence[Example], *, mean: bool) -> Float[Tensor, " rows"]:
    """Negative log-likelihood of every row's answer tokens, their mean or their sum, in nats."""
    tokens, there, answer = padded(examples, model.device)
    counted = answer[:, 1:]
    # Logits are the larger part of a small model's work: only those that predict an answer of some row are made.
    places = counted.any(0).nonzero().flatten()
    logits = logits_at(model, tokens, there, places)
    nll = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), tokens[:, places + 1].flatten(), reduction="none"
    ).view(len(examples), -1)
    kept = counted[:, places]
    total = (nll * kept).sum(1)
    return total / kept.sum(1) if mean else total


def logits_at(
    model: Any,
    tokens: Int64[Tensor, "rows length"],
    there: Int64[Tensor, "rows length"],
    places: Int64[Tensor, " places"],
) -> Float[Tensor, "rows places vocabulary"]:
    """Logits at some places of every row."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if "logits_to_keep" in inspect.signature(inner.forward).parameters:
        return model(input_ids=tokens, attention_mask=there, use_cache=False, logits_to_keep=places).logits
    return model(input_ids=tokens, attention_mask=there, use_cache=False).logits[:, places]


def _accumulate(model: Any, batch: Sequence[Example], tokens: int) -> float:
    """Gradients of the mean over rows of their mean losses; returns that loss."""
    total = 0.0
    for places in batches(batch, tokens):
        loss = row_losses(model, [batch[i] for i in places], mean=True).sum() / len(batch)
        loss.backward()
        total += loss.item()
    return total


@contextlib.contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """torch's own generator begins at ``seed`` inside, and is outside as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


# --- what is kept ------------------------------------------------------------------------------------------------


def _checkpoint(epoch: int) -> str:
    return f"checkpoint-{epoch + 1}"


def _unit(step: int) -> str:
    return f"step-{step:06d}.safetensors"


def _keep_checkpoint(
    model: Any, learnt: dict[str, Any], optimizer: torch.optim.Optimizer, run: Run, epoch: int
) -> None:
    def write(folder: Path) -> None:
        folder.mkdir()
        save_adapter(model, folder)
        first = {name: optimizer.state[x]["exp_avg"] for name, x in learnt.items()}
        save_moments(folder, first, {name: optimizer.state[x]["exp_avg_sq"] for name, x in learnt.items()})

    run.write(_checkpoint(epoch), write)


def _keep(learnt: dict[str, Any], optimizer: torch.optim.Optimizer, run: Run, step: int) -> None:
    """Make everything that a later step depends on a unit of the run, in place of the one before."""
    kept: dict[str, Tensor] = {}
    for name, x in learnt.items():
        kept |= {f"{name}|value": x.detach()} | {f"{name}|{key}": part for key, part in optimizer.state[x].items()}
    run.write(_unit(step), lambda path: save_file({key: x.cpu().contiguous() for key, x in kept.items()}, path))
    for left in range(KEPT_EVERY, step, KEPT_EVERY):
        run.discard(_unit(left))


def _restore(learnt: dict[str, Any], optimizer: torch.optim.Optimizer, run: Run, steps: int) -> int:
    """Bring back the last kept step, if any; returns its number."""
    kept = [step for step in range(KEPT_EVERY, steps, KEPT_EVERY) if run.has(_unit(step))]
    if not kept:
        return 0
    with whole(run):
        held = load_file(run.path(_unit(kept[-1])))
        for name, x in learnt.items():
            x.data.copy_(held[f"{name}|value"])
            parts = ("step", "exp_avg", "exp_avg_sq")
            optimizer.state[x] = {part: held[f"{name}|{part}"].clone() for part in parts}
            for part in parts[1:]:
                optimizer.state[x][part] = optimizer.state[x][part].to(x.device)
    return kept[-1]

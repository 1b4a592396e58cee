"""Training of any model that embeds nodes and scores pairs. Section 3.5.

Loss is mean softplus(-s⁺) + mean softplus(s⁻) with one negative a positive, drawn anew every epoch. The positives of a
batch are hidden from propagation and from common neighbours while they are foretold. Everything random of an epoch
comes from the seed and the epoch's number, so a run that was killed continues from its last evaluation to the same
figures.

Knows models, pairs and run directories. Does not know graphs' names, pictures or protocols.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from numpy import ndarray
from torch import Tensor, nn

from icml25cli.core.errors import InputError
from icml25cli.core.progress import Progress
from icml25cli.core.runs import Run
from icml25cli.papers.linkpred.metrics import hits_at_k, mrr
from icml25cli.papers.linkpred.propagation import Context, Observed
from icml25cli.papers.linkpred.splits import Part

AT_ONCE = 8192  # pairs scored in one pass outside training
CLIP = 1.0  # largest norm of the gradient of each group of parameters


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs, and a row of features of each one's picture where there are pictures."""

    pairs: Int64[ndarray, "*b 2"]
    seen: Callable[[ndarray], Float32[ndarray, "c s"]] | None = None

    def batch(self, rows: ndarray) -> tuple[Int64[ndarray, "c 2"], list[Tensor]]:
        flat = self.pairs.reshape(-1, 2)[rows]
        return flat, [] if self.seen is None else [torch.from_numpy(self.seen(rows))]


@dataclass(frozen=True)
class Recipe:
    """How long and how fast.

    Attributes:
        evaluate_every: epochs between evaluations.
        patience: evaluations without a better one after which training stops.
        batch: positives a step; by default a sixteenth of all, from 64 to 32768.
        base_rate, fusion_rate: Adam's, of the base model and of what fuses pictures into it.
    """

    epochs: int = 100
    evaluate_every: int = 5
    patience: int = 6
    batch: int | None = None
    base_rate: float = 0.01
    fusion_rate: float = 1e-3
    weight_decay: float = 1e-4

    def batch_of(self, positives: int) -> int:
        return min(positives, self.batch or min(max(positives // 16, 64), 32768))


@dataclass(frozen=True)
class Fitted:
    """What training came to; the model itself holds the parameters of the best evaluation.

    Attributes:
        best: value of the criterion on validation pairs, and in which epoch.
        seconds: of this and of earlier, interrupted attempts together.
    """

    best: float
    epoch: int
    epochs: int
    seconds: float


def fit(
    model: nn.Module,
    observed: Observed,
    positives: Pairs,
    negatives: Callable[[np.random.Generator], tuple[Pairs, ndarray]],
    validation: tuple[Pairs, Pairs],
    criterion: str,
    recipe: Recipe,
    *,
    seed: int,
    run: Run | None = None,
    unit: str = "model",
    description: str = "training",
) -> Fitted:
    """Train ``model`` and leave it with the parameters of its best evaluation.

    Args:
        negatives: for an epoch a pool of pairs, and the row in it of each positive's negative.
        validation: edges and negatives.
        criterion: ``hits_at_K``, ``mrr`` or ``auc``.
        run: where checkpoints go, one an evaluation, and are continued from.

    Raises:
        InputError: the loss is not finite.
        OutputError: a checkpoint cannot be written.
    """
    groups = _groups(model, recipe)
    optimizer = torch.optim.Adam([{"params": p, "lr": rate} for p, rate in groups], weight_decay=recipe.weight_decay)
    state: dict[str, Any] = {"epoch": 0, "best": -1.0, "best_epoch": 0, "best_model": {}, "seconds": 0.0, "done": False}
    if run is not None and run.has(f"{unit}.pt"):
        state = torch.load(run.path(f"{unit}.pt"), weights_only=True)
        model.load_state_dict(state["best_model"] if state["done"] else state["model"])
        if not state["done"]:
            optimizer.load_state_dict(state["optimizer"])
    started = time.monotonic() - state["seconds"]
    with Progress(description, recipe.epochs) as progress, torch.random.fork_rng(devices=[]):
        progress.advance(state["epoch"])
        while not state["done"]:
            epoch = state["epoch"] = state["epoch"] + 1
            _train_epoch(model, optimizer, groups, observed, positives, negatives, recipe, (seed, epoch))
            progress.advance()
            if epoch % recipe.evaluate_every and epoch != recipe.epochs:
                continue
            value = judge(criterion, *(predict(model, observed.everything, part) for part in validation))
            if value > state["best"]:
                best_model = {name: tensor.clone() for name, tensor in model.state_dict().items()}
                state |= {"best": value, "best_epoch": epoch, "best_model": best_model}
            late = epoch - state["best_epoch"] >= recipe.patience * recipe.evaluate_every
            state["done"] = late or epoch == recipe.epochs
            state["seconds"] = time.monotonic() - started
            if run is not None:
                kept = state if state["done"] else state | _now(model, optimizer)
                run.write(f"{unit}.pt", lambda path, kept=kept: torch.save(kept, path))
    model.load_state_dict(state["best_model"])
    return Fitted(state["best"], state["best_epoch"], state["epoch"], state["seconds"])


def _now(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def _groups(model: nn.Module, recipe: Recipe) -> list[tuple[list[nn.Parameter], float]]:
    """Parameters of the base model, and of what fuses pictures into it, each with its rate."""
    fusing = {id(p) for module in model.modules() if hasattr(module, "added") for p in module.added()}  # type: ignore[operator]
    base = [p for p in model.parameters() if id(p) not in fusing]
    fusion = [p for p in model.parameters() if id(p) in fusing]
    return [(group, rate) for group, rate in ((base, recipe.base_rate), (fusion, recipe.fusion_rate)) if group]


def _train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[tuple[list[nn.Parameter], float]],
    observed: Observed,
    positives: Pairs,
    negatives: Callable[[np.random.Generator], tuple[Pairs, ndarray]],
    recipe: Recipe,
    seeds: tuple[int, int],
) -> None:
    rng = np.random.default_rng(seeds)
    torch.manual_seed(int(rng.integers(2**62)))
    pool, drawn = negatives(rng)
    count = len(positives.pairs)
    size = recipe.batch_of(count)
    order = rng.permutation(count)
    model.train()
    for begin in range(0, count - size + 1, size):  # the last, smaller batch is left out
        rows = order[begin : begin + size]
        pairs, seen = positives.batch(rows)
        others, others_seen = pool.batch(drawn[rows])
        context = observed.without(pairs)
        h = model.embed(context)  # type: ignore[operator]
        both = [torch.cat(parts) for parts in zip(seen, others_seen, strict=True)]
        logits = model.score(context, h, np.concatenate([pairs, others]), *both)  # type: ignore[operator]
        positive, negative = logits.split(size)
        loss = nn.functional.softplus(-positive).mean() + nn.functional.softplus(negative).mean()
        if not torch.isfinite(loss):
            raise InputError(f"the loss became {loss.item()} in epoch {seeds[1]}", hint="use a smaller --lr")
        optimizer.zero_grad()
        loss.backward()
        for parameters, _ in groups:
            nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()


@torch.inference_mode()
def predict(model: nn.Module, context: Context, pairs: Pairs) -> Float64[ndarray, "*b"]:
    """Logits of pairs, in their shape."""
    model.eval()
    h = model.embed(context)  # type: ignore[operator]
    count = pairs.pairs.size // 2
    logits = np.empty(count)
    for begin in range(0, count, AT_ONCE):
        rows = np.arange(begin, min(begin + AT_ONCE, count))
        flat, seen = pairs.batch(rows)
        logits[rows] = model.score(context, h, flat, *seen).double().numpy()  # type: ignore[operator]
    return logits.reshape(pairs.pairs.shape[:-1])


def criterion_of(metric: str, valid: Part) -> str:
    """What to choose an epoch by: the split's metric, unless so few negatives make it say nothing."""
    if metric.startswith("hits_at_") and valid.negatives.shape[-2] < 2 * int(metric.removeprefix("hits_at_")):
        return "auc"
    return metric


def judge(criterion: str, positive: Float64[ndarray, "p"], negative: Float64[ndarray, "*q"]) -> float:
    if criterion == "mrr":
        return mrr(positive, negative)
    if criterion == "auc":
        from sklearn.metrics import roc_auc_score

        scores = np.concatenate([positive, negative.ravel()])
        return float(roc_auc_score(np.arange(len(scores)) < len(positive), scores))
    return hits_at_k(positive, negative, int(criterion.removeprefix("hits_at_")))

"""Training through the frozen network, with early stopping on a validation set (section 3.3).

Every random choice of a step is derived from the seed and the step's number, so that a run that was cut short and
continued ends with the same numbers as one in one go.

Knows learners and rows. Does not know tables, how a validation set came about, or where checkpoints are kept.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, isfinite
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from numpy import ndarray
from torch import Tensor
from torch.nn.functional import cross_entropy

from icml25cli.core.progress import Progress, warn
from icml25cli.papers.tabpfn_bag.contexts import Tasks, queries_and_context, stratified_bootstrap
from icml25cli.papers.tabpfn_bag.encoders import Rows
from icml25cli.papers.tabpfn_bag.ensemble import Aggregate, Predictor, probabilities, task_losses, weights_by_loss
from icml25cli.papers.tabpfn_bag.learners import Learner, as_numbers

FEWEST_STEPS, MOST_STEPS = 10, 50  # between two validations: small tables would else stop after a hundred steps
FAILURES = 5  # steps with a loss that is not finite, after which training stops
UNKNOWN = -100  # symbol of a query whose class the context does not show


@dataclass(frozen=True)
class Recipe:
    """How training goes.

    Attributes:
        context, batch: rows of a step's context, and queries.
        shown: rows of a path's context in validation and prediction.
        patience: validations without a better one.
        disjoint: queries are not in their context; else as in the authors' code.
        bootstrap: each path has a context of its own; else all have one, drawn without replacement.
        time_limit: seconds, the last validation among them.
        processor_time: whether they are the processor's, which other work on the machine does not lengthen.
    """

    context: int = 256
    batch: int = 256
    shown: int = 1000
    epochs: int = 200
    patience: int = 10
    rate: float = 2e-3
    decay: float = 0.02
    disjoint: bool = True
    bootstrap: bool = True
    time_limit: float | None = None
    processor_time: bool = False
    aggregate: Aggregate = "logit"
    seed: int = 0

    def clock(self) -> float:
        """Seconds since some moment, as ``time_limit`` counts them."""
        return time.process_time() if self.processor_time else time.monotonic()


@dataclass(eq=False)
class State:
    """Where training stands; all that a continued run needs beside the module and its optimiser."""

    step: int = 0
    epoch: int = 0
    seconds: float = 0.0
    failures: int = 0
    best_epoch: int = -1
    best_loss: float = float("inf")
    best_module: dict[str, Tensor] = field(default_factory=dict)
    best_contexts: list[list[int]] = field(default_factory=list)
    best_weights: list[float] = field(default_factory=list)
    best_row_losses: list[float] = field(default_factory=list)  # of validation rows
    history: list[list[float]] = field(default_factory=list)  # epoch, training loss, validation loss, seconds


@dataclass(frozen=True, eq=False)
class Fit:
    """The best epoch's predictor, and how it came about."""

    predictor: Predictor
    state: State
    stopped: str  # patience, epochs, time or failures


def finetune(
    learner: Learner,
    tasks: Tasks,
    rows: Rows,
    labels: Int64[ndarray, "n"],
    valid: Rows,
    valid_labels: Int64[ndarray, "v"],
    recipe: Recipe,
    *,
    load: Callable[[], dict[str, Any] | None] = lambda: None,
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Fit:
    """Train ``learner`` until it stops getting better on the validation rows; it ends as it was at its best.

    Args:
        tasks: asked in prediction; of several of one path, as in a code, each step draws one.
        load, keep: bring and take what continues the run; called at the start, and now and then.
    """
    module = learner.module
    parameters = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=recipe.rate, weight_decay=recipe.decay)
    state = State()
    start = {name: value.detach().clone() for name, value in module.state_dict().items()}
    if saved := load():
        module.load_state_dict(saved["module"])
        optimizer.load_state_dict(saved["optimizer"])
        state = State(**saved["state"])
    askable = np.flatnonzero(np.bincount(labels)[labels] > 1)
    if not len(askable):
        askable = np.arange(len(labels))
    batch, steps = epoch_size(len(labels), recipe.batch)
    context = min(recipe.context, len(labels))
    began = recipe.clock() - state.seconds
    longest = 0.0  # of validations
    stopped = "epochs"
    with Progress("validations at most", recipe.epochs) as progress:
        while state.epoch < recipe.epochs:
            if state.epoch - 1 - state.best_epoch > recipe.patience:
                stopped = "patience"
                break
            if state.failures > FAILURES:
                stopped = "failures"
                break
            losses, late = [], False
            for _ in range(steps):
                if recipe.time_limit is not None and recipe.clock() - began + longest > recipe.time_limit:
                    late = True
                    break
                loss = _step(learner, tasks, rows, labels, askable, batch, context, recipe, state.step, optimizer)
                if not isfinite(loss):
                    state.failures += 1
                    for group in optimizer.param_groups:
                        group["lr"] /= 2
                losses.append(loss)
                state.step += 1
            if losses:
                trained = recipe.clock()
                _validate(learner, tasks, rows, labels, valid, valid_labels, recipe, state, float(np.mean(losses)))
                longest = max(longest, recipe.clock() - trained)
                state.seconds = recipe.clock() - began
                state.history[-1].append(state.seconds)
                state.epoch += 1
            progress.advance()
            keep({"module": module.state_dict(), "optimizer": optimizer.state_dict(), "state": vars(state)})
            if late:
                stopped = "time"
                break
    if stopped == "failures":
        warn(f"training stopped after {state.failures} steps whose loss was not finite")
    if not state.best_contexts:  # not one step in time, or no loss that is a number: as it was at the start
        module.load_state_dict(start)
        _validate(learner, tasks, rows, labels, valid, valid_labels, recipe, state, float("nan"))
        state.history.pop()
    module.load_state_dict(state.best_module)
    contexts = [np.array(rows_shown) for rows_shown in state.best_contexts]
    predictor = learner.predictor(tasks, rows, labels, contexts, recipe.aggregate)
    predictor.weights = np.array(state.best_weights) if recipe.aggregate == "weighted" else None
    return Fit(predictor, state, stopped)


def epoch_size(rows: int, batch: int) -> tuple[int, int]:
    """Queries of a step, at most half of the rows, and steps between validations."""
    batch = max(1, min(batch, rows // 2))
    return batch, min(max(ceil(rows / batch), FEWEST_STEPS), MOST_STEPS)


def draw_contexts(
    labels: Int64[ndarray, "n"], paths: int, size: int, rng: np.random.Generator, *, bootstrap: bool = True
) -> list[ndarray]:
    """A context for each path: bootstraps of their own, or the same rows for all."""
    size = min(size, len(labels))
    if bootstrap:
        return [stratified_bootstrap(labels, size, rng) for _ in range(paths)]
    return [stratified_bootstrap(labels, size, rng, replace=False)] * paths


def _step(
    learner: Learner,
    tasks: Tasks,
    rows: Rows,
    labels: ndarray,
    askable: ndarray,
    batch: int,
    context: int,
    recipe: Recipe,
    step: int,
    optimizer: torch.optim.Optimizer,
) -> float:
    rng = np.random.default_rng((recipe.seed, 1, step))
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    asked, shown = queries_and_context(labels, askable, batch, context, rng, disjoint=recipe.disjoint)
    now = one_task_a_path(tasks, rng)
    logits = learner.logits(
        now,
        rows.take(torch.from_numpy(shown)),
        as_numbers(labels[shown], now),
        rows.take(torch.from_numpy(asked)),
        generator,
    )[..., : now.alphabet]
    wanted = as_numbers(labels[asked], now)
    wanted[:, torch.from_numpy(~np.isin(labels[asked], labels[shown]))] = UNKNOWN
    if bool((wanted == UNKNOWN).all()):
        return 0.0
    loss = cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=UNKNOWN)
    value = loss.item()
    if isfinite(value):
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], 1.0)
        optimizer.step()
    return value


def one_task_a_path(tasks: Tasks, rng: np.random.Generator) -> Tasks:
    """One of each path's tasks, drawn; all of them where each path has one."""
    if len(np.unique(tasks.path)) == len(tasks):
        return tasks
    order = rng.permutation(len(tasks))
    first = np.unique(tasks.path[order], return_index=True)[1]
    return tasks.take(order[first])


def _validate(
    learner: Learner,
    tasks: Tasks,
    rows: Rows,
    labels: ndarray,
    valid: Rows,
    valid_labels: ndarray,
    recipe: Recipe,
    state: State,
    training: float,
) -> None:
    """Log-loss of averaged logits with fresh contexts; the best epoch's module and contexts are kept."""
    rng = np.random.default_rng((recipe.seed, 2, state.epoch if recipe.bootstrap else 0))
    contexts = draw_contexts(labels, max(tasks.path) + 1, recipe.shown, rng, bootstrap=recipe.bootstrap)
    predictor = learner.predictor(tasks, rows, labels, contexts, recipe.aggregate)
    with torch.no_grad():
        scores = predictor.task_scores(valid)
    weights = weights_by_loss(task_losses(scores, valid_labels))
    p = probabilities(scores, tasks, recipe.aggregate, weights)
    losses = row_losses(p, valid_labels)
    loss = float(losses.mean())
    state.history.append([float(state.epoch), training, loss])
    if loss < state.best_loss:  # which a loss that is no number is not
        state.best_loss, state.best_epoch = loss, state.epoch
        state.best_module = {name: value.detach().clone() for name, value in learner.module.state_dict().items()}
        state.best_contexts = [index.tolist() for index in contexts]
        state.best_weights = weights.tolist()
        state.best_row_losses = losses.tolist()


def log_loss(p: ndarray, labels: ndarray) -> float:
    """Mean negative log-probability of the labels, in nats, no probability counted below 1e-15."""
    return float(row_losses(p, labels).mean())


def row_losses(p: ndarray, labels: ndarray) -> ndarray:
    """The same of each row."""
    return -np.log(np.maximum(p[np.arange(len(labels)), labels], 1e-15))

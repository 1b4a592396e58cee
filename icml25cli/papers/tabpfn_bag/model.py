"""Fit a table: choose what the network is asked, train what the method trains, fall back where that does not pay.

Knows data frames, methods and the network. Does not know files, or methods of other libraries.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64
from numpy import ndarray

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.progress import note, warn
from icml25cli.papers.tabpfn_bag.codes import alphabet_code, binary_code, binary_length
from icml25cli.papers.tabpfn_bag.columns import Schema
from icml25cli.papers.tabpfn_bag.contexts import Tasks, coded_tasks, plain_tasks
from icml25cli.papers.tabpfn_bag.encoders import PathEncoder, Rows, encoder_config
from icml25cli.papers.tabpfn_bag.ensemble import Ensemble, Predictor
from icml25cli.papers.tabpfn_bag.finetune import Recipe, draw_contexts, finetune, log_loss, row_losses
from icml25cli.papers.tabpfn_bag.labels import LARGEST_VALIDATION, Class, labelled, numbers_of, split_off
from icml25cli.papers.tabpfn_bag.learners import (
    Head,
    HeadModule,
    InContext,
    Learner,
    RawPaths,
    WholeNet,
    random_net,
    trainable,
)
from icml25cli.papers.tabpfn_bag.local import LocalEnsemble
from icml25cli.papers.tabpfn_bag.network import Pfn

METHODS = ("beta", "frozen", "bag", "encoder", "beta-noboot", "full-ft", "local", "tabm", "random-pfn")
UNTRAINED = ("frozen", "bag", "local")
ManyClass = Literal["ecoc", "alphabet", "error"]
FEWEST = 20  # rows that training needs
FROZEN_ROWS = 3000  # of the context of the network as it is
# Standard errors by which training has to beat the network as it is: the best of many looks at rows flatters itself.
MARGIN = 0.5
SYMBOLS = 6  # of the alphabet of codes: of 2, 4, 6 and 10 the best on the development tables of more than ten classes
FULL_RATE = 3e-5  # of the network's own weights
SAME_ROWS = 0.02  # share of validation rows that are training rows, too, which is warned of


@dataclass(frozen=True)
class Options:
    """What is fitted, and how.

    Attributes:
        paths: K.
        kind: how paths differ, one of ``encoders.KINDS``.
        valid: share of the rows that decide when training stops.
        many_class: what to do about more classes than the network has.
        fallback: predict by the network as it is where training does not beat it on the validation rows.
    """

    method: str = "beta"
    paths: int = 8
    kind: str = "tabm-mini"
    frequencies: int = 24
    embedding: int = 16
    dropout: float = 0.15
    valid: float = 0.2
    many_class: ManyClass = "alphabet"
    fallback: bool = True
    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"no method is called '{self.method}'", hint=f"one of {', '.join(METHODS)}")


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model: probabilities of classes for rows of a table with the same columns.

    Attributes:
        classes: in the order of the probabilities' columns.
        facts: how it came about: losses, steps, seconds, trained parameters.
    """

    classes: list[Class]
    schema: Schema
    predictor: Predictor
    options: Options
    facts: dict[str, Any]

    def probabilities(
        self, frame: pd.DataFrame, progress: Callable[[int], None] = lambda _: None
    ) -> Float64[ndarray, "n classes"]:
        """Of rows of a table whose columns are found by name.

        Raises:
            InputError: a column is missing.
        """
        return self.predictor(self.schema.rows(frame), progress)


Keep = Callable[[dict[str, Any]], None]


def fit_model(
    frame: pd.DataFrame,
    target: pd.Series,
    net: Pfn,
    options: Options,
    *,
    valid: tuple[pd.DataFrame, pd.Series] | None = None,
    load: Callable[[], dict[str, Any] | None] = lambda: None,
    keep: Keep = lambda _: None,
    began: float | None = None,
) -> Model:
    """Fit a method on the rows of a table.

    Args:
        target: the class of each row; rows without one are left out.
        valid: a validation table and its classes; else a share of the rows, at most 2000, which join the contexts once
            training is over. (The authors keep the contexts of the best epoch.)
        load, keep: bring and take what continues training.
        began: when the time limit began to count, by the recipe's clock; now, where it is not given.

    Raises:
        InputError: no usable column, or fewer than two classes.
        UsageError: more classes than the network has, and codes are not allowed.
    """
    began = options.recipe.clock() if began is None else began
    frame, classes, labels = labelled(frame, target.reset_index(drop=True))
    schema = Schema.of(frame)
    rows = schema.rows(frame)
    _warn_of_leak(schema, rows, labels)
    tasks = tasks_for(len(classes), net, options)
    method = options.method
    if method not in UNTRAINED and (len(rows) < FEWEST or np.bincount(labels).max() < 2):
        few = f"{len(rows)} rows are" if len(rows) < FEWEST else "one row of each class is"
        warn(f"{few} too few to train on: the network predicts as it is")
        method = "frozen"
    if method in UNTRAINED:
        predictor = untrained(method, net, rows, labels, options)
        return Model(classes, schema, predictor, options, {"used": method, "trainable_parameters": 0})

    if valid is None:
        train, held = split_off(labels, options.valid, options.recipe.seed, most=LARGEST_VALIDATION)
        part, part_labels, check, check_labels = _take(rows, train), labels[train], _take(rows, held), labels[held]
    else:
        part, part_labels = rows, labels
        check_labels = numbers_of(valid[1], classes)
        known = check_labels >= 0
        if not known.any():
            raise InputError(
                "no row of the validation table has a class that is in the table", hint="leave out --valid for a share"
            )
        check, check_labels = schema.rows(valid[0].loc[known].reset_index(drop=True)), check_labels[known]
    _warn_of_same_rows(part, check)
    if method == "random-pfn":
        net = random_net(net, options.recipe.seed)
    facts: dict[str, Any] = {"used": method, "training_rows": len(part), "validation_rows": len(check)}
    fallback = options.fallback and method in ("beta", "encoder", "beta-noboot", "full-ft")
    as_it_is = untrained("frozen", net, part, part_labels, options)(check) if fallback else None
    learner = make_learner(method, net, schema, part, len(classes), options)
    recipe = recipe_for(method, options)
    if recipe.time_limit is not None:
        recipe = replace(recipe, time_limit=max(0.0, recipe.time_limit - (recipe.clock() - began)))
    if method == "tabm":
        tasks = plain_tasks(len(classes), options.paths)
    fit = finetune(learner, tasks, part, part_labels, check, check_labels, recipe, load=load, keep=keep)
    facts |= {
        "validation_log_loss": fit.state.best_loss,
        "best_epoch": fit.state.best_epoch,
        "epochs": fit.state.epoch,
        "steps": fit.state.step,
        "stopped": fit.stopped,
        "trainable_parameters": trainable(learner),
        "history": fit.state.history,
    }
    predictor = fit.predictor
    if as_it_is is not None:
        gain = row_losses(as_it_is, check_labels) - np.array(fit.state.best_row_losses)
        error = float(gain.std() / max(len(gain) - 1, 1) ** 0.5)
        facts["frozen_validation_log_loss"] = log_loss(as_it_is, check_labels)
        facts |= {"gain_over_frozen": float(gain.mean()), "gain_over_frozen_se": error}
        if gain.mean() <= MARGIN * error:
            why = " in the time it had" if fit.stopped == "time" else ""
            note(f"training did not beat the network as it is{why}, which is what predicts")
            predictor, facts["used"] = untrained("frozen", net, rows, labels, options), "frozen"
    if valid is None and facts["used"] == method:  # validation rows have done their work, and are context from now on
        rng = np.random.default_rng((recipe.seed, 7))
        contexts = draw_contexts(labels, int(max(tasks.path)) + 1, recipe.shown, rng, bootstrap=recipe.bootstrap)
        weights = predictor.weights
        predictor = learner.predictor(tasks, rows, labels, contexts, recipe.aggregate)
        predictor.weights = weights
    return Model(classes, schema, predictor, options, facts)


def tasks_for(classes: int, net: Pfn, options: Options, *, rotate: bool = False) -> Tasks:
    """One question about the class where the network has as many, else one for each symbol of a code.

    Raises:
        UsageError: there are more, and codes are not allowed.
    """
    paths = 1 if options.method == "encoder" else options.paths
    if classes <= net.config.classes or options.method == "tabm":
        return plain_tasks(classes, paths, rotate=rotate)
    if options.many_class == "error":
        raise UsageError(
            f"there are {classes} classes and the network tells {net.config.classes} apart",
            hint="--many-class alphabet gives each class a code",
        )
    seed, length = options.recipe.seed, binary_length(classes, paths)
    if options.many_class == "alphabet":
        return coded_tasks(alphabet_code(classes, min(SYMBOLS, net.config.classes), length, seed), paths)
    return coded_tasks(binary_code(classes, length, seed), paths)


def recipe_for(method: str, options: Options) -> Recipe:
    """The recipe as the method takes it."""
    if method == "beta-noboot":
        return replace(options.recipe, bootstrap=False)
    return replace(options.recipe, rate=FULL_RATE) if method == "full-ft" else options.recipe


def make_learner(method: str, net: Pfn, schema: Schema, rows: Rows, classes: int, options: Options) -> Learner:
    """What the method trains, as it is before training."""
    seed = options.recipe.seed
    if method == "full-ft":
        return WholeNet(net, RawPaths(rows, options.paths, net.config.columns, spread=net.spread))
    config = encoder_config(
        schema.numbers,
        schema.levels,
        paths=options.paths,
        kind="vanilla" if method == "encoder" else options.kind,
        width=net.config.columns,
        frequencies=options.frequencies,
        embedding=options.embedding,
        dropout=options.dropout,
    )
    encoder = PathEncoder(config, seed)
    return Head(HeadModule(encoder, classes, seed)) if method == "tabm" else InContext(net, encoder)


def untrained(method: str, net: Pfn, rows: Rows, labels: Int64[ndarray, "n"], options: Options) -> Predictor:
    """The network as it is: rotations of columns and classes (``frozen``), and bootstraps (``bag``), or ``local``."""
    paths = RawPaths(rows, options.paths, net.config.columns, spread=net.spread)
    frozen = replace(options, method=method)
    tasks = tasks_for(int(labels.max()) + 1, net, frozen, rotate=True)
    rng = np.random.default_rng((options.recipe.seed, 4))
    if method == "local":
        return LocalEnsemble(net, paths, tasks, rows, labels, options.recipe.aggregate)
    bag = method == "bag"
    size = options.recipe.shown if bag else FROZEN_ROWS
    contexts = draw_contexts(labels, options.paths, size, rng, bootstrap=bag)
    aggregate = options.recipe.aggregate if options.recipe.aggregate != "weighted" else "logit"
    return Ensemble(net, paths, tasks, rows, labels, contexts, aggregate)


def _take(rows: Rows, index: ndarray) -> Rows:
    import torch

    return rows.take(torch.from_numpy(index))


def _warn_of_same_rows(train: Rows, valid: Rows) -> None:
    def keys(rows: Rows) -> list[bytes]:
        joined = np.concatenate([rows.numbers.numpy(), rows.codes.numpy().astype(np.float32)], 1)
        return [row.tobytes() for row in np.ascontiguousarray(joined)]

    known = set(keys(train))
    same = sum(key in known for key in keys(valid))
    if same > SAME_ROWS * len(valid):
        warn(f"{same:,} of {len(valid):,} validation rows are training rows, too: losses on them are too good")


def _warn_of_leak(schema: Schema, rows: Rows, labels: Int64[ndarray, "n"]) -> None:
    """A number that alone orders all rows by class is more often a copy of the target than a discovery."""
    if len(labels) < 2 * FEWEST:
        return
    names = [column.name for column in schema.columns if column.kind == "number"]
    if len(names) != schema.numbers:  # parts of dates stand between them
        return
    classes = int(labels.max()) + 1
    for name, values in zip(names, rows.numbers.numpy().T, strict=True):
        order = np.argsort(values, kind="stable")
        turns = np.flatnonzero(np.diff(labels[order]))
        if len(turns) == classes - 1 and (np.diff(values[order])[turns] > 0).all():
            warn(f"column '{name}' alone tells every row's class: is it a copy of the target?")

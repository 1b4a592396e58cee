"""The comparison on one table: split, fit every method on the same rows, judge on the held-out ones; resumable.

Knows models, baselines and run directories. Does not know how its result is shown.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64, Int64
from numpy import ndarray
from pandas.util import hash_pandas_object

from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.files import write_json
from icml25cli.core.progress import track, warn
from icml25cli.core.runs import Run, fingerprint, run_directory
from icml25cli.core.tables import read_array, write_array
from icml25cli.papers.tabpfn_bag.baselines import BASELINES, baseline_probabilities
from icml25cli.papers.tabpfn_bag.contexts import stratified_bootstrap
from icml25cli.papers.tabpfn_bag.labels import labelled, numbers_of, split_off
from icml25cli.papers.tabpfn_bag.metrics import evaluate
from icml25cli.papers.tabpfn_bag.model import METHODS, Model, Options, fit_model
from icml25cli.papers.tabpfn_bag.network import Pfn

Row = dict[str, Any]
# Of a fit's record what a person compares by; the rest says how the fit went.
MAIN = (
    "method",
    "accuracy",
    "balanced_accuracy",
    "auc",
    "log_loss",
    "ece",
    "fit_seconds",
    "predict_seconds",
    "trainable_parameters",
    "used",
)
SHOWN = 10  # classes in a message
STATE = "training.pt"  # unit of a fit's run


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to fit on, with every class among them, and rows to judge on; classes are numbers."""

    train: pd.DataFrame
    train_labels: Int64[ndarray, "n"]
    held: pd.DataFrame
    held_labels: Int64[ndarray, "m"]


def make_split(
    frame: pd.DataFrame,
    labels: Int64[ndarray, "rows"],
    seed: int,
    *,
    test: float = 0.2,
    most_train: int | None = None,
    most_held: int | None = None,
) -> Split:
    """Hold out a share of each class.

    Args:
        most_train: rows to fit on; of more a part is drawn within classes, at least one of each.
        most_held: rows to judge on; of more a part is drawn.
    """
    train, held = split_off(labels, test, seed)
    rng = np.random.default_rng((seed, 5))
    if most_train is not None and len(train) > most_train:
        train = np.sort(train[stratified_bootstrap(labels[train], most_train, rng, replace=False)])
    if most_held is not None and len(held) > most_held:
        held = np.sort(rng.choice(held, most_held, replace=False))
    parts = [frame.iloc[index].reset_index(drop=True) for index in (train, held)]
    return Split(parts[0], labels[train], parts[1], labels[held])


def known_methods(names: Sequence[str]) -> list[str]:
    """Names without repetition.

    Raises:
        UsageError: no method or baseline has one of them.
    """
    for name in names:
        if name not in (*METHODS, *BASELINES):
            raise UsageError(f"no method is called '{name}'", hint=f"one of {', '.join((*METHODS, *BASELINES))}")
    return list(dict.fromkeys(names))


def compare(
    frame: pd.DataFrame,
    target: pd.Series,
    net: Pfn,
    methods: Sequence[str],
    options: Options,
    *,
    test: float = 0.2,
    output: Path | None = None,
    resume: bool = False,
    fresh: bool = False,
) -> tuple[list[Row], dict[str, Float64[ndarray, "m classes"]], Int64[ndarray, "m"]]:
    """Figures and probabilities of each method on held-out rows, and their classes; what is done is not done again.

    Args:
        methods: of ``METHODS`` and ``BASELINES``.
        test: share of the rows that is held out, within classes.

    Raises:
        ToolboxError: as ``fit_model`` and ``baseline_probabilities``.
    """
    methods = known_methods(methods)
    frame, _, labels = labelled(frame, target.reset_index(drop=True))
    split = make_split(frame, labels, options.recipe.seed, test=test)
    inputs = {"table": table_print(frame, labels), **what_is_fitted(net, options), "test": test}
    if len(np.unique(split.held_labels)) < 2:
        warn("the rows held out are all of one class: there is no AUC of them")
    rows: list[Row] = []
    found: dict[str, ndarray] = {}
    directory = run_directory("tabpfn-bag", fingerprint(inputs), output)
    with Run.open(directory, inputs, resume=resume, fresh=fresh) as run:
        for name in track(methods, "methods"):
            if not run.has(f"{name}.json"):
                row, p = judge(name, split, net, options)
                run.write(f"{name}.npy", lambda path, p=p: write_array(path, p))
                run.write(f"{name}.json", lambda path, row=row: write_json(path, row))
            rows.append(json.loads(run.path(f"{name}.json").read_text(encoding="utf-8")))
            found[name] = read_array(run.path(f"{name}.npy"))
    return rows, found, split.held_labels


def fit_resumably(
    frame: pd.DataFrame,
    target: pd.Series,
    net: Pfn,
    options: Options,
    *,
    valid: tuple[pd.DataFrame, pd.Series] | None = None,
    resume: bool = False,
    fresh: bool = False,
    began: float | None = None,
) -> Model:
    """``fit_model``, whose training goes on where an earlier call of the same was cut short, to the same numbers.

    The model's facts have the name of ``target``.

    Raises:
        ToolboxError: as ``fit_model``; also where ``resume`` finds nothing to go on from.
    """
    tables = [(frame, target), *([valid] if valid else [])]
    inputs = {
        "tables": [table_print(part, classes) for part, classes in tables],
        "method": options.method,
        **what_is_fitted(net, options),
    }
    directory = run_directory("tabpfn-bag-fit", fingerprint(inputs), None)
    with Run.open(directory, inputs, resume=resume, fresh=fresh) as run:

        def load() -> dict[str, Any] | None:
            return torch.load(run.path(STATE), weights_only=True) if run.has(STATE) else None

        def keep(state: dict[str, Any]) -> None:
            run.write(STATE, lambda path: torch.save(state, path))

        model = fit_model(frame, target, net, options, valid=valid, load=load, keep=keep, began=began)
    model.facts["target"] = str(target.name)
    return model


def on_known_classes(
    model: Model, frame: pd.DataFrame, target: pd.Series
) -> tuple[Float64[ndarray, "n classes"], Int64[ndarray, "n"]]:
    """Probabilities of the rows whose class the model knows, and their classes' numbers.

    Raises:
        InputError: there is no such row, or a column is missing.
    """
    labels = numbers_of(target, model.classes)
    if not (labels >= 0).any():
        raise InputError(
            f"no row has a class that the model knows: {', '.join(map(str, model.classes[:SHOWN]))}",
            hint="check that --target is the column it was fitted on",
        )
    known = frame.loc[labels >= 0].reset_index(drop=True)
    return model.probabilities(known), labels[labels >= 0]


def table_print(frame: pd.DataFrame, classes: pd.Series | ndarray) -> dict[str, Any]:
    """What a run is fingerprinted by of a table."""

    def hashed(values: pd.DataFrame | pd.Series) -> ndarray:
        return np.asarray(hash_pandas_object(values.astype(object), index=False))  # type: ignore[reportCallIssue]

    return {"rows": hashed(frame), "columns": list(map(str, frame.columns)), "classes": hashed(pd.Series(classes))}


def what_is_fitted(net: Pfn, options: Options) -> dict[str, Any]:
    """The same of a network and options but for the method."""
    return {"options": asdict(replace(options, method="beta")), "net": dict(net.state_dict())}


def judge(name: str, split: Split, net: Pfn, options: Options) -> tuple[Row, Float64[ndarray, "m classes"]]:
    """Fit a method or baseline and judge it; figures, None where there is none, and probabilities of rows held out."""
    began, busy = time.monotonic(), time.process_time()
    facts: dict = {}
    if name in METHODS:
        target = pd.Series(split.train_labels)
        model = fit_model(split.train, target, net, replace(options, method=name))
        facts, predict = model.facts, model.probabilities
    else:
        predict = baseline_probabilities(name, split.train, split.train_labels, options.recipe.seed)
    fitted, spent = time.monotonic(), time.process_time() - busy
    p = predict(split.held)
    seconds = time.monotonic() - fitted
    row = {
        "method": name,
        **evaluate(p, split.held_labels),
        "fit_seconds": fitted - began,
        "fit_processor_seconds": spent,
        "predict_seconds": seconds,
        "trainable_parameters": facts.get("trainable_parameters"),
        "used": facts.get("used", name),
        "stopped": facts.get("stopped"),
        "steps": facts.get("steps"),
        **{key: facts[key] for key in ("gain_over_frozen", "gain_over_frozen_se") if key in facts},
    }
    # JSON has no NaN, which is the AUC of rows that are all of one class.
    return {key: None if isinstance(v, float) and not np.isfinite(v) else v for key, v in row.items()}, p

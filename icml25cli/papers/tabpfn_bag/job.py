"""The comparison on one table: split, fit every method on the same rows, judge on the held-out ones; resumable.

Knows models, baselines and run directories. Does not know how its result is shown.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.util import hash_pandas_object

from icml25cli.core.errors import UsageError
from icml25cli.core.files import write_json
from icml25cli.core.progress import track
from icml25cli.core.runs import Run, fingerprint, run_directory
from icml25cli.papers.tabpfn_bag.baselines import BASELINES, baseline_probabilities
from icml25cli.papers.tabpfn_bag.labels import labelled, split_off
from icml25cli.papers.tabpfn_bag.metrics import evaluate
from icml25cli.papers.tabpfn_bag.model import METHODS, Options, fit_model
from icml25cli.papers.tabpfn_bag.network import Pfn

Row = dict[str, float | int | str | None]


def compare(
    frame: pd.DataFrame,
    target: pd.Series,
    net: Pfn,
    methods: Sequence[str],
    options: Options,
    *,
    test: float = 0.2,
    most_rows: int | None = None,
    output: Path | None = None,
    resume: bool = False,
    fresh: bool = False,
) -> list[Row]:
    """Figures of each method on held-out rows, stratified; what an earlier call finished is not done again.

    Args:
        methods: of ``METHODS`` and ``BASELINES``.
        test: share of the rows that is held out.
        most_rows: training rows; more are thinned out.

    Raises:
        ToolboxError: as ``fit_model`` and ``baseline_probabilities``.
    """
    for name in methods:
        if name not in (*METHODS, *BASELINES):
            raise UsageError(f"no method is called '{name}'", hint=f"one of {', '.join((*METHODS, *BASELINES))}")
    frame, _, labels = labelled(frame, target.reset_index(drop=True))
    seed = options.recipe.seed
    train, held = split_off(labels, test, seed)
    if most_rows is not None and len(train) > most_rows:
        train = train[split_off(labels[train], most_rows / len(train), seed)[1]]
    parts = [frame.iloc[index].reset_index(drop=True) for index in (train, held)]
    inputs = {
        "rows": np.asarray(hash_pandas_object(frame, index=False)),  # type: ignore[reportCallIssue]
        "columns": list(map(str, frame.columns)),
        "labels": labels,
        "options": asdict(replace(options, method="beta")),
        "net": dict(net.state_dict()),
        "held_out": held,
        "train": train,
    }
    rows: list[Row] = []
    directory = run_directory("tabpfn-bag", fingerprint(inputs), output)
    with Run.open(directory, inputs, resume=resume, fresh=fresh) as run:
        for name in track(list(methods), "methods"):
            unit = f"{name}.json"
            if not run.has(unit):
                row = _one(name, parts, labels, train, held, net, options)
                run.write(unit, lambda path, row=row: write_json(path, row))
            rows.append(json.loads(run.path(unit).read_text(encoding="utf-8")))
    return rows


def _one(
    name: str,
    parts: Sequence[pd.DataFrame],
    labels: np.ndarray,
    train: np.ndarray,
    held: np.ndarray,
    net: Pfn,
    options: Options,
) -> Row:
    began = time.monotonic()
    facts: dict = {}
    if name in METHODS:
        model = fit_model(parts[0], pd.Series(labels[train]), net, replace(options, method=name))
        facts, predict = model.facts, model.probabilities
    else:
        predict = baseline_probabilities(name, parts[0], labels[train], options.recipe.seed)
    fitted = time.monotonic()
    p = predict(parts[1])
    seconds = time.monotonic() - fitted
    return {
        "method": name,
        **evaluate(p, labels[held]),
        "fit_seconds": fitted - began,
        "predict_seconds": seconds,
        "trainable_parameters": facts.get("trainable_parameters"),
        "used": facts.get("used", name),
    }

"""Methods compared over many tables, on the same splits; every fit is a finished unit of a run.

    tables = read_tables(["builtin:iris", "builtin:wine"])
    records = carry_out(tables, net, methods, Options(), run, Protocol())
    summary(records), by_table(records)

Knows tables, methods and records. Does not know how they are shown.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.core.files import write_json
from icml25cli.core.parallel import parallel_map
from icml25cli.core.runs import Run
from icml25cli.papers.tabpfn_bag.job import Row, judge, make_split
from icml25cli.papers.tabpfn_bag.model import Options
from icml25cli.papers.tabpfn_bag.network import Pfn
from icml25cli.papers.tabpfn_bag.ranks import Ranks, mean_ranks

METHODS = ("beta", "frozen", "bag", "encoder", "tabm", "random-pfn", "hgb", "rf", "logreg")
QUALITY = ("accuracy", "balanced_accuracy", "auc", "log_loss", "ece")
LOWER_IS_BETTER = ("log_loss", "ece")
COST = ("fit_seconds", "fit_processor_seconds", "predict_seconds")

Tables = Mapping[str, tuple[pd.DataFrame, Int64[ndarray, "n"]]]


@dataclass(frozen=True)
class Protocol:
    """How a table is split: seeds 0, 1, ... of ``make_split``."""

    splits: int = 3
    test: float = 0.3
    most_train: int = 3000
    most_held: int = 3000


def carry_out(
    tables: Tables,
    net: Pfn,
    methods: Sequence[str],
    options: Options,
    run: Run,
    protocol: Protocol,
    *,
    jobs: int | None = 1,
) -> list[Row]:
    """A record for each split, table and method, in that order; those that ``run`` has are read from it.

    Splits are the outermost, so that a run that was cut short has seen as much of one table as of another.
    """
    cells = [(i, name, split) for split in range(protocol.splits) for i, name in enumerate(tables)]
    waiting = [
        (i, name, split, [m for m in methods if not run.has(_unit(i, split, m))], tables[name])
        for i, name, split in cells
        if not all(run.has(_unit(i, split, m)) for m in methods)
    ]
    parallel_map(partial(_cell, run, net, options, protocol), waiting, jobs, description="tables and splits")
    return [
        json.loads(run.path(_unit(i, split, method)).read_text(encoding="utf-8"))
        for i, _, split in cells
        for method in methods
    ]


def _unit(table: int, split: int, method: str) -> str:
    return f"{table:04}-{split}-{method}.json"


def _cell(run: Run, net: Pfn, options: Options, protocol: Protocol, item: tuple[Any, ...]) -> None:
    i, name, seed, methods, (frame, labels) = item
    split = make_split(
        frame, labels, seed, test=protocol.test, most_train=protocol.most_train, most_held=protocol.most_held
    )
    same = replace(options, recipe=replace(options.recipe, seed=options.recipe.seed + seed))
    for method in methods:
        record, _ = judge(method, split, net, same)
        where = {"table": name, "split": seed, "training_rows": len(split.train), "held_rows": len(split.held)}
        run.write(_unit(i, seed, method), lambda path, r=where | record: write_json(path, r))


def by_table(records: Sequence[Row]) -> dict[str, list[Row]]:
    """For each table a row a method: means over splits and their standard deviations."""
    tables: dict[str, dict[str, list[Row]]] = {}
    for record in records:
        tables.setdefault(record["table"], {}).setdefault(record["method"], []).append(record)
    return {table: [_mean(method, rows) for method, rows in of.items()] for table, of in tables.items()}


def _mean(method: str, rows: Sequence[Row]) -> Row:
    row: Row = {"method": method}
    for key in (*QUALITY, *COST):
        values = np.array([np.nan if r[key] is None else r[key] for r in rows], float)
        row[key] = float(values.mean())
        if key in QUALITY and len(values) > 1:
            row[f"{key}_sd"] = float(values.std(ddof=1))
    return row | _as_it_is(method, rows)


def _as_it_is(method: str, records: Sequence[Row]) -> Row:
    """How many of a method's fits predict by the network as it is instead; of older records it is not known."""
    return {"fits": len(records), "fell_back": sum(r.get("used", method) != method for r in records)}


def ranked(records: Sequence[Row], key: str) -> tuple[list[str], Ranks]:
    """Methods, and their ranks by a figure's mean over the splits of each table."""
    tables = by_table(records)
    methods = list(dict.fromkeys(record["method"] for record in records))
    figures = [[{row["method"]: row for row in rows}[method][key] for method in methods] for rows in tables.values()]
    return methods, mean_ranks(np.nan_to_num(np.array(figures, float)), higher_is_better=key not in LOWER_IS_BETTER)


def summary(records: Sequence[Row]) -> list[Row]:
    """A row a method: means over tables of each figure, mean ranks, and how many fits fell back."""
    tables = by_table(records)
    ranks = {key: dict(zip(*_named(records, key), strict=True)) for key in ("log_loss", "accuracy", "auc")}
    rows: list[Row] = []
    for method in dict.fromkeys(record["method"] for record in records):
        own = [{row["method"]: row for row in rows}[method] for rows in tables.values()]
        row: Row = {"method": method}
        row |= {key: float(np.mean([one[key] for one in own])) for key in (*QUALITY, *COST)}
        row |= {f"rank_{key}": ranks[key][method] for key in ranks}
        row |= _as_it_is(method, [record for record in records if record["method"] == method])
        rows.append(row)
    return rows


def fallback_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each row of ``summary`` some of whose fits fell back to the network as it is."""
    return [
        f"{row['method']} predicted by the network as it is, as frozen does, in {row['fell_back']} of {row['fits']} "
        "fits: training was no better, or there were too few rows."
        for row in rows
        if row["fell_back"]
    ]


def _named(records: Sequence[Row], key: str) -> tuple[list[str], list[float]]:
    methods, ranks = ranked(records, key)
    return methods, ranks.mean.tolist()


def as_lines(records: Sequence[Row]) -> str:
    """Records as JSON lines."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)

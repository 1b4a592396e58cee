"""The command's jobs from files to figures: a pair, its layers, all pairs of several, a sweep over models.

Knows everything of this paper but the command line.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from icml25cli.core.embeddings import Embeddings, open_embeddings, open_layers
from icml25cli.core.errors import InputError, UsageError
from icml25cli.core.labels import read_labels
from icml25cli.core.progress import Progress, warn
from icml25cli.core.runs import Run, fingerprint, run_directory
from icml25cli.papers.align import layers, sweep
from icml25cli.papers.align.by_lists import by_row
from icml25cli.papers.align.demo import DIGITS, digits
from icml25cli.papers.align.indexes import PROBED
from icml25cli.papers.align.lists import Lists
from icml25cli.papers.align.measure import measure
from icml25cli.papers.align.metrics import (
    METRICS,
    Measured,
    Pair,
    Settings,
    refuse_undefined,
)
from icml25cli.papers.align.pairs import Joined, join, usable, warn_of_same
from icml25cli.papers.align.prepared import Normalize, Prepared, clip_is_exact, prepare
from icml25cli.papers.align.redundancy import FOLDS, Redundancy, redundancy

LONG_ROWS = 20_000  # from which on neighbours are kept for a call that continues this one


@dataclass(frozen=True)
class Rows:
    """Which rows are compared, and as what."""

    normalize: Normalize = "l2"
    clip_quantile: float = 1.0
    ids: str | None = None
    match_n: int | None = None
    drop_bad: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Compared:
    """A pair and its metrics."""

    joined: Joined
    pair: Pair
    measured: tuple[Measured, ...]
    labelled: Redundancy | None

    def headline(self) -> dict[str, float]:
        """Values, the clipped form of unbiased CKA, and what the label says."""
        found = {m.metric: m.value for m in self.measured if m.value is not None}
        if "ucka" in found:
            found["ucka_clipped"] = max(0.0, found["ucka"])  # each HSIC below 0 counts as 0
        if self.labelled:
            known = self.labelled
            found |= {
                "label_entropy_nats": known.entropy,
                "redundant_nats": known.redundant,
                "unique_a_nats": known.both - known.second,
                "unique_b_nats": known.both - known.first,
            }
            if known.share:
                share = known.share
                found |= {"redundant_share": share.value, "share_low": share.low, "share_high": share.high}
        return found

    def probes(self) -> list[dict[str, Any]]:
        return self.labelled.rows() if self.labelled else []

    def notes(self) -> list[str]:
        """What was not measured and why, and how good an index was."""
        reasons = dict.fromkeys(m.why for m in self.measured if m.why)
        notes = [f"{', '.join(m.metric for m in self.measured if m.why == why)}: {why}." for why in reasons]
        if len(self.pair.cached) and (drawn := self.pair.queries) is not None:
            notes.append(f"Neighbours are sought of {len(drawn)} rows, drawn, among all.")
        recalls = [lists.recall for lists in self.pair.cached.values() if lists.recall is not None]
        if recalls:
            notes.append(f"The index finds {min(recalls):.1%} of true neighbours or more, on {PROBED} rows a side.")
        return notes

    def within(self) -> list[dict[str, Any]]:
        """Metrics against rows permuted inside groups: what is left is not explained by the group."""
        out = []
        for m in self.measured:
            if m.within is not None and m.value is not None:
                plain = m.null.mean if m.null else None
                out.append(
                    {
                        "metric": m.metric,
                        "value": m.value,
                        "null_mean": plain,
                        "within_groups_mean": m.within.mean,
                        "z": m.within.z(m.value),
                        "p_value": m.within.p_value(m.value),
                    }
                )
        return out


def opened(named: str) -> Embeddings:
    """A file, or a built-in half of digits."""
    return digits(named) if named in DIGITS else open_embeddings(named)


def asked_metrics(listed: str) -> tuple[str, ...]:
    """``ucka,mknn`` or ``all``.

    Raises:
        UsageError: there is no such metric.
    """
    if listed == "all":
        return METRICS
    names = [name.strip() for name in listed.split(",") if name.strip()]
    unknown = [name for name in names if name not in METRICS]
    if unknown or not names:
        raise UsageError(
            f"there is no metric {', '.join(unknown) or listed!r}", hint=f"all, or of: {', '.join(METRICS)}"
        )
    return tuple(names)


@contextlib.contextmanager
def compare(
    first: str,
    second: str,
    names: str,
    rows: Rows,
    settings: Settings,
    *,
    labels: Path | None = None,
    groups: Path | None = None,
    resume: bool = False,
    fresh: bool = False,
) -> Iterator[Compared]:
    """All metrics asked for of two files.

    Raises:
        ToolboxError: a file, an id, rows, labels or k are not as they must be, or a metric asked for by name is not
            defined.
    """
    asked = asked_metrics(names)
    sides, ids = join([opened(first), opened(second)], rows.ids)
    joined = _usable(sides, ids, rows)
    warn_of_same(*joined.sides)
    named = (rows.ids, ids) if rows.ids and ids is not None else None
    of_groups = read_labels(groups, joined.sides[0], ids=named)[0] if groups else None
    classes = read_labels(labels, joined.sides[0], least=FOLDS, ids=named)[0] if labels else None
    x, y = (_prepared(side, rows) for side in joined.sides)
    with _run("align", joined.sides, rows, settings, resume=resume, fresh=fresh) as run:
        pair = Pair(x, y, replace(settings, groups=of_groups), run)
        measured = tuple(measure(pair, asked))
        if names != "all":
            refuse_undefined(measured)
        labelled = redundancy(x, y, classes, settings.seed) if classes is not None else None
        yield Compared(joined, pair, measured, labelled)


def _usable(sides: Sequence[Embeddings], ids: ndarray | None, rows: Rows, at_most: int | None = None) -> Joined:
    return usable(
        sides,
        ids,
        normalize=rows.normalize,
        drop_bad=rows.drop_bad,
        at_most=rows.match_n or at_most,
        seed=rows.seed,
    )


def _prepared(x: Embeddings, rows: Rows) -> Prepared:
    if rows.clip_quantile < 1 and not clip_is_exact(x):
        warn(f"{x.name}: clamped at the mean of rows' quantiles, as it is large")
    return prepare(x, rows.normalize, rows.clip_quantile)


@contextlib.contextmanager
def _run(
    command: str, sides: Sequence[Embeddings], rows: Rows, settings: Settings, *, resume: bool, fresh: bool
) -> Iterator[Run | None]:
    """Where neighbours are kept, if there are enough rows for it to be worth while."""
    if sides[0].rows < LONG_ROWS and not resume:
        yield None
        return
    inputs = {
        "embeddings": [[*x.files, x[:16]] if x.files else x[:] for x in sides],
        "rows": [sides[0].rows, rows.normalize, rows.clip_quantile, str(rows.ids), str(rows.match_n), rows.drop_bad],
        "settings": [settings.k, str(settings.queries), settings.index, settings.intervals, settings.seed],
    }
    with Run.open(run_directory(command, fingerprint(inputs), None), inputs, resume=resume, fresh=fresh) as run:
        yield run


# --- layers ------------------------------------------------------------------------------------------------------


def compare_layers(
    first: str, second: str, names: str | None, rows: Rows, settings: Settings
) -> tuple[int, list[layers.Sweep]]:
    """All pairs of layers of two files on at most 1024 rows (or ``match_n``), and how many rows that were."""
    asked = asked_metrics(names) if names else ("ucka", "mknn")
    a, b = open_layers(first), open_layers(second)
    if len(a) == len(b) == 1:
        raise InputError(f"{first} and {second} hold one matrix each", hint="leave out --layers")
    sides, ids = join([*a, *b], rows.ids)
    joined = _usable(sides, ids, rows, layers.LAYER_ROWS)
    ready = [_prepared(side, rows) for side in joined.sides]
    return ready[0].rows, layers.sweep(ready[: len(a)], ready[len(a) :], asked, settings)


# --- items -------------------------------------------------------------------------------------------------------


def items(first: str, second: str, rows: Rows, settings: Settings) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Every row's agreement of neighbours, the worst first; and the means."""
    sides, ids = join([opened(first), opened(second)], rows.ids)
    joined = _usable(sides, ids, rows)
    x, y = (_prepared(side, rows) for side in joined.sides)
    pair = Pair(x, y, replace(settings, intervals=False, queries=settings.queries or 0))
    a, b = pair.lists()
    scores = {"mknn": by_row("mknn", a, b), "lcs": by_row("lcs", a, b)}
    order = np.lexsort((np.arange(len(a.of)), scores["lcs"], scores["mknn"]))
    named = joined.ids if joined.ids is not None else joined.rows
    records = []
    for i in order:
        neighbours = [" ".join(str(named[j]) for j in side.index[i]) for side in (a, b)]
        records.append(
            {
                "id" if joined.ids is not None else "row": named[a.of[i]].item(),
                **{name: float(score[i]) for name, score in scores.items()},
                "neighbours_a": neighbours[0],
                "neighbours_b": neighbours[1],
            }
        )
    return records, {name: float(score.mean()) for name, score in scores.items()}


# --- several -----------------------------------------------------------------------------------------------------


def all_pairs(
    files: Sequence[str], names: str, rows: Rows, settings: Settings, *, resume: bool = False, fresh: bool = False
) -> Iterator[tuple[int, int, list[Measured]]]:
    """Metrics of every pair of files, neighbours sought once a file.

    Raises:
        ToolboxError: as ``compare``, or there are fewer than two files.
    """
    if len(files) < 2:
        raise InputError(f"{len(files)} file has no pairs", hint="name two or more")
    asked = asked_metrics(names)
    sides, ids = join([opened(file) for file in files], rows.ids)
    joined = _usable(sides, ids, rows)
    ready = [_prepared(side, rows) for side in joined.sides]
    cached: dict[str, Lists] = {}
    pairs = [(i, j) for i in range(len(ready)) for j in range(i + 1, len(ready))]
    with (
        _run("align-matrix", joined.sides, rows, settings, resume=resume, fresh=fresh) as run,
        Progress("pairs", len(pairs)) as progress,
    ):
        for i, j in pairs:
            units = (f"{i}.npz", f"{j}.npz")
            yield i, j, measure(Pair(ready[i], ready[j], settings, run, units, cached), asked)
            progress.advance()


@dataclass(frozen=True)
class Swept:
    """Models of a table, their metrics, and how these go with performance."""

    models: tuple[sweep.Model, ...]
    measured: tuple[tuple[Measured, ...], ...]
    correlations: tuple[sweep.Correlation, ...]

    def as_table(self) -> list[dict[str, Any]]:
        return [
            {"path": model.path, "performance": model.performance, **{m.metric: m.value for m in measured}}
            for model, measured in zip(self.models, self.measured, strict=True)
        ]

    def points(self) -> dict[str, list[tuple[float, float]]]:
        """Alignment and performance of every model, by metric."""
        return {
            name: [
                (float(row[i].value or 0.0), m.performance) for m, row in zip(self.models, self.measured, strict=True)
            ]
            for i, name in enumerate(m.metric for m in self.measured[0])
        }


def sweep_models(table: Path, against: str | None, names: str, rows: Rows, settings: Settings) -> Swept:
    """Alignment of every model of a table with ``against``, or with what its own line names, beside performance.

    Raises:
        ToolboxError: as ``compare`` and ``sweep.read_models``, or a line names nothing to compare with.
    """
    asked = asked_metrics(names)
    models = sweep.read_models(table)
    found = []
    with Progress("models", len(models)) as progress:
        for number, model in enumerate(models, 2):
            other = model.other or against
            if not other:
                raise InputError(
                    f"{table}, line {number} names nothing to compare with", hint="--with FILE, or a column other"
                )
            sides, ids = join([opened(model.path), opened(other)], rows.ids)
            joined = _usable(sides, ids, rows)
            x, y = (_prepared(side, rows) for side in joined.sides)
            measured = measure(Pair(x, y, settings), asked)
            refuse_undefined(measured)
            found.append(tuple(measured))
            progress.advance()
    performance = [model.performance for model in models]
    correlations = tuple(
        sweep.correlate(m.metric, [float(row[i].value or 0.0) for row in found], performance, rows.seed)
        for i, m in enumerate(found[0])
    )
    return Swept(tuple(models), tuple(found), correlations)

"""Two matrices of the same items: joined, without rows that cannot be compared, prepared (sections 3.1 and 9).

Knows files of embeddings. Does not know metrics.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64, Shaped
from numpy import ndarray

from icml25cli.core.embeddings import Embeddings, mapped_npz
from icml25cli.core.errors import InputError
from icml25cli.core.progress import warn
from icml25cli.core.survey import Survey, survey
from icml25cli.papers.align.prepared import Normalize

SHOWN = 5  # ids or rows that a message names
LEAST_ROWS = 4  # that unbiased HSIC is defined for


@dataclass(frozen=True)
class Joined:
    """Matrices whose row i is the same item.

    Attributes:
        sides: one matrix each, prepared or not by now.
        rows: their rows' numbers in the first file.
        ids: of the rows, where there are any.
        repeated_share: rows equal to an earlier one, of each side: neighbours of equal distance.
    """

    sides: tuple[Embeddings, ...]
    rows: Int64[ndarray, "n"]
    ids: Shaped[ndarray, "n"] | None
    repeated_share: tuple[float, ...]


def read_ids(x: Embeddings, column: str) -> Shaped[ndarray, "n"]:
    """The vector called ``column`` in the file that a matrix is of.

    Raises:
        InputError: the format has no names, or there is no such vector.
    """
    file = x.files[0] if x.files else Path(x.name)
    suffix = file.suffix.lower()
    if suffix == ".npz":
        there: dict[str, Any] = mapped_npz(file)
        found = there.get(column)
    elif suffix == ".parquet":
        import pyarrow.parquet as pq

        there = dict.fromkeys(pq.read_schema(file).names)
        found = pq.read_table(file, columns=[column]).column(0).to_numpy() if column in there else None
    else:
        raise InputError(f"{file} has no named ids", hint="--ids is for .npz and .parquet; others are paired by row")
    if found is None:
        raise InputError(f"{file} holds no {column}", hint=f"it holds {', '.join(list(there)[:8])}")
    if found.ndim != 1:
        raise InputError(f"{column} of {file} has shape {found.shape}, ids are one a row")
    return np.asarray(found)


def join(sides: Sequence[Embeddings], ids: str | None = None) -> tuple[tuple[Embeddings, ...], ndarray | None]:
    """Sides in the order of the first, by ids where they are named.

    Raises:
        InputError: numbers of rows differ without ids, or an id is missing or there twice.
    """
    first = sides[0]
    if ids is None:
        for other in sides[1:]:
            if other.rows != first.rows:
                raise InputError(
                    f"{first.name} has {first.rows} rows, {other.name} has {other.rows}",
                    hint="rows are paired by their number: give the same items, or --ids NAME to pair them by id",
                )
        return tuple(sides), None
    keys = [read_ids(side, ids) for side in sides]
    if len({key.dtype.kind in "iu" for key in keys}) > 1:  # numbers in one file may be text in the other
        keys = [key.astype(str) for key in keys]
    joined = []
    for side, key in zip(sides, keys, strict=True):
        if len(key) != side.rows:
            raise InputError(f"{side.name}: {len(key)} ids for {side.rows} rows")
        names, counts = np.unique(key, return_counts=True)
        if (twice := names[counts > 1]).size:
            raise InputError(f"{side.name}: {twice.size} ids are there more than once: {_listed(twice)}")
        _refuse_missing(keys[0], key, side.name)
        _refuse_missing(key, keys[0], first.name)
        order = np.argsort(key)
        joined.append(side if side is first else side.select(order[np.searchsorted(key, keys[0], sorter=order)]))
    return tuple(joined), keys[0]


def _refuse_missing(asked: ndarray, there: ndarray, name: str) -> None:
    missing = asked[~np.isin(asked, there)]
    if missing.size:
        raise InputError(f"{name} lacks {missing.size} ids: {_listed(missing)}", hint="give both the same items")


def _listed(values: ndarray) -> str:
    return ", ".join(str(value) for value in values[:SHOWN]) + (", ..." if len(values) > SHOWN else "")


def usable(
    sides: Sequence[Embeddings],
    ids: ndarray | None = None,
    *,
    normalize: Normalize = "l2",
    drop_bad: bool = False,
    at_most: int | None = None,
    seed: int = 0,
) -> Joined:
    """Rows that every side can compare, ``at_most`` so many of them drawn; says what was left out and what misleads.

    Raises:
        InputError: rows hold NaN or infinity (without ``drop_bad``), or fewer than four are left.
    """
    count = sides[0].rows
    found = [survey(side) for side in sides]
    kept = np.ones(count, bool)
    for side, seen in zip(sides, found, strict=True):
        if seen.bad.size and not drop_bad:
            raise InputError(
                f"{side.name}: {seen.bad.size} of {count} rows hold NaN or infinity: {_listed(seen.bad)}",
                hint="--drop-bad leaves them out on both sides, or repair them",
            )
        kept[seen.bad] = False
        if normalize == "l2" and seen.constant_rows:
            empty = _zero_rows(side) & kept
            if empty.any():
                warn(f"{side.name}: {int(empty.sum())} rows of zeros have no direction and are left out on both sides")
            kept &= ~empty
        _say(side, seen)
    if (dropped := count - int(kept.sum())) and drop_bad:
        warn(f"{dropped} of {count} rows are left out")
    rows = np.flatnonzero(kept)
    if at_most and len(rows) > at_most:
        rows = np.sort(np.random.default_rng((seed, 3)).choice(rows, at_most, replace=False))
    if len(rows) < LEAST_ROWS:
        raise InputError(f"{len(rows)} rows are left to compare, four are needed", hint="give more items")
    same = len(rows) == count
    return Joined(
        tuple(side if same else side.select(rows) for side in sides),
        rows,
        ids if ids is None else ids[rows],
        tuple(seen.repeated_rows / max(1, seen.rows) for seen in found),
    )


def _zero_rows(x: Embeddings) -> Bool[ndarray, "n"]:
    return np.concatenate([~block.any(axis=1) for _, block in x.blocks()])


def _say(x: Embeddings, seen: Survey) -> None:
    if seen.constant_columns:
        warn(f"{x.name}: {seen.constant_columns} columns are of one value throughout")
    if seen.repeated_rows:
        share = seen.repeated_rows / max(1, seen.rows)
        warn(f"{x.name}: {seen.repeated_rows} rows ({share:.1%}) repeat an earlier one and tie as neighbours")


def warn_of_same(x: Embeddings, y: Embeddings) -> None:
    """Warn where both sides are one matrix."""
    same = x.rows == y.rows and x.columns == y.columns
    if same and all(np.array_equal(a, y[s : s + len(a)]) for s, a in x.blocks()):
        warn(f"{x.name} and {y.name} hold the same numbers")

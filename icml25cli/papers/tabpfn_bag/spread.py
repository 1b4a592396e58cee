"""Bias and variance of methods over training sets of growing size, on one test set (section 3.8); resumable.

Knows methods, decompositions and runs. Does not know how a table is read or a result shown.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.core.progress import track
from icml25cli.core.runs import Run
from icml25cli.core.tables import read_array, write_array
from icml25cli.papers.tabpfn_bag.bias_variance import DECOMPOSITIONS
from icml25cli.papers.tabpfn_bag.contexts import stratified_bootstrap
from icml25cli.papers.tabpfn_bag.job import Row, Split, judge, make_split
from icml25cli.papers.tabpfn_bag.model import FEWEST, Options
from icml25cli.papers.tabpfn_bag.network import Pfn


@dataclass(frozen=True)
class Design:
    """Training sets of each size, out of a pool.

    Attributes:
        sizes: rows of a training set; none for 256, 512, ... as far as the pool goes.
        sets: training sets of each size.
        test: share of the rows that all are judged on, at most ``most_held``.
    """

    sizes: tuple[int, ...] = ()
    sets: int = 5
    test: float = 0.3
    most_held: int = 1000


def sizes_for(pool: int, asked: Sequence[int]) -> tuple[int, ...]:
    """The sizes asked for, or powers of two from 256 (from a quarter of a small pool) up to the pool.

    Raises:
        InputError: one is larger than the pool, or too small to train on.
    """
    for size in asked:
        if not FEWEST <= size <= pool:
            raise InputError(
                f"there are {pool:,} rows for training sets of {size:,}", hint=f"give sizes from {FEWEST} to {pool}"
            )
    if asked:
        return tuple(sorted(set(asked)))
    found = [size for size in (256, 512, 1024, 2048) if size <= pool]
    return tuple(found) if len(found) > 1 else tuple(max(FEWEST, pool // part) for part in (4, 2, 1))


def training_sets(
    labels: Int64[ndarray, "pool"], size: int, sets: int, seed: int
) -> tuple[list[Int64[ndarray, "size"]], bool]:
    """Rows of each training set, every class in each; and whether no two sets share a row, else they are bootstraps."""
    rng = np.random.default_rng((seed, 6, size))
    if size * sets <= len(labels) and np.bincount(labels).min() >= sets:
        order = rng.permutation(len(labels))
        order = order[np.argsort(labels[order], kind="stable")]
        parts = [order[i::sets] for i in range(sets)]
        return [part[stratified_bootstrap(labels[part], size, rng, replace=False)] for part in parts], True
    return [stratified_bootstrap(labels, size, rng) for _ in range(sets)], False


def spread(
    frame: pd.DataFrame,
    labels: Int64[ndarray, "rows"],
    net: Pfn,
    methods: Sequence[str],
    options: Options,
    run: Run,
    design: Design,
) -> list[Row]:
    """A row a method and size: mean losses over training sets, with their bias and variance.

    Raises:
        InputError: a size is larger than what is left for training, or the pool is too small.
    """
    whole = make_split(frame, labels, options.recipe.seed, test=design.test, most_held=design.most_held)
    pool = whole.train_labels
    cells = []
    for size in sizes_for(len(pool), design.sizes):
        drawn, disjoint = training_sets(pool, size, design.sets, options.recipe.seed)
        cells += [(method, size, disjoint, drawn) for method in methods]
    rows: list[Row] = []
    for method, size, disjoint, drawn in track(cells, "methods and sizes"):
        p = []
        for i, index in enumerate(drawn):
            unit = f"{method}-{size}-{i}.npy"
            if not run.has(unit):
                part = whole.train.iloc[index].reset_index(drop=True)
                split = Split(part, pool[index], whole.held, whole.held_labels)
                seeded = replace(options, recipe=replace(options.recipe, seed=options.recipe.seed + i))
                _, found = judge(method, split, net, seeded)
                run.write(unit, lambda path, found=found: write_array(path, found))
            p.append(read_array(run.path(unit)))
        row: Row = {"method": method, "training_rows": size, "disjoint": disjoint}
        for name, parts in DECOMPOSITIONS.items():
            found = asdict(parts(np.stack(p), whole.held_labels))
            row |= {name: found["loss"], f"{name}_bias": found["bias"], f"{name}_variance": found["variance"]}
        rows.append(row)
    return rows

"""Classes of rows: from a target column to numbers and back, and a validation part of the rows.

Knows columns and random generators. Does not know features.
"""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.core.progress import warn

FEWEST_A_NUMBER = 10  # rows of a class, on average, below which fractional numbers are taken for a quantity
MANY_NUMBERS = 20  # classes that are whole numbers, of as few rows, from which on they are doubted
LARGEST_VALIDATION = 2000  # rows: more would cost time at every validation and change few decisions
Class = str | int | float | bool


def classes_of(values: pd.Series) -> tuple[list[Class], Int64[ndarray, "n"]]:
    """The classes in order (numbers by size, text by letter), and the number of each row's, -1 where it is missing.

    Raises:
        InputError: fewer than two classes.
    """
    codes, found = pd.factorize(values)
    plain = [_plain(value) for value in found]
    try:
        order = sorted(range(len(plain)), key=lambda i: plain[i])  # type: ignore[return-value,arg-type]
    except TypeError:  # numbers among text
        plain = [str(value) for value in plain]
        order = sorted(range(len(plain)), key=lambda i: plain[i])
    if len(order) < 2:
        seen = f"only the class {plain[0]}" if plain else "no class at all"
        raise InputError(f"the target has {seen}", hint="give rows of at least two classes")
    place = np.empty(len(order) + 1, np.int64)
    place[order] = np.arange(len(order))
    place[-1] = -1
    return [plain[i] for i in order], place[codes]


def check_classes(values: pd.Series) -> None:
    """Refuse a target that is no class: one with fewer than two rows a class on average, or a measured quantity.

    Raises:
        InputError: it is one of them.
    """
    codes, found = pd.factorize(values)
    count = np.bincount(codes[codes >= 0], minlength=1)
    rows, classes, single = int(count.sum()), len(found), int((count == 1).sum())
    if classes < 2:  # which ``classes_of`` refuses
        return
    name = f"the target '{values.name}'" if values.name is not None else "the target"
    numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    numbers = np.asarray(found, float) if numeric else np.empty(0)
    fractional = bool((numbers % 1 != 0).any())
    few = rows < FEWEST_A_NUMBER * classes
    if rows < 2 * classes or (fractional and few and classes > FEWEST_A_NUMBER):
        alone = f", {single:,} of them in one row only" if single else ""
        raise InputError(
            f"{name} has {classes:,} different values in {rows:,} rows{alone}: these are no classes",
            hint="this is classification, with several rows a class: give a target of few values"
            + (", or cut its numbers into ranges first" if numeric else ""),
        )
    if numeric and few and classes > MANY_NUMBERS:
        warn(f"{name} is {classes:,} different numbers, each of which is taken for a class of its own")


def numbers_of(values: pd.Series, classes: list[Class]) -> Int64[ndarray, "n"]:
    """The number of each row's class, -1 for one that is not among ``classes``; 1, 1.0 and "1" are one class."""
    known = {str(name): i for i, name in enumerate(classes)}
    return np.array([known.get(str(_plain(v)), -1) for v in values.astype(object)], np.int64)


def _plain(value: Any) -> Class:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float | bool) else str(value)


def labelled(frame: pd.DataFrame, values: pd.Series) -> tuple[pd.DataFrame, list[Class], Int64[ndarray, "n"]]:
    """Rows whose class is known, the classes, and their numbers.

    Raises:
        InputError: fewer than two classes.
    """
    classes, numbers = classes_of(values)
    missing = numbers < 0
    if missing.any():
        warn(f"{missing.sum():,} rows have no class and are left out")
    return frame.loc[~missing].reset_index(drop=True), classes, numbers[~missing]


def split_off(
    labels: Int64[ndarray, "n"], share: float, seed: int, *, most: int | None = None
) -> tuple[Int64[ndarray, "train"], Int64[ndarray, "rest"]]:
    """Rows in order, split within classes; the smaller part never takes the last row of a class.

    Args:
        share: of the rows that go to the second part.
        most: rows of it.
    """
    if most is not None:
        share = min(share, most / len(labels))
    rng = np.random.default_rng((seed, 3))
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    count = np.bincount(labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(count) - count, count)
    # Whole rows by class: the fractions left over are given out by chance, so that the expected share is right.
    taken = np.floor(count * share + rng.random(len(count))).astype(np.int64)
    taken = np.minimum(taken, np.maximum(count - 1, 0))
    if not taken.sum() and (count > 1).any():
        taken[count.argmax()] = 1
    second = rank < np.repeat(taken, count)
    return np.sort(order[~second]), np.sort(order[second])

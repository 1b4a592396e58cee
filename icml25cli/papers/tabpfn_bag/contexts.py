"""Which rows of the training set a path is shown, and what each of its labels means (sections 3.3 to 3.5).

Knows class numbers and random generators. Does not know features or networks.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from icml25cli.papers.tabpfn_bag.codes import Code


@dataclass(frozen=True, eq=False)
class Tasks:
    """What the network is asked, once a task: which symbol, of ``alphabet``, has the class of this row?

    Attributes:
        path: which encoder, and whose context, a task uses.
        symbols: symbol of each class in a task.
        group: tasks of a group ask the same up to the order of symbols: they are averaged, groups are multiplied.
    """

    path: Int64[ndarray, "tasks"]
    symbols: Int64[ndarray, "tasks classes"]
    group: Int64[ndarray, "tasks"]
    alphabet: int

    def __len__(self) -> int:
        return len(self.path)

    def redundancy(self) -> float:
        """How many groups tell two classes apart, mean over pairs of classes; 1 where all tasks ask for the class."""
        first = np.unique(self.group, return_index=True)[1]
        words = self.symbols[first].T
        differ = (words[:, None] != words).sum(2)
        return float(differ.sum() / max(len(words) * (len(words) - 1), 1))

    def take(self, tasks: ndarray) -> "Tasks":
        return Tasks(self.path[tasks], self.symbols[tasks], self.group[tasks], self.alphabet)


def plain_tasks(classes: int, paths: int, *, rotate: bool = False) -> Tasks:
    """Every path is asked for the class itself; ``rotate`` turns its number by one more from path to path."""
    turn = np.arange(paths) if rotate else np.zeros(paths, np.int64)
    symbols = (np.arange(classes) + turn[:, None]) % classes
    return Tasks(np.arange(paths), symbols, np.zeros(paths, np.int64), classes)


def coded_tasks(code: Code, paths: int) -> Tasks:
    """Path k answers for the columns j of a code with j = k mod K."""
    length = code.matrix.shape[1]
    column = np.arange(length)
    return Tasks(column % paths, code.matrix.T.copy(), column, code.alphabet)


def stratified_bootstrap(
    labels: Int64[ndarray, "n"],
    size: int,
    rng: np.random.Generator,
    *,
    without: Bool[ndarray, "n"] | None = None,
    replace: bool = True,
) -> Int64[ndarray, "size"]:
    """Rows drawn within classes, by their shares of the rows, at least one of every class that has any.

    Args:
        without: rows that are not to be drawn.
        replace: with replacement; without, ``size`` is at most the number of rows.
    """
    pool = np.arange(len(labels)) if without is None else np.flatnonzero(~without)
    order = pool[np.argsort(labels[pool], kind="stable")]
    _, start, count = np.unique(labels[order], return_index=True, return_counts=True)
    wanted = shares(count, size)
    if replace:
        offset = (rng.random(wanted.sum()) * np.repeat(count, wanted)).astype(np.int64)
        return order[np.repeat(start, wanted) + offset]
    wanted = np.minimum(wanted, count)
    parts = [rng.choice(order[s : s + c], w, replace=False) for s, c, w in zip(start, count, wanted, strict=True)]
    return np.concatenate(parts)


def shares(count: Int64[ndarray, "classes"], size: int) -> Int64[ndarray, "classes"]:
    """``size`` places by largest remainder, at least one for each; a few more than ``size`` where that takes more."""
    exact = count / count.sum() * size
    wanted = np.maximum(np.floor(exact).astype(np.int64), 1)
    left = size - wanted.sum()
    if left > 0:
        wanted[np.argsort(np.floor(exact) - exact, kind="stable")[:left]] += 1
    while left < 0 and wanted.max() > 1:
        wanted[wanted.argmax()] -= 1
        left += 1
    return wanted


def queries_and_context(
    labels: Int64[ndarray, "n"],
    askable: Int64[ndarray, "m"],
    queries: int,
    context: int,
    rng: np.random.Generator,
    *,
    disjoint: bool = True,
) -> tuple[Int64[ndarray, "queries"], Int64[ndarray, "context"]]:
    """One step's queries, distinct, and its context, drawn with replacement from the other rows.

    Not ``disjoint`` is the authors' code: from all rows, so that a query may meet itself and copy its label.

    Args:
        askable: rows that may become queries: those whose class has another row.
    """
    asked = rng.choice(askable, min(queries, len(askable)), replace=False)
    without = None
    if disjoint:
        without = np.zeros(len(labels), bool)
        without[asked] = True
    return asked, stratified_bootstrap(labels, context, rng, without=without)

"""Lists of nearest neighbours of all rows or of some, exact or by an index, and what may be done with a list.

A permutation of one side's rows relabels its lists, and rows left out leave them: neither needs neighbours again.
Knows prepared rows. Does not know scores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.core.jit import compiled
from icml25cli.core.neighbours import BASE, Neighbours, nearest_to
from icml25cli.core.progress import Progress
from icml25cli.core.runs import Run
from icml25cli.papers.align.indexes import Index, near_enough
from icml25cli.papers.align.prepared import Prepared

QUERIES = 4096  # rows whose neighbours are sought in one pass over the others


@dataclass(frozen=True)
class Lists:
    """Neighbours of the rows ``of``, nearest first, by inner product; of equal ones those of lower index first.

    Attributes:
        count: rows among which they are.
        of: which rows, ascending.
        recall: share of true neighbours that an index found, on some rows; None for exact ones.
    """

    count: int
    of: Int64[ndarray, "m"]
    index: Int64[ndarray, "m w"]
    product: Float32[ndarray, "m w"]
    recall: float | None = None

    @property
    def whole(self) -> bool:
        """Whether every row has a list."""
        return len(self.of) == self.count

    def first(self, k: int) -> "Lists":
        return Lists(self.count, self.of, self.index[:, :k], self.product[:, :k], self.recall)

    def permuted(self, order: Int64[ndarray, "n"]) -> "Lists":
        """Lists once row i holds what row order[i] held; ``order`` keeps ``of`` to itself."""
        inverse = np.empty_like(order)
        inverse[order] = np.arange(self.count)
        at = np.searchsorted(self.of, order[self.of])
        return Lists(self.count, self.of, inverse[self.index[at]], self.product[at])

    def without(self, kept: Bool[ndarray, "n"], k: int) -> "Lists | None":
        """The k nearest among the rows kept, these renumbered; None where a list is too short to tell."""
        number = np.cumsum(kept) - 1
        rows = kept[self.of]
        index = np.full((int(rows.sum()), k), -1, np.int64)
        product = np.empty((len(index), k), np.float32)
        if not _thin(self.index[rows], self.product[rows], kept, number, index, product):
            return None
        return Lists(int(kept.sum()), number[self.of[rows]], index, product)

    def neighbours(self) -> Neighbours:
        return Neighbours(self.index, self.product)


@compiled
def _thin(index, product, kept, number, out_index, out_product):
    k = out_index.shape[1]
    for row in range(index.shape[0]):
        filled = 0
        for place in range(index.shape[1]):
            j = index[row, place]
            if kept[j] and filled < k:
                out_index[row, filled], out_product[row, filled] = number[j], product[row, place]
                filled += 1
        if filled < k:
            return False
    return True


def checked_k(k: int, rows: int) -> int:
    """
    Raises:
        InputError: rows have no k neighbours.
    """
    if k >= rows:
        raise InputError(f"k = {k} neighbours of {rows} rows do not exist", hint=f"give a --k below {rows}")
    return k


def width_for(k: int, rows: int) -> int:
    """Neighbours to keep so that k are left when a twentieth of rows is left out, all but surely."""
    return min(rows - 1, 2 * k + 20)


def neighbour_lists(x: Prepared, width: int, of: Int64[ndarray, "m"] | None = None, index: Index = "exact") -> Lists:
    """Neighbours of the rows ``of`` (default: all) among all.

    Raises:
        MissingError: the index needs faiss, which is not installed.
    """
    rows = np.arange(x.rows) if of is None else of
    if index == "exact":
        found = _sought(x, rows, lambda part: nearest_to(x[part], part, x.blocks(BASE), width))
        return Lists(x.rows, rows, found.index, found.product)
    search, recall = near_enough(x, rows, width, index)
    found = _sought(x, rows, search)
    return Lists(x.rows, rows, found.index, found.product, recall)


def kept(run: Run | None, unit: str, make: Callable[[], Lists]) -> Lists:
    """Lists as an earlier run found them, or made and kept; without a run just made."""
    if run is None:
        return make()
    if not run.has(unit):
        made = make()
        recall = np.array(np.nan if made.recall is None else made.recall)

        def write(path: Path) -> None:
            with open(path, "wb") as file:
                count = np.array(made.count)
                np.savez(file, recall=recall, count=count, of=made.of, index=made.index, product=made.product)

        run.write(unit, write)
    with np.load(run.path(unit), allow_pickle=False) as there:
        recall = float(there["recall"])
        return Lists(
            int(there["count"]), there["of"], there["index"], there["product"], None if np.isnan(recall) else recall
        )


def _sought(x: Prepared, rows: Int64[ndarray, "m"], search: Callable[[ndarray], Neighbours]) -> Neighbours:
    parts = []
    with Progress(f"neighbours of {x.name}", len(rows)) as progress:
        for start in range(0, len(rows), QUERIES):
            parts.append(search(rows[start : start + QUERIES]))
            progress.advance(min(QUERIES, len(rows) - start))
    return Neighbours(np.concatenate([p.index for p in parts]), np.concatenate([p.product for p in parts]))

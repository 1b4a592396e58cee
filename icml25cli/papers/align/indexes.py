"""Neighbours by an index of faiss, which is let search as long as it takes to find nearly all of the true ones.

The index holds all rows in memory. Knows prepared rows. Does not know lists or scores.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.core.errors import MissingError
from icml25cli.core.neighbours import BASE, Neighbours, nearest_to
from icml25cli.core.progress import warn
from icml25cli.papers.align.prepared import Prepared

Index = Literal["exact", "faiss-flat", "faiss-ivf", "hnsw"]
PROBED = 200  # rows that an index is judged on
RECALL = 0.95  # share of their true neighbours that it should find
LINKS, LEAST_HELD, MOST_HELD = 32, 128, 2048  # of hnsw: a row's links, candidates of a search; beyond, exact is faster


def near_enough(
    x: Prepared, rows: Int64[ndarray, "m"], width: int, kind: Index
) -> tuple[Callable[[Int64[ndarray, "q"]], Neighbours], float]:
    """What finds neighbours of rows by their numbers, and its recall on 200 of ``rows``.

    Cells visited, or candidates held, are doubled until recall is 0.95, or they are all cells or 2048. A row of which
    the index finds fewer than ``width`` neighbours is compared with all others.

    Raises:
        MissingError: faiss is not installed.
    """
    made, dial, most = _faiss(x, kind)
    probed = rows[np.linspace(0, len(rows) - 1, min(PROBED, len(rows))).astype(np.int64)]
    true = nearest_to(x[probed], probed, x.blocks(BASE), width).index

    def search(part: Int64[ndarray, "q"]) -> Neighbours:
        products, index = made.search(x[part], width + 1)
        return _whole(x, part, _unlike_itself(part, products, index, width))

    def recall() -> float:
        given = search(probed).index
        return float(np.mean([len(np.intersect1d(a, b)) / width for a, b in zip(true, given, strict=True)]))

    reached = recall()
    while dial and reached < RECALL and getattr(*dial) < most:
        setattr(*dial, min(most, 2 * getattr(*dial)))
        reached = recall()
    if reached < RECALL:
        warn(f"{x.name}: {kind} finds {reached:.0%} of true neighbours and no more; --index exact finds all")
    return search, reached


def _unlike_itself(own: ndarray, products: ndarray, index: ndarray, width: int) -> Neighbours:
    """One list too many, without the row itself; where an index did not find it, without the farthest.

    Nearest first, of equal ones those of lower index.
    """
    order = np.lexsort((index, -products), axis=1)
    products, index = np.take_along_axis(products, order, 1), np.take_along_axis(index, order, 1)
    itself = index == own[:, None]
    itself[:, -1] |= ~itself.any(axis=1)
    shape = (len(own), width)
    return Neighbours(index[~itself].reshape(shape), products[~itself].reshape(shape))


def _whole(x: Prepared, own: ndarray, found: Neighbours) -> Neighbours:
    """Lists with places that the index left open (-1) made anew, exactly."""
    short = np.flatnonzero((found.index < 0).any(axis=1))
    if len(short):
        exact = nearest_to(x[own[short]], own[short], x.blocks(BASE), found.index.shape[1])
        found.index[short], found.product[short] = exact.index, exact.product
    return found


def _faiss(x: Prepared, kind: Index) -> tuple[Any, tuple[Any, str] | None, int]:
    """An index of all rows by inner product, the attribute that says how long it searches, and its largest value."""
    if find_spec("faiss") is None:
        raise MissingError(f"--index {kind} needs faiss", hint="pip install 'icml25[index]', or --index exact")
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    made: Any
    dial, most = None, 0
    if kind == "faiss-flat":
        made = faiss.IndexFlatIP(x.columns)
    elif kind == "hnsw":
        made = faiss.IndexHNSWFlat(x.columns, LINKS, faiss.METRIC_INNER_PRODUCT)
        made.hnsw.efSearch = LEAST_HELD
        dial, most = (made.hnsw, "efSearch"), MOST_HELD
    else:
        cells = max(1, min(4096, round(4 * x.rows**0.5), x.rows // 40))
        made = faiss.IndexIVFFlat(faiss.IndexFlatIP(x.columns), x.columns, cells, faiss.METRIC_INNER_PRODUCT)
        step = max(1, x.rows // (64 * cells))
        made.train(x[np.arange(0, x.rows, step)])
        made.nprobe = max(1, cells // 16)
        dial, most = (made, "nprobe"), cells
    for _, block in x.blocks():
        made.add(block)
    return made, dial, most

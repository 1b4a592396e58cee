"""Training rows in random order without holding them: blocks in random order, rows of a block in random order.

Knows embeddings. Does not know what is learnt from them.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from icml25cli.core.embeddings import Embeddings

BLOCK_ROWS = 2**18
BLOCK_BYTES = 2**27  # so that memory does not grow with the width either


def batches(x: Embeddings, size: int, seed: int, epoch: int) -> Iterator[Float32[ndarray, "B d"]]:
    """Every row once, in the order that ``seed`` and ``epoch`` give; the last batch may be smaller."""
    rng = np.random.default_rng((seed, epoch))
    rows = max(size, min(BLOCK_ROWS, BLOCK_BYTES // (4 * x.columns)))
    starts = rng.permutation(np.arange(0, x.rows, rows))
    left = np.empty((0, x.columns), np.float32)
    for start in starts:
        block = x[int(start) : int(start) + rows]
        order = rng.permutation(len(block))
        begin = 0
        if len(left):
            begin = size - len(left)
            left = np.concatenate([left, block[order[:begin]]])
            if len(left) < size:
                continue
            yield left
        for first in range(begin, len(block), size):
            left = block[order[first : first + size]]
            if len(left) == size:
                yield left
        left = left if len(left) < size else left[:0]
    if len(left):
        yield left


def batch_count(rows: int, size: int) -> int:
    return -(-rows // size)

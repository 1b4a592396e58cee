"""One pass over embeddings before any work: rows that cannot be used, columns that say nothing, mean and scale.

Sums are in float64, a block at a time about the running mean, as a running sum in float32 is wrong in the third digit
after a million rows. Knows embeddings. Does not know what is done with them.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64, UInt64
from numpy import ndarray

from icml25cli.core.embeddings import Embeddings
from icml25cli.core.errors import InputError
from icml25cli.core.progress import Progress, warn

SHOWN = 10  # bad rows that a message names
LARGEST, SMALLEST = 1e12, 1e-12  # magnitudes between which products of squares neither overflow nor vanish
HASHED = 2**20  # rows among which equal ones are looked for


@dataclass(frozen=True)
class Survey:
    """What is in the usable rows.

    Attributes:
        rows: how many.
        mean: of each column.
        mean_square: mean over rows of the squared distance to ``mean``.
        bad: numbers of the rows that hold NaN or infinity, which count nowhere else.
        constant_rows: rows of one value throughout.
        constant_columns: columns of one value throughout.
        repeated_rows: rows equal to an earlier one, among the first million.
    """

    rows: int
    mean: Float64[ndarray, "d"]
    mean_square: float
    bad: Int64[ndarray, "b"]
    constant_rows: int
    constant_columns: int
    repeated_rows: int


def survey(x: Embeddings) -> Survey:
    """Read all rows once.

    Raises:
        InputError: values are so large or so small that their squares leave single precision.
    """
    d = x.columns
    mean, squares, count, constant_rows = np.zeros(d), 0.0, 0, 0
    low, high = np.full(d, np.inf, np.float32), np.full(d, -np.inf, np.float32)
    bad: list[ndarray] = []
    hashes: list[ndarray] = []
    weights = np.random.default_rng(0).integers(0, 2**64, d, dtype=np.uint64) | np.uint64(1)
    with Progress(f"rows of {x.name}", x.rows) as progress:
        for start, block in x.blocks():
            finite = np.asarray(np.isfinite(block).all(axis=1))
            if not finite.all():
                bad.append(start + np.flatnonzero(~finite))
                block = block[finite]
            progress.advance(len(finite))
            if not len(block):
                continue
            if start < HASHED:
                hashes.append(_hashes(block, weights))
            constant_rows += int((block == block[:, :1]).all(axis=1).sum())
            low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
            own = block.mean(axis=0, dtype=np.float64)
            apart = np.subtract(block, own, dtype=np.float64)
            shift, total = own - mean, count + len(block)
            squares += float(np.einsum("ij,ij->", apart, apart)) + count * len(block) / total * float(shift @ shift)
            mean, count = mean + shift * (len(block) / total), total
    _refuse_extreme(x.name, float(max(-low.min(), high.max())) if count else 0.0)
    seen = np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
    return Survey(
        count,
        mean,
        squares / max(count, 1),
        np.concatenate(bad) if bad else np.empty(0, np.int64),
        constant_rows,
        int((low == high).sum()),
        len(seen) - len(np.unique(seen)),
    )


def _refuse_extreme(name: str, largest: float) -> None:
    if largest > LARGEST or 0 < largest < SMALLEST:
        size = "large" if largest > LARGEST else "small"
        raise InputError(
            f"{name}: values of magnitude {largest:.1e} are too {size}: their squares leave single precision",
            hint="multiply all of them by one number that brings them near 1",
        )


def _hashes(block: ndarray, weights: UInt64[ndarray, "d"]) -> UInt64[ndarray, "k"]:
    # -0 and 0 are equal, so they must have one hash: adding 0 makes both 0.
    bits = (block + np.float32(0)).view(np.uint32)
    out = np.empty(len(bits), np.uint64)
    for rows in range(0, len(bits), 1024):  # a product of uint64 for all would take twice the block
        part = bits[rows : rows + 1024].astype(np.uint64) + np.uint64(0x9E3779B9)
        part ^= part >> np.uint64(15)
        out[rows : rows + 1024] = (part * weights).sum(axis=1, dtype=np.uint64)
    return out


def usable(x: Embeddings, *, drop_bad: bool = False) -> tuple[Embeddings, Survey]:
    """``x`` without the rows that are not finite, and what is in it; warns of what may mislead.

    Raises:
        InputError: there are such rows (without ``drop_bad``), or no others.
    """
    found = survey(x)
    if len(found.bad):
        rows = ", ".join(map(str, found.bad[:SHOWN])) + (", ..." if len(found.bad) > SHOWN else "")
        count = f"{len(found.bad)} of {x.rows} rows hold NaN or infinity"
        if not drop_bad or not found.rows:
            raise InputError(f"{x.name}: {count}: {rows}", hint="--drop-bad leaves them out, or repair them")
        warn(f"{x.name}: {count} and are left out: {rows}")
        x = x.select(np.delete(np.arange(x.rows), found.bad))
    for number, what in (
        (found.constant_rows, "rows are of one value throughout"),
        (found.constant_columns if found.rows > 1 else 0, "columns are of one value throughout"),
        (found.repeated_rows, "rows repeat an earlier one"),
    ):
        if number:
            warn(f"{x.name}: {number} {what}")
    return x, found

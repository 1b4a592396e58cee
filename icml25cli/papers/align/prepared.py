"""Rows as metrics see them: outliers clamped, then rows or columns normalised, a block at a time (section 3.1).

Knows embeddings. Does not know pairs or metrics.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from icml25cli.core.embeddings import Embeddings

Normalize = Literal["l2", "none", "zscore"]
EXACT_VALUES = 2**26  # numbers of which a quantile is exact: 256 MiB
STEP = 4096  # rows of a block


@dataclass(frozen=True)
class Prepared:
    """A matrix that stays in its file, read as it is compared.

    Attributes:
        limit: values are clamped to ± this.
        mean, scale: of each column, where columns are standardised; scale 0 makes the column 0.
        unit: whether rows are then divided by their length.
    """

    x: Embeddings
    limit: float = float("inf")
    mean: Float32[ndarray, "d"] | None = None
    scale: Float32[ndarray, "d"] | None = None
    unit: bool = False

    @property
    def name(self) -> str:
        return self.x.name

    @property
    def rows(self) -> int:
        return self.x.rows

    @property
    def columns(self) -> int:
        return self.x.columns

    def __getitem__(self, which: slice | Int64[ndarray, "k"]) -> Float32[ndarray, "k d"]:
        block = self.x[which]
        if self.limit < np.inf:
            np.clip(block, -self.limit, self.limit, out=block)
        if self.mean is not None:
            block -= self.mean
            block *= self.scale
        if self.unit:
            length = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64))  # a square may leave float32
            block /= np.where(length == 0, 1, length)[:, None]
        return block

    def blocks(self, step: int = STEP) -> Iterator[tuple[int, Float32[ndarray, "k d"]]]:
        for start in range(0, self.rows, step):
            yield start, self[start : start + step]

    def select(self, rows: Int64[ndarray, "m"]) -> "Prepared":
        """Those rows alone, prepared as among all."""
        return replace(self, x=self.x.select(rows))


def prepare(x: Embeddings, normalize: Normalize = "l2", clip_quantile: float = 1.0) -> Prepared:
    """Clamp to ± the quantile of absolute values (none at 1), then normalise rows (l2) or columns (zscore, ddof 1)."""
    limit = np.inf if clip_quantile >= 1 else _quantile(x, clip_quantile)
    prepared = Prepared(x, limit)
    if normalize == "l2":
        return replace(prepared, unit=True)
    if normalize == "none":
        return prepared
    mean, square = np.zeros(x.columns), np.zeros(x.columns)
    shift = prepared[:STEP].mean(axis=0, dtype=np.float64)  # near the mean, so that squares do not cancel
    for _, block in prepared.blocks():
        apart = block - shift
        mean += apart.sum(axis=0)
        square += np.einsum("ij,ij->j", apart, apart)
    mean /= x.rows
    sd = np.sqrt(np.maximum(square - x.rows * mean**2, 0) / max(1, x.rows - 1))
    scale = np.divide(1, sd, out=np.zeros_like(sd), where=sd > 1e-12 * (np.abs(mean + shift) + 1e-300))
    return replace(prepared, mean=(mean + shift).astype(np.float32), scale=scale.astype(np.float32))


def _quantile(x: Embeddings, q: float) -> float:
    """Of all absolute values; of very many the mean over rows of each row's own."""
    if x.rows * x.columns <= EXACT_VALUES:
        return float(np.quantile(np.abs(x[:]), q))
    return float(np.mean(np.concatenate([np.quantile(np.abs(block), q, axis=1) for _, block in x.blocks()])))


def clip_is_exact(x: Embeddings) -> bool:
    return x.rows * x.columns <= EXACT_VALUES

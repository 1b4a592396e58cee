"""Nested TopK levels over one dictionary, computed by their disjoint shells (section 3 of the paper; the exact saving).

Level i keeps the k_i largest values of a row. Levels are nested, so that what level i adds to level i - 1, its shell,
is decoded once, and reconstructions are running sums. Narrow shells go entry by entry, wide ones as matrices. Levels
that keep at least as many entries as any row has positive ones are the same and are computed once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from numpy import ndarray
from torch import Tensor

from icml25cli.papers.sae.kernels import classify, dots, gather, keep, scatter, spread

# A shell narrower than this share of the dictionary is faster entry by entry: a product of matrices does about twelve
# times as many operations a second on one core.
SPARSE_SHARE = 1 / 12


@dataclass(frozen=True)
class Shells:
    """The kept entries of B rows, by shell.

    Attributes:
        ks: (L,) entries a row kept up to each shell; the last may stand for all positive ones.
        level: for each level that was asked for, the number of the shell it ends with.
        index, value: of the narrow shells, (B, k); ``filled`` (B,) of them are there.
        dense: of the wide shells, each (B, n) with zeros elsewhere.
    """

    ks: Int[ndarray, "L"]
    level: tuple[int, ...]
    index: Int[ndarray, "B k"]
    value: Float32[ndarray, "B k"]
    filled: Int[ndarray, "B"]
    dense: Float32[Tensor, "wide B n"]

    @property
    def sparse(self) -> int:
        """How many of the shells are narrow."""
        return len(self.ks) - len(self.dense)


def split(pre: Float32[Tensor, "B n"], levels: Sequence[int], *, sparse_share: float = SPARSE_SHARE) -> Shells:
    """Shells of the ascending ``levels`` of rows of pre-activations; negative entries belong to none.

    Args:
        sparse_share: shells narrower than this share of n are kept as entries.
    """
    values = pre.numpy()
    rows, n = values.shape
    most = int((pre > 0).sum(dim=1).max()) if rows else 0
    useful = [k for k in levels if k < most]
    ks = np.array([*useful, levels[len(useful)]] if len(useful) < len(levels) else useful, np.int64)
    thresholds = np.zeros((rows, len(ks)), np.float32)
    whole = [s for s, k in enumerate(ks) if k < n]

    def find(part: slice) -> slice:
        places = n - ks[whole]
        thresholds[part, : len(whole)] = np.maximum(np.partition(values[part], places, axis=1)[:, places], 0)
        return part

    if whole and rows:
        spread(lambda part: None, rows, find)
    widths = np.diff(ks, prepend=0)
    sparse = next((s for s, width in enumerate(widths) if width > sparse_share * n), len(ks))
    width = int(ks[sparse - 1]) if sparse else 0
    index, value = np.empty((rows, width), np.int32), np.empty((rows, width), np.float32)
    filled, dense = np.empty(rows, np.int64), np.empty((len(ks) - sparse, rows, n), np.float32)
    spread(
        classify,
        rows,
        lambda part: values[part],
        lambda part: thresholds[part],
        ks,
        sparse,
        lambda part: index[part],
        lambda part: value[part],
        lambda part: filled[part],
        lambda part: dense[:, part],
    )
    level = tuple(min(i, len(ks) - 1) for i in range(len(levels)))
    return Shells(ks, level, index, value, filled, torch.from_numpy(dense))


def decode(shells: Shells, W_dec: Float32[Tensor, "n d"]) -> Float32[Tensor, "L B d"]:
    """Σ over the entries up to each shell of value times decoder row, without bias."""
    narrow, rows = shells.sparse, len(shells.filled)
    out = np.empty((len(shells.ks), rows, W_dec.shape[1]), np.float32)
    spread(
        gather,
        rows,
        lambda part: shells.index[part],
        lambda part: shells.value[part],
        lambda part: shells.filled[part],
        shells.ks[:narrow],
        W_dec.numpy(),
        lambda part: out[:narrow, part],
    )
    sums = torch.from_numpy(out)
    for s, matrix in enumerate(shells.dense, narrow):
        if s:
            torch.addmm(sums[s - 1], matrix, W_dec, out=sums[s])
        else:
            torch.mm(matrix, W_dec, out=sums[s])
    return sums


def gradients(
    shells: Shells, errors: Float32[Tensor, "L B d"], W_dec: Float32[Tensor, "n d"], dW_dec: Float32[Tensor, "n d"]
) -> Float32[Tensor, "B n"]:
    """Gradient by the kept entries, zero elsewhere; that by the decoder is added to ``dW_dec``.

    Args:
        errors: gradient by the output of every shell: the sum of those by all reconstructions that the shell is in.
    """
    narrow, rows = shells.sparse, len(shells.filled)
    dpre = torch.zeros(rows, len(W_dec))
    for error, matrix in zip(errors[narrow:], shells.dense, strict=True):
        dW_dec.addmm_(matrix.T, error)
        product, mask, out = (error @ W_dec.T).numpy(), matrix.numpy(), dpre.numpy()
        spread(keep, rows, *(lambda part, x=x: x[part] for x in (product, mask, out)))
    if narrow:
        ks, index, value, filled = shells.ks[:narrow], shells.index, shells.value, shells.filled
        given, out, weights = errors[:narrow].numpy(), dpre.numpy(), W_dec.numpy()
        spread(
            dots,
            rows,
            lambda part: index[part],
            lambda part: filled[part],
            ks,
            lambda part: given[:, part],
            weights,
            lambda part: out[part],
        )
        sums = dW_dec.numpy()
        spread(
            scatter, len(W_dec), index, value, filled, ks, given, lambda part: part.start, lambda part: part.stop, sums
        )
    return dpre


def compile_kernels() -> None:
    """Let what is compiled on first use be compiled now, so that no training's seconds hold it."""
    pre, W = torch.tensor([[1.0, 2.0, 0.5, -1.0]]), torch.ones(4, 2)
    for share in (0.0, 1.0):
        shells = split(pre, (1, 2, 4), sparse_share=share)
        gradients(shells, decode(shells, W), W, torch.zeros(4, 2))


def topk_code(pre: Float[Tensor, "B n"], k: int) -> Float[Tensor, "B n"]:
    """ReLU of the k largest values of each row, zeros elsewhere."""
    kept = torch.topk(pre, min(k, pre.shape[1]), dim=1, sorted=False)
    return torch.zeros_like(pre).scatter_(1, kept.indices, kept.values.relu())

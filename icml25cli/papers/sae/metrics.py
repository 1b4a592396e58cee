"""How faithful, sparse and aligned codes are, at every k at once and for the full code (section 3.8).

Rows stream by; all sums are in float64. Variances and errors are of embeddings as they came, not scaled. Knows models
and embeddings. Does not know training or files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from numpy import ndarray
from torch import Tensor

from icml25cli.core.embeddings import Embeddings
from icml25cli.core.errors import InputError
from icml25cli.core.neighbours import cknna, nearest, unit_rows
from icml25cli.core.progress import Progress
from icml25cli.papers.sae.config import Config
from icml25cli.papers.sae.model import SparseAutoencoder
from icml25cli.papers.sae.nested import Shells, decode, split, topk_code

ROWS = 1024  # evaluated together
NEIGHBOURS, AGREEMENT_ROWS, LEAST_ROWS, BLOCKS = 10, 10_000, 1000, 3  # of CKNNA


@dataclass(frozen=True)
class Quality:
    """Figures of one code on a set of rows.

    Attributes:
        k: entries a row keeps; n for the full code.
        code: full (ReLU of all pre-activations), topk (the k largest of them) or threshold (batchtopk's own).
        fvu: Σ‖x − x̂‖² over Σ‖x − mean‖².
        fvu_row: mean over rows of var(x − x̂)/var(x), variances within a row; rows of one value are left out.
        nmae: mean over rows of mean|x − x̂|/mean|x|.
        l0: mean number of entries that are not zero; ``sparsity`` the share that are.
        cknna: agreement of nearest neighbours by x and by code; None with too few rows.
        dead_share: latents that are never active on these rows.
    """

    k: int
    code: str
    fvu: float
    fvu_row: float
    cosine: float
    mse: float
    nmae: float
    l0: float
    sparsity: float
    cknna: float | None
    dead_share: float
    dead: int


@dataclass
class _Sums:
    """Running sums of one code."""

    error: float = 0.0
    row: float = 0.0
    cosine: float = 0.0
    absolute: float = 0.0
    entries: float = 0.0

    def add(self, x: Float32[ndarray, "B d"], xhat: Float32[ndarray, "B d"], varied: Bool[ndarray, "B"]) -> None:
        e = x - xhat
        self.error += float(np.einsum("ij,ij->", e, e, dtype=np.float64))
        self.row += float((e[varied].var(axis=1, dtype=np.float64) / x[varied].var(axis=1, dtype=np.float64)).sum())
        lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(xhat, axis=1)
        products = np.einsum("ij,ij->i", x, xhat)
        self.cosine += float((products / np.where(lengths == 0, 1, lengths)).sum(dtype=np.float64))
        sizes = np.abs(x).sum(axis=1, dtype=np.float64)
        self.absolute += float((np.abs(e).sum(axis=1, dtype=np.float64) / np.where(sizes == 0, 1, sizes)).sum())


def default_ks(configs: Sequence[Config]) -> tuple[int, ...]:
    """16, 32, ... below n, the methods' own k and levels, and n, the full code."""
    n = configs[0].n
    ks = {n, *(k for k in (2**i for i in range(4, 32)) if k < n)}
    own = {k for config in configs for k in (config.k, *config.levels) if k}
    return tuple(sorted(ks | own))


def checked_ks(ks: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Ascending, each once.

    Raises:
        InputError: one is above n.
    """
    if max(ks) > n:
        raise InputError(f"k = {max(ks)} is more than the {n} latents", hint=f"{n} is the full code")
    return tuple(sorted(set(ks)))


def evaluate(model: SparseAutoencoder, x: Embeddings, ks: Sequence[int]) -> tuple[Quality, ...]:
    """Quality of the codes of ascending ``ks`` on all rows of ``x``; k = n is the full code.

    For batchtopk a row with its own rule at inference follows: values above the running threshold.
    """
    n, count = model.config.n, x.rows
    own = model.config.method == "batchtopk"
    sums = [_Sums() for _ in range(len(ks) + own)]
    active = torch.zeros(len(sums), n, dtype=torch.bool)
    mean, squares, seen, varied_rows = np.zeros(x.columns), 0.0, 0, 0
    with Progress(f"evaluating {model.config.label}", count) as progress:
        for _, rows in x.blocks(ROWS):
            varied = rows.max(axis=1) > rows.min(axis=1)
            varied_rows += int(varied.sum())
            z = model.codes(rows)
            shells = split(z, ks)
            decoded = decode(shells, model.parameters.W_dec) if not model.config.soft_cap else _capped(model, z, shells)
            for s, level in enumerate(shells.level):
                sums[s].add(rows, model.decoded(decoded[level]), varied)
            positive = (z > 0).sum(dim=1).numpy()
            for s, k in enumerate(ks):
                sums[s].entries += float(np.minimum(positive, k).sum())
            _mark(active, shells)
            if own:
                kept = model.codes(rows, full=False)
                sums[-1].add(rows, model.decoded(model.capped(kept) @ model.parameters.W_dec), varied)
                sums[-1].entries += float((kept > 0).sum())
                active[-1] |= (kept > 0).any(dim=0)
            shift = rows.mean(axis=0, dtype=np.float64) - mean
            apart = np.subtract(rows, rows.mean(axis=0, dtype=np.float64), dtype=np.float64)
            total = seen + len(rows)
            squares += float(np.einsum("ij,ij->", apart, apart)) + seen * len(rows) / total * float(shift @ shift)
            mean, seen = mean + shift * (len(rows) / total), total
            progress.advance(len(rows))
    agreement = code_agreement(model, x, ks)
    names = [("full" if k == n else "topk", k) for k in ks] + [("threshold", model.config.k)] * own
    return tuple(
        Quality(
            k,
            code,
            s.error / squares if squares else float("nan"),
            s.row / varied_rows if varied_rows else float("nan"),
            s.cosine / count,
            s.error / (count * x.columns),
            s.absolute / count,
            s.entries / count,
            1 - s.entries / (count * n),
            agreed,
            1 - float(used.float().mean()),
            int((~used).sum()),
        )
        for (code, k), s, agreed, used in zip(names, sums, agreement, active, strict=True)
    )


def _capped(model: SparseAutoencoder, z: Float32[Tensor, "B n"], shells: Shells) -> Float32[Tensor, "L B d"]:
    """With a soft cap values are capped after they are ranked."""
    return torch.stack([model.capped(topk_code(z, int(k))) @ model.parameters.W_dec for k in shells.ks])


def _mark(active: Bool[Tensor, "codes n"], shells: Shells) -> None:
    """Note which latents each code used."""
    n = active.shape[1]
    used = torch.zeros(len(shells.ks), n, dtype=torch.bool)
    place = np.arange(shells.index.shape[1])
    begin = 0
    for s in range(len(shells.ks)):
        if s < shells.sparse:
            inside = (place >= begin) & (place < shells.ks[s]) & (place < shells.filled[:, None])
            used[s, torch.from_numpy(shells.index[inside].astype(np.int64))] = True
            begin = int(shells.ks[s])
        else:
            used[s] = (shells.dense[s - shells.sparse] > 0).any(dim=0)
        if s:
            used[s] |= used[s - 1]
    for code, level in enumerate(shells.level):
        active[code] |= used[level]


def code_agreement(model: SparseAutoencoder, x: Embeddings, ks: Sequence[int]) -> list[float | None]:
    """CKNNA of unit rows of x and of codes, k = 10, mean over at most three blocks of 10,000 rows spread over ``x``.

    A last block counts if it has 1000 rows or is the only one.
    """
    own = model.config.method == "batchtopk"
    starts = [s for s in range(0, x.rows, AGREEMENT_ROWS) if not s or x.rows - s >= LEAST_ROWS]
    starts = [starts[i] for i in np.unique(np.linspace(0, len(starts) - 1, min(BLOCKS, len(starts))).astype(int))]
    if x.rows <= NEIGHBOURS + 3:
        return [None] * (len(ks) + own)
    found = np.zeros((len(starts), len(ks) + own))
    for i, start in enumerate(starts):
        rows = x[start : start + AGREEMENT_ROWS]
        by_x = nearest(unit_rows(rows), NEIGHBOURS)
        full = torch.cat([model.codes(part) for part in np.array_split(rows, max(1, len(rows) // ROWS))])
        codes = [topk_code(full, k) for k in ks]
        if own:
            codes.append(full * (full > model.threshold))
        for j, z in enumerate(codes):
            found[i, j] = cknna(by_x, nearest(unit_rows(z.numpy()), NEIGHBOURS))
    return [float(value) for value in found.mean(axis=0)]


def decoder_orthogonality(W_dec: Float[Tensor, "n d"]) -> float:
    """Mean over all n² entries of the squared cosines of different decoder rows; 0 when all are orthogonal."""
    unit = W_dec / W_dec.norm(dim=1, keepdim=True)
    # ‖U Uᵀ‖² = ‖Uᵀ U‖², which is d × d; n of its sum are the ones of the diagonal.
    n = len(unit)
    return max(0.0, float((unit.T.double() @ unit.double()).square().sum()) - n) / n**2


def as_row(label: str, quality: Quality, seconds: float | None = None) -> dict[str, Any]:
    """A row of a report; with the seconds of training where they are known."""
    figures = {
        name: getattr(quality, name)
        for name in ("fvu", "fvu_row", "cosine", "l0", "cknna", "dead_share", "mse", "nmae", "sparsity")
    }
    return {"method": label, "k": quality.k, "code": quality.code, **figures} | (
        {} if seconds is None else {"seconds": seconds}
    )

"""Alignment of subspaces: SVCCA, CCA, PWCCA, Procrustes, from covariances alone (section 3.1).

Knows sums over rows. Does not know permutations' design or reports.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from icml25cli.core.embeddings import of_array
from icml25cli.papers.align.hsic import Triple
from icml25cli.papers.align.prepared import Prepared

NEGLIGIBLE = 1e-6  # of the largest variance: directions below a thousandth of its root are rounding of float32
WIDEST = 2048  # columns up to which covariances are taken apart again for every interval


@dataclass(frozen=True)
class Covariances:
    """Sums of products of centred columns."""

    xx: Float64[ndarray, "p p"]
    xy: Float64[ndarray, "p q"]
    yy: Float64[ndarray, "q q"]


def covariances(sums: Triple) -> Covariances:
    def centred(m) -> ndarray:
        return m.cross - np.outer(m.sum_x, m.sum_y) / m.n

    return Covariances(centred(sums.xx), centred(sums.xy), centred(sums.yy))


def narrowed(x: Prepared) -> Prepared:
    """``x`` with at most as many columns as rows, its columns standardised: the same kernel of the same rows."""
    rows = x[:].astype(np.float64)
    rows -= rows.mean(axis=0)
    rows /= rows.std(axis=0, ddof=1) + 1e-8
    values, vectors = np.linalg.eigh(rows @ rows.T)
    rotated = vectors * np.sqrt(np.maximum(values, 0))
    return Prepared(of_array(x.name, rotated[:, ::-1].astype(np.float32)))


def _scales(own: Float64[ndarray, "p p"], n: int) -> Float64[ndarray, "p"]:
    return 1 / (np.sqrt(np.maximum(np.diagonal(own), 0) / (n - 1)) + 1e-8)


def _leading(own: Float64[ndarray, "p p"], rank: int) -> Float64[ndarray, "p r"]:
    """The map to the top left singular vectors: eigenvectors over the roots of their eigenvalues."""
    from scipy.linalg import eigh

    p = len(own)
    values, vectors = eigh(own, subset_by_index=(max(0, p - rank), p - 1))
    keep = values > NEGLIGIBLE * max(values[-1], 0)
    return vectors[:, keep] / np.sqrt(values[keep])


def svcca_maps(c: Covariances, n: int, rank: int, standardise: tuple[bool, bool]) -> tuple[ndarray, ndarray]:
    """Maps of centred columns to the top singular vectors of standardised ones."""
    maps = []
    for own, scaled in ((c.xx, standardise[0]), (c.yy, standardise[1])):
        scale = _scales(own, n) if scaled else np.ones(len(own))
        scale[np.diagonal(own) <= 0] = 0
        maps.append(scale[:, None] * _leading(scale[:, None] * own * scale, rank))
    return maps[0], maps[1]


def cca_maps(c: Covariances) -> tuple[ndarray, ndarray]:
    return _leading(c.xx, len(c.xx)), _leading(c.yy, len(c.yy))


def correlations(between: Float64[ndarray, "a b"]) -> Float64[ndarray, "r"]:
    """Singular values, by the smaller of the two products: faster, and exact enough for values that are not tiny."""
    small = between @ between.T if len(between) <= between.shape[1] else between.T @ between
    return np.sqrt(np.maximum(np.linalg.eigvalsh(small), 0))


def svcca(c: Covariances, n: int, rank: int, standardise: tuple[bool, bool] = (True, True)) -> float:
    """Mean canonical correlation of the top ``rank`` singular vectors of each side (Raghu and others 2017)."""
    a, b = svcca_maps(c, n, rank, standardise)
    return float(correlations(a.T @ c.xy @ b).mean()) if a.size and b.size else float("nan")


def cca(c: Covariances) -> dict[str, float]:
    """Mean canonical correlation, its mean square, and the projection-weighted mean (Morcos and others 2018)."""
    a, b = cca_maps(c)
    return cca_values(a.T @ c.xy @ b, a.T @ c.xx)


def cca_values(between: Float64[ndarray, "r s"], weights: Float64[ndarray, "r p"]) -> dict[str, float]:
    """The three of whitened directions of x times those of y, and of x's directions times x."""
    if not between.size:
        return dict.fromkeys(("cca", "cca_square", "pwcca"), float("nan"))
    squares, u = np.linalg.eigh(between @ between.T)
    count = min(between.shape)
    rho = np.sqrt(np.maximum(squares[-count:], 0))
    share = np.abs(u[:, -count:].T @ weights).sum(axis=1)
    return {
        "cca": float(rho.mean()),
        "cca_square": float(np.square(rho).mean()),
        "pwcca": float(share @ rho / share.sum()),
    }


def procrustes(c: Covariances) -> float:
    """Nuclear norm of Xcᵀ Yc over the lengths of Xc and Yc: 1 where a rotation and a scale make them equal."""
    scale = np.sqrt(np.trace(c.xx) * np.trace(c.yy))
    return float(correlations(c.xy).sum() / scale) if scale > 0 else float("nan")

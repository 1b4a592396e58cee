"""Built-in data with a known answer: sparse sums of unit atoms (section 10, P4). Knows arrays."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray


@dataclass(frozen=True)
class Dictionary:
    """Rows that are sums of few atoms, which atoms, and the atoms."""

    rows: Float32[ndarray, "N d"]
    atoms: Float32[ndarray, "n d"]
    used: Int64[ndarray, "N active"]


def dictionary(
    rows: int = 20_000, d: int = 32, n: int = 64, active: int = 3, noise: float = 0.01, seed: int = 0
) -> Dictionary:
    """Each row: ``active`` different atoms with weights uniform in 0.5 to 1.5, and normal noise."""
    rng = np.random.default_rng(seed)
    atoms = rng.standard_normal((n, d))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    used = np.argsort(rng.random((rows, n)), axis=1)[:, :active]
    weights = rng.uniform(0.5, 1.5, (rows, active))
    x = np.einsum("ra,rad->rd", weights, atoms[used]) + noise * rng.standard_normal((rows, d))
    return Dictionary(x.astype(np.float32), atoms.astype(np.float32), used)


def recovery(W_dec: Float32[ndarray, "m d"], atoms: Float32[ndarray, "n d"]) -> float:
    """Mean over atoms of the largest cosine with a decoder row."""
    unit = W_dec / np.linalg.norm(W_dec, axis=1, keepdims=True)
    return float((atoms @ unit.T).max(axis=1).mean())

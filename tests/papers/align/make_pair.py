"""A fixed pair of matrices with known answers, and pairs drawn with a shared part."""

import numpy as np

from icml25cli.core.embeddings import of_array
from icml25cli.papers.align.metrics import Pair, Settings
from icml25cli.papers.align.prepared import Normalize, prepare


def known() -> tuple[np.ndarray, np.ndarray]:
    """96 x 20 and 96 x 14, by sines."""
    i, j, k = np.arange(96.0)[:, None], np.arange(20.0)[None], np.arange(14.0)[None]
    a = np.sin(0.7 * i + 1.3 * j + 0.05 * i * j) + 0.3 * np.cos(0.11 * i**2 + j)
    m = np.cos(0.9 * j.T * (k + 1) + 0.2 * k)
    return a, np.tanh(a @ m / np.sqrt(20)) + 0.4 * np.sin(2.3 * i + 0.7 * k**2)


def drawn(n: int, p: int, q: int, shared: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, shared)) if shared else np.zeros((n, 1))
    sides = [z @ rng.standard_normal((z.shape[1], d)) + rng.standard_normal((n, d)) for d in (p, q)]
    return sides[0], sides[1]


def pair_of(x: np.ndarray, y: np.ndarray, normalize: Normalize = "none", **settings) -> Pair:
    plain = {"permutations": 0, "intervals": False} | settings
    return Pair(
        prepare(of_array("a", x), normalize),
        prepare(of_array("b", y), normalize),
        Settings(**plain),
    )

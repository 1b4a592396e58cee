"""Built-in pairs: halves of pictures of digits, and views of bits whose redundancy is known exactly.

Knows everything of this paper but the command line.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from icml25cli.core.embeddings import Embeddings, of_array
from icml25cli.papers.align import generator
from icml25cli.papers.align.measure import measure
from icml25cli.papers.align.metrics import Pair, Settings
from icml25cli.papers.align.prepared import prepare
from icml25cli.papers.align.redundancy import redundancy

ROWS, LEVELS = 4000, (0, 2, 4, 6, 8)
DIGITS = ("digits-left", "digits-right")


def digits(name: str) -> Embeddings:
    """One half of scikit-learn's 1797 pictures of digits, 8 x 4 pixels a row."""
    from sklearn.datasets import load_digits

    images: Any = load_digits(return_X_y=True)[0]
    halves = images.reshape(-1, 8, 8)[:, :, :4] if name == DIGITS[0] else images.reshape(-1, 8, 8)[:, :, 4:]
    return of_array(name, np.ascontiguousarray(halves.reshape(len(images), -1), dtype=np.float32))


def demonstrate(settings: Settings, seed: int = 0) -> list[dict[str, Any]]:
    """Two views of bits at several uniquenesses: alignment of the raw bits, and redundancy, estimated and exact."""
    rows = []
    for unique in LEVELS:
        of = generator.task(8 - unique)
        drawn = generator.draw(of, ROWS, seed)
        x, y = (prepare(of_array(name, _signed(view))) for name, view in (("x1", drawn.x1), ("x2", drawn.x2)))
        found = {m.metric: m for m in measure(Pair(x, y, replace(settings, k=50)), ("ucka", "mknn"))}
        known, exact = redundancy(x, y, drawn.label, seed), generator.exact(of)
        rows.append(
            {
                "unique": unique,
                "ucka": found["ucka"].value,
                "ucka_z": found["ucka"].row()["z"],
                "mknn": found["mknn"].value,
                "redundant_share": known.share.value if known.share else None,
                "exact_share": max(0.0, exact.first + exact.second - exact.total) / exact.total,
                "verdict": known.verdict,
            }
        )
    return rows


def _signed(bits: np.ndarray) -> np.ndarray:
    return (2 * bits - 1).astype(np.float32)

"""Every layer of one model against every layer of another, and whether the best pair is more than luck (section 3.4).

The largest of many values is large by chance: its null is the largest over the same pairs of permuted rows. Knows
prepared rows. Does not know files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.core.progress import Progress
from icml25cli.papers.align import symmetric
from icml25cli.papers.align.by_lists import by_row
from icml25cli.papers.align.lists import Lists, checked_k, neighbour_lists
from icml25cli.papers.align.metrics import Settings
from icml25cli.papers.align.prepared import Prepared
from icml25cli.papers.align.resampling import Null, of_permutations, orders

LAYER_METRICS = ("ucka", "mknn", "cka", "cycle", "cycle_swapped", "lcs", "edit", "rsa")
LAYER_ROWS = 1024  # drawn, as the representation hypothesis is tested on so many


@dataclass(frozen=True)
class Sweep:
    """All pairs of layers by one metric.

    Attributes:
        values: a row a layer of the first side, a column a layer of the second.
        null: the largest value over pairs when rows are permuted.
        last_null: the last pair's value when they are.
    """

    metric: str
    values: Float64[ndarray, "L M"]
    null: Null | None
    last_null: Null | None

    @property
    def best(self) -> tuple[int, int]:
        """The pair of the largest value, the first of equal ones."""
        row, column = np.unravel_index(int(np.argmax(self.values)), self.values.shape)
        return int(row), int(column)

    def rows(self) -> list[dict[str, Any]]:
        """The best pair against luck over all pairs, and the last pair."""
        last = (len(self.values) - 1, self.values.shape[1] - 1)
        return [
            self._row("max", self.best, self.null),
            self._row("last", last, self.last_null),
        ]

    def _row(self, which: str, at: tuple[int, int], null: Null | None) -> dict[str, Any]:
        value = float(self.values[at])
        return {
            "metric": self.metric,
            "pair": which,
            "layer_a": at[0],
            "layer_b": at[1],
            "value": value,
            "null_mean": null.mean if null else None,
            "z": null.z(value) if null else None,
            "p_value": null.p_value(value) if null else None,
            "ci_low": None,
            "ci_high": None,
        }


def sweep(a: Sequence[Prepared], b: Sequence[Prepared], names: Sequence[str], settings: Settings) -> list[Sweep]:
    """The metrics asked for on all pairs of layers; all layers hold the same rows, few enough for n x n numbers.

    Raises:
        InputError: a metric is none of ``LAYER_METRICS``, or k is not below the number of rows.
    """
    for name in names:
        if name not in LAYER_METRICS:
            raise InputError(f"{name} is not compared layer by layer", hint=f"--metric {','.join(LAYER_METRICS)}")
    drawn = orders(a[0].rows, settings.permutations, settings.seed)
    return [_of_lists(a, b, n, settings, drawn) if n in _LISTED else _of_squares(a, b, n, drawn) for n in names]


_LISTED = ("mknn", "cycle", "cycle_swapped", "lcs", "edit")
_FORMS: dict[str, Callable[[ndarray], ndarray]] = {
    "ucka": lambda x: symmetric.u_centred(symmetric.linear_kernel(x)),
    "cka": lambda x: symmetric.centred(symmetric.linear_kernel(x)),
    "rsa": lambda x: symmetric.about_their_mean(symmetric.distance_ranks(x)),
}


def _of_lists(a, b, name: str, settings: Settings, drawn: Sequence[Int64[ndarray, "n"]]) -> Sweep:
    k = checked_k(settings.k, a[0].rows)
    first, second = ([neighbour_lists(layer, k) for layer in side] for side in (a, b))

    def all_pairs(of_second: Sequence[Lists]) -> ndarray:
        return np.array([[float(by_row(name, x, y).mean()) for y in of_second] for x in first])

    return _swept(name, all_pairs(second), lambda order: all_pairs([y.permuted(order) for y in second]), drawn)


def _of_squares(a, b, name: str, drawn: Sequence[Int64[ndarray, "n"]]) -> Sweep:
    first, second = ([np.nan_to_num(_FORMS[name](layer[:])) for layer in side] for side in (a, b))

    def all_pairs(order: ndarray) -> ndarray:
        return np.array([[float(symmetric.permuted(x, y, [order])[0]) for y in second] for x in first])

    return _swept(name, all_pairs(np.arange(a[0].rows)), all_pairs, drawn)


def _swept(name: str, values: ndarray, permuted: Callable[[ndarray], ndarray], drawn: Sequence[ndarray]) -> Sweep:
    found = []
    with Progress(f"{name} of permuted rows", len(drawn)) as progress:
        for order in drawn:
            at = permuted(order)
            found.append((at.max(), at[-1, -1]))
            progress.advance()
    null, last = (of_permutations([f[i] for f in found]) for i in range(2)) if found else (None, None)
    return Sweep(name, values, null, last)


def as_table(found: Sweep) -> list[dict[str, Any]]:
    """A row a layer of the first side."""
    return [
        {"layer_a": i, **{f"b{j}": float(value) for j, value in enumerate(row)}} for i, row in enumerate(found.values)
    ]

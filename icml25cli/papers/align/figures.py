"""Heat maps of pairs, and alignment against uniqueness. Knows tables of numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy import ndarray

LABELLED = 24  # cells a side in which numbers are written


def heat_map(values: Float[ndarray, "L M"], rows: Sequence[str], columns: Sequence[str], metric: str) -> Figure:
    """A cell a pair; the numbers in it where there are few."""
    height, width = values.shape
    figure = Figure(figsize=(2 + 0.45 * width, 1.6 + 0.4 * height), layout="constrained")
    axes = figure.subplots()
    shown = axes.imshow(values, cmap="viridis", aspect="auto")
    axes.set_xticks(range(width), columns, rotation=45, ha="right")
    axes.set_yticks(range(height), rows)
    if max(height, width) <= LABELLED:
        middle = (np.nanmin(values) + np.nanmax(values)) / 2
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                axes.text(
                    j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color="w" if value < middle else "k"
                )
    figure.colorbar(shown, label=metric)
    return figure


def by_uniqueness(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Largest alignment by unique bits, a line a heterogeneity."""
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axes = figure.subplots()
    for bend in dict.fromkeys(row["heterogeneity"] for row in rows):
        points = [(row["unique"], row["max_ucka"]) for row in rows if row["heterogeneity"] == bend]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3.5, label=f"heterogeneity {bend}")
    axes.set(xlabel="unique bits of eight", ylabel="largest unbiased CKA", ylim=(-0.05, 1))
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def against_performance(points: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """Performance by alignment, a colour a metric, a point a model."""
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axes = figure.subplots()
    for metric, found in points.items():
        axes.plot(*zip(*found, strict=True), "o", markersize=4, label=metric)
    axes.set(xlabel="alignment", ylabel="performance")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure

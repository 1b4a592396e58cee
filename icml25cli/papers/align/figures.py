"""Heat maps of pairs, and alignment against uniqueness. Knows tables of numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy import ndarray

from icml25cli.papers.align.layers import Sweep
from icml25cli.papers.align.metrics import Measured

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


def of_layers(found: Sweep) -> Figure:
    """All pairs of layers."""
    height, width = found.values.shape
    return heat_map(found.values, [f"A {i}" for i in range(height)], [f"B {j}" for j in range(width)], found.metric)


def of_pairs(files: Sequence[str], found: Sequence[tuple[int, int, Sequence[Measured]]]) -> Figure:
    """All pairs of files by the first metric."""
    values = np.full((len(files), len(files)), np.nan)
    np.fill_diagonal(values, 1)
    for i, j, measured in found:
        value = measured[0].value
        values[i, j] = values[j, i] = np.nan if value is None else value
    names = [Path(file).stem if Path(file).suffix else file for file in files]
    return heat_map(values, names, names, found[0][2][0].metric)


def beside_chance(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Every metric's value with its interval, and what chance gives."""
    known = [row for row in rows if row["value"] is not None][::-1]
    figure = Figure(figsize=(6, 1 + 0.3 * len(known)), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(known):
        if row["ci_low"] is not None:
            axes.plot([row["ci_low"], row["ci_high"]], [place, place], color="C0")
    axes.plot([row["value"] for row in known], range(len(known)), "o", color="C0", label="value")
    chance = [(row["null_mean"], place) for place, row in enumerate(known) if row["null_mean"] is not None]
    if chance:
        axes.plot(*zip(*chance, strict=True), "|", color="C1", markersize=10, label="chance")
    axes.set_yticks(range(len(known)), [row["metric"] for row in known])
    axes.grid(alpha=0.3)
    axes.legend()
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

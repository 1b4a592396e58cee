"""Figures: ranks with their critical difference, calibration, bias and variance. Knows results. Does not know files."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from matplotlib.figure import Figure
from numpy import ndarray

from icml25cli.papers.tabpfn_bag.metrics import reliability
from icml25cli.papers.tabpfn_bag.ranks import Ranks


def critical_difference(methods: Sequence[str], ranks: Ranks, figure_of: str) -> Figure:
    """Mean ranks on a line, best on the left; bars join methods that do not differ (Demšar 2006, figure 1)."""
    order = np.argsort(ranks.mean, kind="stable")
    half = (len(order) + 1) // 2
    cliques = ranks.cliques()
    depth = 0.25 * len(cliques) + 0.4
    figure = Figure(figsize=(7, 1.2 + 0.25 * half + 0.15 * len(cliques)), layout="constrained")
    axis = figure.subplots()
    axis.set(xlim=(0.2, len(order) + 0.8), ylim=(-depth - 0.6 * half - 0.3, 1.3))
    axis.axis("off")
    axis.plot([1, len(order)], [0, 0], color="black", linewidth=1)
    for tick in range(1, len(order) + 1):
        axis.plot([tick, tick], [0, 0.12], color="black", linewidth=1)
        axis.text(tick, 0.2, str(tick), ha="center", va="bottom", fontsize=8)
    for place, method in enumerate(order):
        left = place < half
        row = place if left else len(order) - 1 - place
        y, mean = -depth - 0.6 * row, ranks.mean[method]
        edge = 0.9 if left else len(order) + 0.1
        axis.plot([float(mean), float(mean), edge], [0, y, y], color="0.4", linewidth=0.8)
        axis.text(
            edge - 0.05 if left else edge + 0.05,
            y,
            f"{methods[method]} ({mean:.2f})" if left else f"({mean:.2f}) {methods[method]}",
            ha="right" if left else "left",
            va="center",
            fontsize=8,
            parse_math=False,
        )
    for level, clique in enumerate(cliques):
        ends = ranks.mean[list(clique)]
        y = -0.25 * (level + 1)
        axis.plot([ends.min() - 0.05, ends.max() + 0.05], [y, y], color="black", linewidth=3, solid_capstyle="butt")
    if np.isfinite(ranks.critical_difference):
        axis.plot([1, 1 + ranks.critical_difference], [0.95, 0.95], color="black", linewidth=1.5)
        axis.text(1, 1.02, f"critical difference {ranks.critical_difference:.2f}", fontsize=8, va="bottom")
    axis.set_title(f"mean rank by {figure_of}", fontsize=9, loc="right")
    return figure


def calibration(found: Mapping[str, Float64[ndarray, "n classes"]], labels: Int64[ndarray, "n"]) -> Figure:
    """Accuracy against confidence in bins, marks as large as a bin's share of the rows (reliability diagram)."""
    figure = Figure(figsize=(5, 4.5), layout="constrained")
    axis = figure.subplots()
    axis.plot([0, 1], [0, 1], color="0.8", zorder=0)
    for name, p in found.items():
        _, confidence, accuracy, share = reliability(p, labels)
        (line,) = axis.plot(confidence, accuracy, linewidth=1, label=name)
        axis.scatter(confidence, accuracy, s=8 + 120 * share, color=line.get_color())
    least = min(1 / p.shape[1] for p in found.values())
    axis.set(xlabel="confidence", ylabel="accuracy", xlim=(0.9 * least, 1.02), ylim=(0, 1.02))
    axis.legend(fontsize=7, loc="upper left")
    return figure


def bias_and_variance(rows: Sequence[Mapping[str, Any]], loss: str = "log_loss") -> Figure:
    """Bias and variance against the rows of a training set, a line a method."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    for axis, part in zip(figure.subplots(1, 3), ("", "_bias", "_variance"), strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            own = [row for row in rows if row["method"] == method]
            sizes = [row["training_rows"] for row in own]
            axis.plot(sizes, [row[loss + part] for row in own], marker="o", markersize=3, linewidth=1, label=method)
        axis.set_xscale("log", base=2)
        axis.set(xlabel="training rows", title=f"{loss}{part}".replace("_", " "))
    axis.legend(fontsize=7)
    return figure

"""The trade-off between sparsity and faithfulness as a figure. Knows rows of a report."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure


def pareto(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """FVU by mean number of active latents, a line a method; lower and further left is better."""
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axes = figure.subplots()
    for method in dict.fromkeys(row["method"] for row in rows):
        points = sorted((row["l0"], row["fvu"]) for row in rows if row["method"] == method and row["l0"] > 0)
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3.5, label=method)
    axes.set(xlabel="active latents a row", ylabel="unexplained variance", xscale="log", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure

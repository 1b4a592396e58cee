"""What is kept of each layer, and what methods cost in perplexity at each size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from icml25cli.papers.prune.pipeline import Pruned
from icml25cli.papers.prune.tables import DENSE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def kept(pruned: Pruned) -> Figure:
    """Shares of heads and channels by layer, over the cosine of each layer's input and output."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    layers, anatomy = pruned.plan.layers, pruned.anatomy
    places = [layer.index for layer in layers]
    heads = [len(layer.heads) / anatomy.heads for layer in layers]
    channels = [len(layer.channels) / anatomy.inner for layer in layers]
    axes.bar([x - 0.2 for x in places], heads, width=0.4, label="heads")
    axes.bar([x + 0.2 for x in places], channels, width=0.4, label="channels")
    cosines = [layer.cosine for layer in layers]
    axes.plot(places, cosines, color="black", marker="o", markersize=3, linewidth=1, label="cosine of input and output")
    axes.set(xlabel="decoder layer", ylabel="share kept", ylim=(min(0.0, *cosines), 1.05))
    figure.legend(loc="outside upper center", ncols=3, fontsize="small")
    return figure


def perplexities(rows: Sequence[dict[str, Any]]) -> Figure:
    """Rows of ``tables.comparison``: perplexity with its standard error against the share of decoder parameters."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    dense = next(row for row in rows if row["method"] == DENSE)
    for method in dict.fromkeys(row["method"] for row in rows if row is not dense):
        points = sorted((row for row in (*rows, dense) if row["method"] in (method, DENSE)), key=_share)
        axes.errorbar(
            [_share(row) for row in points],
            [row["perplexity"] for row in points],
            yerr=[row["perplexity_se"] for row in points],
            marker="o",
            markersize=4,
            linewidth=1,
            label=method,
        )
    axes.set(yscale="log", xlabel="share of decoder parameters kept", ylabel="perplexity")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def _share(row: dict[str, Any]) -> float:
    return row["decoder_share"]

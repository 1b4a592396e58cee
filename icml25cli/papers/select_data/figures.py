"""Scores of the pool and of what is selected of it, and where that comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from icml25cli.papers.select_data.methods import Selection

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def scores(selection: Selection, composition: Sequence[dict[str, Any]]) -> Figure:
    """A histogram of scores with the selection in it, beside the shares of sources in the pool and the selections."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    total = selection.scores.total
    bins = np.linspace(float(total.min()), float(total.max()) + 1e-12, 60)
    left.hist(total, bins=bins.tolist(), label=f"pool, {len(total)} rows", color="lightgrey")
    chosen = total[selection.places]
    left.hist(chosen, bins=bins.tolist(), label=f"selected, {len(chosen)} rows", color="tab:blue")
    left.set(xlabel=f"score by {selection.method}", ylabel="rows", yscale="log")
    left.legend(fontsize="small")
    sources = list(dict.fromkeys(row["source"] for row in composition))
    methods = list(dict.fromkeys(row["method"] for row in composition))
    shares = {(row["method"], row["source"]): row["share_of_selection"] for row in composition}
    pool = {row["source"]: row["share_of_pool"] for row in composition}
    names = ["pool", *methods]
    bottoms = np.zeros(len(names))
    for source in sources:
        heights = np.array([pool[source], *(shares[method, source] for method in methods)])
        right.bar(names, heights, bottom=bottoms, label=source)
        bottoms += heights
    right.set(ylabel="share of rows")
    right.tick_params(axis="x", rotation=30)
    right.legend(fontsize="x-small")
    return figure


def metrics(rows: Sequence[dict[str, Any]]) -> Figure:
    """The metric after tuning, a bar a method, with its deviation over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    spread = [row.get("metric_sd") or 0.0 for row in rows]
    axes.bar([row["method"] for row in rows], [row["metric"] for row in rows], yerr=spread, capsize=4)
    axes.set(ylabel="metric on test prompts")
    return figure

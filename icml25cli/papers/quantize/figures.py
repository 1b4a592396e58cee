"""What a quantised model looks like: the loss of each decoder block under every candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icml25cli.papers.quantize.model import Judged, by_block, label

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def losses(judged: tuple[Judged, ...]) -> Figure:
    """Relative error of the layers' outputs by block, one line a candidate."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for j in judged:
        if j.candidate is None:
            continue
        blocks = by_block(j)
        axes.plot(
            [row["block"] for row in blocks],
            [row["proxy_loss"] for row in blocks],
            marker="o",
            markersize=3,
            label=f"{' '.join(label(j).values())}, {j.bits_per_weight:.2f} bits",
        )
    axes.set(yscale="log", xlabel="decoder block", ylabel="relative error of layer outputs")
    axes.legend(fontsize="small")
    return figure

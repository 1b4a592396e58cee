"""What a quantised model looks like, block by block, and how codes stand to the bounds, rate against error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log10
from typing import TYPE_CHECKING

import numpy as np

from icml25cli.papers.quantize.bench import ProductPoint, RatePoint
from icml25cli.papers.quantize.bounds import distortion_bound, matmul_bound
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


def rate_distortion(points: Sequence[RatePoint]) -> Figure:
    """Error in decibels against bits an entry, one series a family of codes, over Shannon's bound."""
    figure = _rates(
        [(_family(p), p.bits, p.distortion) for p in points if p.levels is not None],
        [("uniform, entropy-coded", p.scalar_bits, p.distortion) for p in points if p.code is not None],
        ("Shannon's bound", distortion_bound),
    )
    figure.axes[0].set(ylabel="distortion (dB)")
    return figure


def product_error(points: Sequence[ProductPoint]) -> Figure:
    """Error of a product in decibels against bits an entry, one series a family of codes, over Γ(R)."""
    figure = _rates([(_family(p), p.bits, p.error) for p in points], [], ("bound of products, Γ(R)", matmul_bound))
    figure.axes[0].set(ylabel="error of a product's entry over n (dB)")
    return figure


def _family(point: RatePoint | ProductPoint) -> str:
    return point.method if point.code is None else f"{point.method}, k = {point.k}"


def _rates(
    measured: list[tuple[str, float, float]],
    coded: list[tuple[str, float, float]],
    bound: tuple[str, Callable[[float], float]],
) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    name, least = bound
    rates = [rate for _, rate, _ in [*measured, *coded]]
    x = np.linspace(max(0.0, min(rates) - 0.25), max(rates) + 0.25, 200)
    axes.plot(x, [10 * log10(least(rate)) for rate in x], color="black", linewidth=1, label=name)
    for series, style in ((measured, "-"), (coded, ":")):
        for family in dict.fromkeys(name for name, _, _ in series):
            found = sorted((rate, 10 * log10(error)) for name, rate, error in series if name == family and error > 0)
            axes.plot(
                [rate for rate, _ in found],
                [error for _, error in found],
                style,
                marker="o",
                markersize=4,
                linewidth=1,
                label=family,
            )
    axes.set(xlabel="bits an entry")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure

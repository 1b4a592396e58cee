"""Graphs with positions become pictures of boxes and lines, as Graphviz draws them: white paper, black lines, every
node a white box with a black rim, targets filled brown, no labels, no other colour. Section 3.1.

A picture is one byte a pixel: 0 is paper, 1 to 254 is ink, 255 is brown. ``to_rgb`` makes colours of them.

Knows positions and pixels. Does not know where positions come from, nor what looks at the pictures.
"""

import numpy as np
from jaxtyping import Float32, UInt8
from numpy import ndarray

from icml25cli.core.jit import compiled, inline
from icml25cli.papers.linkpred.subgraphs import Subgraphs

VERSION = 1  # raised whenever the same positions give other pixels
BROWN = (165, 42, 42)  # X11's, which Graphviz uses
INK, TARGET = 254, 255


def _palette() -> UInt8[ndarray, "256 3"]:
    palette = np.repeat(np.round(255 * (1 - np.arange(256) / INK)).clip(0).astype(np.uint8)[:, None], 3, axis=1)
    palette[TARGET] = BROWN
    return palette


PALETTE = _palette()


def to_rgb(pictures: UInt8[ndarray, "*b size size"]) -> UInt8[ndarray, "*b size size 3"]:
    """Red, green and blue of pictures, 0 to 255."""
    return PALETTE[pictures]


def paint(graphs: Subgraphs, positions: Float32[ndarray, "n 2"], size: int) -> UInt8[ndarray, "b size size"]:
    """A square picture of each graph, ``size`` pixels wide.

    Both axes are stretched to the canvas, as the reference does when it resizes. Boxes are 3:2 and get smaller with the
    number of nodes. Targets are painted last.
    """
    return _paint(graphs.node_start, graphs.edge_start, graphs.edges, positions, graphs.targets, size)


@compiled
def _paint(node_start, edge_start, edges, positions, targets, size):
    count = len(node_start) - 1
    pictures = np.zeros((count, size, size), np.uint8)
    for b in range(count):
        picture = pictures[b]
        first, n = node_start[b], node_start[b + 1] - node_start[b]
        half = min(max(0.175 * size / np.sqrt(n), 2.0), 0.06 * size)
        wide, high = int(np.rint(half)), max(1, int(np.rint(half * 2 / 3)))
        x = _fitted(positions[first : first + n, 0], wide + 1, size)
        y = _fitted(positions[first : first + n, 1], high + 1, size)
        for e in range(edge_start[b], edge_start[b + 1]):
            i, j = edges[e, 0], edges[e, 1]
            _line(picture, x[i], y[i], x[j], y[j])
        for i in range(n - 1, -1, -1):
            column, row = int(np.rint(x[i])), int(np.rint(y[i]))
            for r in range(max(row - high, 0), min(row + high + 1, size)):
                for c in range(max(column - wide, 0), min(column + wide + 1, size)):
                    rim = r == row - high or r == row + high or c == column - wide or c == column + wide
                    picture[r, c] = TARGET if i < targets else INK if rim else 0
    return pictures


@inline
def _fitted(values, margin, size):
    """``values`` moved and stretched so that they span the canvas between margins; in its middle if all are one."""
    low, high = values.min(), values.max()
    if high - low < 1e-6:
        return np.full(len(values), (size - 1) / 2)
    return margin + (values - low) / (high - low) * (size - 1.0 - 2 * margin)


@inline
def _line(picture, x0, y0, x1, y1):
    """One pixel of ink a step along the longer axis, shared between the two pixels that the line passes between."""
    steep = abs(y1 - y0) > abs(x1 - x0)
    if steep:
        x0, y0, x1, y1 = y0, x0, y1, x1
    if x0 > x1:
        x0, y0, x1, y1 = x1, y1, x0, y0
    begin, end = int(np.rint(x0)), int(np.rint(x1))
    slope = (y1 - y0) / (x1 - x0) if x1 > x0 else 0.0
    for along in range(begin, end + 1):
        across = y0 + slope * (along - x0)
        low = int(np.floor(across))
        share = across - low
        for place, ink in ((low, 1 - share), (low + 1, share)):
            if 0 <= place < picture.shape[0]:
                r, c = (along, place) if steep else (place, along)
                picture[r, c] = min(INK, picture[r, c] + int(INK * ink + 0.5))

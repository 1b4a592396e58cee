"""Where the nodes of small graphs go: Fruchterman and Reingold's springs (1991) from a fixed start.

Each graph is laid out by itself, in one compiled loop over a batch: its place in the batch, and what else is in it,
leave no trace in a picture. There is nothing random: nodes start on a golden-angle spiral in the order in which they
come, so graphs in canonical order (``canonical``) that are alike look alike.

Knows graphs. Does not know pixels.
"""

import numpy as np
from jaxtyping import Float32
from numpy import ndarray

from icml25cli.core.jit import compiled
from icml25cli.papers.linkpred.subgraphs import Subgraphs

VERSION = 1  # raised whenever a graph is laid out otherwise: pictures kept from before are then not used
ITERATIONS = 60
FIRST_STEP = 0.2  # the farthest a node may move at first, cooling linearly to nothing
PULL = 1.0  # towards the middle, so that parts that nothing connects stay in sight of each other


def spring_layout(graphs: Subgraphs) -> Float32[ndarray, "n 2"]:
    """Positions of all nodes, x and y without unit.

    With K = 1/√n a node is pushed from each other one by K²/d, pulled along its edges by d²/K, and a little towards the
    middle; d is the distance, n the nodes of its graph.
    """
    return _springs(graphs.node_start, graphs.edge_start, graphs.edges)


@compiled
def _springs(node_start, edge_start, edges):
    count = len(node_start) - 1
    positions = np.empty((node_start[count], 2), np.float32)
    golden = np.pi * (3 - np.sqrt(5.0))
    for b in range(count):
        first, n = node_start[b], node_start[b + 1] - node_start[b]
        x, y = np.empty(n, np.float32), np.empty(n, np.float32)
        for i in range(n):
            radius = np.sqrt((i + 0.5) / n) / 2
            x[i], y[i] = radius * np.cos(golden * i), radius * np.sin(golden * i)
        k = np.float32(1 / np.sqrt(n))
        k2, tiny = k * k, np.float32(1e-6)
        fx, fy = np.empty(n, np.float32), np.empty(n, np.float32)
        for iteration in range(ITERATIONS):
            for i in range(n):
                fx[i], fy[i] = -np.float32(PULL) * x[i], -np.float32(PULL) * y[i]
            for i in range(n):
                xi, yi = x[i], y[i]
                for j in range(
                    n
                ):  # all pairs twice, since so the loop runs in vector lanes; a node does not push itself
                    dx, dy = x[j] - xi, y[j] - yi
                    push = k2 / (dx * dx + dy * dy + tiny)
                    fx[j] += dx * push
                    fy[j] += dy * push
            for e in range(edge_start[b], edge_start[b + 1]):
                i, j = edges[e, 0], edges[e, 1]
                dx, dy = x[j] - x[i], y[j] - y[i]
                pull = np.sqrt(dx * dx + dy * dy) / k
                fx[i] += dx * pull
                fy[i] += dy * pull
                fx[j] -= dx * pull
                fy[j] -= dy * pull
            step = np.float32(FIRST_STEP * (1 - iteration / ITERATIONS))
            for i in range(n):
                length = np.sqrt(fx[i] * fx[i] + fy[i] * fy[i])
                scale = min(np.float32(1), step / (length + tiny))
                x[i] += fx[i] * scale
                y[i] += fy[i] * scale
        for i in range(n):
            positions[first + i, 0], positions[first + i, 1] = x[i], y[i]
    return positions

"""Speed of our renderer on one thread, against one Graphviz process a picture, in the same run, on the same graphs.

    python tests/benchmarks/bench_linkpred_render.py [EDGES.npz]

The peer is what the paper's code does: `sfdp -Tpng`, decoded and stretched to 224 pixels. Where Graphviz is absent it
is networkx's spring layout drawn by matplotlib. Graphs lie within one hop of edges and of other pairs, of a file with
an array `edges` or of a graph made here. Targets: 10 times the peer, 20 as a stretch; 8 for Graphviz's layout in one
process for many. Then what the encoders cost, for scale.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch start their pools

import io
import sys
import time
from collections.abc import Callable

import networkx as nx
import numpy as np
import torch
from bench_codec import cpu_model  # it sets one thread, too
from numpy import ndarray

from icml25cli.core.errors import MissingError
from icml25cli.papers.linkpred.canonical import canonical_graphs
from icml25cli.papers.linkpred.encoders import load_encoder
from icml25cli.papers.linkpred.graph import adjacency
from icml25cli.papers.linkpred.graphviz import available, graphviz_png
from icml25cli.papers.linkpred.pictures import draw
from icml25cli.papers.linkpred.subgraphs import Subgraphs, link_subgraphs

SIZE = 224
MANY, FEW = 1024, 48  # pictures by us, and by processes that take tens of milliseconds each
REPEATS = 3


def edges_of(arguments: list[str]) -> tuple[str, ndarray]:
    if arguments:
        with np.load(arguments[0], allow_pickle=False) as arrays:
            return arguments[0], arrays["edges"].astype(np.int64)
    graph = nx.powerlaw_cluster_graph(3000, 2, 0.5, seed=0)
    return "power-law cluster graph, 3000 nodes, made here", np.sort(np.array(graph.edges, np.int64), axis=1)


def by_matplotlib(graphs: Subgraphs, i: int) -> ndarray:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    graph = nx.Graph()
    graph.add_nodes_from(range(len(graphs.nodes_of(i))))
    graph.add_edges_from(graphs.edges_of(i).tolist())
    figure = Figure(figsize=(4, 4), dpi=96)
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    colours = ["brown" if node < graphs.targets else "white" for node in graph]
    nx.draw(graph, nx.spring_layout(graph, seed=0), ax=axis, node_shape="s", node_color=colours, edgecolors="black")
    png = io.BytesIO()
    figure.savefig(png, format="png")
    return np.asarray(Image.open(png).convert("RGB").resize((SIZE, SIZE)))


def best(task: Callable[[], object], pictures: int) -> tuple[float, float]:
    """Least wall seconds and least CPU seconds, of this process and its children, a picture."""
    wall = cpu = float("inf")
    for _ in range(REPEATS):
        before, start = sum(os.times()[:4]), time.perf_counter()
        task()
        wall = min(wall, (time.perf_counter() - start) / pictures)
        cpu = min(cpu, (sum(os.times()[:4]) - before) / pictures)
    return wall, cpu


def main() -> None:
    torch.set_num_threads(1)
    name, edges = edges_of(sys.argv[1:])
    n = int(edges.max()) + 1
    matrix = adjacency(edges, n)
    rng = np.random.default_rng(0)
    others = rng.integers(n, size=(MANY, 2))
    pairs = np.concatenate([edges[rng.permutation(len(edges))[: MANY // 2]], others[others[:, 0] != others[:, 1]]])[
        :MANY
    ]
    pairs = pairs[rng.permutation(len(pairs))]
    graphs, _ = canonical_graphs(link_subgraphs(matrix, pairs))
    few = graphs.take(np.arange(FEW))
    tasks: dict[str, tuple[int, Callable[[], object]]] = {
        "ours: cut out, order, lay out, paint": (
            len(pairs),
            lambda: draw(canonical_graphs(link_subgraphs(matrix, pairs))[0], SIZE),
        ),
        "ours: lay out, paint": (len(pairs), lambda: draw(graphs, SIZE)),
    }
    if available("sfdp"):
        peer = "sfdp -Tpng, a process a picture"
        tasks[peer] = (FEW, lambda: [graphviz_png(few, i, SIZE) for i in range(FEW)])
        tasks["sfdp -Tplain, a process for many, our paint"] = (
            256,
            lambda: draw(graphs.take(np.arange(256)), SIZE, "sfdp"),
        )
    else:
        peer = "networkx and matplotlib"
        tasks[peer] = (FEW, lambda: [by_matplotlib(few, i) for i in range(FEW)])
    for encoder_name in ("vsf-tiny", "efflite0"):
        try:
            encoder = load_encoder(encoder_name)
        except MissingError:
            continue
        drawn = draw(graphs.take(np.arange(256)), encoder.size)
        tasks[f"{encoder_name} looks, {encoder.size} pixels, {encoder.precision}"] = (
            256,
            lambda e=encoder, d=drawn: e(d),
        )
    for _, task in tasks.values():
        task()  # compiles, loads, fills caches
    load = os.getloadavg()[0]
    seconds = {label: best(task, count) for label, (count, task) in tasks.items()}

    sizes = np.diff(graphs.node_start)
    print(f"{cpu_model()}, 1 thread, load {load:.1f} before and {os.getloadavg()[0]:.1f} after")
    print(f"{name}; {len(graphs)} graphs of {sizes.mean():.1f} nodes in the mean, {sizes.max()} at most; {SIZE} pixels")
    for label, (wall, cpu) in seconds.items():
        print(f"{label:48} {1e3 * wall:9.3f} ms wall, {1e3 * cpu:9.3f} ms CPU a picture")
    for label in seconds:
        if label != peer and not label.partition(" ")[2].startswith("looks"):
            wall, cpu = (theirs / ours for theirs, ours in zip(seconds[peer], seconds[label], strict=True))
            print(f"{label} against {peer}: {wall:.1f}x by wall, {cpu:.1f}x by CPU")


if __name__ == "__main__":
    main()

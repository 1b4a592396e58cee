"""Speed of the heuristics on one thread against networkx, on 100,000 pairs of a sparse and of a dense graph.

    python tests/benchmarks/bench_linkpred.py

Both answer the same pairs in the same run and their scores are compared; times are CPU time, the best of several runs
that take turns. Target on a quiet core: 50 times networkx for the neighbourhoods.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy starts its pool

import platform
import time
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np

from icml25cli.papers.linkpred.graph import adjacency
from icml25cli.papers.linkpred.heuristics import score_pairs
from icml25cli.papers.linkpred.splits import sample_negatives

PAIRS = 100_000
REPEATS = 5
GRAPHS = {"sparse": (3000, 2, 0.5), "dense": (4000, 22, 0.5)}  # nodes, edges a new node brings, chance of a triangle
NEIGHBOURHOODS = {
    "jaccard": nx.jaccard_coefficient,
    "adamic_adar": nx.adamic_adar_index,
    "resource_allocation": nx.resource_allocation_index,
    "preferential_attachment": nx.preferential_attachment,
}


def cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def compare(graph: nx.Graph, methods: list[str]) -> tuple[float, float]:
    """Best seconds of ours, one call for all methods, and of networkx, one after another; equal scores are asserted."""
    matrix = adjacency(np.array(graph.edges, dtype=np.int64), len(graph))
    pairs = sample_negatives(len(graph), PAIRS, np.empty(0, np.int64), np.random.default_rng(0))
    listed = pairs.tolist()
    scores = score_pairs(matrix, pairs, methods)  # which also compiles
    for method in methods:
        expected = [value for *_, value in NEIGHBOURHOODS[method](graph, listed)]
        np.testing.assert_allclose(scores[method], expected, rtol=1e-12)
    ours, theirs = [], []
    for _ in range(REPEATS):
        ours.append(seconds(lambda: score_pairs(matrix, pairs, methods)))
        theirs.append(seconds(lambda: [sum(1 for _ in NEIGHBOURHOODS[method](graph, listed)) for method in methods]))
    return min(ours), min(theirs)


def main() -> None:
    print(f"{cpu_model()}, one thread, load {os.getloadavg()[0]:.1f}, networkx {nx.__version__}, {PAIRS:,} pairs")
    print(f"{'graph':8}{'heuristic':26}{'ours, ms':>10}{'networkx, ms':>14}{'times':>8}")
    for name, shape in GRAPHS.items():
        graph = nx.powerlaw_cluster_graph(*shape, seed=0)
        for methods in [*([method] for method in NEIGHBOURHOODS), list(NEIGHBOURHOODS)]:
            ours, theirs = compare(graph, methods)
            label = methods[0] if len(methods) == 1 else "all four"
            print(f"{name:8}{label:26}{1e3 * ours:10.2f}{1e3 * theirs:14.1f}{theirs / ours:8.0f}")


if __name__ == "__main__":
    main()

"""GVN, NCN and heuristics against PyTorch Geometric's GAE and a network in the manner of SEAL, on one split.

    python tests/benchmarks/bench_linkpred_peers.py [GRAPH] [--seed 0]

The peers come with the extra `peers`. GAE: two convolutions over node attributes, inner product, all training edges a
step. SEAL: what lies within a hop of each pair, nodes labelled by their distances from both ends (DRNL), four
convolutions, sorted pooling, one-dimensional convolutions; as many training pairs as --seal-pairs, as many negatives,
no attributes, as its authors have it where attributes do not help. Each stops at its best validation Hits@100, is
trained and judged on the pairs of our split, and is timed by the processor's clock on one thread.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch start their pools

import argparse
import copy
import sys
import time
from collections.abc import Callable, Iterable

import numpy as np
import torch
from bench_codec import cpu_model  # it sets one thread, too
from numpy import ndarray
from scipy import sparse
from torch import Tensor, nn

from icml25cli.papers.linkpred.encoders import load_encoder
from icml25cli.papers.linkpred.evaluation import judge_heuristics
from icml25cli.papers.linkpred.graph import Graph, adjacency, codes
from icml25cli.papers.linkpred.metrics import evaluate
from icml25cli.papers.linkpred.readers import read_graph
from icml25cli.papers.linkpred.splits import Split, make_split, sample_negatives
from icml25cli.papers.linkpred.study import Options, Study
from icml25cli.papers.linkpred.subgraphs import Subgraphs, link_subgraphs

FIGURES = ("hits_at_100", "auc", "mrr")
Score = Callable[[ndarray], ndarray]  # of pairs (b, 2)


def main(arguments: argparse.Namespace) -> None:
    graph = read_graph(arguments.graph)
    split = make_split(graph, seed=arguments.seed)
    print(f"{cpu_model()}, 1 thread, load {os.getloadavg()[0]:.1f} before")
    print(f"{graph.name}: {len(split.test.positives):,} test edges, as many negatives, seed {arguments.seed}\n")
    print(f"{'':24}" + "".join(f"{name:>14}" for name in FIGURES) + f"{'CPU s':>10}")
    study = Study(graph, split, load_encoder("vsf-tiny"), Options())
    for method in ("base", "vision-only", "gvn"):  # gvn reuses the two before it
        began = time.process_time()
        judged = study.scored(method)
        row("ours, " + method, evaluate(*judged.test).values, time.process_time() - began)
    for judged in judge_heuristics(graph, split, ("common_neighbors", "resource_allocation", "katz")):
        row(judged.method, judged.evaluation.values, judged.seconds)
    try:
        import torch_geometric
    except ImportError:
        sys.exit("torch-geometric is not installed: pip install 'icml25[peers]'")
    for name, peer in (("GAE", gae), ("SEAL-style", seal)):
        began = time.process_time()
        score = peer(graph, split, arguments)
        values = evaluate(score(split.test.positives), score(split.test.negatives)).values
        row(f"{name}, PyG {torch_geometric.__version__}", values, time.process_time() - began)
    print(f"\nload {os.getloadavg()[0]:.1f} after")


def row(name: str, values: dict[str, float], seconds: float) -> None:
    print(f"{name:24}" + "".join(f"{values[figure]:14.4f}" for figure in FIGURES) + f"{seconds:10.1f}", flush=True)


def best(
    model: nn.Module, step: Callable[[], None], score: Score, split: Split, *, epochs: int, every: int, patience: int
) -> None:
    """Train until validation Hits@100 has not risen for ``patience`` evaluations, and go back to its best."""
    top, kept, waited = -1.0, model.state_dict(), 0
    for epoch in range(1, epochs + 1):
        model.train()
        step()
        if epoch % every:
            continue
        found = evaluate(score(split.valid.positives), score(split.valid.negatives)).values["hits_at_100"]
        waited = 0 if found > top else waited + 1
        if found > top:
            top, kept = found, copy.deepcopy(model.state_dict())
        if waited == patience:
            break
    model.load_state_dict(kept)


def gae(graph: Graph, split: Split, arguments: argparse.Namespace) -> Score:
    from torch_geometric.nn import GAE, GCNConv

    torch.manual_seed(arguments.seed)
    if graph.features is None:
        x = torch.eye(graph.num_nodes)
    else:
        x = torch.from_numpy(sparse.csr_array(graph.features).toarray())
    edges = torch.from_numpy(split.train.T.copy())
    both = torch.cat([edges, edges.flip(0)], 1)

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(x.shape[1], 128), GCNConv(128, 64)

        def forward(self) -> Tensor:
            return self.second(self.first(x, both).relu(), both)

    model = GAE(Encoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rng, known = np.random.default_rng(arguments.seed), np.sort(codes(split.train, graph.num_nodes))

    def step() -> None:
        optimizer.zero_grad()
        negatives = sample_negatives(graph.num_nodes, len(split.train), known, rng)
        model.recon_loss(model.encode(), edges, torch.from_numpy(negatives.T.copy())).backward()
        optimizer.step()

    @torch.no_grad()
    def score(pairs: ndarray) -> ndarray:
        model.eval()
        return model.decode(model.encode(), torch.from_numpy(pairs.T.copy()), sigmoid=False).double().numpy()

    best(model, step, score, split, epochs=200, every=5, patience=8)
    return score


def seal(graph: Graph, split: Split, arguments: argparse.Namespace) -> Score:
    from torch_geometric.nn import GCNConv, SortAggregation

    torch.manual_seed(arguments.seed)
    rng, known = np.random.default_rng(arguments.seed), np.sort(codes(split.train, graph.num_nodes))
    matrix = adjacency(split.train, graph.num_nodes)
    most, width, held = 60, 32, 10

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.labels = nn.Embedding(most, width)
            self.layers = nn.ModuleList([*(GCNConv(width, width) for _ in range(3)), GCNConv(width, 1)])
            self.pool = SortAggregation(held)
            total = 3 * width + 1
            self.rows = nn.Conv1d(1, 16, total, total)
            self.across = nn.Conv1d(16, 32, 5)
            self.head = nn.Sequential(
                nn.Linear(32 * (held // 2 - 4), 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 1)
            )

        def forward(self, labels: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
            x, seen = self.labels(labels), []
            for layer in self.layers:
                x = layer(x, edges).tanh()
                seen.append(x)
            pooled = self.pool(torch.cat(seen, 1), batch)[:, None]
            x = nn.functional.max_pool1d(self.rows(pooled).relu(), 2)
            return self.head(self.across(x).relu().flatten(1))[:, 0]

    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def batches(pairs: ndarray, size: int = 128) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
        for first in range(0, len(pairs), size):
            yield drawn(link_subgraphs(matrix, pairs[first : first + size], hops=1, seed=0))

    def drawn(graphs: Subgraphs) -> tuple[Tensor, Tensor, Tensor]:
        labels = np.concatenate([drnl(*graph_of(graphs, i)) for i in range(len(graphs.node_start) - 1)])
        sizes = np.diff(graphs.node_start)
        shift = np.repeat(graphs.node_start[:-1], np.diff(graphs.edge_start))
        edges = torch.from_numpy((graphs.edges + shift[:, None]).T.astype(np.int64))
        return (
            torch.from_numpy(labels.clip(max=most - 1)),
            torch.cat([edges, edges.flip(0)], 1),
            torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)),
        )

    picked = split.train[rng.permutation(len(split.train))[: arguments.seal_pairs]]
    negatives = sample_negatives(graph.num_nodes, len(picked), known, rng)
    pairs = np.concatenate([picked, negatives])
    truth = torch.from_numpy((np.arange(len(pairs)) < len(picked)).astype(np.float32))

    def step() -> None:
        order = rng.permutation(len(pairs))
        for batch, place in zip(batches(pairs[order]), torch.from_numpy(order).split(128), strict=True):
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(*batch), truth[place]).backward()
            optimizer.step()

    @torch.no_grad()
    def score(pairs: ndarray) -> ndarray:
        model.eval()
        return torch.cat([model(*batch) for batch in batches(pairs)]).double().numpy()

    best(model, step, score, split, epochs=30, every=1, patience=6)
    return score


def graph_of(graphs: Subgraphs, i: int) -> tuple[int, ndarray]:
    return int(graphs.node_start[i + 1] - graphs.node_start[i]), graphs.edges[slice(*graphs.edge_start[i : i + 2])]


def drnl(n: int, edges: ndarray) -> ndarray:
    """Double-radius node labels (Zhang and Chen 2018) of nodes 0 to n - 1, the ends being 0 and 1."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    matrix = csr_array((np.ones(len(edges)), edges.T), shape=(n, n))
    kept = matrix + matrix.T
    distances = []
    for end, other in ((0, 1), (1, 0)):  # from each end with the other one away
        without = kept.tolil()
        without[other, :] = without[:, other] = 0
        distances.append(shortest_path(without.tocsr(), unweighted=True, indices=end))
    x, y = distances
    reached = np.isfinite(x + y)
    near, total = np.where(reached, np.minimum(x, y), 0), np.where(reached, x + y, 0)
    label = np.where(reached, 1 + near + (total // 2) * (total // 2 + total % 2 - 1), 0)
    label[:2] = 1
    return label.astype(np.int64)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", nargs="?", default="netscience")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seal-pairs", type=int, default=2000, help="training edges that SEAL is given, with as many others"
    )
    main(parser.parse_args())

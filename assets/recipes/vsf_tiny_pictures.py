"""What `vsf-tiny` is trained on: pictures of synthetic graphs, and what is to be read off them.

Used by train_vsf_tiny.py. Half of the pictures of pairs are cut out of whole graphs by nine generators, half are
neighbourhoods drawn by themselves, with any share of common neighbours and any density among and between them, so that
no kind of neighbourhood is unheard of. Graphs by four other generators are held out.
"""

import math
from collections.abc import Callable

import networkx as nx
import numpy as np
from jaxtyping import Float32, Int64, UInt8
from numpy import ndarray

from icml25cli.core.jit import compiled
from icml25cli.papers.linkpred.canonical import canonical_graphs
from icml25cli.papers.linkpred.graph import adjacency
from icml25cli.papers.linkpred.layout import spring_layout
from icml25cli.papers.linkpred.raster import paint
from icml25cli.papers.linkpred.subgraphs import MAX_NODES, Subgraphs, link_subgraphs, node_subgraphs
from icml25cli.papers.linkpred.vsf_tiny import SIZE

PARENTS = 64  # graphs a draw: of fewer, the last ones would sway the statistics of normalisation
COUNTS = (
    "nodes",
    "edges",
    "smaller_degree",
    "larger_degree",
    "triangles",
    "clustering",
    "common_neighbors",
    "adamic_adar",
    "resource_allocation",
    "jaccard",
)  # the last four are of pairs alone
OF_PAIRS = 6
LINEAR, ROOTS = (5, 9), (6, 7, 8)  # learnt as they are and as their roots, all others as log(1 + x)
DISTANCES = ("2", "3", "4 or more", "none")


# --- graphs ------------------------------------------------------------------------------------------------------


def erdos_renyi(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    return nx.fast_gnp_random_graph(n, min(1, degree / n), seed=int(rng.integers(2**31)))


def barabasi_albert(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    return nx.barabasi_albert_graph(n, max(1, round(degree / 2)), seed=int(rng.integers(2**31)))


def watts_strogatz(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    k = max(2, 2 * round(degree / 2))
    return nx.watts_strogatz_graph(n, k, rng.uniform(0, 0.5), seed=int(rng.integers(2**31)))


def stochastic_blocks(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    blocks = int(rng.integers(2, max(3, n // 12)))
    mixing = rng.uniform(0.02, 0.4)  # share of a node's edges that leave its block
    sizes = [n // blocks] * blocks
    within = min(0.95, degree * (1 - mixing) / sizes[0])
    between = min(0.5, degree * mixing / n)
    p = np.full((blocks, blocks), between) + np.eye(blocks) * (within - between)
    return nx.stochastic_block_model(sizes, p, seed=int(rng.integers(2**31)))


def planted_cliques(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    graph = erdos_renyi(n, degree / 2, rng)
    for _ in range(max(1, n // 40)):
        members = rng.choice(n, int(rng.integers(4, 25)), replace=False)
        graph.add_edges_from((u, v) for i, u in enumerate(members) for v in members[:i] if rng.random() < 0.9)
    return graph


def power_law_cluster(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    return nx.powerlaw_cluster_graph(n, max(1, round(degree / 2)), rng.uniform(0.3, 1), seed=int(rng.integers(2**31)))


def random_geometric(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    return nx.random_geometric_graph(n, math.sqrt(degree / (math.pi * n)), seed=int(rng.integers(2**31)))


def configuration(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    degrees = np.minimum((rng.pareto(1.5, n) + 1) * degree / 3, n / 4).astype(int) + 1
    degrees[0] += degrees.sum() % 2
    return nx.Graph(nx.configuration_model(degrees.tolist(), seed=int(rng.integers(2**31))))


def duplication_divergence(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    return nx.duplication_divergence_graph(n, rng.uniform(0.3, 0.6), seed=int(rng.integers(2**31)))


def caves(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    size = int(np.clip(degree, 3, 20))
    return nx.relaxed_caveman_graph(max(2, n // size), size, rng.uniform(0.05, 0.6), seed=int(rng.integers(2**31)))


def autonomous_systems(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    return nx.random_internet_as_graph(n, seed=int(rng.integers(2**31)))


def closed_wedges(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    """Preferential attachment, in which some neighbours of hubs are then linked."""
    graph = barabasi_albert(n, degree / 2, rng)
    neighbours = {v: list(graph[v]) for v in graph}
    for v in rng.choice(n, n):
        if len(neighbours[v]) > 1:
            graph.add_edge(*(int(w) for w in rng.choice(neighbours[v], 2, replace=False)))
    return graph


def sparse_trees(n: int, degree: float, rng: np.random.Generator) -> nx.Graph:
    graph = nx.random_labeled_tree(n, seed=int(rng.integers(2**31)))
    graph.add_edges_from(map(tuple, rng.integers(n, size=(n // 4, 2)).tolist()))
    return graph


Generator = Callable[[int, float, np.random.Generator], nx.Graph]
TRAINING: tuple[Generator, ...] = (
    erdos_renyi,
    barabasi_albert,
    watts_strogatz,
    stochastic_blocks,
    planted_cliques,
    caves,
    autonomous_systems,
    closed_wedges,
    sparse_trees,
)
OTHERS: tuple[Generator, ...] = (power_law_cluster, random_geometric, configuration, duplication_divergence)


def parent(generators: tuple[Generator, ...], rng: np.random.Generator) -> tuple[Int64[ndarray, "m 2"], int]:
    """Edges, smaller end first, and number of nodes of a graph of a hundred to a thousand nodes."""
    n, degree = int(10 ** rng.uniform(2, 3)), float(10 ** rng.uniform(0.3, 1.2))
    graph = generators[rng.integers(len(generators))](n, degree, rng)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    edges = np.array(graph.edges, np.int64).reshape(-1, 2)
    return np.sort(edges, axis=1), graph.number_of_nodes()


def pairs_of(edges: ndarray, n: int, count: int, rng: np.random.Generator) -> Int64[ndarray, "count 2"]:
    """Half edges, a quarter pairs that share a neighbour, a quarter any pairs."""
    matrix = adjacency(edges, n)
    linked = edges[rng.integers(len(edges), size=count // 2)]
    middle = edges[rng.integers(len(edges), size=count // 4), rng.integers(2, size=count // 4)]
    two = np.array([rng.choice(matrix.indices[matrix.indptr[w] : matrix.indptr[w + 1]], 2) for w in middle])
    pairs = np.concatenate([linked, two.reshape(-1, 2), rng.integers(n, size=(count, 2))])
    return pairs[pairs[:, 0] != pairs[:, 1]][:count]


def neighbourhoods(count: int, rng: np.random.Generator) -> Subgraphs:
    """What lies within a hop of pairs, drawn by itself: so many common neighbours, neighbours of one end and of the
    other, and edges with a probability for each two of these kinds, more likely at nodes that are more active."""
    nodes, edges = [], []
    for _ in range(count):
        n = int(10 ** rng.uniform(0, math.log10(MAX_NODES - 1))) - 1
        common = int(rng.binomial(n, rng.beta(0.7, 1.2))) if rng.random() < 0.65 else 0
        left = int(rng.binomial(n - common, rng.random()))
        kind = np.repeat([0, 1, 2], [common, left, n - common - left])
        density = np.where(rng.random((3, 3)) < 0.4, 0, 10 ** rng.uniform(-2, -0.05, (3, 3)))
        activity = np.exp(rng.uniform(0, 1) * rng.standard_normal(n))
        u, v = np.triu_indices(n, 1)
        low, high = np.minimum(kind[u], kind[v]), np.maximum(kind[u], kind[v])
        linked = rng.random(len(u)) < density[low, high] * activity[u] * activity[v]
        of_left, of_right = np.flatnonzero(kind != 2), np.flatnonzero(kind != 1)
        ends = [np.stack([np.full(len(x), end), x + 2], axis=1) for end, x in ((0, of_left), (1, of_right))]
        edges.append(np.concatenate([*ends, np.stack([u[linked], v[linked]], axis=1) + 2]).astype(np.int32))
        nodes.append(np.arange(n + 2, dtype=np.int32))
    starts = [np.concatenate([[0], np.cumsum([len(x) for x in parts])]).astype(np.int64) for parts in (nodes, edges)]
    return Subgraphs(starts[0], np.concatenate(nodes), starts[1], np.concatenate(edges), 2, np.zeros(count, np.bool_))


# --- pictures ----------------------------------------------------------------------------------------------------


def pictures(
    generators: tuple[Generator, ...], count: int, rng: np.random.Generator, *, pairs_only: bool = False
) -> tuple[UInt8[ndarray, "b s s"], Float32[ndarray, "b 11"]]:
    """Pictures of pairs, and unless ``pairs_only`` of nodes and of neighbourhoods drawn by themselves; and what is to
    be read off them: ``COUNTS`` as learnt, then the class of distance; NaN for what is of pairs alone."""
    drawn, known = [], []

    def add(graphs: Subgraphs) -> None:
        graphs, _ = canonical_graphs(graphs)
        drawn.append(paint(graphs, spring_layout(graphs), SIZE))
        known.append(counts(graphs))

    if not pairs_only:
        add(neighbourhoods(count * 45 // 100, rng))
    each = -(-count // PARENTS)
    while sum(map(len, drawn)) < count:
        edges, n = parent(generators, rng)
        if len(edges) < 8:
            continue
        matrix = adjacency(edges, n)
        seed = int(rng.integers(2**31))
        if pairs_only or rng.random() < 0.8:
            hops = 1 if pairs_only or rng.random() < 0.8 else 2
            add(link_subgraphs(matrix, pairs_of(edges, n, each, rng), hops=hops, seed=seed))
        else:
            hops = 1 if rng.random() < 0.3 else 2
            add(node_subgraphs(matrix, rng.integers(n, size=each), hops=hops, seed=seed))
    order = rng.permutation(sum(map(len, drawn)))[:count]
    return np.concatenate(drawn)[order], np.concatenate(known)[order]


def counts(graphs: Subgraphs) -> Float32[ndarray, "b 11"]:
    raw = _counts(graphs.node_start, graphs.edge_start, graphs.edges, graphs.targets)
    for i in range(len(COUNTS)):
        if i not in LINEAR:
            raw[:, i] = np.sqrt(raw[:, i]) if i in ROOTS else np.log1p(raw[:, i])
    return raw


@compiled
def _counts(node_start, edge_start, edges, targets):
    result = np.full((len(node_start) - 1, 11), np.nan, np.float32)
    for b in range(len(result)):
        n = node_start[b + 1] - node_start[b]
        near = np.zeros((n, n), np.bool_)
        for e in range(edge_start[b], edge_start[b + 1]):
            near[edges[e, 0], edges[e, 1]] = near[edges[e, 1], edges[e, 0]] = True
        degree = near.sum(axis=1)
        triangles, clustering = 0, 0.0
        for i in range(n):
            closed = 0
            around = np.flatnonzero(near[i])
            for a in range(len(around)):
                for c in range(a):
                    closed += near[around[a], around[c]]
            triangles += closed
            if degree[i] > 1:
                clustering += closed / (degree[i] * (degree[i] - 1) / 2) / n
        ends = (degree[0], degree[targets - 1])
        result[b, 0], result[b, 1] = n, edge_start[b + 1] - edge_start[b]
        result[b, 2], result[b, 3] = min(ends), max(ends)
        result[b, 4], result[b, 5] = triangles / 3, clustering
        if targets == 2:
            common, aa, ra = 0, 0.0, 0.0
            for w in range(2, n):
                if near[0, w] and near[1, w]:
                    common += 1
                    aa += 1 / np.log(degree[w])
                    ra += 1 / degree[w]
            result[b, 6], result[b, 7], result[b, 8] = common, aa, ra
            result[b, 9] = common / max(1, ends[0] + ends[1] - common)
            reached = near[0].copy()
            for length in range(2, 5):
                nearer = reached.copy()
                for i in np.flatnonzero(nearer):
                    reached |= near[i]
                if reached[1]:
                    result[b, 10] = length - 2
                    break
            if not reached[1]:
                while True:  # farther than four, or not at all
                    nearer = reached.copy()
                    for i in np.flatnonzero(nearer):
                        reached |= near[i]
                    if (nearer == reached).all():
                        break
                result[b, 10] = 2 if reached[1] else 3
    return result

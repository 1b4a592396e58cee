"""What is easily counted around a pair of nodes: the controls of what a picture of it tells beyond that.

Knows observed edges. Does not know models, nor what is done with the counts.
"""

import numpy as np
from jaxtyping import Float32, Int64
from numpy import ndarray

from icml25cli.papers.linkpred.heuristics import LOCAL, score_pairs
from icml25cli.papers.linkpred.pictures import Look
from icml25cli.papers.linkpred.propagation import Observed
from icml25cli.papers.linkpred.subgraphs import link_subgraphs


def degree_features(
    observed: Observed, pairs: Int64[ndarray, "b 2"]
) -> tuple[Float32[ndarray, "k 2"], Int64[ndarray, "b"]]:
    """log(1 + degree) of the smaller and the larger end of each pair, its own edge not counted; as table and kinds."""
    degrees = np.diff(observed.pattern.indptr)[pairs]
    own = observed.contains(pairs)
    kinds, place = np.unique(np.sort(degrees - own[:, None], axis=1), axis=0, return_inverse=True)
    return np.log1p(kinds).astype(np.float32), place.reshape(-1)


def count_features(observed: Observed, pairs: Int64[ndarray, "b 2"], look: Look) -> Float32[ndarray, "b 7"]:
    """log(1 + count) of what is easily counted on the picture of a pair: smaller and larger degree, common neighbours,
    Adamic-Adar, resource allocation, nodes, edges."""
    scores = score_pairs(observed.pattern, pairs, LOCAL)
    table, kind = degree_features(observed, pairs)
    sizes = [np.empty((0, 2))]
    for begin in range(0, len(pairs), 8192):
        chosen = pairs[begin : begin + 8192]
        graphs = link_subgraphs(observed.pattern, chosen, hops=look.hops, max_nodes=look.max_nodes, seed=look.seed)
        sizes.append(np.stack([np.diff(graphs.node_start), np.diff(graphs.edge_start)], axis=1))
    named = [scores[name] for name in ("common_neighbors", "adamic_adar", "resource_allocation")]
    counts = np.concatenate([np.stack(named, axis=1), np.concatenate(sizes)], axis=1)
    return np.concatenate([table[kind], np.log1p(counts)], axis=1).astype(np.float32)

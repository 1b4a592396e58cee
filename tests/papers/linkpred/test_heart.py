"""HeaRT's hard negatives: the ranking by pencil, and what is never among them."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from icml25cli.core.errors import InputError
from icml25cli.papers.linkpred.graph import adjacency, build_graph
from icml25cli.papers.linkpred.heart import _hardest, hard_negatives
from icml25cli.papers.linkpred.heuristics import score_pairs
from icml25cli.papers.linkpred.readers import read_graph
from icml25cli.papers.linkpred.splits import make_split


def chosen(scores, taken=(), count=1, seed=0):
    scores = np.array(scores, float)
    mask = np.zeros(scores.shape[1], bool)
    mask[list(taken)] = True
    return _hardest(scores, mask, count, np.random.default_rng(seed)).tolist()


def test_the_best_of_a_node_s_ranks_decides():
    # Ranks of the first heuristic: 3 1 2 (4 4), of the second: (3 3 3) 1 2; the best: 3 1 2 1 2.
    scores = [[1, 3, 2, 0, 0], [0, 0, 0, 9, 8]]
    assert {tuple(sorted(chosen(scores, count=2, seed=s))) for s in range(5)} == {(1, 3)}
    assert set(chosen(scores, count=4)) == {1, 2, 3, 4}


def test_equal_scores_share_the_worst_of_their_ranks():
    # 3 2 2 1 have the ranks 1 3 3 4: the second heuristic's rank 2 (node 4) goes before the tie.
    scores = [[3, 2, 2, 1, 0, 0], [0, 0, 0, 0, 5, 6]]
    assert set(chosen(scores, count=3)) == {0, 5, 4}


def test_taken_nodes_are_never_chosen_and_do_not_count_in_ranks():
    scores = [[9, 8, 1, 0, 0], [0, 0, 0, 5, 4]]
    # Without nodes 0 and 1, node 2 ranks first by the first heuristic.
    assert set(chosen(scores, taken=(0, 1), count=2)) == {2, 3}


def test_a_node_without_any_score_comes_after_all_that_have_one():
    # Node 3 ranks third of the second heuristic, or one below the only one of the first: where 4 and 5 would be, too.
    scores = [[9, 0, 0, 0, 0, 0], [0, 5, 4, 3, 0, 0]]
    assert all(set(chosen(scores, count=4, seed=seed)) == {0, 1, 2, 3} for seed in range(20))


def test_nodes_without_any_score_fill_up_uniformly():
    scores = [[0, 0, 1, 0, 0, 0]]
    found = [tuple(chosen(scores, taken=(5,), count=3, seed=seed)) for seed in range(200)]
    assert all(first == 2 for first, *_ in found)
    counts = np.bincount([node for _, *rest in found for node in rest], minlength=6)
    assert counts[2] == counts[5] == 0
    assert (np.abs(counts[[0, 1, 3, 4]] - 100) < 40).all()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_negatives_keep_one_end_and_are_no_known_edges(seed):
    graph = nx.gnm_random_graph(30, 90, seed=seed)
    edges = np.array(graph.edges, dtype=np.int64)
    known, asked = edges[:80], edges[80:]
    found = hard_negatives(adjacency(known, 30), asked, None, np.random.default_rng(seed), per_end=8)
    assert found.shape == (10, 16, 2)
    linked = set(map(tuple, known.tolist()))
    for (u, v), pairs in zip(asked.tolist(), found.tolist(), strict=True):
        assert all(u in pair for pair in pairs[:8])
        assert all(v in pair for pair in pairs[8:])
        for half in (pairs[:8], pairs[8:]):
            assert len(set(map(tuple, half))) == 8
        assert not linked & set(map(tuple, pairs))
        assert all(a < b for a, b in pairs)
        assert [u, v] not in pairs


def test_hard_negatives_are_harder_than_random_ones():
    edges = np.array(nx.powerlaw_cluster_graph(400, 4, 0.6, seed=1).edges, dtype=np.int64)
    easy = make_split(build_graph("clustered", [str(i) for i in range(400)], edges), "heart85")
    known = adjacency(np.concatenate([easy.train, easy.valid.positives]), 400)
    hard = hard_negatives(known, easy.test.positives, None, np.random.default_rng(0), per_end=20)
    for method in ("resource_allocation", "ppr"):
        of_easy = score_pairs(known, easy.test.negatives, [method])[method].mean()
        assert score_pairs(known, hard, [method])[method].mean() > 3 * of_easy


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_attributes_have_a_say(form):
    """Two far nodes of equal attributes are each other's hardest negative, though no walk of few steps joins them."""
    graph = nx.path_graph(40)
    x = np.zeros((40, 40), np.float32)
    x[np.arange(40), np.arange(40)] = 1
    x[35] = x[1]
    known = adjacency(np.array([edge for edge in graph.edges if edge != (1, 2)], dtype=np.int64), 40)
    found = hard_negatives(known, np.array([[1, 2]]), form(x), np.random.default_rng(0), per_end=2)
    assert [1, 35] in found[0].tolist()
    assert [1, 35] not in hard_negatives(known, np.array([[1, 2]]), None, np.random.default_rng(0), 1)[0].tolist()


def test_splits_of_a_small_graph_have_equally_many_negatives():
    graph = read_graph("karate")
    counts = {
        part.negatives.shape[1]
        for seed in range(6)
        for split in [make_split(graph, "heart", seed=seed)]
        for part in (split.valid, split.test)
    }
    assert counts == {2 * (34 - 1 - 17)}  # its largest degree is 17


def test_a_small_graph_has_fewer_and_a_full_node_none():
    star = np.array([*nx.star_graph(5).edges, (1, 2)], dtype=np.int64)
    found = hard_negatives(adjacency(star[1:], 6), star[-1:], None, np.random.default_rng(0))
    assert found.shape == (1, 6, 2)  # node 1 could have four other partners, node 2 has but three: 3, 4 and 5
    with pytest.raises(InputError, match="the nodes 0 and 1"):
        hard_negatives(adjacency(star, 6), np.array([[0, 1]]), None, np.random.default_rng(0))

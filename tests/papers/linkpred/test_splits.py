"""Splits: sizes, disjoint parts, negatives that tell nothing, moments kept whole, and files that bring them back."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icml25cli.core.errors import InputError, OutputError, UsageError
from icml25cli.papers.linkpred.graph import build_graph, codes, contains
from icml25cli.papers.linkpred.readers import read_graph
from icml25cli.papers.linkpred.splits import (
    make_split,
    read_split,
    sample_negatives,
    structured_negatives,
    write_split,
)

seeds = st.integers(0, 2**31 - 1)


def graph_of(n=60, m=200, seed=0, times=None):
    edges = np.array(nx.gnm_random_graph(n, m, seed=seed).edges, dtype=np.int64)
    return build_graph("random", [str(i) for i in range(n)], edges, times=times)


def as_set(pairs):
    return {tuple(sorted(pair)) for pair in pairs.reshape(-1, 2).tolist()}


@settings(max_examples=30, deadline=None)
@given(seed=seeds, protocol=st.sampled_from(["planetoid", "heart85"]), m=st.integers(20, 600))
def test_parts_are_disjoint_and_whole_and_negatives_are_no_edges(seed, protocol, m):
    graph = graph_of(m=m, seed=seed)
    split = make_split(graph, protocol, seed=seed)
    train, valid, test = map(as_set, (split.train, split.valid.positives, split.test.positives))
    assert len(train) + len(valid) + len(test) == m
    assert train | valid | test == as_set(graph.edges)
    shares = {"planetoid": (0.1, 0.2), "heart85": (0.05, 0.1)}[protocol]
    assert (len(valid), len(test)) == (int(shares[0] * m), int(shares[1] * m))
    for part, known in ((split.valid, train | valid), (split.test, train | valid | test)):
        negatives = as_set(part.negatives)
        assert len(negatives) == len(part.negatives) == len(part.positives)
        assert not negatives & known
        assert all(u != v for u, v in negatives)


def test_negatives_of_validation_do_not_avoid_test_edges():
    """All pairs but the edges are few here: negatives that never met a test edge would tell which pairs those are."""
    graph = graph_of(n=20, m=150)
    met = 0
    for seed in range(20):
        split = make_split(graph, seed=seed)
        met += len(as_set(split.valid.negatives) & as_set(split.test.positives))
    # 15 of 55 free pairs are drawn in each of 20 splits, 30 of the 55 are test edges.
    assert met == pytest.approx(20 * 15 * 30 / (190 - 120), rel=0.2)


def test_the_same_seed_is_the_same_split_and_another_is_another():
    graph = graph_of()
    ids = [make_split(graph, seed=seed).id for seed in (3, 3, 4)]
    assert ids[0] == ids[1] != ids[2]
    assert make_split(graph_of(seed=1), seed=3).id != ids[0]


def test_heart85_and_heart_share_positives():
    graph = read_graph("karate")
    easy, hard = make_split(graph, "heart85", seed=5), make_split(graph, "heart", seed=5)
    assert as_set(easy.test.positives) == as_set(hard.test.positives)
    assert as_set(easy.valid.positives) == as_set(hard.valid.positives)
    assert (easy.metric, hard.metric) == ("hits_at_100", "mrr")


@settings(max_examples=20, deadline=None)
@given(seed=seeds, share=st.floats(0.05, 0.95))
def test_hidden_edges_are_never_observed(seed, share):
    split = make_split(graph_of(), seed=seed, disjoint=share)
    assert len(split.supervised) == round(share * len(split.train))
    assert not as_set(split.observed) & as_set(split.supervised)
    assert as_set(split.observed) | as_set(split.supervised) == as_set(split.train)


def test_without_disjoint_every_training_edge_is_both():
    split = make_split(graph_of())
    assert as_set(split.observed) == as_set(split.supervised) == as_set(split.train)


@pytest.mark.parametrize("share", [1.0, -0.1, 0.0001])
def test_a_share_that_leaves_nothing_is_refused(share):
    with pytest.raises(InputError, match=f"--disjoint {share}"):
        make_split(graph_of(), disjoint=share)


@pytest.mark.parametrize(("protocol", "least"), [("planetoid", 10), ("heart85", 20), ("heart", 20)])
def test_too_few_edges_are_refused_with_the_number_needed(protocol, least):
    with pytest.raises(InputError, match=f"at least {least}"):
        make_split(graph_of(m=least - 1), protocol)
    split = make_split(graph_of(m=least), protocol)
    assert len(split.valid.positives) == 1


def test_a_graph_without_free_pairs_is_refused():
    edges = np.array(nx.complete_graph(8).edges, dtype=np.int64)
    with pytest.raises(InputError, match="pairs without an edge"):
        make_split(build_graph("complete", [str(i) for i in range(8)], edges))


@pytest.mark.parametrize("protocol", ["given", "ogb", "nonsense"])
def test_protocols_that_need_parts_are_not_made(protocol):
    with pytest.raises(UsageError):
        make_split(graph_of(), protocol)


# --- time


def moments_of(graph):
    return {tuple(edge): when for edge, when in zip(graph.edges.tolist(), graph.times.tolist(), strict=True)}


def test_the_newest_edges_are_foretold_from_the_oldest():
    times = np.random.default_rng(0).permutation(200).astype(float)
    graph = graph_of(times=times)
    split = make_split(graph, "time")
    place = moments_of(graph)
    oldest, middle, newest = (
        [place[tuple(edge)] for edge in edges.tolist()]
        for edges in (split.train, split.valid.positives, split.test.positives)
    )
    assert (len(oldest), len(middle), len(newest)) == (140, 20, 40)
    assert max(oldest) < min(middle) <= max(middle) < min(newest)


@settings(max_examples=40, deadline=None)
@given(moments=st.lists(st.integers(0, 9), min_size=200, max_size=200))
def test_edges_of_one_moment_stay_together(moments):
    graph = graph_of(times=np.array(moments, float))
    if len(set(moments)) < 3:
        with pytest.raises(InputError, match="needs at least 3"):
            make_split(graph, "time")
        return
    split = make_split(graph, "time")
    place = moments_of(graph)
    parts = [
        {place[tuple(edge)] for edge in edges.tolist()}
        for edges in (split.train, split.valid.positives, split.test.positives)
    ]
    assert all(parts)
    assert max(parts[0]) < min(parts[1])
    assert max(parts[1]) < min(parts[2])


def test_a_graph_without_times_is_refused():
    with pytest.raises(UsageError, match="needs a time"):
        make_split(graph_of(), "time")


# --- negatives


@settings(max_examples=30, deadline=None)
@given(seed=seeds, m=st.integers(0, 45), count=st.integers(0, 45))
def test_sampled_negatives_are_different_free_pairs_or_refused(seed, m, count):
    edges = np.array(nx.gnm_random_graph(10, m, seed=seed).edges, dtype=np.int64).reshape(-1, 2)
    known = np.sort(codes(edges, 10))
    rng = np.random.default_rng(seed)
    if count > 45 - m:
        with pytest.raises(InputError):
            sample_negatives(10, count, known, rng)
        return
    pairs = sample_negatives(10, count, known, rng)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert len(as_set(pairs)) == count
    assert not contains(known, codes(pairs, 10)).any()


@pytest.mark.parametrize("n", [12, 200])
def test_sampled_negatives_are_uniform(n):
    """By drawing (large and sparse) and by listing (small and dense), every node is in as many as every other."""
    counts = np.zeros(n)
    for seed in range(60):
        pairs = sample_negatives(n, 40, np.empty(0, np.int64), np.random.default_rng(seed))
        counts += np.bincount(pairs.ravel(), minlength=n)
    expected = 60 * 80 / n
    assert ((counts - expected) ** 2 / expected).sum() < n + 5 * np.sqrt(2 * n)  # chi-square, five deviations


@settings(max_examples=30, deadline=None)
@given(seed=seeds, m=st.integers(1, 60))
def test_structured_negatives_keep_an_end_and_avoid_known_edges(seed, m):
    edges = np.array(nx.gnm_random_graph(15, m, seed=seed).edges, dtype=np.int64)
    known = np.sort(codes(edges, 15))
    found = structured_negatives(edges, 15, known, np.random.default_rng(seed))
    assert not contains(known, codes(found, 15)).any()
    assert (found[:, 0] < found[:, 1]).all()
    assert all(set(a) & set(b) for a, b in zip(edges.tolist(), found.tolist(), strict=True))


def test_a_node_linked_to_all_others_gets_some_free_pair():
    edges = np.array(nx.star_graph(6).edges, dtype=np.int64)
    known = np.sort(codes(edges, 7))
    found = structured_negatives(edges, 7, known, np.random.default_rng(0))
    assert not contains(known, codes(found, 7)).any()


# --- files


@pytest.mark.parametrize("protocol", ["planetoid", "heart"])
def test_a_written_split_comes_back(tmp_path, protocol):
    graph = read_graph("lesmis")
    split = make_split(graph, protocol, seed=7, disjoint=0.3)
    write_split(tmp_path / "split.npz", split, graph.ids)
    back = read_split(tmp_path / "split.npz", graph)
    assert back.id == split.id
    assert (back.protocol, back.metric, back.seed, back.notes) == (protocol, split.metric, 7, split.notes)
    np.testing.assert_array_equal(back.observed, split.observed)
    with pytest.raises(OutputError, match="exists"):
        write_split(tmp_path / "split.npz", split)


def test_a_split_of_another_graph_is_refused(tmp_path):
    write_split(tmp_path / "split.npz", make_split(read_graph("lesmis")))
    with pytest.raises(InputError, match="another graph than karate"):
        read_split(tmp_path / "split.npz", read_graph("karate"))


def test_a_split_is_of_names_and_edges_whatever_times_the_graph_has(tmp_path):
    graph = read_graph("lesmis")
    split = make_split(replace(graph, times=np.arange(len(graph.edges), dtype=float)), "time")
    write_split(tmp_path / "split.npz", split)
    assert read_split(tmp_path / "split.npz", graph).id == split.id
    with pytest.raises(InputError, match="another graph"):
        read_split(tmp_path / "split.npz", replace(graph, edges=graph.edges[1:]))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"train": np.array([[0, 99]])}, "train does not hold pairs"),
        ({"test": np.ones((3, 2))}, "test does not hold pairs"),
        ({"valid_negatives": np.array([1, 2])}, "valid_negatives does not hold pairs"),
        ({"hidden": np.zeros(2, bool)}, "hidden"),
        ({"format": np.array("another")}, "no split of this toolbox"),
        ({"metric": None}, "'metric'"),
    ],
)
def test_a_damaged_split_is_refused(tmp_path, changed, said):
    graph = read_graph("karate")
    write_split(tmp_path / "split.npz", make_split(graph))
    arrays = dict(np.load(tmp_path / "split.npz")) | changed
    np.savez(tmp_path / "split.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(InputError, match=said):
        read_split(tmp_path / "split.npz", graph)

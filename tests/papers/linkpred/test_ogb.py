"""OGB's folders as they unpack, tensors or arrays inside, with its own parts and metric."""

import gzip

import numpy as np
import pytest
import torch

from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.linkpred.given import split_by
from icml25cli.papers.linkpred.readers import read_graph

TRAIN, VALID, TEST = [[0, 1], [1, 2], [2, 3], [0, 3]], [[3, 4], [0, 1]], [[4, 0]]


def write_ogb(root, form=np.array, *, own_negatives=False):
    (root / "raw").mkdir(parents=True)
    (root / "split" / "time").mkdir(parents=True)
    tables = {"num-node-list": "6\n", "edge": "0,1\n", "node-feat": "".join(f"{i},0.5\n" for i in range(6))}
    for name, text in tables.items():
        (root / "raw" / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    for part, pairs, negatives in (
        ("train", TRAIN, None),
        ("valid", VALID, [[0, 5], [1, 5]]),
        ("test", TEST, [[2, 5]]),
    ):
        if own_negatives:
            stored = {"source_node": form(np.array(pairs)[:, 0]), "target_node": form(np.array(pairs)[:, 1])}
            if negatives:
                stored["target_node_neg"] = form(np.full((len(pairs), 3), 5))
        else:
            stored = {"edge": form(np.array(pairs)), "year": form(np.arange(len(pairs)))}
            if negatives:
                stored["edge_neg"] = form(np.array(negatives))
        torch.save(stored, root / "split" / "time" / f"{part}.pt")
    return str(root)


@pytest.mark.parametrize("form", [np.array, torch.tensor])
def test_graph_attributes_years_parts_and_metric(tmp_path, form):
    source = write_ogb(tmp_path / "ogbl_collab", form)
    graph = read_graph(source)
    assert (graph.name, graph.num_nodes, len(graph.edges)) == ("collab", 6, 6)
    np.testing.assert_array_equal(graph.features, [[i, 0.5] for i in range(6)])
    assert graph.times is not None
    split = split_by(graph, "ogb", source=source)
    assert split.metric == "hits_at_50"
    assert sorted(split.train.tolist()) == sorted([[0, 1], [1, 2], [2, 3], [0, 3]])
    assert split.test.positives.tolist() == [[0, 4]]
    assert split.test.negatives.tolist() == [[2, 5]]
    assert split.notes == ("1 valid edges are train edges, too, in OGB's own split",)


def test_a_thousand_negatives_a_positive(tmp_path):
    source = write_ogb(tmp_path / "ogbl_citation2", own_negatives=True)
    split = split_by(read_graph(source), "ogb", source=source)
    assert split.metric == "mrr"
    assert split.valid.negatives.shape == (2, 3, 2)
    assert split.test.negatives.tolist() == [[[4, 5]] * 3]


def test_another_graph_has_no_such_parts():
    with pytest.raises(UsageError, match="folder of OGB's"):
        split_by(read_graph("karate"), "ogb", source="karate")


def test_a_torn_or_foreign_part_is_named(tmp_path):
    source = write_ogb(tmp_path / "ogbl_x")
    part = tmp_path / "ogbl_x" / "split" / "time" / "valid.pt"
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(InputError, match=r"valid\.pt"):
        read_graph(source)
    torch.save({"edge": np.array([[0, 77]])}, part)
    with pytest.raises(InputError, match="node 77 of 6"):
        read_graph(source)
    part.unlink()
    with pytest.raises(InputError, match=r"valid\.pt cannot be read"):
        read_graph(source)

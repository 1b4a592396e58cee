"""An audit finds every planted leak, in either direction, and nothing in a sound split."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from icml25cli.core.errors import InputError
from icml25cli.papers.linkpred.audit import audit
from icml25cli.papers.linkpred.given import given_split, split_by
from icml25cli.papers.linkpred.graph import build_graph
from icml25cli.papers.linkpred.parts import Parts, read_parts, write_parts
from icml25cli.papers.linkpred.readers import read_graph
from icml25cli.papers.linkpred.splits import make_split

SOUND = {
    "train": [[0, 1], [1, 2], [2, 3]],
    "valid": [[3, 4]],
    "test": [[4, 5]],
    "valid_negatives": [[0, 5]],
    "test_negatives": [[1, 5]],
}


def parts_of(**changed):
    pairs = {name: np.array(pairs) for name, pairs in (SOUND | changed).items()}
    return Parts(tuple("abcdef"), pairs)


def brief(findings):
    return [(f.kind, f.part, f.other, f.count, f.reversed) for f in findings if f.leak]


def test_a_sound_split_has_no_findings():
    assert audit(parts_of()) == ()


@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        ({"test": [[4, 5], [1, 2]]}, ("edges of two parts", "test", "train", 1, 0)),
        ({"test": [[4, 5], [2, 1]]}, ("edges of two parts", "test", "train", 1, 1)),
        ({"valid": [[3, 2]]}, ("edges of two parts", "valid", "train", 1, 1)),
        ({"test": [[4, 3]]}, ("edges of two parts", "test", "valid", 1, 1)),
        ({"test_negatives": [[1, 5], [1, 0]]}, ("negatives that are edges", "test_negatives", "train", 1, 1)),
        ({"test_negatives": [[3, 4]]}, ("negatives that are edges", "test_negatives", "valid", 1, 0)),
        ({"test_negatives": [[5, 4]]}, ("negatives that are edges", "test_negatives", "test", 1, 1)),
        ({"valid_negatives": [[2, 3]]}, ("negatives that are edges", "valid_negatives", "train", 1, 0)),
        ({"valid_negatives": [[3, 4]]}, ("negatives that are edges", "valid_negatives", "valid", 1, 0)),
    ],
)
def test_a_planted_leak_is_found_and_nothing_else(planted, expected):
    assert brief(audit(parts_of(**planted))) == [expected]


def test_examples_are_in_the_users_words_and_direction():
    (finding,) = audit(parts_of(test=[[4, 5], [2, 1]]))
    assert finding.examples == (("c", "b"),)


def test_a_validation_negative_that_is_a_test_edge_is_no_leak():
    (finding,) = audit(parts_of(valid_negatives=[[4, 5]]))
    assert (finding.leak, finding.part, finding.other) == (False, "valid_negatives", "test")


def test_what_a_part_has_in_itself_is_found_and_is_no_leak():
    findings = audit(parts_of(train=[[0, 1], [1, 0], [1, 2], [1, 2], [3, 3]]))
    assert [(f.kind, f.count, f.leak) for f in findings] == [
        ("self loops", 1, False),
        ("repeated pairs", 2, False),
        ("pairs in both directions", 1, False),
    ]


def test_negatives_of_each_positives_own():
    own = parts_of(test=[[4, 5], [0, 5]], test_negatives=[[[0, 4], [0, 5]], [[5, 0], [1, 4]]])
    leaks = [f for f in audit(own) if f.leak]
    assert [(f.kind, f.examples) for f in leaks] == [("negatives of a positive that are itself", (("f", "a"),))]


def test_the_graph_that_a_model_observes():
    observed = build_graph("o", list("fedcba"), np.array([[0, 1], [1, 2], [4, 5]]))  # f-e, e-d, b-a
    found = [(f.part, f.other, f.leak, f.examples) for f in audit(parts_of(), observed)]
    assert found == [("test", "observed", True, (("e", "f"),)), ("valid", "observed", False, (("d", "e"),))]


def test_an_observed_graph_of_other_names_is_refused():
    other = build_graph("o", ["x", "y"], np.array([[0, 1]]))
    with pytest.raises(InputError, match="no edge of o is between nodes of the split"):
        audit(parts_of(), other)


@pytest.mark.parametrize("protocol", ["planetoid", "heart85", "heart"])
def test_our_own_splits_have_no_leak(tmp_path, protocol):
    graph = read_graph("lesmis")
    write_parts(tmp_path, graph, make_split(graph, protocol, seed=1))
    assert not [f for f in audit(read_parts(tmp_path)) if f.leak]


# --- reading parts, and splits of them


def test_a_written_folder_is_read_with_names_either_way(tmp_path):
    graph = read_graph("lesmis")
    split = make_split(graph, seed=2)
    names = write_parts(tmp_path, graph, split)
    assert names == ["split.npz", "train.csv", "valid.csv", "test.csv", "valid_neg.csv", "test_neg.csv"]
    arrays = read_parts(tmp_path)
    (tmp_path / "split.npz").unlink()
    texts = read_parts(tmp_path)

    def named(parts):
        return {part: [(parts.ids[u], parts.ids[v]) for u, v in pairs.tolist()] for part, pairs in parts.pairs.items()}

    assert named(arrays) == named(texts)
    again = given_split(graph, texts)
    np.testing.assert_array_equal(np.sort(again.train, axis=0), np.sort(split.train, axis=0))
    np.testing.assert_array_equal(again.test.negatives, split.test.negatives)


def test_a_split_of_ours_is_given_back_as_it_was(tmp_path):
    graph = read_graph("lesmis")
    split = make_split(graph, "heart", seed=2, disjoint=0.5)
    write_parts(tmp_path, graph, split)
    for path in (tmp_path, tmp_path / "split.npz"):
        assert split_by(graph, "given", parts=path).id == split.id


def test_other_names_of_files_and_missing_negatives(tmp_path):
    (tmp_path / "train_pos.txt").write_text("0 1\n1 2\n2 3\n3 0\n0 4\n1 5\n")
    (tmp_path / "val.tsv").write_text("4\t1\n")
    (tmp_path / "test_edges.csv").write_text("source,target\n5,0\n0,5\n")
    graph = build_graph("g", list("012345"), np.array([[0, 1], [1, 2], [2, 3], [0, 3], [0, 4], [1, 5], [1, 4], [2, 5]]))
    split = given_split(graph, read_parts(tmp_path))
    assert split.test.positives.tolist() == [[0, 5]]
    assert split.valid.positives.tolist() == [[1, 4]]
    assert len(split.test.negatives) == 1
    assert split.notes == ("1 edges of g are in no part and not used",)


def test_own_negatives_follow_their_positive(tmp_path):
    graph = build_graph("g", list("012345"), np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]))
    own = np.array([[[5, 0]], [[1, 5]], [[5, 0]], [[3, 0]]])
    np.savez(
        tmp_path / "s.npz",
        train=np.array([[0, 1]]),
        valid=np.array([[1, 2]]),
        test=np.array([[5, 4], [3, 2], [4, 5], [3, 4]]),
        test_negatives=own,
    )
    split = split_by(graph, "given", parts=tmp_path / "s.npz")
    found = dict(zip(map(tuple, split.test.positives.tolist()), split.test.negatives[:, 0].tolist(), strict=True))
    assert found == {(4, 5): [0, 5], (2, 3): [1, 5], (3, 4): [0, 3]}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"test": [[4, 5], [1, 0]]}, "1 test edges are train edges"),
        ({"valid": np.empty((0, 2), int)}, "no valid edges"),
        ({"test": [[4, 4]]}, "no test edges"),
        ({"test_negatives": np.zeros((3, 2, 2), int)}, "3 rows of negatives for 1"),
    ],
)
def test_parts_that_do_not_do_are_refused(changed, said):
    graph = build_graph("g", list("abcdef"), np.array([[0, 1], [4, 5]]))
    with pytest.raises(InputError, match=said):
        given_split(graph, parts_of(**changed))


def test_a_node_that_the_graph_lacks_is_named():
    graph = build_graph("g", list("abcde"), np.array([[0, 1]]))
    with pytest.raises(InputError, match="the first is f"):
        given_split(graph, parts_of())


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"train.csv": "a,b\n"}, "holds no test"),
        ({"test.csv": "a,b\n"}, "holds no train"),
        ({"train.csv": "a,b\n", "train.tsv": "a\tb\n", "test.csv": "a,c\n"}, "keep one|train.csv and train.tsv"),
        ({}, "holds no train"),
    ],
)
def test_folders_that_are_no_split_are_refused(tmp_path, files, said):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        read_parts(tmp_path)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"test": np.zeros((1, 3, 2), int)}, "test holds no pairs"),
        ({"train": np.array([[0, 2**64 - 1]], np.uint64)}, "train holds no pairs"),
        ({"test": np.empty((0, 2), int)}, "holds no test pairs"),
        ({"test_negatives": np.zeros((5, 3, 2), int)}, "test has 5 rows of negatives for 1 edges"),
    ],
)
def test_arrays_that_are_no_parts_are_refused(tmp_path, changed, said):
    arrays = {name: np.asarray(pairs) for name, pairs in (SOUND | changed).items()}
    np.savez(tmp_path / "s.npz", allow_pickle=False, **arrays)
    with pytest.raises(InputError, match=said):
        read_parts(tmp_path / "s.npz")


def test_numbers_of_nodes_may_be_as_large_as_they_like(tmp_path):
    np.savez(tmp_path / "s.npz", train=np.array([[5, 2**62]]), test=np.array([[2**62, 5]]))
    (finding,) = audit(read_parts(tmp_path / "s.npz"))
    assert (finding.leak, finding.reversed, finding.examples) == (True, 1, ((str(2**62), "5"),))


def test_lists_that_differ_from_the_split_beside_them_are_refused(tmp_path):
    graph = read_graph("lesmis")
    write_parts(tmp_path, graph, make_split(graph))
    lines = (tmp_path / "train.csv").read_text().splitlines(keepends=True)
    (tmp_path / "train.csv").write_text("".join(lines[:1] + lines[:0:-1]))  # another order is no difference
    split_by(graph, "given", parts=tmp_path)
    (tmp_path / "train.csv").write_text("".join(lines[:-1]))
    for read in (lambda: read_parts(tmp_path), lambda: split_by(graph, "given", parts=tmp_path)):
        with pytest.raises(InputError, match=r"the train of split\.npz and of its list of edges differ"):
            read()


def test_times_that_no_protocol_uses_are_warned_of():
    graph = read_graph("lesmis")
    timed = replace(graph, times=np.arange(len(graph.edges), dtype=float))
    with pytest.warns(UserWarning, match="times are read and not used"):
        split_by(timed, "planetoid")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split_by(timed, "time")
        split_by(graph, "planetoid")

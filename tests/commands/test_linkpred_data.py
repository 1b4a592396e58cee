"""`icml25 linkpred`: verbs on graphs and splits as a user meets them."""

import gzip
import json

import networkx as nx
import numpy as np
import pytest

EDGES = "".join(f"person {u},person {v},{2000 + i}\n" for i, (u, v) in enumerate(nx.karate_club_graph().edges))


def test_heuristics_of_a_known_graph(icml25):
    done = icml25("linkpred", "heuristics", "lesmis", "--runs", "2", "--json")
    assert done.code == 0, done.err
    rows = done.json["rows"]
    assert {row["method"] for row in rows} >= {"common_neighbors", "adamic_adar", "katz", "ppr", "shortest_path"}
    for row in rows:
        assert row["negatives"] == 50
        assert {"hits_at_100", "auc", "auc_sd", "mrr", "ap", "seconds"} <= row.keys()
    best = {row["method"]: row["auc"] for row in rows}
    assert best["adamic_adar"] > 0.85 > 0.75 > best["preferential_attachment"] - 0.1
    assert "feature_cosine" not in best
    assert any("only 50 negatives" in warning for warning in done.json["warnings"])
    assert any("Hits@100 is 1 for every method" in note for note in done.json["notes"])


def test_the_same_seed_gives_the_same_figures(icml25):
    runs = [icml25("linkpred", "heuristics", "karate", "--seed", seed, "--json").json["rows"] for seed in (1, 1, 2)]
    figures = [{row["method"]: {k: v for k, v in row.items() if k != "seconds"} for row in rows} for rows in runs]
    assert figures[0] == figures[1] != figures[2]


def test_a_table_for_a_person(icml25):
    done = icml25("linkpred", "heuristics", "karate", "--method", "jaccard", "--runs", "1")
    assert done.code == 0
    assert "jaccard" in done.out
    assert "katz" not in done.out
    done = icml25("linkpred", "heuristics", "karate", "--method", "jaccard, ppr", "--method", "katz", "--json")
    assert {row["method"] for row in done.json["rows"]} == {"jaccard", "ppr", "katz"}


def test_edges_through_a_pipe_gzipped_or_not(icml25, tmp_path):
    plain = icml25("linkpred", "split", "-", "--json", input=EDGES)
    assert plain.code == 0, plain.err
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(EDGES.encode()))
    packed = icml25("linkpred", "split", "e.csv.gz", "--json")
    assert plain.json["answer"]["split"] == packed.json["answer"]["split"]
    assert [row["edges"] for row in plain.json["rows"]] == [56, 7, 15]


def test_split_writes_what_audit_and_given_read(icml25, tmp_path):
    (tmp_path / "e.csv").write_text(EDGES)
    made = icml25("linkpred", "split", "e.csv", "--time", "3", "--protocol", "time", "-o", "s", "--json")
    assert made.code == 0, made.err
    assert icml25("linkpred", "audit", "s").code == 0
    assert "person " in (tmp_path / "s" / "test.csv").read_text()
    again = icml25("linkpred", "split", "e.csv", "--time", "3", "--protocol", "given", "--parts", "s", "--json")
    assert again.json["answer"]["split"] == made.json["answer"]["split"]
    assert icml25("linkpred", "split", "e.csv", "-o", "s").code == 74
    assert icml25("linkpred", "split", "e.csv", "-o", "s", "--force").code == 0


def test_a_planted_leak_exits_1_and_is_shown(icml25, tmp_path):
    icml25("linkpred", "split", "lesmis", "-o", "s")
    (tmp_path / "s" / "split.npz").unlink()
    source, target = (tmp_path / "s" / "train.csv").read_text().splitlines()[1].split(",")
    with (tmp_path / "s" / "test.csv").open("a") as file:
        file.write(f"{target},{source}\n")
    done = icml25("linkpred", "audit", "s", "--json")
    assert done.code == 1
    assert done.json["answer"]["status"] == "leak found"
    leak = done.json["rows"][0]
    assert (leak["part"], leak["other"], leak["count"], leak["reversed"], leak["leak"]) == ("test", "train", 1, 1, True)
    assert leak["examples"] == [f"{target}–{source}"]
    assert "leak: edges of two parts, 1 of test in train" in done.err


def test_test_edges_in_the_observed_graph_are_a_leak(icml25, tmp_path):
    (tmp_path / "e.csv").write_text(EDGES)
    icml25("linkpred", "split", "e.csv", "-o", "s")
    done = icml25("linkpred", "audit", "s", "--observed", "e.csv", "--json")
    assert done.code == 1
    assert {row["part"]: row["count"] for row in done.json["rows"]} == {"test": 15, "valid": 7}


def test_what_is_not_there_is_not_checked_and_said(icml25, tmp_path):
    icml25("linkpred", "split", "lesmis", "-o", "s")
    assert icml25("linkpred", "audit", "s", "--json").json["warnings"] == []
    for name in ("split.npz", "valid.csv", "test_neg.csv"):
        (tmp_path / "s" / name).unlink()
    done = icml25("linkpred", "audit", "s", "--json")
    assert done.code == 0, done.err
    assert done.json["warnings"] == ["not there, and so not checked: valid, test negatives"]


def test_hard_negatives_of_several_splits_have_one_row(icml25):
    done = icml25("linkpred", "heuristics", "karate", "--protocol", "heart", "--method", "jaccard", "--json")
    assert done.code == 0, done.err
    assert [row["negatives"] for row in done.json["rows"]] == [32]


def test_hard_negatives_of_each_edge(icml25):
    done = icml25("linkpred", "split", "lesmis", "--protocol", "heart", "--json")
    assert done.code == 0, done.err
    assert done.json["params"]["metric"] == "mrr"
    rows = icml25("linkpred", "heuristics", "lesmis", "--protocol", "heart", "--runs", "1", "--json").json["rows"]
    easy = icml25("linkpred", "heuristics", "lesmis", "--protocol", "heart85", "--runs", "1", "--json").json["rows"]
    auc = [{row["method"]: row["auc"] for row in part}["resource_allocation"] for part in (rows, easy)]
    assert auc[0] < auc[1]


def test_attributes_get_their_heuristic(icml25, tmp_path):
    (tmp_path / "e.txt").write_text("".join(f"{u} {v}\n" for u, v in nx.karate_club_graph().edges))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((34, 4)))
    done = icml25("linkpred", "heuristics", "e.txt", "--features", "x.npy", "--method", "feature_cosine", "--json")
    assert done.code == 0, done.err
    assert [row["method"] for row in done.json["rows"]] == ["feature_cosine"]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("heuristics", "gone.csv"), 3, "gone.csv is no file"),
        (("heuristics", "e.csv", "--src", "nope"), 2, "--src nope"),
        (("heuristics", "e.csv", "--protocol", "time"), 2, "needs a time"),
        (("split", "e.csv", "--protocol", "time"), 2, "needs a time"),
        (("heuristics", "table.csv"), 3, "no list of edges by its header"),
        (("heuristics", "e.csv", "--method", "jaccard,jacard"), 2, "no heuristic is called 'jacard'"),
        (("heuristics", "e.csv", "--method", "feature_cosine"), 2, "feature_cosine needs attributes"),
        (("heuristics", "e.csv", "--runs", "1001"), 2, "--runs"),
        (("audit", "e.csv"), 3, "e.csv is not a whole .npy or .npz file"),
        (("heuristics", "e.csv", "--protocol", "given"), 2, "--parts"),
        (("heuristics", "e.csv", "--parts", "s"), 2, "makes its own parts"),
        (("heuristics", "e.csv", "--protocol", "ogb"), 2, "OGB"),
        (("split", "florentine", "--protocol", "heart85", "--disjoint", "0.01"), 3, "--disjoint 0.01"),
        (("split", "pair.csv"), 3, "at least 10"),
        (("split", "empty.csv"), 3, "is empty"),
        (("audit", "gone"), 3, "gone"),
        (("heuristics", "netscience"), 4, "icml25 assets fetch netscience"),
        (("heuristics", "trap.pkl"), 3, "never loaded"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(icml25, tmp_path, args, code, said):
    (tmp_path / "e.csv").write_text(EDGES)
    (tmp_path / "pair.csv").write_text("a,b\n")
    (tmp_path / "table.csv").write_text("customer,age,town\n1,31,Ulm\n2,45,Bonn\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "trap.pkl").write_bytes(b"cos\nsystem\n(S'touch sprung'\ntR.")
    done = icml25("linkpred", *args, "--json")
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "sprung").exists()


def test_ids_from_outside_are_printed_as_plain_text(icml25, tmp_path):
    rows = "".join(f'"[red]n{i}\x1b[31m","[/red]n{i + 1}"\n' for i in range(12))
    (tmp_path / "train.csv").write_text(rows)
    (tmp_path / "test.csv").write_text(rows[: rows.index("\n") + 1])
    done = icml25("linkpred", "audit", ".")
    assert done.code == 1
    assert "\x1b" not in done.out
    assert "[red]n0" in done.out


def test_a_report_is_valid_json_and_its_notes_tell_what_was_merged(icml25, tmp_path):
    (tmp_path / "e.csv").write_text(EDGES + EDGES.splitlines()[0] + "\nperson 0,person 0,2000\n")
    done = icml25("linkpred", "split", "e.csv", "--json")
    document = json.loads(done.out)
    assert document["notes"] == ["1 self loop dropped", "1 repeated edge merged"]

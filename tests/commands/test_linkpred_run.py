"""`icml25 linkpred`: the main job and the verbs on its model, as a user runs them."""

import csv
import io
import json

import pytest
from PIL import Image

QUICK = ("--ve", "random", "--runs", "1", "--epochs", "2", "--base", "gcn", "--hidden", "8")


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """Friends by name: two circles of eight and a bridge; one name with a comma and brackets."""
    file = tmp_path_factory.mktemp("edges") / "friends.csv"
    names = ["Ada [red]", *(f"p{i}" for i in range(1, 16))]
    lines = ["from,to"]
    for group in (names[:8], names[8:]):
        lines += [f"{u},{v}" for i, u in enumerate(group) for v in group[:i] if (len(u) + len(v) + i) % 3]
    file.write_text("\n".join([*lines, "p7,p8"]) + "\n")
    return file


@pytest.fixture
def model(icml25, edges, tmp_path):
    done = icml25("linkpred", edges, *QUICK, "--baseline", "base", "-o", "model", "-q")
    assert done.code == 0, done.err
    return tmp_path / "model"


def records(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_karate_needs_no_network_and_answers_with_method_controls_and_heuristics(icml25):
    done = icml25("linkpred", "karate", *QUICK, "--json")
    assert done.code == 0, done.err
    rows = done.json["rows"]
    named = [row["method"] for row in rows]
    assert named[:7] == ["gvn", "base", "base+degree", "e-gvn", "vision-only", "counts-only", "placebo"]
    assert "adamic_adar" in named
    for row in rows:
        assert {"method", "hits_at_100", "auc", "mrr", "negatives", "seconds"} <= row.keys()
        assert 0 <= row["auc"] <= 1
    assert done.json["params"]["attention"] == "sigmoid"
    assert done.json["metrics"]["auc"] == rows[0]["auc"]
    assert any("15 negatives" in note for note in done.json["notes"])
    assert any("Hits@100 is 1 for every method" in note for note in done.json["notes"])
    assert any("base_weight and vision_weight are what" in note for note in done.json["notes"])
    better = [f"{row['method']} {row['auc']:.3f}" for row in rows[1:] if row["auc"] > rows[0]["auc"]]
    told = [note for note in done.json["notes"] if note.startswith(f"Better in AUC than gvn ({rows[0]['auc']:.3f}): ")]
    assert [note.partition(": ")[2] for note in told] == ([", ".join(better) + "."] if better else [])


def test_two_runs_give_means_with_deviations(icml25):
    args = ("--base", "gcn", "--hidden", "8", "--epochs", "2", "--ve", "random", "--runs", "2", "--method", "base")
    done = icml25("linkpred", "karate", *args, "--baseline", "none", "--json")
    assert done.code == 0, done.err
    (row,) = done.json["rows"]
    assert row["auc_sd"] >= 0
    assert row["seconds_sd"] >= 0


def test_the_same_command_gives_the_same_figures_and_continues(icml25):
    first, again = (icml25("linkpred", "lesmis", *QUICK, "--baseline", "base", "--json") for _ in range(2))
    resumed = icml25("linkpred", "lesmis", *QUICK, "--baseline", "base", "--json", "--resume")
    fresh = icml25("linkpred", "lesmis", *QUICK, "--baseline", "base", "--json", "--fresh")
    for other in (again, resumed, fresh):
        assert other.code == 0, other.err
        for mine, theirs in zip(first.json["rows"], other.json["rows"], strict=True):
            assert {k: v for k, v in mine.items() if k != "seconds"} == {
                k: v for k, v in theirs.items() if k != "seconds"
            }


def test_what_is_written_scores_recommends_and_shows(icml25, model, edges):
    names = {path.name for path in model.iterdir()}
    assert {"config.json", "model.safetensors", "graph.npz", "split.npz", "vision.npz", "metrics.json"} <= names
    assert json.loads((model / "report.json").read_text())["command"] == "linkpred"
    assert Image.open(model / "sheet.png").size[0] > 300
    assert "<svg" in (model / "roc.svg").read_text()

    done = icml25("linkpred", "score", model, "--pairs", "-", input='src,dst\np3,"Ada [red]"\np9,p2\n')
    assert done.code == 0, done.err
    rows = records(done.out)
    assert [(row["src"], row["dst"]) for row in rows] == [("p3", "Ada [red]"), ("p9", "p2")]
    assert all(0 < float(row["prob"]) < 1 for row in rows)
    assert "gvn" in done.err

    top = icml25("linkpred", "recommend", model, "--top", "3", "--format", "jsonl")
    assert top.code == 0, top.err
    best = [json.loads(line) for line in top.out.splitlines()]
    assert len(best) == 3
    assert best[0]["score"] >= best[1]["score"] >= best[2]["score"]
    there = {tuple(sorted(line.split(","))) for line in edges.read_text().splitlines()}
    assert not {tuple(sorted((row["src"], row["dst"]))) for row in best} & there

    one = icml25("linkpred", "recommend", model, "--node", "Ada [red]", "--json")
    assert one.code == 0, one.err
    assert one.json["rows"]
    assert all("Ada [red]" in (row["src"], row["dst"]) for row in one.json["rows"])

    audited = icml25("linkpred", "audit", model)
    assert audited.code == 0, audited.out + audited.err


def test_records_go_to_a_file_and_the_report_beside_them(icml25, model, tmp_path):
    done = icml25("linkpred", "recommend", model, "--top", "2", "-o", tmp_path / "best.csv")
    assert (done.code, done.out) == (0, "")
    assert len(records((tmp_path / "best.csv").read_text())) == 2
    assert "best.csv" in done.err
    again = icml25("linkpred", "recommend", model, "--top", "2", "-o", tmp_path / "best.csv")
    assert again.code == 74
    assert "--force" in again.err


def test_pictures_of_pairs_and_nodes_are_files(icml25, tmp_path):
    done = icml25("linkpred", "render", "karate", "--pair", "0,33", "--node", "5", "--size", "64", "-o", "drawn")
    assert done.code == 0, done.err
    files = sorted((tmp_path / "drawn").glob("*.png"))
    assert [file.name for file in files] == ["000-0-33.png", "001-5.png"]
    picture = Image.open(files[0])
    assert picture.size == (64, 64)
    assert (165, 42, 42) in {colour for _, colour in picture.convert("RGB").getcolors(4096) or []}


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("score", "nowhere", "--pairs", "-"), 3, "is no model"),
        (("render", "karate", "--pair", "0", "-o", "x"), 3, "is no pair"),
        (("render", "karate", "--node", "Zoe", "-o", "x"), 3, "'Zoe' is no node of karate"),
        (("render", "karate"), 2, "-o DIRECTORY"),
        (("karate", "--ve", "efflite0"), 4, "icml25 assets fetch efficientnet-lite0"),
        (("karate", "--ve", "resnet50"), 4, "--ve-weights"),
        (("karate", "--ve-weights", "x.pth"), 2, "vsf-tiny"),
        (("karate", "--ve", "random", "--image-size", "64"), 2, "96 pixels"),
        (("karate", "--plot", "roc.gif"), 2, "roc.gif"),
        (("karate", "--resume", "--ve", "random", "--seed", "77"), 3, "no run to resume"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_said_in_a_sentence(icml25, args, code, words):
    done = icml25("linkpred", *args)
    assert done.code == code, done.err
    assert done.out == ""
    assert words in done.err
    assert "Traceback" not in done.err


def test_pairs_that_the_model_does_not_know_are_named(icml25, model):
    unknown = icml25("linkpred", "score", model, "--pairs", "-", input="p1,p2\np1,Nobody\n")
    assert unknown.code == 3
    assert "pair 2: 'Nobody' is no node of" in unknown.err
    own = icml25("linkpred", "score", model, "--pairs", "-", input="p1,p2\np3,p3\n")
    assert own.code == 3
    assert "with itself" in own.err


def test_one_pair_has_one_score_and_a_strange_first_pair_may_be_a_header(icml25, model):
    done = icml25("linkpred", "score", model, "--pairs", "-", input="p1,p2\np9,p12\np2,p1\np1,p2\n")
    assert done.code == 0, done.err
    scores = [row["score"] for row in records(done.out)]
    assert scores[0] == scores[2] == scores[3] != scores[1]
    strange = icml25("linkpred", "score", model, "--pairs", "-", input="bidder,auction\np1,p2\np2,p3\n")
    assert strange.code == 3
    assert "pair 1: 'bidder' is no node" in strange.err
    assert "if that line is a header, name its columns: --src NAME --dst NAME" in strange.err


def test_the_graph_of_another_model_is_refused(icml25, model, tmp_path):
    lines = "".join(f"p{i},p{i + 1}\n" for i in range(1, 15)) + "p15,Ada [red]\n"  # equally many nodes
    (tmp_path / "other.csv").write_text(lines)
    args = (*QUICK, "--method", "base", "--baseline", "none", "-o", "other", "-q")
    assert icml25("linkpred", "other.csv", *args).code == 0
    (model / "graph.npz").write_bytes((tmp_path / "other" / "graph.npz").read_bytes())
    done = icml25("linkpred", "score", model, "--pairs", "-", input="p1,p2\n")
    assert done.code == 3
    assert "graph.npz is not the graph that the model was fitted on" in done.err


def test_an_edited_model_is_refused(icml25, model):
    config = json.loads((model / "config.json").read_text())
    for edit in ({"late": None}, {"modules": {}}, {"options": {"hidden": "x"}}, {"method": [1]}, {"encoder": 5}):
        (model / "config.json").write_text(json.dumps(config | edit))
        done = icml25("linkpred", "score", model, "--pairs", "-", input="p1,p2\n")
        assert (done.code, done.out) == (3, ""), edit
        assert "config.json and model.safetensors are not of one model" in done.err


def test_a_pair_of_ids_with_commas_is_found(icml25, tmp_path):
    (tmp_path / "e.csv").write_text('source,target\n"Smith, J","Lee, K"\n"Lee, K",x\n')
    done = icml25("linkpred", "render", "e.csv", "--pair", "Smith, J,Lee, K", "-o", "drawn", "--json")
    assert done.code == 0, done.err
    assert [row["of"] for row in done.json["rows"]] == ["Smith, J – Lee, K"]


def test_without_graphviz_pictures_are_still_drawn(icml25, tmp_path):
    done = icml25("linkpred", "render", "karate", "--pair", "0,33", "--renderer", "sfdp", "-o", "a", env={"PATH": ""})
    assert done.code == 0, done.err
    assert "native renderer" in done.err
    plain = icml25("linkpred", "render", "karate", "--pair", "0,33", "-o", "b")
    assert plain.code == 0
    assert (tmp_path / "a" / "000-0-33.png").read_bytes() == (tmp_path / "b" / "000-0-33.png").read_bytes()

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


def test_without_graphviz_pictures_are_still_drawn(icml25, tmp_path):
    done = icml25("linkpred", "render", "karate", "--pair", "0,33", "--renderer", "sfdp", "-o", "a", env={"PATH": ""})
    assert done.code == 0, done.err
    assert "native renderer" in done.err
    plain = icml25("linkpred", "render", "karate", "--pair", "0,33", "-o", "b")
    assert plain.code == 0
    assert (tmp_path / "a" / "000-0-33.png").read_bytes() == (tmp_path / "b" / "000-0-33.png").read_bytes()

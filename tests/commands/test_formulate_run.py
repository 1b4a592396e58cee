"""`icml25 formulate` with a problem in words, as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files

import jsonschema
import pytest

TEXT = (
    "A school hires buses and vans for a trip. A bus seats fifty pupils and costs $400, a van seats ten pupils "
    "and costs $100. At least two hundred pupils travel. At most three buses can be hired. How many buses and "
    "vans should be hired to minimize the cost?"
)


def test_what_stands_at_standard_input_is_not_passed_over(icml25):
    done = icml25("formulate", "--json", input=TEXT)
    assert done.code == 2
    assert "icml25 formulate -" in done.err
    example = icml25("formulate", "run", "--json", input="")
    assert example.code == 0, example.err
    assert any("built-in example" in note for note in example.json["notes"])


def test_a_model_is_no_problem_in_words(icml25, tmp_path):
    (tmp_path / "plan.lp").write_text("max\n 3 x + 2 y\nst\n a: x + y <= 4\nend\n")
    refused = icml25("formulate", "plan.lp")
    assert refused.code not in (0, 1)
    assert "icml25 formulate explain plan.lp" in refused.err
    piped = icml25("formulate", "explain", "-", "--json", input=(tmp_path / "plan.lp").read_text())
    assert piped.json["metrics"]["objective"] == 12
    form = icml25("formulate", "compile", "plan.lp", "-o", "plan.txt")
    assert form.code == 2
    assert "--to" in form.err


def test_what_was_left_out_is_a_warning(icml25):
    text = TEXT.replace("At most three", "The vans are closed on Sundays. At most three")
    done = icml25("formulate", text, "--min-confidence", "0", "--json")
    assert any("closed on Sundays" in warning for warning in done.json["warnings"])
    assert icml25("formulate", text).code == 1


def test_a_text_is_solved_and_everything_is_written(icml25, tmp_path):
    (tmp_path / "trip.txt").write_text(TEXT)
    done = icml25("formulate", "trip.txt", "-o", "out", "--json")
    assert done.code == 0, done.err
    report = done.json
    jsonschema.validate(report, json.loads(files("icml25cli.assets").joinpath("report.schema.json").read_text()))
    assert report["metrics"]["objective"] == 1700
    assert report["metrics"]["confidence"] > 0.5
    assert {key: report["answer"][key] for key in ("status", "solution")} == {
        "status": "optimal",
        "solution": {"bus": 3, "van": 5},
    }
    assert report["answer"]["formulation"] == json.loads((tmp_path / "out" / "model.json").read_text())
    assert [row["rank"] for row in report["rows"]][:2] == [1, 2]
    assert report["rows"][0]["differs"] == ""
    assert all(row["differs"] for row in report["rows"][1:])
    names = {path.name for path in (tmp_path / "out").iterdir()} - {".icml25"}
    assert names == {
        *(f"model.{form}" for form in ("json", "lp", "mps", "py")),
        *("tree.json", "report.md", "report.html", "report.json"),
    }
    for model in ("model.json", "model.lp", "model.mps"):
        again = icml25("formulate", "explain", f"out/{model}", "--json")
        assert again.json["metrics"]["objective"] == pytest.approx(1700)
    script = subprocess.run([sys.executable, "model.py"], cwd=tmp_path / "out", capture_output=True, text=True)
    assert "objective: 1700" in script.stdout
    tree = json.loads((tmp_path / "out" / "tree.json").read_text())
    best = next(node for node in tree["nodes"] if node["node"] == tree["best"])
    assert best["solved"] == {"status": "optimal", "objective": 1700}
    assert {node["status"] for node in tree["nodes"]} >= {"ok", "pruned-equivalent"}


def test_text_on_the_command_line_and_on_standard_input(icml25, tmp_path, environment, program):
    direct = icml25("formulate", TEXT)
    assert direct.code == 0, direct.err
    assert "50 bus + 10 van >= 200" in direct.out
    assert "rank" in direct.out
    piped = subprocess.run(
        [program, "formulate", "-", "--json"], input=TEXT, capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert json.loads(piped.stdout)["answer"]["solution"] == {"bus": 3, "van": 5}


def test_an_answer_is_explained_in_a_pipe(icml25):
    solved = icml25("formulate", TEXT, "--json")
    explained = icml25("formulate", "explain", "-", "--json", input=solved.out)
    assert explained.code == 0, explained.err
    assert explained.json["metrics"]["objective"] == 1700
    none = icml25("formulate", "Minimize the squared distance of 3 shops from 2 roads with 5 bends.", "--json")
    refused = icml25("formulate", "explain", "-", "--json", input=none.out)
    assert refused.code == 3
    assert "standard input is a report without an answer" in refused.err


def test_without_a_problem_the_example_is_solved(icml25):
    done = icml25("formulate", "run", "--json")
    assert done.json["metrics"]["objective"] == 300
    duals = {row["constraint"]: row["dual"] for row in done.json["tables"]["constraints"]}
    assert sorted(duals.values()) == [0, 30]
    assert [row["reduced_cost"] for row in done.json["tables"]["solution"]] == [-10, 0]


def test_abstains(icml25):
    done = icml25("formulate", "Minimize the squared distance of 3 shops from 2 roads with 5 bends.", "--json")
    assert done.code == 1
    assert done.json["answer"]["status"] == "abstained"
    assert "products or powers" in done.err
    unsure = icml25("formulate", TEXT, "--min-confidence", "1", "--json")
    assert unsure.code == 1
    assert "the confidence is" in unsure.json["answer"]["reason"]


def test_what_is_not_linear_is_said(icml25):
    done = icml25("formulate", "maximize x + y subject to x*y <= 4, x/y >= 1", "--json")
    assert done.code == 1
    assert "multiplies decision variables" in done.json["answer"]["reason"]


def test_an_infeasible_text_is_explained_in_its_words(icml25):
    text = TEXT.replace("can be hired.", "can be hired. At most two vans can be hired.")
    done = icml25("formulate", text, "--json")
    assert done.code == 0, done.err
    assert (done.json["answer"]["status"], done.json["answer"]["solution"]) == ("infeasible", {})
    assert {row["words"] for row in done.json["tables"]["conflict"]} == {
        "At most three buses can be hired",
        "At most two vans can be hired",
        "At least two hundred pupils travel",
    }
    assert 0.2 < done.json["metrics"]["confidence"] <= 0.8
    assert icml25("formulate", text, "--strict").code == 1


def test_an_unbounded_text_is_told_what_it_lacks(icml25, tmp_path):
    text = (
        "A shop sells lamps and chairs. Each lamp earns a profit of $12 and each chair earns a profit of $20. The shop "
        "must sell at least 10 lamps and at least 5 chairs. How many of each should be sold to maximize the profit?"
    )
    done = icml25("formulate", text, "-o", "out")
    assert done.code == 0, done.err
    assert "unbounded" in done.out
    assert "A limit on chair is missing" in done.out
    assert "A limit on chair is missing" in (tmp_path / "out" / "report.md").read_text()


def test_every_line_of_a_file_is_solved_and_kept(icml25, tmp_path):
    rows = [
        {"id": "trip", "question": TEXT},
        {"question": "Minimize the squared distance of 3 shops from 2 roads with 5 bends."},
        {"Question": "maximise 3x + 4y subject to x + 2y <= 14, 3x - y >= 0, x - y <= 2, x, y >= 0"},
        {"question": "a\0b"},
    ]
    (tmp_path / "many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = icml25("formulate", "many.jsonl", "-o", "out", "--json")
    assert done.code == 0, done.err
    assert [row["status"] for row in done.json["rows"]] == ["optimal", "abstained", "optimal", "refused"]
    assert [row["objective"] for row in done.json["rows"]] == [1700, None, 34, None]
    assert [row["name"] for row in done.json["rows"]] == ["trip", "2", "3", "4"]
    assert "products or powers" in done.json["rows"][1]["reason"]
    assert done.json["metrics"] == {"problems": 4, "optimal": 2}
    assert {row["variable"]: row["value"] for row in done.json["tables"]["solutions"][:2]} == {"bus": 3, "van": 5}
    assert icml25("formulate", "explain", "out/row-000003/model.mps", "--json").json["metrics"]["objective"] == 34
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("model.lp")}
    assert len(kept) == 2
    again = icml25("formulate", "many.jsonl", "--resume", "--json")
    assert [row["seconds"] for row in again.json["rows"]] == [row["seconds"] for row in done.json["rows"]]


def test_a_trace_tells_of_every_expansion(icml25):
    done = icml25("formulate", TEXT, "--trace", "--json")
    assert done.code == 0, done.err
    lines = [line for line in done.err.splitlines() if "drafts of" in line]
    nodes = done.json["tables"]["nodes"]
    assert len(lines) == sum(node["expanded"] for node in nodes)
    assert lines[0].startswith("root: 10 drafts of variables: 1 kept, 9 pruned-equivalent; first {")
    assert {"pruned-equivalent", "ok"} <= {node["status"] for node in nodes}


def test_what_is_decided_is_whole_or_not_as_told(icml25):
    text = "max 7x + 5y subject to 3x + 2y <= 10.5, x, y >= 0"
    found = [icml25("formulate", text, "--domain", kind, "--json").json for kind in ("integer", "continuous")]
    assert [report["metrics"]["objective"] for report in found] == [25, 26.25]
    assert found[0]["params"]["domain"] == "integer"


def test_the_order_of_readings_may_be_by_strength(icml25):
    by_path, by_strength = (
        icml25("formulate", TEXT, "--order", order, "--json").json for order in ("path", "strength")
    )
    values = [row["value"] for row in by_path["rows"][1:] if row["status"] == "optimal"]
    strengths = [row["bradley_terry"] for row in by_strength["rows"][1:] if row["status"] == "optimal"]
    assert values == sorted(values, reverse=True)
    assert strengths == sorted(strengths, reverse=True)


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"", 3, "the problem is empty"),
        (b"\xff\xfe\x00\x01", 3, "standard input is no text"),
        (b"maximize x\0", 3, "the problem is no text"),
        (b"word " * 400_000, 3, "at most 200000 are read"),
        (b"word 12 $5 " * 4000, 1, "problems of one paragraph"),
        (b"maximize 3 and NaN and 1e999 and inf at most 4 of -5", 1, "no answer is given"),
    ],
    ids=["empty", "binary", "null", "overlong", "long", "no numbers"],
)
def test_what_comes_in_on_standard_input(program, environment, tmp_path, content, code, said):
    done = subprocess.run(
        [program, "formulate", "-"], input=content, capture_output=True, env=environment, cwd=tmp_path, timeout=120
    )
    assert done.returncode == code
    assert said in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_input_without_an_end_is_refused(icml25, tmp_path):
    (tmp_path / "endless").symlink_to("/dev/zero")
    done = icml25("formulate", "endless", timeout=60)
    assert done.code == 3
    assert "endless" in done.err or "characters" in done.err


@pytest.mark.parametrize("search", ["dfs", "sequential", "greedy", "random"])
def test_other_searches(icml25, search):
    done = icml25("formulate", TEXT, "--search", search, "-T", 4, "--min-confidence", 0, "--json")
    assert done.code == 0, done.err
    levels = done.json["tables"]["levels"]
    parts = ("empty", "invalid", "pruned", "low_ranked", "kept")
    assert all(row["generated"] == sum(row[part] for part in parts) for row in levels)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("gone.txt",), 3, "gone.txt cannot be read"),
        ((" ",), 3, "the problem is empty"),
        (("maximize 1e47x + y subject to x + y <= 3",), 3, "too large"),
        (("empty.txt",), 3, "the problem is empty"),
        (("bytes.txt",), 3, "bytes.txt is no text"),
        ((TEXT, "-o", "there"), 74, "there"),
        ((TEXT, "--search", "magic"), 2, "magic"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(icml25, tmp_path, args, code, said):
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").write_text("x")
    done = icml25("formulate", *args, "--json")
    assert (done.code, done.out) == (code, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert (tmp_path / "there" / "mine").read_text() == "x"


def test_marks_in_a_text_do_not_reach_the_page(icml25, tmp_path):
    done = icml25("formulate", f"<script>alert()</script> {TEXT} [red]\x1b[31m", "-o", "out")
    assert done.code == 0, done.err
    assert "\x1b" not in done.out
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<script>" not in page
    assert "\x1b" not in page

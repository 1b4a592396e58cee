"""`icml25 claims` around claims whose outcome is known: what it prints, writes, refuses and returns."""

import json
from importlib.metadata import version
from importlib.resources import files

import jsonschema
import pytest

from icml25cli.core.claims import Claim, Interval, at_most
from icml25cli.core.errors import MissingError
from icml25cli.main import main


def claim(name, measured, sizes=("quick", "full")):
    def measure(size):
        if measured is None:
            raise MissingError("the asset 'a' is not fetched")
        return Interval.exact(measured)

    return made(name, measure, sizes)


def made(name, measure, sizes=("quick", "full")):
    return Claim(
        name, "says", "section 1", "0.5", "a ratio", at_most(1), measure, lambda size: Interval.exact(2), "E8", sizes
    )


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command on given claims in this process; its exit code and both streams."""

    def call(claims, *args):
        monkeypatch.setattr("icml25cli.papers.quantize.claims.CLAIMS", tuple(claims))
        code = main(["claims", "quantize", *map(str, args)])
        return (code, *capsys.readouterr())

    return call


def test_a_claim_that_fails_is_a_finding_and_no_error(run):
    code, out, _ = run([claim("good", 0.5), claim("bad", 1.5), claim("absent", None)], "--json")
    report = json.loads(out)
    jsonschema.validate(report, json.loads(files("icml25cli.assets").joinpath("report.schema.json").read_text()))
    assert code == 0
    assert [(row["claim"], row["verdict"]) for row in report["rows"]] == [
        ("good", "holds"),
        ("bad", "does not hold"),
        ("absent", "not testable here"),
    ]
    good = report["rows"][0]
    assert (good["measured"], good["low"], good["high"], good["control"], good["control_fails"]) == (
        0.5, 0.5, 0.5, 2, True,
    )  # fmt: skip
    assert report["metrics"] == {"claims": 3, "hold": 1, "controls_failing": 2}
    assert report["notes"] == ["absent: the asset 'a' is not fetched"]
    assert [row["published"] for row in report["tables"]["claims"]] == ["0.5"] * 3


@pytest.mark.parametrize(("measured", "code"), [([0.5], 0), ([0.5, 1.5], 1), ([0.5, None], 1)])
def test_strict_wants_all_to_hold(run, measured, code):
    assert run([claim(str(value), value) for value in measured], "--strict")[0] == code


def test_a_claim_is_checked_at_its_sizes(run):
    claims = [claim("both", 0.5), claim("full-only", 0.5, sizes=("full",))]
    for size, names in (("quick", ["both"]), ("full", ["both", "full-only"])):
        report = json.loads(run(claims, "--size", size, "--json")[1])
        assert [row["claim"] for row in report["rows"]] == names
        assert [row["claim"] for row in report["tables"]["claims"]] == names


def test_the_file_says_what_was_measured_where_and_when(run, tmp_path):
    code, _, _ = run([claim("good", 0.5), claim("absent", None)], "-o", tmp_path / "new")
    written = json.loads((tmp_path / "new" / "quantize.json").read_text())
    assert code == 0
    assert written.keys() == {"version", "date", "machine", "size", "claims"}
    assert (written["version"], written["size"]) == (version("icml25"), "quick")
    good, absent = written["claims"]
    assert (good["says"], good["published"], good["measured"], good["reason"]) == ("says", "0.5", 0.5, None)
    assert (absent["verdict"], absent["reason"]) == ("not testable here", "the asset 'a' is not fetched")


def test_an_existing_file_is_refused_before_anything_is_measured_and_replaced_on_request(run, tmp_path):
    target = tmp_path / "quantize.json"
    target.write_text("old")
    measured = []

    def measure(size):
        measured.append(size)
        return Interval.exact(0)

    claims = [made("one", measure)]
    code, out, err = run(claims, "-o", tmp_path)
    assert (code, out, measured) == (74, "", [])
    assert "quantize.json exists" in err
    assert target.read_text() == "old"
    assert run(claims, "-o", tmp_path, "--force")[0] == 0
    assert json.loads(target.read_text())["claims"][0]["measured"] == 0


def test_a_command_without_claims_is_refused_by_name(capsys):
    assert main(["claims", "quantise"]) == 2
    assert "no claims for 'quantise'" in capsys.readouterr().err


def test_what_a_run_finished_before_it_was_cut_short_is_not_measured_again(run, tmp_path, monkeypatch):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    asked = []

    def first(size):
        asked.append("first")
        return Interval(0.5, 0.25, 0.75)

    def second(size):
        asked.append("second")
        if asked.count("second") == 1:
            raise KeyboardInterrupt
        return Interval.exact(1.5)

    claims = [made("first", first), claim("absent", None), made("second", second)]
    code, out, err = run(claims)
    assert (code, out) == (130, "")
    assert "--resume" in err
    report = json.loads(run(claims, "--resume", "--json")[1])
    assert asked == ["first", "second", "second"]
    rows = {row["claim"]: row for row in report["rows"]}
    assert [rows["first"][key] for key in ("measured", "low", "high", "verdict")] == [0.5, 0.25, 0.75, "holds"]
    assert (rows["absent"]["verdict"], rows["second"]["measured"]) == ("not testable here", 1.5)
    assert run(claims, "--resume")[0] == 3  # all is told, and nothing is left
    assert run(claims)[0] == 0
    assert asked.count("first") == 2


def test_a_list_says_what_is_claimed_and_measures_nothing(run):
    def never(size):
        raise AssertionError("it was measured")

    code, out, _ = run([made("a", never), made("b", never, ("full",))], "--list", "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert [(row["claim"], row["sizes"]) for row in rows] == [("a", ["quick", "full"]), ("b", ["full"])]
    assert run([made("a", never)], "--list", "--strict")[0] == 2

"""What is written says what the model says, and is found out where it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings

from icml25cli.core.errors import OutputError
from icml25cli.papers.formulate import export as export_module
from icml25cli.papers.formulate.canonical import canonical
from icml25cli.papers.formulate.compiler import compile_model
from icml25cli.papers.formulate.export import FORMATS, export
from icml25cli.papers.formulate.formulation import parse_formulation, read_formulation
from icml25cli.papers.formulate.highs import new_solver
from icml25cli.papers.formulate.linear import Column, LinearModel, Row, sanitised
from icml25cli.papers.formulate.reading import read_model
from icml25cli.papers.formulate.solve import solve
from icml25cli.papers.formulate.writing import flat_formulation, lp_text, mps_text, portable, script_text
from tests.papers.formulate.models import CONT, FARMER, INT, farmer, model
from tests.papers.formulate.test_solve import models

# Everything that formats and readers are known to disagree on.
ODD = LinearModel(
    "max",
    ((0, Fraction(1, 3)), (2, -1)),
    Fraction(7, 2),
    (
        Column("wheat"),
        Column("e1", None, None),
        Column("st", None, 5, True),
        Column("unused"),
        Column("b", 0, 1, True),
        Column("fixed", 3, 3),
        Column("below", -4, -1, True),
        Column("large pill", 2, None, True, "a pill\nimport os"),
        Column("小麦", 0, Fraction("2.5"), True),
        Column("x[1, 2]", 0, 10),
        Column("x_1_2", -3, None),
        Column("lambda"),
    ),
    (
        Row("two sides", ((0, 1), (1, 2)), -2, 8),
        Row("eq", ((1, Fraction(1, 7)), (3, 1)), 4, 4, "written\nos.system('x')"),
        Row("always", (), -1, None),
        Row("e3", ((0, 1), (7, -1)), 1, None),
        Row("free", ((0, 1), (8, 1)), None, None),
        Row("min pills (at least)", ((7, 1), (9, 1), (10, -2)), -(10**6), None),
        Row("min_pills_at_least", ((1, 1),), -9, None),
    ),
)


@pytest.mark.parametrize("form", FORMATS)
def test_farmer_of_figure_1_solves_to_300_from_every_format(form, tmp_path: Path):
    done = export(farmer(), form, formulation=read_formulation(FARMER, "farmer"))
    assert done.confirmed
    assert done.solution.objective == 300
    path = tmp_path / f"model.{form}"
    path.write_text(done.text)
    if form == "py":
        ran = subprocess.run([sys.executable, "-I", path], capture_output=True, text=True, check=True)
        assert ran.stdout.splitlines() == ["status: Optimal", "objective: 300.0", "x_corn = 10.0", "x_wheat = 0.0"]
        assert ran.stderr == ""
    else:
        assert solve(read_model(path)[1]).objective == 300


def test_json_keeps_the_formulation_as_it_was():
    formulation = read_formulation(FARMER, "farmer")
    assert json.loads(export(farmer(), "json", formulation=formulation).text) == formulation.document()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("sense", ["max", "min"])
def test_odd_models_survive_every_format(form, sense):
    done = export(replace(ODD, sense=sense), form)
    assert done.confirmed or form == "py", "CBC may call infeasible what is unbounded"


def test_a_maximum_stays_a_maximum_in_mps(tmp_path: Path):
    # PuLP's own writer leaves the sense out, and a reader then minimises: 0 instead of 300
    (tmp_path / "model.mps").write_text(mps_text(farmer()))
    reader = new_solver()
    reader.readModel(str(tmp_path / "model.mps"))
    reader.run()
    assert reader.getInfo().objective_function_value == 300


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("status", ["infeasible", "unbounded"])
def test_models_without_optimum_are_written_too(form, status):
    rows = {"a": "x <= 1", "b": "x >= 2"} if status == "infeasible" else {"a": "x >= 2"}
    done = export(model({"x": CONT}, {"max": "x"}, rows), form)
    assert done.solution.status == status
    assert done.confirmed


def test_names_are_sanitised_and_stay_different():
    expected = {
        "x[1, 2]": "x_1_2",
        "x_1_2": "x_1_2_2",
        "X_1_2": "X_1_2_3",
        "Größe": "Groe",
        "小麦": "v5",
        "": "v6",
        "e": "v_e",
        "E12": "v_E12",
        "e_x": "v_e_x",
        "free": "free_",
        "class": "class_",
        "2nd": "v_2nd",
        "pulp": "pulp_",
        "a" * 300: "a" * 200,
    }
    assert sanitised(expected) == tuple(expected.values())
    assert len({name.lower() for name in sanitised(["R"] * 500 + ["R_7"] * 3)}) == 503


@given(models())
@settings(max_examples=60, deadline=None)
def test_lp_mps_and_json_say_the_same_again(tmp_path_factory, compiled):
    folder = tmp_path_factory.getbasetemp()
    whole = portable(compiled)
    names = dict(zip([c.name for c in whole.columns], whole.column_names, strict=True))
    for form, text in (("lp", lp_text(whole)), ("mps", mps_text(whole))):
        (folder / f"again.{form}").write_text(text)
        assert canonical(read_model(folder / f"again.{form}")[1]) == canonical(whole, names)
    document = json.dumps(flat_formulation(compiled).document())
    assert canonical(compile_model(parse_formulation(document, "again"))) == canonical(compiled)


def test_long_sums_are_written_and_read():
    n = 3000
    wide = model(
        {"x": {"type": INT, "iteration_space": f"range({n})", "upper": 1}},
        {"max": f"sum((i % 7 + 1) * x[i] for i in range({n}))"},
        {"all": "sum(x.values()) <= 10"},
    )
    for form in FORMATS:
        assert export(wide, form).confirmed


# --- what does not say what the model says -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("writer", "form", "wrong"),
    [
        ("lp_text", "lp", ("30 x_corn", "31 x_corn")),
        ("lp_text", "lp", ("Maximize", "Minimize")),
        ("lp_text", "lp", ("<= 10\n", "<= 11\n")),
        ("lp_text", "lp", ("0 <= x_corn\n", "0 <= x_corn <= 99\n")),
        ("lp_text", "lp", ("0 <= x_corn\n", "0 <= x_corn\nGeneral\n x_corn\n")),
        ("mps_text", "mps", ("OBJSENSE\n    MAX\n", "")),
        ("script_text", "py", ("LpMaximize", "LpMinimize")),
        ("script_text", "py", ("<= 10,", "<= 11,")),
    ],
)
def test_a_wrong_export_is_refused(writer, form, wrong, monkeypatch):
    right = getattr(export_module, writer)

    def tampered(whole: LinearModel) -> str:
        text = right(whole)
        assert wrong[0] in text
        return text.replace(*wrong)

    monkeypatch.setattr(export_module, writer, tampered)
    with pytest.raises(OutputError, match=f"the {form} export"):
        export(farmer(), form)


def test_a_script_that_fails_or_does_not_end_is_no_success(monkeypatch):
    monkeypatch.setattr(export_module, "script_text", lambda _: "raise ValueError('no')")
    with pytest.raises(OutputError, match="does not run: ValueError: no"):
        export(farmer(), "py")
    monkeypatch.setattr(export_module, "script_text", lambda _: "while True: pass")
    assert not export(farmer(), "py", time_limit=0.5).confirmed
    monkeypatch.setattr(export_module, "script_text", lambda _: "x = bytearray(64 * 2**30)")
    with pytest.raises(OutputError, match="MemoryError"):
        export(farmer(), "py")


def test_no_name_or_text_of_the_user_becomes_code():
    text = script_text(portable(ODD))
    assert "import os" not in [line.strip() for line in text.splitlines()]
    code = [line.partition("#")[0] for line in text.splitlines()]
    assert not any("os.system" in line for line in code)
    assert "# large pill: a pill import os" in text


def test_no_control_character_of_a_name_reaches_the_terminal():
    text = export(model({"a\x1b[31m\x9b": CONT}, {"max": "3"}), "json").text
    assert text.replace("\n", "").isprintable()

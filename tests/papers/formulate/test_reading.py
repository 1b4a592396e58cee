"""Files are read exactly, or the reason is given why not."""

from __future__ import annotations

import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

from icml25cli.core.errors import InputError
from icml25cli.papers.formulate.explain import explain
from icml25cli.papers.formulate.expressions import NonLinear
from icml25cli.papers.formulate.linear import Column
from icml25cli.papers.formulate.reading import read_model

LP = r"""\ a comment
max
 obj: 0.1 x + 2 y - z + 3.5
st
 cap: x + y + z <= 10
 r.2: x - 3 y >= -2.25
 fix: y + z = 4
bounds
 x <= 40
 -inf <= y <= 5
 z free
general
 x
end
"""
MPS = """NAME          T
ROWS
 N  COST
 L  LIM1
 G  MY
COLUMNS
    X         COST         1.0   LIM1         1.0
    X         MY           1.0
    Y         COST         2.0   LIM1         1.0
RHS
    RHS       LIM1         4.0   MY         1.0
BOUNDS
 UP BND       X            4.0
ENDATA
"""


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_an_lp_file_is_read_exactly(tmp_path: Path):
    formulation, model = read_model(write(tmp_path, "model.lp", LP))
    assert formulation is None
    assert (model.sense, model.constant) == ("max", Fraction(7, 2))
    assert model.written(model.objective) == "0.1 x + 2 y - z"
    assert model.objective[0] == (0, Fraction(1, 10))
    assert model.columns == (Column("x", 0, 40, True), Column("y", None, 5), Column("z", None, None))
    assert [(row.name, model.row_text(row)) for row in model.rows] == [
        ("cap", "x + y + z <= 10"),
        ("r.2", "x - 3 y >= -2.25"),
        ("fix", "y + z == 4"),
    ]


def test_an_mps_file_is_read(tmp_path: Path):
    model = read_model(write(tmp_path, "model.mps", MPS))[1]
    assert model.sense == "min"
    assert [model.row_text(row) for row in model.rows] == ["X + Y <= 4", "X >= 1"]
    assert model.columns[0] == Column("X", 0, 4)


def test_what_highs_ignores_is_noted(tmp_path: Path):
    model = read_model(write(tmp_path, "model.mps", MPS.replace("LIM1         4.0", "LIMX         4.0")))[1]
    assert any("LIMX" in note for note in model.notes)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("a.lp", "this is no lp", "line 1: expected a section keyword"),
        ("a.lp", b"\0\1\2" * 9, "control character"),
        ("a.lp", "", "holds no variables"),
        ("a.lp", LP.replace("- z +", "- z^2 +"), "line 3: "),
        ("a.lp", LP.replace("- z", "- [ z^2 ] / 2"), "quadratic"),
        ("a.lp", LP.replace("general", "semi"), "semi-continuous"),
        ("a.lp", LP.replace("end", "sos\n s1: S1:: x:1 y:2\nend"), "SOS"),
        ("a.mps", MPS.replace(" N  COST", " N  COST      $ a comment"), "line 3: a comment behind $"),
        ("a.mps", MPS.partition("RHS")[0] + "RHS", "ends before"),
        ("a.mod", "var x;", "MathProg"),
        ("a.json", "{}", "parameters is missing"),
        ("a.xyz", "{", "no JSON"),
    ],
)
def test_what_is_not_read_is_explained(tmp_path: Path, name, content, named):
    with pytest.raises((InputError, NonLinear)) as caught:
        read_model(write(tmp_path, name, content))
    assert named in caught.value.message
    assert name in caught.value.message or "semi" in named
    assert caught.value.hint


@pytest.mark.parametrize("name", ["a.lp", "a.mps"])
def test_a_file_that_was_cut_off_anywhere_is_refused(tmp_path: Path, name):
    whole = (LP if name == "a.lp" else MPS).rstrip()
    for length in range(0, len(whole), 3):
        with pytest.raises(InputError):
            read_model(write(tmp_path, name, whole[:length]))


@pytest.mark.parametrize(("name", "text"), [("a.lp", LP), ("a.mps", MPS)])
def test_names_that_are_not_utf8(tmp_path: Path, name, text):
    path = tmp_path / name
    path.write_bytes(re.sub(rb"(?i)\bx\b", b"x\xfe", text.encode()))
    with pytest.raises(InputError, match="not UTF-8"):
        read_model(path)


@pytest.mark.parametrize("cells", [("nan", "1", "4"), ("1", "nan", "4"), ("1", "1", "nan")])
def test_what_is_no_number_is_refused_and_the_file_is_named(tmp_path: Path, cells):
    cost, factor, limit = cells
    path = tmp_path / "a.mps"
    path.write_text(f"NAME t\nROWS\n N obj\n L c\nCOLUMNS\n x obj {cost} c {factor}\nRHS\n RHS c {limit}\nENDATA\n")
    with pytest.raises(InputError, match=r"a\.mps"):
        read_model(path)


def test_files_that_are_not_there(tmp_path: Path):
    for name in ("absent.lp", "absent.mps", "absent.json"):
        with pytest.raises(InputError, match=name.replace(".", r"\.")):
            read_model(tmp_path / name)


def test_reading_prints_nothing(tmp_path: Path, capfd):
    read_model(write(tmp_path, "model.lp", LP))
    with pytest.raises(InputError):
        read_model(write(tmp_path, "bad.lp", "no"))
    assert capfd.readouterr() == ("", "")


# --- the 60 MathProg models of GLPK ------------------------------------------------------------------------------

OPTIMA = {
    "assign": 76,
    "bpp": 3,
    "color": 4,
    "cpp": 46,
    "diet": 0.138,
    "stigler": 0.109,
    "dist": 2369193.444,
    "egypt": 58808.371,
    "fctp": 471.55,
    "food": 107842.593,
    "food2": 100278.704,
    "gap": 261,
    "jssp": 55,
    "magic": 0,
    "maxcut": 20,
    "maxflow": 29,
    "mfasp": 3,
    "misp": 7,
    "mvcp": 6,
    "plan": 296.217,
    "powplant": 197528.8,
    "prod": 4428412.468,
    "queens": 8,
    "shiftcov": 73,
    "tas": 22,
    "tiling": 196,
    "transp": 153.675,
    "tsp": 6859,
    "todd": 4190215,
    "train": 129,
    "trick": 8.2,
    "dea": 59.631,
    "spp": 20,
}


@pytest.fixture(scope="module")
def examples(fetched_cache: Path, monkeypatch_module) -> Path:
    from icml25cli.core import store

    monkeypatch_module.setenv("ICML25_CACHE_DIR", str(fetched_cache))
    if not store.is_fetched("glpk-examples"):
        pytest.skip("icml25 assets fetch glpk-examples brings the models")
    return store.path("glpk-examples")


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def as_lp(model: Path, folder: Path) -> Path:
    """A MathProg model as an LP file, by GLPK, which reads them: the program, or its Python binding."""
    written = folder / f"{model.stem}.lp"
    beside = shutil.copytree(model.parent, folder / "examples")  # some read tables beside them, and some write
    if shutil.which("glpsol"):
        command = ["glpsol", "--check", "--model", model.name, "--wlp", str(written)]
        subprocess.run(command, cwd=beside, check=True, capture_output=True)
        return written
    glpk = pytest.importorskip("swiglpk", reason="neither glpsol nor swiglpk is installed")
    glpk.glp_term_out(glpk.GLP_OFF)
    space, problem = glpk.glp_mpl_alloc_wksp(), glpk.glp_create_prob()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(beside)
        assert glpk.glp_mpl_read_model(space, model.name, 0) == 0
        assert glpk.glp_mpl_generate(space, None) == 0
    glpk.glp_mpl_build_prob(space, problem)
    assert glpk.glp_write_lp(problem, None, str(written)) == 0
    glpk.glp_mpl_free_wksp(space)
    glpk.glp_delete_prob(problem)
    return written


@pytest.mark.assets
@pytest.mark.parametrize("name", OPTIMA)
def test_optima_of_mathprog_models(name, examples, tmp_path):
    found = explain(read_model(as_lp(examples / f"{name}.mod", tmp_path))[1])
    assert found.solution.status == "optimal"
    assert found.solution.objective == pytest.approx(OPTIMA[name], abs=6e-4)
    assert found.warnings() == []


@pytest.mark.assets
@pytest.mark.parametrize("name", ["alloy", "furnace", "icecream", "plan"])
def test_fixed_format_is_not_misread(name, examples):
    """HiGHS's reader of fixed columns takes bounds without a set's name for new variables: plan would cost 190."""
    with pytest.raises(InputError, match="which only fixed-format MPS has"):
        read_model(examples / f"{name}.mps")


@pytest.mark.assets
def test_a_maximum_without_its_sense_is_unbounded_and_says_so(examples):
    found = explain(read_model(examples / "murtagh.mps")[1])
    assert found.solution.status == "unbounded"
    assert "min should be max" in found.sentences()[-1]


@pytest.mark.assets
@pytest.mark.parametrize("name", ["cal", "graph", "sorting"])
def test_empty_models_are_refused(name, examples, tmp_path):
    with pytest.raises(InputError, match="holds no variables"):
        read_model(as_lp(examples / f"{name}.mod", tmp_path))

"""Models from files: a formulation as JSON, or what HiGHS reads as LP or MPS.

    formulation, model = read_model(Path("farmer.json"))

Knows file formats. Does not know what a model is for.
"""

import re
import shutil
import sys
import tempfile
from codecs import BOM_UTF8
from pathlib import Path

import highspy
import numpy as np

from icml25cli.core.errors import InputError, about
from icml25cli.papers.formulate import rationals
from icml25cli.papers.formulate.compiler import compile_model
from icml25cli.papers.formulate.expressions import NonLinear
from icml25cli.papers.formulate.formulation import Formulation, load_formulation, parse_formulation
from icml25cli.papers.formulate.highs import new_solver
from icml25cli.papers.formulate.linear import Column, LinearModel, Row
from icml25cli.papers.formulate.rationals import Number

SOLVER_FILES = (".lp", ".mps")
MODEL = "model.json"  # of a folder of results


def read_model(path: Path) -> tuple[Formulation | None, LinearModel]:
    """The model in a file, and the formulation it was compiled from where the file is JSON; ``-`` is
    standard input, whose form is told by its beginning, and a folder that ``run -o`` wrote means its model.json.

    Raises:
        InputError: the file cannot be read; the message has the line and the reason where they are known.
        FormulaError: as ``compile_model``.
    """
    if path.is_dir():
        if not (path / MODEL).is_file():
            raise InputError(f"{path} is a folder without {MODEL}", hint=_within(path))
        path /= MODEL
    if path.suffix.lower() in SOLVER_FILES:
        return None, _read_with_highs(path)
    if path.suffix.lower() == ".mod":
        raise InputError(
            f"{path} is a MathProg model", hint=f"glpsol --check -m {path.name} --wlp MODEL.lp writes it as LP"
        )
    if str(path) == "-":
        content = sys.stdin.buffer.read()
        if content.strip() and not content.removeprefix(BOM_UTF8).lstrip().startswith((b"{", b"[")):
            return None, _read_piped(content)
        formulation = parse_formulation(content.decode("utf-8-sig", "replace"), "standard input")
    else:
        formulation = load_formulation(path)
    return formulation, compile_model(formulation)


def _within(folder: Path) -> str:
    """Where in a folder a model is, or what makes one."""
    found = min(
        (str(each) for each in [*folder.glob(f"*/{MODEL}"), *folder.glob("*.lp"), *folder.glob("*.mps")]), default=""
    )
    return f"name one in it, such as {found}" if found else "name a model file, or a folder that `run -o` wrote"


def _read_piped(content: bytes) -> LinearModel:
    """LP or MPS on standard input: an MPS file has a section of rows."""
    kind = ".mps" if re.search(rb"^ROWS\b", content, re.MULTILINE) else ".lp"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"standard input{kind}")
        path.write_bytes(content)
        try:
            return _read_with_highs(path)
        except InputError as error:
            raise type(error)(error.message.replace(str(path), "standard input"), hint=error.hint) from error


def _read_with_highs(path: Path) -> LinearModel:
    if not path.is_file():
        raise InputError(f"{path} is no file", hint="check the path")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        highs = new_solver()
        highs.setOptionValue("log_file", str(log))
        status = highs.readModel(str(_without_mark(path, Path(folder))))
        highs.setOptionValue("log_file", "")
        said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if status == highspy.HighsStatus.kError:
        raise InputError(f"{path} is not read by HiGHS: {_reason(path, said)}", hint=_way_out(path))
    if path.suffix.lower() == ".mps" and not _is_whole(path):
        raise InputError(f"{path} ends before ENDATA", hint="it was cut off: copy it again")
    lp = highs.getLp()
    if highs.getHessianNumNz():
        raise NonLinear(f"{path} has a quadratic objective", hint="only linear models are explained")
    if not lp.num_col_:
        raise InputError(f"{path} holds no variables", hint="check that it was written whole")
    try:
        with about(path):
            return _from_arrays(lp, _warnings(said))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} has a name that is not UTF-8", hint="write the file in UTF-8") from error


def _without_mark(path: Path, folder: Path) -> Path:
    """The file, or a copy without the byte-order mark that it begins with: HiGHS takes that for a word."""
    with path.open("rb") as file:
        if file.read(len(BOM_UTF8)) != BOM_UTF8:
            return path
        bare = folder / path.name
        with bare.open("wb") as copy:
            shutil.copyfileobj(file, copy)
    return bare


def _is_whole(path: Path) -> bool:
    """Whether an MPS file has its last line: HiGHS takes some that were cut off for whole ones."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = file.read().decode("utf-8", "replace").splitlines()
    last = next((line for line in reversed(lines) if line.strip() and line[0] != "*"), "")
    return last.split()[:1] == ["ENDATA"]


def _from_arrays(lp: highspy.HighsLp, notes: tuple[str, ...]) -> LinearModel:
    """HiGHS's arrays as a model of exact numbers: of each the shortest decimal that is that float."""
    whole = highspy.HighsVarType.kInteger
    kinds = list(lp.integrality_) or [highspy.HighsVarType.kContinuous] * lp.num_col_
    if other := next((kind for kind in kinds if kind not in (whole, highspy.HighsVarType.kContinuous)), None):
        name = lp.col_names_[kinds.index(other)]
        raise NonLinear(f"the variable {name} is semi-continuous", hint="write it with a binary variable and two rows")
    names = list(lp.col_names_) or [f"c{position}" for position in range(lp.num_col_)]
    columns = tuple(
        Column(name, _bound(low), _bound(high), kind == whole)
        for name, low, high, kind in zip(names, lp.col_lower_, lp.col_upper_, kinds, strict=True)
    )
    terms: list[list[tuple[int, Number]]] = [[] for _ in range(lp.num_row_)]
    matrix = lp.a_matrix_
    by_column = matrix.format_ == highspy.MatrixFormat.kColwise
    start, index, value = (np.asarray(part).tolist() for part in (matrix.start_, matrix.index_, matrix.value_))
    for major in range(len(start) - 1):
        for position in range(start[major], start[major + 1]):
            row, column = (index[position], major) if by_column else (major, index[position])
            terms[row].append((column, rationals.exact(value[position])))
    names = list(lp.row_names_) or [f"r{position}" for position in range(lp.num_row_)]
    rows = tuple(
        Row(name, tuple(sorted(parts)), _bound(low), _bound(high))
        for name, parts, low, high in zip(names, terms, lp.row_lower_, lp.row_upper_, strict=True)
    )
    costs = ((column, rationals.exact(float(cost))) for column, cost in enumerate(lp.col_cost_))
    return LinearModel(
        sense="max" if lp.sense_ == highspy.ObjSense.kMaximize else "min",
        objective=tuple((column, cost) for column, cost in costs if cost),
        constant=rationals.exact(float(lp.offset_)),
        columns=columns,
        rows=rows,
        notes=notes,
    )


def _bound(value: float) -> Number | None:
    return None if np.isinf(value) else rationals.exact(float(value))  # NaN is no missing bound: it is refused


# --- why a file is not read --------------------------------------------------------------------------------------


def _reason(path: Path, said: str) -> str:
    """What HiGHS said of a file, and for MPS, of which it says little, what stands in it that its reader lacks."""
    words = re.findall(r"ERROR:\s+(.*?)(?:\n\s*-->\s*\S*?:(\d+):\d+)?\s*(?:\n|$)", said)
    reasons = [f"line {line}: {what}" if line else what for what, line in words if not what.startswith("Parser error")]
    if path.suffix.lower() == ".mps":
        reasons += _fixed_format(path)
    return "; ".join(reasons[:2]) or "it has no form that its parser knows"


def _way_out(path: Path) -> str:
    if path.suffix.lower() == ".mps":
        return f"a reader of fixed-format MPS may take it: glpsol --mps {path.name} --check --wlp MODEL.lp"
    return "mend that line"


def _fixed_format(path: Path) -> list[str]:
    """What only readers of fixed columns understand. (HiGHS has such a reader too, and reads bounds without the name
    of a set as new variables: a wrong model is worse than none.)"""
    section = ""
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if not line.strip() or line[0] in "*$":
            continue
        words = line.split()
        if not line[0].isspace():
            section = words[0].upper()
        elif "$" in (word[0] for word in words):
            return [f"line {number}: a comment behind $, which only fixed-format MPS has"]
        elif section == "BOUNDS" and len(words) == (2 if words[0] in ("FR", "MI", "PL", "BV") else 3):
            return [f"line {number}: a bound without the name of its set, which only fixed-format MPS has"]
    return [] if section == "ENDATA" else ["the file ends before ENDATA"]


def _warnings(said: str) -> tuple[str, ...]:
    found = re.findall(r"WARNING:\s+(.*)", said)
    return tuple(f"HiGHS, reading the file: {what.strip()}" for what in dict.fromkeys(found))[:5]

"""Verbs of `icml25 quantize` on arrays, codes and bare numbers, as a user meets them."""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest
from safetensors import safe_open

from icml25cli.main import main
from tests.make_models import make_model
from tests.make_packed import make_packed

SMALL = ("--samples", "5e4", "--q", "14", "--k", "4", "--betas", "ref")


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        report = json.loads(self.out)
        jsonschema.validate(report, json.loads(files("icml25cli.assets").joinpath("report.schema.json").read_text()))
        return report


@pytest.fixture
def quantize(monkeypatch, capsys, tmp_path):
    """Run a verb in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ICML25_THREADS", "1")

    def call(*args: object) -> Answer:
        code = main(["quantize", *map(str, args)])
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "llama", hidden_size=64, intermediate_size=128, head_dim=16)


def vectors(file: str, rows: int = 300, width: int = 96, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
    np.save(file, x)
    return x


def stored_scales(file: str) -> list[float]:
    with safe_open(file, framework="numpy") as opened:
        metadata = opened.metadata()
    return [beta * json.loads(metadata["q"]) for beta in json.loads(metadata["betas"])]


# --- bench -------------------------------------------------------------------------------------------------------


def test_bench_gaussian_reports_codes_baselines_and_the_honest_one(quantize):
    methods = ("--method", "nestquant", "--method", "nestquant-m")
    done = quantize("bench", "gaussian", *SMALL, *methods, "--plot", "rd.svg", "--json")
    assert done.code == 0, done.err
    report = done.report
    by_name = {(row["method"], row["levels"]): row for row in report["rows"]}
    main_row = report["rows"][0]
    assert list(by_name)[:2] == [("nestquant", 14), ("nestquant-m", 14)]
    assert main_row["distortion"] == pytest.approx(0.00646, rel=0.02)
    assert main_row["bits_entropy"] == pytest.approx(3.965, abs=0.01)
    assert main_row["gap_bits"] == pytest.approx(main_row["bits_entropy"] + np.log2(main_row["distortion"]) / 2)
    assert main_row["encode_mvalues_per_second"] > 0
    assert main_row["decode_mvalues_per_second"] > 0
    assert by_name["nestquant-m", 14]["distortion"] > 1.15 * main_row["distortion"]
    assert by_name["absmax by row", 15]["bits_raw"] == 4 + 16 / 4096
    assert main_row["entropy_coded_uniform_bits"] < main_row["bits_entropy"]
    last = report["rows"][-1]
    assert (last["method"], last["bits_raw"]) == ("entropy-coded uniform", None)
    assert any("variable-length codes" in note and "fewer" in note for note in report["notes"])
    assert report["metrics"]["distortion"] == main_row["distortion"]
    labels = "".join(ElementTree.parse("rd.svg").getroot().itertext())
    for label in ("Shannon's bound", "nestquant, k = 4", "lloyd-max", "absmax by row", "uniform, entropy-coded"):
        assert label in labels


def test_bench_is_decided_by_its_seed(quantize):
    def figures(seed: int) -> list[tuple[float, float]]:
        rows = quantize("bench", "gaussian", *SMALL, "--seed", seed, "--json").report["rows"]
        return [(row["distortion"], row["bits_entropy"]) for row in rows]

    assert figures(1) == figures(1)
    assert figures(1) != figures(2)


def test_bench_fits_scales_for_each_q_and_k(quantize):
    done = quantize("bench", "gaussian", "--samples", "5e4", "--q", "8,14", "--k", "2,4", "--json")
    rows = [row for row in done.report["rows"] if row["method"] == "nestquant"]
    assert [(row["levels"], row["k"]) for row in rows] == [(8, 2), (8, 4), (14, 2), (14, 4)]
    assert rows[3]["distortion"] == pytest.approx(0.00614, rel=0.02)
    assert rows[3]["gap_bits"] < rows[2]["gap_bits"]


def test_bench_matmul_stands_beside_its_bound(quantize):
    done = quantize("bench", "matmul", "--q", "14,32", "--k", 4, "--betas", "ref", "--n", 1024, "--m", 256, "--json")
    rows = done.report["rows"]
    assert [(row["method"], row["levels"]) for row in rows[:2]] == [("nestquant", 14), ("nestquant", 32)]
    assert rows[0]["error"] == pytest.approx(0.01302, rel=0.04)
    assert rows[0]["error_over_bound"] == pytest.approx(1.59, rel=0.04)
    assert rows[1]["error_over_bound"] == pytest.approx(1.54, rel=0.04)
    for row in rows:
        assert row["error_over_bound"] == pytest.approx(row["error"] / row["bound"])
        assert row["error_se"] > 0


def test_bench_tensor_is_relative_to_the_energy_of_the_matrix(quantize):
    x = np.random.default_rng(0).standard_normal((200, 128)).astype(np.float32)
    np.savez("two.npz", a=1e-3 * x, b=x)
    done = quantize("bench", "tensor", "two.npz:a", *SMALL, "--rotation", "hadamard", "--plot", "t.png", "--json")
    assert done.code == 0, done.err
    np.save("a.npy", 1e-3 * x)
    scales = "3.47,4.74,6.90,18.11"
    encoded = quantize("encode", "a.npy", "-o", "a.nq", "--rotation", "hadamard", "--betas", scales, "--json").report
    assert done.report["rows"][0]["distortion"] == pytest.approx(encoded["metrics"]["relative_mse"], rel=1e-5)
    assert done.report["params"]["shape"] == [200, 128]
    assert Path("t.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["gaussian", "--q", "eight"], 2, "--q 'eight'"),
        (["gaussian", "--q", "8,33"], 2, "2 to 32"),
        (["gaussian", "--q", ""], 2, "--q"),
        (["gaussian", "--k", "4,,2"], 2, "--k"),
        (["gaussian", "--k", "0"], 2, "1 to 8"),
        (["gaussian", "--betas", "4,3"], 2, "4,3"),
        (["gaussian", "--betas", "@absent.json"], 3, "absent.json"),
        (["gaussian", "--method", "rtn"], 2, "rtn"),
        (["gaussian", "--samples", "nan"], 2, "--samples"),
        (["gaussian", "--plot", "rd.bmp"], 2, "rd.bmp"),
        (["gaussian", "--plot", "mine.svg"], 74, "mine.svg"),
        (["gaussian", "x.npy"], 2, "no FILE"),
        (["tensor"], 2, "a FILE"),
        (["tensr"], 2, "tensor"),
        (["tensor", "absent.npy"], 3, "absent.npy"),
        (["tensor", "x.npy:key"], 3, "x.npy"),
        (["tensor", "nan.npy"], 3, "row 2"),
        (["tensor", "zeros.npy"], 3, "zeros"),
        (["tensor", "line.npy"], 3, "(8,)"),
        (["tensor", "empty.safetensors"], 3, "empty.safetensors"),
        (["tensor", "cut.npy"], 3, "cut.npy"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bench_says_what_is_wrong(quantize, tmp_path, args, code, says):
    x = vectors("x.npy", 10, 16)
    x[2, 3] = np.nan
    np.save("nan.npy", x)
    np.save("zeros.npy", np.zeros((4, 8), np.float32))
    np.save("line.npy", np.ones(8, np.float32))
    Path("empty.safetensors").write_bytes(b"")
    Path("cut.npy").write_bytes(Path("x.npy").read_bytes()[:300])
    Path("mine.svg").write_text("mine")
    before = sorted(tmp_path.iterdir())
    done = quantize("bench", *args, "--json")
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert "Traceback" not in done.err
    assert sorted(tmp_path.iterdir()) == before
    assert Path("mine.svg").read_text() == "mine"


# --- betas -------------------------------------------------------------------------------------------------------


def test_scales_fitted_to_an_array_are_those_that_encode_fits_and_takes(quantize):
    vectors("x.npy")
    fitted = quantize("betas", "x.npy", "--q", 13, "-o", "b.json", "--json").report
    written = json.loads(Path("b.json").read_text())
    assert written["weights"] == fitted["rows"][0]["scales_times_q"]
    assert (written["q"], written["k"], written["sample"]["weights"]["blocks"]) == (13, 4, 3600)
    assert quantize("encode", "x.npy", "-o", "auto.nq", "--q", 13).code == 0
    assert quantize("encode", "x.npy", "-o", "file.nq", "--q", 13, "--betas", "@b.json").code == 0
    assert stored_scales("file.nq") == pytest.approx(written["weights"], rel=1e-12)
    assert stored_scales("auto.nq") == pytest.approx(written["weights"], abs=1e-6)
    encoded = quantize("encode", "x.npy", "-o", "again.nq", "--q", 13, "--betas", "@b.json", "--json").report
    assert encoded["metrics"]["relative_mse"] == pytest.approx(written["sample"]["weights"]["distortion"], rel=1e-3)


def test_scales_fitted_to_a_model_are_those_that_a_run_fits_and_takes(quantize, llama):
    fitted = quantize("betas", llama, "--k", 3, "-o", "b.json", "--json").report
    written = json.loads(Path("b.json").read_text())
    kinds = ["weights", "keys", "values", "activations"]
    assert [row["for"] for row in fitted["rows"]] == kinds
    assert all(len(written[kind]) == 3 for kind in kinds)
    short = ("--baseline", "none", "--scope", "w+kv+a", "--k", 3, "--eval-tokens", 1024)
    for scales in ("auto", "@b.json"):
        run = quantize("run", llama, *short, "--betas", scales, "-o", "out", "--force", "--json")
        assert run.code == 0, run.err
        used = {row["for"]: row["scales_times_q"] for row in run.report["tables"]["codes"]}
        assert used == {kind: ", ".join(f"{beta:.4g}" for beta in written[kind]) for kind in kinds}
    inside = quantize("inspect", "out", "--json").report
    recorded = {row["tensor"]: row["relative_mse"] for row in run.report["tables"]["tensors"]}
    assert {row["tensor"]: row["relative_mse"] for row in inside["tables"]["tensors"]} == recorded
    assert [row["scale_times_q"] for row in inside["tables"]["scales"]] == pytest.approx(written["weights"])


def test_only_what_is_asked_for_is_fitted(quantize, llama):
    done = quantize("betas", llama, "--for", "values", "--for", "weights", "--calib", "absent.txt", "--json")
    assert done.code == 3
    assert "absent.txt" in done.err
    done = quantize("betas", llama, "--for", "weights", "--calib", "absent.txt", "--json")  # weights need no text
    assert [row["for"] for row in done.report["rows"]] == ["weights"]
    assert "distortion_weights" in done.report["metrics"]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["absent.npy"], 3, "absent.npy"),
        (["no-such-model"], 3, "no-such-model"),
        (["x.npy", "--q", "x"], 2, "--q"),
        (["x.npy", "--for", "queries"], 2, "queries"),
        (["x.npy", "-o", "mine.json"], 74, "mine.json"),
        (["two.npz"], 3, "two.npz"),
        (["zeros.npy"], 3, "zero"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_betas_says_what_is_wrong(quantize, args, code, says):
    x = vectors("x.npy", 20, 16)
    np.savez("two.npz", a=x, b=x)
    np.save("zeros.npy", 0 * x)
    Path("mine.json").write_text("mine")
    done = quantize("betas", *args, "--json")
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert "Traceback" not in done.err
    assert Path("mine.json").read_text() == "mine"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"weights": 3}', '{"weights": ["a"]}', '{"weights": [3, 2]}', "3", '{"weights": []}']
)
def test_a_file_that_holds_no_scales_is_refused(quantize, text):
    vectors("x.npy", 20, 16)
    Path("b.json").write_text(text)
    done = quantize("encode", "x.npy", "-o", "x.nq", "--betas", "@b.json")
    assert done.code == (2 if text in ('{"weights": [3, 2]}', '{"weights": []}') else 3)
    assert "Traceback" not in done.err
    assert not Path("x.nq").exists()


# --- dot and inspect ---------------------------------------------------------------------------------------------


def test_dot_writes_products_of_what_decode_gives(quantize):
    vectors("x.npy", 40)
    vectors("y.npy", 30, seed=1)
    for name in ("x", "y"):
        assert quantize("encode", f"{name}.npy", "-o", f"{name}.nq").code == 0
        assert quantize("decode", f"{name}.nq", "-o", f"{name}-decoded.npy").code == 0
    done = quantize("dot", "x.nq", "y.nq", "-o", "p.npy", "--json")
    products = np.load("p.npy")
    np.testing.assert_allclose(products, np.load("x-decoded.npy") @ np.load("y-decoded.npy").T, atol=1e-4)
    assert done.report["answer"]["shape"] == [40, 30]
    assert done.report["metrics"]["largest"] == products.max()
    shown = quantize("dot", "x.nq", "x.nq", "--pairs", "--json").report
    assert shown["answer"]["first"] == pytest.approx(np.square(np.load("x-decoded.npy")[:6]).sum(axis=1), rel=1e-5)


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["x.nq", "absent.nq"], 3, "absent.nq"),
        (["x.nq", "cut.nq"], 3, "cut.nq"),
        (["x.nq", "x.npy"], 3, "x.npy"),
        (["x.nq", "wide.nq"], 3, "16 and of 24"),
        (["x.nq", "turned.nq"], 3, "seed 0 and random-hadamard of seed 1"),
        (["x.nq", "long.nq", "--pairs"], 3, "20 rows and 21 rows"),
        (["x.nq", "x.nq", "-o", "mine.npy"], 74, "mine.npy"),
        (["x.nq"], 2, "B.nq"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_dot_says_what_is_wrong(quantize, args, code, says):
    for name, shape, seed in (
        ("x", (20, 16), 0),
        ("wide", (20, 24), 0),
        ("turned", (20, 16), 1),
        ("long", (21, 16), 0),
    ):
        vectors(f"{name}.npy", *shape)
        assert quantize("encode", f"{name}.npy", "-o", f"{name}.nq", "--betas", "ref", "--seed", seed).code == 0
    Path("cut.nq").write_bytes(Path("x.nq").read_bytes()[:-10])
    Path("mine.npy").write_text("mine")
    done = quantize("dot", *args, "--json")
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert Path("mine.npy").read_text() == "mine"


def test_inspect_accounts_for_every_byte_of_a_file(quantize):
    vectors("x.npy", 2000)
    encoded = quantize("encode", "x.npy", "-o", "x.nq", "--q", 13, "--json").report
    report = quantize("inspect", "x.nq", "--json").report
    size = Path("x.nq").stat().st_size
    assert sum(row["bytes"] for row in report["tables"]["bytes"]) == pytest.approx(size, rel=1e-9)
    assert report["params"]["q"] == 13
    assert report["rows"][0]["shape"] == [2000, 96]
    assert report["rows"][0]["relative_mse"] == encoded["metrics"]["relative_mse"]
    assert report["metrics"]["bits_per_value"] == pytest.approx(encoded["metrics"]["bits_per_value"])
    assert sum(row["blocks"] for row in report["tables"]["scales"]) == 2000 * 12
    assert sum(row["share"] for row in report["tables"]["scales"]) == pytest.approx(1)
    assert report["metrics"]["digit_entropy_bits"] == pytest.approx(np.log2(13), abs=0.02)


def test_inspect_accounts_for_every_byte_of_a_packed_directory(quantize, llama):
    make_packed(Path("packed"), llama)
    report = quantize("inspect", "packed", "--json").report
    size = sum(file.stat().st_size for file in Path("packed").glob("*.safetensors"))
    assert sum(row["bytes"] for row in report["tables"]["bytes"]) == pytest.approx(size, rel=1e-9)
    assert report["rows"][0]["tensors"] == len(report["tables"]["tensors"]) == 21
    assert report["rows"][0]["values"] == sum(np.prod(row["shape"]) for row in report["tables"]["tensors"])
    assert quantize("inspect", "packed").code == 0


@pytest.mark.parametrize(
    ("path", "says"),
    [("absent.nq", "absent.nq"), ("x.npy", "x.npy"), ("cut.nq", "cut.nq"), ("void", "void"), ("MODEL", "packed codes")],
)
def test_inspect_refuses_what_holds_no_whole_codes(quantize, llama, path, says):
    vectors("x.npy", 20, 16)
    assert quantize("encode", "x.npy", "-o", "x.nq", "--betas", "ref").code == 0
    Path("cut.nq").write_bytes(Path("x.nq").read_bytes()[:-10])
    Path("void").mkdir()
    done = quantize("inspect", llama if path == "MODEL" else path, "--json")
    assert (done.code, done.out) == (3, "")
    assert says in done.err
    assert "hint: " in done.err or path in ("absent.nq", "void")

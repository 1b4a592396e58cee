"""`icml25 quantize` as a user meets it: a real small run, its report and artefacts, and what stands in its way."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.make_models import make_model

# Windows this short and few keep a run at seconds; the figures that matter are measured elsewhere.
QUICK = ("--window", 64, "--calib-tokens", 1024, "--eval-tokens", 512, "--betas", "ref")


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "llama", hidden_size=64, intermediate_size=128, head_dim=16)


def tree(directory: Path) -> dict[str, bytes]:
    """Every file that must not depend on how a run was interrupted."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and file.name != "report.json"
    }


def test_a_run_reports_every_method_and_writes_both_directories(icml25, llama, tmp_path):
    done = icml25("quantize", llama, *QUICK, "-o", "out", "--json")
    assert done.code == 0, done.err
    report = done.json
    jsonschema.validate(report, json.loads(files("icml25cli.assets").joinpath("report.schema.json").read_text()))
    assert [row["method"] for row in report["rows"]] == ["nestquant", "rtn", "gptq", "float"]
    for row in report["rows"]:
        assert {"perplexity", "perplexity_se", "bits_per_weight", "seconds"} <= row.keys()
        assert row["perplexity"] > 1
        assert row["perplexity_se"] > 0
    main, *baselines, original = report["rows"]
    assert all(baseline["bits_per_weight"] >= main["bits_per_weight"] for baseline in baselines)
    assert original["kl"] == 0
    assert main["kl"] > 0
    assert report["metrics"]["perplexity"] == main["perplexity"]
    assert len(report["tables"]["tensors"]) == 7 * 3
    assert json.loads((tmp_path / "out" / "report.json").read_text())["rows"] == report["rows"]
    assert not (tmp_path / "out" / ".run").exists()


def test_the_bfloat16_directory_is_what_was_judged(icml25, llama, tmp_path):
    icml25("quantize", llama, *QUICK, "-o", "out")
    before = AutoModelForCausalLM.from_pretrained(llama).state_dict()
    after = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "bf16", dtype=torch.bfloat16).state_dict()
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert before.keys() == after.keys()
    changed = {record["tensor"]: record for record in report["tables"]["tensors"]}
    for name, old in before.items():
        new = after[name].float()
        if record := changed.get(name.removesuffix(".weight")):
            relative = float(((new - old) ** 2).sum() / (old**2).sum())
            assert relative == pytest.approx(record["relative_mse"], rel=0.02)  # bfloat16 adds its own rounding
        else:
            assert torch.equal(new, old.bfloat16().float())


def test_packed_codes_decoded_by_another_process_have_the_encoders_error(icml25, llama, tmp_path, environment):
    icml25("quantize", llama, *QUICK, "-o", "out", "--format", "packed")
    script = (
        "import json, sys, torch\nfrom safetensors.torch import load_file\n"
        "from icml25cli.papers.quantize.export import load_packed\n"
        "weights = load_packed(sys.argv[1]).state_dict()\noriginal = load_file(sys.argv[2])\n"
        "names = json.load(open(sys.argv[1] + '/config.json'))['quantization_config']['tensors']\n"
        "print(json.dumps({n: float(((weights[n + '.weight'].double() - original[n + '.weight']) ** 2).sum()\n"
        "    / (original[n + '.weight'].double() ** 2).sum()) for n in names}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "out" / "packed", llama / "model.safetensors"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    measured = json.loads(done.stdout)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert measured.keys() == {record["tensor"] for record in report["tables"]["tensors"]}
    for record in report["tables"]["tensors"]:
        assert measured[record["tensor"]] == pytest.approx(record["relative_mse"], rel=1e-6)


def test_the_rate_is_what_the_files_hold(icml25, llama, tmp_path):
    icml25("quantize", llama, *QUICK, "-o", "out", "--format", "packed")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    names = tuple(f"{record['tensor']}." for record in report["tables"]["tensors"])
    stored = sum(
        tensor.nbytes
        for shard in (tmp_path / "out" / "packed").glob("*.safetensors")
        for name, tensor in load_file(shard).items()
        if name.startswith(names)
    )
    weights = sum(np.prod(record["shape"]) for record in report["tables"]["tensors"])
    rate = report["tables"]["rate"][0]
    # The codebook, four scales, is counted for every tensor and stored once, in config.json.
    assert 8 * stored / weights == pytest.approx(report["rows"][0]["bits_per_weight"] - rate["codebook"], rel=1e-9)
    assert sum(v for k, v in rate.items() if isinstance(v, float) and k != "total") == pytest.approx(rate["total"])


def test_each_rotation_runs_every_method(icml25, llama):
    done = icml25("quantize", llama, *QUICK, "--rotation", "random-hadamard", "--rotation", "none", "--json")
    assert [(row["method"], row["rotation"]) for row in done.json["rows"]] == [
        *[(method, rotation) for rotation in ("random-hadamard", "none") for method in ("nestquant", "rtn", "gptq")],
        ("float", "none"),
    ]


def test_include_and_exclude_choose_tensors(icml25, llama):
    done = icml25("quantize", llama, *QUICK, "--include", "mlp", "--exclude", r"layers\.[12]\.", "--json")
    assert {record["tensor"] for record in done.json["tables"]["tensors"]} == {
        f"model.layers.0.mlp.{name}_proj" for name in ("gate", "up", "down")
    }


@pytest.mark.parametrize("family", ["gpt2", "qwen3", "gemma3", "phi"])
def test_other_families_run(icml25, tmp_path, family):
    make_model(tmp_path / family, family)
    done = icml25("quantize", family, *QUICK, "--json")
    assert done.code == 0, done.err
    assert done.json["rows"][0]["kl"] > 0


def test_a_gate_that_is_not_met_exits_1_with_the_report(icml25):
    coarse = ("--q", 2, "--k", 1, "--betas", "9", "--baseline", "none", "--max-perplexity-increase", 0.05)
    done = icml25("quantize", "tiny", *QUICK, *coarse, "--json")
    assert done.code == 1
    assert done.json["answer"]["status"] == "beyond the gate"
    assert done.json["metrics"]["perplexity_increase"] > 0.05
    assert "--max-perplexity-increase" in done.err


def test_evaluation_text_in_the_calibration_text_is_a_leak(icml25, llama, tmp_path):
    (tmp_path / "text.txt").write_text("It was the best of times, it was the worst of times. " * 100)
    done = icml25("quantize", llama, *QUICK, "--calib", "text.txt", "--eval", "text.txt", "--json")
    assert (done.code, done.out) == (1, "")
    assert "calibration" in done.err


# --- what stands in the way --------------------------------------------------------------------------------------


def copy_of(llama: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", llama, copy], check=True)
    return copy


def spoil_nothing_there(copy: Path) -> None:
    subprocess.run(["rm", "-r", copy], check=True)


def spoil_empty(copy: Path) -> None:
    for file in copy.iterdir():
        file.unlink()


def spoil_truncated(copy: Path) -> None:
    weights = copy / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)


def spoil_shard_missing(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "model-00001-of-00001.safetensors")}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))


def spoil_nan(copy: Path) -> None:
    from safetensors.torch import save_file

    weights = load_file(copy / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 5] = float("nan")
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})


def spoil_pickled(copy: Path) -> None:
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("spoil", "code", "says"),
    [
        (spoil_nothing_there, 3, "copy"),
        (spoil_empty, 3, "copy"),
        (spoil_truncated, 3, "model.safetensors"),
        (spoil_shard_missing, 3, "model-00001-of-00001.safetensors"),
        (spoil_nan, 3, "model.layers.1.mlp.up_proj.weight"),
        (spoil_pickled, 3, "pytorch_model.bin"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_model_that_is_not_whole_is_named(icml25, llama, tmp_path, spoil, code, says):
    copy = copy_of(llama, tmp_path)
    spoil(copy)
    done = icml25("quantize", "./copy", *QUICK, "--json", "-o", "out")
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert "Traceback" not in done.err
    assert not {entry.name for entry in (tmp_path / "out").glob("*")} - {".run"}


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["no-such-model"], 3, "no-such-model"),
        (["llama3-8b"], 4, "llama3-8b"),
        (["MODEL", "--calib", "absent.txt"], 3, "absent.txt"),
        (["MODEL", "--calib", "short.txt"], 3, "short"),
        (["MODEL", "--eval", "latin.txt"], 3, "latin.txt"),
        (["MODEL", "--method", "nestqant"], 2, "nestquant"),
        (["MODEL", "--method", "none"], 2, "--method"),
        (["MODEL", "--method", "rtn", "--format", "packed"], 2, "--format bf16"),
        (["MODEL", "--betas", "4,3"], 2, "4,3"),
        (["MODEL", "--bits", "3"], 2, "--betas gives them"),  # QUICK has --betas ref
        (["MODEL", "--betas", "auto", "--bits", "3", "--k", "4"], 2, "chooses q and k"),
        (["MODEL", "--dry-run", "--resume"], 2, "--dry-run"),
        (["MODEL", "--qa", "full", "--scope", "w+kv"], 2, "--scope w+kv+a"),
        (["MODEL", "--qa", "full", "--scope", "w+kv+a", "--no-ldlq"], 2, "is for LDLQ"),
        (["MODEL", "--q", "99"], 2, "--q"),
        (["MODEL", "--device", "tpu"], 2, "tpu"),
        (["MODEL", "--include", "("], 2, "include"),
        (["MODEL", "--include", "nothing-like-this"], 2, "include"),
        (["MODEL", "--plot", "figure.bmp"], 2, "figure.bmp"),
        (["MODEL", "--resume", "--seed", "77"], 3, "resume"),
        (["MODEL", "-o", "file"], 74, "file"),
        (["MODEL", "-o", "full"], 74, "full"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_argument_gets_one_sentence_and_its_code(icml25, llama, tmp_path, args, code, says):
    (tmp_path / "short.txt").write_text("Too short.")
    (tmp_path / "latin.txt").write_bytes("caf\xe9 ".encode("latin-1") * 500)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    done = icml25("quantize", *QUICK, *[llama if arg == "MODEL" else arg for arg in args], "--json")
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert "hint: " in done.err or code == 2
    assert "Traceback" not in done.err
    assert (tmp_path / "file").read_text() == "mine"
    assert [entry.name for entry in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_a_path_with_brackets_is_a_path(icml25, llama, tmp_path):
    (tmp_path / "model[").mkdir()
    copy_of(llama, tmp_path).rename(tmp_path / "model[" / "]dir")
    done = icml25("quantize", "model[/]dir", *QUICK, "--baseline", "none")
    assert done.code == 0, done.err
    assert "model[/]dir" in done.out


def test_an_existing_output_is_kept_without_force(icml25, llama, tmp_path):
    assert icml25("quantize", llama, *QUICK, "--baseline", "none", "-o", "out").code == 0
    before = tree(tmp_path / "out")
    done = icml25("quantize", llama, *QUICK, "--baseline", "none", "-o", "out", "--seed", 1)
    assert done.code == 74
    assert "--force" in done.err
    assert tree(tmp_path / "out") == before
    assert icml25("quantize", llama, *QUICK, "--baseline", "none", "-o", "out", "--seed", 1, "--force").code == 0
    assert tree(tmp_path / "out") != before


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_a_run_that_is_cut_short_resumes_to_the_same_bytes(program, environment, llama, tmp_path, icml25, how):
    args = ("quantize", llama, *QUICK)
    assert icml25(*args, "-o", "whole").code == 0
    running = subprocess.Popen(
        [program, *map(str, args), "-o", "cut"],
        cwd=tmp_path,
        env=environment | {"ICML25_CACHE_DIR": str(tmp_path / "cache")},
        stderr=subprocess.PIPE,
        text=True,
    )
    first = tmp_path / "cut" / ".run" / "units" / "block-0000"
    while running.poll() is None and not first.exists():
        time.sleep(0.01)  # polling for the unit, not waiting for time to pass
    running.send_signal(how)
    _, err = running.communicate()
    assert running.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[how]
    assert how == signal.SIGKILL or "repeat the command" in err
    assert {entry.name for entry in (tmp_path / "cut").iterdir()} == {".run"}
    done = icml25(*args, "-o", "cut", "--resume", env={"ICML25_CACHE_DIR": str(tmp_path / "cache")})
    assert done.code == 0, done.err
    assert tree(tmp_path / "cut") == tree(tmp_path / "whole")


def test_a_run_of_other_inputs_is_refused(icml25, llama, tmp_path):
    (tmp_path / "out" / ".run" / "units").mkdir(parents=True)
    manifest = {"format": 1, "toolbox": "0.1.0", "inputs": {}, "fingerprints": {"model": "other"}}
    (tmp_path / "out" / ".run" / "manifest.json").write_text(json.dumps(manifest))
    done = icml25("quantize", llama, *QUICK, "-o", "out", "--seed", 5)
    assert done.code == 3
    assert "--fresh" in done.err


def test_encode_then_decode_brings_the_array_back_to_the_reported_error(icml25, tmp_path):
    x = np.random.default_rng(0).standard_normal((500, 96)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    encoded = icml25("quantize", "encode", "x.npy", "-o", "x.nq", "--json").json
    decoded = icml25("quantize", "decode", "x.nq", "-o", "y.npy", "--json")
    assert decoded.code == 0
    y = np.load(tmp_path / "y.npy")
    relative = float(((x - y).astype(np.float64) ** 2).sum() / (x.astype(np.float64) ** 2).sum())
    assert relative == pytest.approx(encoded["metrics"]["relative_mse"], rel=1e-6)
    assert relative < 0.0065  # table 4.2: 0.0060 with scales fitted to a Gaussian
    size = (tmp_path / "x.nq").stat().st_size
    assert 8 * size / x.size == pytest.approx(encoded["metrics"]["bits_per_value"], rel=0.05)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "x.npy"),
        (lambda path: path.write_bytes(b""), "x.npy"),
        (lambda path: path.write_text("not an array"), "x.npy"),
        (lambda path: np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True), "never loaded"),
        (lambda path: np.save(path, np.zeros((2, 8, 8), np.float32)), "(2, 8, 8)"),
        (lambda path: np.save(path, np.full((3, 8), np.nan, np.float32)), "row 0"),
        (lambda path: np.save(path, np.zeros((3, 8), np.int32)), "int32"),
        (lambda path: np.save(path, np.zeros((0, 8), np.float32)), "(0, 8)"),
        (lambda path: np.save(path, np.float32(1)), "()"),
    ],
    ids=["absent", "empty", "text", "pickle", "3-d", "nan", "integers", "no rows", "scalar"],
)
def test_an_array_that_cannot_be_coded_is_refused(icml25, tmp_path, make, says):
    make(tmp_path / "x.npy")
    done = icml25("quantize", "encode", "x.npy", "-o", "x.nq", "--json")
    assert (done.code, done.out) == (3, "")
    assert says in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "x.nq").exists()


def test_codes_that_were_cut_off_are_refused(icml25, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((50, 16), np.float32))
    assert icml25("quantize", "encode", "x.npy", "-o", "x.nq").code == 0
    os.truncate(tmp_path / "x.nq", 200)
    done = icml25("quantize", "decode", "x.nq", "-o", "y.npy")
    assert done.code == 3
    assert "x.nq" in done.err
    assert not (tmp_path / "y.npy").exists()

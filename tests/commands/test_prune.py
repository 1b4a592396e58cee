"""`icml25 prune` as a user meets it: a real small run, its report and artefacts, and what stands in its way.

Most runs are in this process, which has loaded torch; fresh processes load what was written, or are cut short.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from icml25cli.main import main
from icml25cli.papers.prune import load
from tests.conftest import Done
from tests.make_models import make_model

# Windows this short and few keep a run at seconds; the figures that matter are measured elsewhere.
TEXT = ("--window", 32, "--calib-tokens", 512)
JUDGED = (*TEXT, "--eval-tokens", 256)
QUICK = (*JUDGED, "--baseline", "none", "--no-speed")


SHAPE: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16, "max_position_embeddings": 64}


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "llama", **SHAPE)


@pytest.fixture
def icml25(environment, monkeypatch, capsys, tmp_path) -> Callable[..., Done]:
    """Run the program's main function as its console script does."""
    monkeypatch.chdir(tmp_path)
    for name in ("ICML25_CACHE_DIR", "ICML25_THREADS", "HF_HUB_OFFLINE", "TERM"):
        monkeypatch.setenv(name, environment[name])
    capsys.readouterr()

    def run(*args: object) -> Done:
        code = main([str(arg) for arg in args])
        return Done(code, *capsys.readouterr())

    return run


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return {name: x for file in sorted(directory.glob("*.safetensors")) for name, x in load_file(file).items()}


def tree(directory: Path) -> dict[str, bytes]:
    """Every file that must not depend on how a run was interrupted."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and file.name != "report.json"
    }


def tokens() -> torch.Tensor:
    return torch.randint(0, 256, (2, 20), generator=torch.Generator().manual_seed(0))


# --- the main job ------------------------------------------------------------------------------------------------


def test_a_run_reports_every_method_beside_the_dense_model(icml25, llama):
    done = icml25("prune", llama, *JUDGED, "--baseline", "flap", "--baseline", "depth", "--json", "--sample", "Once")
    assert done.code == 0, done.err
    report = done.json
    jsonschema.validate(report, json.loads(files("icml25cli.assets").joinpath("report.schema.json").read_text()))
    assert [row["method"] for row in report["rows"]] == ["slimllm", "flap", "depth", "dense"]
    for row in report["rows"]:
        for name in ("perplexity", "perplexity_se", "parameters", "parameter_share", "prefill_tokens_per_second"):
            assert row[name] > 0
        assert row["seconds"] >= 0
    main, _, _, dense = report["rows"]
    assert main["decoder_share"] == pytest.approx(0.8, abs=0.01)
    assert dense["parameter_share"] == dense["prefill_speedup"] == 1
    assert report["metrics"]["perplexity_increase"] == pytest.approx(main["perplexity"] / dense["perplexity"] - 1)
    assert [row["method"] for row in report["tables"]["differences"]] == ["flap"]  # one of three layers is too many
    assert [row["layer"] for row in report["tables"]["layers"]] == [0, 1, 2]
    assert {row["method"] for row in report["tables"]["samples"]} == {"slimllm", "dense"}
    before, after = (report["tables"]["totals"][i] for i in (1, 0))
    assert after["kv_bytes_per_token"] <= before["kv_bytes_per_token"]
    assert after["decoder_parameters"] < before["decoder_parameters"]


FRESH = """
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True, local_files_only=True)
tokens = torch.randint(0, 256, (2, 20), generator=torch.Generator().manual_seed(0))
torch.save(model(tokens).logits, sys.argv[2])
assert not any(name.startswith("icml25cli") for name in sys.modules)
"""


@torch.no_grad()
def test_what_is_written_is_the_model_that_was_judged(icml25, llama, tmp_path, environment):
    done = icml25("prune", llama, *QUICK, "-o", "out", "--json")
    assert done.code == 0, done.err
    assert not (tmp_path / "out" / ".run").exists()
    assert not list((tmp_path / "out").glob("*.bin"))
    environment |= {"HF_MODULES_CACHE": str(tmp_path / "modules")}
    command = [sys.executable, "-c", FRESH, tmp_path / "out", tmp_path / "logits.pt"]
    subprocess.run(command, env=environment, check=True, cwd=tmp_path, capture_output=True)
    logits = load(tmp_path / "out")(tokens()).logits
    assert torch.equal(torch.load(tmp_path / "logits.pt", weights_only=True), logits)
    zeros = icml25("prune", llama, *QUICK, "--export", "padded", "-o", "padded", "--json").json
    assert sum(x.numel() for x in weights(tmp_path / "padded").values()) == zeros["rows"][0]["parameters"]
    assert any("neither memory nor time" in note for note in zeros["notes"])
    padded: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "padded", local_files_only=True)
    torch.testing.assert_close(padded(tokens()).logits, logits, rtol=0, atol=1e-4)
    judged = icml25("evaluate", "out", "--window", 32, "--tokens", 256, "--json").json
    assert judged["rows"][0]["perplexity"] == pytest.approx(done.json["rows"][0]["perplexity"], rel=1e-5)
    stored = sum(x.numel() for x in weights(tmp_path / "out").values())
    assert stored == done.json["rows"][0]["parameters"]
    assert json.loads((tmp_path / "out" / "report.json").read_text())["rows"] == done.json["rows"]


@torch.no_grad()
def test_equal_widths_load_with_the_stock_class(icml25, llama, tmp_path):
    done = icml25("prune", llama, *QUICK, "--export", "uniform", "--target", 0.4, "-o", "out", "--json")
    assert done.code == 0, done.err
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True)
    assert type(model).__name__ == "LlamaForCausalLM"
    assert len({(layer["heads"], layer["channels"]) for layer in done.json["tables"]["layers"]}) == 1
    assert sum(x.numel() for x in weights(tmp_path / "out").values()) == done.json["rows"][0]["parameters"]
    assert done.json["params"]["export"] == "uniform"
    assert any("every layer loses the same share" in note for note in done.json["notes"])
    judged = icml25("evaluate", "out", "--window", 32, "--tokens", 256, "--json").json
    assert judged["rows"][0]["perplexity"] == pytest.approx(done.json["rows"][0]["perplexity"], rel=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"])
def test_other_families_are_pruned_and_written(icml25, tmp_path, family):
    make_model(tmp_path / family, family)
    done = icml25("prune", family, *QUICK, "--gqa", "expand", "-o", "out", "--json")
    assert done.code == 0, done.err
    judged = icml25("evaluate", "out", "--window", 32, "--tokens", 256, "--json").json
    assert judged["rows"][0]["perplexity"] == pytest.approx(done.json["rows"][0]["perplexity"], rel=1e-4)


def test_a_target_of_nothing_changes_nothing(icml25, llama, tmp_path):
    done = icml25("prune", llama, *QUICK, "--target", 0, "-o", "out", "--json")
    assert done.code == 0, done.err
    before, after = weights(llama), weights(tmp_path / "out")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert done.json["rows"][0]["nll_more"] == 0


def test_pruned_then_quantised_then_evaluated(icml25, llama, tmp_path):
    assert icml25("prune", llama, *QUICK, "-o", "small").code == 0
    quantized = icml25("quantize", "small", *JUDGED, "--betas", "ref", "--baseline", "none", "-o", "four", "--json")
    assert quantized.code == 0, quantized.err
    assert quantized.json["rows"][0]["kl"] > 0
    judged = icml25("evaluate", "small", "four/bf16", "four/packed", "--window", 32, "--tokens", 256, "--json")
    assert judged.code == 0, judged.err
    kl = [row["kl"] for row in judged.json["rows"]]
    assert kl[1] > 0
    assert kl[2] == pytest.approx(kl[1], rel=0.1)


def test_a_dry_run_says_what_it_takes_and_writes_nothing(icml25, llama, tmp_path):
    done = icml25("prune", llama, *JUDGED, "--dry-run", "--json")
    assert done.code == 0, done.err
    assert [row["stage"] for row in done.json["rows"]] == [
        "dense model",
        "pruning by slimllm",
        "pruning by flap",
        "scoring",
    ]
    assert all(done.json["metrics"][name] > 0 for name in ("seconds", "memory_mib", "run_mib", "export_mib"))
    icml25("prune", llama, *QUICK, "-o", "out")
    size = sum(file.stat().st_size for file in (tmp_path / "out").glob("*.safetensors")) / 2**20
    assert done.json["metrics"]["export_mib"] == pytest.approx(size, rel=0.1)


def test_a_gate_that_is_not_met_exits_1_with_the_report_and_the_model(icml25, tmp_path):
    gate = ("--target", 0.5, "--max-perplexity-increase", 0)
    done = icml25("prune", "tiny", *QUICK, *gate, "-o", "out", "--plot", "kept.svg", "--json")
    assert done.code == 1
    assert done.json["answer"]["status"] == "beyond the gate"
    assert done.json["metrics"]["perplexity_increase"] > 0
    assert "--max-perplexity-increase" in done.err
    assert (tmp_path / "out" / "config.json").exists()
    assert not (tmp_path / "out" / ".run").exists()
    assert "share kept" in (tmp_path / "kept.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--protect", "9"), "--protect 9: there is no such layer"),
        (("--protect", "2-1"), "runs backwards"),
        (("--protect", ","), "is no list of layers"),
        (("--target", "0.95"), "out of reach"),
        (("--target", "0.9", "--method", "depth"), "use another --method"),
        (("--target", "0.5", "--multiple-of", "128"), "lower --multiple-of"),
        (("--target", "0.8", "--protect", "0-1"), "--protect fewer layers"),
        (("--sample", ""), "--sample is empty"),
        (("--sample", "", "--no-speed"), "--sample is empty"),
        (("--sample", "word " * 60), "do not fit"),
        (("--multiple-of", "99999999999999999999"), "--multiple-of"),
        (("--seed", "18446744073709551615"), "--seed"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(icml25, llama, tmp_path, words, said):
    done = icml25("prune", llama, *JUDGED, *words, "-o", "out")
    assert done.code == 2
    assert said in done.err
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize("window", [2, 3])
def test_the_speed_of_a_model_with_a_tiny_window_is_measured(icml25, tmp_path, window):
    make_model(tmp_path / "tiny-window", **(SHAPE | {"max_position_embeddings": window}))
    text = tmp_path / "judged.txt"
    text.write_text("".join(map(chr, range(100, 120))))
    other = tmp_path / "calibration.txt"
    other.write_text("".join(map(chr, range(48, 90))))
    words = ("--calib", other, "--eval", text, "--eval-tokens", 8, "--baseline", "none", "--json")
    done = icml25("prune", "tiny-window", *words)
    assert done.code == 0, done.err
    assert done.json["rows"][0]["prefill_tokens_per_second"] > 0


# --- plans -------------------------------------------------------------------------------------------------------


def test_a_plan_applied_is_the_run_and_an_edited_one_is_what_it_says(icml25, llama, tmp_path):
    assert icml25("prune", llama, *QUICK, "-o", "run").code == 0
    planned = icml25("prune", "plan", llama, *TEXT, "-o", "plan.json", "--json")
    assert planned.code == 0, planned.err
    assert [row["layer"] for row in planned.json["rows"]] == [0, 1, 2]
    assert (tmp_path / "plan.json").read_bytes() == (tmp_path / "run" / "plan.json").read_bytes()
    assert icml25("prune", "apply", llama, "plan.json", *JUDGED, "--no-speed", "-o", "applied").code == 0
    assert tree(tmp_path / "applied") == tree(tmp_path / "run")

    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["layers"][1] |= {"heads": [2, 3], "kv": [1], "channels": list(range(0, 128, 4))}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = icml25("prune", "apply", llama, "plan.json", *JUDGED, "--no-speed", "-o", "edited", "--json")
    assert done.code == 0, done.err
    held = weights(tmp_path / "edited")
    assert held["model.layers.1.self_attn.q_proj.weight"].shape == (32, 64)
    assert held["model.layers.1.mlp.down_proj.weight"].shape == (64, 32)
    row = done.json["tables"]["layers"][1]
    assert (row["heads"], row["kept_heads"], row["channels"]) == (2, "2-3", 32)


def test_the_plan_of_another_model_is_refused(icml25, llama, tmp_path):
    icml25("prune", "plan", llama, *TEXT, "-o", "plan.json")
    make_model(tmp_path / "other", **{**SHAPE, "intermediate_size": 120})
    done = icml25("prune", "apply", "./other", "plan.json", *JUDGED, "--no-speed", "-o", "out", "--json")
    assert (done.code, done.out) == (3, "")
    assert "another config.json" in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"heads": [0, 1, 7], "kv": [0]}, "layer 1 of the plan"),
        ({"heads": [], "kv": []}, "keeps no heads"),
        ({"channels": [5, 4]}, "channel 4 after 5"),
        ({"heads": [0, 2, 3], "kv": [0, 1]}, "layer 1 of the plan"),
        ({"heads": "all"}, "layers[1].heads"),
    ],
    ids=["no such head", "no head", "out of order", "uneven groups", "no list"],
)
def test_a_plan_edited_to_nonsense_is_refused_by_layer(icml25, llama, tmp_path, change, says):
    icml25("prune", "plan", llama, *TEXT, "-o", "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["layers"][1] |= change
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = icml25("prune", "apply", llama, "plan.json", *JUDGED, "--json")
    assert (done.code, done.out) == (3, "")
    assert says in done.err
    assert "Traceback" not in done.err


# --- several models ----------------------------------------------------------------------------------------------


def test_compare_has_a_row_for_every_method_at_every_target(icml25, llama, tmp_path):
    methods = ("--method", "slimllm,wanda-sp,random", "--target", "0.2,0.4")
    done = icml25("prune", "compare", llama, *JUDGED, *methods, "--no-speed", "--plot", "cost.svg", "--json")
    assert done.code == 0, done.err
    named = [(row["method"], row["target"]) for row in done.json["rows"]]
    assert named == [*[(m, t) for t in (0.2, 0.4) for m in ("slimllm", "wanda-sp", "random")], ("dense", 0.0)]
    for row in done.json["rows"]:
        assert row["decoder_share"] == pytest.approx(1 - row["target"], abs=0.01)
    against = done.json["tables"]["differences"]
    assert [(row["method"], row["against"]) for row in against] == [("wanda-sp", "slimllm"), ("random", "slimllm")] * 2
    assert "perplexity" in (tmp_path / "cost.svg").read_text()


def test_compare_says_what_is_not_as_large_and_what_is_better(icml25):
    few = ("--calib-tokens", 512, "--eval-tokens", 2048, "--no-speed", "--json")
    done = icml25("prune", "compare", "tiny", "--method", "random,slimllm,depth", "--target", 0.3, *few)
    assert done.code == 0, done.err
    assert [row["method"] for row in done.json["tables"]["differences"]] == ["slimllm"]
    notes = " ".join(done.json["notes"])
    assert "depth comes in large steps: it removed 40.0% of the 30.0% wanted" in notes
    assert "slimllm did better than random" in notes
    assert "depth did better" not in notes


def test_what_has_been_pruned_is_not_pruned_again_but_said_to_be(icml25, llama):
    icml25("prune", llama, *QUICK, "-o", "out")
    done = icml25("prune", "out", *QUICK)
    assert done.code == 3
    assert "out has been pruned already" in done.err
    assert "with a larger --target" in done.err


def test_bench_measures_models_turn_by_turn(icml25, llama):
    icml25("prune", llama, *QUICK, "-o", "out")
    few = ("--prompt", 16, "--continuation", 4, "--turns", 2)
    done = icml25("prune", "bench", llama, "out", *few, "--json")
    assert done.code == 0, done.err
    dense, pruned = done.json["rows"]
    for row in (dense, pruned):
        assert row["prefill_low"] <= row["prefill_tokens_per_second"] <= row["prefill_high"]
        assert row["decode_low"] <= row["decode_tokens_per_second"] <= row["decode_high"]
    assert dense["prefill_speedup"] == dense["decode_speedup"] == 1
    assert pruned["weights_mib"] < dense["weights_mib"]
    assert icml25("prune", "bench", llama, "--prompt", 64).code == 3  # with 32 more tokens than its window holds


def test_tune_writes_a_model_that_knows_the_rows_better(icml25, llama, tmp_path):
    pytest.importorskip("peft")
    icml25("prune", llama, *QUICK, "-o", "out")
    rows = [{"text": f"the {a} sat on the {b}"} for a in ("cat", "dog", "cow", "fox") for b in ("mat", "hat")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    quick = ("--epochs", 8, "--lr", 0.003, "--batch", 4, "--cutoff", 32)
    done = icml25("prune", "tune", "out", "--data", "rows.jsonl", *quick, "-o", "tuned", "--json")
    assert done.code == 0, done.err
    assert [row["method"] for row in done.json["rows"]] == ["tuned", "before"]
    assert done.json["rows"][0]["perplexity"] < done.json["rows"][1]["perplexity"]
    assert done.json["metrics"]["nll_more"] < 0
    assert not (tmp_path / "tuned" / ".run").exists()
    assert {n: x.shape for n, x in weights(tmp_path / "tuned").items()} == {
        n: x.shape for n, x in weights(tmp_path / "out").items()
    }
    assert icml25("evaluate", "tuned", "--window", 32, "--tokens", 256).code == 0


# --- interruptions -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uncut(llama, program, tmp_path_factory) -> Path:
    """What a run writes that nothing interrupts."""
    out = tmp_path_factory.mktemp("uncut") / "out"
    assert main(["prune", str(llama), *map(str, QUICK), "-o", str(out)]) == 0
    return out


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_a_run_that_is_cut_short_resumes_to_the_same_bytes(program, environment, uncut, llama, tmp_path, icml25, how):
    args = ("prune", llama, *QUICK, "-o", "cut")
    running = subprocess.Popen(
        [program, *map(str, args)],
        cwd=tmp_path,
        env=environment | {"ICML25_CACHE_DIR": str(tmp_path / "cache")},
        stderr=subprocess.PIPE,
        text=True,
    )
    first = tmp_path / "cut" / ".run" / "units" / "method-00-0000"
    while running.poll() is None and not first.exists():
        time.sleep(0.01)  # polling for the unit, not waiting for time to pass
    running.send_signal(how)
    _, err = running.communicate()
    assert running.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[how]
    assert how == signal.SIGKILL or "repeat the command" in err
    assert {entry.name for entry in (tmp_path / "cut").iterdir()} == {".run"}
    done = icml25(*args, "--resume")
    assert done.code == 0, done.err
    assert tree(tmp_path / "cut") == tree(uncut)


# --- what stands in the way --------------------------------------------------------------------------------------


def copy_of(llama: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", llama, copy], check=True)
    return copy


def spoil_truncated(copy: Path) -> None:
    os.truncate(copy / "model.safetensors", (copy / "model.safetensors").stat().st_size // 2)


def spoil_shard_missing(copy: Path) -> None:
    held = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": dict.fromkeys(held, "model-00001-of-00001.safetensors")}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))


def spoil_nan(copy: Path) -> None:
    held = load_file(copy / "model.safetensors")
    held["model.layers.1.mlp.up_proj.weight"][3, 5] = float("nan")
    save_file(held, copy / "model.safetensors", metadata={"format": "pt"})


def spoil_overflow(copy: Path) -> None:
    held = load_file(copy / "model.safetensors")
    held["model.layers.1.mlp.up_proj.weight"] *= 1e30
    held["model.layers.1.mlp.gate_proj.weight"] *= 1e30
    save_file(held, copy / "model.safetensors", metadata={"format": "pt"})


def spoil_tokenizer(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (spoil_truncated, "model.safetensors"),
        (spoil_shard_missing, "model-00001-of-00001.safetensors"),
        (spoil_nan, "model.layers.1.mlp.up_proj.weight"),
        (spoil_overflow, "layer 1"),
        (spoil_tokenizer, "tokenizer"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_model_that_is_not_sound_is_named(icml25, llama, tmp_path, spoil, says):
    spoil(copy_of(llama, tmp_path))
    done = icml25("prune", "./copy", *QUICK, "--json", "-o", "out")
    assert (done.code, done.out) == (3, "")
    assert says in done.err
    assert "Traceback" not in done.err
    assert not {entry.name for entry in (tmp_path / "out").glob("*")} - {".run"}


@pytest.mark.parametrize("family", ["phi", "gpt_neox", "bloom"])
def test_another_architecture_is_refused_by_name(icml25, tmp_path, family):
    make_model(tmp_path / "other", family)
    done = icml25("prune", "./other", *QUICK, "--json")
    assert (done.code, done.out) == (3, "")
    assert family in done.err
    assert "llama" in done.err  # the hint lists what is known


def test_a_pruned_model_is_not_pruned_again(icml25, llama):
    icml25("prune", llama, *QUICK, "-o", "out")
    done = icml25("prune", "./out", *QUICK, "--json")
    assert (done.code, done.out) == (3, "")
    assert "pruned" in done.err


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["no-such-model"], 3, "no-such-model"),
        (["llama3-8b"], 4, "llama3-8b"),
        (["MODEL", "--calib", "absent.txt"], 3, "absent.txt"),
        (["MODEL", "--calib", "short.txt"], 3, "short.txt"),
        (["MODEL", "--calib", "empty.txt"], 3, "empty.txt"),
        (["MODEL", "--eval", "latin.txt"], 3, "latin.txt"),
        (["MODEL", "--calib", "long.txt", "--eval", "long.txt"], 1, "calibration"),
        (["MODEL", "--method", "slimlm"], 2, "slimllm"),
        (["MODEL", "--baseline", "wanda"], 2, "wanda-sp"),
        (["MODEL", "--target", "1.5"], 2, "--target"),
        (["MODEL", "--target", "0.95"], 2, "out of reach"),
        (["MODEL", "--layers", "9"], 2, "--layers"),
        (["MODEL", "--protect", "7"], 2, "--protect"),
        (["MODEL", "--protect", "0-2"], 2, "out of reach"),
        (["MODEL", "--protect", "first"], 2, "--protect first"),
        (["MODEL", "--method", "flap", "--search", "greedy"], 2, "--search"),
        (["MODEL", "--export", "uniform", "--protect", "0"], 2, "alike"),
        (["MODEL", "--export", "uniform", "--method", "flap"], 2, "alike"),
        (["MODEL", "--export", "custum"], 2, "custom"),
        (["MODEL", "--device", "tpu"], 2, "tpu"),
        (["MODEL", "--plot", "figure.bmp"], 2, "figure.bmp"),
        (["MODEL", "--resume", "--seed", "77"], 3, "resume"),
        (["MODEL", "-o", "file"], 74, "file"),
        (["MODEL", "-o", "full"], 74, "full"),
        (["apply", "MODEL", "absent.json"], 3, "absent.json"),
        (["apply", "MODEL", "short.txt"], 3, "short.txt is not JSON"),
        (["compare", "MODEL", "--method", "slimllm,wandasp"], 2, "wanda-sp"),
        (["compare", "MODEL", "--target", "0.2,lots"], 2, "lots"),
        (["tune", "MODEL", "--data", "absent.jsonl"], 3, "absent.jsonl"),
        (["bench", "no-such-model"], 3, "no-such-model"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_argument_gets_one_sentence_and_its_code(icml25, llama, tmp_path, args, code, says):
    (tmp_path / "short.txt").write_text("Too short.")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "long.txt").write_text("It was the best of times, it was the worst of times. " * 100)
    (tmp_path / "latin.txt").write_bytes("caf\xe9 ".encode("latin-1") * 500)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    given = [llama if arg == "MODEL" else arg for arg in args]
    quick = {"apply": JUDGED, "compare": JUDGED, "tune": (), "bench": ()}.get(args[0], QUICK)
    done = icml25("prune", *given, *quick, "--json")
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert "hint: " in done.err or code == 2
    assert "Traceback" not in done.err
    assert (tmp_path / "file").read_text() == "mine"
    assert [entry.name for entry in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_an_existing_output_is_kept_without_force(icml25, llama, tmp_path):
    assert icml25("prune", llama, *QUICK, "-o", "out").code == 0
    before = tree(tmp_path / "out")
    done = icml25("prune", llama, *QUICK, "-o", "out", "--target", 0.3)
    assert done.code == 74
    assert "--force" in done.err
    assert tree(tmp_path / "out") == before
    assert icml25("prune", llama, *QUICK, "-o", "out", "--target", 0.3, "--force").code == 0
    assert tree(tmp_path / "out") != before

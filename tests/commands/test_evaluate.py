"""`icml25 evaluate` as a user meets it: plain and packed models beside their original, and what stands in its way.

Only what depends on the program's own process is run in one; the rest calls its main function, which saves the import
of transformers.
"""

import json
import os
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from safetensors.torch import load_file, save_file

from icml25cli.core.models import resolve
from icml25cli.core.runs import commit_output
from icml25cli.main import main
from icml25cli.papers.quantize.export import write_model
from icml25cli.papers.quantize.job import Options, carry_out
from tests.make_models import make_model

QUESTIONS = [
    {"question": "The capital of France is", "choices": ["Paris", "Rome", "Oslo"], "answer": 0},
    {"question": "The capital of Italy is", "choices": ["Paris", "Rome", "Oslo"], "answer": "Rome"},
    {"question": "Two and two?\n", "choices": ["five", "four"], "answer": "B"},
]

TEXT = "It was the best of times, it was the worst of times. " * 8


@pytest.fixture(scope="module")
def quantised(tmp_path_factory):
    """A random model, its 4-bit forms beside it in out/, a text and questions; and the perplexity quantize found."""
    place = tmp_path_factory.mktemp("models")
    os.environ["ICML25_CACHE_DIR"] = str(place / "cache")
    try:
        source = resolve(make_model(place / "llama"))
        options = Options(baselines=(), betas="ref", window=64, calibration_tokens=1024, evaluation_tokens=512)
        with carry_out(source, options) as job, commit_output(place / "out") as directory:
            write_model(job, directory, ("bf16", "packed"))
            perplexity = job.judged[-1].score.perplexity
    finally:
        del os.environ["ICML25_CACHE_DIR"]
    (place / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS))
    (place / "text.txt").write_text(TEXT)
    (place / "letter.txt").write_text("x")
    spoil(place)
    return place, perplexity


def spoil(place: Path) -> None:
    """A model with a weight that is NaN, one without tokenizer, and packed codes without some of their scales."""
    shutil.copytree(place / "llama", place / "broken")
    weights = load_file(place / "broken" / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 5] = float("nan")
    save_file(weights, place / "broken" / "model.safetensors", metadata={"format": "pt"})
    shutil.copytree(place / "llama", place / "mute", ignore=shutil.ignore_patterns("tokenizer*"))
    shutil.copytree(place / "out" / "packed", place / "damaged")
    index = place / "damaged" / "model.safetensors.index.json"
    kept = {k: v for k, v in json.loads(index.read_text())["weight_map"].items() if not k.endswith("up_proj.scales")}
    index.write_text(json.dumps({"metadata": {}, "weight_map": kept}))


@pytest.fixture
def evaluate(quantised, tmp_path, monkeypatch, capsys):
    """Run `icml25 evaluate` in this process, in a folder with the model; its code, output and error output."""
    for file in quantised[0].iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ICML25_THREADS", "1")
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path / "cache-of-this-test"))

    def run(*args: object) -> tuple[int, str, str]:
        code = main(["evaluate", *map(str, args)])
        return (code, *capsys.readouterr())

    return run


def test_packed_and_plain_codes_stand_beside_their_original(icml25, quantised, tmp_path):
    place, _ = quantised
    for file in place.iterdir():
        (tmp_path / file.name).symlink_to(file)
    args = ["llama", "out/bf16", "out/packed", "--text", "-", "--choices", "questions.jsonl", "--window", 64]
    done = icml25("evaluate", *args, "--stride", 48, "--json", input=TEXT)
    assert (done.code, done.err) == (0, "")
    report = done.json
    jsonschema.validate(report, json.loads(files("icml25cli.assets").joinpath("report.schema.json").read_text()))
    original, plain, packed = report["rows"]
    assert [row["model"] for row in report["rows"]] == ["llama", "out/bf16", "out/packed"]
    assert original["kl"] == original["nll_more"] == 0
    assert plain["kl"] == pytest.approx(packed["kl"], rel=0.05)  # bfloat16 rounds what the codes say exactly
    assert packed["kl"] > 1e-3
    assert packed["perplexity"] == pytest.approx(plain["perplexity"], rel=2e-3)
    assert {"perplexity_se", "bits_per_byte", "nll_more_se", "kl_se", "seconds"} <= packed.keys()
    assert all(row["tokens"] == len(TEXT) - 1 for row in report["rows"])  # bytes, all but the first
    assert all(row["questions"] == 3 and 0 <= row["accuracy"] <= 1 for row in report["rows"])
    assert report["params"]["text"] == "standard input"
    assert report["metrics"]["perplexity"] == original["perplexity"]
    assert report["params"]["accuracy_by_chance"] == pytest.approx((1 / 3 + 1 / 3 + 1 / 2) / 3)
    assert [row["model"] for row in report["tables"]["answers_paired_with_the_first"]] == ["out/bf16", "out/packed"]


def test_a_reader_that_leaves_is_141_and_silent(program, environment, quantised):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [program, "evaluate", "llama", "--text", "text.txt"],
        cwd=quantised[0],
        env=environment,
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_same_text_gives_the_perplexity_that_quantize_reports(evaluate, quantised):
    code, out, _ = evaluate("llama", "--window", 64, "--tokens", 512, "--json")
    report = json.loads(out)
    assert code == 0
    assert report["rows"][0]["perplexity"] == pytest.approx(quantised[1].mean, rel=1e-5)
    assert report["rows"][0]["perplexity_se"] == pytest.approx(quantised[1].standard_error, rel=1e-4)
    assert "kl" not in report["rows"][0]
    assert report["params"]["text"].endswith("test part, first 512 tokens")


def test_questions_alone_leave_perplexity_out_and_a_person_gets_a_table(evaluate):
    code, out, _ = evaluate("llama", "--choices", "questions.jsonl")
    assert code == 0
    assert "accuracy" in out
    assert "perplexity" not in out
    assert "\x1b" not in out


def test_a_window_longer_than_the_model_is_shortened_and_said(evaluate):
    code, out, _ = evaluate("llama", "--text", "text.txt", "--json")
    report = json.loads(out)
    assert code == 0
    assert (report["params"]["window"], report["params"]["stride"]) == (128, 128)
    assert "Windows are of 128 tokens, the most that llama reads." in report["notes"]


def test_nothing_at_all_shows_help(evaluate):
    code, out, err = evaluate()
    assert (code, err) == (0, "")
    assert "--choices" in out


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["no-such-model"], 3, "no-such-model"),
        (["llama", "no-such-model"], 3, "no-such-model"),
        (["llama", "--text", ""], 3, "text"),
        (["llama", "--text", "absent.txt"], 3, "absent.txt"),
        (["llama", "--text", "sotu"], 4, "icml25 assets fetch sotu"),
        (["llama", "--text", "smollm2-135m"], 3, "smollm2-135m is no text but model"),
        (["llama", "--text", "letter.txt"], 3, "a text of 1 tokens"),
        (["llama", "--choices", "absent.jsonl"], 3, "absent.jsonl"),
        (["llama", "--choices", "text.txt"], 3, "text.txt, line 1 is not JSON"),
        (["llama", "--text", "text.txt", "--window", "64", "--stride", "65"], 2, "a stride of 65"),
        (["llama", "--text", "text.txt", "--device", "tpu"], 2, "tpu"),
        (["broken", "--text", "text.txt"], 3, "broken: tensor model.layers.1.mlp.up_proj.weight"),
        (["llama", "mute", "--text", "text.txt"], 3, "mute has no tokenizer"),
        (["llama", "damaged", "--text", "text.txt"], 3, "damaged"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_judged_is_one_sentence_with_its_code(evaluate, args, code, says):
    found, out, err = evaluate(*args, "--json")
    assert (found, out) == (code, ""), err
    assert says in err
    assert "Traceback" not in err


def field(*path: str, value: object):
    """A fault that gives a field of config.json another value, or takes it away where the value is ``...``."""

    def edit(config: dict, _: dict) -> None:
        for name in path[:-1]:
            config = config[name]
        if value is ...:
            del config[path[-1]]
        else:
            config[path[-1]] = value

    return edit


def tensor(part: str, change):
    """A fault that changes a tensor of the first matrix of the second block, or takes it away where that gives None."""

    def edit(_: dict, tensors: dict) -> None:
        changed = change(tensors.pop(f"{MATRIX}.{part}"))
        if changed is not None:
            tensors[f"{MATRIX}.{part}"] = changed

    return edit


MATRIX = "model.layers.1.self_attn.q_proj"
QUANTIZATION = "quantization_config"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (field("num_hidden_layers", value=4), "lacks the tensor model.layers.3."),
        (field("hidden_size", value=2**30), "config.json asks for"),
        (field("num_attention_heads", value=0), "config.json"),
        (field("hidden_act", value="none"), "none"),
        (field(QUANTIZATION, "format", value=...), "config.json: the field format is missing"),
        (field(QUANTIZATION, "format", value="icml25/nq/99"), "codes of another format"),
        (field(QUANTIZATION, "epsilon", value=[]), "codes of another format"),
        (field(QUANTIZATION, "epsilon", value=None), "the field epsilon is"),
        (field(QUANTIZATION, "method", value=...), "the field method is missing"),
        (field(QUANTIZATION, "method", "q", value="14"), "the field q is"),
        (field(QUANTIZATION, "method", "q", value=13), "out of range"),
        (field(QUANTIZATION, "method", "q", value=10**30), "is outside 2..256"),
        (field(QUANTIZATION, "method", "betas", value=[0.3, "0.4"]), "the field betas[1] is"),
        (field(QUANTIZATION, "method", "betas", value=[1e999]), "scale inf is not a positive number"),
        (field(QUANTIZATION, "method", "betas", value=[]), "0 scales were given"),
        (field(QUANTIZATION, "rotation", value=3), "the field rotation is"),
        (field(QUANTIZATION, "rotation", "kind", value="spin"), "there is no rotation 'spin'"),
        (field(QUANTIZATION, "rotation", "seed", value=-1), "a seed of at least 0"),
        (field(QUANTIZATION, "rotation", "seed", value=1e999), "the field rotation.seed is"),
        (field(QUANTIZATION, "tensors", value=[]), "the field tensors is"),
        (field(QUANTIZATION, "tensors", value={}), "does not describe the codes of model.layers.0."),
        (
            field(QUANTIZATION, "tensors", "more", value={"width": 8, "transposed": False}),
            "the model has no matrix more",
        ),
        (field(QUANTIZATION, "tensors", MATRIX, value=...), f"does not describe the codes of {MATRIX}"),
        (field(QUANTIZATION, "tensors", MATRIX, value=8), f"the field tensors.{MATRIX} is"),
        (
            field(QUANTIZATION, "tensors", MATRIX, "width", value=10**15),
            f"{MATRIX} is described with 1000000000000000 inputs",
        ),
        (field(QUANTIZATION, "tensors", MATRIX, "transposed", value="no"), "transposed is"),
        (tensor("scales", lambda _: None), f"{MATRIX}.scales is missing"),
        (tensor("scales", lambda x: x[:-1].clone()), f"{MATRIX}.scales is F16 of shape [31], not F16 of shape [32]"),
        (tensor("scales", lambda x: x[:, None].clone()), f"{MATRIX}.scales is F16 of shape [32, 1]"),
        (tensor("scales", lambda x: x.int()), f"{MATRIX}.scales is I32"),
        (tensor("scales", lambda x: x * float("inf")), f"{MATRIX}: a row scale is not finite"),
        (tensor("codes", lambda _: None), f"{MATRIX}.codes is missing"),
        (tensor("codes", lambda x: x.float()), f"{MATRIX}.codes is F32"),
        (tensor("codes", lambda x: x[:, :-1].clone()), MATRIX),
        (tensor("codes_high", lambda x: x | 255), f"{MATRIX}: the code of row 0, block 1 is out of range"),
    ],
)
def test_packed_codes_that_do_not_fit_their_description_are_one_sentence(evaluate, quantised, tmp_path, fault, says):
    packed = quantised[0] / "out" / "packed"
    config = json.loads((packed / "config.json").read_text())
    tensors = {name: x for file in packed.glob("*.safetensors") for name, x in load_file(file).items()}
    fault(config, tensors)
    (tmp_path / "bad").mkdir()
    for file in packed.glob("tokenizer*"):
        shutil.copy(file, tmp_path / "bad")
    (tmp_path / "bad" / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "bad" / "model.safetensors")
    code, out, err = evaluate("bad", "--text", "text.txt")
    assert (code, out) == (3, ""), err
    assert says in err
    assert "Traceback" not in err


def test_a_path_with_brackets_is_a_path(evaluate, quantised, tmp_path):
    (tmp_path / "model[").mkdir()
    (tmp_path / "model[" / "]dir").symlink_to(quantised[0] / "llama")
    code, out, _ = evaluate("model[/]dir", "--text", "text.txt")
    assert code == 0
    assert "model[/]dir" in out

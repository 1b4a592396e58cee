"""`icml25 sae` as a user meets it: every verb on a small autoencoder, a training that is killed, and bad input."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import sparse

from icml25cli.main import main
from icml25cli.papers.sae.synthetic import dictionary
from tests.conftest import Done

D, N, ROWS = 16, 32, 1200
QUICK = ("--expansion", N / D, "--levels", "2,4,8,16,32", "--k", 3, "--epochs", 3, "--batch", 128, "--ks", "2,3,32")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Embeddings, labels of whether atom 0 is in a row, and the atoms as a vocabulary."""
    folder = tmp_path_factory.mktemp("data")
    made = dictionary(ROWS, D, N)
    np.save(folder / "x.npy", made.rows)
    np.save(folder / "atoms.npy", made.atoms)
    (folder / "words.txt").write_text("".join(f"atom {i}\n" for i in range(N)))
    labels = (made.used == 0).any(axis=1)
    (folder / "y.csv").write_text("label\n" + "".join("with\n" if y else "lacking\n" for y in labels))
    return folder


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


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("sae") / "out"
    args = ["sae", "train", data / "x.npy", *QUICK, "--epochs", 20, "--lr", "2e-3", "-o", out, "--threads", 1]
    assert main([str(arg) for arg in args]) == 0
    return out


# --- the main job ------------------------------------------------------------------------------------------------


def test_a_run_compares_methods_at_every_k(icml25, data, tmp_path):
    baselines = ("topk", "batchtopk", "relu", "jumprelu", "prefix-matryoshka", "msae-rw")
    others = [word for name in baselines for word in ("--baseline", name)]
    done = icml25("sae", data / "x.npy", *QUICK, *others, "-o", "out", "--json", "--plot", "p.svg")
    assert done.code == 0, done.err
    report = done.json
    jsonschema.validate(report, json.loads(files("icml25cli.assets").joinpath("report.schema.json").read_text()))
    rows = report["rows"]
    assert [row["method"] for row in rows[::3]][:2] == ["msae-uw", "topk"]
    assert {row["method"] for row in rows} == {"msae-uw", *baselines}
    for row in rows:
        assert {"method", "k", "fvu", "fvu_row", "cosine", "l0", "cknna", "dead_share", "seconds"} <= row.keys()
        assert row["l0"] <= row["k"] or row["code"] == "threshold"
    assert [row["code"] for row in rows if row["method"] == "batchtopk"] == ["topk", "topk", "full", "threshold"]
    norms = np.linalg.norm(load_file(tmp_path / "out" / "sae.safetensors")["W_dec"], axis=1)
    assert np.abs(norms - 1).max() < 1e-5
    assert {f.name for f in (tmp_path / "out").iterdir()} >= {"cfg.json", "train.jsonl", "pareto.svg", "report.json"}
    assert json.loads((tmp_path / "out" / "report.json").read_text())["rows"] == rows
    assert not (tmp_path / "out" / ".run").exists()


def test_a_killed_training_resumes_to_the_bit(program, environment, data, tmp_path):
    def command(out: str, *more: str) -> list[str]:
        args = ["sae", "train", data / "x.npy", *QUICK, "--epochs", 60, "-o", out, "--json", *more]
        return [program, *map(str, args)]

    options = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True}
    whole = subprocess.run(command("whole"), check=True, **options)
    killed = subprocess.Popen(command("cut"), env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL)
    checkpoint = tmp_path / "cut" / ".run" / "units" / "msae-uw.safetensors"
    while killed.poll() is None and not checkpoint.exists():
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    resumed = subprocess.run(command("cut", "--resume"), check=True, **options)
    files_of = [
        {f.name: f.read_bytes() for f in (tmp_path / name).iterdir() if f.name != "report.json"}
        for name in ("whole", "cut")
    ]
    assert files_of[0] == files_of[1]
    rows = [[{**row, "seconds": 0} for row in json.loads(done.stdout)["rows"]] for done in (whole, resumed)]
    assert rows[0] == rows[1]


def test_an_interrupted_training_goes_on(icml25, data, tmp_path, monkeypatch):
    """Ctrl-C in the middle of an epoch: optimiser, rows still to come and all are in the checkpoint."""
    from icml25cli.papers.sae import training

    command = ("sae", "train", data / "x.npy", *QUICK, "--threads", 1, "--json")
    whole = icml25(*command, "-o", "whole")
    taken, step = [], training.step

    def cut(*given):
        taken.append(given)
        if len(taken) == 14:
            raise KeyboardInterrupt
        return step(*given)

    monkeypatch.setattr(training, "step", cut)
    done = icml25(*command, "-o", "cut")
    assert (done.code, done.out) == (130, "")
    assert "--resume" in done.err
    resumed = icml25(*command, "-o", "cut", "--resume")
    assert len(taken) == 1 + whole.json["tables"]["models"][0]["steps"]  # none but the one cut was taken twice
    for name in ("sae.safetensors", "train.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
    assert [row["fvu"] for row in resumed.json["rows"]] == [row["fvu"] for row in whole.json["rows"]]


# --- codes -------------------------------------------------------------------------------------------------------


def test_codes_keep_the_order_of_rows(icml25, data, trained, tmp_path):
    x = np.load(data / "x.npy")
    order = np.random.default_rng(0).permutation(len(x))
    np.save(tmp_path / "turned.npy", x[order])
    codes = []
    for i, (file, batch, threads) in enumerate(
        ((data / "x.npy", 1024, 1), (data / "x.npy", 7, 2), (tmp_path / "turned.npy", 100, 2))
    ):
        done = icml25(
            "sae", "encode", trained, file, "-o", f"{i}.npz", "--k", 4, "--batch", batch, "--threads", threads
        )
        assert done.code == 0, done.err
        codes.append(sparse.load_npz(tmp_path / f"{i}.npz").toarray())
    assert ((codes[0] > 0).sum(axis=1) <= 4).all()
    np.testing.assert_allclose(codes[1], codes[0], atol=1e-5)
    np.testing.assert_allclose(codes[2], codes[0][order], atol=1e-5)


def test_decoding_is_what_the_evaluation_judges(icml25, data, trained, tmp_path):
    assert icml25("sae", "encode", trained, data / "x.npy", "-o", "c.npz", "--k", 3).code == 0
    assert icml25("sae", "decode", trained, "c.npz", "-o", "back.npy").code == 0
    x, back = np.load(data / "x.npy").astype(np.float64), np.load(tmp_path / "back.npy")
    row = icml25("sae", "eval", trained, data / "x.npy", "--ks", 3, "--json").json["rows"][0]
    fvu = np.square(x - back).sum() / np.square(x - x.mean(axis=0)).sum()
    assert row["fvu"] == pytest.approx(fvu, rel=1e-5)
    assert row["mse"] == pytest.approx(np.square(x - back).mean(), rel=1e-5)
    assert row["fvu_row"] == pytest.approx((np.var(x - back, axis=1) / np.var(x, axis=1)).mean(), rel=1e-5)
    cosine = (x * back).sum(axis=1) / np.linalg.norm(x, axis=1) / np.linalg.norm(back, axis=1)
    assert row["cosine"] == pytest.approx(cosine.mean(), rel=1e-5)
    assert row["nmae"] == pytest.approx((np.abs(x - back).mean(axis=1) / np.abs(x).mean(axis=1)).mean(), rel=1e-5)


def test_a_probe_reads_the_same_from_better_codes(icml25, data, trained):
    done = icml25("sae", "eval", trained, data / "x.npy", "--labels", data / "y.csv", "--ks", "1,32", "--json")
    assert done.code == 0, done.err
    few, full = done.json["tables"]["probe"]
    assert 0 <= full["kl"] < few["kl"]
    assert full["agreement"] >= few["agreement"]


def test_another_modality_is_warned_of(icml25, data, trained, tmp_path):
    np.save(tmp_path / "far.npy", np.load(data / "x.npy") + 1)
    done = icml25("sae", "eval", trained, "far.npy", "--ks", 3, "--json")
    assert any("--center-as self" in text for text in done.json["warnings"])
    own = icml25("sae", "eval", trained, "far.npy", "--ks", 3, "--center-as", "self", "--json").json
    assert not own["warnings"]
    assert own["rows"][0]["fvu"] < done.json["rows"][0]["fvu"]


# --- concepts ----------------------------------------------------------------------------------------------------


def test_names_steering_search_and_audit(icml25, data, trained, tmp_path):
    vocabulary = ("--vocab-emb", data / "atoms.npy", "--vocab", data / "words.txt")
    page = ("--html", "p.html", "--items", data / "x.npy")
    done = icml25("sae", "name", trained, *vocabulary, *page, "-o", "names.csv", "--json")
    assert done.code == 0, done.err
    named = done.json["rows"]
    assert sorted(row["latent"] for row in named) == list(range(N))
    best = max(named, key=lambda row: row["similarity"])
    assert best["similarity"] > 0.7
    assert '"latent": ' in (tmp_path / "p.html").read_text()

    concept = ("--names", "names.csv")
    done = icml25("sae", "steer", trained, data / "x.npy", *concept, "--set", f"{best['name']}=0", "-o", "off.npy")
    assert done.code == 0, done.err
    x, off = np.load(data / "x.npy"), np.load(tmp_path / "off.npy")
    assert icml25("sae", "encode", trained, data / "x.npy", "-o", "z.npz").code == 0
    z = sparse.load_npz(tmp_path / "z.npz").toarray()[:, best["latent"]]
    np.testing.assert_array_equal(off[z == 0], x[z == 0])
    W = load_file(trained / "sae.safetensors")["W_dec"][best["latent"]]
    scale = json.loads((trained / "cfg.json").read_text())["scale"]
    np.testing.assert_allclose(x - off, z[:, None] * W / scale, atol=1e-5)

    done = icml25("sae", "search", trained, data / "x.npy", "--query", data / "x.npy", "--top", 1, "--json")
    assert [row["row"] for row in done.json["rows"]] == list(range(ROWS))
    asked = ("--concepts", best["name"], *concept, "--top", 3)
    np.save("q.npy", x[z.argmax()][None])
    found = icml25("sae", "search", trained, data / "x.npy", "--query", "q.npy", *asked, "--json").json["rows"]
    assert [row["row"] for row in found] == np.argsort(-z, kind="stable")[:3].tolist()  # all have it: the most first
    np.save("none.npy", x[z == 0][:1])
    done = icml25("sae", "search", trained, data / "x.npy", "--query", "none.npy", *asked)
    assert "query 0 has none of these concepts" in done.err
    up = ("--set", f"{best['name']}+9", *concept, "--top", 3, "--json")
    raised = icml25("sae", "search", trained, data / "x.npy", "--query", "q.npy", *up).json["rows"]
    np.save("z0.npy", x[z.argmax()][None] + 9 * z.std() * W / scale)
    plain = icml25("sae", "search", trained, data / "x.npy", "--query", "z0.npy", "--top", 3, "--json").json["rows"]
    assert raised == [{**row, "similarity": pytest.approx(row["similarity"], abs=1e-5)} for row in plain]

    done = icml25("sae", "audit", trained, data / "x.npy", "--labels", data / "y.csv", "--all", *concept, "--json")
    assert done.code == 0, done.err
    first = done.json["rows"][0]
    assert first["p_adjusted"] < 1e-4
    assert first["to_zero_low"] <= first["to_zero"] <= first["to_zero_high"]
    some = icml25("sae", "audit", trained, data / "x.npy", "--labels", data / "y.csv", *concept, "--json").json
    left = len(done.json["rows"]) - len(some["rows"])
    assert f"{left} latents without a valid name are left out; --all takes them, too." in some["notes"]


def test_a_name_says_which_test_it_failed_and_is_warned_of_in_use(icml25, data, trained, tmp_path):
    vocabulary = ("--vocab-emb", data / "atoms.npy", "--vocab", data / "words.txt")
    for given, failed in (
        (("--min-similarity", 2, "--min-ratio", 0), "similarity"),
        (("--min-similarity", 0, "--min-ratio", 1e9), "ratio"),
        (("--min-similarity", 2, "--min-ratio", 1e9), "similarity and ratio"),
    ):
        done = icml25("sae", "name", trained, *vocabulary, *given, "--force", "-o", "names.csv", "--json")
        named = done.json["rows"]
        assert {(row["valid"], row["failed"]) for row in named} == {(False, failed)}
        (told,) = (note for note in done.json["notes"] if note.startswith(f"Of {N} names "))
        assert (f"{N} have a similarity below 2 " in told) == ("similarity" in failed)
        assert (f"{N} have a ratio to the next latent below 1e+09" in told) == ("ratio" in failed)
    concept = ("--names", "names.csv")
    used = f"{named[0]['name']}: this name of latent "
    steered = icml25(
        "sae", "steer", trained, data / "x.npy", *concept, "--set", f"{named[0]['name']}=0", "-o", "off.npy"
    )
    assert (steered.code, steered.err.count(used)) == (0, 1)
    asked = ("--query", data / "x.npy", "--concepts", named[0]["name"], *concept, "--top", 1, "--json")
    warnings = icml25("sae", "search", trained, data / "x.npy", *asked).json["warnings"]
    (warned,) = (each for each in warnings if each.startswith(used))
    assert "did not pass the test against chance" in warned

    sure = ("--min-similarity", 0, "--min-ratio", 0, "--force", "-o", "names.csv", "--json")
    done = icml25("sae", "name", trained, *vocabulary, *sure)
    assert {(row["valid"], row["failed"]) for row in done.json["rows"]} == {(True, "")}
    assert not any("ratio to the next" in note for note in done.json["notes"])
    assert not any(used in each for each in icml25("sae", "search", trained, data / "x.npy", *asked).json["warnings"])


def test_too_few_steps_are_told_with_a_batch_that_makes_enough(icml25, data):
    def warnings(*given):
        done = icml25("sae", "train", data / "x.npy", *QUICK, "--baseline", "none", *given, "--json")
        (model,) = done.json["tables"]["models"]
        return model["steps"], [each for each in done.json["warnings"] if "steps in all" in each]

    steps, (told,) = warnings("--batch", 4096, "--epochs", 30)
    assert steps == 30
    assert told.startswith("training is 30 steps in all (1 batch of at most 4096 rows an epoch, epochs 30)")
    ((batch, promised),) = re.findall(r"--batch (\d+) makes ([\d,]+)", told)
    steps, told = warnings("--batch", batch, "--epochs", 30)
    assert steps == int(promised.replace(",", "")) >= 300
    assert told == []


def test_run_and_train_say_how_they_differ(icml25):
    said = " ".join(icml25("sae", "train", "--help").out.split())
    assert "without a baseline" in said
    assert "without a baseline" not in " ".join(icml25("sae", "run", "--help").out.split())


def test_a_model_matches_itself(icml25, trained):
    row = icml25("sae", "stability", trained, trained, "--json").json["rows"][0]
    assert row["decoder"] == pytest.approx(1, abs=1e-6)
    assert row["encoder"] == pytest.approx(1, abs=1e-6)


def test_hidden_states_are_collected(icml25, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "one two three"}\n{"text": "four"}\n')
    for pool, rows in (("mean", 2), ("last", 2), ("tokens", None)):
        done = icml25("sae", "collect", "tiny", "t.jsonl", "--layer", 1, "--pool", pool, "-o", f"{pool}.npy", "--json")
        assert done.code == 0, done.err
        x = np.load(tmp_path / f"{pool}.npy")
        assert len(x) == (rows or done.json["metrics"]["rows"]) > 1
        assert np.isfinite(x).all()
    np.testing.assert_allclose(np.load("last.npy")[-1], np.load("tokens.npy")[-1], rtol=1e-4, atol=1e-5)


def test_the_demonstration_finds_atoms(icml25):
    report = icml25("sae", "demo", "--epochs", 4, "--json").json
    assert [row["method"] for row in report["tables"]["recovery"]] == [
        "msae-uw",
        "msae-rw",
        "topk",
        "batchtopk",
        "relu",
    ]
    assert report["metrics"]["atom_cosine"] > 0.5


@pytest.mark.assets
def test_captions_of_stamps_show_what_they_are_about(icml25, fetched_cache, monkeypatch, tmp_path):
    """README's example: most of the names that are valid stand in the caption where the concept is strongest."""
    monkeypatch.setenv("ICML25_CACHE_DIR", str(fetched_cache))
    done = icml25("align", "stamps", "-o", "stamps")
    if done.code == 4:
        pytest.skip(done.err)
    rows, words = "stamps/captions.npz:x", ("--vocab-emb", "stamps/words.npy", "--vocab", "stamps/words.txt")
    shape = ("--expansion", 0.5, "--levels", "4,8,16,32,64,192", "--epochs", 150, "--batch", 64, "--val", 0.1)
    done = icml25("sae", "train", rows, *shape, "--ks", "8,192", "-o", "captions", "--json")
    assert done.code == 0, done.err
    assert done.json["rows"][-1]["fvu"] < done.json["rows"][0]["fvu"] < 0.7
    shown = ("--html", "p.html", "--items", rows, "--item-texts", "stamps/captions.txt")
    assert icml25("sae", "name", "captions", *words, *shown, "-o", "captions/names.csv").code == 0
    page = (tmp_path / "p.html").read_text()
    concepts = json.loads(page.split('id="concepts">')[1].split("</script>")[0])
    valid = [(c["name"], c["top"][0][2].lower()) for c in concepts if c["valid"]]
    assert len(valid) >= 8
    assert sum(name in caption for name, caption in valid) > len(valid) / 2, valid


# --- bad input ---------------------------------------------------------------------------------------------------


def test_bad_rows_are_named_and_can_be_left_out(icml25, data, tmp_path):
    x = np.load(data / "x.npy")
    x[5, 3], x[17, 0] = np.nan, np.inf
    np.save("bad.npy", x)
    done = icml25("sae", "train", "bad.npy", *QUICK, "--json")
    assert (done.code, done.out) == (3, "")
    assert "2 of 1200 rows hold NaN or infinity: 5, 17" in done.err
    assert icml25("sae", "train", "bad.npy", *QUICK, "--drop-bad", "--json").json["params"]["training_rows"] == 1138


def test_what_may_mislead_is_said(icml25, data, tmp_path):
    x = np.load(data / "x.npy")
    one = ("--baseline", "none", "--epochs", 1, "--json")
    np.save("few.npy", x[:30])
    warnings = icml25("sae", "train", "few.npy", *QUICK, "--val", 0.2, *one).json["warnings"]
    assert any("24 training rows are fewer than 32 latents" in text for text in warnings)

    odd = x.copy()
    odd[:, 5], odd[7], odd[9:12] = 1, 1, odd[8]
    np.save("odd.npy", odd)
    done = icml25("sae", "train", "odd.npy", *QUICK, *one)
    for says in ("1 rows are of one value", "1 columns are of one value", "3 rows repeat an earlier one"):
        assert any(says in text for text in done.json["warnings"]), says
    assert all(0 < row["fvu_row"] < 10 for row in done.json["rows"])

    # 60,000 fits in half precision, its square does not.
    np.save("half.npy", (x / np.abs(x).max() * 60_000).astype(np.float16))
    np.save("single.npy", np.load("half.npy").astype(np.float32))
    half, single = (icml25("sae", "train", f"{name}.npy", *QUICK, *one).json["rows"] for name in ("half", "single"))
    assert [row["fvu"] for row in half] == [row["fvu"] for row in single]
    assert all(0 < row["fvu"] < 2 for row in half)


def test_a_file_cut_short_names_the_bytes_it_should_have(icml25, data, tmp_path):
    whole = (data / "x.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-100])
    done = icml25("sae", "train", "cut.npy")
    assert (done.code, done.out) == (3, "")
    assert f"cut.npy is cut short: {len(whole) - 100} bytes where {len(whole)} are expected" in done.err


def test_what_cannot_be_is_refused_in_a_sentence(icml25, data, trained, tmp_path):
    np.save("narrow.npy", np.ones((40, 3), np.float32) * np.arange(40)[:, None])
    (tmp_path / "short.txt").write_text("one\n")
    x = data / "x.npy"
    words = ("--vocab-emb", data / "atoms.npy", "--vocab", data / "words.txt")
    for code, says, *args in (
        (3, "has 3 columns, the model was trained on 16", "encode", trained, "narrow.npy", "-o", "a.npz"),
        (3, "k = 33 is more than the 32 latents", "encode", trained, x, "-o", "a.npz", "--k", 33),
        (3, "short.txt has 1 lines", "name", trained, "--vocab-emb", data / "atoms.npy", "--vocab", "short.txt"),
        (3, "do not lie in 1 to 32", "train", x, "--expansion", 2, "--levels", "4,64"),
        (3, "no latent is called snow", "steer", trained, x, "--set", "snow=1", "-o", "a.npy"),
        (3, "is no change of a concept", "steer", trained, x, "--set", "snow", "-o", "a.npy"),
        (3, "the change is above", "steer", trained, x, "--set", "3=1e39", "-o", "a.npy"),
        (2, "are both p.csv", "name", trained, *words, "--html", "p.csv", "-o", "p.csv"),
        (3, "cannot be read", "train", "absent.npy"),
        (3, "has no cfg.json", "eval", tmp_path, x),
        (3, "holds no run to resume", "train", x, *QUICK, "--seed", 9, "--resume"),
        (2, "--levels a,b is no list", "train", x, "--levels", "a,b"),
        (2, "--lr fast is no learning rate", "train", x, "--lr", "fast"),
        (74, "exists", "train", x, *QUICK, "-o", trained),
    ):
        done = icml25("sae", *args)
        assert (done.code, done.out) == (code, ""), (args, done)
        assert says in done.err, (args, done.err)


def test_levels_out_of_order_are_put_in_order(icml25, data):
    done = icml25("sae", "train", data / "x.npy", *QUICK, "--levels", "8,4,4,32", "--epochs", 1, "--json")
    assert done.json["tables"]["models"][0]["levels"] == [4, 8, 32]
    assert any("put in order" in text for text in done.json["warnings"])

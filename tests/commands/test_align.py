"""`icml25 align` as a user meets it: every verb on small pairs, what is written, and bad input."""

import csv
import io
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from icml25cli.main import main
from tests.conftest import Done

ROWS = 120
KEYS = ["metric", "value", "null_mean", "z", "p_value", "ci_low", "ci_high"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Two encoders of the same items, whose class is redundant; ids, labels, layers, models."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    label = np.arange(ROWS) % 3
    z = rng.standard_normal((3, 4))[label] * 3 + rng.standard_normal((ROWS, 4))
    a = (z @ rng.standard_normal((4, 12)) + rng.standard_normal((ROWS, 12))).astype(np.float32)
    b = (z @ rng.standard_normal((4, 8)) + rng.standard_normal((ROWS, 8))).astype(np.float32)
    order = rng.permutation(ROWS)
    names = np.array([f"item {i}" for i in range(ROWS)])
    np.save(folder / "a.npy", a)
    np.save(folder / "b.npy", b)
    np.savez(folder / "a.npz", x=a, id=names)
    pq.write_table(pa.table({"id": names[order], "x": b[order].tolist()}), folder / "b.parquet")
    np.save(folder / "layers.npy", np.stack([rng.standard_normal(a.shape).astype(np.float32), a], axis=1))
    np.savez(folder / "layers.npz", one=b, two=rng.standard_normal(b.shape).astype(np.float32))
    (folder / "y.csv").write_text("label\n" + "".join(f"{y}\n" for y in label))
    lines = []
    for i in range(6):
        np.save(folder / f"m{i}.npy", b + 2 * i * rng.standard_normal(b.shape).astype(np.float32))
        lines.append(f"m{i}.npy,{0.9 - 0.05 * i}\n")
    (folder / "models.csv").write_text("path,performance\n" + "".join(lines))
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


# --- a pair ------------------------------------------------------------------------------------------------------


def test_a_pair_by_all_metrics(icml25, data, tmp_path):
    options = ("--null", 20, "--labels", data / "y.csv", "--groups", data / "y.csv", "--plot", "f.svg", "--json")
    done = icml25("align", data / "a.npy", data / "b.npy", *options)
    assert done.code == 0, done.err
    report = done.json
    jsonschema.validate(
        report, json.loads(resources.files("icml25cli.assets").joinpath("report.schema.json").read_text())
    )
    assert len(report["rows"]) == 17
    assert all(list(row) == KEYS for row in report["rows"])
    for row in report["rows"]:
        assert row["ci_low"] <= row["value"] <= row["ci_high"], row
    assert report["rows"][0]["metric"] == "ucka"
    assert report["rows"][0]["p_value"] == pytest.approx(1 / 21)
    assert report["answer"] == {"status": "compared", "verdict": "alignment likely informative"}
    assert [row["probe"] for row in report["tables"]["probes"]] == ["a", "b", "a and b"]
    inside = {row["metric"]: row for row in report["tables"]["within_groups"]}
    assert inside["ucka"]["null_mean"] < inside["ucka"]["within_groups_mean"] < inside["ucka"]["value"]
    assert report["metrics"]["redundant_share"] > 0.6
    assert "mknn" in (tmp_path / "f.svg").read_text()


def test_ids_pair_rows_of_any_order(icml25, data):
    wanted = icml25("align", data / "a.npy", data / "b.npy", "--metric", "ucka,mknn", "--null", 0, "--json").json[
        "rows"
    ]
    files = (data / "a.npz", data / "b.parquet")
    twice = ("--metric", "ucka", "--metric", "mknn")
    found = icml25("align", *files, "--ids", "id", *twice, "--null", 0, "--json").json["rows"]
    assert [row["value"] for row in found] == pytest.approx([row["value"] for row in wanted], abs=1e-6)
    by_number = icml25("align", *files, "--metric", "ucka", "--null", 0, "--json").json["rows"]
    assert abs(by_number[0]["value"]) < wanted[0]["value"] / 2


def test_labels_are_paired_by_id_too(icml25, data, tmp_path):
    rows = (data / "y.csv").read_text().splitlines()[1:]
    order = np.random.default_rng(1).permutation(ROWS)
    (tmp_path / "named.csv").write_text("id,label\n" + "".join(f"item {i},{rows[i]}\n" for i in order))
    files = (data / "a.npz", data / "b.parquet", "--ids", "id", "--metric", "ucka", "--null", 0, "--json")
    by_number, by_id = (
        icml25("align", *files, "--labels", labels).json["tables"]["probes"]
        for labels in (data / "y.csv", tmp_path / "named.csv")
    )
    assert by_id == by_number


def test_ids_are_numbers_in_one_file_and_text_in_the_other(icml25, data, tmp_path):
    a, b = np.load(data / "a.npy"), np.load(data / "b.npy")
    np.savez(tmp_path / "a.npz", x=a, id=np.arange(ROWS))
    np.savez(tmp_path / "b.npz", x=b[::-1], id=np.arange(ROWS)[::-1].astype(str))
    found = icml25("align", "a.npz:x", "b.npz:x", "--ids", "id", "--metric", "ucka", "--null", 0, "--json").json
    plain = icml25("align", data / "a.npy", data / "b.npy", "--metric", "ucka", "--null", 0, "--json").json
    assert found["metrics"]["ucka"] == pytest.approx(plain["metrics"]["ucka"], abs=1e-6)


def test_a_gate_on_what_is_not_measured_is_refused_at_once(icml25, data):
    done = icml25("align", data / "a.npy", data / "b.npy", "--metric", "ucka", "--fail-below", "mknn=0.9")
    assert done.code == 2
    assert "--fail-below mknn" in done.err


def test_the_built_in_pair_needs_no_file(icml25):
    report = icml25("align", "run", "--metric", "ucka", "--null", 0, "--no-ci", "--json").json
    assert report["params"]["rows"] == 1797
    assert 0.1 < report["metrics"]["ucka"] < 0.5


def test_a_gate_fails_below_its_bound(icml25, data):
    pair = (data / "a.npy", data / "b.npy", "--metric", "ucka", "--null", 0, "--json")
    assert icml25("align", *pair, "--fail-below", "ucka=0.1").json["answer"]["status"] == "compared"
    done = icml25("align", *pair, "--fail-below", "ucka=0.999")
    assert done.code == 1
    assert done.json["answer"]["status"] == "below"
    assert "is below 0.999" in done.err


def test_layers_are_swept_and_the_best_pair_is_named(icml25, data, tmp_path):
    done = icml25(
        "align", data / "layers.npy", data / "layers.npz", "--layers", "--null", 20, "--plot", "l.svg", "--json"
    )
    assert done.code == 0, done.err
    best, last = done.json["rows"][:2]
    assert (best["pair"], best["layer_a"], best["layer_b"]) == ("max", 1, 0)
    assert (last["pair"], last["layer_a"], last["layer_b"]) == ("last", 1, 1)
    assert best["p_value"] == pytest.approx(1 / 21)
    assert best["null_mean"] > last["null_mean"]
    assert len(done.json["tables"]["layers_ucka"]) == 2
    assert (tmp_path / "l.svg").stat().st_size > 1000


def test_neighbours_are_kept_for_a_call_that_continues(icml25, data, monkeypatch, tmp_path):
    """Cut short after the neighbours of A, the second call seeks those of B alone and says the same."""
    monkeypatch.setattr("icml25cli.papers.align.job.LONG_ROWS", 50)
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path / "cache"))
    command = ("align", data / "a.npy", data / "b.npy", "--metric", "mknn", "--null", 10, "--json")
    from icml25cli.papers.align import metrics

    sought, found = [], metrics.neighbour_lists

    def cut(x, *rest):
        sought.append(x.name)
        if len(sought) == 2:
            raise KeyboardInterrupt
        return found(x, *rest)

    monkeypatch.setattr(metrics, "neighbour_lists", cut)
    assert icml25(*command).code == 130
    again = icml25(*command, "--resume")
    assert again.code == 0, again.err
    assert sought == [str(data / "a.npy"), str(data / "b.npy"), str(data / "b.npy")]
    fresh = icml25(*command, "--fresh")
    assert fresh.json["rows"] == again.json["rows"]
    assert len(sought) == 5


# --- items, several, models --------------------------------------------------------------------------------------


def test_items_come_worst_first(icml25, data):
    done = icml25("align", "items", data / "a.npz", data / "b.parquet", "--ids", "id", "--k", 5)
    assert done.code == 0, done.err
    rows = list(csv.DictReader(io.StringIO(done.out)))
    scores = [float(row["mknn"]) for row in rows]
    assert scores == sorted(scores)
    assert {row["id"] for row in rows} == {f"item {i}" for i in range(ROWS)}
    a, b = np.load(data / "a.npy"), np.load(data / "b.npy")
    i = int(rows[-1]["id"].removeprefix("item "))
    near = []
    for x in (a, b):
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        near.append([j for j in np.argsort(-(unit @ unit[i])) if j != i][:5])
    assert rows[-1]["neighbours_a"] == " ".join(f"item {j}" for j in near[0])
    assert scores[-1] == pytest.approx(len({*near[0]} & {*near[1]}) / 5)


def test_all_pairs_of_several(icml25, data, tmp_path):
    done = icml25("align", "matrix", *(data / f"m{i}.npy" for i in range(3)), "--plot", "m.svg", "--json")
    assert done.code == 0, done.err
    rows = done.json["rows"]
    assert len(rows) == 6
    pair = icml25("align", data / "m0.npy", data / "m2.npy", "--metric", "mknn", "--null", 0, "--json").json["rows"][0]
    assert rows[3]["metric"] == "mknn"
    assert rows[3]["value"] == pytest.approx(pair["value"])
    assert (tmp_path / "m.svg").stat().st_size > 1000


def test_alignment_over_models_beside_performance(icml25, data, tmp_path):
    done = icml25("align", "sweep", data / "models.csv", "--with", data / "a.npy", "--plot", "s.svg", "--json")
    assert done.code == 0, done.err
    row = done.json["rows"][0]
    assert row["metric"] == "ucka"
    assert row["pearson"] > 0.8
    assert row["pearson_low"] <= row["pearson"] <= row["pearson_high"]
    assert len(done.json["tables"]["models"]) == 6


# --- known redundancy --------------------------------------------------------------------------------------------


def test_simulation_writes_what_it_found(icml25, tmp_path):
    small = ("--unique", "0,8", "--depths", "1:2", "--seeds", 1, "--rows", 2000, "--epochs", 2)
    done = icml25("align", "simulate", *small, "-o", "out", "--json")
    assert done.code == 0, done.err
    assert [row["unique"] for row in done.json["rows"]] == [0, 8]
    rows = list(csv.DictReader((tmp_path / "out" / "encoders.csv").open()))
    assert len(rows) == 4
    assert json.loads((tmp_path / "out" / "report.json").read_text())["rows"] == done.json["rows"]
    again = icml25("align", "simulate", *small, "--resume", "--json")
    assert again.json["rows"] == done.json["rows"]


def test_data_alone_can_be_written(icml25, tmp_path):
    done = icml25("align", "simulate", "--unique", "3", "--het", "-1:1", "--rows", 2000, "--data-only", "d", "--json")
    assert done.code == 0, done.err
    with np.load(tmp_path / "d" / "unique_3.npz") as there:
        assert sorted(there) == ["x1", "x2_-1", "x2_0", "x2_1", "y"]
        assert there["x1"].shape == (2000, 12)
        np.testing.assert_array_equal(there["x1"][:, :8], there["x2_-1"][:, :8])


def test_the_demonstration_tells_redundant_from_unique(icml25):
    rows = icml25("align", "demo", "--json").json["rows"]
    assert rows[0]["verdict"] == "alignment likely informative"
    assert rows[-1]["verdict"] == "alignment not a proxy for performance"
    for row in rows:
        assert row["redundant_share"] == pytest.approx(row["exact_share"], abs=0.2)


# --- bad input (section 9) ---------------------------------------------------------------------------------------


def saved(name, array):
    np.save(name, array)
    return name


def test_rows_that_cannot_be_compared(icml25, data, tmp_path):
    a, b = np.load(data / "a.npy"), np.load(data / "b.npy")
    bad = a.copy()
    bad[[3, 9]] = np.nan
    done = icml25("align", saved("bad.npy", bad), data / "b.npy", "--json")
    assert (done.code, done.out) == (3, "")
    assert "2 of 120 rows hold NaN or infinity: 3, 9" in done.err
    few = ("--metric", "ucka", "--null", 0, "--json")
    dropped = icml25("align", "bad.npy", data / "b.npy", "--drop-bad", *few).json
    kept = np.delete(np.arange(ROWS), [3, 9])
    alone = icml25("align", saved("a2.npy", a[kept]), saved("b2.npy", b[kept]), *few).json
    assert dropped["rows"][0]["value"] == pytest.approx(alone["rows"][0]["value"], abs=1e-6)

    empty = a.copy()
    empty[[3, 9]] = 0
    found = icml25("align", saved("empty.npy", empty), data / "b.npy", *few).json
    assert found["params"]["rows"] == ROWS - 2
    assert any("2 rows of zeros" in text for text in found["warnings"])


def test_what_may_mislead_is_said(icml25, data, tmp_path):
    a, b = np.load(data / "a.npy"), np.load(data / "b.npy")
    few = ("--metric", "ucka", "--null", 0, "--json")
    assert any("hold the same numbers" in t for t in icml25("align", *[data / "a.npy"] * 2, *few).json["warnings"])
    twice = a.copy()
    twice[60:] = twice[:60]
    warnings = icml25("align", saved("twice.npy", twice), data / "b.npy", *few).json["warnings"]
    assert any("60 rows (50.0%) repeat an earlier one" in text for text in warnings)
    flat = np.hstack([a, np.ones((ROWS, 1), np.float32)])
    warnings = icml25("align", saved("flat.npy", flat), data / "b.npy", *few).json["warnings"]
    assert any("1 columns are of one value" in text for text in warnings)
    np.save("half.npy", a.astype(np.float16))
    torch.save(torch.from_numpy(b).bfloat16(), "half.pt")
    assert icml25("align", "half.npy", "half.pt", *few).code == 0
    wide = icml25("align", saved("wide.npy", np.hstack([a] * 6)), data / "b.npy", "--null", 0, "--json").json
    values = {row["metric"]: row["value"] for row in wide["rows"]}
    assert values["cca"] is None
    assert values["svcca"] is not None
    assert any("72 columns of 120 rows correlate by chance" in text for text in wide["notes"])


def test_what_cannot_be_is_refused_in_a_sentence(icml25, data, tmp_path):
    a = np.load(data / "a.npy")
    x, y, named, table = data / "a.npy", data / "b.npy", data / "a.npz", data / "b.parquet"
    np.savez("twice.npz", x=a, id=np.arange(ROWS) // 2)
    np.savez("other.npz", x=a, id=np.arange(ROWS))
    (tmp_path / "one.csv").write_text("path,performance\na.npy,1\n")
    (tmp_path / "odd.csv").write_text("path,performance\na.npy,good\n")
    (tmp_path / "bare.csv").write_text("name\nx\n")
    (tmp_path / "alone.csv").write_text("path,performance\n" + f"{x},1\n" * 3)
    (tmp_path / "few.csv").write_text("label\n" + "b\n" * 2 + "a\n" * (ROWS - 2))
    for code, says, *args in (
        (3, "has 120 rows, short.npy has 100", x, saved("short.npy", a[:100])),
        (3, "60 ids are there more than once: 0, 1, 2, 3, 4, ...", "twice.npz", "twice.npz", "--ids", "id"),
        (3, "lacks 120 ids", named, "other.npz", "--ids", "id"),
        (3, "has no named ids", x, y, "--ids", "id"),
        (2, "cka=nan is no bound", x, y, "--fail-below", "cka=nan"),
        (2, "--sigma 1e-300 is no width", x, y, "--sigma", "1e-300"),
        (3, "holds no key", named, table, "--ids", "key"),
        (3, "3 rows are left", saved("three.npy", a[:3]), "three.npy"),
        (3, "k = 120 neighbours of 120 rows", x, y, "--k", 120),
        (3, "cknna is not defined here", x, y, "--k", 1, "--metric", "cknna"),
        (3, "cca is not defined here", saved("wide.npy", np.hstack([a] * 6)), y, "--metric", "cca"),
        (3, "ucka is not defined here", saved("still.npy", np.ones((ROWS, 3))), y, "--metric", "ucka"),
        (3, "cannot be read", "absent.npy", y),
        (3, "shape (120, 2, 12)", data / "layers.npy", y),
        (3, "hold one matrix each", x, y, "--layers"),
        (3, "svcca is not compared layer by layer", data / "layers.npy", y, "--layers", "--metric", "svcca"),
        (3, "few.csv: rows with the label b are 2", x, y, "--labels", "few.csv", "--metric", "ucka"),
        (2, "there is no metric 'cosine'", x, y, "--metric", "cosine"),
        (2, "--fail-below ucka is no bound", x, y, "--fail-below", "ucka"),
        (2, "--sigma wide is no width", x, y, "--sigma", "wide"),
        (2, "--unique 8-0 is no range", "simulate", "--unique", "8-0"),
        (3, "unique bits 9 is not in 0 to 8", "simulate", "--unique", "9"),
        (3, "one.csv has 1 models", "sweep", "one.csv", "--with", x),
        (3, "performance good is no number", "sweep", "odd.csv", "--with", x),
        (3, "bare.csv has no column path or performance", "sweep", "bare.csv", "--with", x),
        (3, "names nothing to compare with", "sweep", "alone.csv"),
        (3, "1 file has no pairs", "matrix", x),
        (74, "exists", "items", x, y, "-o", x),
    ):
        done = icml25("align", *args)
        assert (done.code, done.out) == (code, ""), (args, done)
        assert says in done.err, (args, done.err)


def test_an_index_that_is_not_there_says_how_to_get_it(icml25, data, monkeypatch):
    monkeypatch.setattr("icml25cli.papers.align.indexes.find_spec", lambda name: None)
    done = icml25("align", data / "a.npy", data / "b.npy", "--index", "hnsw")
    assert (done.code, done.out) == (4, "")
    assert "icml25[index]" in done.err


@pytest.mark.parametrize("index", ["faiss-flat", "faiss-ivf", "hnsw"])
def test_an_index_finds_neighbours_and_says_how_many(icml25, data, index):
    pytest.importorskip("faiss")
    pair = (data / "a.npy", data / "b.npy", "--metric", "mknn", "--null", 0, "--json")
    exact = icml25("align", *pair).json["rows"][0]["value"]
    done = icml25("align", *pair, "--index", index)
    assert done.code == 0, done.err
    assert done.json["rows"][0]["value"] == pytest.approx(exact, abs=0.02)
    assert any("of true neighbours" in text for text in done.json["notes"])


@pytest.mark.parametrize("least", [("--match-n", 4), ("--queries", 1)])
def test_what_is_too_little_for_an_interval_has_none(icml25, data, least):
    done = icml25(
        "align", data / "a.npy", data / "b.npy", *least, "--k", 3, "--null", 5, "--metric", "mknn,ucka,cka", "--json"
    )
    assert done.code == 0, done.err
    row = next(row for row in done.json["rows"] if row["metric"] == ("ucka" if "--match-n" in least else "mknn"))
    assert row["ci_low"] is None, row


def test_a_side_that_does_not_vary_has_no_value_and_no_warning_of_numpy(icml25, data, recwarn):
    np.save("still.npy", np.ones((ROWS, 3)))
    done = icml25("align", data / "a.npy", "still.npy", "--null", 5, "--normalize", "none")
    assert done.code == 0, done.err
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


def test_a_table_of_text_is_no_file_of_embeddings(icml25, tmp_path):
    (tmp_path / "labels.csv").write_text("id,label\n1,a\n")
    done = icml25("align", tmp_path / "labels.csv", "digits-right")
    assert (done.code, done.out) == (3, "")
    assert "labels.csv is no file of embeddings" in done.err
    assert ".npz" in done.err

"""All methods on one split, the whole job, and what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.linkpred import figures, saved
from icml25cli.papers.linkpred import study as study_module
from icml25cli.papers.linkpred.counts import count_features, degree_features
from icml25cli.papers.linkpred.encoders import load_encoder
from icml25cli.papers.linkpred.graph import Graph, codes, contains
from icml25cli.papers.linkpred.heuristics import HEURISTICS
from icml25cli.papers.linkpred.job import Plan, carry_out
from icml25cli.papers.linkpred.pictures import Look, PictureFeatures
from icml25cli.papers.linkpred.propagation import Observed
from icml25cli.papers.linkpred.saved import load_model, save_model
from icml25cli.papers.linkpred.splits import make_split
from icml25cli.papers.linkpred.study import METHODS, POOL, Options, Study
from icml25cli.papers.linkpred.training import Pairs, Recipe, predict

ENCODER = load_encoder("random")
OPTIONS = Options(base="gcn", hidden=8, recipe=Recipe(epochs=4, evaluate_every=2))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "linkpred-cache"))


def planted() -> Graph:
    """Communities of ten, named by letters and numbers, with two attributes a node."""
    rng = np.random.default_rng(0)
    pairs = np.array(
        [(u, v) for u in range(50) for v in range(u + 1, 50) if rng.random() < (0.6 if u // 10 == v // 10 else 0.02)]
    )
    features = rng.standard_normal((50, 2)).astype(np.float32)
    return Graph("camps", tuple(f"n{i}" for i in range(50)), pairs, features)


@pytest.fixture(scope="module")
def graph():
    return planted()


@pytest.fixture(scope="module")
def split(graph):
    return make_split(graph, seed=4)


@pytest.fixture
def study(graph, split):
    return Study(graph, split, ENCODER, OPTIONS)


@pytest.mark.parametrize(("method", "fusion"), [*((method, "late") for method in METHODS), ("gvn", "link")])
def test_every_method_scores_every_pair(graph, split, method, fusion):
    study = Study(graph, split, ENCODER, replace(OPTIONS, fusion=fusion))
    scored = study.scored(method)
    for part, (positive, negative) in (("valid", scored.valid), ("test", scored.test)):
        known = getattr(split, part)
        assert positive.shape == known.positives.shape[:-1]
        assert negative.shape == known.negatives.shape[:-1]
        assert np.isfinite(positive).all()
    assert scored.parameters > 0
    assert scored.seconds > 0
    assert study.scored(method) is scored  # fitted once


def test_late_fusion_is_made_of_the_two_scores_and_of_nothing_else(study):
    fused, base, seen = study.scored("gvn"), study.scored("base"), study.scored("vision-only")
    assert fused.late is not None
    np.testing.assert_array_equal(fused.test[0], fused.late(base.test[0], seen.test[0]))
    assert set(fused.modules) == {"base", "vision"}
    assert fused.seconds == base.seconds + seen.seconds


def test_negatives_with_pictures_are_no_training_edges_and_may_be_held_out_ones(study, split, graph):
    pool = codes(study._pool, 50)
    assert len(pool) == POOL * len(split.train)
    assert not contains(np.sort(codes(split.train, 50)), pool).any()
    held_out = np.sort(codes(np.concatenate([split.valid.positives, split.test.positives]), 50))
    assert contains(held_out, pool).any()  # avoiding them would tell where they are


def test_of_many_edges_some_get_pictures_and_all_are_trained_on(graph, split, monkeypatch):
    monkeypatch.setattr(study_module, "PICTURED", 30)
    few = Study(graph, split, ENCODER, OPTIONS)
    positives = few._parts["positives"]
    assert len(positives) == 30
    assert contains(np.sort(codes(split.train, 50)), codes(positives, 50)).all()
    assert len(few._pool) == 30 * POOL
    whole = Study(graph, split, ENCODER, OPTIONS)
    assert (few.scored("base").test[0] == whole.scored("base").test[0]).all()
    assert np.isfinite(few.scored("gvn").test[0]).all()


def test_a_placebo_keeps_the_pictures_of_a_part_and_forgets_whose_they_are(study):
    seen = study.pair_pictures
    shuffled = study._shuffled(seen, 1)
    where = study._slices()
    for first, last in (("positives", "pool"), ("valid", "valid_negatives"), ("test", "test_negatives")):
        part = slice(where[first].start, where[last].stop)
        assert sorted(seen.kind[part].tolist()) == sorted(shuffled.kind[part].tolist())
    positives = where["positives"]
    assert (seen.kind[positives] != shuffled.kind[positives]).mean() > 0.5
    # Pictures of edges would still tell edges apart if they stayed among edges.
    assert set(shuffled.kind[positives].tolist()) - set(seen.kind[positives].tolist())


def test_pictures_are_drawn_on_observed_edges_alone(study, split, graph):
    drawn = study.pair_pictures
    blind = Graph(graph.name, graph.ids, split.train, graph.features)
    other = Study(blind, replace(split, graph=blind.fingerprint), ENCODER, OPTIONS)
    assert (other.pair_pictures.rows() == drawn.rows()).all()
    assert (other.node_pictures.rows() == study.node_pictures.rows()).all()


def test_degrees_do_not_count_the_pair_s_own_edge():
    from icml25cli.papers.linkpred.graph import adjacency

    observed = Observed(adjacency(np.array([(0, 1), (0, 2), (0, 3), (1, 2)]), 5))
    table, kind = degree_features(observed, np.array([[1, 0], [3, 1], [4, 0]]))
    np.testing.assert_allclose(table[kind], np.log1p([[1, 2], [1, 2], [0, 3]]))
    assert PictureFeatures(table, kind, 0).rows().dtype == np.float32


def test_counts_are_those_of_the_picture():
    from icml25cli.papers.linkpred.graph import adjacency

    #  0 and 1 share 2 and 3, which are linked; 4 hangs on 0; their own edge is there and does not count
    edges = np.array([(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (2, 3)])
    (found,) = count_features(Observed(adjacency(edges, 5)), np.array([[1, 0]]), Look())
    expected = [2, 3, 2, 2 / np.log(3), 2 / 3, 5, 6]
    np.testing.assert_allclose(np.expm1(found), expected, rtol=1e-5)


def test_validation_edges_carry_messages_when_asked_to(graph, split):
    plain, late = (Study(graph, split, ENCODER, replace(OPTIONS, use_validation_edges=use)) for use in (False, True))
    assert (plain.scored("base").valid[0] == late.scored("base").valid[0]).all()
    assert (plain.scored("base").test[0] != late.scored("base").test[0]).any()


def test_unknown_names_are_refused(graph, split):
    with pytest.raises(UsageError, match="transformer"):
        Study(graph, split, ENCODER, replace(OPTIONS, base="transformer"))
    with pytest.raises(UsageError, match="seal"):
        Plan("seal")
    with pytest.raises(UsageError, match="katz"):
        Plan("katz")


# --- the job -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(graph, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ICML25_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "linkpred-cache"))
        splits = [make_split(graph, seed=seed) for seed in (4, 5)]
        with carry_out(graph, splits, Plan(), OPTIONS, ENCODER) as found:
            yield found


def test_the_table_has_the_method_its_controls_and_heuristics(result):
    rows = result.rows
    learned = ["gvn", "base", "base+degree", "e-gvn", "vision-only", "counts-only", "placebo"]
    assert [row["method"] for row in rows[:7]] == learned
    assert {row["method"] for row in rows[7:]} == set(HEURISTICS)
    aucs = [row["auc"] for row in rows[7:]]
    hits = [row["hits_at_100"] for row in rows[7:]]
    assert sorted(zip(hits, aucs, strict=True), reverse=True) == list(zip(hits, aucs, strict=True))
    for row in rows:
        assert {"hits_at_100", "auc", "mrr", "negatives", "seconds", "auc_sd", "seconds_sd"} <= row.keys()
        assert row["negatives"] == len(result.splits[0].test.negatives)
        assert row["parameters"] is None or row["parameters"] > 0


def test_means_and_deviations_are_over_splits(result):
    row = next(row for row in result.rows if row["method"] == "base")
    aucs = [next(one for one in judged if one.method == "base").evaluation.values["auc"] for judged in result.judged]
    assert row["auc"] == pytest.approx(np.mean(aucs))
    assert row["auc_sd"] == pytest.approx(np.std(aucs, ddof=1))
    gain = next(row for row in result.gains if row["method"] == "gvn")
    mine = [next(one for one in judged if one.method == "gvn").evaluation.values["auc"] for judged in result.judged]
    assert gain["auc_gain"] == pytest.approx(np.mean(np.subtract(mine, aucs)))
    assert gain["auc_gain_sd"] == pytest.approx(np.std(np.subtract(mine, aucs), ddof=1))


def test_notes_tell_what_a_reader_has_to_know(result):
    said = " ".join(result.notes)
    for words in ("negatives", "standard deviation over splits", "placebo is", "pictures of pairs", "--disjoint"):
        assert words in said


def test_a_method_without_pictures_has_no_placebo(graph):
    plan = Plan("base", ("heuristics",))
    with carry_out(graph, [make_split(graph)], plan, OPTIONS, ENCODER) as found:
        assert [row["method"] for row in found.rows][:1] == ["base"]
        assert "placebo" not in {row["method"] for row in found.rows}
        assert found.study.drawn_pairs is None


def test_figures_show_the_surest_pairs_and_every_method(result):
    sheet, curve = figures.contact_sheet(result), figures.roc(result)
    titles = [axis.get_title() for part in sheet.subfigs for axis in part.axes]
    best = int(np.argmax(result.main.test[0]))
    u, v = result.study.split.test.positives[best]
    assert titles[0].startswith(f"n{u} – n{v}: ")
    assert sum(bool(title) for title in titles) == 24
    legend = curve.axes[0].get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels[0].startswith("gvn (")
    assert any(label.startswith("placebo") for label in labels)


PLAN = Plan("gvn", ("base", "e-gvn"))
KILLED = """
import os, signal, sys
from icml25cli.core.runs import Run
sys.path.insert(0, sys.argv[1])
from test_study import ENCODER, OPTIONS, PLAN, carry_out, make_split, planted
original, count = Run.write, [0]
def write(self, unit, writer):
    original(self, unit, writer)
    if unit.endswith(".pt"):
        count[0] += 1
        if count[0] == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
Run.write = write
with carry_out(planted(), [make_split(planted(), seed=9)], PLAN, OPTIONS, ENCODER) as result:
    pass
"""


def figures_of(found):
    """All that a report on it shows but times."""
    timed = ("seconds", "seconds_sd")
    return [{key: value for key, value in row.items() if key not in timed} for row in [*found.rows, *found.models]]


def test_sigkill_while_training_and_the_same_command_again_give_the_same_figures(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    here = os.path.dirname(__file__)
    done = subprocess.run([sys.executable, "-c", KILLED, here, "5"], env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == -signal.SIGKILL
    splits = [make_split(graph, seed=9)]
    with carry_out(graph, splits, PLAN, OPTIONS, ENCODER, resume=True) as found:
        resumed = figures_of(found)
    with carry_out(graph, splits, PLAN, OPTIONS, ENCODER, fresh=True) as found:
        assert figures_of(found) == resumed


def test_another_option_is_another_run(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("ICML25_CACHE_DIR", str(tmp_path))
    splits = [make_split(graph, seed=9)]
    with carry_out(graph, splits, Plan("base", ("base",)), OPTIONS, ENCODER):
        pass
    with (
        pytest.raises(InputError, match="no run to resume"),
        carry_out(graph, splits, Plan("base", ("base",)), replace(OPTIONS, hidden=9), ENCODER, resume=True),
    ):
        pass


# --- the model as a directory ------------------------------------------------------------------------------------

SOURCE = {"name": "random", "weights": None, "size": None}


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("gvn", OPTIONS),
        ("gvn", replace(OPTIONS, fusion="link", base="ncnc")),
        ("e-gvn", replace(OPTIONS, base="ncn")),
        ("moe", OPTIONS),
        ("concat", OPTIONS),
        ("base", replace(OPTIONS, base="gin")),
        ("base+degree", OPTIONS),
        ("vision-only", OPTIONS),
        ("counts-only", OPTIONS),
    ],
    ids=lambda value: value if isinstance(value, str) else value.base,
)
def test_a_kept_model_scores_as_the_fitted_one_does_in_the_whole_graph(graph, tmp_path, method, options):
    with carry_out(graph, [make_split(graph, seed=4)], Plan(method, ()), options, ENCODER) as found:
        names = save_model(tmp_path, found, SOURCE)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
        scorer = load_model(tmp_path)
        pairs = np.array([(u, v) for u in range(6) for v in range(20, 30)])
        scores = scorer(pairs)
        assert scorer.graph.ids == graph.ids
        assert scores.shape == (60,)
        assert np.isfinite(scores).all()
        assert len(set(scores.round(6).tolist())) > 1
        np.testing.assert_allclose(scorer(pairs[:, ::-1].copy()), scores, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(scorer(pairs[7:9]), scores[7:9], rtol=1e-4, atol=1e-5)
        if method == "base":
            (model,) = found.main.modules.values()
            whole = Observed(graph.adjacency).everything
            np.testing.assert_allclose(scores, predict(model, whole, Pairs(pairs)), rtol=1e-5)


@pytest.fixture
def kept(graph, result, tmp_path):
    save_model(tmp_path, result, SOURCE)
    return tmp_path


def test_what_is_kept_is_plain_and_complete(kept, result):
    config = json.loads((kept / "config.json").read_text())
    assert (config["method"], config["options"]["base"], config["encoder"]["name"]) == ("gvn", "gcn", "random")
    metrics = json.loads((kept / "metrics.json").read_text())
    assert metrics["rows"] == result.rows
    vision = np.load(kept / "vision.npz", allow_pickle=False)
    assert vision["pairs_table"].dtype == np.float16
    assert (vision["pairs_table"] == result.study.pair_pictures.table).all()
    from icml25cli.papers.linkpred.splits import read_split

    assert read_split(kept / "split.npz", load_model(kept).graph).id == result.splits[0].id


def test_scoring_nothing_is_nothing(kept):
    assert load_model(kept)(np.empty((0, 2), np.int64)).shape == (0,)


def test_what_is_no_model_is_said(tmp_path):
    with pytest.raises(InputError, match=r"is no model: config\.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="no JSON"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text('{"format": "other"}')
    with pytest.raises(InputError, match="no model of this version"):
        load_model(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "graph.npz"])
def test_a_torn_model_is_refused_by_name(kept, name):
    file = kept / name
    content = file.read_bytes()
    for torn in (content[: len(content) // 2], content[:10], b""):
        file.write_bytes(torn)
        with pytest.raises(InputError, match=name.replace(".", r"\.")):
            load_model(kept)


def test_parameters_of_another_shape_and_other_weights_of_the_encoder_are_refused(kept):
    from safetensors.torch import load_file, save_file

    state = load_file(kept / "model.safetensors")
    config = json.loads((kept / "config.json").read_text())
    config["encoder"]["identity"]["weights"] = "0" * 64
    (kept / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="or one was edited"):
        load_model(kept)
    sealed = {"config": saved._seal(config)}  # as by a program that wrote such a model
    save_file(state, kept / "model.safetensors", metadata=sealed)
    with pytest.raises(InputError, match="other weights of random"):
        load_model(kept)
    save_file({name: torch.zeros(3) for name in state}, kept / "model.safetensors", metadata=sealed)
    with pytest.raises(InputError, match="damaged model"):
        load_model(kept)

"""Figures: what the model saw of pairs that it was sure of, and how methods trade true for false positives.

Knows results. Does not know files.
"""

from typing import Any

import numpy as np
from jaxtyping import UInt8
from matplotlib.figure import Figure
from numpy import ndarray

from icml25cli.papers.linkpred.canonical import canonical_graphs
from icml25cli.papers.linkpred.heuristics import score_pairs
from icml25cli.papers.linkpred.job import PLACEBO, Result
from icml25cli.papers.linkpred.pictures import draw
from icml25cli.papers.linkpred.raster import to_rgb
from icml25cli.papers.linkpred.subgraphs import link_subgraphs

SHOWN = 12  # pictures of each kind
SIZE = 160  # pixels


def contact_sheet(result: Result) -> Figure:
    """Test edges that the main method is surest of, and pairs without an edge that it takes for edges.

    Pictures show observed edges alone, the two nodes of the pair brown, as the vision encoder sees them.
    """
    study, scored = result.study, result.main
    rows = []
    for title, pairs, scores in (
        ("edges scored highest", study.split.test.positives, scored.test[0]),
        ("no edges, scored highest", study.split.test.negatives, scored.test[1]),
    ):
        best = np.argsort(-scores.ravel(), kind="stable")[:SHOWN]
        rows.append((title, pairs.reshape(-1, 2)[best], scores.ravel()[best]))
    columns = max(1, min(6, max(len(pairs) for _, pairs, _ in rows)))
    lines = [-(-len(pairs) // columns) for _, pairs, _ in rows]
    figure = Figure(figsize=(1.7 * columns, 1.95 * sum(lines) + 0.6))
    parts: Any = figure.subfigures(2, 1, height_ratios=lines)
    ids = study.graph.ids
    for part, line, (title, pairs, scores) in zip(parts, lines, rows, strict=True):
        part.suptitle(title, fontsize=9)
        axes = part.subplots(line, columns, squeeze=False).ravel()
        pictures = pair_pictures(result, pairs)
        for axis in axes:
            axis.axis("off")
        for axis, picture, (u, v), score in zip(axes, pictures, pairs.tolist(), scores, strict=False):
            axis.imshow(picture, interpolation="nearest")
            axis.set_title(f"{_short(ids[u])} – {_short(ids[v])}: {score:.2f}", fontsize=6, parse_math=False)
    return figure


def pair_pictures(result: Result, pairs: ndarray) -> UInt8[ndarray, "b s s 3"]:
    """Colour pictures of pairs on the observed edges of the first split."""
    look = result.study.options.pair_look
    graphs = link_subgraphs(
        result.study.observed.pattern, pairs, hops=look.hops, max_nodes=look.max_nodes, seed=look.seed
    )
    return to_rgb(draw(canonical_graphs(graphs)[0], SIZE))


def roc(result: Result) -> Figure:
    """Receiver operating characteristic of trained methods and of the best heuristic, on the first split."""
    from sklearn.metrics import roc_curve

    figure = Figure(figsize=(5, 4.5), layout="constrained")
    axis = figure.subplots()
    for name, (positive, negative), auc in curves(result):
        scores = np.concatenate([positive, negative.ravel()])
        false, true, _ = roc_curve(np.arange(len(scores)) < len(positive), scores)
        axis.plot(false, true, label=f"{name} ({auc:.3f})", linestyle=":" if name == PLACEBO else "-")
    axis.plot([0, 1], [0, 1], color="0.8", zorder=0)
    axis.set(xlabel="share of negatives above", ylabel="share of edges above", xlim=(0, 1), ylim=(0, 1))
    axis.set_title(study_name(result), fontsize=9, parse_math=False)
    axis.legend(fontsize=7, loc="lower right")
    return figure


def curves(result: Result) -> list[tuple[str, tuple[ndarray, ndarray], float]]:
    """Scores of test edges and negatives by method, with the AUC."""
    study, plan = result.study, result.plan
    aucs = {judged.method: judged.evaluation.values["auc"] for judged in result.judged[0]}
    found = [(name, study.scored(name).test, aucs[name]) for name in plan.methods]
    if plan.with_placebo:
        found.append((PLACEBO, study.scored(plan.method, placebo=1).test, aucs[PLACEBO]))
    if known := [name for name in aucs if name in plan.heuristics]:
        best = max(known, key=lambda name: aucs[name])
        parts = (study.split.test.positives, study.split.test.negatives)
        scores = [score_pairs(study.observed.pattern, p, [best], study.graph.features)[best] for p in parts]
        found.append((best, (scores[0], scores[1]), aucs[best]))
    return found


def study_name(result: Result) -> str:
    return f"{result.study.graph.name}, {result.splits[0].protocol}, seed {result.splits[0].seed}"


def _short(name: str) -> str:
    return name if len(name) <= 12 else f"{name[:11]}…"

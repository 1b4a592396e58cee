"""Verbs of `icml25 linkpred` that need no model, and the options that they share with its other verbs."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icml25cli.core import options as opt
from icml25cli.core.report import Report, show

if TYPE_CHECKING:
    from icml25cli.papers.linkpred.splits import Split


class Protocol(StrEnum):
    planetoid = "planetoid"
    heart85 = "heart85"
    heart = "heart"
    time = "time"
    ogb = "ogb"
    given = "given"


class Heuristic(StrEnum):
    common_neighbors = "common_neighbors"
    jaccard = "jaccard"
    preferential_attachment = "preferential_attachment"
    adamic_adar = "adamic_adar"
    resource_allocation = "resource_allocation"
    katz = "katz"
    ppr = "ppr"
    shortest_path = "shortest_path"
    feature_cosine = "feature_cosine"


def complete_heuristic(incomplete: str) -> list[str]:
    return [name for name in Heuristic if name.startswith(incomplete)]


def complete_graph(incomplete: str) -> list[str]:
    """Names of graphs that start with what was typed; the shell completes paths by itself."""
    from icml25cli.papers.linkpred.names import graph_names

    return [name for name in graph_names() if name.startswith(incomplete)]


GraphSource = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help="Edges: a file (.csv .tsv .txt .parquet .npz .mat .graphml .gml .gexf .net .adjlist .gt .pt), - for "
        "standard input, a folder of Planetoid or OGB, or a known name (karate, netscience ...).",
        autocompletion=complete_graph,
    ),
]
Src = Annotated[str | None, typer.Option("--src", metavar="COLUMN", help="Column of one end: name, or number from 1.")]
Dst = Annotated[str | None, typer.Option("--dst", metavar="COLUMN", help="Column of the other end.")]
Weight = Annotated[
    str | None,
    typer.Option(
        "--weight", metavar="COLUMN", help="Column of weights; edges of weight 0 are dropped, others count alike."
    ),
]
Time = Annotated[
    str | None, typer.Option("--time", metavar="COLUMN", help="Column of times, which --protocol time splits by.")
]
FeaturesFile = Annotated[
    Path | None,
    typer.Option(
        "--features", metavar="FILE", help="Attributes of nodes: .npy or .npz by node number, .csv or .parquet by id."
    ),
]
ProtocolName = Annotated[
    Protocol, typer.Option("--protocol", help="How edges become training, validation and test, and their negatives.")
]
PartsPath = Annotated[
    Path | None,
    typer.Option("--parts", metavar="PATH", help="For --protocol given: a folder or .npz that split wrote, or yours."),
]
Disjoint = Annotated[
    float,
    typer.Option(
        "--disjoint",
        min=0.0,
        max=0.99,
        help="Share of training edges that only supervise, and are never drawn or seen.",
    ),
]
Runs = Annotated[int, typer.Option("--runs", min=1, max=1000, help="Splits, of seeds from --seed on.")]


def heuristics(
    graph: GraphSource = "karate",
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="NAMES",
            help=f"With commas between or repeated: {', '.join(Heuristic)}. [default: all that apply]",
            autocompletion=complete_heuristic,
        ),
    ] = None,
    src: Src = None,
    dst: Dst = None,
    weight: Weight = None,
    time: Time = None,
    features: FeaturesFile = None,
    protocol: ProtocolName = Protocol.planetoid,
    parts: PartsPath = None,
    disjoint: Disjoint = 0.0,
    runs: Runs = 3,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Judge what neighbourhoods and walks foretell without learning: what any model has to beat."""
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.linkpred.edge_list import Columns
    from icml25cli.papers.linkpred.evaluation import applicable, comparison, judge_heuristics
    from icml25cli.papers.linkpred.given import split_by
    from icml25cli.papers.linkpred.metrics import headline_notes
    from icml25cli.papers.linkpred.readers import read_graph

    report = Report("linkpred", seed=seed)
    found = read_graph(graph, columns=Columns(src, dst, weight, time), features=features)
    chosen = applicable(found, opt.listed(method, ()))
    splits = [
        split_by(found, protocol.value, source=graph, parts=parts, seed=seed + run, disjoint=disjoint)
        for run in range(runs)
    ]
    rows = comparison([judge_heuristics(found, split, chosen) for split in splits], splits[0].metric)
    report.params = {"verb": "heuristics", "graph": found.name, "runs": runs, **_facts(splits[0])}
    shown = ["method", *dict.fromkeys([splits[0].metric, "auc", "ap", "mrr"]), "negatives", "seconds"]
    report.rows = [
        {key: row[key] for name in shown for key in (name, f"{name}_sd") if row.get(key) is not None} for row in rows
    ]
    report.details = {"all": [*rows]}
    report.metrics = {splits[0].metric: rows[0][splits[0].metric], "negatives": rows[0]["negatives"]}
    report.notes = [*found.notes, *splits[0].notes, *headline_notes(splits[0].metric, rows[0]["negatives"])]
    report.warnings = list(warnings_so_far())
    show(report, as_json=as_json)


def split(
    graph: GraphSource = "karate",
    src: Src = None,
    dst: Dst = None,
    weight: Weight = None,
    time: Time = None,
    features: FeaturesFile = None,
    protocol: ProtocolName = Protocol.planetoid,
    parts: PartsPath = None,
    disjoint: Disjoint = 0.0,
    output: opt.Output = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Split the edges of GRAPH into training, validation and test with negatives; write them with -o."""
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.core.runs import check_output, commit_output
    from icml25cli.papers.linkpred.edge_list import Columns
    from icml25cli.papers.linkpred.given import split_by
    from icml25cli.papers.linkpred.parts import write_parts
    from icml25cli.papers.linkpred.readers import read_graph

    report = Report("linkpred", seed=seed)
    if output:
        check_output(output, force=force)
    found = read_graph(graph, columns=Columns(src, dst, weight, time), features=features)
    made = split_by(found, protocol.value, source=graph, parts=parts, seed=seed, disjoint=disjoint)
    report.params = {"verb": "split", "graph": found.name, **_facts(made)}
    report.rows = [
        {"part": "train", "edges": len(made.train), "observed": len(made.observed), "supervised": len(made.supervised)},
        {"part": "valid", "edges": len(made.valid.positives), "negatives": made.valid.negatives.shape[-2]},
        {"part": "test", "edges": len(made.test.positives), "negatives": made.test.negatives.shape[-2]},
    ]
    report.answer = {"status": "done", "split": made.id}
    report.notes = [*found.notes, *made.notes]
    report.warnings = list(warnings_so_far())
    if output:
        with commit_output(output, force=force) as directory:
            names = write_parts(directory, found, made)
        report.artefacts = [str(output / name) for name in names]
    show(report, as_json=as_json)


def audit(
    parts: Annotated[
        Path,
        typer.Argument(
            metavar="SPLIT",
            help="A folder with train.csv, valid.csv, test.csv, valid_neg.csv and test_neg.csv, a run, or a .npz.",
        ),
    ],
    observed: Annotated[
        str | None,
        typer.Option("--observed", metavar="GRAPH", help="The graph that a model sees, if not the training part."),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Find what one part of SPLIT tells another; exit 1 where that is a leak."""
    from icml25cli.core.errors import CheckFailed
    from icml25cli.papers.linkpred.audit import audit as find
    from icml25cli.papers.linkpred.parts import PARTS, read_parts
    from icml25cli.papers.linkpred.readers import read_graph

    report = Report("linkpred", params={"verb": "audit", "split": str(parts)})
    given = read_parts(parts)
    findings = find(given, read_graph(observed) if observed is not None else None)
    leaks = [finding for finding in findings if finding.leak]
    report.rows = [
        asdict(finding) | {"examples": ["–".join(pair) for pair in finding.examples]} for finding in findings
    ]
    report.tables = {"parts": [{"part": part, "pairs": pairs.size // 2} for part, pairs in given.pairs.items()]}
    report.metrics = {"leaks": len(leaks), "findings": len(findings)}
    report.answer = {"status": "leak found" if leaks else "no leak found"}
    unchecked = [part.replace("_", " ") for part in PARTS if part not in given.pairs or not given.pairs[part].size]
    if unchecked:
        report.warnings.append(f"not there, and so not checked: {', '.join(unchecked)}")
    show(report, as_json=as_json)
    if leaks:
        first = leaks[0]
        raise CheckFailed(
            f"leak: {first.kind}, {first.count:,} of {first.part} in {first.other}",
            hint="take them out of one of the two, in both directions",
        )


def _facts(made: "Split") -> dict[str, object]:
    facts: dict[str, object] = {"protocol": made.protocol, "metric": made.metric, "nodes": made.num_nodes}
    if made.hidden.any():
        facts["disjoint"] = float(made.hidden.mean())
    return facts


VERBS = (heuristics, split, audit)

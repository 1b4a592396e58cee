"""Verbs of `icml25 linkpred` on a fitted model, pictures of pairs, and options that they share with its main job."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icml25cli.commands.linkpred_data import Dst, GraphSource, Src
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show

if TYPE_CHECKING:
    import numpy as np

    from icml25cli.papers.linkpred.graph import Graph


class Renderer(StrEnum):
    native = "native"
    sfdp = "sfdp"
    neato = "neato"
    dot = "dot"
    fdp = "fdp"
    circo = "circo"
    twopi = "twopi"


class RecordFormat(StrEnum):
    csv = "csv"
    jsonl = "jsonl"


RendererName = Annotated[
    Renderer, typer.Option("--renderer", help="Who lays pictures out: we, or a program of Graphviz where installed.")
]
Hops = Annotated[int, typer.Option("--hops", min=1, max=4, help="Around a pair; Pubmed takes 2 in the paper.")]
MaxNodes = Annotated[
    int, typer.Option("--max-nodes", min=3, max=128, help="Of a picture; of more nodes a sample is drawn.")
]
VeWeights = Annotated[
    Path | None,
    typer.Option("--ve-weights", metavar="FILE", help="State dict of resnet50, vgg16 or vit_b16, as torchvision's."),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A directory that `run -o` wrote.")]
Records = Annotated[RecordFormat, typer.Option("--format", help="Of the records.")]
PairsFile = Annotated[
    str, typer.Option("--pairs", metavar="FILE", help="Pairs of node ids, two columns; - is standard input.")
]


def score(
    model: Model,
    pairs: PairsFile,
    src: Src = None,
    dst: Dst = None,
    ve_weights: VeWeights = None,
    format: Records = RecordFormat.csv,
    output: opt.Output = None,
    force: opt.Force = False,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Score the given pairs with MODEL; records src, dst, score and prob in the order given."""
    from icml25cli.papers.linkpred.edge_list import Columns
    from icml25cli.papers.linkpred.records import read_pairs

    report, scorer = _load(model, "score", ve_weights, output, force, threads)
    given = read_pairs(pairs, scorer.graph, Columns(src, dst))
    _answer(report, scorer.graph, given, scorer(given), format, output, force, as_json)


def recommend(
    model: Model,
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="ID", help="Only links of this node; repeat for several.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Links to show, of all nodes together.")] = 100,
    ve_weights: VeWeights = None,
    format: Records = RecordFormat.csv,
    output: opt.Output = None,
    force: opt.Force = False,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Show the likeliest missing links: of pairs two steps apart or near by personalised PageRank, the best scored."""
    import numpy as np

    from icml25cli.papers.linkpred.candidates import candidate_pairs
    from icml25cli.papers.linkpred.records import rows_of_nodes

    report, scorer = _load(model, "recommend", ve_weights, output, force, threads)
    asked = rows_of_nodes(scorer.graph, node) if node else None
    pairs = candidate_pairs(scorer.graph.adjacency, asked)
    scores = scorer(pairs)
    best = np.argsort(-scores, kind="stable")[:top]
    report.params["candidates"] = len(pairs)
    _answer(report, scorer.graph, pairs[best], scores[best], format, output, force, as_json)


def render(
    graph: GraphSource = "karate",
    pair: Annotated[
        list[str] | None, typer.Option("--pair", metavar="ID,ID", help="Draw around this pair; repeat for several.")
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="ID", help="Draw around this node; repeat for several.")
    ] = None,
    size: Annotated[int, typer.Option("--size", min=32, max=2048, help="Pixels.")] = 224,
    renderer: RendererName = Renderer.native,
    hops: Hops = 1,
    node_hops: Annotated[int, typer.Option("--node-hops", min=1, max=2, help="Around a node.")] = 2,
    max_nodes: MaxNodes = 100,
    src: Src = None,
    dst: Dst = None,
    output: opt.Output = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Draw what a model sees of pairs and nodes, as PNG files in -o; by default of the first edges of GRAPH."""
    from icml25cli.core.errors import UsageError
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.core.runs import check_output, commit_output
    from icml25cli.papers.linkpred.edge_list import Columns
    from icml25cli.papers.linkpred.pictures import Look
    from icml25cli.papers.linkpred.readers import read_graph
    from icml25cli.papers.linkpred.records import pairs_of, rows_of_nodes, write_pictures

    if output is None:
        raise UsageError("pictures need a directory", hint="-o DIRECTORY")
    check_output(output, force=force)
    found = read_graph(graph, columns=Columns(src, dst))
    pairs = pairs_of(found, pair or []) if pair or node else found.edges[:12]
    nodes = rows_of_nodes(found, node or [])
    report = Report("linkpred", params={"verb": "render", "graph": found.name, "size": size})
    looks = (Look(hops, max_nodes=max_nodes, renderer=renderer.value), Look(node_hops, renderer=renderer.value))
    with commit_output(output, force=force) as directory:
        report.rows = [*write_pictures(directory, found, pairs, nodes, looks, size)]
        report.artefacts = [str(output / str(row["file"])) for row in report.rows]
    report.answer = {"status": "done"}
    report.notes = [*found.notes]
    report.warnings = list(warnings_so_far())
    show(report, as_json=as_json)


def _load(model: Path, verb: str, ve_weights: Path | None, output: Path | None, force: bool, threads: int | None):
    from icml25cli.core.files import check_file
    from icml25cli.core.parallel import set_threads
    from icml25cli.papers.linkpred.saved import load_model

    if output:
        check_file(output, force=force)
    set_threads(threads)
    scorer = load_model(model, weights=ve_weights)
    params = {"verb": verb, "model": str(model), "graph": scorer.graph.name, "method": scorer.method}
    return Report("linkpred", params=params, device="cpu"), scorer


def _answer(
    report: Report,
    graph: "Graph",
    pairs: "np.ndarray",
    scores: "np.ndarray",
    format: RecordFormat,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    from scipy.special import expit

    from icml25cli.core.progress import warnings_so_far
    from icml25cli.core.records import show_records

    records = [
        {"src": graph.ids[u], "dst": graph.ids[v], "score": value, "prob": prob}
        for (u, v), value, prob in zip(pairs.tolist(), scores.tolist(), expit(scores).tolist(), strict=True)
    ]
    report.metrics = {"pairs": len(records)}
    report.answer = {"status": "done"}
    report.notes = [
        "prob is the model's, fitted on as many pairs without a link as with one: it orders, it is no share."
    ]
    report.warnings = list(warnings_so_far())
    show_records(report, records, form=format.value, output=output, force=force, as_json=as_json)


VERBS = (score, recommend, render)

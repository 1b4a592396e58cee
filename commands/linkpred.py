"""`icml25 linkpred`: missing links of a graph, by models that see pictures of it; its other verbs are apart."""

from enum import StrEnum
from typing import Annotated

import typer

from icml25cli.commands import linkpred_data, linkpred_scores
from icml25cli.commands.linkpred_data import (
    Disjoint,
    Dst,
    FeaturesFile,
    GraphSource,
    PartsPath,
    Protocol,
    ProtocolName,
    Runs,
    Src,
    Time,
    Weight,
)
from icml25cli.commands.linkpred_scores import Hops, MaxNodes, Renderer, RendererName, VeWeights
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show
from icml25cli.core.verbs import paper_group


def _graph_names() -> list[str]:
    from icml25cli.papers.linkpred.names import graph_names

    return graph_names()


app = paper_group("linkpred", known_inputs=_graph_names)


class MethodName(StrEnum):
    gvn = "gvn"
    e_gvn = "e-gvn"
    vision_only = "vision-only"
    moe = "moe"
    concat = "concat"
    base = "base"
    base_degree = "base+degree"
    counts_only = "counts-only"
    degree_only = "degree-only"


class BaselineName(StrEnum):
    base = "base"
    base_degree = "base+degree"
    gvn = "gvn"
    e_gvn = "e-gvn"
    vision_only = "vision-only"
    moe = "moe"
    concat = "concat"
    counts_only = "counts-only"
    degree_only = "degree-only"
    heuristics = "heuristics"
    none = "none"


class BaseName(StrEnum):
    ncn = "ncn"
    ncnc = "ncnc"
    gcn = "gcn"
    sage = "sage"
    gin = "gin"


class FusionName(StrEnum):
    late = "late"
    link = "link"


class AttentionName(StrEnum):
    sigmoid = "sigmoid"
    constant = "constant"
    channel = "channel"


class EncoderName(StrEnum):
    vsf_tiny = "vsf-tiny"
    efflite0 = "efflite0"
    resnet50 = "resnet50"
    vgg16 = "vgg16"
    vit_b16 = "vit_b16"
    random = "random"


@app.command()
def run(
    graph: GraphSource = "karate",
    method: Annotated[MethodName, typer.Option("--method", help="The main method.")] = MethodName.gvn,
    baseline: Annotated[
        list[BaselineName] | None,
        typer.Option(
            "--baseline",
            help="Methods beside it, or none. "
            "[default: base, base+degree, gvn, e-gvn, vision-only, counts-only, heuristics]",
        ),
    ] = None,
    placebo: Annotated[
        bool, typer.Option("--placebo/--no-placebo", help="The main method with pictures of other pairs, as a control.")
    ] = True,
    base: Annotated[BaseName, typer.Option("--base", help="What passes messages.")] = BaseName.ncn,
    fusion: Annotated[
        FusionName, typer.Option("--fusion", help="Of gvn: of scores, on validation pairs, or inside the base model.")
    ] = FusionName.late,
    attention: Annotated[
        AttentionName, typer.Option("--attention", help="How much of a picture passes; constant is the authors' code.")
    ] = AttentionName.sigmoid,
    ve: Annotated[EncoderName, typer.Option("--ve", help="What looks at pictures.")] = EncoderName.vsf_tiny,
    ve_weights: VeWeights = None,
    image_size: Annotated[
        int | None, typer.Option("--image-size", min=32, max=512, help="Pixels of a picture. [default: the encoder's]")
    ] = None,
    renderer: RendererName = Renderer.native,
    hops: Hops = 1,
    node_hops: Annotated[
        int, typer.Option("--node-hops", min=1, max=2, help="Of e-gvn's pictures; 1 draws stars, which show degrees.")
    ] = 2,
    fanout: Annotated[int, typer.Option("--fanout", min=1, max=20, help="Neighbours drawn of a node in them.")] = 5,
    max_nodes: MaxNodes = 100,
    src: Src = None,
    dst: Dst = None,
    weight: Weight = None,
    time: Time = None,
    features: FeaturesFile = None,
    protocol: ProtocolName = Protocol.planetoid,
    parts: PartsPath = None,
    disjoint: Disjoint = 0.0,
    use_val_edges: Annotated[
        bool, typer.Option("--use-val-edges", help="Pass messages over validation edges, too, when testing.")
    ] = False,
    runs: Runs = 3,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Most passes over training edges.")] = 100,
    patience: Annotated[
        int, typer.Option("--patience", min=1, help="Evaluations, one every 5 epochs, without a better one.")
    ] = 6,
    hidden: Annotated[int, typer.Option("--hidden", min=4, max=4096, help="Width of the base model.")] = 128,
    rate: Annotated[float, typer.Option("--lr", min=1e-8, max=1.0, help="Learning rate of the base model.")] = 0.01,
    output: opt.Output = None,
    force: opt.Force = False,
    plot: opt.Plot = None,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Split GRAPH, fit models with and without pictures of it, judge them beside heuristics, keep the model with -o."""
    from icml25cli.core.plots import check_figure
    from icml25cli.core.runs import check_output, commit_output
    from icml25cli.papers.linkpred.edge_list import Columns
    from icml25cli.papers.linkpred.given import split_by
    from icml25cli.papers.linkpred.readers import read_graph

    report = Report("linkpred", seed=seed)
    if output:
        check_output(output, force=force)
    if plot:
        check_figure(plot, force=force)
    found = read_graph(graph, columns=Columns(src, dst, weight, time), features=features)
    splits = [
        split_by(found, protocol.value, source=graph, parts=parts, seed=seed + i, disjoint=disjoint)
        for i in range(runs)
    ]

    # Only now what takes seconds to import: a graph that cannot be read is answered at once.
    from icml25cli.core.files import write_json
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.plots import save_figure
    from icml25cli.core.progress import note, warnings_so_far
    from icml25cli.papers.linkpred import figures
    from icml25cli.papers.linkpred.encoders import load_encoder
    from icml25cli.papers.linkpred.job import DEFAULT_BASELINES, Plan, carry_out
    from icml25cli.papers.linkpred.pictures import Look
    from icml25cli.papers.linkpred.saved import save_model
    from icml25cli.papers.linkpred.study import Options
    from icml25cli.papers.linkpred.training import Recipe

    set_threads(threads)
    beside = tuple(b.value for b in baseline if b != BaselineName.none) if baseline else DEFAULT_BASELINES
    plan = Plan(method.value, beside, placebo)
    shared = {"max_nodes": max_nodes, "renderer": renderer.value}
    options = Options(
        base=base.value,
        fusion=fusion.value,
        attention=attention.value,
        hidden=hidden,
        recipe=Recipe(epochs=epochs, patience=patience, base_rate=rate),
        pair_look=Look(hops=hops, **shared),
        node_look=Look(hops=node_hops, fanout=fanout, **shared),
        use_validation_edges=use_val_edges,
    )
    encoder = load_encoder(ve.value, weights=ve_weights, size=image_size)
    report.device = "cpu"
    with carry_out(found, splits, plan, options, encoder, output=output, resume=resume, fresh=fresh) as result:
        metric = splits[0].metric
        report.params = {
            "graph": found.name,
            "nodes": found.num_nodes,
            "edges": len(found.edges),
            "method": method.value,
            "base": base.value,
            "fusion": fusion.value,
            "attention": attention.value,
            "ve": encoder.name,
            "image_size": encoder.size,
            "precision": encoder.precision,
            "protocol": protocol.value,
            "metric": metric,
            "runs": runs,
            "epochs": epochs,
        } | {key: value for key, value in (("src", src), ("dst", dst), ("weight", weight), ("time", time)) if value}
        rows = result.rows
        names = ["method", *dict.fromkeys([metric, "hits_at_100", "auc", "mrr"]), "negatives", "seconds", "parameters"]
        report.rows = [
            {key: row[key] for name in names for key in (name, f"{name}_sd") if row.get(key) is not None}
            for row in rows
        ]
        report.tables = {"gain over base": [*result.gains], "models of the first split": [*result.models]}
        report.details = {"all figures": [*rows]}
        report.metrics = {metric: rows[0][metric], "auc": rows[0]["auc"], "negatives": rows[0]["negatives"]}  # type: ignore[dict-item]
        report.answer = {"status": "done"}
        report.notes = [*result.notes]
        better = [row for row in rows[1:] if row["auc"] > rows[0]["auc"]]  # type: ignore[operator]
        if better:
            told = ", ".join(f"{row['method']} {row['auc']:.3f}" for row in better)
            report.notes.append(f"Better in AUC than {method.value} ({rows[0]['auc']:.3f}): {told}.")
        report.warnings = list(warnings_so_far())
        if plot:
            save_figure(figures.roc(result), plot, force=force)
            report.artefacts.append(str(plot))
        if output:
            with commit_output(output, force=force) as directory:
                source = {"name": ve.value, "weights": ve_weights and str(ve_weights.resolve()), "size": encoder.size}
                names = save_model(directory, result, source)
                save_figure(figures.contact_sheet(result), directory / "sheet.png")
                save_figure(figures.roc(result), directory / "roc.svg")
                names += ["sheet.png", "roc.svg", "report.json"]
                report.artefacts += [str(output / name) for name in names]
                report.finish()
                write_json(directory / "report.json", report.document())
        else:
            note("finished work is kept: repeat the command with -o DIRECTORY to keep the model")
    show(report, as_json=as_json)


for verb in (*linkpred_scores.VERBS, *linkpred_data.VERBS):
    app.command()(verb)

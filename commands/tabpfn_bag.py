"""`icml25 tabpfn-bag`: classes of a table's rows by a bagged and tuned prior-fitted network."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icml25cli.core import options as opt
from icml25cli.core.report import Report, show
from icml25cli.core.verbs import paper_group

if TYPE_CHECKING:
    from icml25cli.papers.tabpfn_bag.model import Options

app = paper_group("tabpfn-bag")


class MethodName(StrEnum):
    beta = "beta"
    frozen = "frozen"
    bag = "bag"
    encoder = "encoder"
    beta_noboot = "beta-noboot"
    full_ft = "full-ft"
    local = "local"
    tabm = "tabm"
    random_pfn = "random-pfn"


class Arch(StrEnum):
    mini = "tabm-mini"
    full = "tabm"
    naive = "tabm-naive"


class Aggregate(StrEnum):
    logit = "logit"
    prob = "prob"
    weighted = "weighted"


class ManyClass(StrEnum):
    ecoc = "ecoc"
    alphabet = "alphabet"
    error = "error"


Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="A file (.csv .tsv .parquet .feather .arff .jsonl .npz), a TALENT folder, - for standard input, or a "
        "known set (builtin:iris, keel:NAME ...).",
    ),
]
Target = Annotated[
    str | None, typer.Option("--target", metavar="COLUMN", help="The class. [default: target, class, label or y]")
]
Pfn = Annotated[str, typer.Option("--pfn", metavar="NAME", help="The network: nano, or a folder of one.")]
Method = Annotated[MethodName, typer.Option("--method", help="The main method.")]
Paths = Annotated[int, typer.Option("--k", min=1, max=256, help="Paths: contexts, and encoders of rows.")]
ArchName = Annotated[Arch, typer.Option("--arch", help="How paths' encoders differ.")]
Context = Annotated[int, typer.Option("--context-size", min=2, help="Rows of a context in prediction.")]
Epochs = Annotated[int, typer.Option("--epochs", min=1, help="Most validations, of 10 to 50 steps each.")]
Patience = Annotated[int, typer.Option("--patience", min=1, help="Validations without a better one.")]
Rate = Annotated[float, typer.Option("--lr", min=1e-8, max=10.0, help="Learning rate.")]
Overlap = Annotated[
    bool, typer.Option("--overlap", help="Queries may stand in their own context, as in the authors' code.")
]
AggregateName = Annotated[Aggregate, typer.Option("--aggregate", help="What is averaged over paths.")]
Many = Annotated[ManyClass, typer.Option("--many-class", help="For more classes than the network has.")]
Fallback = Annotated[
    bool, typer.Option("--fallback/--no-fallback", help="Predict by the network as it is where training is no better.")
]
TimeLimit = Annotated[float, typer.Option("--time-limit", min=0.0, help="Seconds of a fit; 0 for no limit.")]


@dataclass(frozen=True)
class _Given:
    method: str
    paths: int
    arch: str
    context: int
    epochs: int
    patience: int
    rate: float
    overlap: bool
    aggregate: str
    many: str
    fallback: bool
    limit: float
    seed: int

    def options(self) -> "Options":
        from icml25cli.papers.tabpfn_bag.finetune import Recipe
        from icml25cli.papers.tabpfn_bag.model import Options

        recipe = Recipe(
            shown=self.context,
            epochs=self.epochs,
            patience=self.patience,
            rate=self.rate,
            disjoint=not self.overlap,
            aggregate=self.aggregate,  # type: ignore[arg-type]
            time_limit=self.limit or None,
            seed=self.seed,
        )
        return Options(
            method=self.method,
            paths=self.paths,
            kind=self.arch,
            many_class=self.many,  # type: ignore[arg-type]
            fallback=self.fallback,
            recipe=recipe,
        )


@app.command()
def run(
    table: Table = "builtin:wine",
    target: Target = None,
    method: Method = MethodName.beta,
    baseline: Annotated[
        list[str] | None,
        typer.Option("--baseline", help="Methods beside it. [default: frozen, tabm, hgb, rf, logreg]"),
    ] = None,
    pfn: Pfn = "nano",
    k: Paths = 8,
    arch: ArchName = Arch.mini,
    context_size: Context = 1000,
    epochs: Epochs = 200,
    patience: Patience = 50,
    lr: Rate = 3e-3,
    overlap: Overlap = False,
    aggregate: AggregateName = Aggregate.logit,
    many_class: Many = ManyClass.ecoc,
    fallback: Fallback = True,
    time_limit: TimeLimit = 300.0,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    resume: opt.Resume = False,
    fresh: opt.Fresh = False,
    as_json: opt.Json = False,
) -> None:
    """Hold out a fifth of TABLE, fit the method and its baselines on the rest, and judge them."""
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.tabpfn_bag.job import compare
    from icml25cli.papers.tabpfn_bag.nets import load_net
    from icml25cli.papers.tabpfn_bag.readers import read_table, separated, target_of

    report = Report("tabpfn-bag", seed=seed, device="cpu")
    net, frame = load_net(pfn), read_table(table)
    named = target_of(frame, target)
    set_threads(threads)
    given = _Given(
        method.value, k, arch.value, context_size, epochs, patience, lr, overlap, aggregate.value, many_class.value,
        fallback, time_limit, seed,
    )  # fmt: skip
    methods = list(dict.fromkeys([method.value, *(baseline or ("frozen", "tabm", "hgb", "rf", "logreg"))]))
    rows = compare(*separated(frame, named), net, methods, given.options(), resume=resume, fresh=fresh)
    report.params = {"table": table, "target": named, "rows": len(frame), "method": method.value, "k": k}
    report.rows = [*rows]
    report.metrics = {key: v for key, v in rows[0].items() if isinstance(v, float)}
    report.answer = {"status": "done"}
    report.warnings = list(warnings_so_far())
    show(report, as_json=as_json)


@app.command()
def fit(
    table: Table,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="The model's file.")],
    target: Target = None,
    method: Method = MethodName.beta,
    valid: Annotated[
        str | None, typer.Option("--valid", metavar="TABLE", help="Rows to stop by. [default: a fifth of TABLE]")
    ] = None,
    pfn: Pfn = "nano",
    k: Paths = 8,
    arch: ArchName = Arch.mini,
    context_size: Context = 1000,
    epochs: Epochs = 200,
    patience: Patience = 50,
    lr: Rate = 3e-3,
    overlap: Overlap = False,
    aggregate: AggregateName = Aggregate.logit,
    many_class: Many = ManyClass.ecoc,
    fallback: Fallback = True,
    time_limit: TimeLimit = 300.0,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Fit TABLE and write the model, one file without code in it."""
    from icml25cli.core.files import check_file
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.tabpfn_bag.model import fit_model
    from icml25cli.papers.tabpfn_bag.nets import load_net
    from icml25cli.papers.tabpfn_bag.readers import read_table, separated, target_of
    from icml25cli.papers.tabpfn_bag.saved import save_model

    report = Report("tabpfn-bag", seed=seed, device="cpu")
    check_file(output, force=force)
    net, frame = load_net(pfn), read_table(table)
    named = target_of(frame, target)
    other = None
    if valid is not None:
        check = read_table(valid)
        target_of(check, named)
        other = separated(check, named)
    set_threads(threads)
    given = _Given(
        method.value, k, arch.value, context_size, epochs, patience, lr, overlap, aggregate.value, many_class.value,
        fallback, time_limit, seed,
    )  # fmt: skip
    model = fit_model(*separated(frame, named), net, given.options(), valid=other)
    save_model(model, output, force=force)
    facts = {key: value for key, value in model.facts.items() if key != "history"}
    report.params = {"verb": "fit", "table": table, "target": named, "rows": len(frame), "method": method.value, "k": k}
    report.metrics = {key: v for key, v in facts.items() if isinstance(v, int | float)}
    report.answer = {"status": "done", "used": facts["used"], "classes": len(model.classes)}
    report.artefacts = [str(output)]
    report.warnings = list(warnings_so_far())
    show(report, as_json=as_json)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that fit wrote.")],
    table: Table,
    proba: Annotated[bool, typer.Option("--proba", help="A column of probabilities for each class.")] = False,
    form: Annotated[str, typer.Option("--format", help="csv or jsonl.")] = "csv",
    output: opt.Output = None,
    force: opt.Force = False,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Predict the class of each row of TABLE, in order."""
    from icml25cli.core.errors import UsageError
    from icml25cli.core.files import check_file
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import Progress, warnings_so_far
    from icml25cli.core.records import show_records
    from icml25cli.papers.tabpfn_bag.readers import read_table
    from icml25cli.papers.tabpfn_bag.saved import load_model

    report = Report("tabpfn-bag", device="cpu")
    if form not in ("csv", "jsonl"):
        raise UsageError(f"--format is csv or jsonl, not {form}", hint="leave it out for csv")
    if output is not None:
        check_file(output, force=force)
    fitted, frame = load_model(model), read_table(table)
    set_threads(threads)
    with Progress("rows", len(frame)) as progress:
        p = fitted.probabilities(frame, progress.advance)
    names = [f"p_{name}" for name in fitted.classes]
    records = []
    for best, row in zip(p.argmax(1).tolist(), p.tolist(), strict=True):
        shares = dict(zip(names, row, strict=True)) if proba else {}
        records.append({"class": fitted.classes[best], "probability": row[best], **shares})
    report.params = {"verb": "predict", "model": str(model), "table": table, "rows": len(frame)}
    report.warnings = list(warnings_so_far())
    show_records(report, records, form=form, output=output, force=force, as_json=as_json)


@app.command("eval")
def evaluate_model(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A file that fit wrote.")],
    table: Table,
    target: Target = None,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Judge MODEL on the rows of TABLE, whose classes are known."""
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warn, warnings_so_far
    from icml25cli.papers.tabpfn_bag.labels import numbers_of
    from icml25cli.papers.tabpfn_bag.metrics import evaluate
    from icml25cli.papers.tabpfn_bag.readers import read_table, separated, target_of
    from icml25cli.papers.tabpfn_bag.saved import load_model

    report = Report("tabpfn-bag", device="cpu")
    fitted, frame = load_model(model), read_table(table)
    named = target_of(frame, target)
    set_threads(threads)
    labels = numbers_of(separated(frame, named)[1], fitted.classes)
    if (labels < 0).any():
        warn(f"{(labels < 0).sum():,} rows have no class that the model knows and are left out")
    known = frame.loc[labels >= 0]
    figures = evaluate(fitted.probabilities(known), labels[labels >= 0])
    report.params = {"verb": "eval", "model": str(model), "table": table, "rows": len(known)}
    report.rows = [{"method": fitted.options.method, **figures}]
    report.metrics = {**figures}
    report.warnings = list(warnings_so_far())
    show(report, as_json=as_json)


@app.command()
def ecoc(
    classes: Annotated[int, typer.Option("--classes", min=3, max=2000, help="Rows of the code.")],
    length: Annotated[int | None, typer.Option("--length", min=2, max=512, help="Symbols. [default: 4 log2 C]")] = None,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
) -> None:
    """Show a code of CLASSES and how many wrong symbols it forgives."""
    from icml25cli.papers.tabpfn_bag.codes import binary_code, binary_length

    report = Report("tabpfn-bag", seed=seed)
    code = binary_code(classes, length or binary_length(classes, 1), seed, least=1 if length else 3)
    report.params = {"verb": "ecoc", "classes": classes, "length": code.matrix.shape[1]}
    report.rows = [{"class": i, "word": "".join(map(str, row))} for i, row in enumerate(code.matrix.tolist())]
    report.metrics = {"distance": code.distance, "forgiven": (code.distance - 1) // 2}
    report.answer = {"distance": code.distance, "forgiven": (code.distance - 1) // 2}
    show(report, as_json=as_json)

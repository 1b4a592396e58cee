"""Options that several verbs of `icml25 tabpfn-bag` share, spelt and explained once."""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from icml25cli.papers.tabpfn_bag.model import Options


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


class AggregateName(StrEnum):
    logit = "logit"
    prob = "prob"
    weighted = "weighted"


class ManyClassName(StrEnum):
    ecoc = "ecoc"
    alphabet = "alphabet"
    error = "error"


UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str | float) -> float:
    """``300``, ``90s``, ``5m`` or ``1h30m`` in seconds.

    Raises:
        BadParameter: it is none of them.
    """
    whole = str(text).strip().lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh]?)", whole)
    if not parts or "".join(number + unit for number, unit in parts) != whole or len(whole) > 30:
        raise typer.BadParameter(f"'{text}' is no time: give 300, 90s, 5m or 1h.")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="A file (.csv .tsv .parquet .feather .arff .jsonl .npz), a TALENT folder, - for standard input, or a "
        "known set (builtin:iris, keel:NAME ...).",
    ),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A file that fit wrote.")]
Target = Annotated[
    str | None, typer.Option("--target", metavar="COLUMN", help="The class. [default: target, class, label or y]")
]
Pfn = Annotated[
    str, typer.Option("--pfn", metavar="NAME", help="The network: nano, tabpfn-v1:FILE, tabpfn:FILE, or a folder.")
]
Method = Annotated[MethodName, typer.Option("--method", help="The main method.")]
K = Annotated[int, typer.Option("--k", min=1, max=256, help="Paths: contexts, and encoders of rows.")]
ArchName = Annotated[Arch, typer.Option("--arch", help="How paths' encoders differ.")]
Plr = Annotated[bool, typer.Option("--plr/--no-plr", help="Embed numbers by cosines and sines of them.")]
Dropout = Annotated[float, typer.Option("--dropout", min=0.0, max=0.9, help="Of encoders.")]
ContextSize = Annotated[int, typer.Option("--context-size", min=2, help="Rows of a context in prediction.")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Queries of a training step.")]
Epochs = Annotated[int, typer.Option("--epochs", min=1, help="Most validations, of 10 to 50 steps each.")]
Patience = Annotated[int, typer.Option("--patience", min=1, help="Validations without a better one.")]
Rate = Annotated[float, typer.Option("--lr", min=1e-8, max=10.0, help="Learning rate.")]
Decay = Annotated[float, typer.Option("--wd", min=0.0, max=10.0, help="Weight decay.")]
Overlap = Annotated[
    bool, typer.Option("--overlap", help="Queries may stand in their own context, as in the authors' code.")
]
Aggregate = Annotated[AggregateName, typer.Option("--aggregate", help="What is averaged over paths.")]
ManyClass = Annotated[
    ManyClassName,
    typer.Option(
        "--many-class",
        help="For more classes than the network has: codes of bits (ecoc), or of six symbols (alphabet).",
    ),
]
Fallback = Annotated[
    bool, typer.Option("--fallback/--no-fallback", help="Predict by the network as it is where training is no better.")
]
TimeLimit = Annotated[
    Any,
    typer.Option("--time-limit", metavar="TIME", parser=seconds, help="Of a fit: 300, 90s, 5m; 0 for none."),
]


def share(text: str) -> float | None:
    """The share of rows that a number says; None for the name of a table.

    Raises:
        BadParameter: the number is no share.
    """
    try:
        value = float(text)
    except ValueError:
        return None
    if not 0 < value < 1:
        raise typer.BadParameter(f"--valid {text} is no share of the rows: give a number between 0 and 1.")
    return value


def fit_options(given: Mapping[str, Any], *, valid: float = 0.2, processor_time: bool = False) -> "Options":
    """What the options of a verb, by their parameters' names, say about fits; what it has not is at its default."""
    from icml25cli.papers.tabpfn_bag.finetune import Recipe
    from icml25cli.papers.tabpfn_bag.model import Options

    recipe = Recipe(
        shown=given["context_size"],
        batch=given["batch"],
        epochs=given["epochs"],
        patience=given["patience"],
        rate=given["lr"],
        decay=given["wd"],
        disjoint=not given["overlap"],
        aggregate=given["aggregate"].value,
        time_limit=given["time_limit"] or None,
        processor_time=processor_time,
        seed=given["seed"],
    )
    plain = Options(recipe=recipe)
    return Options(
        method=given["method"].value if isinstance(given.get("method"), MethodName) else "beta",
        paths=given["k"],
        kind=given["arch"].value,
        frequencies=plain.frequencies if given["plr"] else 0,
        dropout=given["dropout"],
        valid=valid,
        many_class=given["many_class"].value,
        fallback=given["fallback"],
        recipe=recipe,
    )

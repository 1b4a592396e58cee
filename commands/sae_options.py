"""Options that several verbs of `icml25 sae` share, spelt and explained once."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

if TYPE_CHECKING:
    from icml25cli.core.embeddings import Embeddings
    from icml25cli.core.survey import Survey
    from icml25cli.papers.sae.model import SparseAutoencoder


class MethodName(StrEnum):
    msae = "msae"
    topk = "topk"
    batchtopk = "batchtopk"
    relu = "relu"
    jumprelu = "jumprelu"
    prefix_matryoshka = "prefix-matryoshka"


class BaselineName(StrEnum):
    msae_uw = "msae-uw"
    msae_rw = "msae-rw"
    topk = "topk"
    batchtopk = "batchtopk"
    relu = "relu"
    jumprelu = "jumprelu"
    prefix_matryoshka = "prefix-matryoshka"
    none = "none"


class WeightsName(StrEnum):
    uw = "uw"
    rw = "rw"


class LossName(StrEnum):
    mse = "mse"
    nmse = "nmse"


class CenterAs(StrEnum):
    train = "train"
    self = "self"


class NameSpace(StrEnum):
    direction = "direction"
    absolute = "absolute"


class Form(StrEnum):
    csv = "csv"
    jsonl = "jsonl"


class PoolName(StrEnum):
    mean = "mean"
    last = "last"
    tokens = "tokens"


FORMATS = ".npy, .npz, .safetensors, .parquet or .pt, FILE:KEY where it holds several, - for .npy on standard input"
Source = Annotated[
    str,
    typer.Argument(
        metavar="EMBEDDINGS",
        help=f"One item a row: {FORMATS}; a model, for its token embeddings; or synthetic, built in.",
    ),
]
Rows = Annotated[str, typer.Argument(metavar="EMBEDDINGS", help=f"One item a row: {FORMATS}.")]
Directory = Annotated[Path, typer.Argument(metavar="SAE_DIR", help="A folder that `sae train -o` wrote.")]
Ks = Annotated[
    Optional[str],  # noqa: UP045 -- Typer reads the annotation at run time
    typer.Option("--ks", metavar="LIST", help="Entries a row keeps in the table. [default: 16,32,... and all]"),
]
K = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--k", min=1, help="Keep the k largest of each row. [default: the method's own code]"),
]
DropBad = Annotated[bool, typer.Option("--drop-bad", help="Leave out rows that hold NaN or infinity.")]
Center = Annotated[
    CenterAs,
    typer.Option("--center-as", help="Mean and scale: the training rows', or for another modality its own."),
]
Labels = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--labels", metavar="FILE.csv", help="A label a row: the column label, or the only or last one."),
]
Names = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--names", metavar="FILE.csv", help="Of `sae name -o`. [default: names.csv in SAE_DIR, if there]"),
]
Format = Annotated[Form, typer.Option("--format", help="Of the records.")]
RecordsOutput = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--output", "-o", metavar="FILE", help="Write the records here. [default: standard output]"),
]


def numbers(listed: str, option: str) -> tuple[int, ...]:
    """``64,128`` as 64, 128.

    Raises:
        UsageError: it is no list of positive whole numbers.
    """
    from icml25cli.core.errors import UsageError

    parts = [part.strip() for part in listed.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and 0 < int(part[:12]) < 10**9 for part in parts):
        raise UsageError(f"{option} {listed} is no list of whole numbers", hint="write it as 16,32,64")
    return tuple(int(part) for part in parts)


def opened(named: str, *, drop_bad: bool, allow_download: bool = False, seed: int = 0) -> "tuple[Embeddings, Survey]":
    """The embeddings that a word means, without unusable rows, and what is in them."""
    from icml25cli.core.embeddings import of_array, open_embeddings
    from icml25cli.core.survey import usable
    from icml25cli.papers.sae.synthetic import dictionary

    if named == "synthetic":
        x = of_array("synthetic", dictionary(seed=seed).rows)
    else:
        x = open_embeddings(named, allow_download=allow_download)
    return usable(x, drop_bad=drop_bad)


def model_for(
    directory: Path, named: str, *, drop_bad: bool, center_as: CenterAs = CenterAs.train
) -> "tuple[SparseAutoencoder, Embeddings]":
    """A model with the scaling for these embeddings, and the embeddings."""
    from icml25cli.papers.sae.codes import fitted
    from icml25cli.papers.sae.saved import load

    model = load(directory)
    x, found = opened(named, drop_bad=drop_bad)
    return fitted(model, x, found, center_as.value), x


def about(model: "SparseAutoencoder") -> dict[str, Any]:
    """What a report says of a model."""
    config = model.config
    return {"method": config.label, "latents": config.n, "width": config.d}


EXPLAINED = (
    "Code topk keeps the k largest of each row, full all positive pre-activations, threshold those above batchtopk's "
    "running threshold. fvu is the squared error over that of the mean; fvu_row is its form within rows."
)


def learning_rate(asked: str) -> float | None:
    """A positive number, or None for auto.

    Raises:
        UsageError: it is neither.
    """
    from icml25cli.core.errors import UsageError

    if asked == "auto":
        return None
    try:
        rate = float(asked)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 100:
        raise UsageError(f"--lr {asked} is no learning rate", hint="write auto, or a number such as 1e-4")
    return rate


def write_report(report: Any, directory: Path, output: Path, names: list[str]) -> None:
    """Put the report beside what was written into ``directory``, which becomes ``output``."""
    from icml25cli.core.files import write_json

    report.artefacts += [str(output / name) for name in (*names, "report.json")]
    report.finish()
    write_json(directory / "report.json", report.document())


def code_name(model: "SparseAutoencoder", k: int | None) -> str:
    """What kind of code an output holds, as in the tables."""
    if k:
        return f"topk {k}"
    return "threshold" if model.config.method == "batchtopk" else "full"


def names_of(directory: Path, given: Path | None, model: "SparseAutoencoder") -> dict[int, tuple[str, bool]]:
    """Names of latents and whether they are valid; none where there is no file of them."""
    from icml25cli.papers.sae.naming import FILE, read_names

    file = given or directory / FILE
    return read_names(file, model.config.n) if given or file.is_file() else {}

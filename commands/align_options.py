"""Options that several verbs of `icml25 align` share, spelt and explained once."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

if TYPE_CHECKING:
    from icml25cli.papers.align.job import Rows
    from icml25cli.papers.align.metrics import Settings


class NormalizeName(StrEnum):
    l2 = "l2"
    none = "none"
    zscore = "zscore"


class IndexName(StrEnum):
    exact = "exact"
    faiss_flat = "faiss-flat"
    faiss_ivf = "faiss-ivf"
    hnsw = "hnsw"


class Form(StrEnum):
    csv = "csv"
    jsonl = "jsonl"


FORMATS = ".npy, .npz, .safetensors, .parquet or .pt; FILE:KEY where it holds several"
First = Annotated[str, typer.Argument(metavar="A", help=f"One item a row: {FORMATS}; or digits-left, built in.")]
Second = Annotated[str, typer.Argument(metavar="B", help="The same items by another encoder; or digits-right.")]
AllMetrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="LIST|all", help="ucka, mknn, cka ...; man icml25-align. [default: all]"),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="LIST|all", help="ucka, mknn, cka ...; man icml25-align. [default: ucka,mknn]"),
]
K = Annotated[int, typer.Option("--k", min=1, help="Nearest neighbours.")]
Permutations = Annotated[int, typer.Option("--null", min=0, max=100_000, help="Orders of B's rows that chance is.")]
Normalize = Annotated[
    NormalizeName, typer.Option("--normalize", help="Rows to length 1, columns to variance 1, or neither.")
]
Clip = Annotated[
    float, typer.Option("--clip-quantile", min=0.5, max=1.0, help="Clamp values to ± this quantile of them; 1 for not.")
]
Ids = Annotated[
    Optional[str],  # noqa: UP045 -- Typer reads the annotation at run time
    typer.Option("--ids", metavar="NAME", help="Pair rows by this array or column of both files, not by number."),
]
MatchN = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--match-n", min=4, help="Compare so many rows, drawn: neighbours depend on how many there are."),
]
DropBad = Annotated[bool, typer.Option("--drop-bad", help="Leave out rows that hold NaN or infinity.")]
Queries = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--queries", min=0, help="Rows whose neighbours are sought, 0 for all. [default: 4096 above 50,000]"),
]
Index = Annotated[IndexName, typer.Option("--index", help="How neighbours are sought; others need the extra index.")]
Format = Annotated[Form, typer.Option("--format", help="Of the records.")]
RecordsOutput = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--output", "-o", metavar="FILE", help="Write the records here. [default: standard output]"),
]


def rows_of(
    normalize: NormalizeName, clip: float, ids: str | None, match_n: int | None, drop_bad: bool, seed: int
) -> "Rows":
    from icml25cli.papers.align.job import Rows

    return Rows(normalize.value, clip, ids, match_n, drop_bad, seed)


def joined(given: list[str] | None, default: str) -> str:
    """What --metric said, once with commas or several times, as one list."""
    return ",".join(given) if given else default


def settings_of(**given: Any) -> "Settings":
    from icml25cli.papers.align.metrics import Settings

    return Settings(**given)


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """``0:8`` as 0 to 8, ``1:9:2`` as 1, 3, 5, 7, 9, ``1,3,6`` as it is.

    Raises:
        UsageError: it is neither a range nor a list, or a long one.
    """
    from icml25cli.core.errors import UsageError

    try:
        if ":" in text:
            first, last, *step = (int(part) for part in text.split(":"))
            found = tuple(range(first, last + 1, *step)) if len(step) < 2 else ()
        else:
            found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or len(found) > 100:
        raise UsageError(f"{option} {text} is no range of whole numbers", hint="write it as 0:8, 1:9:2 or 1,3,6")
    return found


def bounds(texts: list[str]) -> dict[str, float]:
    """``ucka=.3`` as what a metric must reach.

    Raises:
        UsageError: it is no metric with a number.
    """
    import math

    from icml25cli.core.errors import UsageError
    from icml25cli.papers.align.metrics import METRICS

    found = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            found[name] = float(number)
        except ValueError:
            name = ""
        if name not in METRICS or not math.isfinite(found[name]):
            raise UsageError(f"--fail-below {text} is no bound of a metric", hint="write it as ucka=0.3")
    return found


def sigma_of(text: str) -> float | None:
    """A positive width, or None for the median distance.

    Raises:
        UsageError: it is neither.
    """
    from icml25cli.core.errors import UsageError

    if text == "median":
        return None
    try:
        width = float(text)
    except ValueError:
        width = 0.0
    if not 1e-9 < width < 1e9:
        raise UsageError(f"--sigma {text} is no width", hint="write median, or a number such as 1")
    return width


def below(rows: Any, bounds: dict[str, float]) -> str | None:
    """What does not reach its bound, in a sentence; of layers the best pair counts."""
    low = []
    for name, bound in bounds.items():
        values = [row["value"] for row in rows if row["metric"] == name and row["value"] is not None]
        if not values or max(values) < bound:
            low.append(f"{name} {max(values):.4g} is below {bound:g}" if values else f"{name} was not measured")
    return "; ".join(low) or None


EXPLAINED = (
    "null_mean and z are of B's rows in random order; ci is a jackknife over 20 parts of the rows. Values of "
    "neighbours depend on the number of rows and k. p_value is at least 1/(1 + --null)."
)
LAYERS = (
    "max is the best of all pairs of layers, and its chance the best of all pairs once rows are in random order; last "
    "is the last layers'. Layers count from 0. The JSON form holds all pairs."
)
SIMULATED = (
    "max_ucka is the largest unbiased CKA over pairs of layers, depths and seeds, on 512 test rows; best_accuracy is "
    "what the second view allows, computed exactly. alignment_performance and alignment_depth are correlations "
    "over depths and seeds. All information about the label is 1.1588 nats at every level."
)
DEMONSTRATED = (
    "Both views hold eight shared bits and four of their own; of the label's eight bits, unique ones are in one view "
    "alone. The views are the same at every level, so alignment is too: only the label tells whether it matters. "
    "redundant_share is estimated by probes on 4000 items, exact_share computed."
)

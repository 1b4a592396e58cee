"""Options that several verbs of `icml25 prune` share, spelt and explained once."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from icml25cli.papers.prune.methods import Options


class MethodName(StrEnum):
    slimllm = "slimllm"
    wanda_sp = "wanda-sp"
    flap = "flap"
    lorap_ffn = "lorap-ffn"
    magnitude_sp = "magnitude-sp"
    random = "random"
    depth = "depth"


class Share(StrEnum):
    decoder = "decoder"
    all = "all"


class Gqa(StrEnum):
    group = "group"
    expand = "expand"
    query = "query"


class HeadScore(StrEnum):
    pearson = "pearson"
    wanda = "wanda"
    magnitude = "magnitude"
    random = "random"


class Search(StrEnum):
    greedy = "greedy"
    none = "none"
    full = "full"


class FfnScore(StrEnum):
    feature = "feature"
    lorap = "lorap"
    wanda = "wanda"
    magnitude = "magnitude"
    random = "random"


class Repair(StrEnum):
    linear = "linear"
    bias = "bias"
    none = "none"
    ridge = "ridge"


class LayerRatio(StrEnum):
    cosine = "cosine"
    uniform = "uniform"


class Export(StrEnum):
    custom = "custom"
    uniform = "uniform"
    padded = "padded"


Method = Annotated[MethodName, typer.Option("--method", help="The main method.")]
Target = Annotated[float, typer.Option("--target", min=0.0, max=0.95, help="Share of parameters to remove.")]
Of = Annotated[Share, typer.Option("--of", help="Whose parameters --target is a share of.")]
GqaMode = Annotated[
    Gqa,
    typer.Option(
        "--gqa",
        help="Where query heads share key-value heads: whole groups go; or single heads, each left with a copy of its "
        "keys and values (expand); or as many query heads of every group.",
    ),
]
Alpha = Annotated[
    Optional[float],  # noqa: UP045 -- Typer reads the annotation at run time
    typer.Option("--alpha", min=0.0, help="Sharpness of the softmax over layers. [default: the paper's, 10 to 7]"),
]
Layers = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(
        "--layers", min=1, max=2**16, help="Layers that lose anything. [default: the paper's share, 26 to 30 of 32]"
    ),
]
Protect = Annotated[
    str, typer.Option("--protect", metavar="LAYERS", help="Layers that lose nothing, as 0,1,29 or 0-1,29.")
]
MultipleOf = Annotated[
    int,
    typer.Option(
        "--multiple-of", min=1, max=2**16, help="Round channels to multiples, which some hardware runs faster."
    ),
]
HeadScoreName = Annotated[
    Optional[HeadScore],  # noqa: UP045
    typer.Option("--head-score", help="How heads are scored. [default: the method's]"),
]
SearchName = Annotated[
    Optional[Search],  # noqa: UP045
    typer.Option("--search", help="For better heads than those of the score. [default: the method's]"),
]
FfnScoreName = Annotated[
    Optional[FfnScore],  # noqa: UP045
    typer.Option("--ffn-score", help="How channels are scored. [default: the method's]"),
]
RepairName = Annotated[
    Optional[Repair],  # noqa: UP045
    typer.Option(
        "--repair",
        help="Of outputs after a cut; ridge refits whole matrices, and is not the paper's. [default: the method's]",
    ),
]
LayerRatioName = Annotated[
    Optional[LayerRatio],  # noqa: UP045
    typer.Option("--layer-ratio", help="How layers share what goes. [default: the method's]"),
]
KeepLow = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--keep-low",
        min=0.0,
        max=0.5,
        help="Share of channels, of the lowest score, that stay. [default: the method's]",
    ),
]
Calib = Annotated[
    str, typer.Option("--calib", metavar="TEXT", help="Calibration text: a file, a folder, an asset, - or builtin.")
]
CalibTokens = Annotated[int, typer.Option("--calib-tokens", min=1, help="Tokens of it.")]
Eval = Annotated[str, typer.Option("--eval", metavar="TEXT", help="Text to judge on, disjoint from calibration.")]
EvalTokens = Annotated[int, typer.Option("--eval-tokens", min=1, help="Tokens of it.")]
Window = Annotated[int, typer.Option("--window", min=2, help="Tokens of one window, for calibration and judging.")]
ExportForm = Annotated[
    Export,
    typer.Option(
        "--export",
        help="What -o writes: widths that differ by layer, with code that loads them; equal widths for stock classes; "
        "or zeros in the original shape.",
    ),
]
MaxIncrease = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option("--max-perplexity-increase", min=0.0, help="Exit 1 if the main method's is larger, 0.5 for 50 %."),
]
Sample = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--sample", metavar="PROMPT", help="Show how the dense and the pruned model continue it."),
]
MeasureSpeed = Annotated[
    bool, typer.Option("--speed/--no-speed", help="Measure prefill and decoding beside the dense model.")
]


def layer_numbers(listed: str) -> tuple[int, ...]:
    """``0-1,29`` as 0, 1, 29.

    Raises:
        UsageError: it is no such list.
    """
    from icml25cli.core.errors import UsageError

    numbers: set[int] = set()
    for part in listed.split(",") if listed.strip() else ():
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or len(part.strip()) > 12:
            raise UsageError(f"--protect {listed} is no list of layers", hint="write it as 0,1,29 or 0-1,29")
        if int(first) > int(last or first):
            raise UsageError(f"--protect {listed}: {part.strip()} runs backwards", hint=f"write it as {last}-{first}")
        numbers |= set(range(int(first), min(int(last or first), int(first) + 10_000) + 1))
    return tuple(sorted(numbers))


def method_names(given: Sequence[str]) -> tuple[MethodName, ...]:
    """The methods of those names, each once.

    Raises:
        UsageError: one is not known.
    """
    from icml25cli.core.errors import UsageError
    from icml25cli.core.usage import nearest

    names = dict.fromkeys(given)
    known = [method.value for method in MethodName]
    for name in names:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else f"methods: {', '.join(known)}"
            raise UsageError(f"--method names '{name}', which is none", hint=hint)
    return tuple(MethodName(name) for name in names)


def target_shares(listed: str) -> tuple[float, ...]:
    """Shares with commas between, each once, in order.

    Raises:
        UsageError: one is no number from 0 to 0.95.
    """
    from icml25cli.core.errors import UsageError

    shares: dict[float, None] = {}
    for part in listed.split(","):
        try:
            share = float(part)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 0.95:
            raise UsageError(f"--target holds '{part.strip()}', which is no share", hint="write it as 0.2,0.5")
        shares[share] = None
    return tuple(shares)


def named(method: MethodName, main: "Options", target: float | None = None) -> "Options":
    """Another method at the same target under the same circumstances, with all its own choices."""
    from dataclasses import replace

    from icml25cli.papers.prune.methods import Options

    own = Options(method=method.value, target=main.target if target is None else target)
    return replace(own, of=main.of, gqa=main.gqa, protect=main.protect, multiple_of=main.multiple_of, seed=main.seed)

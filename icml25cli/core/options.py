"""Options that several commands share, spelt and explained once.

A command annotates its parameters with these; an option only one paper has is written out in that paper's module.
``--config``, ``--quiet``, ``--debug`` and ``--log-file`` belong to every command and are added by ``verbs``.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer


def listed(given: list[str] | None, default: Sequence[str]) -> list[str]:
    """Names that were given once with commas between, or several times.

    Raises:
        BadParameter: there is none in what was given.
    """
    names = [name.strip() for text in given or () for name in text.split(",") if name.strip()]
    if given and not names:
        raise typer.BadParameter("a list of methods names none.")
    return names or list(default)


def complete_model(incomplete: str) -> list[str]:
    """Aliases that start with what was typed; the shell completes paths by itself."""
    from icml25cli.core.models import aliases

    return [name for name in aliases() if name.startswith(incomplete)]


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="An alias (tiny, smollm2-135m, llama3-8b ...), a Hugging Face id, a model directory or a .gguf file.",
        autocompletion=complete_model,
    ),
]
Output = Annotated[
    Optional[Path],  # noqa: UP045 -- Typer reads the annotation at run time
    typer.Option("--output", "-o", metavar="PATH", help="Write the result here."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing output.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the report.")]
Plot = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--plot", metavar="FILE", help="Draw the main figure (.svg, .png or .pdf)."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of everything random.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 ...")]
Threads = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--threads", min=1, max=1024, help="Compute threads. [default: the CPUs this process may use]"),
]
Jobs = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--jobs", "-j", min=1, help="Processes side by side. [default: the CPUs this process may use]"),
]


class EngineOption(StrEnum):
    local = "local"
    ray = "ray"
    dask = "dask"


Engine = Annotated[
    EngineOption,
    typer.Option("--engine", help="Where they run: here, or on the cluster of RAY_ADDRESS or DASK_SCHEDULER_ADDRESS."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Insist on continuing a run that was cut short.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Forget what an earlier run finished and start anew.")]
AllowDownload = Annotated[
    bool, typer.Option("--allow-download", help="Let a model of more than 50 MB be downloaded from its hub.")
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run modelling code that ships with the model. Off for a reason.")
]

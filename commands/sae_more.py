"""Verbs of `icml25 sae` beside one trained model: stability, collect, demo."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from icml25cli.commands.sae_options import PoolName
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show


def stability(
    first: Annotated[Path, typer.Argument(metavar="A", help="A folder that `sae train -o` wrote.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another, of another seed.")],
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Say how much of one dictionary another training found again."""
    from icml25cli.core.parallel import set_threads
    from icml25cli.papers.sae.saved import load
    from icml25cli.papers.sae.stability import EXACT
    from icml25cli.papers.sae.stability import stability as compare

    report = Report("sae")
    set_threads(threads)
    a, b = load(first), load(second)
    found = compare(a, b)
    report.params = {"verb": "stability", "first": str(first), "second": str(second), "latents": a.config.n}
    report.rows = [{"method": a.config.label, **asdict(found)}]
    report.metrics = {"decoder": found.decoder, "encoder": found.encoder, "matched": found.matched}
    report.answer = {"status": "compared", "matching": "best" if found.exact else "mutually best pairs"}
    if not found.exact:
        report.notes = [f"Above {EXACT} latents mutually best pairs are matched, and latents without one count as 0."]
    show(report, as_json=as_json)


def collect(
    model: opt.Model,
    texts: Annotated[Path, typer.Argument(metavar="TEXTS", help='.jsonl of {"text": ...}, or a text a line.')],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.npy", help="Embeddings to write.")],
    layer: Annotated[int, typer.Option("--layer", help="After which layer; 0 for embeddings, -1 for the last.")] = -1,
    pool: Annotated[PoolName, typer.Option("--pool", help="A row a text, or a row a token.")] = PoolName.mean,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Of each text.")] = 512,
    force: opt.Force = False,
    device: opt.Device = "auto",
    threads: opt.Threads = None,
    allow_download: opt.AllowDownload = False,
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.Json = False,
) -> None:
    """Write hidden states of a language model as embeddings to train on."""
    from icml25cli.core.files import check_file
    from icml25cli.core.models import pick_device, resolve
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.sae.collect import collect as gather
    from icml25cli.papers.sae.collect import read_texts

    report = Report("sae")
    check_file(output, force=force)
    given = read_texts(texts)
    source = resolve(model, allow_download=allow_download, trust_remote_code=trust_remote_code)
    set_threads(threads)
    chosen = pick_device(device)
    report.device = str(chosen)
    rows, width = gather(
        source, given, output, layer=layer, pool=pool.value, longest=max_tokens, device=str(chosen), force=force
    )
    report.params = {"verb": "collect", "model": source.name, "layer": layer, "pool": pool.value}
    report.rows = [{"texts": len(given), "rows": rows, "width": width}]
    report.metrics = {"texts": len(given), "rows": rows, "width": width}
    report.answer = {"status": "collected"}
    report.artefacts = [str(output)]
    report.notes = [*source.notes]
    report.warnings = [*warnings_so_far()]
    show(report, as_json=as_json)


def demo(
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Passes over the rows.")] = 30,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Train on made-up embeddings whose true concepts are known, and count how many each method finds."""
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.sae.demo import demonstrate

    report = Report("sae", params={"verb": "demo", "epochs": epochs}, seed=seed)
    set_threads(threads)
    rows, recovered = demonstrate(epochs, seed)
    report.rows = [*rows]
    report.tables = {"recovery": [*recovered]}
    report.metrics = {"atom_cosine": recovered[0]["atom_cosine"], "found_share": recovered[0]["found_share"]}
    report.answer = {"status": "trained"}
    report.notes = [
        "Each row is the sum of 3 of 64 unit atoms in 32 dimensions. atom_cosine is the mean over atoms of the largest "
        "cosine with a decoder row, found_share the share of atoms above 0.9. TopK is told the true 3, msae is not."
    ]
    report.warnings = [*warnings_so_far()]
    show(report, as_json=as_json)


VERBS = (stability, collect, demo)

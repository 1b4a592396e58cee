"""Verbs of `icml25 sae` on embeddings and their codes: eval, encode, decode."""

from pathlib import Path
from typing import Annotated

import typer

from icml25cli.commands import sae_options
from icml25cli.commands.sae_options import CenterAs
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show


def eval_(
    directory: sae_options.Directory,
    embeddings: sae_options.Rows,
    ks: sae_options.Ks = None,
    labels: sae_options.Labels = None,
    second: Annotated[
        str | None, typer.Option("--second", metavar="FILE", help="Another modality, by its own mean and scale.")
    ] = None,
    center_as: sae_options.Center = CenterAs.train,
    drop_bad: sae_options.DropBad = False,
    plot: opt.Plot = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Judge a trained autoencoder on rows it has not seen; with labels, what a linear probe still reads from it."""
    from icml25cli.core.labels import read_labels
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.plots import check_figure, save_figure
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.sae import figures
    from icml25cli.papers.sae.metrics import as_row, checked_ks, decoder_orthogonality, default_ks, evaluate
    from icml25cli.papers.sae.probe import probe_table

    report = Report("sae", seed=seed)
    if plot:
        check_figure(plot, force=force)
    set_threads(threads)
    model, x = sae_options.model_for(directory, embeddings, drop_bad=drop_bad, center_as=center_as)
    table = checked_ks(sae_options.numbers(ks, "--ks"), model.config.n) if ks else default_ks([model.config])
    report.params = {"verb": "eval", "embeddings": embeddings, "rows": x.rows, **sae_options.about(model)}
    report.rows = [as_row(model.config.label, quality) for quality in evaluate(model, x, table)]
    report.metrics = {key: value for key, value in report.rows[-1].items() if isinstance(value, float)}
    report.metrics["decoder_orthogonality"] = decoder_orthogonality(model.parameters.W_dec)
    if labels:
        found = read_labels(labels, x)
        report.tables["probe"] = [*probe_table(model, x, found, table, seed=seed)]
    if second:
        other, y = sae_options.model_for(directory, second, drop_bad=drop_bad, center_as=CenterAs.self)
        report.tables["second"] = [as_row(other.config.label, quality) for quality in evaluate(other, y, table)]
    report.answer = {"status": "evaluated"}
    report.notes = [sae_options.EXPLAINED]
    if plot:
        save_figure(figures.pareto(report.rows), plot, force=force)
        report.artefacts.append(str(plot))
    report.warnings = [*warnings_so_far()]
    show(report, as_json=as_json)


def encode(
    directory: sae_options.Directory,
    embeddings: sae_options.Rows,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="CODES.npz", help="Sparse matrix to write (CSR).")],
    k: sae_options.K = None,
    center_as: sae_options.Center = CenterAs.train,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Rows encoded together.")] = 1024,
    drop_bad: sae_options.DropBad = False,
    force: opt.Force = False,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Write sparse codes of all rows, in their order, as `scipy.sparse.load_npz` reads them."""
    from icml25cli.core.files import check_file
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.sae.codes import write_codes
    from icml25cli.papers.sae.metrics import checked_ks

    report = Report("sae")
    check_file(output, force=force)
    set_threads(threads)
    model, x = sae_options.model_for(directory, embeddings, drop_bad=drop_bad, center_as=center_as)
    if k:
        checked_ks((k,), model.config.n)
    codes = write_codes(output, model, x, k, rows=batch, force=force)
    entries = int(codes.indptr[-1])
    report.params = {"verb": "encode", "embeddings": embeddings, "k": k, **sae_options.about(model)}
    report.rows = [
        {
            "method": model.config.label,
            "code": sae_options.code_name(model, k),
            "rows": codes.rows,
            "latents": codes.n,
            "l0": entries / codes.rows,
            "output_bytes": output.stat().st_size,
        }
    ]
    report.metrics = {"l0": entries / codes.rows, "rows": codes.rows}
    report.answer = {"status": "encoded"}
    report.artefacts = [str(output)]
    report.warnings = [*warnings_so_far()]
    show(report, as_json=as_json)


def decode(
    directory: sae_options.Directory,
    codes: Annotated[Path, typer.Argument(metavar="CODES.npz", help="Codes that `sae encode` wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.npy", help="Embeddings to write.")],
    force: opt.Force = False,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Bring embeddings back from codes."""
    from icml25cli.core.files import check_file
    from icml25cli.core.parallel import set_threads
    from icml25cli.papers.sae.codes import read_codes, write_decoded
    from icml25cli.papers.sae.saved import load

    report = Report("sae")
    check_file(output, force=force)
    set_threads(threads)
    model, given = load(directory), read_codes(codes)
    write_decoded(output, model, given, force=force)
    report.params = {"verb": "decode", **sae_options.about(model)}
    report.rows = [{"method": model.config.label, "rows": given.rows, "width": model.config.d}]
    report.metrics = {"rows": given.rows}
    report.answer = {"status": "decoded"}
    report.artefacts = [str(output)]
    show(report, as_json=as_json)


VERBS = (eval_, encode, decode)

"""Verbs of `icml25 sae` on concepts: name, steer, search, audit."""

from pathlib import Path
from typing import Annotated

import typer

from icml25cli.commands import sae_options
from icml25cli.commands.sae_options import CenterAs, Form, NameSpace
from icml25cli.core import options as opt
from icml25cli.core.report import Report, show


def name(
    directory: sae_options.Directory,
    vocab_emb: Annotated[str, typer.Option("--vocab-emb", metavar="FILE", help="Embeddings of words, a row each.")],
    vocab: Annotated[Path, typer.Option("--vocab", metavar="FILE", help="The words, a line each.")],
    name_space: Annotated[
        NameSpace, typer.Option("--name-space", help="Decoder rows as directions, or with scale and mean undone.")
    ] = NameSpace.direction,
    center_vocab: Annotated[bool, typer.Option("--center-vocab", help="Take off the words' own mean first.")] = False,
    min_similarity: Annotated[
        float | None, typer.Option("--min-similarity", help="Of a valid name. [default: beyond 99.9 % of chance]")
    ] = None,
    min_ratio: Annotated[
        float | None, typer.Option("--min-ratio", help="To the next latent. [default: beyond 99.9 % of chance]")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page to browse concepts in.")
    ] = None,
    items: Annotated[
        str | None, typer.Option("--items", metavar="FILE", help="Embeddings whose strongest rows the page shows.")
    ] = None,
    item_texts: Annotated[
        Path | None, typer.Option("--item-texts", metavar="FILE", help="What those rows are, a line each.")
    ] = None,
    drop_bad: sae_options.DropBad = False,
    form: sae_options.Format = Form.csv,
    output: sae_options.RecordsOutput = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Name every latent by the nearest word, and say which names are beyond chance."""
    from icml25cli.core.errors import UsageError
    from icml25cli.core.files import atomic_path, check_file
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.core.records import show_records
    from icml25cli.papers.sae.codes import check_width
    from icml25cli.papers.sae.labels import read_words
    from icml25cli.papers.sae.naming import name_latents, records
    from icml25cli.papers.sae.page import concept_page, strongest
    from icml25cli.papers.sae.saved import load

    report = Report("sae", seed=seed)
    if output and html and output.resolve() == html.resolve():
        raise UsageError(f"--output and --html are both {output}", hint="name two files")
    for file in (output, html):
        if file:
            check_file(file, force=force)
    if ((items or item_texts) and not html) or (item_texts and not items):
        raise UsageError("--items is for the page of --html, --item-texts for --items", hint="give them together")
    set_threads(threads)
    model = load(directory)
    x, _ = sae_options.opened(vocab_emb, drop_bad=drop_bad)
    check_width(model, x)
    words = read_words(vocab, len(x.stored), f"{vocab_emb} has")
    if x.chosen is not None:
        words = [words[i] for i in x.chosen]
    naming = name_latents(
        model,
        x,
        space=name_space.value,
        centered=center_vocab,
        least_similarity=min_similarity,
        least_ratio=min_ratio,
        seed=seed,
    )
    found = records(naming, words)
    if html:
        shown = None
        if items:
            fitted, y = sae_options.model_for(directory, items, drop_bad=drop_bad)
            texts = read_words(item_texts, len(y.stored), f"{items} has") if item_texts else None
            shown = strongest(fitted, y, texts)
        with atomic_path(html, force=force) as temporary:
            page = concept_page(f"Concepts of {directory.name}", found, shown)
            temporary.write_text(page, encoding="utf-8", errors="backslashreplace")
        report.artefacts.append(str(html))
    report.params = {"verb": "name", "name_space": name_space.value, "words": x.rows, **sae_options.about(model)}
    report.metrics = {
        "valid": int(naming.valid.sum()),
        "least_similarity": naming.least_similarity,
        "least_ratio": naming.least_ratio,
    }
    report.answer = {"status": "named"}
    report.notes = [
        "A name means something only where the words' embeddings lie in the same space as the rows the autoencoder was "
        "trained on."
    ]
    if advice := naming.advice():
        report.notes.append(f"{advice} The column failed says it of each.")
    report.warnings = [*warnings_so_far()]
    show_records(report, found, form=form.value, output=output, force=force, as_json=as_json)


def steer(
    directory: sae_options.Directory,
    embeddings: sae_options.Rows,
    changes: Annotated[
        list[str],
        typer.Option(
            "--set", metavar="CONCEPT=VALUE", help="A value (=), factor (*) or so many standard deviations (+)."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.npy", help="Changed embeddings to write.")],
    names: sae_options.Names = None,
    keep_error: Annotated[
        bool, typer.Option("--keep-error/--plain", help="Keep what the code does not explain, or decode alone.")
    ] = True,
    center_as: sae_options.Center = CenterAs.train,
    drop_bad: sae_options.DropBad = False,
    force: opt.Force = False,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Raise or lower concepts in embeddings."""
    from icml25cli.core.embeddings import write_rows
    from icml25cli.core.files import check_file
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.papers.sae.steering import moved_length, parse_change, steered

    report = Report("sae")
    check_file(output, force=force)
    set_threads(threads)
    model, x = sae_options.model_for(directory, embeddings, drop_bad=drop_bad, center_as=center_as)
    known = sae_options.names_of(directory, names, model)
    asked = [parse_change(change, known, model.config.n) for change in changes]
    write_rows(output, (x.rows, x.columns), steered(model, x, asked, keep_error=keep_error), force=force)
    report.params = {"verb": "steer", "keep_error": keep_error, **sae_options.about(model)}
    report.rows = [
        {"latent": c.latent, "name": known.get(c.latent, (None,))[0], "how": c.how, "amount": c.amount} for c in asked
    ]
    report.metrics = {"rows": x.rows, "mean_change": moved_length(x, output)}
    report.answer = {"status": "steered"}
    report.artefacts = [str(output)]
    report.warnings = [*warnings_so_far()]
    show(report, as_json=as_json)


def search(
    directory: sae_options.Directory,
    index: Annotated[str, typer.Argument(metavar="INDEX", help="Embeddings to search in.")],
    query: Annotated[str, typer.Option("--query", metavar="FILE", help="Embeddings to search by.")],
    concepts: Annotated[
        str | None, typer.Option("--concepts", metavar="LIST", help="Compare these alone, names or numbers of latents.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="CONCEPT=VALUE", help="Change the query first, as in steer.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Rows for each query.")] = 10,
    names: sae_options.Names = None,
    center_as: sae_options.Center = CenterAs.train,
    drop_bad: sae_options.DropBad = False,
    form: sae_options.Format = Form.csv,
    output: sae_options.RecordsOutput = None,
    force: opt.Force = False,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Find the rows most like a query by chosen concepts, or like it with concepts changed."""
    import numpy as np

    from icml25cli.core.files import check_file
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.core.records import show_records
    from icml25cli.papers.sae.naming import latent_of
    from icml25cli.papers.sae.steering import hits, parse_change, steered
    from icml25cli.papers.sae.steering import search as nearest

    report = Report("sae")
    if output:
        check_file(output, force=force)
    set_threads(threads)
    model, x = sae_options.model_for(directory, index, drop_bad=drop_bad, center_as=center_as)
    _, q = sae_options.model_for(directory, query, drop_bad=drop_bad, center_as=center_as)
    known = sae_options.names_of(directory, names, model)
    latents = [latent_of(c.strip(), known, model.config.n) for c in concepts.split(",")] if concepts else None
    asked = [parse_change(change, known, model.config.n) for change in changes or ()]
    queries = np.concatenate(list(steered(model, q, asked, among=x))) if asked else q[:]
    found = hits(nearest(model, x, queries, top, latents))
    report.params = {"verb": "search", "queries": q.rows, "rows": x.rows, "concepts": concepts, "top": top}
    report.answer = {"status": "found"}
    report.warnings = [*warnings_so_far()]
    show_records(report, found, form=form.value, output=output, force=force, as_json=as_json)


def audit(
    directory: sae_options.Directory,
    embeddings: sae_options.Rows,
    labels: Annotated[Path, typer.Option("--labels", metavar="FILE.csv", help="A label a row, under a header.")],
    target: Annotated[
        str | None, typer.Option("--target", metavar="CLASS", help="Against all others. [default: the last of two]")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Latents without a valid name, too.")] = False,
    names: sae_options.Names = None,
    center_as: sae_options.Center = CenterAs.train,
    drop_bad: sae_options.DropBad = False,
    form: sae_options.Format = Form.csv,
    output: sae_options.RecordsOutput = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    as_json: opt.Json = False,
) -> None:
    """Say which concepts a label depends on, and what changing them does to a classifier of it."""
    from icml25cli.core.files import check_file
    from icml25cli.core.labels import read_labels
    from icml25cli.core.parallel import set_threads
    from icml25cli.core.progress import warnings_so_far
    from icml25cli.core.records import show_records
    from icml25cli.papers.sae.audit import audit as examine
    from icml25cli.papers.sae.labels import one_class

    report = Report("sae", seed=seed)
    if output:
        check_file(output, force=force)
    set_threads(threads)
    model, x = sae_options.model_for(directory, embeddings, drop_bad=drop_bad, center_as=center_as)
    known = sae_options.names_of(directory, names, model)
    positive, asked = one_class(read_labels(labels, x), target)
    chosen = None if every or not known else [j for j, (_, valid) in known.items() if valid]
    rows = [
        {**row, "name": known.get(row["latent"], ("",))[0]} for row in examine(model, x, positive, chosen, seed=seed)
    ]
    if chosen is not None:
        left = model.config.n - len(chosen)
        report.notes = [f"{left} latents without a valid name are left out; --all takes them, too."]
    report.params = {"verb": "audit", "rows": x.rows, "class": asked, **sae_options.about(model)}
    report.metrics = {"latents": len(rows), "significant": sum(row["p_adjusted"] < 0.05 for row in rows)}
    report.answer = {"status": "audited"}
    report.warnings = [*warnings_so_far()]
    show_records(report, rows, form=form.value, output=output, force=force, as_json=as_json)


VERBS = (name, steer, search, audit)

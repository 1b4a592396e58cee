"""Unpacking a package as data: a wheel or other zip, a tarball, a Debian package.

Knows archives. Does not know where they come from, nor the store. Nothing in them is imported, installed or run.
"""

import lzma
import shutil
import stat
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from icml25cli.core.errors import InputError, MissingError

BLOCK = 2**20  # bytes


class _Member(NamedTuple):
    name: str
    kind: str  # "file", "folder", or the word for what we refuse to make
    content: IO[bytes] | None


def unpack(
    archive: Path, into: Path, *, root: str, keep: Sequence[str], size: int, progress: Callable[[int], None]
) -> None:
    """Write the files of ``archive`` that lie under ``root`` and match ``keep`` into the folder ``into``.

    Files lose their owner, mode and time. What was written before an error stays for the caller to remove.

    Args:
        root: folder inside the archive that becomes ``into``; empty for the whole.
        keep: patterns of paths below ``root``; ``*`` matches ``/`` too.
        size: bytes that the kept files must come to, no more and no less.
        progress: called after each file with the bytes written so far.

    Raises:
        InputError: a name is absolute or climbs out, a kept member is a link or a device, two members share a name,
            the size differs, or the archive is damaged or of another kind.
        MissingError: a Debian package packed with zstd where ``dpkg-deb`` is absent.
        OSError: a file cannot be written.
    """
    room = size
    with _damage_named(archive), archive.open("rb") as file:
        for member in _members(archive, file):
            path = _below(root, member.name, archive)
            if path is None or member.kind == "folder" or not any(fnmatchcase(str(path), pattern) for pattern in keep):
                continue
            if member.content is None:
                raise InputError(f"{archive.name} holds the {member.kind} '{member.name}'", hint="do not use it")
            room -= _write(member.content, into / path, room, archive)
            progress(size - room)
    if room:
        raise InputError(
            f"{archive.name} unpacks to {size - room:,} bytes where {size:,} are expected", hint="do not use it"
        )


def _below(root: str, name: str, archive: Path) -> PurePosixPath | None:
    """The path of a member relative to ``root``; None when it lies elsewhere or is ``root`` itself."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise InputError(f"{archive.name} holds '{name}', which leads out of its folder", hint="do not use it")
    return path.relative_to(root) if path.is_relative_to(root) and path != PurePosixPath(root) else None


def _write(content: IO[bytes], target: Path, room: int, archive: Path) -> int:
    """Copy ``content`` to the new file ``target`` and return its bytes, of which ``room`` are allowed."""
    written = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        out = target.open("xb")
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{archive.name} holds two members named '{target.name}'", hint="do not use it") from error
    with out:
        # Never more than one byte beyond the limit: a bomb is not inflated to be measured.
        while block := content.read(min(BLOCK, room - written + 1)):
            written += len(block)
            if written > room:
                raise InputError(f"{archive.name} unpacks to more than the expected size", hint="do not use it")
            out.write(block)
    return written


def _members(archive: Path, file: IO[bytes]) -> Iterator[_Member]:
    magic = file.read(8)
    file.seek(0)
    if magic.startswith(b"PK"):
        return _zip_members(file)
    if magic == b"!<arch>\n":
        return _deb_members(archive, file)
    return _tar_members(file, "r|*")


def _zip_members(file: IO[bytes]) -> Iterator[_Member]:
    with zipfile.ZipFile(file) as container:
        for info in container.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)  # zero where the maker wrote no Unix mode
            if info.filename.endswith("/"):
                yield _Member(info.filename, "folder", None)
            elif kind in (0, stat.S_IFREG):
                with container.open(info) as content:
                    yield _Member(info.filename, "file", content)
            else:
                yield _Member(info.filename, "link" if kind == stat.S_IFLNK else "device", None)


def _tar_members(stream: IO[bytes], mode: str) -> Iterator[_Member]:
    with tarfile.open(fileobj=stream, mode=mode) as container:  # type: ignore[call-overload]
        for info in container:
            if info.isdir():
                yield _Member(info.name, "folder", None)
            elif info.isreg():
                yield _Member(info.name, "file", container.extractfile(info))
            else:
                yield _Member(info.name, "link" if info.issym() or info.islnk() else "device", None)


def _deb_members(archive: Path, file: IO[bytes]) -> Iterator[_Member]:
    """A Debian package is an ar archive (deb(5)); its files are the tarball in the last member, ``data.tar.*``."""
    file.seek(8)
    while len(header := file.read(60)) == 60:
        name, size = header[:16].decode("latin-1").rstrip(" /"), int(header[48:58])
        if name == "data.tar.zst":
            yield from _zst_members(archive)
            return
        if name.startswith("data.tar"):
            yield from _tar_members(file, "r|*")
            return
        file.seek(size + size % 2, 1)
    raise InputError(f"{archive.name} is a damaged archive: it has no data.tar", hint="fetch it again")


def _zst_members(archive: Path) -> Iterator[_Member]:
    # Python reads zstd only from 3.14 on.
    if not shutil.which("dpkg-deb"):
        raise MissingError(f"{archive.name} is packed with zstd and dpkg-deb is not here", hint="install dpkg")
    command = ["dpkg-deb", "--fsys-tarfile", str(archive.absolute())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
        assert client.stdout
        try:
            yield from _tar_members(client.stdout, "r|")
        finally:
            client.kill()


@contextmanager
def _damage_named(archive: Path) -> Iterator[None]:
    try:
        yield
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        ValueError,  # an ar header whose size is no number
        RuntimeError,  # zipfile: an encrypted member
        NotImplementedError,  # zipfile: a compression it does not know
    ) as error:
        raise InputError(f"{archive.name} is a damaged archive: {error}", hint="fetch it again") from error

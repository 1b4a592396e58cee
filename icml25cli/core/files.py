"""Files that appear whole or not at all, and locks that say which process is at work.

Knows files and processes. Does not know what is written.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icml25cli.core.errors import InputError, OutputError

_FREE = "free some space or choose another place; finished work is kept"
_PLACE = "choose a place you may write to"
HINTS = {
    errno.ENOSPC: _FREE,
    errno.EDQUOT: _FREE,
    errno.EFBIG: "raise the file size limit (ulimit -f) or choose another file system; finished work is kept",
    errno.EIO: "the disk reports a fault; choose another place",
    errno.EACCES: _PLACE,
    errno.ENOENT: _PLACE,
    errno.EPERM: _PLACE,
    errno.EROFS: _PLACE,
    errno.EBUSY: "name a new folder inside it",
    errno.ENOTDIR: "a file stands where a folder is needed",
    errno.EEXIST: "a file stands where a folder is needed",
    errno.EISDIR: "a folder stands where the file should go",
    errno.ENAMETOOLONG: "choose a shorter name",
}


def expand(path: str) -> Path:
    """``path`` with ``~`` and ``~user`` replaced by the home they mean.

    Raises:
        InputError: there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(
            f"{path}: no home of that user is known here", hint="a file of that name has a whole path, from / on"
        ) from error


@contextlib.contextmanager
def made_folders(final: Path) -> Iterator[None]:
    """Make the folders above ``final`` that are missing; those in which the body leaves nothing go again."""
    missing = [folder for folder in final.parents if not folder.exists()]
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        with contextlib.suppress(OSError):  # it holds something
            for folder in missing:
                folder.rmdir()


@contextlib.contextmanager
def atomic_path(final: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``final``; on success it is synced and renamed to ``final``, else removed.

    The body creates a file or a directory there. The temporary name keeps the suffix, since writers choose by it.
    Missing parent directories are made. What a killed writer of the same target left is removed first. (A directory
    that replaces another one is briefly absent; where that matters, ``commit_output`` is made for it.)

    Raises:
        OutputError: ``final`` exists (without ``force``) or cannot be replaced, the disk is full, the place is
            read-only; errors of reading other files in the body are not touched.
    """
    final = Path(os.path.realpath(final))
    prefix = f".tmp-{hashlib.sha256(os.fsencode(final.name)).hexdigest()[:8]}-{socket.gethostname()}-"
    mine = final.parent / f"{prefix}{os.getpid()}{final.suffix}"
    with output_errors(final, mine), made_folders(final):
        _refuse_existing(final, force)
        for left in final.parent.glob(f"{prefix}*"):
            writer = left.name.removeprefix(prefix).removesuffix(final.suffix)
            if left == mine or (writer.isdecimal() and not _started(int(writer[:20]))):
                remove(left)
        try:
            yield mine
            sync(mine)
            _refuse_existing(final, force)
            if mine.is_dir() and final.is_dir():
                remove(final)
            os.replace(mine, final)
            sync_directory(final.parent)
        finally:
            remove(mine)


def write_json(path: Path, obj: Any, *, force: bool = False) -> None:
    """Write ``obj`` as indented UTF-8 JSON, whole or not at all. NaN and infinity are refused (ValueError)."""
    text = json.dumps(obj, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_path(path, force=force) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def check_file(path: Path, *, force: bool = False) -> None:
    """Refuse an output file before hours of work are done for it.

    Raises:
        OutputError: it exists (without ``force``), is no file, or its folder cannot be made or written.
    """
    path = Path(os.path.realpath(path))
    with output_errors(path, path):
        _refuse_existing(path, force)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "", str(path))
        with made_folders(path):
            if not os.access(path.parent, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "", str(path))


def _refuse_existing(final: Path, force: bool) -> None:
    if not os.path.lexists(final):
        return
    if not (final.is_file() or final.is_dir()):  # renaming over /dev/null would replace the device
        raise OutputError(f"{final} is neither a file nor a folder", hint="name a new file")
    if not force:
        raise OutputError(f"{final} exists", hint="--force overwrites it")


@contextlib.contextmanager
def output_errors(final: Path, temporary: Path) -> Iterator[None]:
    """Turn failures to write ``final``, or the ``temporary`` path that is to become it, into OutputError."""
    try:
        yield
    except Exception as error:
        code = _errno(error)
        if code is None:
            raise
        if named := getattr(error, "filename", None):  # a source that the body cannot read is no fault of the output
            path = Path(os.fsdecode(named))
            scratch = path.parent == final.parent and path.name.startswith(tempfile.gettempprefix())
            if not (scratch or path.is_relative_to(temporary) or final.is_relative_to(path)):
                raise
        raise OutputError(f"{final} cannot be written: {os.strerror(code).lower()}", hint=HINTS[code]) from error


def _errno(error: Exception) -> int | None:
    """The error number of a failed write, also where a library hides it; None for anything else."""
    code = error.errno if isinstance(error, OSError) else None
    if code is None and (rust := re.search(r"\(os error (\d+)\)", str(error))):  # safetensors, tokenizers
        code = int(rust[1])
    if code is None and isinstance(error, OSError) and re.search(r"requested and \d+ written|free space", str(error)):
        code = errno.ENOSPC  # numpy's tofile gives no number
    return code if code in HINTS else None


def remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def sync(path: Path) -> None:
    """Flush a file, or all files and directories under a directory, to the disk.

    Files get the mode that the user's mask asks for, as some writers (safetensors) make them private.
    """
    if not path.is_dir():
        _settle(path)
        return
    for folder, _, files in os.walk(path):
        for name in files:
            _settle(Path(folder, name))
        sync_directory(Path(folder))


def _settle(file: Path) -> None:
    mask = os.umask(0o077)
    os.umask(mask)
    with open(file, "rb") as opened:
        os.fchmod(opened.fileno(), os.fstat(opened.fileno()).st_mode | (0o666 & ~mask))
        os.fsync(opened)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot sync a directory
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Lock:
    """A file that says which process is at work: pid, host and start of the process.

    Taken by ``acquire`` or ``with``. The lock of a process of this host that is gone (or whose pid now belongs to
    another one) is taken over. Processes forked or sent a copy do not own it.

    Raises:
        InputError: a living process holds it, or one of another host, which cannot be asked.
        OutputError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def acquire(self) -> None:
        me = {"pid": os.getpid(), "host": socket.gethostname(), "started": _started(os.getpid())}
        with output_errors(self.path, self.path), self._guarded() as file:
            owner = _owner(file.read())
            if owner and owner["host"] != me["host"]:
                raise InputError(
                    f"{self.path} is held by process {owner['pid']} on {owner['host']}",
                    hint="remove that file if the process is gone",
                )
            if owner and owner["started"] == _started(owner["pid"]):
                raise InputError(
                    f"{self.path} is held by running process {owner['pid']}", hint="wait for it or end it first"
                )
            file.seek(0)
            file.truncate()
            try:
                file.write(json.dumps(me))
                file.flush()
            except OSError:
                self.path.unlink()  # nobody else has it, and empty it would only stand in the way
                raise

    def release(self) -> None:
        """Remove the file if this process holds it."""
        with contextlib.suppress(FileNotFoundError):
            owner = _owner(self.path.read_text(encoding="utf-8", errors="replace"))
            if owner and owner["pid"] == os.getpid() and owner["host"] == socket.gethostname():
                self.path.unlink()

    def __enter__(self) -> "Lock":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[Any]:
        """The lock file, open, with nobody else between reading and writing it: two may find the same owner dead."""
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            with open(descriptor, "r+", encoding="utf-8", errors="replace") as file:
                with contextlib.suppress(OSError):  # where the file system has no flock, the check alone must do
                    fcntl.flock(file, fcntl.LOCK_EX)
                try:
                    current = os.path.samestat(os.fstat(file.fileno()), os.stat(self.path))
                except FileNotFoundError:
                    current = False
                if current:  # else its owner removed it while we waited
                    yield file
                    return


def _owner(text: str) -> dict[str, Any] | None:
    """Who holds a lock; None for an empty, torn or damaged file: no living process leaves one."""
    try:
        owner = json.loads(text)
        return {"pid": int(owner["pid"]), "host": str(owner["host"]), "started": str(owner["started"])}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _started(pid: int) -> str | None:
    """When a living process started, in its kernel's count where that is known; None when it is gone."""
    if not 0 < pid < 2**31:  # no process ever has such a number
        return None
    try:  # not psutil first: its times move with the clock, and a living owner would look like another process
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else fields[18]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except ProcessLookupError:
        return None
    import psutil

    try:
        return str(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None

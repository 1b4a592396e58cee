"""Where work and results are kept: fingerprints of inputs, run directories, whole output directories.

Knows files and processes. Does not know what a unit of work holds, nor any paper, model or terminal.

A run directory is ``manifest.json`` (what the run is of), ``units/`` (what is finished) and ``lock`` (who is at it).
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from icml25cli.core.errors import InputError, OutputError, UsageError
from icml25cli.core.files import (
    HINTS,
    Lock,
    atomic_path,
    expand,
    made_folders,
    output_errors,
    remove,
    sync,
    sync_directory,
    write_json,
)
from icml25cli.core.progress import note

FORMAT = 1  # of a run directory; raised when an older one can no longer be continued
MARK = ".icml25"  # in every output directory: what --force may replace
WHOLE_FILE = 64 * 2**20  # bytes up to which a file is fingerprinted by all of its content


def cache_dir() -> Path:
    """The user's cache directory: ``ICML25_CACHE_DIR``, else the platform's own. It may not exist yet.

    Raises:
        InputError: the variable names the home of a user who does not exist.
    """
    if named := os.environ.get("ICML25_CACHE_DIR"):
        return expand(named)
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("icml25", appauthor=False))


# --- fingerprints ------------------------------------------------------------------------------------------------


def fingerprint(obj: Any) -> str:
    """SHA-256 (hex) of options and inputs, the same in every process and on every machine.

    Takes None, booleans, numbers, strings, bytes, lists and tuples (alike), dicts with string keys (order does not
    matter), numpy arrays and torch tensors (dtype, shape, bytes), and ``Path``: a file by its content, a directory by
    the names and contents of all files under it (symbolic links to files are followed, to directories not). The path
    itself does not count. A file over 64 MiB counts by size, modification time and its first and last MiB: reading a
    large model whole would cost more than most commands.

    Raises:
        InputError: a path does not exist or cannot be read.
        TypeError: a value of another type.
    """
    return _digest(obj).hex()


def _digest(obj: Any) -> bytes:
    if obj is None or isinstance(obj, bool | int | float | str):
        return _hash(type(obj).__name__, repr(obj).encode())
    if isinstance(obj, bytes):
        return _hash("bytes", obj)
    if isinstance(obj, list | tuple):
        return _hash("list", *map(_digest, obj))
    if isinstance(obj, dict):
        return _hash("dict", *(part for key in sorted(obj) for part in (_digest(key), _digest(obj[key]))))
    if isinstance(obj, Path):
        return _digest_path(obj)
    library = type(obj).__module__.partition(".")[0]  # asked by name: neither library is imported for a dict of options
    if library == "torch" and hasattr(obj, "untyped_storage"):
        import torch

        flat = obj.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return _hash("tensor", str(obj.dtype).encode(), repr(tuple(obj.shape)).encode(), memoryview(flat.numpy()))
    if library == "numpy" and hasattr(obj, "dtype") and not obj.dtype.hasobject:
        return _hash("array", obj.dtype.str.encode(), repr(obj.shape).encode(), obj.tobytes())
    raise TypeError(f"no fingerprint of {type(obj).__name__}")


def _hash(kind: str, *parts: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(kind.encode())
    for part in parts:  # the length before each part keeps ("ab", "c") and ("a", "bc") apart
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _digest_path(path: Path) -> bytes:
    try:
        if path.is_dir():
            files = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())
            return _hash("directory", *(x for f in files for x in (os.fsencode(f), _digest_path(path / f))))
        with open(path, "rb") as file:
            stat = os.fstat(file.fileno())
            if stat.st_size <= WHOLE_FILE:
                return _hash("file", hashlib.file_digest(file, "sha256").digest())
            first = file.read(2**20)
            file.seek(-(2**20), os.SEEK_END)
            return _hash("large file", repr((stat.st_size, stat.st_mtime_ns)).encode(), first, file.read())
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}", hint="check that it is there and yours"
        ) from error


# --- run directories ---------------------------------------------------------------------------------------------


def run_directory(command: str, key: str, output: Path | None) -> Path:
    """Where the run of ``command`` with fingerprint ``key`` lives: in ``output``, else in the user's cache.

    A run of the same key that the cache already holds is continued there, so that work done before ``-o`` was given
    is not done again.
    """
    cached = cache_dir() / "runs" / f"{command}-{key[:12]}"
    if output is None or (cached / "manifest.json").exists():
        return cached
    return output / ".run"


_opened: dict[Path, None] = {}  # a run after another
_last_kept: Path | None = None


def keeps(file: Path) -> None:
    """Say that finished work is kept in a file of the user's, from which a repetition goes on by itself."""
    global _last_kept
    _last_kept = file


def resume_hint() -> str | None:
    """What an interrupted user can do: where this process last kept finished work, if anywhere."""
    if _last_kept is not None and _last_kept.exists():
        return f"what was answered so far is in {_last_kept}; repeat the command, and it goes on from there"
    for directory in reversed(_opened):  # the newest that has any: work of several stages has a run a stage
        if any((directory / "units").glob("*")):
            return f"finished work is kept in {directory}; repeat the command with --resume"
    return None


class Run:
    """A directory of finished units of work, locked by this process until ``close``.

    A unit is a file or directory named by the caller and written whole or not at all. A ``Run`` may be sent to worker
    processes, which write units of their own; the lock stays with the process that opened it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = Lock(directory / "lock")

    @classmethod
    def open(cls, directory: Path, inputs: dict[str, Any], *, resume: bool = False, fresh: bool = False) -> "Run":
        """Begin or continue the run of ``inputs`` (anything ``fingerprint`` takes, by name).

        Args:
            resume: there must be a run to continue.
            fresh: what is there is cleared first.

        Raises:
            InputError: the directory holds a run of other inputs or of another version, or is in use, or ``resume``
                finds nothing.
            OutputError: the directory cannot be written.
        """
        if resume and fresh:
            raise UsageError("--resume and --fresh exclude each other", hint="give one of them")
        manifest = directory / "manifest.json"
        if resume and not manifest.exists():
            raise InputError(f"{directory} holds no run to resume", hint="leave out --resume to begin one")
        prints = {name: fingerprint(value) for name, value in inputs.items()}
        run, locked = cls(directory), False
        with output_errors(directory, directory), made_folders(manifest):
            try:
                run._lock.acquire()  # first: whoever is refused here must take away nothing of the one who works
                locked = True
                (directory / "units").mkdir(exist_ok=True)
                for left in [*directory.glob(".tmp-*"), *(directory / "units").glob(".tmp-*")]:
                    remove(left)
                if manifest.exists() and not fresh:
                    _refuse_other(manifest, prints)
                else:  # units first: at no time may a new manifest stand over old units
                    shutil.rmtree(directory / "units")
                    (directory / "units").mkdir()
                    shown = {name: _readable(value) for name, value in inputs.items()}
                    content = {"format": FORMAT, "toolbox": version("icml25"), "inputs": shown, "fingerprints": prints}
                    write_json(manifest, content, force=True)
            except BaseException:
                run.close()
                if locked and not manifest.exists():
                    with contextlib.suppress(OSError):  # it was never made
                        (directory / "units").rmdir()
                raise
        if not _opened and any((directory / "units").iterdir()):
            note(f"what an earlier run finished is in {directory} and not done again; its times are of then")
        _opened.pop(directory, None)
        _opened[directory] = None
        return run

    def path(self, unit: str) -> Path:
        """Where ``unit`` is, or will be. A unit's name is letters, digits, ``.``, ``_`` and ``-``."""
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", unit):
            raise ValueError(f"no name for a unit: {unit!r}")
        return self.directory / "units" / unit

    def has(self, unit: str) -> bool:
        return self.path(unit).exists()

    def write(self, unit: str, writer: Callable[[Path], object]) -> None:
        """Let ``writer`` make the file or directory of ``unit`` at the path it is given; it replaces an older one."""
        with atomic_path(self.path(unit), force=True) as temporary:
            writer(temporary)

    def discard(self, unit: str) -> None:
        remove(self.path(unit))

    def close(self) -> None:
        """Give the lock back; finished units stay."""
        self._lock.release()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refuse_other(manifest: Path, prints: dict[str, str]) -> None:
    """Raise InputError, naming what differs, unless the manifest is of the inputs with these fingerprints."""
    try:
        there = json.loads(manifest.read_text(encoding="utf-8"))
        made_by, before = (there["format"], there["toolbox"]), dict(there["fingerprints"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{manifest} cannot be read as a run's manifest", hint="--fresh starts anew") from error
    if made_by != (FORMAT, version("icml25")):
        raise InputError(
            f"the run in {manifest.parent} was made by icml25 {made_by[1]}, this is {version('icml25')}",
            hint="--fresh starts anew",
        )
    other = sorted(name for name in before.keys() | prints.keys() if before.get(name) != prints.get(name))
    if other:
        raise InputError(f"the run in {manifest.parent} differs in {', '.join(other)}", hint="--fresh starts anew")


def _readable(value: Any) -> Any:
    """``value`` as a person reads it in a manifest: arrays by dtype and shape, paths by name."""
    if isinstance(value, dict):
        return {str(key): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype} {tuple(value.shape)}"
    return value if value is None or isinstance(value, bool | int | str) else str(value)


# --- whole output directories ------------------------------------------------------------------------------------


def check_output(out: Path, *, force: bool = False) -> None:
    """Refuse an output directory before hours of work are done for it; finish or undo what a killed writer left.

    A directory that holds nothing but our own ``.run`` is no existing output.

    Raises:
        OutputError: it exists (without ``force``), holds what we did not write (even with it), is a file, a mount
            point or the current directory, or its place cannot be written.
        InputError: another process is writing it.
    """
    out = Path(os.path.realpath(out))
    if not out.name:
        raise OutputError(f"{out} is a mount point", hint=HINTS[errno.EBUSY])
    new, old, lock = _beside(out)
    with output_errors(out, new), made_folders(out):
        if any(os.path.lexists(path) for path in (new, old, lock)):
            with Lock(lock):
                _recover(out)
        _refuse_output(out, force)


@contextlib.contextmanager
def commit_output(out: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield an empty directory beside ``out``; on success it becomes ``out``, on failure nothing has happened.

    With ``force`` an existing output is replaced once the new one is complete. A ``.run`` inside goes with the old one:
    what it finished is in the output now. At a kill ``out`` is the old one, the new one, or (between two renames)
    absent until the next call brings the old back.

    Raises:
        OutputError: as ``check_output``, or the disk is full.
        InputError: another process is writing the same output.
    """
    check_output(out, force=force)
    out = Path(os.path.realpath(out))
    new, old, lock = _beside(out)
    with output_errors(out, new), made_folders(out), Lock(lock):
        _recover(out)
        try:
            new.mkdir()
            yield new
            (new / MARK).write_text(f"written by icml25 {version('icml25')}; --force replaces this folder\n")
            sync(new)
            _refuse_output(out, force)
            if out.exists():
                os.rename(out, old)
            os.rename(new, out)
        finally:
            _recover(out)


def _beside(out: Path) -> tuple[Path, Path, Path]:
    """The directory being built for ``out``, the one it replaces, and the lock of both."""
    return out.with_name(f".{out.name}.new"), out.with_name(f".{out.name}.old"), out.with_name(f".{out.name}.lock")


def _refuse_output(out: Path, force: bool) -> None:
    if os.path.lexists(out) and not out.is_dir():
        raise OutputError(f"{out} is not a folder", hint="name a folder")
    if os.path.ismount(out):  # cannot be renamed, so could not appear whole
        raise OutputError(f"{out} is a mount point", hint=HINTS[errno.EBUSY])
    if Path.cwd().is_relative_to(out):  # would leave the user's shell in a removed directory
        raise OutputError(f"{out} is the current folder or holds it", hint=HINTS[errno.EBUSY])
    if not all(os.access(path, os.W_OK | os.X_OK) for path in (out.parent, out) if path.exists()):
        raise OutputError(f"{out} cannot be written: permission denied", hint=HINTS[errno.EACCES])
    entries = {entry.name for entry in out.iterdir()} - {".run"} if out.exists() else set()
    if entries and not force:
        raise OutputError(f"{out} exists", hint="--force overwrites it")
    if entries and MARK not in entries:  # --force is for our own results, not for somebody's home directory
        raise OutputError(f"{out} holds files that icml25 did not write", hint="name a new folder")


def _recover(out: Path) -> None:
    """Bring ``out`` from any state a writer may have stopped in to whole; the caller holds the lock."""
    new, old, _ = _beside(out)
    if old.exists() and not out.exists():  # stopped between the two renames
        os.rename(old, out)
    if old.exists():
        shutil.rmtree(old)
    if new.exists():
        shutil.rmtree(new)
    sync_directory(out.parent)

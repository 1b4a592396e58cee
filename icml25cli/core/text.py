"""Text for perplexity and calibration: where it comes from, as tokens, as windows, and whether two texts overlap.

Knows files, standard input, the prose in the running Python's own standard library, and the asset store for texts that
are known by name. Does not know models. NumPy is imported where it is needed, because the options module reads this one
while only help is asked for.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import platform
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from icml25cli.core.errors import InputError

if TYPE_CHECKING:
    from jaxtyping import Bool, Int64, UInt64
    from numpy import ndarray
    from transformers import PreTrainedTokenizerBase

Part = Literal["training", "calibration", "test"]

# Left out because Linux distributions move or drop them (so the text would depend on the vendor and not on Python's
# version alone), or because they are tests, vendored code or written at build time.
_LEFT_OUT = frozenset(
    [
        "test",
        "tests",
        "site-packages",
        "dist-packages",
        "lib-dynload",
        "idlelib",
        "lib2to3",
        "ensurepip",
        "turtledemo",
        "turtle",
        "tkinter",
        "distutils",
        "__pycache__",
        "sitecustomize",
        "__phello__",
    ]
)
_SHORTEST_CONSTANT = 200  # characters; below this a string that is no docstring is a message, a format or a pattern


@dataclass(frozen=True)
class Text:
    """Documents in reading order, with where they came from."""

    name: str
    documents: tuple[str, ...]
    origin: str  # one line for reports; names the Python version where the text depends on it


@lru_cache(maxsize=3)
def builtin_text(part: Part) -> Text:
    """One part of the prose in this Python's own standard library, one document a module.

    A module belongs to training (8 of 10), calibration or test (1 of 10 each) by the SHA-256 of its top-level name, so
    that a package's modules, which quote each other, stay together. Sources are parsed, never imported; a file that
    cannot be read or parsed is skipped.
    """
    root = Path(sysconfig.get_path("stdlib"))
    documents = []
    for path in sorted(root.rglob("*.py")):
        names = path.relative_to(root).with_suffix("").parts
        if part_of(names[0]) == part and not _left_out(names):
            documents.append("\n\n".join(_prose(path)))
    origin = f"standard library prose of Python {platform.python_version()}, {part} part"
    return Text(f"builtin-{part}", tuple(filter(None, documents)), origin)


def part_of(module: str) -> Part:
    """The part to which a top-level module name belongs, whatever its contents."""
    bucket = int.from_bytes(hashlib.sha256(module.encode()).digest()[:8], "big") % 10
    return get_args(Part)[max(0, bucket - 7)]


def _left_out(names: tuple[str, ...]) -> bool:
    return any(name in _LEFT_OUT or name.startswith(("_sysconfigdata", "config-")) for name in names)


def _prose(path: Path) -> Iterator[str]:
    """Docstrings, and long string constants that read as prose, in source order."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in somebody else's source
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    strings = [
        (node.lineno, node.col_offset, node.value, id(node) in docstrings)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    for *_, value, documented in sorted(strings):
        text = inspect.cleandoc(value).strip()
        if text and (documented or (len(text) >= _SHORTEST_CONSTANT and _reads_as_prose(text))):
            yield text


def _reads_as_prose(text: str) -> bool:
    """Mostly letters and blanks, and words of ordinary length: no table, pattern or encoded data."""
    letters = sum(c.isascii() and (c.isalpha() or c.isspace()) for c in text)
    return letters >= 0.8 * len(text) and len(text.split()) >= len(text) / 12


def find_text(ref: str, part: Part) -> Text:
    """The text that ``ref`` names: ``builtin``, a file or folder or ``-`` as ``read_text`` takes them, or an asset.

    Args:
        part: of the built-in text, where that is named.

    Raises:
        InputError: as ``read_text``; or the name is empty, nothing has that name, or the asset of that name is no text.
        MissingError: the asset is not fetched; the hint says how to.
    """
    if not ref:
        raise InputError("the name of a text is empty", hint="give a path, - for standard input, or builtin")
    if ref == "builtin":
        return builtin_text(part)
    if ref == "-" or os.path.lexists(ref):
        return read_text(ref)
    from icml25cli.core import store

    assets = store.catalogue()
    texts = [name for name, asset in assets.items() if asset.kind == "text"]
    if ref in texts:
        return replace(read_text(store.path(ref)), name=ref, origin=f"asset {ref} {assets[ref].version}")
    if ref in assets:
        raise InputError(f"the asset {ref} is no text but {assets[ref].kind}", hint=f"texts: {', '.join(texts)}")
    raise InputError(
        f"no text is called {ref}: there is no such file, folder or asset",
        hint=f"give a path, - for standard input, builtin, or one of {', '.join(texts)}",
    )


def read_text(ref: str | Path) -> Text:
    """Text of a file, of a directory's ``*.txt`` files in order of name, or of standard input (``-``).

    A ``.jsonl`` file holds one document a line, in the field ``text``; any other file is one document. Files are UTF-8;
    line ends become ``\\n``; blank documents are dropped. Raises ``InputError`` naming the file and the line or byte
    where it is missing, unreadable, empty, not UTF-8, or not the JSON described.
    """
    if str(ref) == "-":
        documents, name = [_decode(sys.stdin.buffer.read(), "standard input")], "standard input"
    else:
        path, name = Path(ref), str(ref)
        if path.is_dir():
            files = sorted(path.glob("*.txt"))
            if not files:
                raise InputError(f"{name} holds no .txt file", hint="name one file, or a directory of .txt files")
            documents = [_read(file) for file in files]
        elif path.suffix == ".jsonl":
            documents = list(_json_documents(path))
        else:
            documents = [_read(path)]
    documents = tuple(document for document in documents if document.strip())
    if not documents:
        raise InputError(f"{name} is empty", hint="give text of at least one evaluation window")
    return Text(name, documents, name)


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", hint="check the path") from error
    return _decode(data, str(path))


def _decode(data: bytes, name: str) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise InputError(
            f"{name} is not UTF-8: byte 0x{byte:02x} at offset {error.start}", hint="convert it, for example with iconv"
        ) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _json_documents(path: Path) -> Iterator[str]:
    form = 'each line is {"text": "..."}'
    for number, row in read_json_lines(path, hint=form):
        document = row.get("text") if isinstance(row, dict) else None
        if not isinstance(document, str):
            raise InputError(f"{path}, line {number} has no field 'text' that is a string", hint=form)
        yield document


def read_json_lines(path: Path, *, hint: str) -> Iterator[tuple[int, Any]]:
    """The value on each line of a JSONL file that is not blank, with the line's number, from 1.

    Args:
        hint: what a line should be, for whoever gave something else.

    Raises:
        InputError: the file is missing, unreadable or not UTF-8, or a line is not JSON or no Unicode text.
    """
    for number, line in enumerate(_read(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            # Only an escape can bring half a pair into a file that was decoded as UTF-8.
            torn = "\\u" in line and any("\ud800" <= c <= "\udfff" for c in json.dumps(value, ensure_ascii=False))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number} is not JSON: {error}", hint=hint) from error
        if torn:
            raise InputError(f"{path}, line {number} holds half a surrogate pair, which no UTF-8 text can", hint=hint)
        yield number, value


def token_stream(text: Text, tokenizer: PreTrainedTokenizerBase) -> Int64[ndarray, " n"]:
    """All documents as one stream of token ids, with the tokenizer's end-of-sequence id between them if it has one.

    Nothing is added at the front or at the end.
    """
    import numpy as np

    encoded = tokenizer(list(text.documents), add_special_tokens=False, return_attention_mask=False, verbose=False)
    separator = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    pieces = [piece for ids in encoded["input_ids"] for piece in (separator, ids)][1:]
    return np.concatenate([np.asarray(piece, dtype=np.int64) for piece in pieces])


def windows(
    tokens: Int64[ndarray, " n"],
    length: int,
    count: int | None = None,
    seed: int | None = None,
    *,
    name: str = "the text",
) -> Int64[ndarray, "windows length"]:
    """Cut a token stream into non-overlapping windows of ``length`` tokens; the rest at the end is dropped.

    At most ``count`` windows: the first ones in order, or with a ``seed`` a sample drawn without replacement, in order
    of drawing. Raises ``InputError`` (naming ``name``) where the stream is shorter than one window.
    """
    import numpy as np

    if len(tokens) < length:
        raise InputError(
            f"{name} has {len(tokens)} tokens, fewer than one window of {length}",
            hint="give more text or a shorter window",
        )
    cut = tokens[: len(tokens) // length * length].reshape(-1, length)
    if seed is not None:
        cut = cut[np.random.default_rng(seed).permutation(len(cut))]
    return cut[:count]


def overlap(evaluation: Int64[ndarray, "n length"], calibration: Int64[ndarray, "m other"], run: int = 32) -> float:
    """Share of evaluation windows that ``shares_text`` with the calibration windows."""
    return float(shares_text(evaluation, calibration, run).mean())


def shares_text(
    evaluation: Int64[ndarray, "n length"], calibration: Int64[ndarray, "m other"], run: int = 32
) -> Bool[ndarray, " n"]:
    """Which evaluation windows hold a run of ``run`` tokens that also stands in a calibration window.

    The run is no longer than the shorter of the two windows. Runs are compared by 64-bit hashes, so a false alarm among
    a million runs on either side has a chance below 1e-7.
    """
    import numpy as np

    run = min(run, evaluation.shape[1], calibration.shape[1])
    seen = _run_hashes(evaluation, run)
    return np.asarray(np.isin(seen, _run_hashes(calibration, run)).any(axis=1))


def _run_hashes(tokens: Int64[ndarray, "n length"], run: int) -> UInt64[ndarray, "n starts"]:
    """A polynomial hash, modulo 2^64, of the run that starts at each place of each row."""
    import numpy as np

    base = 0x9E3779B97F4A7C15
    ids = tokens.astype(np.uint64) + np.uint64(1)
    hashes, width = ids, 1
    for bit in bin(run)[3:]:  # the leading 1 is the run of one; then double, and lengthen by one where the bit is set
        hashes = hashes[:, width:] + hashes[:, : hashes.shape[1] - width] * np.uint64(pow(base, width, 2**64))
        width *= 2
        if bit == "1":
            hashes = hashes[:, :-1] * np.uint64(base) + ids[:, width:]
            width += 1
    return hashes ^ (hashes >> np.uint64(32))

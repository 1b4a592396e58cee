"""Matrices of embeddings, one item a row, read a block at a time: `.npy`, `.npz`, `.safetensors`, `.parquet`, `.pt`.

Rows stay in the file, mapped into memory; what cannot be mapped (compressed, parquet, a pipe) is first copied to a
nameless file in the user's cache. A block is float32, whatever is stored. Knows formats. Does not know what rows mean.
"""

import contextlib
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Float32, Int64, Shaped
from numpy import ndarray

from icml25cli.core.checkpoint import FLOATS, StoredTensor, read_header, tensor_index
from icml25cli.core.errors import InputError
from icml25cli.core.files import atomic_path, expand, output_errors
from icml25cli.core.matrix_file import chosen, split_name
from icml25cli.core.runs import cache_dir

SUFFIXES = (".npy", ".npz", ".safetensors", ".parquet", ".pt", ".pth")
BLOCK_VALUES = 2**23  # numbers of a block: 32 MiB in float32
_STORED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "i1", "U8": "u1", "I16": "<i2", "I32": "<i4"}
_TOKEN_EMBEDDINGS = ("embed_tokens.weight", "word_embeddings.weight", "wte.weight", "embed_in.weight")


@dataclass(frozen=True)
class Embeddings:
    """A matrix that stays in its file.

    Attributes:
        name: as the user typed it.
        stored: as it lies there; bfloat16 as uint16.
        bfloat16: whether ``stored`` is that.
        chosen: rows of ``stored`` that are meant, in their order; None for all of them.
        files: what it was read from, for a fingerprint; empty for a pipe.
    """

    name: str
    stored: Shaped[ndarray, "n d"]
    bfloat16: bool = False
    chosen: Int64[ndarray, "m"] | None = None
    files: tuple[Path, ...] = ()

    @property
    def rows(self) -> int:
        return len(self.stored) if self.chosen is None else len(self.chosen)

    @property
    def columns(self) -> int:
        return self.stored.shape[1]

    def __getitem__(self, which: slice | Int64[ndarray, "k"]) -> Float32[ndarray, "k d"]:
        """The rows of a slice, or of numbers, as a new float32 array."""
        part = self.stored[which if self.chosen is None else self.chosen[which]]
        if self.bfloat16:
            return (part.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(over="ignore"):  # float64 beyond float32 becomes infinite, which ``survey`` reports
            return np.array(part, dtype=np.float32, order="C")

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, Float32[ndarray, "k d"]]]:
        """All rows in order, as the number of the first and a block of at most ``rows`` (default: 32 MiB)."""
        step = rows or max(1, BLOCK_VALUES // self.columns)
        for start in range(0, self.rows, step):
            yield start, self[start : start + step]

    def select(self, rows: Int64[ndarray, "m"]) -> "Embeddings":
        """Those rows alone; nothing is read."""
        return replace(self, chosen=rows if self.chosen is None else self.chosen[rows])


def open_embeddings(named: str, *, allow_download: bool = False) -> Embeddings:
    """The matrix that a word of the command line means.

    ``FILE`` or ``FILE:KEY`` by its suffix; ``-``, a .npy on standard input; else a model (alias, directory, Hugging
    Face id), of which the token embeddings are meant. A parquet file has one column of lists, which KEY names where
    there are several, or else all of its columns of numbers count.

    Raises:
        InputError: it cannot be read, is torn (the message says how many bytes are expected), holds objects, text or
            no row, has another rank, or a key is missing or unknown.
        MissingError: as ``models.resolve``.
    """
    return _checked(_opened(named, allow_download))


def open_layers(named: str) -> tuple[Embeddings, ...]:
    """Several matrices of the same rows, in order: an array's layers (items, layers, columns), or all of a file.

    ``FILE:KEY`` is one array, and so is a FILE that holds one; of a .npz or .safetensors file with several, those of
    rank two count. One matrix alone is one layer.

    Raises:
        InputError: as ``open_embeddings``.
    """
    file, key = split_name(named, SUFFIXES)
    if key is None and file.is_file() and len(names := _matrices(file)) > 1:
        return tuple(open_embeddings(f"{file}:{name}") for name in names)
    found = _opened(named, False)
    if found.stored.ndim != 3:
        return (_checked(found),)
    return tuple(
        _checked(replace(found, name=f"{named}, layer {layer}", stored=found.stored[:, layer]))
        for layer in range(found.stored.shape[1])
    )


def _matrices(file: Path) -> list[str]:
    if file.suffix.lower() == ".npz":
        return [name for name, array in mapped_npz(file).items() if array.ndim == 2]
    if file.suffix.lower() == ".safetensors":
        return [n for n, tensor in read_header(file).items() if len(tensor.shape) == 2 and tensor.dtype in FLOATS]
    return []


def _opened(named: str, allow_download: bool) -> Embeddings:
    """As ``open_embeddings``, of any rank."""
    if named == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed", hint="name a file")
        return Embeddings("-", _spooled_npy("standard input", sys.stdin.buffer))
    file, key = split_name(named, SUFFIXES)
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        if file.is_file() and suffix != ".gguf":
            raise InputError(f"{named} is no file of embeddings", hint=f"they are {', '.join(SUFFIXES)}, or a model")
        return _token_embeddings(named, allow_download)
    if not file.is_file():
        raise InputError(f"{file} cannot be read: {'it is a folder' if file.is_dir() else 'no such file'}")
    if key is not None and suffix == ".npy":
        raise InputError(f"{file} holds one array, which has no name", hint=f"leave out :{key}")
    try:
        found = _READERS[suffix](file, key)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from error
    return replace(found, name=named, files=(file,))


def of_array(name: str, array: Shaped[ndarray, "n d"]) -> Embeddings:
    """An array in memory as embeddings.

    Raises:
        InputError: it is no matrix of numbers, or has no row.
    """
    return _checked(Embeddings(name, array))


def write_rows(
    path: Path, shape: tuple[int, int], blocks: Iterable[Float32[ndarray, "k d"]], *, force: bool = False
) -> None:
    """Write blocks of rows, ``shape`` in all, as one .npy of float32, whole or not at all.

    Raises:
        OutputError: the file exists (without ``force``) or cannot be written.
    """
    with atomic_path(path, force=force) as temporary, open(temporary, "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, "<f4").data)


def _checked(x: Embeddings) -> Embeddings:
    shape, kind = x.stored.shape, x.stored.dtype.kind
    if kind not in "fiu":
        raise InputError(f"{x.name} holds {x.stored.dtype}, it should hold numbers", hint="convert it to float32")
    if len(shape) != 2:
        raise InputError(f"{x.name} has shape {shape}, it should have rows and columns", hint="reshape it")
    if not all(shape):
        raise InputError(f"{x.name} has shape {shape}, and holds no number", hint="give a matrix that has some")
    return x


# --- readers -----------------------------------------------------------------------------------------------------


def _npy(file: Path, key: str | None) -> Embeddings:
    with open(file, "rb") as stream:
        return Embeddings("", _mapped_npy(str(file), stream))


def _mapped_npy(name: str, stream: IO[bytes], offset: int = 0) -> ndarray:
    """Map the .npy that starts at ``offset`` of an open file."""
    stream.seek(offset)
    try:
        major, _ = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except ValueError as error:
        raise InputError(
            f"{name} has no .npy header", hint="raw numbers have no shape: save them with numpy.save"
        ) from error
    if dtype.hasobject:
        raise InputError(f"{name} holds Python objects, which are never loaded", hint="save numbers")
    begin = stream.tell()
    needed = begin + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    size = stream.seek(0, 2)
    if size < needed:
        raise InputError(
            f"{name} is cut short: {size - offset} bytes where {needed - offset} are expected for {shape} of {dtype}",
            hint="copy or save it again",
        )
    if not np.prod(shape):  # nothing to map
        return np.empty(shape, dtype)
    return np.memmap(stream, dtype, "r", begin, shape, "F" if fortran else "C")


def _spooled_npy(name: str, source: IO[bytes]) -> ndarray:
    with _spool() as stream:
        shutil.copyfileobj(source, stream, 2**20)
        stream.flush()
        return _mapped_npy(name, stream)


@contextlib.contextmanager
def _spool() -> Iterator[IO[bytes]]:
    """A file without a name, gone with its last map; in the user's cache, as a temporary folder may be in memory."""
    folder = cache_dir() / "spool"
    with output_errors(folder, folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as stream:
            yield stream


def _npz(file: Path, key: str | None) -> Embeddings:
    with _opened_npz(file) as names:
        several = key is None and len(names) > 1
        matrices = [name for name, read in names.items() if read().ndim == 2] if several else list(names)
        return Embeddings("", names[chosen(file, key, matrices, names)]())


def mapped_npz(file: Path) -> dict[str, Shaped[ndarray, "..."]]:
    """All arrays of a .npz by name, mapped; those that are compressed from a copy of them in the user's cache.

    Raises:
        InputError: the file is absent, torn, of another kind, or holds objects.
    """
    try:
        with _opened_npz(file) as names:
            return {name: read() for name, read in names.items()}
    except OSError as error:
        raise InputError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from error


@contextlib.contextmanager
def _opened_npz(file: Path) -> Iterator[dict[str, Callable[[], ndarray]]]:
    """What reads each array of a .npz, by name."""
    try:
        with zipfile.ZipFile(file) as archive, open(file, "rb") as raw:

            def read(member: zipfile.ZipInfo) -> ndarray:
                if member.compress_type == zipfile.ZIP_STORED:
                    raw.seek(member.header_offset + 26)  # lengths of the name and the extra field of the local header
                    lengths = raw.read(4)
                    skipped = 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
                    return _mapped_npy(str(file), raw, member.header_offset + skipped)
                with archive.open(member) as compressed:
                    return _spooled_npy(str(file), compressed)

            members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
            yield {member.filename.removesuffix(".npy"): partial(read, member) for member in members}
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise InputError(f"{file} is not a whole .npz file", hint="save it again with numpy.savez") from error


def _safetensors(file: Path, key: str | None) -> Embeddings:
    header = read_header(file)
    name = chosen(file, key, list(header) if len(header) == 1 else _matrices(file), header)
    return _mapped_tensor(name, header[name])


def _mapped_tensor(name: str, tensor: StoredTensor) -> Embeddings:
    import json

    if tensor.dtype not in _STORED:
        raise InputError(f"{name} of {tensor.file} is stored as {tensor.dtype}", hint="name a tensor of numbers")
    with open(tensor.file, "rb") as stream:  # its header was checked when ``tensor`` was made from it
        length = int.from_bytes(stream.read(8), "little")
        begin = 8 + length + json.loads(stream.read(length))[name]["data_offsets"][0]
        stored = _STORED[tensor.dtype]
        mapped = np.memmap(stream, stored, "r", begin, tensor.shape) if all(tensor.shape) else np.empty(tensor.shape)
    return Embeddings("", mapped, tensor.dtype == "BF16")


def _token_embeddings(named: str, allow_download: bool) -> Embeddings:
    from icml25cli.core.models import resolve

    given = expand(named)
    folder = given if given.is_dir() else resolve(named, allow_download=allow_download).path
    tensors = tensor_index(folder)
    name = next((name for name in tensors for ending in _TOKEN_EMBEDDINGS if name.endswith(ending)), None)
    if name is None:
        raise InputError(
            f"{named} has no matrix of token embeddings that is known here", hint="name its file and tensor: FILE:KEY"
        )
    return replace(_mapped_tensor(name, tensors[name]), name=named, files=(tensors[name].file,))


def _pt(file: Path, key: str | None) -> Embeddings:
    import torch

    try:
        loaded: Any = torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except Exception as error:  # its unpickler raises whatever the bytes make it do
        raise InputError(
            f"{file} is not a whole .pt file of tensors alone",
            hint="files of before torch 1.6 and other objects are not loaded: save the tensor again with torch.save",
        ) from error
    if isinstance(loaded, dict):
        tensors = {str(name): x for name, x in loaded.items() if isinstance(x, torch.Tensor)}
        loaded = tensors[chosen(file, key, [name for name, x in tensors.items() if x.ndim == 2], tensors)]
    elif key is not None:
        raise InputError(f"{file} holds one tensor, which has no name", hint=f"leave out :{key}")
    if not isinstance(loaded, torch.Tensor) or loaded.layout != torch.strided or loaded.is_complex():
        raise InputError(f"{file} holds no dense tensor of numbers", hint="save one with torch.save")
    tensor = loaded.detach().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        return Embeddings("", tensor.view(torch.int16).numpy().view(np.uint16), True)
    try:
        return Embeddings("", tensor.numpy())
    except TypeError as error:  # eight-bit floats and quantised tensors
        raise InputError(f"{file} holds {tensor.dtype}", hint="convert it to float32") from error


def _parquet(file: Path, key: str | None) -> Embeddings:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as table:
            columns = _parquet_columns(file, key, table.schema_arrow)
            width: int | None = None
            with _spool() as stream:
                for batch in table.iter_batches(2**13, columns=columns):
                    block = _parquet_block(file, batch)
                    if width not in (None, block.shape[1]):
                        raise InputError(f"{file}: lists of column {columns[0]} differ in length")
                    width = block.shape[1]
                    stream.write(np.ascontiguousarray(block).data)
                stream.flush()
                shape = (table.metadata.num_rows, width or 0)
                return Embeddings("", np.memmap(stream, "<f4", "r", 0, shape) if all(shape) else np.empty(shape))
    except (pa.ArrowException, json.JSONDecodeError) as error:
        raise InputError(f"{file} is not a whole parquet file: {error}", hint="write it again") from error


def _parquet_columns(file: Path, key: str | None, schema: Any) -> list[str]:
    import pyarrow.types as kinds

    def number(kind: Any) -> bool:
        return kinds.is_floating(kind) or kinds.is_integer(kind)

    def numbers(kind: Any) -> bool:
        return (kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)) and number(
            kind.value_type
        )

    lists = [field.name for field in schema if numbers(field.type)]
    index = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", ())  # a frame's row labels
    plain = [field.name for field in schema if number(field.type) and field.name not in index]
    if key is None and not lists and plain:
        return plain
    if not lists and key is None:
        raise InputError(f"{file} has no column of numbers or of lists of numbers")
    return [chosen(file, key, lists, lists)]


def _parquet_block(file: Path, batch: Any) -> Float32[ndarray, "k d"]:
    import pyarrow as pa

    if any(column.null_count for column in batch.columns):
        raise InputError(f"{file} has empty cells", hint="fill or drop their rows")
    first = batch.column(0)
    if not hasattr(first, "flatten") or not pa.types.is_nested(first.type):
        return np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns], 1).astype(np.float32)
    values = first.flatten()
    if values.null_count or (len(first) and len(values) % len(first)):
        raise InputError(f"{file}: lists of column {batch.schema.names[0]} have gaps or differ in length")
    lengths = {len(first)} if not len(first) else set(np.asarray(first.value_lengths()).tolist())
    if len(lengths) > 1:
        raise InputError(f"{file}: lists of column {batch.schema.names[0]} differ in length")
    return values.to_numpy(zero_copy_only=False).astype(np.float32).reshape(len(first), -1)


_READERS = {
    ".npy": _npy,
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".parquet": _parquet,
    ".pt": _pt,
    ".pth": _pt,
}

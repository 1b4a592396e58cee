"""A matrix of row vectors, or one vector, as codes in a file (section 4 of the paper).

Each row is divided by its root mean square, rotated, cut into blocks of eight and coded. Knows numpy arrays and its own
file format. Does not know models, calibration, or how scales were chosen.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from icml25cli.core.checkpoint import read_header
from icml25cli.core.errors import InputError
from icml25cli.core.files import atomic_path
from icml25cli.core.forms import check_form
from icml25cli.core.tensors import sort_metadata
from icml25cli.papers.quantize.lattice import TIE_OFFSET_1024
from icml25cli.papers.quantize.multiply import check_codes
from icml25cli.papers.quantize.packing import Bits, pack, stored_bits, unpack
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.voronoi import LatticeCode

FORMAT = "icml25/nq/1"
DTYPES = ("float16", "float32", "float64")
_CHUNK_VALUES = 2**20  # rows worked on together: a few megabytes beside the array itself


@dataclass(frozen=True)
class EncodedArray:
    """An array as codes. ``decode`` gives back an array of the same shape and dtype.

    Attributes:
        code: the lattice code of all blocks.
        rotation: of each row, as wide as the row, or None.
        shape: of the array, (n, d) or (d,).
        dtype: of the array, one of ``DTYPES``.
        scales: root mean square of each row as stored, (n,) float16, or float32 where float16 would over- or underflow.
        packed: as ``packing.pack`` returns it, for n rows of ⌈d/8⌉ blocks.
        relative_mse: Σ(x − x̂)²/Σx², as the encoder saw it; 0 for an array of zeros.
        overloads: blocks that lay outside the code at their scale.
    """

    code: LatticeCode
    rotation: Rotation | None
    shape: tuple[int, ...]
    dtype: str
    scales: Float[ndarray, "n"]
    packed: dict[str, ndarray]
    relative_mse: float
    overloads: int

    @property
    def bits(self) -> Bits:
        """Stored bits by purpose; they sum to the bytes of the tensors, without the header of the file."""
        rows, columns = len(self.scales), self.shape[-1]
        return stored_bits(rows, columns, self.code.q, len(self.code.betas), self.scales.itemsize)

    def decode(self) -> Float[ndarray, "*n d"]:
        """The array that the codes stand for.

        Raises:
            InputError: a code is out of range.
        """
        columns = self.shape[-1]
        out = np.empty((len(self.scales), columns), self.dtype)
        limit = np.finfo(self.dtype).max
        for rows in _chunks(len(out), columns):
            part = {name: array[rows] for name, array in self.packed.items()}
            digits, beta_index = unpack(part, self.code.q, len(self.code.betas))
            values = self.code.decode(digits.reshape(-1, 8), beta_index.ravel()).reshape(len(digits), -1)[:, :columns]
            if self.rotation is not None:
                values = self.rotation.inverse(np.ascontiguousarray(values))
            out[rows] = np.clip(values * self.scales[rows, None].astype(np.float32), -limit, limit)
        return out.reshape(self.shape)

    def save(self, path: Path, *, force: bool = False) -> None:
        """Write a safetensors file, whole or not at all; all that ``load`` needs is in it.

        Raises:
            OutputError: the file exists (without ``force``) or cannot be written.
        """
        metadata = {
            "format": FORMAT,
            "q": self.code.q,
            "betas": self.code.betas,
            "simplified": self.code.simplified,
            "epsilon": [[numerator, 1024] for numerator in TIE_OFFSET_1024],
            "rotation": self.rotation and self.rotation.spec(),
            "shape": self.shape,
            "dtype": self.dtype,
            "relative_mse": self.relative_mse,
            "overloads": self.overloads,
        }
        text = {name: value if isinstance(value, str) else json.dumps(value) for name, value in metadata.items()}
        with atomic_path(path, force=force) as temporary:
            save_file({**self.packed, "scales": self.scales}, temporary, metadata=text)
            sort_metadata(temporary)

    @classmethod
    def load(cls, path: Path) -> "EncodedArray":
        """Read what ``save`` wrote, with every code checked.

        Raises:
            InputError: the file is absent, torn, of another format, or does not agree with itself.
        """
        metadata, tensors = _read(path)
        try:
            code, rotation, shape, dtype, error, overloads = _parse(metadata)
            scales = _valid_scales(tensors.pop("scales", None), rows=prod(shape[:-1]))
            blocks = -(-shape[-1] // 8)
            if any(array.shape[:1] != scales.shape for array in tensors.values()):
                raise InputError(f"the codes are not those of {len(scales)} rows")
            digits, _ = unpack({name: array[:0] for name, array in tensors.items()}, code.q, len(code.betas))
            if digits.shape[1] != blocks:
                raise InputError(f"rows have {digits.shape[1]} blocks, {shape[-1]} columns need {blocks}")
            high = tensors.get("codes_high", np.zeros((len(scales), 0), np.uint8))
            check_codes(torch.from_numpy(tensors["codes"]), torch.from_numpy(high), code)
        except InputError as fault:
            raise InputError(f"{path}: {fault.message}", hint=fault.hint) from fault
        return cls(code, rotation, shape, dtype, scales, tensors, error, overloads)


def encode_array(x: Float[ndarray, "*n d"], code: LatticeCode, rotation: Rotation | None = None) -> EncodedArray:
    """Code an (n, d) array row by row, or one d-vector; float16, float32 or float64, computed in float32.

    Rows of zeros cost no error; one that is not of zeros, but whose root mean square is below 1.2e-38, the least normal
    number of float32, is refused: its scale and values would lose their digits there. A width that is no multiple of 8
    is padded with zeros after rotation.

    Raises:
        InputError: the array has another rank or dtype or is empty, a row is not finite or too small in float32 (it is
            named), or the rotation has another width.
    """
    rows2d = _as_rows(x)
    rms = _row_rms(rows2d)
    faint = (rms > 0) & (rms < np.finfo(np.float32).tiny)
    if faint.any():
        raise InputError(
            f"row {int(faint.argmax())} is too small for float32: its root mean square is {rms[faint][0]:.1e}",
            hint="multiply the array by a power of two, and divide what decode gives",
        )
    scales = _storable(rms)
    n, d = rows2d.shape
    parts, error, energy, overloads = [], 0.0, 0.0, 0
    for rows in _chunks(n, d):
        target = _normalized(rows2d[rows], scales[rows], rotation)
        done = code.quantize(target.reshape(-1, 8))
        shape = (len(target), -1, 8)
        parts.append(pack(done.digits.reshape(shape), done.beta_index.reshape(shape[:2]), code.q, len(code.betas)))
        weight = scales[rows].astype(np.float64) ** 2
        difference = (target - done.values.reshape(target.shape))[:, :d]
        error += float(np.square(difference).sum(axis=1, dtype=np.float64) @ weight)
        energy += float(np.square(target).sum(axis=1, dtype=np.float64) @ weight)
        overloads += int(done.overloaded.sum())
    packed = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return EncodedArray(
        code, rotation, x.shape, x.dtype.name, scales, packed, error / energy if energy else 0.0, overloads
    )


def sample_blocks(
    x: Float[ndarray, "*n d"], rotation: Rotation | None = None, *, count: int = 65_536, seed: int = 0
) -> Float32[ndarray, "m 8"]:
    """About ``count`` blocks of normalised, rotated rows drawn without replacement: all of them if there are fewer.

    Raises:
        InputError: as ``encode_array``.
    """
    rows2d = _as_rows(x)
    scales = _storable(_row_rms(rows2d))
    wanted = min(len(rows2d), -(-count * 8 // rows2d.shape[1]))
    drawn = np.sort(np.random.default_rng(seed).choice(len(rows2d), wanted, replace=False))
    return _normalized(rows2d[drawn], scales[drawn], rotation).reshape(-1, 8)


def _as_rows(x: Float[ndarray, "*n d"]) -> Float[ndarray, "n d"]:
    if x.dtype.name not in DTYPES:
        raise InputError(f"the array holds {x.dtype.name}, it should hold one of {', '.join(DTYPES)}")
    if x.ndim not in (1, 2) or not x.size:
        raise InputError(f"the array has shape {x.shape}, it should have rows and columns, or be one vector")
    return x.reshape(-1, x.shape[-1])


def _row_rms(x: Float[ndarray, "n d"]) -> Float[ndarray, "n"]:
    """Root mean square of each row in float64, of values over the largest of them, whose squares cannot underflow."""
    rms = np.empty(len(x), np.float64)
    for rows in _chunks(*x.shape):
        part = np.abs(x[rows].astype(np.float64))
        largest = part.max(axis=1)
        if not (largest <= np.finfo(np.float32).max).all():  # true of NaN, too
            bad = rows.start + int(np.argmin(largest <= np.finfo(np.float32).max))
            raise InputError(f"row {bad} holds a value that is not finite in float32", hint="drop or repair that row")
        part /= np.where(largest == 0, 1, largest)[:, None]
        rms[rows] = largest * np.sqrt(np.square(part).mean(axis=1))
    return rms


def _storable(rms: Float[ndarray, "n"]) -> Float[ndarray, "n"]:
    """Scales in float16, or all in float32 if any is out of its normal range."""
    half = np.finfo(np.float16)
    fits = (rms == 0) | ((rms >= float(half.tiny)) & (rms <= float(half.max)))
    return rms.astype(np.float16 if fits.all() else np.float32)


def _normalized(
    x: Float[ndarray, "n d"], scales: Float[ndarray, "n"], rotation: Rotation | None
) -> Float32[ndarray, "n padded"]:
    """Rows over their stored scale, rotated, with zeros up to a multiple of 8; zero rows stay zero."""
    divisor = np.where(scales == 0, 1, scales).astype(np.float32)
    unit = x.astype(np.float32) / divisor[:, None]
    if rotation is not None:
        unit = rotation.forward(unit)
    return np.pad(unit, ((0, 0), (0, -unit.shape[1] % 8)))


def _chunks(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, _CHUNK_VALUES // columns)
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))


def _read(path: Path) -> tuple[dict[str, str], dict[str, ndarray]]:
    header = read_header(Path(path))  # what it promises is no more than the file holds
    if other := [name for name, tensor in header.items() if tensor.dtype not in ("U8", "U32", "F16", "F32")]:
        raise InputError(f"{path} is not a file of codes: tensor {other[0]} is stored as {header[other[0]].dtype}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InputError(f"{path} is not a file of codes ({FORMAT})", hint="icml25 quantize encode makes one")
            return metadata, {name: file.get_tensor(name) for name in header}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


_FORM = {"shape": [int], "relative_mse": float, "overloads": int, "epsilon": list}
_KNOWN = {"format", "dtype", "rotation", "q", "betas", "simplified", *_FORM}


def _parse(metadata: dict[str, str]) -> tuple[LatticeCode, Rotation | None, tuple[int, ...], str, float, int]:
    try:
        fields = {name: json.loads(metadata[name]) for name in metadata if name not in ("format", "dtype")}
    except (ValueError, RecursionError) as fault:
        raise InputError("a field of the header is not JSON") from fault
    if unknown := sorted(metadata.keys() - _KNOWN):  # it may change what the codes mean
        raise InputError(f"the header holds {unknown[0]!r}, unknown here", hint="a newer version may read the file")
    check_form(fields, _FORM, "the header")
    shape, dtype, spec = tuple(fields["shape"]), metadata.get("dtype"), fields.get("rotation")
    if dtype not in DTYPES or len(shape) not in (1, 2) or min(shape) < 1:
        raise InputError(f"the header names an array of {dtype} of shape {shape}")
    if fields["epsilon"] != [[numerator, 1024] for numerator in TIE_OFFSET_1024]:
        raise InputError("the codes were made with another tie offset", hint="a newer version may read them")
    if not 0 <= fields["relative_mse"] <= 1e300 or fields["overloads"] < 0:
        raise InputError(f"the header names an error of {fields['relative_mse']} and {fields['overloads']} overloads")
    rotation = None if spec is None else Rotation.from_spec(spec)
    if rotation is not None and rotation.n != shape[-1]:
        raise InputError(f"the rotation has width {rotation.n}, the rows have {shape[-1]} columns")
    code = LatticeCode.from_spec(fields)
    return code, rotation, shape, dtype, fields["relative_mse"], fields["overloads"]


def _valid_scales(scales: ndarray | None, *, rows: int) -> Float[ndarray, "n"]:
    if scales is None or scales.dtype.name not in ("float16", "float32") or scales.shape != (rows,):
        raise InputError(f"there are no scales for {rows} rows")
    if not (np.isfinite(scales) & (scales >= 0)).all():
        raise InputError("a row scale is negative or not finite", hint="the file is corrupt")
    return cast(ndarray, scales)

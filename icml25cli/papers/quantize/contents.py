"""What a file of codes, or a packed directory, holds: every code read and checked, and where its bytes go.

Knows both formats. Does not know what the numbers are for, and decodes none.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8
from numpy import ndarray
from torch import Tensor

from icml25cli.core.checkpoint import StoredTensor, check_directory, read_tensors, tensor_index
from icml25cli.core.errors import InputError
from icml25cli.core.forms import check_form
from icml25cli.core.progress import track
from icml25cli.papers.quantize.arrays import EncodedArray, _chunks
from icml25cli.papers.quantize.packed import PARTS, QUANT_METHOD, PackedMatrix, PackedSpec
from icml25cli.papers.quantize.packing import Bits, stored_bits, stored_entropy_bits, unpack, unpack_entropy
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.voronoi import LatticeCode

_AGAIN = "the files are damaged, or quantization_config was edited"


@dataclass(frozen=True)
class Coded:
    """Codes of one array or matrix.

    Attributes:
        name: of the tensor; "codes" in a file of one array.
        shape: of what was coded; a matrix has one output a row.
        dtype: of the array, which ``decode`` gives back; None for a matrix.
        code, rotation: that its rows are coded in.
        bits: where the stored bits go, without headers of files.
        digits: how often each digit 0..q-1 stands in the codes.
        scales: blocks by scale.
        relative_mse: as the encoder saw it, |X - X'|^2 / |X|^2; None where it is not recorded.
        overloads: blocks outside the code at every scale; None where it is not recorded.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str | None
    code: LatticeCode
    rotation: Rotation | None
    bits: Bits
    digits: Int64[ndarray, "q"]
    scales: Int64[ndarray, "k"]
    relative_mse: float | None
    overloads: int | None

    @property
    def values(self) -> int:
        """Numbers that were coded."""
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class Contents:
    """What is in a file or directory.

    Attributes:
        format: of the codes.
        coded: one for each array or matrix.
        bytes: by purpose, the whole size of the file or of all weight files; ``other`` are tensors that are not coded,
            ``header`` is what is no tensor.
    """

    format: str
    coded: tuple[Coded, ...]
    bytes: dict[str, float]

    @property
    def values(self) -> int:
        """Numbers that were coded."""
        return sum(coded.values for coded in self.coded)

    @property
    def digits(self) -> Int64[ndarray, "q"]:
        """How often each digit stands in all codes."""
        return np.sum([coded.digits for coded in self.coded], axis=0)

    @property
    def scales(self) -> Int64[ndarray, "k"]:
        """Blocks by scale."""
        return np.sum([coded.scales for coded in self.coded], axis=0)


def entropy(counts: Int64[ndarray, "n"]) -> float:
    """Empirical entropy in bits; 0 for no counts."""
    share = counts[counts > 0] / max(1, counts.sum())
    return float(-(share * np.log2(share)).sum()) + 0.0


def array_contents(path: Path) -> Contents:
    """Of a file that ``icml25 quantize encode`` wrote.

    Raises:
        InputError: as ``EncodedArray.load``.
    """
    x = EncodedArray.load(path)
    q, k = x.code.q, len(x.code.betas)
    digits, scales = np.zeros(q, np.int64), np.zeros(k, np.int64)
    for rows in _chunks(len(x.scales), x.shape[-1]):
        part = _counts(*unpack({name: array[rows] for name, array in x.packed.items()}, q, k), q, k)
        digits, scales = digits + part[0], scales + part[1]
    coded = Coded("codes", x.shape, x.dtype, x.code, x.rotation, x.bits, digits, scales, x.relative_mse, x.overloads)
    return Contents("a file of codes", (coded,), _bytes([coded], 0, path.stat().st_size))


def model_contents(directory: Path) -> Contents:
    """Of a packed directory, or of the output of ``icml25 quantize run`` that it is in, whose report is then read, too.

    Raises:
        InputError: it is none, its description does not fit its files, or a code is out of range; the message names
            the tensor, the row and the block.
    """
    if not (directory / "config.json").exists() and (directory / "packed").is_dir():
        directory = directory / "packed"
    described = check_directory(directory).get("quantization_config")
    if not isinstance(described, dict) or described.get("quant_method") != QUANT_METHOD:
        raise InputError(
            f"{directory} is no directory of packed codes", hint="icml25 quantize MODEL -o DIR writes DIR/packed"
        )
    matrices = PackedSpec.parse(described, f"quantization_config of {directory / 'config.json'}").matrices
    if not matrices:
        raise InputError(f"{directory} describes no codes", hint=_AGAIN)
    index = tensor_index(directory)
    if lost := [name for name in index if name.endswith(".codes") and name.removesuffix(".codes") not in matrices]:
        raise InputError(f"{directory}: quantization_config does not describe {lost[0]}", hint=_AGAIN)
    recorded = _recorded(directory.parent / "report.json")
    coded = []
    for name, matrix in track(matrices.items(), "checking codes", len(matrices)):
        try:
            coded.append(_matrix(name, matrix, index, *recorded.get(name, (None, None))))
        except InputError as error:
            raise InputError(f"{directory}: {name}: {error.message}", hint=error.hint or _AGAIN) from error
    mine = {f"{name}.{part}" for name in matrices for part in PARTS}
    other = sum(tensor.nbytes for name, tensor in read_tensors(index, [name for name in index if name not in mine]))
    size = sum(file.stat().st_size for file in {tensor.file for tensor in index.values()})
    return Contents("a packed directory", tuple(coded), _bytes(coded, other, size))


def _matrix(
    name: str,
    matrix: PackedMatrix,
    index: dict[str, StoredTensor],
    relative_mse: float | None,
    overloads: int | None,
) -> Coded:
    there = {part: f"{name}.{part}" for part in PARTS if f"{name}.{part}" in index}
    if "codes" not in there or "scales" not in there:
        raise InputError("its codes or its row scales are missing")
    parts: dict[str, Tensor] = {full.removeprefix(f"{name}."): x for full, x in read_tensors(index, there.values())}
    scales = parts.pop("scales")
    if not scales.is_floating_point() or scales.ndim != 1 or not scales.isfinite().all():
        raise InputError("its row scales are not finite numbers, one a row")
    code, rows, columns = matrix.code, len(scales), matrix.rotation.n
    q, k = code.q, len(code.betas)
    arrays = {part: tensor.numpy() for part, tensor in parts.items()}
    if matrix.entropy:
        digits, beta_index = unpack_entropy(arrays, q, k, matrix.blocks)
        bits = stored_entropy_bits(rows, columns, q, arrays["beta_zstd"].nbytes, scales.element_size())
    else:
        digits, beta_index = unpack(arrays, q, k)
        bits = stored_bits(rows, columns, q, k, scales.element_size())
    if beta_index.shape != (rows, matrix.blocks):
        raise InputError(f"codes of shape {beta_index.shape} do not fit {rows} rows of {columns} weights")
    counts = _counts(digits, beta_index, q, k)
    return Coded(name, (rows, columns), None, code, matrix.rotation, bits, *counts, relative_mse, overloads)


def _counts(
    digits: UInt8[ndarray, "rows b 8"], beta_index: UInt8[ndarray, "rows b"], q: int, k: int
) -> tuple[Int64[ndarray, "q"], Int64[ndarray, "k"]]:
    return np.bincount(digits.ravel(), minlength=q), np.bincount(beta_index.ravel(), minlength=k)


def _bytes(coded: Iterable[Coded], other: int, size: int) -> dict[str, float]:
    total = sum((one.bits for one in coded), Bits(0, 0, 0, 0))
    parts = {"code": total.code, "beta": total.beta, "scale": total.scale, "padding": total.padding}
    return {name: bits / 8 for name, bits in parts.items()} | {"other": other, "header": size - other - total.total / 8}


def _recorded(report: Path) -> dict[str, tuple[float, int]]:
    """Relative error and overloads by tensor, from the report that a run wrote beside its directories."""
    form = {"tables": {"tensors": [{"tensor": str, "relative_mse": float, "overloads": int}]}}
    try:
        found = json.loads(report.read_text(encoding="utf-8"))
        check_form(found, form, report)
    except (OSError, ValueError, RecursionError, InputError):  # no report, or not one of a run: nothing is recorded
        return {}
    return {row["tensor"]: (row["relative_mse"], row["overloads"]) for row in found["tables"]["tensors"]}

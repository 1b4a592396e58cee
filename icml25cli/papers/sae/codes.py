"""Embeddings to sparse codes in a file and back, a block of rows at a time, rows always in the order they came.

The file is a `.npz` as `scipy.sparse.save_npz` writes it, CSR. Knows models and files. Does not know training.
"""

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int
from numpy import ndarray
from torch import Tensor

from icml25cli.core.embeddings import Embeddings, mapped_npz, write_rows
from icml25cli.core.errors import InputError
from icml25cli.core.files import atomic_path
from icml25cli.core.progress import Progress, warn
from icml25cli.core.survey import Survey
from icml25cli.papers.sae.kernels import gather_rows, spread
from icml25cli.papers.sae.model import Scaling, SparseAutoencoder
from icml25cli.papers.sae.nested import SPARSE_SHARE, topk_code

ROWS = 1024


@dataclass(frozen=True)
class Codes:
    """Sparse codes of N rows, mapped from their file: row b has ``indptr[b]`` to ``indptr[b + 1]``."""

    indptr: Int[ndarray, "rows_and_one"]
    indices: Int[ndarray, "entries"]
    data: Float32[ndarray, "entries"]
    n: int

    @property
    def rows(self) -> int:
        return len(self.indptr) - 1


def fitted(model: SparseAutoencoder, x: Embeddings, found: Survey, center_as: str = "train") -> SparseAutoencoder:
    """``model`` with the scaling that rows of ``x`` are to have: the training rows' (train) or their own (self).

    Warns where the training mean is far from theirs, as for another modality.

    Raises:
        InputError: rows have another width.
    """
    check_width(model, x)
    if center_as == "self":
        return model.with_scaling(Scaling.of(found, model.config.center))
    rms = model.config.d**0.5 / model.scaling.scale
    apart = float(np.linalg.norm(found.mean - model.scaling.mean))
    if model.config.center and apart > 0.1 * rms and apart > 5 * rms / max(found.rows, 1) ** 0.5:
        warn(
            f"{x.name}: the mean lies {apart / rms:.2f} training radii from that of the training rows; "
            "--center-as self takes off its own"
        )
    return model


def check_width(model: SparseAutoencoder, x: Embeddings) -> None:
    if x.columns != model.config.d:
        raise InputError(f"{x.name} has {x.columns} columns, the model was trained on {model.config.d}")


def code_blocks(
    model: SparseAutoencoder, x: Embeddings, k: int | None = None, rows: int = ROWS
) -> Iterator[Float32[Tensor, "B n"]]:
    """Codes of blocks of rows in order: the method's own at inference, or the k largest of the full code."""
    with Progress(f"encoding {x.name}", x.rows) as progress:
        for _, block in x.blocks(rows):
            z = model.codes(block, full=k is not None)
            yield z if k is None else topk_code(z, k)
            progress.advance(len(block))


def write_codes(
    path: Path, model: SparseAutoencoder, x: Embeddings, k: int | None = None, *, rows: int = ROWS, force: bool = False
) -> Codes:
    """Encode ``x`` into ``path``; what was written, mapped.

    Raises:
        OutputError: the file exists (without ``force``) or cannot be written.
    """
    counts = [np.zeros(1, np.int64)]
    with (
        atomic_path(path, force=force) as temporary,
        tempfile.TemporaryFile(dir=temporary.parent) as data,
        tempfile.TemporaryFile(dir=temporary.parent) as indices,
    ):
        for z in code_blocks(model, x, k, rows):
            row, column = torch.nonzero(z, as_tuple=True)
            counts.append(np.bincount(row.numpy(), minlength=len(z)))
            data.write(z[row, column].numpy().tobytes())
            indices.write(column.to(torch.int32).numpy().tobytes())
        indptr = np.cumsum(np.concatenate(counts))
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for name, array in (
                ("format", np.array(b"csr")),
                ("shape", np.array([x.rows, model.config.n])),
                ("indptr", indptr),
            ):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            for name, kind, file in (("indices", "<i4", indices), ("data", "<f4", data)):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    header: dict[str, Any] = {"descr": kind, "fortran_order": False, "shape": (int(indptr[-1]),)}
                    np.lib.format.write_array_header_1_0(member, header)
                    file.seek(0)
                    shutil.copyfileobj(file, member, 2**20)
    return read_codes(path)


def read_codes(path: Path) -> Codes:
    """Codes as ``write_codes`` or ``scipy.sparse.save_npz`` wrote them, checked.

    Raises:
        InputError: the file is absent, torn, no CSR matrix, or does not agree with itself.
    """
    arrays = mapped_npz(path)
    if missing := {"indptr", "indices", "data", "shape"} - arrays.keys():
        raise InputError(
            f"{path} holds no sparse codes: {min(missing)} is missing", hint="`icml25 sae encode` makes it"
        )
    indptr, indices, data, shape = (arrays[name] for name in ("indptr", "indices", "data", "shape"))
    rows, n = (int(size) for size in shape) if shape.shape == (2,) else (-1, -1)
    fits = indptr.shape == (rows + 1,) and indices.shape == data.shape == (int(indptr[-1]),) and not indptr[0]
    step = 2**22
    if not fits or (np.diff(indptr) < 0).any():
        raise InputError(f"{path}: the parts of the sparse matrix do not fit", hint="it must be CSR; save it again")
    for start in range(0, len(indices), step):
        part = indices[start : start + step]
        if part.min() < 0 or part.max() >= n or not np.isfinite(data[start : start + step]).all():
            raise InputError(f"{path}: an index lies outside {n} columns or a value is not finite")
    return Codes(indptr, indices, data, n)


def decoded_blocks(model: SparseAutoencoder, codes: Codes, rows: int = ROWS) -> Iterator[Float32[ndarray, "B d"]]:
    """Embeddings from codes, a block of rows at a time."""
    weights = model.parameters.W_dec
    for start in range(0, codes.rows, rows):
        indptr = codes.indptr[start : start + rows + 1].astype(np.int64)
        indices, data = (a[indptr[0] : indptr[-1]] for a in (codes.indices, codes.data))
        yield model.decoded(sparse_product(indptr - indptr[0], indices, np.asarray(data), weights, model))


def sparse_product(
    indptr: Int[ndarray, "B1"],
    indices: ndarray,
    data: ndarray,
    weights: Float32[Tensor, "n d"],
    model: SparseAutoencoder,
) -> Float32[Tensor, "B d"]:
    """Σ z·W_dec of a CSR block: row by row of the decoder where codes are sparse, else one product of matrices."""
    rows = len(indptr) - 1
    values = model.capped(torch.from_numpy(np.array(data, np.float32)))
    if len(values) > SPARSE_SHARE * rows * len(weights):
        crow, columns = torch.from_numpy(indptr), torch.from_numpy(np.array(indices, np.int64))
        dense = torch.zeros(rows, len(weights))
        dense[torch.repeat_interleave(torch.arange(rows), crow.diff()), columns] = values
        return dense @ weights
    out = np.empty((rows, weights.shape[1]), np.float32)
    given = np.ascontiguousarray(indices)
    spread(
        gather_rows,
        rows,
        lambda part: indptr[part.start : part.stop + 1],
        given,
        values.numpy(),
        weights.numpy(),
        lambda part: out[part],
    )
    return torch.from_numpy(out)


def write_decoded(path: Path, model: SparseAutoencoder, codes: Codes, *, force: bool = False) -> None:
    """Decode all rows into a .npy of float32.

    Raises:
        InputError: the codes are of another number of latents.
        OutputError: the file exists (without ``force``) or cannot be written.
    """
    if codes.n != model.config.n:
        raise InputError(f"the codes have {codes.n} columns, the model has {model.config.n} latents")
    write_rows(path, (codes.rows, model.config.d), decoded_blocks(model, codes), force=force)

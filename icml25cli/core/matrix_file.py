"""One matrix out of a file that may hold several: `FILE[:KEY]`, of .npy, .npz or .safetensors.

Knows formats of arrays. Does not know what a matrix means.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from icml25cli.core.checkpoint import FLOATS, read_header, read_tensors
from icml25cli.core.errors import InputError
from icml25cli.core.files import expand
from icml25cli.core.tables import read_array

SUFFIXES = (".npy", ".npz", ".safetensors")


def is_matrix_file(named: str) -> bool:
    """Whether a word means such a file, by the end of its name."""
    return split_name(named)[0].suffix.lower() in SUFFIXES


def read_matrix(named: str) -> Shaped[ndarray, "rows columns"]:
    """The matrix that ``FILE[:KEY]`` names; KEY may be left out where there is but one. bfloat16 becomes float32.

    Raises:
        InputError: the file is absent, torn, of another kind or holds objects, there is no such key, several matrices
            and no key, or an array of another rank.
    """
    file, key = split_name(named)
    if file.suffix.lower() == ".safetensors":
        matrix = _from_safetensors(file, key)
    elif file.suffix.lower() == ".npz":
        matrix = _from_npz(file, key)
    elif key is None:
        matrix = read_array(file)
    else:
        raise InputError(f"{file} holds one array, which has no name", hint=f"leave out :{key}")
    if matrix.ndim != 2:
        raise InputError(
            f"{named} has shape {matrix.shape}, it should have rows and columns", hint="reshape it, or name another"
        )
    return matrix


def split_name(named: str, suffixes: Collection[str] = SUFFIXES) -> tuple[Path, str | None]:
    """``FILE:KEY`` as its two parts, where FILE ends in one of ``suffixes``; a file of the whole name goes first."""
    whole = expand(named)
    file, colon, key = named.rpartition(":")
    if not colon or whole.exists() or Path(file).suffix.lower() not in suffixes:
        return whole, None
    return expand(file), key


def _from_safetensors(file: Path, key: str | None) -> ndarray:
    header = read_header(file)
    matrices = [name for name, tensor in header.items() if len(tensor.shape) == 2 and tensor.dtype in FLOATS]
    name = chosen(file, key, matrices, header)
    if header[name].dtype not in FLOATS:
        raise InputError(f"{name} of {file} is stored as {header[name].dtype}", hint="name a tensor of numbers")
    ((_, tensor),) = read_tensors(header, [name])
    return (tensor.float() if header[name].dtype == "BF16" else tensor).numpy()


def _from_npz(file: Path, key: str | None) -> ndarray:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return arrays[chosen(file, key, arrays.files, arrays)]
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}", hint="check the path") from error
    except InputError:
        raise
    except Exception as error:  # a torn file raises whatever its zip and zlib layers do
        raise InputError(
            f"{file} is not a whole .npz file of numbers", hint="save it again with numpy.savez"
        ) from error


def chosen(file: Path, key: str | None, matrices: list[str], there: Any) -> str:
    """The name asked for, or that of the only matrix.

    Raises:
        InputError: there is no such name, or none was given and there are several matrices.
    """
    if key is not None and key in there:
        return key
    if key is None and len(matrices) == 1:
        return matrices[0]
    listed = ", ".join(matrices[:8]) + (", ..." if len(matrices) > 8 else "")
    if not matrices:
        raise InputError(f"{file} holds no matrix", hint="save one in it: a row for each item")
    if key is None:
        raise InputError(f"{file} holds {len(matrices)} matrices", hint=f"name one, FILE:KEY, of: {listed}")
    raise InputError(f"{file} holds no {key}", hint=f"it holds {listed}")

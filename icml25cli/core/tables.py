"""Arrays from files and back: `.npy` and `.npz`, never unpickled.

Knows numpy's formats. Does not know what an array means.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from icml25cli.core.errors import InputError
from icml25cli.core.files import atomic_path

if TYPE_CHECKING:
    import numpy as np


def read_array(path: Path) -> np.ndarray:
    """The array in a ``.npy`` file, or the only one in a ``.npz`` file.

    Raises:
        InputError: as ``read_arrays``, or a ``.npz`` holds several arrays.
    """
    arrays = read_arrays(path)
    if len(arrays) != 1:
        names = f": {', '.join(arrays)}" if arrays else ""
        raise InputError(f"{path} holds {len(arrays) or 'no'} arrays{names}", hint="keep one in a file")
    (array,) = arrays.values()
    if not array.ndim:
        raise InputError(f"{path} has shape (), it should have rows and columns, or be one vector", hint="reshape it")
    if not array.size:
        raise InputError(f"{path} has shape {array.shape}, and holds no number", hint="give an array that has some")
    return array


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays in a ``.npz`` file by name; the one in a ``.npy`` file has the name ``""``.

    Raises:
        InputError: the file is absent, torn, of another kind, or holds objects.
    """
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        return {"": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint="check the path") from error
    except Exception as error:  # a torn .npz raises whatever its zip and zlib layers do
        if "Object arrays" in str(error) or _is_pickle(path):
            raise InputError(f"{path} holds Python objects, which are never loaded", hint="save numbers") from error
        raise InputError(f"{path} is not a whole .npy or .npz file", hint="save it again with numpy.save") from error


def _is_pickle(path: Path) -> bool:
    """Whether a file begins as pickles do; numpy takes any file that it does not know for one."""
    try:
        return path.open("rb").read(1) == b"\x80"
    except OSError:
        return False


def write_array(path: Path, array: np.ndarray, *, force: bool = False) -> None:
    """Write ``array`` as ``.npy``, whole or not at all.

    Raises:
        OutputError: the file exists (without ``force``) or cannot be written.
    """
    import numpy as np

    with atomic_path(path, force=force) as temporary, open(temporary, "wb") as file:
        np.save(file, array, allow_pickle=False)

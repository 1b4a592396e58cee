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
        InputError: the file is absent, torn, of another kind, holds objects, or a ``.npz`` holds several arrays.
    """
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            if not loaded.ndim:
                raise InputError(f"{path} has shape (), it should have rows and columns, or be one vector")
            return loaded
        with loaded:
            if len(loaded.files) != 1:
                raise InputError(
                    f"{path} holds {len(loaded.files)} arrays ({', '.join(loaded.files[:5])})", hint="keep one in a file"
                )
            return loaded[loaded.files[0]]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, KeyError) as error:
        pickled = "pickle" in str(error)
        raise InputError(
            f"{path} holds Python objects, which are never loaded" if pickled else f"{path} is not a whole .npy or .npz file",
            hint="save plain numbers with numpy.save",
        ) from error
    except Exception as error:  # zipfile.BadZipFile, zlib.error: what a torn .npz raises
        raise InputError(f"{path} is not a whole .npy or .npz file", hint="save it again") from error


def write_array(path: Path, array: np.ndarray, *, force: bool = False) -> None:
    """Write ``array`` as ``.npy``, whole or not at all.

    Raises:
        OutputError: the file exists (without ``force``) or cannot be written.
    """
    import numpy as np

    with atomic_path(path, force=force) as temporary, open(temporary, "wb") as file:
        np.save(file, array, allow_pickle=False)

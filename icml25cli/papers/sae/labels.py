"""One class of a label against the others; words, one a line. Does not know what labels mean."""

from pathlib import Path

import numpy as np
from jaxtyping import Int64
from numpy import ndarray

from icml25cli.core.errors import InputError


def one_class(
    labels: tuple[Int64[ndarray, "N"], tuple[str, ...]], target: str | None
) -> tuple[Int64[ndarray, "N"], str]:
    """1 for rows of the class ``target``, by default the last of two, else 0; and its name.

    Raises:
        InputError: there is no such class, or none is named and there are several.
    """
    classes, names = labels
    if target is None and len(names) > 2:
        raise InputError(f"the labels have {len(names)} classes", hint=f"--target names one: {', '.join(names[:8])}")
    if target is not None and target not in names:
        raise InputError(f"no label is {target}", hint=f"labels: {', '.join(names[:8])}")
    asked = target or names[len(names) - 1]
    return (classes == names.index(asked)).astype(np.int64), asked


def read_words(path: Path, count: int, what: str) -> list[str]:
    """``count`` lines.

    Raises:
        InputError: the file cannot be read or has another number of lines.
    """
    try:
        words = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as text: {error}") from error
    if len(words) != count:
        raise InputError(f"{path} has {len(words)} lines, {what} {count} rows", hint="one line a row, in its order")
    return words

"""Inner products of coded rows, from the codes alone.

<x, y> = s_x s_y Σ β_a β_b <t_a, t_b> over blocks (section 3 of the paper). Rows are decoded a panel at a time and
multiplied in float64: a kernel that multiplies the integers 2t as bytes was measured, too, and takes four times as
long. A rotation that both sides share leaves inner products as they are, and is never undone. Knows files of codes.
Does not know what the rows are.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.core.files import atomic_path
from icml25cli.core.progress import track
from icml25cli.papers.quantize.arrays import EncodedArray
from icml25cli.papers.quantize.packing import unpack

_PANEL_VALUES = 2**20  # of either side, decoded together: eight megabytes
_PANEL_PRODUCTS = 2**22  # of the result held at a time
FIRST = 6  # values a summary shows


@dataclass(frozen=True)
class Products:
    """What came out, in short.

    Attributes:
        shape: (n, m), or (n,) of pairs.
        first: values of the beginning, in the order of the file.
        smallest, largest, mean: of all.
    """

    shape: tuple[int, ...]
    first: tuple[float, ...]
    smallest: float
    largest: float
    mean: float


def check_comparable(a: EncodedArray, b: EncodedArray) -> None:
    """Raise InputError unless rows of both have inner products: one width, one rotation."""
    if a.shape[-1] != b.shape[-1]:
        raise InputError(
            f"rows of {a.shape[-1]} and of {b.shape[-1]} numbers have no inner product",
            hint="encode arrays of one width",
        )
    if _turn(a) != _turn(b):
        raise InputError(
            f"the two are rotated differently: {_turn(a)} and {_turn(b)}",
            hint="encode both with the same --rotation and --seed",
        )


def dot(
    a: EncodedArray, b: EncodedArray, *, pairs: bool = False, output: Path | None = None, force: bool = False
) -> Products:
    """Products of all rows of ``a`` with all of ``b``, (n, m), or with ``pairs`` of each row with the same one, (n,).

    Each is what float64 gives for the rows that codes stand for before their rotation is undone, rounded once.

    Args:
        output: ``.npy`` file of float32 to write, whole or not at all.

    Raises:
        InputError: as ``check_comparable``, numbers of rows do not pair, a code is out of range, or a product is beyond
            float32.
        OutputError: the file exists (without ``force``) or cannot be written.
    """
    check_comparable(a, b)
    n, m, width = len(a.scales), len(b.scales), a.shape[-1]
    if pairs and n != m:
        raise InputError(f"{n:,} rows and {m:,} rows do not pair", hint="without --pairs every row meets every row")
    shape = (n,) if pairs else (n, m)
    most = _PANEL_VALUES // width if pairs else min(_PANEL_VALUES // width, _PANEL_PRODUCTS // m)
    panels = list(_panels(n, most))
    with contextlib.ExitStack() as stack:
        file = None
        if output is not None:
            file = stack.enter_context(open(stack.enter_context(atomic_path(output, force=force)), "wb"))
            head = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, head)
        first, low, high, total = [], np.inf, -np.inf, 0.0
        for rows in track(panels, "multiplying"):
            part = _pairs(a, b, rows) if pairs else _all(a, b, rows)
            if not np.isfinite(part).all():
                raise InputError(
                    "a product is too large for float32", hint="divide one of the arrays by a power of two"
                )
            first = first or [float(value) for value in part.ravel()[:FIRST]]
            low, high = min(low, float(part.min())), max(high, float(part.max()))
            total += float(part.sum(dtype=np.float64))
            if file:
                file.write(part.astype("<f4", copy=False).tobytes())
    return Products(shape, tuple(first), low, high, total / prod(shape))


def _all(a: EncodedArray, b: EncodedArray, rows: slice) -> Float32[ndarray, "rows m"]:
    left, m = _decoded(a, rows), len(b.scales)
    out = np.empty((len(left), m), np.float32)
    with np.errstate(over="ignore"):
        for columns in _panels(m, _PANEL_VALUES // a.shape[-1]):
            out[:, columns] = left @ _decoded(b, columns).T
    return out


def _pairs(a: EncodedArray, b: EncodedArray, rows: slice) -> Float32[ndarray, "rows"]:
    with np.errstate(over="ignore"):
        return (_decoded(a, rows) * _decoded(b, rows)).sum(axis=1).astype(np.float32)


def _turn(x: EncodedArray) -> str:
    if x.rotation is None or x.rotation.kind == "none":
        return "none"
    return f"{x.rotation.kind} of seed {x.rotation.seed}"


def _panels(rows: int, most: int) -> Iterator[slice]:
    step = max(1, most)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _decoded(x: EncodedArray, rows: slice) -> Float64[ndarray, "rows n"]:
    """Some rows as their codes have them: rotated."""
    digits, beta_index = unpack({name: array[rows] for name, array in x.packed.items()}, x.code.q, len(x.code.betas))
    values = x.code.decode(digits.reshape(-1, 8), beta_index.ravel()).reshape(len(digits), -1)
    return values[:, : x.shape[-1]] * x.scales[rows, None].astype(np.float64)

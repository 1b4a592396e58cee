"""How kernels are compiled: once a machine, kept beside the package or in the user's cache, else once a process."""

from collections.abc import Callable
from typing import Any

from numba import njit

# No fast-math: reassociation or contraction would let encoder, decoder and the numpy form disagree.
_OPTIONS = {"nogil": True, "error_model": "numpy"}

# For what a kernel calls in its loops: one call left standing and no lane vectorises.
inline = njit(forceinline=True, **_OPTIONS)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel on first use, with the result cached where any place for it is writable."""
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # numba found no such place: a read-only installation and no home directory
        return njit(**_OPTIONS)(function)

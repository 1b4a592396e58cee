"""Exact numbers: integers and fractions, so that 0.1 + 0.2 is 0.3. Knows nothing of models."""

import math
import re
from fractions import Fraction

from icml25cli.core.errors import InputError

Number = int | Fraction

_DECIMAL = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")


def exact(value: int | float | Fraction) -> Number:
    """``value`` as an integer, or as the fraction that its shortest decimal notation names: 0.1 is 1/10.

    Raises:
        InputError: the value is NaN or infinite.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{value} is no number of a model", hint="leave a bound out where there is none")
        value = Fraction(repr(value))
    if isinstance(value, Fraction) and value.denominator == 1:
        return value.numerator
    return value


def text(value: Number) -> str:
    """``value`` as a decimal where it has a short one, else as a quotient: ``0.25``, ``1/3``."""
    if isinstance(value, int):
        return str(value)
    as_float = float(value)
    return repr(as_float) if Fraction(repr(as_float)) == value else f"{value.numerator}/{value.denominator}"


def key(index: object) -> object:
    """An index as it is looked up: a text that is a plain decimal is that number, as JSON names its fields by texts.

    ``"1"`` and ``1`` are the same index; so are ``"(1, a)"`` and the pair of 1 and ``a``.
    """
    if type(index) is int:  # as most are
        return index
    if isinstance(index, tuple):
        return tuple(key(part) for part in index)
    if isinstance(index, str):
        stripped = index.strip()
        if len(stripped) > 1 and stripped[0] == "(" and stripped[-1] == ")":
            return tuple(key(part.strip().strip("'\"")) for part in stripped[1:-1].split(",") if part.strip())
        return exact(Fraction(stripped)) if _DECIMAL.fullmatch(stripped) else index
    return index

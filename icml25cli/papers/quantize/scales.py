"""Which scales β a code should have: the paper's lists, a user's list, or the best for a sample of blocks.

Lists are written as β·q, so that one list serves every q. Knows blocks of normalised data. Does not know where they
come from, nor how codes are stored.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log2, sqrt
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Float32, Int
from numpy import ndarray

from icml25cli.core.errors import InputError, UsageError
from icml25cli.papers.quantize.voronoi import MAX_SCALES, LatticeCode

# β·q as in the authors' repository; values are not rotated, hence their long tail. ``gaussian`` is ours: better on
# rotated data without outliers, with no room for them.
REFERENCE = {
    "weights": (4.0, 5.5, 7.0, 18.0),
    "activations": (3.47, 4.74, 6.90, 18.11),
    "keys": (3.50, 4.58, 6.47, 17.06),
    "values": (3.53, 5.59, 9.62, 29.03),
    "gaussian": (3.5, 4.25, 5.25, 8.0),
}

# An overloaded block costs about a hundred times the error of any other, so the last scale leaves this much room
# beyond the largest one that the sample needed: the data are larger than the sample.
SAFETY = 1.3

# Among which ``choose_rate`` looks. At 4 bits an entry the best has five scales; more cost more than they gain.
RATE_MAX_Q = 16
RATE_MAX_K = 8


@dataclass(frozen=True)
class ChosenScales:
    """A code whose scales were fitted to a sample, and how it does there."""

    code: LatticeCode
    distortion: float  # mean squared error per entry of the sample under opt-β
    largest_needed: float  # the smallest scale from which on no block of the sample overloads


def reference_code(kind: str, q: int) -> LatticeCode:
    """The code with the published scales for ``kind``: weights, activations, keys, values or gaussian."""
    return LatticeCode(q, tuple(b / q for b in REFERENCE[kind]))


def parse_scales(text: str, q: int) -> LatticeCode:
    """The code a user asked for: comma-separated β·q, as ``3.5,4.25,5.25,18``.

    Raises:
        UsageError: the list is not one of 1 to 16 positive increasing numbers.
    """
    try:
        return LatticeCode(q, tuple(float(word) / q for word in text.split(",")))
    except (ValueError, InputError) as error:
        raise UsageError(
            f"{text!r} is not a list of scales", hint=f"give 1 to {MAX_SCALES} increasing numbers, as 3.5,4.25,5.25,18"
        ) from error


def scales_asked(betas: str, kind: str) -> str:
    """What of a user's word for all kinds is meant for one, as ``code_for`` takes it.

    ``auto`` and ``ref`` are for all, a list is for weights, and ``@FILE`` names a JSON object of lists by kind; what
    neither says is ``auto``.

    Raises:
        InputError: the file cannot be read, or is no such object.
    """
    if betas in ("auto", "ref"):
        return betas
    if not betas.startswith("@"):
        return betas if kind == "weights" else "auto"
    file = Path(betas[1:])
    try:
        lists = json.loads(file.read_text(encoding="utf-8-sig"))
        if not isinstance(lists, dict) or not lists.keys() & REFERENCE.keys():
            raise TypeError
        return ",".join(str(float(beta)) for beta in lists[kind]) if kind in lists else "auto"
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}", hint="check the path") from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{file} is no file of scales", hint="icml25 quantize betas MODEL -o FILE.json writes one"
        ) from error


def code_for(
    asked: str,
    q: int,
    k: int,
    sample: Callable[[], Float32[ndarray, "n 8"]],
    *,
    kind: str = "weights",
    simplified: bool = False,
) -> LatticeCode:
    """The code a user's word asks for: ``auto`` fits k scales to ``sample()``, ``ref`` is the paper's, else a list.

    A sample of zeros has no scales to fit; any code stands for it exactly, so it gets the paper's.

    Args:
        asked: the word.
        q: nesting ratio of the code.
        k: number of scales to fit.
        sample: called only for ``auto``; as for ``choose_scales``.
        kind: of the data, one of ``REFERENCE``.
        simplified: code for the decoder of NestQuantM.

    Raises:
        UsageError: the word is no list of scales.
    """
    if asked == "auto" and (blocks := sample()).any():
        return choose_scales(blocks, q, k, simplified=simplified).code
    code = reference_code(kind, q) if asked in ("auto", "ref") else parse_scales(asked, q)
    return replace(code, simplified=simplified)


def choose_rate(blocks: Float32[ndarray, "n 8"], bits: float, *, simplified: bool = False) -> ChosenScales:
    """The code of least error for blocks like these among all of at most ``bits`` an entry, indices of scales included.

    Looks at one to eight scales, each with the largest q up to 16 that leaves ``LatticeCode.rate_raw`` within ``bits``.

    Args:
        blocks: as for ``choose_scales``.
        bits: at least 1, what one scale at q = 2 takes.
        simplified: choose for the decoder of NestQuantM.

    Raises:
        InputError: ``bits`` is below 1, or as ``choose_scales``.
    """
    fits = [(q, k) for k in range(1, RATE_MAX_K + 1) if (q := _largest_q(bits, k)) >= 2]
    if not fits:
        raise InputError(f"no code takes {bits} bits an entry", hint="one scale at q = 2 takes 1 bit, the least")
    found = [choose_scales(blocks, q, k, simplified=simplified) for q, k in fits]
    return min(found, key=lambda chosen: chosen.distortion)


def _largest_q(bits: float, k: int) -> int:
    """The largest q up to ``RATE_MAX_Q`` whose digits and k scales take at most ``bits`` an entry; 1 if none does."""
    return max(q for q in range(1, RATE_MAX_Q + 1) if q == 1 or log2(q) + log2(k) / 8 <= bits)


def choose_scales(blocks: Float32[ndarray, "n 8"], q: int, k: int, *, simplified: bool = False) -> ChosenScales:
    """The k scales of least error for blocks like these, the last one for safety.

    Our own method, as the authors' is unpublished. A dynamic programme picks the scales under first-β: with scales S
    a block x is served by the smallest s ≥ j*(x), where j*(x) is the first candidate from which on none overloads, so
    that a path of k candidates costs the sum over its steps (i, j) of the error at j of blocks with i < j* ≤ j.
    Coordinate descent then polishes them under opt-β. The last scale is fixed at ``SAFETY`` times the largest needed.

    Args:
        blocks: a sample of data with unit mean square, 50,000 or more for three stable digits.
        q: nesting ratio of the code.
        k: number of scales, 1 to 16.
        simplified: fit the decoder of NestQuantM.

    Raises:
        InputError: the sample is empty, zero, not finite, or so small that k scales have no room below the safe one.
    """
    if not 1 <= k <= MAX_SCALES:
        raise InputError(f"{k} scales were asked for, a code has 1 to {MAX_SCALES}")
    if not np.any(blocks):
        raise InputError("scales cannot be chosen from an empty or all-zero sample")
    if not np.isfinite(blocks).all():
        raise InputError("scales cannot be chosen from a sample that is not finite")
    candidates = _candidates(blocks, q, simplified)
    errors, overloads = _measure(blocks, q, candidates, simplified)
    first = _first_safe(overloads)
    safe = SAFETY * candidates[first.max()]
    keep = int(np.searchsorted(candidates, safe))
    if keep < k - 1:
        raise InputError(f"the sample has no use for {k} scales", hint="its blocks should have unit mean square")
    candidates = np.append(candidates[:keep], safe)
    safe_errors, _ = _measure(blocks, q, candidates[keep:], simplified)
    errors = np.concatenate([errors[:keep], safe_errors])
    chosen = _polish(errors, _shortest_path(errors, first, k))
    return ChosenScales(
        LatticeCode(q, tuple(candidates[chosen]), simplified),
        float(errors[chosen].min(axis=0).mean(dtype=np.float64) / 8),
        float(candidates[first.max()]),
    )


def _candidates(blocks: Float32[ndarray, "n 8"], q: int, simplified: bool) -> Float[ndarray, "m"]:
    """Fine steps where most blocks live, coarse ones in the tail, up to a scale that nothing here can overload."""
    norm = float(np.linalg.norm(blocks.astype(np.float64), axis=1).max())
    # q·V holds the ball of radius q/√2, the cell of the simplified rule that of q/2. A lattice point lies at most 1
    # further out than the block it stands for, and is 0 for blocks within 1/√2.
    enough = norm / max(q / (2 if simplified else sqrt(2)) - 1, sqrt(1 / 2))
    tail = max(0, int(np.ceil(np.log(max(enough, 1e-9) * q / 30) / np.log(1.15))))
    return np.concatenate([np.arange(2.5, 8, 1 / 8), np.arange(8, 31), 30 * 1.15 ** np.arange(1, tail + 1)]) / q


def _measure(
    blocks: Float32[ndarray, "n 8"], q: int, candidates: Float[ndarray, "m"], simplified: bool
) -> tuple[Float32[ndarray, "m n"], Bool[ndarray, "m n"]]:
    """Squared error and overload of every block at every candidate alone."""
    errors = np.empty((len(candidates), len(blocks)), np.float32)
    overloads = np.empty(errors.shape, bool)
    for j, beta in enumerate(candidates):
        done = LatticeCode(q, (beta,), simplified).quantize(blocks)
        errors[j] = ((blocks - done.values) ** 2).sum(axis=1)
        overloads[j] = done.overloaded
    return errors, overloads


def _first_safe(overloads: Bool[ndarray, "m n"]) -> Int[ndarray, "n"]:
    """j*: one beyond the last candidate at which the block overloads."""
    last = len(overloads) - 1 - np.argmax(overloads[::-1], axis=0)
    return np.where(overloads.any(axis=0), last + 1, 0)


def _shortest_path(errors: Float32[ndarray, "m n"], first: Int[ndarray, "n"], k: int) -> list[int]:
    """Indices of k candidates, the last one always among them, of least error under first-β."""
    m = len(errors)
    # below[j, i]: error at candidate j of all blocks with j* <= i; a step from i to j costs below[j, j] - below[j, i].
    below = np.stack([np.cumsum(np.bincount(first, weights=row, minlength=m)) for row in errors])
    cost = np.full((m + 1, m), np.inf)  # row 0 stands before the first candidate
    for j in range(m):
        cost[0, j] = below[j, j]
        cost[1 : j + 1, j] = below[j, j] - below[j, :j]
    best = cost[0]
    origins = []
    for _ in range(k - 1):
        through = best[:, None] + cost[1:]
        origins.append(through.argmin(axis=0))
        best = through.min(axis=0)
    path = [m - 1]
    for origin in reversed(origins):
        path.append(int(origin[path[-1]]))
    return path[::-1]


def _polish(errors: Float32[ndarray, "m n"], chosen: list[int]) -> list[int]:
    """Move one scale at a time, but the last, to where the error under opt-β is least, until none moves."""
    while True:
        before = list(chosen)
        for i in range(len(chosen) - 1):
            others = errors[chosen[:i] + chosen[i + 1 :]].min(axis=0)
            low = chosen[i - 1] + 1 if i else 0
            totals = [np.minimum(others, errors[j]).sum(dtype=np.float64) for j in range(low, chosen[i + 1])]
            chosen[i] = low + int(np.argmin(totals))
        if chosen == before:
            return chosen

"""Rate against distortion of the lattice code and of scalar quantisers: on Gaussian numbers, on a product of Gaussian
matrices, on a matrix of the user's.

All methods of a table see the same numbers, and each is counted at the bits it takes, side information included. Knows
arrays. Does not know models, files or how a table is shown.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log2
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.core.progress import track
from icml25cli.papers.quantize import levels, scalar
from icml25cli.papers.quantize.arrays import _as_rows, _normalized, _row_rms, _storable
from icml25cli.papers.quantize.bounds import matmul_bound
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.scales import code_for
from icml25cli.papers.quantize.voronoi import LatticeCode

GROUP = 128  # columns that a scale of rtn serves
FITTED = 65_536  # blocks of eight numbers that choose scales and levels; others than those that are measured on
_REPEATS = 3  # of a timing, the best of which counts


@dataclass(frozen=True)
class Rows:
    """What is coded: rows of about unit mean square, and how they count.

    Attributes:
        values: the numbers.
        weights: of the squared errors of a row. The distortion is their weighted sum: the mean squared error of an
            entry, or for a matrix the error over its energy.
        shares: of a row in what the error is divided by.
        side_bits: an entry, for the scale that made a row of unit mean square; 0 where it is known to have it.
    """

    values: Float32[ndarray, "rows n"]
    weights: Float64[ndarray, "rows"]
    shares: Float64[ndarray, "rows"]
    side_bits: float = 0.0


@dataclass(frozen=True)
class RatePoint:
    """One method at one rate.

    Attributes:
        method: its name.
        levels: q of a lattice code, else values an entry may take; None if there is no limit.
        code: the lattice code, or None.
        distortion: as of ``Rows``.
        distortion_se: standard error over rows, which share scales and with them errors.
        bits_raw: an entry, in words of fixed length, with side information; None where there are none such.
        bits_entropy: an entry, when what is not uniform (indices of scales, or of levels) costs its entropy instead;
            None where nothing is coded so.
        scalar_bits: what a uniform scalar quantiser with entropy-coded indices takes for this distortion.
        overloads: blocks outside the lattice code at every scale.
        encode_rate, decode_rate: millions of entries a second on this machine, of a lattice code.
    """

    method: str
    levels: int | None
    code: LatticeCode | None
    distortion: float
    distortion_se: float
    bits_raw: float | None
    bits_entropy: float | None
    scalar_bits: float
    overloads: int | None = None
    encode_rate: float | None = None
    decode_rate: float | None = None

    @property
    def k(self) -> int | None:
        """Scales of the lattice code."""
        return None if self.code is None else len(self.code.betas)

    @property
    def bits(self) -> float:
        """The lower of both rates."""
        return self.bits_entropy if self.bits_entropy is not None else self.bits_raw or 0.0

    @property
    def gap(self) -> float:
        """Bits beyond ½·log2(1/D), Shannon's bound for a Gaussian of variance 1."""
        return self.bits + 0.5 * log2(self.distortion) if self.distortion > 0 else float("inf")


@dataclass(frozen=True)
class ProductPoint:
    """One method at one rate on both factors of a product.

    Attributes:
        method, levels, code, bits_raw, bits_entropy: as of ``RatePoint``.
        error: mean squared error of an entry of the product, over n.
        error_se: standard error over rows and columns of the product.
        bound: Γ of ``bits``, below which no scheme of that rate can stay.
    """

    method: str
    levels: int
    code: LatticeCode | None
    error: float
    error_se: float
    bits_raw: float
    bits_entropy: float | None
    bound: float

    @property
    def k(self) -> int | None:
        """Scales of the lattice code."""
        return None if self.code is None else len(self.code.betas)

    @property
    def bits(self) -> float:
        """The lower of both rates."""
        return self.bits_raw if self.bits_entropy is None else self.bits_entropy

    @property
    def ratio(self) -> float:
        """Error over the bound."""
        return self.error / self.bound


@dataclass(frozen=True)
class _Coded:
    """Values of some method, and what they cost."""

    method: str
    levels: int
    values: Float32[ndarray, "rows n"]
    bits_raw: float
    bits_entropy: float | None = None
    extra: dict[str, Any] | None = None  # further fields of a point


def gaussian_blocks(seed: int) -> Float32[ndarray, "n 8"]:
    """N(0, 1) to fit scales to: none of the numbers that ``gaussian_rows`` or ``products`` draw."""
    return _normal(seed, 1, (FITTED, 8))


def gaussian_rows(samples: int, n: int, seed: int) -> Rows:
    """About ``samples`` draws of N(0, 1) in rows of ``n``; at least one row."""
    count = max(1, round(samples / n))
    values = _normal(seed, 0, (count, n))
    return Rows(values, np.full(count, 1 / values.size), np.full(count, 1 / count))


def matrix_rows(x: Float[ndarray, "rows n"], rotation: Rotation, *, samples: int, seed: int) -> Rows:
    """Rows of a matrix over their root mean square as stored, rotated: as many as hold ``samples`` entries, drawn.

    Raises:
        InputError: the matrix has another rank or dtype, is empty or zero, or a row is not finite in float32.
    """
    rows = _as_rows(x)
    wanted = min(len(rows), max(1, samples // rows.shape[1]))
    drawn = rows[np.sort(np.random.default_rng(seed).choice(len(rows), wanted, replace=False))]
    scales = _storable(_row_rms(drawn))
    values = _normalized(drawn, scales, rotation)[:, : rows.shape[1]]
    square = scales.astype(np.float64) ** 2
    energies = np.square(values).sum(axis=1, dtype=np.float64) * square
    if not energies.any():
        raise InputError("the matrix holds zeros alone", hint="name one with something to code")
    square, energies = square / energies.sum(), energies / energies.sum()
    return Rows(np.ascontiguousarray(values), square, energies, 8.0 * scales.itemsize / rows.shape[1])


def choose_codes(
    sample: Float32[ndarray, "n 8"], betas: str, qs: Sequence[int], ks: Sequence[int], methods: Sequence[str]
) -> list[LatticeCode]:
    """Codes to compare, by method, q and k. Where ``betas`` is no ``auto`` it gives k, and ``ks`` does not count.

    Args:
        sample: of blocks of unit mean square, for ``auto``.
        betas: as for ``scales.code_for``; ``ref`` are the paper's scales for activations.
        methods: ``nestquant`` and ``nestquant-m``.

    Raises:
        InputError, UsageError: as ``scales.code_for``.
    """
    asked = [(method, q, k) for method in methods for q in qs for k in (ks if betas == "auto" else ks[:1])]
    return [
        code_for(betas, q, k, lambda: sample, kind="activations", simplified=method == "nestquant-m")
        for method, q, k in track(asked, "fitting scales")
    ]


def rate_distortion(rows: Rows, codes: Sequence[LatticeCode], sample: Float32[ndarray, "n 8"]) -> list[RatePoint]:
    """Lattice codes, then scalar quantisers whose bits span theirs, on the same rows.

    The last point is the uniform quantiser with entropy-coded indices at the distortion of the lattice code that is
    nearest to the bound.

    Args:
        sample: blocks that steps and levels of the scalar quantisers are fitted to.
    """
    methods: list[Callable[[], _Coded]] = [*(lambda code=code: _lattice(rows, code) for code in codes)]
    for bits in _span(codes):
        methods += [
            lambda bits=bits: _lloyd_max(rows, sample, bits),
            lambda bits=bits: _uniform(rows, sample, bits),
            lambda bits=bits: _rtn(rows, bits),
            lambda bits=bits: _absmax(rows, bits),
        ]
    points = [_measured(rows, method()) for method in track(methods, "measuring")]
    best = min(points[: len(codes)], key=lambda point: point.gap)
    coded = replace(
        best,
        method="entropy-coded uniform",
        levels=None,
        code=None,
        bits_raw=None,
        bits_entropy=best.scalar_bits,
        overloads=None,
        encode_rate=None,
        decode_rate=None,
    )
    return [*points, coded]


def products(codes: Sequence[LatticeCode], *, n: int, m: int, seed: int) -> list[ProductPoint]:
    """Products of two N(0, 1) matrices of m rows of n, both coded: an m × m matrix of inner products.

    Lattice codes, then integers by row up to its largest magnitude. Error over the bound for an independent code of
    each factor (``bounds.matmul_bound``).
    """
    a, b = (Rows(_normal(seed, stream, (m, n)), np.full(m, 1.0), np.full(m, 1 / m)) for stream in (2, 3))
    exact = a.values @ b.values.T
    methods: list[Callable[[Rows], _Coded]] = [*(lambda rows, code=code: _lattice(rows, code) for code in codes)]
    methods += [lambda rows, bits=bits: _absmax(rows, bits) for bits in _span(codes)]
    return [_product_point(method(a), method(b), exact, n) for method in track(methods, "multiplying")]


def _normal(seed: int, stream: int, shape: tuple[int, int]) -> Float32[ndarray, "rows n"]:
    return np.random.default_rng([seed, stream]).standard_normal(shape, np.float32)


def _product_point(a: _Coded, b: _Coded, exact: Float32[ndarray, "m m"], n: int) -> ProductPoint:
    square = np.square(exact - a.values @ b.values.T, dtype=np.float64) / n
    # Entries that share a row, or a column, share its errors.
    rows, columns = square.mean(axis=1), square.mean(axis=0)
    spread = (rows.var(ddof=1) + columns.var(ddof=1)) / len(square) if len(square) > 1 else float("nan")
    entropy = None if a.bits_entropy is None or b.bits_entropy is None else (a.bits_entropy + b.bits_entropy) / 2
    raw = a.bits_raw  # the same for both
    return ProductPoint(
        a.method,
        a.levels,
        (a.extra or {}).get("code"),
        float(square.mean()),
        float(np.sqrt(spread)),
        raw,
        entropy,
        matmul_bound(raw if entropy is None else entropy),
    )


def _measured(rows: Rows, coded: _Coded) -> RatePoint:
    errors = np.square(rows.values - coded.values).sum(axis=1, dtype=np.float64) * rows.weights
    distortion, count = float(errors.sum()), len(errors)
    # Of a ratio of sums over rows, by its residuals (Cochran, Sampling Techniques, 1977, section 6.4).
    residuals = errors - distortion * rows.shares
    spread = float(np.sqrt(count / (count - 1) * np.square(residuals).sum())) if count > 1 else float("nan")
    bits = levels.entropy_coded_bits(rows.values, distortion, rows.weights) if distortion else float("inf")
    return RatePoint(
        method=coded.method,
        levels=coded.levels,
        distortion=distortion,
        distortion_se=spread,
        bits_raw=coded.bits_raw,
        bits_entropy=coded.bits_entropy,
        scalar_bits=bits + rows.side_bits,
        **({"code": None} | (coded.extra or {})),
    )


def _lattice(rows: Rows, code: LatticeCode) -> _Coded:
    n = rows.values.shape[1]
    blocks = np.pad(rows.values, ((0, 0), (0, -n % 8))).reshape(-1, 8)
    code.decode(*code.encode(blocks[:1]))  # compiles
    done, encoding = _timed(lambda: code.quantize(blocks))
    values, decoding = _timed(lambda: code.decode(done.digits, done.beta_index))
    padded = blocks.size / rows.values.size
    millions = rows.values.size / 1e6
    return _Coded(
        "nestquant-m" if code.simplified else "nestquant",
        code.q,
        values.reshape(len(rows.values), -1)[:, :n],
        code.rate_raw * padded + rows.side_bits,
        code.rate_entropy(done.beta_index) * padded + rows.side_bits,
        {
            "code": code,
            "overloads": int(done.overloaded.sum()),
            "encode_rate": millions / encoding,
            "decode_rate": millions / decoding,
        },
    )


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and the least of a few times in seconds."""
    best, result = float("inf"), None
    for _ in range(_REPEATS):
        start = time.perf_counter()
        result = function()
        best = min(best, time.perf_counter() - start)
    return result, best


def _lloyd_max(rows: Rows, sample: Float32[ndarray, "n 8"], bits: int) -> _Coded:
    values = levels.lloyd_max(sample.ravel(), 2**bits)
    return _Coded("lloyd-max", 2**bits, levels.to_nearest(rows.values, values), bits + rows.side_bits)


def _uniform(rows: Rows, sample: Float32[ndarray, "n 8"], bits: int) -> _Coded:
    step = levels.uniform_step(sample.ravel(), 2**bits)
    return _Coded("uniform", 2**bits, levels.to_uniform(rows.values, step, 2**bits), bits + rows.side_bits)


def _rtn(rows: Rows, bits: int) -> _Coded:
    done = scalar.rtn(torch.from_numpy(rows.values), bits, GROUP)
    return _Coded(f"rtn by {GROUP}", 2**bits, done.values.numpy(), _grid_bits(done, bits))


def _absmax(rows: Rows, bits: int) -> _Coded:
    done = scalar.absmax(torch.from_numpy(rows.values), bits)
    return _Coded("absmax by row", 2**bits - 1, done.values.numpy(), _grid_bits(done, bits))


def _grid_bits(done: scalar.ScalarCode, bits: int) -> float:
    zero_points = 0 if done.zero_point is None else bits * done.zero_point.numel()
    return bits + (8 * done.scale.itemsize * done.scale.numel() + zero_points) / done.values.numel()


def _span(codes: Sequence[LatticeCode]) -> range:
    """Whole numbers of bits about the rates of codes; an integer grid of 1 bit has no magnitude."""
    rates = [code.rate_raw for code in codes]
    return range(max(2, floor(min(rates))), max(2, ceil(max(rates))) + 1)

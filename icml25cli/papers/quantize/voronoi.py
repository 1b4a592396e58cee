"""NestQuant's code: E8 nested q-fold, under a union of scales (sections 3 and 4 of the paper).

A block x of eight numbers is stored as the index j of a scale β_j and eight digits 0..q−1 that name a lattice point;
its value is β_j·decode(digits). Compiled with numba for arrays and tensors on the CPU, bit for bit equal to the plain
numpy form in ``lattice`` and to the torch form in ``torch_codec`` that serves other devices. Knows blocks. Does not
know matrices, rotations, or how digits are packed.
"""

from dataclasses import dataclass
from functools import cached_property
from math import log2
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, UInt8
from numpy import ndarray
from torch import Tensor

from icml25cli.core.errors import InputError
from icml25cli.core.forms import check_form
from icml25cli.core.jit import compiled, inline
from icml25cli.papers.quantize import torch_codec
from icml25cli.papers.quantize.lattice import CLAMP, TIE_OFFSET

MAX_Q = 256  # a digit is one byte
MAX_SCALES = 16

# Lanes of a tile: enough to fill the vector registers of any machine, few enough that a tile stays in the first cache.
_LANES = 64

# numba types a bare 0.5 as float64, which would drag the whole kernel to double precision.
_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
_MAX = np.finfo(np.float32).max


@dataclass(frozen=True)
class Quantized:
    """Blocks after quantisation: the code, and what it decodes to."""

    digits: UInt8[ndarray, "n 8"]
    beta_index: UInt8[ndarray, "n"]
    values: Float32[ndarray, "n 8"]
    overloaded: Bool[ndarray, "n"]  # the nearest lattice point, at the chosen scale, is not what the code decodes to


@dataclass(frozen=True)
class QuantizedTensor:
    """As ``Quantized``, on the device of the blocks."""

    digits: UInt8[Tensor, "n 8"]
    beta_index: UInt8[Tensor, "n"]
    values: Float32[Tensor, "n 8"]
    overloaded: Bool[Tensor, "n"]


@dataclass(frozen=True)
class LatticeCode:
    """The code of ``q`` levels per dimension under scales ``betas``: q⁸·k codewords for eight numbers.

    Args:
        q: nesting ratio, 2 to 256.
        betas: one to sixteen positive scales in strictly increasing order; used in float32.
        simplified: NestQuantM, whose decoder always mends an odd sum at the first coordinate
            (``lattice.nearest_point``); the nearest point to a block is still exact. A decoder must know it.
        rule: how a block's scale is chosen: "opt" takes the least error after decoding, the smallest scale on ties;
            "first" the smallest at which the block does not overload, and the least error where all do. A decoder need
            not know it.

    Raises:
        InputError: q or betas are outside these limits.
    """

    q: int
    betas: tuple[float, ...]
    simplified: bool = False
    rule: Literal["opt", "first"] = "opt"

    def __post_init__(self) -> None:
        if not 2 <= self.q <= MAX_Q:
            raise InputError(f"q = {self.q} is outside 2..{MAX_Q}")
        if not 1 <= len(self.betas) <= MAX_SCALES:
            raise InputError(f"{len(self.betas)} scales were given, a code has 1 to {MAX_SCALES}")
        for beta in self.betas:
            if not 1e-30 <= beta <= 1e30:  # far enough inside float32 that neither 1/β nor β·value overflows
                raise InputError(f"scale {beta} is not a positive number between 1e-30 and 1e30")
        object.__setattr__(self, "betas", tuple(float(beta) for beta in self.betas))
        if np.any(np.diff(self._betas32) <= 0):
            raise InputError(f"scales {list(self.betas)} are not strictly increasing in float32")

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "LatticeCode":
        """The code that a decoder needs, from the fields ``q``, ``betas`` and, where it is, ``simplified``, as JSON.

        Raises:
            InputError: a field is absent, malformed or outside the limits.
        """
        check_form(spec, {"q": int, "betas": [float]}, "the lattice code")
        check_form(simplified := spec.get("simplified", False), bool, "'simplified' of the lattice code")
        return cls(spec["q"], tuple(spec["betas"]), simplified)

    @cached_property
    def _betas32(self) -> Float32[ndarray, "k"]:
        return np.array(self.betas, np.float32)

    @property
    def rate_raw(self) -> float:
        """Bits per entry with digits and scale indices written out plainly: log2 q + log2(k)/8."""
        return log2(self.q) + log2(len(self.betas)) / 8

    def rate_entropy(self, beta_index: UInt8[ndarray, "n"]) -> float:
        """Bits per entry when scale indices cost their empirical entropy: log2 q + H(j)/8."""
        return log2(self.q) + beta_entropy(beta_index) / 8

    def quantize(self, blocks: Float32[ndarray, "n 8"]) -> Quantized:
        """Code each block, its scale chosen by ``rule``.

        Raises:
            InputError: blocks are not (n, 8), or a value is not finite; the message names the first such block.
        """
        blocks = np.ascontiguousarray(blocks, np.float32)
        if blocks.ndim != 2 or blocks.shape[1] != 8:
            raise InputError(f"blocks have shape {blocks.shape}, the code takes (n, 8)")
        n = len(blocks)
        out = Quantized(
            np.empty((n, 8), np.uint8), np.empty(n, np.uint8), np.empty((n, 8), np.float32), np.empty(n, np.bool_)
        )
        bad = _quantize(
            blocks,
            np.float32(self.q),
            self._betas32,
            TIE_OFFSET,
            self.simplified,
            self.rule == "first",
            out.digits,
            out.beta_index,
            out.values,
            out.overloaded,
        )
        if bad:
            raise _not_finite(np.isfinite(blocks))
        return out

    def encode(self, blocks: Float32[ndarray, "n 8"]) -> tuple[UInt8[ndarray, "n 8"], UInt8[ndarray, "n"]]:
        """Digits and scale index of each block; as ``quantize``, without the values."""
        done = self.quantize(blocks)
        return done.digits, done.beta_index

    def decode(self, digits: UInt8[ndarray, "n 8"], beta_index: UInt8[ndarray, "n"]) -> Float32[ndarray, "n 8"]:
        """The value of each code, the same bits that ``quantize`` returned for it.

        Raises:
            InputError: shapes are not (n, 8) and (n,), a digit is not below q, or a scale index not below k.
        """
        self._check(digits, beta_index)
        values = np.empty(digits.shape, np.float32)
        _decode(
            np.ascontiguousarray(digits, np.uint8),
            np.ascontiguousarray(beta_index, np.uint8),
            np.float32(self.q),
            self._betas32,
            TIE_OFFSET,
            self.simplified,
            values,
        )
        return values

    def quantize_tensor(self, blocks: Float[Tensor, "n 8"]) -> QuantizedTensor:
        """As ``quantize``, for a tensor on any device, in float32.

        On the CPU it is the compiled kernel, on the tensor's own memory; elsewhere the same arithmetic in torch. Digits
        and scale indices do not depend on which.

        Raises:
            InputError: as ``quantize``.
        """
        blocks = blocks.detach().float()
        if blocks.device.type == "cpu":
            done = self.quantize(blocks.numpy())
            parts = (done.digits, done.beta_index, done.values, done.overloaded)
            return QuantizedTensor(*(torch.from_numpy(part) for part in parts))
        if blocks.ndim != 2 or blocks.shape[1] != 8:
            raise InputError(f"blocks have shape {tuple(blocks.shape)}, the code takes (n, 8)")
        finite = blocks.isfinite()
        if not finite.all():
            raise _not_finite(finite.cpu().numpy())
        return QuantizedTensor(*torch_codec.quantize(blocks, self.q, self._betas32, self.simplified, self.rule))

    def decode_tensor(self, digits: UInt8[Tensor, "n 8"], beta_index: UInt8[Tensor, "n"]) -> Float32[Tensor, "n 8"]:
        """As ``decode``, for tensors on any device, both on the same.

        Raises:
            InputError: as ``decode``.
        """
        if digits.device.type == "cpu":
            return torch.from_numpy(self.decode(digits.numpy(), beta_index.numpy()))
        self._check(digits, beta_index)
        return torch_codec.decode(digits, beta_index, self.q, self._betas32, self.simplified)

    def _check(self, digits: ndarray | Tensor, beta_index: ndarray | Tensor) -> None:
        if beta_index.ndim != 1 or tuple(digits.shape) != (len(beta_index), 8):
            raise InputError(
                f"digits of shape {tuple(digits.shape)} do not fit scale indices of shape {tuple(beta_index.shape)}"
            )
        if not len(beta_index):
            return
        digit, index = int(digits.max()), int(beta_index.max())
        if digit >= self.q:
            raise InputError(f"digit {digit} is out of range for q = {self.q}", hint="the codes are corrupt")
        if index >= len(self.betas):
            raise InputError(
                f"scale index {index} is out of range for {len(self.betas)} scales", hint="the codes are corrupt"
            )


def _not_finite(finite: Bool[ndarray, "n 8"]) -> InputError:
    first = int(np.argmin(finite.all(axis=1)))
    return InputError(f"block {first} of {len(finite)} holds a value that is not finite")


def beta_entropy(beta_index: UInt8[ndarray, "n"]) -> float:
    """Empirical entropy H(j) of scale indices in bits per block; 0 for no blocks."""
    counts = np.bincount(np.ravel(beta_index))
    p = counts[counts > 0] / max(1, beta_index.size)
    return float(-(p * np.log2(p)).sum()) + 0.0


@inline
def _max(a, b):
    return a if a > b else b


@inline
def _min(a, b):
    return a if a < b else b


@inline
def _clamp(x):
    return _min(_max(x, -CLAMP), CLAMP)


@inline
def _round(z, q, inv):
    """Multiple of q nearest to z, its index, and what is left: how far, on which side."""
    r = np.floor(z * inv + _HALF)
    w = r * q
    e = z - w
    return r, w, e >= _ZERO, abs(e)


@inline
def _move(w, positive, a, worst, seen, step, other):
    """Place one coordinate: by ``step``, or by ``other`` if it is the first of the worst rounded ones."""
    hit = (a == worst) and not seen
    c = other if hit else step
    return w + (c if positive else -c), seen or hit


@inline
def _nearest(z0, z1, z2, z3, z4, z5, z6, z7, q, inv, simplified):
    """Nearest point of q·E8: ``lattice.nearest_point`` for one block, without branches so that lanes vectorise."""
    r0, w0, p0, a0 = _round(z0, q, inv)
    r1, w1, p1, a1 = _round(z1, q, inv)
    r2, w2, p2, a2 = _round(z2, q, inv)
    r3, w3, p3, a3 = _round(z3, q, inv)
    r4, w4, p4, a4 = _round(z4, q, inv)
    r5, w5, p5, a5 = _round(z5, q, inv)
    r6, w6, p6, a6 = _round(z6, q, inv)
    r7, w7, p7, a7 = _round(z7, q, inv)
    total = np.int32(((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7)))
    negative = (
        np.int32(not p0) + np.int32(not p1) + np.int32(not p2) + np.int32(not p3)
        + np.int32(not p4) + np.int32(not p5) + np.int32(not p6) + np.int32(not p7)
    )  # fmt: skip
    odd0 = (total & np.int32(1)) != 0
    odd1 = ((total - negative) & np.int32(1)) != 0
    most = _max(_max(_max(a0, a1), _max(a2, a3)), _max(_max(a4, a5), _max(a6, a7)))
    least = _min(_min(_min(a0, a1), _min(a2, a3)), _min(_min(a4, a5), _min(a6, a7)))
    sum_a = ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7))
    # The first coordinate is then the worst, and the first of the worst ones.
    most = a0 if simplified else most
    least = a0 if simplified else least
    d0 = (q - (most + most)) if odd0 else _ZERO
    d1 = (q + q - sum_a) + ((least + least) if odd1 else _ZERO)
    half = d1 < d0
    h = q * _HALF
    step = h if half else _ZERO
    odd = odd1 if half else odd0
    other = (-h if half else q) if odd else step
    worst = least if half else most
    t0, seen = _move(w0, p0, a0, worst, False, step, other)
    t1, seen = _move(w1, p1, a1, worst, seen, step, other)
    t2, seen = _move(w2, p2, a2, worst, seen, step, other)
    t3, seen = _move(w3, p3, a3, worst, seen, step, other)
    t4, seen = _move(w4, p4, a4, worst, seen, step, other)
    t5, seen = _move(w5, p5, a5, worst, seen, step, other)
    t6, seen = _move(w6, p6, a6, worst, seen, step, other)
    t7, seen = _move(w7, p7, a7, worst, seen, step, other)
    return t0, t1, t2, t3, t4, t5, t6, t7


@inline
def _shape(p0, p1, p2, p3, p4, p5, p6, p7, tie, q, inv, simplified):
    """The representative in q·V − ε of a lattice point modulo q·E8; the decoder's arithmetic.

    Exact in float32 (see ``lattice.TIE_OFFSET``), so any point of the same class gives the same bits: the encoder
    may shape the point itself where the decoder shapes the one its digits spell.
    """
    s0, s1, s2, s3, s4, s5, s6, s7 = _nearest(
        p0 + tie[0], p1 + tie[1], p2 + tie[2], p3 + tie[3],
        p4 + tie[4], p5 + tie[5], p6 + tie[6], p7 + tie[7], q, inv, simplified,
    )  # fmt: skip
    return p0 - s0, p1 - s1, p2 - s2, p3 - s3, p4 - s4, p5 - s5, p6 - s6, p7 - s7


@inline
def _modulo(c, q, inv):
    """Non-negative remainder of an integer; the half keeps rounding of c/q away from the integers."""
    return np.int32(c - q * np.floor((c + _HALF) * inv))


@inline
def _square(x, value):
    return (x - value) * (x - value)


@compiled
def _quantize(blocks, q, betas, tie, simplified, first_fit, digits, beta_index, values, overloaded):
    """Fill the four outputs; true if a value was not finite."""
    n = blocks.shape[0]
    # An argument, since numba's cache would not notice a constant of another module change; a tuple, since stores to
    # the arrays below might alias an array.
    tie = (tie[0], tie[1], tie[2], tie[3], tie[4], tie[5], tie[6], tie[7])
    inv = _ONE / q
    x = np.zeros((8, _LANES), np.float32)
    best = np.empty((8, _LANES), np.float32)
    c = np.empty((8, _LANES), np.int32)
    error = np.empty(_LANES, np.float32)
    chosen = np.empty(_LANES, np.int32)
    over = np.empty(_LANES, np.int32)
    bad = False
    for start in range(0, n, _LANES):
        lanes = min(_LANES, n - start)
        for lane in range(lanes):
            for i in range(8):
                x[i, lane] = blocks[start + lane, i]
                bad |= not (abs(x[i, lane]) <= _MAX)
        for j in range(len(betas)):
            beta = betas[j]
            inv_beta = _ONE / beta
            first = j == 0
            for lane in range(_LANES):
                x0, x1, x2, x3 = x[0, lane], x[1, lane], x[2, lane], x[3, lane]
                x4, x5, x6, x7 = x[4, lane], x[5, lane], x[6, lane], x[7, lane]
                t0, t1, t2, t3, t4, t5, t6, t7 = _nearest(
                    _clamp(x0 * inv_beta), _clamp(x1 * inv_beta), _clamp(x2 * inv_beta), _clamp(x3 * inv_beta),
                    _clamp(x4 * inv_beta), _clamp(x5 * inv_beta), _clamp(x6 * inv_beta), _clamp(x7 * inv_beta),
                    _ONE, _ONE, False,
                )  # fmt: skip
                v0, v1, v2, v3, v4, v5, v6, v7 = _shape(t0, t1, t2, t3, t4, t5, t6, t7, tie, q, inv, simplified)
                d = (
                    (_square(x0, beta * v0) + _square(x1, beta * v1))
                    + (_square(x2, beta * v2) + _square(x3, beta * v3))
                ) + (
                    (_square(x4, beta * v4) + _square(x5, beta * v5))
                    + (_square(x6, beta * v6) + _square(x7, beta * v7))
                )
                moved = (
                    (t0 != v0) or (t1 != v1) or (t2 != v2) or (t3 != v3)
                    or (t4 != v4) or (t5 != v5) or (t6 != v6) or (t7 != v7)
                )  # fmt: skip
                nearer = d < error[lane]
                better = first or (((over[lane] != 0) and (nearer or not moved)) if first_fit else nearer)
                error[lane] = d if better else error[lane]
                chosen[lane] = np.int32(j) if better else chosen[lane]
                over[lane] = np.int32(moved) if better else over[lane]
                best[0, lane] = v0 if better else best[0, lane]
                best[1, lane] = v1 if better else best[1, lane]
                best[2, lane] = v2 if better else best[2, lane]
                best[3, lane] = v3 if better else best[3, lane]
                best[4, lane] = v4 if better else best[4, lane]
                best[5, lane] = v5 if better else best[5, lane]
                best[6, lane] = v6 if better else best[6, lane]
                best[7, lane] = v7 if better else best[7, lane]
        for lane in range(_LANES):
            t7 = best[7, lane]
            c6 = best[6, lane] - t7
            c5 = best[5, lane] - t7 + c6
            c4 = best[4, lane] - t7 + c5
            c3 = best[3, lane] - t7 + c4
            c2 = best[2, lane] - t7 + c3
            c1 = best[1, lane] - t7 + c2
            c[0, lane] = _modulo((best[0, lane] - t7 + c1) * _HALF, q, inv)
            c[1, lane] = _modulo(c1, q, inv)
            c[2, lane] = _modulo(c2, q, inv)
            c[3, lane] = _modulo(c3, q, inv)
            c[4, lane] = _modulo(c4, q, inv)
            c[5, lane] = _modulo(c5, q, inv)
            c[6, lane] = _modulo(c6, q, inv)
            c[7, lane] = _modulo(_TWO * t7, q, inv)
        for lane in range(lanes):
            beta = betas[chosen[lane]]
            for i in range(8):
                digits[start + lane, i] = np.uint8(c[i, lane])
                values[start + lane, i] = beta * best[i, lane]
            beta_index[start + lane] = chosen[lane]
            overloaded[start + lane] = over[lane] != 0
    return bad


@compiled
def _decode(digits, beta_index, q, betas, tie, simplified, values):
    n = digits.shape[0]
    tie = (tie[0], tie[1], tie[2], tie[3], tie[4], tie[5], tie[6], tie[7])
    inv = _ONE / q
    c = np.zeros((8, _LANES), np.float32)
    v = np.empty((8, _LANES), np.float32)
    for start in range(0, n, _LANES):
        lanes = min(_LANES, n - start)
        for lane in range(lanes):
            for i in range(8):
                c[i, lane] = np.float32(digits[start + lane, i])
        for lane in range(_LANES):
            h = c[7, lane] * _HALF
            c1, c2, c3, c4, c5, c6 = c[1, lane], c[2, lane], c[3, lane], c[4, lane], c[5, lane], c[6, lane]
            v[0, lane], v[1, lane], v[2, lane], v[3, lane], v[4, lane], v[5, lane], v[6, lane], v[7, lane] = _shape(
                _TWO * c[0, lane] - c1 + h, c1 - c2 + h, c2 - c3 + h, c3 - c4 + h,
                c4 - c5 + h, c5 - c6 + h, c6 + h, h, tie, q, inv, simplified,
            )  # fmt: skip
        for lane in range(lanes):
            beta = betas[beta_index[start + lane]]
            for i in range(8):
                values[start + lane, i] = beta * v[i, lane]

"""How codes are stored: one number per block of eight, in as few bits as hold it.

A block's number is v = Σ digit_i·qⁱ + q⁸·(scale index), below k·q⁸, so w = ⌈log2(k·q⁸)⌉ bits. Its low ⌊w/8⌋ bytes stand
together in ``codes`` (little-endian; with four bytes one uint32 word, and q ≤ 13 with k ≤ 4 needs no more: 4 bits a
weight). The w mod 8 bits left over stand in ``codes_high``, one bit string per row, lowest bit first. Knows digits and
bytes. Does not know what a digit means.
"""

from dataclasses import dataclass
from math import log2

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.papers.quantize.jit import compiled

# numba computes uint64 with a bare integer in float64.
_U0, _U1, _U3, _U7, _U8, _U255 = (np.uint64(i) for i in (0, 1, 3, 7, 8, 255))


@dataclass(frozen=True)
class Bits:
    """Where the stored bits of an array go; fractions of bits are meant, their sum is what the tensors hold."""

    code: float  # log2 q for every entry
    beta: float  # log2 k for every block
    scale: float  # row scales
    padding: float  # columns up to a multiple of 8, and what whole bits and bytes round up

    @property
    def total(self) -> float:
        return self.code + self.beta + self.scale + self.padding

    def __add__(self, other: "Bits") -> "Bits":
        return Bits(
            self.code + other.code, self.beta + other.beta, self.scale + other.scale, self.padding + other.padding
        )


def block_bits(q: int, k: int) -> int:
    """w: bits of one block's number.

    Raises:
        InputError: they are more than 64.
    """
    w = (k * q**8 - 1).bit_length()
    if w > 64:
        raise InputError(f"a block of eight at q = {q} with {k} scales needs {w} bits, 64 can be stored")
    return w


def stored_bits(rows: int, columns: int, q: int, k: int, scale_bytes: int) -> Bits:
    """What ``rows`` × ``columns`` entries take when packed, with one scale of ``scale_bytes`` a row."""
    blocks = -(-columns // 8)
    whole, rest = divmod(block_bits(q, k), 8)
    stored = 8 * rows * (blocks * whole + -(-blocks * rest // 8))
    code, beta = rows * columns * log2(q), rows * blocks * log2(k)
    return Bits(code, beta, 8.0 * rows * scale_bytes, stored - code - beta)


def pack(
    digits: UInt8[ndarray, "rows b 8"], beta_index: UInt8[ndarray, "rows b"], q: int, k: int
) -> dict[str, ndarray]:
    """Arrays to store for digits below q and scale indices below k, which are not checked.

    Returns:
        ``codes``: uint32 (rows, b) if the whole bytes of a block are four, else uint8 (rows, b, bytes); and, where
        bits are left over, ``codes_high``: uint8 (rows, ⌈b·(w mod 8)/8⌉).
    """
    rows, blocks = beta_index.shape
    whole, rest = divmod(block_bits(q, k), 8)
    codes = np.empty((rows, blocks, whole), np.uint8)
    high = np.zeros((rows, -(-blocks * rest // 8)), np.uint8)
    _pack(np.ascontiguousarray(digits), np.ascontiguousarray(beta_index), np.uint64(q), np.uint64(rest), codes, high)
    packed = {"codes": codes.view("<u4")[..., 0] if whole == 4 else codes}
    return packed | {"codes_high": high} if rest else packed


def unpack(packed: dict[str, ndarray], q: int, k: int) -> tuple[UInt8[ndarray, "rows b 8"], UInt8[ndarray, "rows b"]]:
    """Digits and scale indices from what ``pack`` returned.

    Raises:
        InputError: an array is missing, or of another dtype or shape, or a number is not below k·q⁸.
    """
    whole, rest = divmod(block_bits(q, k), 8)
    names = {"codes", "codes_high"} if rest else {"codes"}
    if set(packed) != names:
        raise InputError(f"codes of q = {q} with {k} scales are stored as {', '.join(sorted(names))} alone")
    codes = packed["codes"]
    form = (np.dtype(np.uint32), ()) if whole == 4 else (np.dtype(np.uint8), (whole,))
    if codes.ndim < 2 or (codes.dtype, codes.shape[2:]) != form:
        raise InputError(f"codes of {codes.dtype} and shape {codes.shape} are not those of q = {q} with {k} scales")
    rows, blocks = codes.shape[:2]
    high = packed["codes_high"] if rest else np.zeros((rows, 0), np.uint8)
    if high.dtype != np.uint8 or high.shape != (rows, -(-blocks * rest // 8)):
        raise InputError(f"the high bits of the codes do not fit {rows} rows of {blocks} blocks")
    digits, index = np.empty((rows, blocks, 8), np.uint8), np.empty((rows, blocks), np.uint8)
    octets = np.ascontiguousarray(codes, codes.dtype.newbyteorder("<")).view(np.uint8).reshape(rows, blocks, whole)
    bad = _unpack(
        octets, np.ascontiguousarray(high), np.uint64(q), np.uint64(rest), np.uint64(k * q**8 - 1), digits, index
    )
    if bad >= 0:
        raise InputError(
            f"the code of row {bad // blocks}, block {bad % blocks} is out of range", hint="the codes are corrupt"
        )
    return digits, index


@compiled
def _pack(digits, beta_index, q, rest, codes, high):
    rows, blocks, whole = codes.shape
    for row in range(rows):
        position = _U0
        for block in range(blocks):
            v = np.uint64(beta_index[row, block])
            for i in range(7, -1, -1):
                v = v * q + np.uint64(digits[row, block, i])
            for byte in range(whole):
                codes[row, block, byte] = np.uint8(v & _U255)
                v >>= _U8
            if rest > _U0:
                at, shift = position >> _U3, position & _U7
                spread = v << shift
                high[row, at] |= np.uint8(spread & _U255)
                if shift + rest > _U8:
                    high[row, at + _U1] = np.uint8(spread >> _U8)
                position += rest


@compiled
def _unpack(codes, high, q, rest, largest, digits, beta_index):
    """Fill digits and indices; the flat number of the first block out of range, or −1."""
    rows, blocks, whole = codes.shape
    mask = (_U1 << rest) - _U1
    for row in range(rows):
        position = _U0
        for block in range(blocks):
            v = _U0
            if rest > _U0:
                at, shift = position >> _U3, position & _U7
                spread = np.uint64(high[row, at])
                if shift + rest > _U8:
                    spread |= np.uint64(high[row, at + _U1]) << _U8
                v = (spread >> shift) & mask
                position += rest
            for byte in range(whole - 1, -1, -1):
                v = (v << _U8) | np.uint64(codes[row, block, byte])
            if v > largest:
                return row * blocks + block
            for i in range(8):
                next_v = v // q
                digits[row, block, i] = np.uint8(v - next_v * q)
                v = next_v
            beta_index[row, block] = np.uint8(v)
    return -1

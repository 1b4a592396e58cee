"""How codes are stored: one number per block of eight, in as few bits as hold it, or one number per two blocks.

A block's number is v = Σ digit_i·qⁱ + q⁸·(scale index), below k·q⁸, so w = ⌈log2(k·q⁸)⌉ bits. Its low ⌊w/8⌋ bytes stand
together in ``codes`` (little-endian; with four bytes one uint32 word, and q ≤ 13 with k ≤ 5 needs no more: 4 bits a
weight). The w mod 8 bits left over stand in ``codes_high``, one bit string per row, lowest bit first.

The entropy form stores the sixteen digits of two neighbouring blocks as one such number, which rounds up less, and
leaves scale indices, which are far from uniform, to zstandard. Knows digits and bytes. Does not know what a digit
means.
"""

from dataclasses import dataclass
from math import log2

import numpy as np
import zstandard
from jaxtyping import UInt8
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.core.jit import compiled

# numba computes uint64 with a bare integer in float64.
_U0, _U1, _U3, _U7, _U8, _U255 = (np.uint64(i) for i in (0, 1, 3, 7, 8, 255))

_LANES = 64  # numbers taken apart together, in vector registers
_ZSTD_LEVEL = 19
MAX_PAIR_Q = 16  # sixteen digits in 64 bits


@dataclass(frozen=True)
class Bits:
    """Where the stored bits of an array go; fractions of bits are meant, their sum is what the tensors hold."""

    code: float  # log2 q for every entry
    beta: float  # log2 k for every block, or what their indices take compressed
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


def pair_bits(q: int) -> int:
    """Bits of the number of sixteen digits.

    Raises:
        InputError: they are more than 64.
    """
    if q > MAX_PAIR_Q:
        raise InputError(f"two blocks at q = {q} need more than 64 bits", hint=f"q may be at most {MAX_PAIR_Q} here")
    return (q**16 - 1).bit_length()


def stored_bits(rows: int, columns: int, q: int, k: int, scale_bytes: int) -> Bits:
    """What ``rows`` × ``columns`` entries take when packed, with one scale of ``scale_bytes`` a row."""
    blocks = -(-columns // 8)
    stored = rows * _row_bits(blocks, block_bits(q, k))
    code, beta = rows * columns * log2(q), rows * blocks * log2(k)
    return Bits(code, beta, 8.0 * rows * scale_bytes, stored - code - beta)


def stored_entropy_bits(rows: int, columns: int, q: int, beta_bytes: int, scale_bytes: int) -> Bits:
    """What they take in the entropy form, with ``beta_bytes`` of compressed scale indices."""
    pairs = -(-columns // 16)
    code = rows * columns * log2(q)
    return Bits(code, 8.0 * beta_bytes, 8.0 * rows * scale_bytes, rows * _row_bits(pairs, pair_bits(q)) - code)


def _row_bits(numbers: int, w: int) -> int:
    whole, rest = divmod(w, 8)
    return 8 * (numbers * whole + -(-numbers * rest // 8))


def pack(
    digits: UInt8[ndarray, "rows b 8"], beta_index: UInt8[ndarray, "rows b"], q: int, k: int
) -> dict[str, ndarray]:
    """Arrays to store for digits below q and scale indices below k, which are not checked.

    Returns:
        ``codes``: uint32 (rows, b) if the whole bytes of a block are four, else uint8 (rows, b, bytes); and, where
        bits are left over, ``codes_high``: uint8 (rows, ⌈b·(w mod 8)/8⌉).
    """
    return _store(digits, beta_index, q, block_bits(q, k))


def unpack(packed: dict[str, ndarray], q: int, k: int) -> tuple[UInt8[ndarray, "rows b 8"], UInt8[ndarray, "rows b"]]:
    """Digits and scale indices from what ``pack`` returned.

    Raises:
        InputError: an array is missing, or of another dtype or shape, or a number is not below k·q⁸.
    """
    return _restore(packed, q, 8, k, block_bits(q, k))


def pack_entropy(
    digits: UInt8[ndarray, "rows b 8"], beta_index: UInt8[ndarray, "rows b"], q: int
) -> dict[str, ndarray]:
    """Arrays to store in the entropy form, for digits below q, which are not checked.

    Rows of an odd number of blocks are filled up with one of zeros.

    Returns:
        ``codes`` and ``codes_high`` as ``pack``, with one number for each ⌈b/2⌉ pair of blocks; and ``beta_zstd``: a
        zstandard frame of the scale indices of all rows, one byte each, as uint8.

    Raises:
        InputError: q is above ``MAX_PAIR_Q``.
    """
    rows, blocks = beta_index.shape
    pairs = -(-blocks // 2)
    sixteen = np.zeros((rows, pairs, 16), np.uint8)
    sixteen.reshape(rows, 2 * pairs, 8)[:, :blocks] = digits
    frame = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compress(beta_index.tobytes())
    stored = _store(sixteen, np.zeros((rows, pairs), np.uint8), q, pair_bits(q))
    return stored | {"beta_zstd": np.frombuffer(bytearray(frame), np.uint8)}


def unpack_entropy(
    packed: dict[str, ndarray], q: int, k: int, blocks: int
) -> tuple[UInt8[ndarray, "rows b 8"], UInt8[ndarray, "rows b"]]:
    """Digits and scale indices from what ``pack_entropy`` returned for rows of ``blocks`` blocks.

    Raises:
        InputError: an array is missing, or of another dtype or shape, a number is not below q¹⁶, or the frame is
            damaged, holds another number of indices, or one that is not below k.
    """
    frame = packed.get("beta_zstd")
    if frame is None or frame.dtype != np.uint8 or frame.ndim != 1:
        raise InputError("compressed scale indices are missing, or are not a string of bytes")
    numbers = {name: array for name, array in packed.items() if name != "beta_zstd"}
    sixteen, _ = _restore(numbers, q, 16, 1, pair_bits(q))
    rows, pairs = sixteen.shape[:2]
    if pairs != -(-blocks // 2):
        raise InputError(f"rows hold {pairs} pairs of blocks, {blocks} blocks should stand in them")
    digits = sixteen.reshape(rows, 2 * pairs, 8)
    if digits[:, blocks:].any():
        raise InputError("what fills up a row is not zero", hint="the codes are corrupt")
    beta_index = np.frombuffer(_decompressed(frame, rows * blocks), np.uint8).reshape(rows, blocks)
    if beta_index.size and (largest := int(beta_index.max())) >= k:
        raise InputError(f"scale index {largest} is out of range for {k} scales", hint="the codes are corrupt")
    return digits[:, :blocks], beta_index


def _decompressed(frame: UInt8[ndarray, "m"], size: int) -> bytearray:
    """The ``size`` bytes that a frame holds; more are never made, whatever it claims."""
    data = frame.tobytes()
    try:
        claimed = zstandard.get_frame_parameters(data).content_size
        if claimed != size:
            raise InputError(f"the compressed scale indices are of {claimed} blocks, the codes of {size}")
        return bytearray(zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False))
    except zstandard.ZstdError as error:
        raise InputError("the compressed scale indices cannot be read", hint="the codes are corrupt") from error


def _store(
    digits: UInt8[ndarray, "rows b digits"], beta_index: UInt8[ndarray, "rows b"], q: int, w: int
) -> dict[str, ndarray]:
    rows, blocks = beta_index.shape
    whole, rest = divmod(w, 8)
    codes = np.empty((rows, blocks, whole), np.uint8)
    high = np.zeros((rows, -(-blocks * rest // 8)), np.uint8)
    _pack(np.ascontiguousarray(digits), np.ascontiguousarray(beta_index), np.uint64(q), np.uint64(rest), codes, high)
    packed = {"codes": codes.view("<u4")[..., 0] if whole == 4 else codes}
    return packed | {"codes_high": high} if rest else packed


def _restore(
    packed: dict[str, ndarray], q: int, count: int, k: int, w: int
) -> tuple[UInt8[ndarray, "rows b digits"], UInt8[ndarray, "rows b"]]:
    """Digits, ``count`` a number, and scale indices from what ``_store`` returned."""
    whole, rest = divmod(w, 8)
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
    digits, index = np.empty((rows, blocks, count), np.uint8), np.empty((rows, blocks), np.uint8)
    octets = np.ascontiguousarray(codes, codes.dtype.newbyteorder("<")).view(np.uint8).reshape(rows, blocks, whole)
    bad = _unpack(
        octets, np.ascontiguousarray(high), np.uint64(q), np.uint64(rest), np.uint64(k * q**count - 1), digits, index
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
            for i in range(digits.shape[2] - 1, -1, -1):
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
    half = digits.shape[2] // 2
    mask = (_U1 << rest) - _U1
    base = _U1
    for _ in range(half):
        base *= q
    # Vector registers divide only in floating point. One division cuts v in two halves below 2⁵¹, of which
    # ⌊(x + ½)/q⌋ is exact, since the ½ keeps the quotient further from an integer than rounding moves it.
    divisor, inv_base, inv = np.float64(q), 1 / np.float64(base), 1 / np.float64(q)
    signed_base = np.int64(base)
    v = np.zeros(_LANES, np.uint64)
    x = np.empty((2, _LANES), np.float64)
    out = np.empty((2 * half, _LANES), np.int32)
    for row in range(rows):
        position = _U0
        for start in range(0, blocks, _LANES):
            lanes = min(_LANES, blocks - start)
            for lane in range(lanes):
                number = _U0
                if rest > _U0:
                    at, shift = position >> _U3, position & _U7
                    spread = np.uint64(high[row, at])
                    if shift + rest > _U8:
                        spread |= np.uint64(high[row, at + _U1]) << _U8
                    number = (spread >> shift) & mask
                    position += rest
                for byte in range(whole - 1, -1, -1):
                    number = (number << _U8) | np.uint64(codes[row, start + lane, byte])
                if number > largest:
                    return row * blocks + start + lane
                v[lane] = number
            for lane in range(_LANES):
                quotient = np.int64(np.float64(v[lane]) * inv_base)  # off by one at most
                remainder = np.int64(v[lane] - np.uint64(quotient) * base)
                below, above = remainder < 0, remainder >= signed_base
                x[0, lane] = remainder + (signed_base if below else -signed_base if above else 0)
                x[1, lane] = quotient + (-1 if below else 1 if above else 0)
            for part in range(2):
                for i in range(part * half, (part + 1) * half):
                    for lane in range(_LANES):
                        next_x = np.floor((x[part, lane] + 0.5) * inv)
                        out[i, lane] = np.int32(x[part, lane] - next_x * divisor)
                        x[part, lane] = next_x
            for lane in range(lanes):
                for i in range(2 * half):
                    digits[row, start + lane, i] = np.uint8(out[i, lane])
                beta_index[row, start + lane] = np.uint8(x[1, lane])
    return -1

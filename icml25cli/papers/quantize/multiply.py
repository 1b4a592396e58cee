"""Products with packed codes: rows are decoded a panel at a time and multiplied while the panel is in the cache.

No matrix of floats is ever whole. A kernel that multiplies each row as it is decoded was measured, too, and is slower
from the first token on. Knows packed codes and vectors. Does not know scales of rows, rotations or modules.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float32, Shaped, UInt8
from torch import Tensor

from icml25cli.core.errors import InputError
from icml25cli.core.jit import compiled, inline
from icml25cli.papers.quantize.lattice import TIE_OFFSET
from icml25cli.papers.quantize.packing import block_bits
from icml25cli.papers.quantize.voronoi import LatticeCode, _shape

# Blocks are decoded side by side. A row takes whole multiples of _LANES, the float32 of the widest registers, and
# intermediate values of _TILE blocks stay in the first cache.
_LANES = 16
_TILE = 64
_PANEL_VALUES = 2**20  # four megabytes of float32
_PANEL_VALUES_ELSEWHERE = 2**24  # enough to fill an accelerator; torch's decoder takes some ten temporaries of a panel
_VALUES_A_THREAD = 2**16  # fewer are decoded sooner than a thread wakes up

_HALF, _ONE, _TWO = np.float32(0.5), np.float32(1), np.float32(2)
_U0, _U1, _U8, _U32 = (np.uint64(i) for i in (0, 1, 8, 32))


def multiply(
    x: Float32[Tensor, "t n"], codes: Shaped[Tensor, "rows b *bytes"], high: UInt8[Tensor, "rows h"], code: LatticeCode
) -> Float32[Tensor, "t rows"]:
    """x @ decode(codes)^T, on the device of all three.

    Args:
        x: float32; zeros are added up to whole blocks.
        codes: as ``packing.pack`` stores them, in range (:func:`check_codes`).
        high: ``codes_high`` of ``packing.pack``; no columns where it has none.
        code: that the codes are of.
    """
    rows, blocks = codes.shape[:2]
    on_cpu = x.device.type == "cpu"
    width = -(-blocks // _LANES) * _LANES if on_cpu else blocks
    vectors = x.new_zeros(len(x), width * 8)
    vectors[:, : x.shape[1]] = x
    if on_cpu:  # first numbers of all blocks, then second ones: the order in which a kernel of lanes writes a row
        vectors = vectors.reshape(-1, width, 8).transpose(1, 2).flatten(1)
    step = max(1, (_PANEL_VALUES if on_cpu else _PANEL_VALUES_ELSEWHERE) // (8 * width))
    out = x.new_empty(len(x), rows)
    panel = x.new_empty(min(step, rows), 8 * width) if on_cpu else None
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        if panel is None:
            weight = _decode_by_torch(codes[part], high[part], code)
        else:
            weight = panel[: part.stop - start]
            _decode_by_kernel(codes[part], high[part], code, weight)
        out[:, part] = vectors @ weight.T
    return out


def check_codes(codes: Shaped[Tensor, "rows b *bytes"], high: UInt8[Tensor, "rows h"], code: LatticeCode) -> None:
    """Raise InputError unless every block's number is below k·q⁸."""
    q, k = code.q, len(code.betas)
    bits = block_bits(q, k)
    if k * q**8 == 2**bits:
        return
    bad = _first_out_of_range(codes.cpu().numpy(), high.cpu().numpy(), np.uint64(bits % 8), np.uint64(k * q**8 - 1))
    if bad >= 0:
        row, block = divmod(bad, codes.shape[1])
        raise InputError(f"the code of row {row}, block {block} is out of range", hint="the codes are corrupt")


def _decode_by_kernel(codes: Tensor, high: Tensor, code: LatticeCode, out: Float32[Tensor, "rows width"]) -> None:
    """Fill ``out`` in lane order, by as many threads as torch uses."""
    rows = len(codes)
    q, k = code.q, len(code.betas)
    bits = block_bits(q, k)
    # Either half of a block's number is below k·q⁴, and is divided in float32 while that is exact (see _digit).
    real = np.float32 if k * q**4 <= 2**22 else np.float64
    arguments = (
        codes.numpy(), high.numpy(), np.uint64(bits % 8), bits > 50, real(q), np.float32(q),
        np.array(code.betas, np.float32), TIE_OFFSET, code.simplified, out.numpy().reshape(rows, 8, -1),
    )  # fmt: skip
    threads = min(torch.get_num_threads(), 1 + out.numel() // _VALUES_A_THREAD)
    edges = [rows * i // threads for i in range(threads + 1)]
    others = [_pool(threads).submit(_decode_rows, *arguments, edges[i], edges[i + 1]) for i in range(1, threads)]
    _decode_rows(*arguments, 0, edges[1])
    for other in others:
        other.result()


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="icml25-decode")


os.register_at_fork(after_in_child=_pool.cache_clear)  # its threads stay behind in the parent


def _decode_by_torch(codes: Tensor, high: Tensor, code: LatticeCode) -> Float32[Tensor, "rows n"]:
    """Values in their own order, on the device of the codes."""
    rows, blocks = codes.shape[:2]
    whole, rest = divmod(block_bits(code.q, len(code.betas)), 8)
    octets = torch.zeros(rows, blocks, 8, dtype=torch.int64, device=codes.device)
    octets[..., :whole] = codes.contiguous().view(torch.uint8).reshape(rows, blocks, whole)
    if rest:  # they lie in two bytes at most
        position = rest * torch.arange(blocks, device=codes.device)
        bytes_of_row = torch.nn.functional.pad(high.long(), (0, 1))
        spread = bytes_of_row[:, position // 8] + (bytes_of_row[:, position // 8 + 1] << 8)
        octets[..., whole] = (spread >> position % 8) & ((1 << rest) - 1)
    # Two halves of 32 bits, for 64 do not fit int64: what the upper leaves when divided goes to the lower.
    places = 256 ** torch.arange(4, device=codes.device)
    lower, upper = (octets[..., :4] * places).sum(-1), (octets[..., 4:] * places).sum(-1)
    digits = torch.empty(rows, blocks, 8, dtype=torch.uint8, device=codes.device)
    for i in range(8):
        lower += (upper % code.q) << 32
        upper = upper // code.q
        digits[..., i] = lower % code.q
        lower = lower // code.q
    return code.decode_tensor(digits.reshape(-1, 8), lower.to(torch.uint8).flatten()).reshape(rows, -1)


@inline
def _numbers(codes, high, rest, row, start, held, number):
    """Put together the bits of blocks ``start`` to ``start + held`` of a row; ``start`` is a multiple of 8."""
    for lane in range(held):
        number[lane] = _U0
    if rest > _U0:  # eight blocks have ``rest`` bytes of high bits
        mask = (_U1 << rest) - _U1
        for group in range((held + 7) // 8):
            word = _U0
            first = (start // 8 + group) * np.int64(rest)
            for byte in range(min(np.int64(rest), high.shape[1] - first)):
                word |= np.uint64(high[row, first + byte]) << (_U8 * np.uint64(byte))
            for i in range(8):
                number[8 * group + i] = (word >> (rest * np.uint64(i))) & mask
    if codes.ndim == 2:
        words = codes[row, start : start + held]
        for lane in range(held):
            number[lane] = (number[lane] << _U32) | np.uint64(words[lane])
    else:
        for lane in range(held):
            for byte in range(codes.shape[2] - 1, -1, -1):
                number[lane] = (number[lane] << _U8) | np.uint64(codes[row, start + lane, byte])


@compiled
def _first_out_of_range(codes, high, rest, largest):
    """The flat number of the first block out of range, or −1."""
    rows, blocks = codes.shape[:2]
    number = np.zeros(_TILE, np.uint64)
    for row in range(rows):
        for start in range(0, blocks, _TILE):
            held = min(_TILE, blocks - start)
            _numbers(codes, high, rest, row, start, held, number)
            for lane in range(held):
                if number[lane] > largest:
                    return row * blocks + start + lane
    return -1


@inline
def _digit(v, q, inv):
    """Quotient and remainder of an integer by q, through the reciprocal.

    (v + ½)/q is at least ½/q away from every integer, more than the rounding of sum, reciprocal and product can move
    it while v < 2^22 in float32 or 2^50 in float64.
    """
    quotient = np.floor((v + _HALF) * inv)
    return quotient, np.float32(v - quotient * q)


@compiled
def _decode_rows(codes, high, rest, wide, real_q, q, betas, tie, simplified, out, begin, end):
    """out[row, i, b] = number i of block b, times its scale; what stands beyond the last block is finite."""
    blocks, width = codes.shape[1], out.shape[2]
    tie = (tie[0], tie[1], tie[2], tie[3], tie[4], tie[5], tie[6], tie[7])
    inv, real_inv = _ONE / q, _ONE / real_q
    fourth = np.float64(q) * np.float64(q) * np.float64(q) * np.float64(q)
    whole_fourth, inv_fourth = np.uint64(fourth), 1.0 / fourth
    # Arrays of this function's own, indexed by lane alone: otherwise no loop vectorises.
    number = np.zeros(_TILE, np.uint64)
    lower, upper = np.full(_TILE, real_q), np.full(_TILE, real_q)
    index = np.zeros(_TILE, np.int32)
    scale = np.zeros(_TILE, np.float32)
    points = np.zeros((8, _TILE), np.float32)
    for row in range(begin, end):
        for start in range(0, width, _TILE):
            lanes = min(_TILE, width - start)
            _numbers(codes, high, rest, row, start, min(lanes, blocks - start), number)
            if wide:
                for lane in range(lanes):
                    quotient = number[lane] // whole_fourth
                    upper[lane] = quotient
                    lower[lane] = number[lane] - quotient * whole_fourth
            else:
                for lane in range(lanes):
                    v = np.float64(np.int64(number[lane]))
                    quotient = np.floor((v + 0.5) * inv_fourth)
                    upper[lane] = quotient
                    lower[lane] = v - quotient * fourth
            for lane in range(lanes):
                v, c0 = _digit(lower[lane], real_q, real_inv)
                v, c1 = _digit(v, real_q, real_inv)
                v, c2 = _digit(v, real_q, real_inv)
                c3 = np.float32(v)
                v, c4 = _digit(upper[lane], real_q, real_inv)
                v, c5 = _digit(v, real_q, real_inv)
                v, c6 = _digit(v, real_q, real_inv)
                v, c7 = _digit(v, real_q, real_inv)
                index[lane] = np.int32(v)
                h = c7 * _HALF
                (
                    points[0, lane], points[1, lane], points[2, lane], points[3, lane],
                    points[4, lane], points[5, lane], points[6, lane], points[7, lane],
                ) = _shape(
                    _TWO * c0 - c1 + h, c1 - c2 + h, c2 - c3 + h, c3 - c4 + h,
                    c4 - c5 + h, c5 - c6 + h, c6 + h, h, tie, q, inv, simplified,
                )  # fmt: skip
            for lane in range(lanes):
                scale[lane] = betas[index[lane]]
            for i in range(8):
                values = out[row, i, start : start + lanes]
                for lane in range(lanes):
                    values[lane] = scale[lane] * points[i, lane]

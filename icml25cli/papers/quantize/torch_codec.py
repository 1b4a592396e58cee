"""The lattice code in torch, for blocks on an accelerator: the arithmetic of ``lattice`` and ``voronoi`` op for op.

Every operation is rounded to float32 on its own and in the same order as there, so digits, scale indices and values
are the same bits. Blocks are worked on by chunk, with coordinates first, so that an operation streams through memory.
Knows tensors of blocks. Does not know checks, which ``voronoi.LatticeCode`` makes.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float32, UInt8
from numpy import ndarray
from torch import Tensor

from icml25cli.papers.quantize.lattice import CLAMP, TIE_OFFSET

_CHUNK_BLOCKS = 2**18  # about twenty temporaries of eight megabytes


def quantize(
    blocks: Float32[Tensor, "n 8"], q: int, betas: Float32[ndarray, "k"], simplified: bool, rule: str
) -> tuple[UInt8[Tensor, "n 8"], UInt8[Tensor, "n"], Float32[Tensor, "n 8"], Bool[Tensor, "n"]]:
    """Digits, scale index, value and overload of finite blocks; as ``voronoi.Quantized`` describes them."""
    n, device = len(blocks), blocks.device
    digits = torch.empty((n, 8), dtype=torch.uint8, device=device)
    index = torch.empty(n, dtype=torch.uint8, device=device)
    values = torch.empty((n, 8), dtype=torch.float32, device=device)
    overloaded = torch.empty(n, dtype=torch.bool, device=device)
    scales = torch.from_numpy(betas).to(device)
    for start in range(0, n, _CHUNK_BLOCKS):
        part = slice(start, start + _CHUNK_BLOCKS)
        x = blocks[part].T.contiguous()
        best, chosen, over = _choose(x, q, betas, simplified, rule)
        digits[part] = _digits(best, q).T
        index[part] = chosen
        values[part] = (scales[chosen.int()] * best).T
        overloaded[part] = over
    return digits, index, values, overloaded


def decode(
    digits: UInt8[Tensor, "n 8"], beta_index: UInt8[Tensor, "n"], q: int, betas: Float32[ndarray, "k"], simplified: bool
) -> Float32[Tensor, "n 8"]:
    """The value of each code."""
    values = torch.empty(digits.shape, dtype=torch.float32, device=digits.device)
    scales = torch.from_numpy(betas).to(digits.device)
    for start in range(0, len(digits), _CHUNK_BLOCKS):
        part = slice(start, start + _CHUNK_BLOCKS)
        c = digits[part].T.float()
        half = c[7] / 2
        p = c + half
        p[7] = half
        p[1:6] -= c[2:7]
        p[0] += c[0] - c[1]
        values[part] = (scales[beta_index[part].int()] * _shape(p, q, simplified)).T
    return values


def _choose(
    x: Float32[Tensor, "8 n"], q: int, betas: Float32[ndarray, "k"], simplified: bool, rule: str
) -> tuple[Float32[Tensor, "8 n"], UInt8[Tensor, "n"], Bool[Tensor, "n"]]:
    """Lattice point, scale index and overload of the best scale."""
    clamp = float(CLAMP)
    # Plain floats that float32 holds: a device rounds no reciprocal its own way.
    for j, (beta, inverse) in enumerate(zip(betas.tolist(), (1 / betas).tolist(), strict=True)):
        t = _nearest((x * inverse).clamp(-clamp, clamp), 1, False)
        v = _shape(t, q, simplified)
        d = _sum8((x - beta * v).square())
        moved = (t != v).any(dim=0)
        if j == 0:
            best, error, over = v, d, moved
            chosen = torch.zeros(d.shape, dtype=torch.uint8, device=d.device)
            continue
        better = d < error
        if rule == "first":
            better = over & (better | ~moved)
        best, error = torch.where(better, v, best), torch.where(better, d, error)
        over = torch.where(better, moved, over)
        chosen.masked_fill_(better, j)
    return best, chosen, over


def _nearest(z: Float32[Tensor, "8 n"], q: int, simplified: bool) -> Float32[Tensor, "8 n"]:
    """``lattice.nearest_point``, coordinates first."""
    r = torch.floor(z * float(np.float32(1) / np.float32(q)) + 0.5)
    w = r * q
    e = z - w
    a = e.abs()
    positive = e >= 0
    total = _sum8(r)
    odd0 = total.remainder(2) != 0
    odd1 = (total - (~positive).sum(dim=0)).remainder(2) != 0
    most, least = (a[0], a[0]) if simplified else (a.amax(dim=0), a.amin(dim=0))
    d0 = torch.where(odd0, q - (most + most), 0.0)
    d1 = (q + q - _sum8(a)) + torch.where(odd1, least + least, 0.0)
    half = d1 < d0
    move = torch.where(half, q / 2, 0.0).expand(8, -1).clone()
    worst = torch.zeros_like(half, dtype=torch.int64) if simplified else torch.where(half, -a, a).argmax(dim=0)
    other = torch.where(half, -q / 2, float(q))
    odd = torch.where(half, odd1, odd0)
    move.scatter_(0, worst[None], torch.where(odd, other, move[0])[None])
    return w + torch.where(positive, move, -move)


def _shape(p: Float32[Tensor, "8 n"], q: int, simplified: bool) -> Float32[Tensor, "8 n"]:
    """The representative in q·V − ε of a lattice point modulo q·E8."""
    tie = torch.from_numpy(TIE_OFFSET).to(p.device)
    return p - _nearest(p + tie[:, None], q, simplified)


def _digits(t: Float32[Tensor, "8 n"], q: int) -> Float32[Tensor, "8 n"]:
    """Coordinates modulo q of lattice points; exact."""
    c = t - t[7]
    c[7] = 2 * t[7]
    for i in range(5, 0, -1):
        c[i] += c[i + 1]
    c[0] = (c[0] + c[1]) / 2
    return c.remainder(q)


def _sum8(a: Float32[Tensor, "8 n"]) -> Float32[Tensor, "n"]:
    """The sum over coordinates, in the order that ``lattice`` and ``voronoi`` fix."""
    pairs = a[0::2] + a[1::2]
    fours = pairs[0::2] + pairs[1::2]
    return fours[0] + fours[1]

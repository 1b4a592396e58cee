"""The lattice E8 and its nested (Voronoi) code in plain numpy: the definition, written to be read.

E8 = D8 ∪ (D8 + ½·1), where D8 holds the integer vectors of even sum (Conway and Sloane, *Sphere Packings, Lattices and
Groups*, chapters 4 and 20). The compiled form in ``voronoi`` must give the same bits as this one. Knows points and
codes in units of the lattice. Does not know scales of data, files, or how codes are stored.
"""

import numpy as np
from jaxtyping import Float, Integer
from numpy import ndarray

# Shaping compares distances to q·E8 from z = p + ε, never from p: lattice points often lie exactly on the boundary of
# q·V, and |<ε, v>| > 0 for all 2400 relevant and norm-4 vectors v, so no comparison can tie. As z is a multiple of
# 1/1024 every sum in ``nearest_point(z, q)`` is exact in float32, and all machines resolve each boundary point alike.
# That holds for the simplified rule, too. The two distances it compares differ by 2q − Σ|e| plus even multiples of
# coordinates of e and q; in units of 1/1024 all is even but Σ|e|, whose parity is that of the numerators below, and
# these hold five odd ones. Nor can a rounding tie: p and q/2 are multiples of ½, and 0 < |ε| < ½ in every coordinate.
TIE_OFFSET_1024 = (26, -37, 23, -20, -5, -32, 3, 13)
TIE_OFFSET = np.array(TIE_OFFSET_1024, dtype=np.float32) / np.float32(1024)

# Inputs are clamped here before coding. Anything this far out is overloaded for every q ≤ 256, and below it
# all intermediate sums are exact in float32.
CLAMP = np.float32(1024)


def _sum8(a: Float[ndarray, "*n 8"]) -> Float[ndarray, "*n"]:
    # A fixed order of additions: the compiled kernel adds in the same one.
    a0, a1, a2, a3, a4, a5, a6, a7 = np.moveaxis(a, -1, 0)
    return ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7))


def nearest_point(x: Float[ndarray, "*n 8"], scale: float = 1.0, *, simplified: bool = False) -> Float[ndarray, "*n 8"]:
    """Nearest point of scale·E8 to each x, in the dtype of x (Conway and Sloane 1982, decoding of D8 twice).

    Let r round x to integers and e = x − r. The integer candidate is r, the half-integer one r ± ½ on the side of e;
    their roundings are off by |e| and ½ − |e|. Where the sum of the candidate (of its integer part) is odd the worst
    rounded coordinate, the first on ties, moves one step to its other side. Hence the squared distances
    Σe² + odd₀(1 − 2 max|e|) and Σe² + 2 − Σ|e| + 2 odd₁ min|e|; on ties the integer candidate wins.

    ``simplified`` is the rule of NestQuantM, cheaper in hardware: always the first coordinate moves, so that |e₀|
    stands for the maximum and the minimum. What rounds to 0 still tiles space under scale·E8, but the point is no
    longer always the nearest.
    """
    one = x.dtype.type
    q = one(scale)
    r = np.floor(x * (one(1) / q) + one(0.5))
    w = r * q
    e = x - w
    a = np.abs(e)
    positive = e >= 0
    total = _sum8(r)
    odd0 = total % 2
    odd1 = (total - np.count_nonzero(~positive, axis=-1)) % 2
    most, least = (a[..., 0], a[..., 0]) if simplified else (a.max(axis=-1), a.min(axis=-1))
    half = (q + q - _sum8(a)) + odd1 * (least + least) < odd0 * (q - (most + most))
    step = np.where(half, q / 2, one(0))
    other = np.where(half, -q / 2, q)
    worst = np.zeros(half.shape, int) if simplified else np.argmax(np.where(half[..., None], -a, a), axis=-1)
    flipped = np.where(half, odd1, odd0).astype(bool)
    move = np.where(flipped[..., None] & (worst[..., None] == np.arange(8)), other[..., None], step[..., None])
    return w + np.where(positive, move, -move)


def to_coordinates(t: Float[ndarray, "*n 8"]) -> Float[ndarray, "*n 8"]:
    """Integer coordinates c with t = G c, where G has columns 2e₀, e_i − e_{i−1} (i = 1..6) and ½·1 (det G = 1)."""
    c = np.empty_like(t)
    c[..., 7] = 2 * t[..., 7]
    c[..., 6] = t[..., 6] - t[..., 7]
    for i in range(5, 0, -1):
        c[..., i] = t[..., i] - t[..., 7] + c[..., i + 1]
    c[..., 0] = (t[..., 0] - t[..., 7] + c[..., 1]) / 2
    return np.rint(c)


def from_coordinates(c: Float[ndarray, "*n 8"]) -> Float[ndarray, "*n 8"]:
    """The lattice point t = G c of integer coordinates c."""
    t = np.empty_like(c)
    half = c[..., 7] / 2
    t[..., 7] = half
    t[..., 6] = c[..., 6] + half
    for i in range(5, 0, -1):
        t[..., i] = c[..., i] - c[..., i + 1] + half
    t[..., 0] = 2 * c[..., 0] - c[..., 1] + half
    return t


def voronoi_encode(x: Float[ndarray, "*n 8"], q: int) -> Integer[ndarray, "*n 8"]:
    """Digits 0..q−1 (uint8) of the nearest lattice point of x: its coordinates modulo q (Conway and Sloane 1983)."""
    clamped = np.clip(x.astype(np.float32), -CLAMP, CLAMP)
    return (to_coordinates(nearest_point(clamped)) % q).astype(np.uint8)


def voronoi_decode(digits: Integer[ndarray, "*n 8"], q: int, *, simplified: bool = False) -> Float[ndarray, "*n 8"]:
    """The point of E8 that digits stand for: of all points with these coordinates modulo q, the one in q·V − ε.

    V is the Voronoi cell, or the cell of the simplified rule.
    """
    p = from_coordinates(digits.astype(np.float32))
    return p - nearest_point(p + TIE_OFFSET, q, simplified=simplified)


def union_encode(
    x: Float[ndarray, "n 8"], q: int, betas: tuple[float, ...], *, simplified: bool = False, rule: str = "opt"
) -> tuple[Integer[ndarray, "n 8"], Integer[ndarray, "n"]]:
    """Digits and scale index of each block under opt-β: the scale whose decoded code is nearest, the smallest on ties.

    Under ``rule`` "first" it is the smallest scale at which the block does not overload, and if there is none the one
    of opt-β. The readable counterpart of ``voronoi.LatticeCode.encode``, and equal to it code for code.
    """
    x = x.astype(np.float32)
    digits, index = np.zeros(x.shape, np.uint8), np.zeros(len(x), np.uint8)
    best, settled = np.full(len(x), np.inf, np.float32), np.zeros(len(x), bool)
    for j, beta in enumerate(np.array(betas, np.float32)):
        scaled = x * (np.float32(1) / beta)
        code = voronoi_encode(scaled, q)
        value = voronoi_decode(code, q, simplified=simplified)
        difference = x - beta * value
        error = _sum8(difference * difference)
        better = error < best if j else np.ones(len(x), bool)
        if rule == "first":
            fits = (value == nearest_point(np.clip(scaled, -CLAMP, CLAMP))).all(axis=-1)
            better = (better | fits) & ~settled
            settled |= fits
        digits[better], index[better], best[better] = code[better], j, error[better]
    return digits, index

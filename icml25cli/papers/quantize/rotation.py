"""Fast orthogonal rotations x -> xR of any width, so that no coordinate of a weight row stands out.

R is a Kronecker product of a dense orthogonal factor and a power-of-two Hadamard matrix (QuaRot, Ashkboos et al. 2024;
NestQuant, section 4), preceded by random signs. Where the width admits none, it is random signs and a cosine transform.
Knows tensors and arrays. Does not know models, Hessians' meaning, or files.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod, sqrt
from typing import Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.fft import dct, idct
from torch import Tensor

from icml25cli.core.errors import InputError
from icml25cli.core.forms import check_form

KINDS = ("none", "hadamard", "random-hadamard", "orthogonal")
# A dense factor of order K costs 2K flops a value. 344 serves 11008 = 344 * 32 and 464 serves 29 * 2^k.
MAX_HADAMARD = 512
MAX_HAAR = 256
_CHUNK_VALUES = 2**18  # rows transformed together: one megabyte of float32 stays in the second-level cache

Array = TypeVar("Array", Tensor, ndarray)


@dataclass(frozen=True)
class Rotation:
    """An orthogonal matrix R of size ``n``, determined by its three fields alone.

    Attributes:
        kind: ``none``; ``hadamard`` (no signs); ``random-hadamard`` (signs drawn from ``seed``, then the same); or
            ``orthogonal`` (signs, then a Haar factor as large as ``MAX_HAAR`` allows, then Hadamard).
        n: width, at least 1.
        seed: of the signs and of the Haar factor. The raw PCG64 stream is used, which NumPy promises never to change.

    Raises:
        InputError: the kind is unknown, or the width or seed is out of range.
    """

    kind: str
    n: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"there is no rotation {self.kind!r}", hint=f"choose one of {', '.join(KINDS)}")
        if self.n < 1 or self.seed < 0:
            raise InputError(
                f"a rotation needs a width of at least 1 and a seed of at least 0, not {self.n}, {self.seed}"
            )

    @cached_property
    def plan(self) -> tuple[tuple[str, int], ...]:
        """Kronecker factors, left to right, as (name, order); their orders multiply to ``n``."""
        return () if self.kind == "none" else _plan(self.n, hadamard=self.kind != "orthogonal")

    @cached_property
    def _factors(self) -> tuple[Float[Tensor, "k k"], ...]:
        return tuple(_factor(name, order, self.seed) for name, order in self.plan if name != "dct")

    @cached_property
    def _scale(self) -> float:
        # Hadamard factors keep their exact +-1 entries while they multiply: one rounding of 1/sqrt at the end.
        return 1 / sqrt(prod(order for name, order in self.plan if name in ("paley", "sylvester")))

    @cached_property
    def _signs(self) -> Float[Tensor, "n"] | None:
        # The first column of a cosine transform is constant: without signs it would gather, not spread.
        if self.kind in ("none", "hadamard") and not self._cosine:
            return None
        words = np.random.PCG64([self.seed, self.n, 0]).random_raw(self.n)
        return torch.from_numpy(1.0 - 2.0 * (words >> np.uint64(63)))

    @property
    def _cosine(self) -> bool:
        return any(name == "dct" for name, _ in self.plan)

    def forward(self, x: Float[Array, "... n"]) -> Float[Array, "... n"]:
        """xR along the last axis, in the dtype of ``x`` (float32 or float64); ``x`` itself for kind ``none``.

        Raises:
            InputError: the last axis is not ``n`` long.
        """
        return self._apply(x, inverse=False)

    def inverse(self, x: Float[Array, "... n"]) -> Float[Array, "... n"]:
        """xR^T along the last axis, which undoes :meth:`forward`."""
        return self._apply(x, inverse=True)

    def conjugate(self, hessian: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
        """R^T H R for a symmetric H, the Hessian of rotated inputs. Holds one new n x n tensor and a panel of it."""
        if self.kind == "none":
            return hessian
        result = self.forward(hessian)
        step = max(1, _CHUNK_VALUES // self.n)
        for start in range(0, self.n, step):
            panel = result[:, start : start + step]
            panel.copy_(self.forward(panel.T.contiguous()).T)
        return result

    def spec(self) -> dict[str, Any]:
        """What :meth:`from_spec` needs, as JSON types. The factors are a check, the rest determines R."""
        return {"kind": self.kind, "n": self.n, "seed": self.seed, "factors": [list(factor) for factor in self.plan]}

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "Rotation":
        """The rotation that :meth:`spec` described.

        Raises:
            InputError: a field is absent or malformed, or this version would build R from other factors.
        """
        check_form(spec, {"kind": str, "n": int, "seed": int, "factors": list}, "the rotation")
        rotation = cls(spec["kind"], spec["n"], spec["seed"])
        if spec["factors"] != rotation.spec()["factors"]:
            raise InputError(f"the rotation {spec!r} was built from factors that this version does not use")
        return rotation

    def _apply(self, x: Array, *, inverse: bool) -> Array:
        if x.shape[-1] != self.n:
            raise InputError(f"a rotation of width {self.n} cannot turn vectors of width {x.shape[-1]}")
        if self.kind == "none":
            return x
        if isinstance(x, ndarray):
            writable = torch.from_numpy(np.require(x, requirements=["C", "W"]))
            return cast(Array, self._apply(writable, inverse=inverse).numpy())
        rows = x.reshape(-1, self.n)
        result = torch.empty_like(rows)
        signs = None if self._signs is None else self._signs.to(x)
        factors = [(factor.T if inverse else factor).to(x) for factor in self._factors]
        step = max(1, _CHUNK_VALUES // self.n)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            if signs is not None and not inverse:
                part = part * signs
            part = _cosine(part, inverse) if self._cosine else _kronecker(part, factors) * self._scale
            if signs is not None and inverse:
                part = part * signs
            result[start : start + step] = part
        return result.reshape(x.shape)


def _kronecker(x: Float[Tensor, "rows n"], factors: list[Float[Tensor, "k k"]]) -> Float[Tensor, "rows n"]:
    """x (F_1 kron F_2 kron ...), one factor at a time: a Walsh-Hadamard transform of mixed radix."""
    shape, right = x.shape, x.shape[1]
    for factor in factors:
        order = len(factor)
        right //= order
        x = x.reshape(-1, order) @ factor if right == 1 else factor.T @ x.reshape(-1, order, right)
    return x.reshape(shape)


def _cosine(x: Float[Tensor, "rows n"], inverse: bool) -> Float[Tensor, "rows n"]:
    transform = idct if inverse else dct
    return torch.from_numpy(transform(x.cpu().numpy(), type=2, norm="ortho", axis=-1)).to(x)


def _plan(n: int, hadamard: bool) -> tuple[tuple[str, int], ...]:
    odd, power = n, 0
    while odd % 2 == 0:
        odd, power = odd // 2, power + 1
    if hadamard:
        # The smallest order wins: it is the cheapest dense factor, and the power of two left over is the fast part.
        for used in range(power + 1):
            order = odd << used
            if order == 1 or (order <= MAX_HADAMARD and _paley_field(order)):
                return ((("paley", order),) if order > 1 else ()) + _sylvester_plan(power - used)
    if odd > MAX_HAAR:
        return (("dct", n),)
    used = 0
    while not hadamard and used < power and odd << (used + 1) <= MAX_HAAR:
        used += 1
    return (("haar", odd << used), *_sylvester_plan(power - used))


def _sylvester_plan(power: int) -> tuple[tuple[str, int], ...]:
    """2^power split into near-equal radices of at most 64, where a dense multiply still beats butterflies."""
    parts = -(-power // 6)
    return tuple(("sylvester", 1 << ((power + i) // parts)) for i in range(parts))


@lru_cache(maxsize=32)
def _factor(name: str, order: int, seed: int) -> Float[Tensor, "k k"]:
    matrix = {"paley": paley, "sylvester": sylvester, "haar": lambda k: haar(k, seed)}[name](order)
    return torch.from_numpy(np.ascontiguousarray(matrix, dtype=np.float64))


def haar(order: int, seed: int) -> Float[ndarray, "k k"]:
    """An orthogonal matrix uniform in Haar measure: QR of a Gaussian matrix, signs fixed (Mezzadri 2007)."""
    raw = np.random.PCG64([seed, order, 1]).random_raw((2, order * order)) >> np.uint64(11)
    uniform = (raw + 0.5) * 2.0**-53
    gauss = np.sqrt(-2 * np.log(uniform[0])) * np.cos(2 * np.pi * uniform[1])  # Box and Muller
    q, r = np.linalg.qr(gauss.reshape(order, order))
    return q * np.sign(np.diag(r))


def sylvester(order: int) -> ndarray:
    """The +-1 Walsh-Hadamard matrix of a power-of-two order (Sylvester 1867)."""
    matrix = np.ones((1, 1), dtype=np.int8)
    while len(matrix) < order:
        matrix = np.kron(np.array([[1, 1], [1, -1]], dtype=np.int8), matrix)
    return matrix


def paley(order: int) -> ndarray:
    """A +-1 Hadamard matrix from the squares of a finite field (Paley 1933), type I or II.

    Raises:
        InputError: neither ``order - 1`` (3 mod 4) nor ``order / 2 - 1`` (1 mod 4) is a prime power.
    """
    field = _paley_field(order)
    if field is None:
        raise InputError(f"there is no Paley matrix of order {order}")
    jacobsthal = _jacobsthal(*field)
    q = len(jacobsthal)
    core = np.zeros((q + 1, q + 1), dtype=np.int8)
    core[0, 1:] = 1
    core[1:, 1:] = jacobsthal
    core[1:, 0] = -1 if q % 4 == 3 else 1
    eye = np.eye(q + 1, dtype=np.int8)
    if q % 4 == 3:
        return eye + core
    return np.kron(core, np.array([[1, 1], [1, -1]], np.int8)) + np.kron(eye, np.array([[1, -1], [-1, -1]], np.int8))


def _paley_field(order: int) -> tuple[int, int] | None:
    """(p, k) of the field GF(p^k) that gives a Hadamard matrix of this order, type I before type II."""
    if order % 4:
        return None
    return _prime_power(order - 1) or (_prime_power(order // 2 - 1) if order % 8 == 4 else None)


def _prime_power(q: int) -> tuple[int, int] | None:
    p = next((d for d in range(2, int(sqrt(q)) + 1) if q % d == 0), q)
    power = 0
    while q % p == 0 and q > 1:
        q, power = q // p, power + 1
    return (p, power) if q == 1 and power else None


def _jacobsthal(p: int, power: int) -> ndarray:
    """chi(a - b) over GF(p^power): 1 for a non-zero square, -1 for a non-square, 0 for zero."""
    q = p**power
    places = p ** np.arange(power)
    character = np.full(q, -1, dtype=np.int8)
    character[0] = 0
    character[_powers_of_generator(p, power)[::2] @ places] = 1  # even powers of a generator are the squares
    digits = np.arange(q)[:, None] // places % p
    return character[(digits[:, None] - digits[None]) % p @ places]


def _powers_of_generator(p: int, power: int) -> ndarray:
    """Digits of x^0 .. x^(q-2) modulo the first polynomial under which x generates GF(p^power)*, x^power = tail."""
    q = p**power
    one = (1,) + (0,) * (power - 1)
    for tail in product(range(p), repeat=power):
        orbit: list[tuple[int, ...]] = [one]
        element: tuple[int, ...] = one
        while len(orbit) < q:
            carry = element[-1]
            element = tuple((low + carry * t) % p for low, t in zip((0, *element[:-1]), tail, strict=True))
            if element == one:
                break
            orbit.append(element)
        # Period q - 1 means every non-zero element is a power of x, so all are invertible: the ring is a field.
        if len(orbit) == q - 1:
            return np.array(orbit)
    raise AssertionError(f"GF({p}^{power}) has a primitive polynomial")

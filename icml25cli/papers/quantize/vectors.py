"""Vectors quantised one by one along the last axis: keys, values and activations (section 4.3 of the paper).

Each vector has a scale of its own. :class:`LatticeVectors` codes it with the nested lattice, :class:`AbsmaxVectors`
with integers, as the baselines do. Knows tensors. Does not know models, or what the vectors are for.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import torch
from jaxtyping import BFloat16, Float, Float32, UInt8
from torch import Tensor

from icml25cli.core.errors import InputError
from icml25cli.core.forms import check_form
from icml25cli.papers.quantize.hessian import is_finite
from icml25cli.papers.quantize.packing import pack, stored_bits, unpack
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.voronoi import LatticeCode

# It has the range of float32, and its coarse steps cost nothing: a vector is divided by its scale as stored.
SCALE = torch.bfloat16
BLOCK = 8

NOT_FINITE = "a key, value or activation is not finite"
NOT_FINITE_HINT = "run the model in float32 or bfloat16; if it is, a weight before this one is too large"


class VectorQuantizer(Protocol):
    """What stands for a vector after quantisation, and what it costs."""

    def roundtrip(self, x: Float[Tensor, "*batch n"]) -> tuple[Float[Tensor, "*batch n"], int]:
        """Quantise and decode; zeros stay zeros. Also the number of blocks that no scale could hold.

        Raises:
            InputError: a value is not finite.
        """
        ...

    def bits(self, n: int) -> float:
        """Stored bits a value of vectors of width ``n``, the scale included."""
        ...

    def spec(self) -> dict[str, Any]:
        """What determines it, as JSON types."""
        ...


@dataclass(frozen=True)
class PackedVectors:
    """Codes of vectors with their leading axes kept, so that they are joined, cut and chosen like the vectors."""

    codes: UInt8[Tensor, "*batch bytes"]
    codes_high: UInt8[Tensor, "*batch rest"]
    scales: BFloat16[Tensor, "*batch"]

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.codes_high.nbytes + self.scales.nbytes


@dataclass(frozen=True)
class LatticeVectors:
    """The nested lattice code under a rotation, with a scale a vector.

    Attributes:
        code: for vectors of unit mean square.
        rotation: kind, as of :class:`~icml25cli.papers.quantize.rotation.Rotation`.
        seed: of the rotation.
    """

    code: LatticeCode
    rotation: str = "none"
    seed: int = 0

    def roundtrip(self, x: Float[Tensor, "*batch n"]) -> tuple[Float[Tensor, "*batch n"], int]:
        """What :meth:`pack` and :meth:`unpack` give, bit for bit, without storing codes."""
        blocks, scales = normalised(x, self.rotation, self.seed)
        done = self.code.quantize_tensor(blocks.view(-1, BLOCK))
        return self._restored(done.values.view_as(blocks), scales, x.shape).to(x.dtype), int(done.overloaded.sum())

    def pack(self, x: Float[Tensor, "*batch n"]) -> PackedVectors:
        """Codes and scales of each vector.

        Raises:
            InputError: a value is not finite.
        """
        blocks, scales = normalised(x, self.rotation, self.seed)
        done = self.code.quantize_tensor(blocks.view(-1, BLOCK))
        rows = (len(blocks), -1)
        digits, index = done.digits.view(*rows, BLOCK).cpu().numpy(), done.beta_index.view(rows).cpu().numpy()
        packed = pack(digits, index, self.code.q, len(self.code.betas))
        codes = torch.from_numpy(packed["codes"]).view(torch.uint8).reshape(len(blocks), -1)
        high = torch.from_numpy(packed["codes_high"]) if "codes_high" in packed else codes[:, :0]
        batch = x.shape[:-1]
        return PackedVectors(
            codes.to(x.device).view(*batch, -1), high.to(x.device).view(*batch, high.shape[1]), scales.view(batch)
        )

    def unpack(self, packed: PackedVectors, n: int) -> Float32[Tensor, "*batch n"]:
        """The vectors of width ``n`` that were packed."""
        blocks = -(-n // BLOCK)
        rows, device = packed.scales.numel(), packed.codes.device
        octets = packed.codes.cpu().reshape(rows, blocks, -1)
        parts = {"codes": (octets.view(torch.uint32)[..., 0] if octets.shape[2] == 4 else octets).numpy()}
        if packed.codes_high.shape[-1]:
            parts["codes_high"] = packed.codes_high.cpu().reshape(rows, -1).numpy()
        digits, index = (torch.from_numpy(a).to(device) for a in unpack(parts, self.code.q, len(self.code.betas)))
        values = self.code.decode_tensor(digits.view(-1, BLOCK), index.view(-1))
        return self._restored(values.view(rows, -1), packed.scales, (*packed.scales.shape, n))

    def bits(self, n: int) -> float:
        return stored_bits(1, n, self.code.q, len(self.code.betas), SCALE.itemsize).total / n

    def spec(self) -> dict[str, Any]:
        """What determines the code, as JSON types."""
        return {
            "name": "nestquant",
            "q": self.code.q,
            "betas": list(self.code.betas),
            "simplified": self.code.simplified,
            "rule": self.code.rule,
            "rotation": {"kind": self.rotation, "seed": self.seed},
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "LatticeVectors":
        """What :meth:`spec` described.

        Raises:
            InputError: a field is absent, malformed or out of range.
        """
        check_form(spec, {"rule": str, "rotation": {"kind": str, "seed": int}}, "a code of vectors")
        if spec["rule"] not in ("opt", "first"):
            raise InputError(f"there is no rule {spec['rule']!r} for scales", hint="restore config.json")
        kind, seed = spec["rotation"]["kind"], spec["rotation"]["seed"]
        Rotation(kind, BLOCK, seed)  # refuses what is no rotation; the width comes with the vectors
        return cls(replace(LatticeCode.from_spec(spec), rule=spec["rule"]), kind, seed)

    def distortion(self, x: Float[Tensor, "*batch n"]) -> float:
        """D: squared error of a vector over its energy, mean over the vectors that are not zero."""
        rows = x.reshape(-1, x.shape[-1]).float()
        rows = rows[rows.any(dim=1)]
        error = (rows - self.roundtrip(rows)[0]).square().sum(dim=1)
        return float((error / rows.square().sum(dim=1)).mean()) if len(rows) else 0.0

    def _restored(
        self, values: Float32[Tensor, "rows padded"], scales: BFloat16[Tensor, "*batch"], shape: tuple[int, ...]
    ) -> Float32[Tensor, "*shape"]:
        turned = values[:, : shape[-1]] * scales.reshape(-1, 1).float()
        return _rotation(self.rotation, shape[-1], self.seed).inverse(turned).view(shape)


@dataclass(frozen=True)
class AbsmaxVectors:
    """Symmetric integers up to the largest magnitude of each vector, under a rotation: the usual scheme to beat."""

    levels: int  # bits of an integer
    rotation: str = "none"
    seed: int = 0

    def roundtrip(self, x: Float[Tensor, "*batch n"]) -> tuple[Float[Tensor, "*batch n"], int]:
        """As :class:`VectorQuantizer` has it; nothing is beyond such a grid."""
        rows = x.float()
        if not is_finite(rows):
            raise InputError(NOT_FINITE, hint=NOT_FINITE_HINT)
        turn = _rotation(self.rotation, rows.shape[-1], self.seed)
        rows = turn.forward(rows)
        top = 2 ** (self.levels - 1) - 1
        scales = (rows.abs().amax(dim=-1, keepdim=True) / top).to(SCALE).float()
        steps = torch.where(scales > 0, rows / scales, 0.0).round().clamp(-top, top)
        return turn.inverse(steps * scales).to(x.dtype), 0

    def bits(self, n: int) -> float:
        return self.levels + 8 * SCALE.itemsize / n

    def spec(self) -> dict[str, Any]:
        """What determines the grid, as JSON types."""
        return {"name": "absmax", "bits": self.levels, "rotation": {"kind": self.rotation, "seed": self.seed}}


def normalised(
    x: Float[Tensor, "*batch n"], rotation: str, seed: int
) -> tuple[Float32[Tensor, "rows padded"], BFloat16[Tensor, "rows"]]:
    """Vectors rotated and over their root mean square as stored, with zeros up to a multiple of 8; and the latter.

    Raises:
        InputError: a value is not finite.
    """
    rows = x.reshape(-1, x.shape[-1]).float()
    if not is_finite(rows):
        raise InputError(NOT_FINITE, hint=NOT_FINITE_HINT)
    rows = _rotation(rotation, rows.shape[1], seed).forward(rows)
    # In float64, where no square of a float32 overflows or vanishes.
    scales = (torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) / rows.shape[1] ** 0.5).to(SCALE)
    divisor = torch.where(scales > 0, scales.float(), 1.0)[:, None]
    return torch.nn.functional.pad(rows / divisor, (0, -rows.shape[1] % BLOCK)), scales


@lru_cache(maxsize=64)
def _rotation(kind: str, n: int, seed: int) -> Rotation:
    """One object a width, as it keeps the factors it has built."""
    return Rotation(kind, n, seed)

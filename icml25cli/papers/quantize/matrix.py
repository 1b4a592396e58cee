"""One weight matrix quantised by one method under one rotation, with everything a comparison needs to know about it.

A method is a function that takes a rotated matrix and returns a :class:`Coded`; this module rotates, calls it, rotates
back and measures. Knows matrices. Does not know models, layers or files.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icml25cli.core.errors import InputError
from icml25cli.core.forms import check_form
from icml25cli.papers.quantize import scalar
from icml25cli.papers.quantize.gptq import gptq as gptq_codes
from icml25cli.papers.quantize.gptq import inverse_factor
from icml25cli.papers.quantize.hessian import DAMPING, block_ldl, is_finite
from icml25cli.papers.quantize.ldlq import BLOCK, ldlq
from icml25cli.papers.quantize.packing import (
    pack,
    pack_entropy,
    pair_bits,
    stored_bits,
    stored_entropy_bits,
    unpack,
    unpack_entropy,
)
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.voronoi import LatticeCode

NO_TOKENS = "no calibration token reached it"
NOT_DEFINITE = "its Hessian is not positive definite at any damping"


@dataclass(frozen=True)
class Coded:
    """A rotated matrix after a method, in rotated coordinates.

    ``bits`` are by purpose, exact, and sum to what is or would be stored: ``code``, ``beta`` (scale indices), ``scale``
    and ``zero_point`` by row or group, ``codebook`` (the levels or scales that all blocks share) and ``padding``.
    """

    values: Float[Tensor, "m n"]
    bits: dict[str, int]
    stored: dict[str, Tensor] = field(default_factory=dict)
    overloads: int = 0
    beta_histogram: tuple[int, ...] | None = None
    damping: float | None = None
    fallback: str | None = None


@dataclass(frozen=True)
class QuantizedMatrix:
    """What :func:`quantize_matrix` found.

    Attributes:
        weight: dequantised, (m, n) float32, in the coordinates of the original.
        stored: tensors that :func:`dequantize` reads; empty for the scalar baselines.
        meta: what else it reads, as JSON types.
        bits: as in :class:`Coded`.
        relative_proxy_loss: tr((W - W')H(W - W')^T) / tr(W H W^T), H undamped; None without H, 0 where H is 0.
        relative_noisy_loss: E|Wx - W'(x + z)|^2 / E|Wx|^2; None without a model of the noise z.
        relative_mse: |W - W'|^2 / |W|^2; 0 for a matrix of zeros.
        overloads: blocks outside the lattice code at every scale.
        beta_histogram: blocks by scale of the lattice code.
        damping: used in the feedback, relative to the mean of the diagonal of H; None without feedback.
        fallback: why a method that feeds errors forward had to round to nearest, or a library to do otherwise.
    """

    weight: Float[Tensor, "m n"]
    stored: dict[str, Tensor]
    meta: dict[str, Any]
    bits: dict[str, int]
    relative_proxy_loss: float | None
    relative_noisy_loss: float | None
    relative_mse: float
    overloads: int
    beta_histogram: tuple[int, ...] | None
    damping: float | None
    fallback: str | None


@dataclass(frozen=True)
class Noise:
    """Inputs x come with independent noise z of covariance J: x + z is what the quantised matrix is multiplied with.

    Attributes:
        signal: H = E[x x^T] in the unit of J; the Hessian itself, or that of normalised tokens.
        covariance: J, or its diagonal.
    """

    signal: Float[Tensor, "n n"]
    covariance: Float[Tensor, "n n"] | Float[Tensor, "n"]

    @property
    def total(self) -> Float[Tensor, "n n"]:
        """H + J, a new tensor."""
        j = self.covariance
        return self.signal + (torch.diag(j) if j.ndim == 1 else j)

    def best(self, weight: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
        """U* = W H (H + J)^-1, which minimises E|Wx - U(x + z)|^2 over all real U; W where H + J is singular."""
        factor, info = torch.linalg.cholesky_ex(self.total)
        if info:
            return weight
        # As W - W J (H + J)^-1, where what J does not touch is not rounded.
        j = self.covariance
        return weight - torch.cholesky_solve(j @ weight.T if j.ndim == 2 else j[:, None] * weight.T, factor).T

    def loss(self, weight: Float[Tensor, "m n"], used: Float[Tensor, "m n"]) -> float:
        """E|Wx - U(x + z)|^2 over E|Wx|^2."""
        j = self.covariance
        extra = quadratic(used, j) if j.ndim == 2 else float((used.square() * j).sum(dtype=torch.float64))
        return _ratio(quadratic(weight - used, self.signal) + extra, quadratic(weight, self.signal))


# Makes a rotated Hessian, which its caller may overwrite and drop so that none outlives its use; None without tokens.
Hessian = Callable[[], Float[Tensor, "n n"]] | None
# Takes the rotated weight, which it must not change, its Hessian, and the damping to begin with.
Quantize = Callable[[Float[Tensor, "m n"], Hessian, float], Coded]


@dataclass(frozen=True)
class Method:
    """A way to code a matrix: its name, whether it reads the Hessian, what else determines it, and the function."""

    name: str
    calibrated: bool
    options: dict[str, Any]
    quantize: Quantize

    def spec(self) -> dict[str, Any]:
        """Name and options, as JSON types: equal specs code equally."""
        return {"name": self.name, **self.options}


def nestquant(code: LatticeCode, *, ldlq: bool = True, entropy: bool = False) -> Method:
    """The nested E8 code with a scale a row, with feedback unless ``ldlq`` is False, in the entropy form if asked.

    Raises:
        InputError: the entropy form is asked for, and q is too large for it.
    """
    if entropy:
        pair_bits(code.q)
    options: dict[str, Any] = {"q": code.q, "betas": list(code.betas), "ldlq": ldlq}
    # What is not the default is named, so that descriptions written before there was a choice mean what they meant.
    options |= {"simplified": True} if code.simplified else {}
    options |= {"rule": code.rule} if code.rule != "opt" else {}
    options |= {"entropy": True} if entropy else {}
    return Method("nestquant", ldlq, options, partial(_nestquant, code, ldlq, entropy))


def rtn(bits: int = 4, group_size: int | None = 128) -> Method:
    """Rounding to nearest on asymmetric integer grids by group (None: by row)."""
    return Method("rtn", False, {"bits": bits, "group_size": group_size}, partial(_rtn, bits, group_size))


def gptq(bits: int = 4, group_size: int | None = 128) -> Method:
    """GPTQ on asymmetric integer grids by group (None: by row)."""
    return Method("gptq", True, {"bits": bits, "group_size": group_size}, partial(_gptq, bits, group_size))


def nf4() -> Method:
    """4-bit NormalFloat by 64 columns."""
    return Method("nf4", False, {}, _nf4)


def absmax(bits: int = 4) -> Method:
    """Rounding to nearest on a symmetric integer grid by row."""
    return Method("absmax", False, {"bits": bits}, partial(_absmax, bits))


def quantize_matrix(
    weight: Float[Tensor, "m n"],
    hessian: Float[Tensor, "n n"] | None,
    method: Method,
    rotation: Rotation,
    *,
    noise: Noise | None = None,
    damping: float = DAMPING,
    name: str = "weight",
) -> QuantizedMatrix:
    """Rotate, code, rotate back, and measure. Arguments are left as they are.

    With ``noise`` this is QA-LDLQ (section 4.5): what is coded is the matrix that does best on noisy inputs, with H + J
    in the place of H.

    Args:
        weight: one output a row.
        hessian: E[x x^T] of the inputs, unrotated, float32, or None where no input was seen.
        rotation: of the input dimension, ``rotation.n == n``.
        noise: of the inputs, unrotated.
        damping: relative to the mean of the Hessian's diagonal.
        name: of the tensor, for messages.

    Raises:
        InputError: the weight or the Hessian is not finite, or shapes disagree; the message says ``name``.
    """
    weight = weight.detach().float()
    if not is_finite(weight):
        raise InputError(f"{name} holds a value that is not finite", hint="the checkpoint is damaged; fetch it again")
    n = weight.shape[1]
    if hessian is not None:
        hessian = hessian.float()
        if hessian.shape != (n, n):
            raise InputError(f"the Hessian of {name} has shape {tuple(hessian.shape)}, its inputs are {n} wide")
        if not is_finite(hessian):
            raise InputError(f"the Hessian of {name} holds a value that is not finite")

    target, guide = weight, None if hessian is None or not hessian.diagonal().any() else hessian
    if noise and guide is not None:
        target, guide = noise.best(weight), noise.total
    turned = None if guide is None else partial(_rotated, guide, rotation)
    coded = method.quantize(rotation.forward(target), turned, damping)
    restored = rotation.inverse(coded.values)
    error = weight - restored
    loss = None if hessian is None else _ratio(quadratic(error, hessian), quadratic(weight, hessian))
    return QuantizedMatrix(
        weight=restored,
        stored=coded.stored,
        meta={"method": method.spec(), "rotation": rotation.spec()},
        bits=coded.bits,
        relative_proxy_loss=loss,
        relative_noisy_loss=noise.loss(weight, restored) if noise else None,
        relative_mse=_ratio(_energy(error), _energy(weight)),
        overloads=coded.overloads,
        beta_histogram=coded.beta_histogram,
        damping=coded.damping,
        fallback=coded.fallback,
    )


def dequantize(stored: dict[str, Tensor], meta: dict[str, Any]) -> Float[Tensor, "m n"]:
    """The weight that ``stored`` and ``meta`` of a :class:`QuantizedMatrix` of nestquant stand for, bit for bit.

    Raises:
        InputError: codes or scales are missing, out of range, or do not fit each other or the rotation.
    """
    check_form(meta, {"method": dict, "rotation": dict}, "the description of the codes")
    code, rotation = LatticeCode.from_spec(meta["method"]), Rotation.from_spec(meta["rotation"])
    kept = stored.get("scales")
    if kept is None or kept.dtype not in (torch.float16, torch.float32) or kept.ndim != 1 or not is_finite(kept):
        raise InputError(
            "row scales are missing, or are not finite numbers of 16 or 32 bits", hint="the file is damaged"
        )
    if any(tensor.dtype not in (torch.uint8, torch.uint32) for part, tensor in stored.items() if part != "scales"):
        raise InputError("codes are not unsigned integers", hint="the file is damaged")
    packed = {part: tensor.cpu().numpy() for part, tensor in stored.items()}
    scale = packed.pop("scales")
    blocks = -(-rotation.n // BLOCK)
    entropy = meta["method"].get("entropy", False)
    check_form(entropy, bool, "'entropy' of the lattice code")
    if entropy:
        digits, beta_index = unpack_entropy(packed, code.q, len(code.betas), blocks)
    else:
        digits, beta_index = unpack(packed, code.q, len(code.betas))
    if beta_index.shape != (len(scale), blocks):
        raise InputError(f"codes of shape {beta_index.shape} do not fit {len(scale)} rows of {rotation.n} weights")
    values = code.decode(digits.reshape(-1, BLOCK), beta_index.ravel()).reshape(len(scale), -1)
    return rotation.inverse(_scaled(torch.from_numpy(values), torch.from_numpy(scale), rotation.n))


def _rotated(hessian: Float[Tensor, "n n"], rotation: Rotation) -> Float[Tensor, "n n"]:
    turned = rotation.conjugate(hessian)
    return turned.clone() if turned is hessian else turned


def quadratic(rows: Float[Tensor, "m n"], hessian: Float[Tensor, "n n"]) -> float:
    """tr(X H X^T) for a symmetric H, from its lower half: m n^2 flops, summed in float64."""
    total = 0.0
    for start in range(0, len(hessian), 512):
        stop = start + 512
        product = rows[:, stop:] @ hessian[stop:, start:stop] * 2
        product.addmm_(rows[:, start:stop], hessian[start:stop, start:stop])
        total += float(product.mul_(rows[:, start:stop]).sum(dtype=torch.float64))
    return total


def _nestquant(
    code: LatticeCode, feedback: bool, entropy: bool, weight: Tensor, hessian: Hessian, damping: float
) -> Coded:
    m, n = weight.shape
    blocks = -(-n // BLOCK)
    rms = (torch.linalg.vector_norm(weight, dim=1, dtype=torch.float64) / n**0.5).float()
    scale = rms.to(scalar.storable(rms))
    normal = weight.new_zeros(m, blocks * BLOCK)
    # A row of zeros has scale 0 and is coded as it is.
    torch.div(weight, torch.where(scale > 0, scale.float(), 1.0)[:, None], out=normal[:, :n])
    digits = torch.empty((m, blocks, BLOCK), dtype=torch.uint8, device=weight.device)
    beta_index = torch.empty((m, blocks), dtype=torch.uint8, device=weight.device)
    overloads = torch.zeros((), dtype=torch.int64, device=weight.device)

    def quantize(block: int, target: Float[Tensor, "m 8"]) -> Float[Tensor, "m 8"]:
        done = code.quantize_tensor(target)
        digits[:, block], beta_index[:, block] = done.digits, done.beta_index
        overloads.add_(done.overloaded.sum())
        return done.values

    factor, fallback = None, None
    if feedback:
        factor = hessian and block_ldl(_pad(hessian(), blocks * BLOCK), BLOCK, damping)
        fallback = None if factor else NOT_DEFINITE if hessian else NO_TOKENS
    if factor:
        values = ldlq(normal, factor.matrix, quantize)
    else:
        values = torch.empty_like(normal)
        for block in range(blocks):
            columns = slice(block * BLOCK, (block + 1) * BLOCK)
            values[:, columns] = quantize(block, normal[:, columns].contiguous())
    codes, scale_bytes = (digits.cpu().numpy(), beta_index.cpu().numpy()), scale.element_size()
    if entropy:
        packed = pack_entropy(*codes, code.q)
        sizes = stored_entropy_bits(m, n, code.q, packed["beta_zstd"].nbytes, scale_bytes)
    else:
        packed = pack(*codes, code.q, len(code.betas))
        sizes = stored_bits(m, n, code.q, len(code.betas), scale_bytes)
    whole = round(sizes.code), round(sizes.beta), round(sizes.scale)
    return Coded(
        _scaled(values, scale, n),
        _bits(
            code=whole[0],
            beta=whole[1],
            scale=whole[2],
            codebook=32 * len(code.betas),
            padding=round(sizes.total) - sum(whole),
        ),
        stored={part: torch.from_numpy(array) for part, array in packed.items()} | {"scales": scale},
        overloads=int(overloads),
        beta_histogram=tuple(torch.bincount(beta_index.ravel(), minlength=len(code.betas)).tolist()),
        damping=factor and factor.damping,
        fallback=fallback,
    )


def _gptq(bits: int, group_size: int | None, weight: Tensor, hessian: Hessian, damping: float) -> Coded:
    factor = hessian and inverse_factor(hessian(), damping)
    if not factor:
        return replace(
            _rtn(bits, group_size, weight, hessian, damping), fallback=NOT_DEFINITE if hessian else NO_TOKENS
        )
    done = gptq_codes(weight, factor.matrix, bits, group_size)
    return Coded(done.values, _grid_bits(done, bits), damping=factor.damping)


def _rtn(bits: int, group_size: int | None, weight: Tensor, _hessian: Hessian, _damping: float) -> Coded:
    done = scalar.rtn(weight, bits, group_size)
    return Coded(done.values, _grid_bits(done, bits))


def _absmax(bits: int, weight: Tensor, _hessian: Hessian, _damping: float) -> Coded:
    done = scalar.absmax(weight, bits)
    return Coded(done.values, _grid_bits(done, bits))


def _nf4(weight: Tensor, _hessian: Hessian, _damping: float) -> Coded:
    done = scalar.nf4(weight)
    return Coded(done.values, _grid_bits(done, 4) | {"codebook": 32 * len(scalar.nf4_levels())})


def _grid_bits(done: scalar.ScalarCode, bits: int) -> dict[str, int]:
    zero_points = 0 if done.zero_point is None else done.zero_point.numel()
    return _bits(
        code=bits * done.codes.numel(),
        scale=8 * done.scale.numel() * done.scale.element_size(),
        zero_point=bits * zero_points,
    )


def _bits(
    *, code: int, scale: int, beta: int = 0, zero_point: int = 0, codebook: int = 0, padding: int = 0
) -> dict[str, int]:
    return {
        "code": code,
        "beta": beta,
        "scale": scale,
        "zero_point": zero_point,
        "codebook": codebook,
        "padding": padding,
    }


def _scaled(values: Float[Tensor, "m padded"], scale: Float[Tensor, "m"], n: int) -> Float[Tensor, "m n"]:
    """Row scales put back and padding cut off; shared, so that encoder and decoder round alike."""
    return values[:, :n] * scale[:, None].float()


def _pad(hessian: Float[Tensor, "n n"], width: int) -> Float[Tensor, "width width"]:
    """Add coordinates independent of all others, of average energy so that relative damping keeps its meaning."""
    n = len(hessian)
    if n == width:
        return hessian
    padded = hessian.new_zeros(width, width)
    padded[:n, :n] = hessian
    padded.diagonal()[n:] = hessian.diagonal().mean()
    return padded


def _energy(x: Float[Tensor, "m n"]) -> float:
    """Sum of squares, in float32 along a row and in float64 over rows; no second matrix."""
    return float(torch.linalg.vector_norm(x, dim=1).double().square().sum())


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0 if not part else float("inf")

"""A matrix that stays in memory as codes, and the description of a directory of such matrices.

Knows what ``quantization_config`` of a packed directory says and how one matrix multiplies. Does not know files, model
classes, or how codes were found.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icml25cli.core.errors import InputError, UsageError, about
from icml25cli.core.forms import check_form
from icml25cli.papers.quantize.arrays import FORMAT
from icml25cli.papers.quantize.lattice import TIE_OFFSET_1024
from icml25cli.papers.quantize.multiply import check_codes, multiply
from icml25cli.papers.quantize.packing import block_bits, pack, pair_bits, unpack_entropy
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.vectors import LatticeVectors
from icml25cli.papers.quantize.voronoi import LatticeCode

QUANT_METHOD = "nestquant"
VECTORS = ("keys", "values", "activations")
PARTS = ("codes", "codes_high", "beta_zstd", "scales")  # what a directory may hold of a matrix
EPSILON = [[numerator, 1024] for numerator in TIE_OFFSET_1024]

_FORM = {
    "quant_method": str,
    "format": str,
    "epsilon": [[int]],
    "method": dict,
    "rotation": {"kind": str, "seed": int},
    "tensors": {str: {"width": int, "transposed": bool}},
}


@dataclass(frozen=True)
class PackedMatrix:
    """How one matrix of a packed directory is stored.

    Attributes:
        code: that its blocks are coded in.
        rotation: of its inputs, whose number is ``rotation.n``.
        transposed: its module keeps weights as (in, out), as transformers' Conv1D does.
        entropy: codes are stored in the entropy form of ``packing``.
    """

    code: LatticeCode
    rotation: Rotation
    transposed: bool
    entropy: bool

    @property
    def blocks(self) -> int:
        """Of a row."""
        return -(-self.rotation.n // 8)

    def parts(self, rows: int, scales: torch.dtype, beta_bytes: int = 0) -> dict[str, Tensor]:
        """What is stored for ``rows`` outputs, as tensors without storage.

        Args:
            scales: dtype of row scales.
            beta_bytes: of compressed scale indices, in the entropy form.
        """
        q, k = self.code.q, len(self.code.betas)
        numbers, bits = (-(-self.blocks // 2), pair_bits(q)) if self.entropy else (self.blocks, block_bits(q, k))
        whole, rest = divmod(bits, 8)
        form = ((rows, numbers), torch.uint32) if whole == 4 else ((rows, numbers, whole), torch.uint8)
        parts = {"codes": form, "scales": ((rows,), scales)}
        if rest:
            parts["codes_high"] = ((rows, -(-numbers * rest // 8)), torch.uint8)
        if self.entropy:
            parts["beta_zstd"] = ((beta_bytes,), torch.uint8)
        return {name: torch.empty(shape, dtype=dtype, device="meta") for name, (shape, dtype) in parts.items()}


@dataclass(frozen=True)
class PackedSpec:
    """What ``quantization_config`` says: the matrices, by the name that takes ``.codes`` in the files."""

    matrices: Mapping[str, PackedMatrix]
    keys: LatticeVectors | None = None
    values: LatticeVectors | None = None
    activations: LatticeVectors | None = None

    @classmethod
    def parse(cls, described: Any, where: object) -> "PackedSpec":
        """Read the value of ``quantization_config``.

        Args:
            where: for messages.

        Raises:
            InputError: it is of another format or version, lacks a field, or a value is out of range.
        """
        check_form(described, _FORM, where)
        known = (described["quant_method"], described["format"], described["epsilon"])
        if known != (QUANT_METHOD, FORMAT, EPSILON):
            raise InputError(f"{where} holds codes of another format", hint="a newer version may read them")
        method, rotation = described["method"], described["rotation"]
        with about(where):
            code = LatticeCode.from_spec(method)
            check_form(entropy := method.get("entropy", False), bool, "'entropy' of the lattice code")
            _ = pair_bits(code.q) if entropy else block_bits(code.q, len(code.betas))  # may be more than fit
            widths = {entry["width"] for entry in described["tensors"].values()}
            rotations = {width: Rotation(rotation["kind"], width, rotation["seed"]) for width in widths}
            vectors = {kind: LatticeVectors.from_spec(described[kind]) for kind in VECTORS if kind in described}
        return cls(
            {
                name: PackedMatrix(code, rotations[entry["width"]], entry["transposed"], entropy)
                for name, entry in described["tensors"].items()
            },
            **vectors,
        )


class PackedLinear(nn.Module):
    """y = W x + b from codes that stand for a rotated W with normalised rows.

    y = s ∘ (decode(codes) (x R)) + b, in float32, returned in the dtype of x. Buffers are named and laid out as in the
    files, and scales keep their dtype whatever the model is cast to. For inference alone. Once the buffers are filled
    :meth:`settle` must be called.

    Args:
        matrix: how it is stored.
        parts: buffers to be filled, as ``matrix.parts`` gives them.
        bias: a parameter of as many values as there are outputs, or None.
    """

    codes: Tensor
    codes_high: Tensor | None
    beta_zstd: Tensor | None
    scales: Tensor
    activations: LatticeVectors | None = None  # how x is quantised first, where it is

    def __init__(self, matrix: PackedMatrix, parts: dict[str, Tensor], bias: nn.Parameter | None) -> None:
        super().__init__()
        self.matrix = matrix
        self.in_features, self.out_features = matrix.rotation.n, len(parts["scales"])
        for name in PARTS:
            self.register_buffer(name, parts.get(name))
        self.bias = bias
        # Modelling code asks the weight of a matrix for its dtype, or fills it, though nothing may be there to fill.
        self.register_buffer("weight", torch.empty(0), persistent=False)

    def forward(self, x: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch rows"]:
        """The product, on the device of the codes."""
        return _Product.apply(x, self)

    def stored(self) -> dict[str, Tensor]:
        """What is stored, as ``PackedMatrix.parts`` lays it out."""
        return {name: tensor for name in PARTS if (tensor := self._buffers[name]) is not None}

    def settle(self) -> None:
        """Check that every code is in range and every scale finite, and bring the entropy form to the plain one.

        Raises:
            InputError: they are not, or the buffers have no storage.
        """
        if self.scales.is_meta or self.codes.is_meta:
            raise InputError("codes cannot be checked on the meta device", hint="load them onto one that holds them")
        if not self.scales.isfinite().all():
            raise InputError("a row scale is not finite", hint="the file is damaged")
        code = self.matrix.code
        if not self.matrix.entropy:
            check_codes(self.codes, self._high(), code)
            return
        arrays = {name: tensor.cpu().numpy() for name, tensor in self.stored().items() if name != "scales"}
        digits, beta_index = unpack_entropy(arrays, code.q, len(code.betas), self.matrix.blocks)
        packed = pack(digits, beta_index, code.q, len(code.betas))
        for name in ("codes", "codes_high"):
            setattr(self, name, torch.from_numpy(packed[name]).to(self.scales.device) if name in packed else None)
        self.beta_zstd = None
        self.matrix = replace(self.matrix, entropy=False)

    def extra_repr(self) -> str:
        code = self.matrix.code
        return f"in_features={self.in_features}, out_features={self.out_features}, q={code.q}, k={len(code.betas)}"

    def _high(self) -> Tensor:
        if self.codes_high is None:
            return torch.empty(self.out_features, 0, dtype=torch.uint8, device=self.codes.device)
        return self.codes_high

    def _product(self, x: Tensor) -> Tensor:
        x = self.activations.roundtrip(x)[0] if self.activations else x
        turned = self.matrix.rotation.forward(x.reshape(-1, self.in_features).float())
        y = multiply(turned, self.codes, self._high(), self.matrix.code).mul_(self.scales.float())
        if self.bias is not None:
            y += self.bias.float()
        return y.reshape(*x.shape[:-1], self.out_features).to(x.dtype)

    def _apply(self, fn: Any, recurse: bool = True) -> "PackedLinear":
        scales = self.scales
        super()._apply(fn, recurse)
        if not scales.is_meta:  # in fewer bits they would no longer be the scales that were written
            self.scales = scales.to(self.codes.device)
        return self


class _Product(torch.autograd.Function):
    """So that a backward pass through codes says what is wrong, instead of leaving gradients out."""

    @staticmethod
    def forward(_: Any, x: Tensor, linear: PackedLinear) -> Tensor:
        return linear._product(x)

    @staticmethod
    def backward(_: Any, *__: Tensor) -> Any:
        raise UsageError(
            "a model of packed codes cannot be trained", hint="model.dequantize() makes it an ordinary one that can"
        )

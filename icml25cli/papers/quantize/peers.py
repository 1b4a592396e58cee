"""Other libraries' 4-bit weights as methods of the comparison: hqq, torchao, optimum-quanto, bitsandbytes.

Each quantises a matrix and brings it back by its own code at its own defaults, and is charged for every number it would
keep: codes, scales, zero points, codebooks; not for descriptions. A library is imported only when it is asked for, and
one that is absent, or does not work here, costs its row and not the run. Knows these libraries. Does not know what is
compared with them.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from icml25cli.core.models import first_line
from icml25cli.core.progress import warn
from icml25cli.papers.quantize.matrix import Coded, Hessian, Method

ALL = "peers"
PANEL = 1024  # columns of torchao's weights that are multiplied with one identity


@dataclass(frozen=True)
class Peer:
    """A library: the package it comes in, what determines its codes, and the function that asks it for them."""

    package: str
    options: dict[str, Any]
    code: Callable[[Float[Tensor, "m n"]], Coded]


def usable(names: Sequence[str]) -> tuple[str, ...]:
    """``names`` with ``peers`` spelt out, without those whose library cannot be used here: of each it warns."""
    spelt = dict.fromkeys(peer for name in names for peer in (PEERS if name == ALL else (name,)))
    return tuple(name for name in spelt if name not in PEERS or _works(name))


def peer(name: str) -> Method:
    """The method called ``name``, one of ``PEERS`` whose library is installed; its version is part of what it is."""
    chosen = PEERS[name]
    options = {"version": version(chosen.package), **chosen.options}
    return Method(name, False, options, partial(_quantize, chosen))


def _works(name: str) -> bool:
    package = PEERS[name].package
    try:
        release = version(package)
    except PackageNotFoundError:
        warn(f"{name} is not installed, its row is left out: pip install {package}")
        return False
    try:
        with _quiet():
            PEERS[name].code(torch.randn(128, 256, generator=torch.Generator().manual_seed(0)))
    except Exception as error:  # whatever a library, or what it is built on, may raise
        warn(f"{package} {release} does not work here, its row is left out: {first_line(error)}")
        return False
    return True


def _quantize(chosen: Peer, weight: Float[Tensor, "m n"], _hessian: Hessian, _damping: float) -> Coded:
    try:
        with _quiet():
            return chosen.code(weight)
    except Exception as error:  # one matrix that a library does not take; its own loaders leave it in float as well
        kept = _bits(codes=weight, scales=())
        return Coded(weight.clone(), kept, fallback=f"left in float, as {chosen.package} says: {first_line(error)}")


def _hqq(weight: Float[Tensor, "m n"]) -> Coded:
    """Half-quadratic quantisation in groups of at most 64; scales and zero points in float16."""
    library = import_module("hqq.core.quantize")
    m, n = weight.shape
    # It puts two codes into a byte, from two groups, and its configuration takes multiples of eight.
    group = next((g for g in range(64, 0, -8) if n % g == 0 and m * (n // g) % 2 == 0), None)
    if group is None:
        raise ValueError(f"no group of whole bytes divides {m} rows of {n}")
    settings = library.BaseQuantizeConfig(nbits=4, group_size=group)["weight_quant_params"]
    codes, meta = library.Quantizer.quantize(weight, device=str(weight.device), **settings)
    meta["compute_dtype"] = torch.float16
    codes, meta = library.Quantizer.to_ooplace(codes, meta, device=weight.device)
    values = library.Quantizer.dequantize(codes, meta).float()
    bits = _bits(codes=codes, scales=(meta["scale"],), zero_points=(meta["zero"],))
    return Coded(values, bits, fallback=_narrower(group, 64, n))


def _torchao(weight: Float[Tensor, "m n"]) -> Coded:
    """The 4-bit form of its CPU kernel, in groups of at most 128; scales and zero points in bfloat16.

    That form comes back only through the kernel, as the product with an identity, which is exact.
    """
    library = import_module("torchao.prototype.quantization.int4")
    n = weight.shape[1]
    group = next((g for g in (128, 64, 32) if n % g == 0), None)
    if group is None:
        raise ValueError(f"groups of 32, 64 or 128 do not divide {n} columns")
    panels = [
        library.Int4OpaqueTensor.from_hp(panel.contiguous(), [1, group])
        for panel in weight.cpu().bfloat16().split(PANEL, dim=1)
    ]
    values = [
        torch.nn.functional.linear(torch.eye(panel.shape[1], dtype=torch.bfloat16), panel).T.float() for panel in panels
    ]
    codes = torch.cat([panel.qdata.flatten() for panel in panels])
    pairs = torch.cat([panel.scale_and_zero.flatten(end_dim=1) for panel in panels])
    bits = _bits(codes=codes, scales=(pairs[:, 0],), zero_points=(pairs[:, 1],))
    return Coded(torch.cat(values, dim=1).to(weight.device), bits, fallback=_narrower(group, 128, n))


def _quanto(weight: Float[Tensor, "m n"]) -> Coded:
    """qint4 in groups of at most 128, or by row, as its linear layers choose; scales and shifts in float16."""
    library = import_module("optimum.quanto")
    n = weight.shape[1]
    group = next((g for g in (128, 96, 64, 32) if n % g == 0), None) if n > 128 else None
    half = weight.half()
    scale, shift = library.MaxOptimizer()(half, library.qint4, 0, group)
    coded = library.quantize_weight(half, library.qint4, 0, scale, shift, group, optimized=False)
    packed = coded._data
    # Its codes before it packed them: what unpacks them compiles C++ on first use, for minutes, and if that is cut
    # short waits for ever on the lock it left behind.
    coded._data = torch.ops.quanto.quantize_affine(half, 4, 0, group, scale, shift)
    bits = _bits(codes=packed._data, scales=(scale,), zero_points=(shift,))
    return Coded(coded.dequantize().float(), bits, fallback=_narrower(group or n, 128, n))


def _bitsandbytes(weight: Float[Tensor, "m n"]) -> Coded:
    """NF4 in blocks of 64 with the maxima of blocks quantised in turn, to 8 bits in blocks of 256."""
    library = import_module("bitsandbytes.functional")
    # Blocks run over the matrix as one row after another. Given the matrix itself, its CPU kernel brings rows that are
    # not whole blocks back wrong.
    flat = weight.flatten()
    codes, state = library.quantize_4bit(flat, blocksize=64, compress_statistics=True, quant_type="nf4")
    bits = _bits(
        codes=codes,
        scales=(state.absmax, state.state2.absmax, state.offset),
        codebook=(state.code, state.state2.code),
    )
    return Coded(library.dequantize_4bit(codes, state).view_as(weight), bits)


PEERS = {
    "hqq": Peer("hqq", {"bits": 4, "group_size": 64}, _hqq),
    "torchao": Peer("torchao", {"bits": 4, "group_size": 128}, _torchao),
    "quanto": Peer("optimum-quanto", {"bits": 4, "group_size": 128}, _quanto),
    "bitsandbytes": Peer("bitsandbytes", {"type": "nf4", "group_size": 64, "double_quantized": True}, _bitsandbytes),
}


def _narrower(group: int, usual: int, n: int) -> str | None:
    return None if group == usual else f"a group is {group} of its {n} columns, usually {usual}"


def _bits(
    *, codes: Tensor, scales: Sequence[Tensor], zero_points: Sequence[Tensor] = (), codebook: Sequence[Tensor] = ()
) -> dict[str, int]:
    """Bits of tensors as they are stored, under the names that :class:`Coded` has for them."""
    sizes = {"code": (codes,), "beta": (), "scale": scales, "zero_point": zero_points, "codebook": codebook}
    return {part: 8 * sum(tensor.nbytes for tensor in tensors) for part, tensors in sizes.items()} | {"padding": 0}


@contextmanager
def _quiet() -> Iterator[None]:
    """Libraries log, when they are imported, of kernels that they would have on another machine."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)

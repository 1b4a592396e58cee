"""Packed directories of any model in seconds: rounded to the nearest codes, without calibration or judging."""

import json
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor
from transformers.pytorch_utils import Conv1D

from icml25cli.core.models import resolve
from icml25cli.core.streaming import StreamedModel, write_checkpoint
from icml25cli.papers.quantize.arrays import FORMAT
from icml25cli.papers.quantize.lattice import TIE_OFFSET_1024
from icml25cli.papers.quantize.matrix import nestquant, quantize_matrix
from icml25cli.papers.quantize.rotation import Rotation
from icml25cli.papers.quantize.voronoi import LatticeCode

BETAS = (3.5, 4.25, 5.25, 8.0, 9.0, 11.0, 14.0, 18.0)  # times q


def make_packed(
    target: Path,
    source: Path | str,
    *,
    q: int = 14,
    k: int = 4,
    rotation: str = "random-hadamard",
    entropy: bool = False,
    decoded: bool = False,
) -> Path:
    """Write the packed form of a model, or with ``decoded`` the plain bfloat16 form of the same codes."""
    model = StreamedModel(resolve(source))
    method = nestquant(LatticeCode(q, tuple(beta / q for beta in BETAS[:k])), ldlq=False, entropy=entropy)
    described = {}

    def blocks() -> Iterator[dict[str, Tensor]]:
        for i in range(model.block_count):
            tensors = model.block_tensors(i)
            with model.block(i) as block:
                for name, linear in model.linears(block).items():
                    weight = linear.weight
                    turned = Rotation(rotation, weight.shape[1], 0)
                    done = quantize_matrix(weight, None, method, turned)
                    path = model.block_prefix(i) + name
                    if decoded:
                        tensors[f"{path}.weight"] = linear.oriented(done.weight)
                        continue
                    del tensors[f"{path}.weight"]
                    tensors |= {f"{path}.{part}": tensor for part, tensor in done.stored.items()}
                    transposed = isinstance(linear.module, Conv1D)
                    described[path] = {"width": weight.shape[1], "transposed": transposed}
            yield tensors

    target.mkdir()
    write_checkpoint(target, model.source, blocks())
    if not decoded:
        config = json.loads((target / "config.json").read_text())
        config["quantization_config"] = {
            "quant_method": "nestquant",
            "format": FORMAT,
            "epsilon": [[numerator, 1024] for numerator in TIE_OFFSET_1024],
            "method": method.spec(),
            "rotation": {"kind": rotation, "seed": 0},
            "tensors": described,
        }
        (target / "config.json").write_text(json.dumps(config))
    return target

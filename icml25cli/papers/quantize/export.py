"""A quantised model as directories: plain bfloat16 for any engine, and packed codes with their loader.

A packed directory is laid out like any Hugging Face model, one safetensors shard a decoder block, but a quantised
linear ``NAME`` has ``NAME.codes``, ``NAME.codes_high`` and ``NAME.scales`` in place of ``NAME.weight``, and
``config.json`` says under ``quantization_config`` how to decode them. Knows files of models and codes. Does not know
how codes were found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from icml25cli.core.architecture import build, match_names
from icml25cli.core.checkpoint import StoredTensor, read_tensors, tensor_index
from icml25cli.core.errors import InputError, UsageError, about
from icml25cli.core.files import output_errors
from icml25cli.core.models import checked, quiet_transformers, resolve, runnable
from icml25cli.core.streaming import write_checkpoint
from icml25cli.papers.quantize import pipeline
from icml25cli.papers.quantize.arrays import FORMAT
from icml25cli.papers.quantize.job import Job
from icml25cli.papers.quantize.matrix import dequantize
from icml25cli.papers.quantize.packed import EPSILON, QUANT_METHOD, PackedMatrix, PackedSpec
from icml25cli.papers.quantize.pipeline import Scope
from icml25cli.papers.quantize.plan import LATTICE
from icml25cli.papers.quantize.rotation import Rotation

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def write_model(job: Job, directory: Path, kinds: tuple[str, ...]) -> list[str]:
    """Write ``directory/bf16`` and ``directory/packed``, as ``kinds`` asks; returns their names.

    The caller commits ``directory`` or throws it away (``runs.commit_output``).

    Raises:
        UsageError: the packed form of a method that has none is asked for.
        OutputError: the disk is full.
    """
    packable = job.plan.candidates[0].method.name in LATTICE
    if kinds == ("packed",) and not packable:
        raise UsageError("only nestquant has a packed form here", hint="use --format bf16")
    written = [kind for kind in kinds if kind == "bf16" or packable]
    for kind in written:
        target = directory / kind
        with output_errors(target, target):
            target.mkdir()
            if kind == "bf16":
                write_checkpoint(target, job.model.source, _decoded_blocks(job))
            else:
                write_checkpoint(target, job.model.source, _packed_blocks(job))
                _describe(job, target / "config.json")
    return written


def load_packed(directory: Path | str) -> PreTrainedModel:
    """The model in a packed directory as an ordinary float32 transformers model, its codes decoded.

    Nothing is decoded before config, description and headers agree.

    Raises:
        InputError: the directory is not one of packed codes, a field of its description is missing or malformed, or its
            codes are damaged, or a tensor is missing.
    """
    from transformers import AutoConfig

    source = resolve(directory)
    directory = source.path
    described = source.config.get("quantization_config")
    if not isinstance(described, dict) or described.get("quant_method") != QUANT_METHOD:
        raise InputError(
            f"{directory} is no directory of packed codes", hint="icml25 quantize MODEL -o DIR writes DIR/packed"
        )
    matrices = PackedSpec.parse(described, f"quantization_config of {directory / 'config.json'}").matrices
    index = tensor_index(directory)
    config: Any = AutoConfig.from_pretrained(str(directory), local_files_only=True)
    del config.quantization_config
    empty = build(config, index, directory)
    match_names(empty, _decoded_index(index, matrices, directory), directory)
    stored: dict[str, dict[str, Tensor]] = {name: {} for name in matrices}
    state: dict[str, Tensor] = {}
    for name, tensor in read_tensors(index, list(index)):
        owner, _, part = name.rpartition(".")
        if owner in stored and part != "bias":
            stored[owner][part] = tensor
        else:
            state[name] = tensor.float() if tensor.is_floating_point() else tensor
    for name, parts in stored.items():
        with about(f"{directory}: {name}"):
            weight = dequantize(parts, {"method": described["method"], "rotation": matrices[name].rotation.spec()})
        state[f"{name}.weight"] = weight.T if matrices[name].transposed else weight
    with quiet_transformers(), runnable(directory):
        loaded: Any = type(empty).from_pretrained(
            None, config=config, state_dict=state, dtype=torch.float32, output_loading_info=True
        )
    model, loading = loaded
    return checked(model, loading, directory)


def _decoded_index(
    index: dict[str, StoredTensor], matrices: Mapping[str, PackedMatrix], directory: Path
) -> dict[str, StoredTensor]:
    """The headers that the files would have, were their codes decoded."""
    decoded = {
        name: tensor
        for name, tensor in index.items()
        if name.rpartition(".")[0] not in matrices or name.endswith(".bias")
    }
    for name, matrix in matrices.items():
        scales = index.get(f"{name}.scales")
        if scales is None or len(scales.shape) != 1:
            raise InputError(f"{directory} lacks the row scales {name}.scales", hint="the files are damaged")
        shape = (scales.shape[0], matrix.rotation.n)
        decoded[f"{name}.weight"] = StoredTensor(scales.file, "F32", shape[::-1] if matrix.transposed else shape)
    return decoded


def _decoded_blocks(job: Job) -> Iterator[dict[str, Tensor]]:
    method = job.plan.candidates[0].method.spec()
    for index in range(job.model.block_count):
        tensors = job.model.block_tensors(index)
        for name, (parts, linear) in _coded(job, index).items():
            weight = parts.get("weight")
            if weight is None:
                rotation = Rotation(job.plan.candidates[0].rotation, linear.weight.shape[1], job.plan.seed)
                weight = dequantize(parts, {"method": method, "rotation": rotation.spec()})
            tensors[f"{name}.weight"] = linear.oriented(weight)
        yield tensors


def _packed_blocks(job: Job) -> Iterator[dict[str, Tensor]]:
    for index in range(job.model.block_count):
        tensors = job.model.block_tensors(index)
        for name, (parts, _) in _coded(job, index).items():
            del tensors[f"{name}.weight"]
            tensors |= {f"{name}.{part}": tensor for part, tensor in parts.items()}
        yield tensors


def _coded(job: Job, index: int) -> dict[str, tuple[dict[str, Tensor], Any]]:
    """For every quantised linear of a block what is stored of it, and the linear, which knows its orientation."""
    stored: dict[str, dict[str, Tensor]] = {}
    for name, tensor in pipeline.codes(job.run, index).items():
        owner, _, part = name.rpartition(".")
        stored.setdefault(owner, {})[part] = tensor
    prefix = job.model.block_prefix(index)
    with job.model.block(index) as block:
        linears = job.model.linears(block)
        return {name: (parts, linears[name.removeprefix(prefix)]) for name, parts in stored.items()}


def _vectors(scope: Scope) -> dict[str, Any]:
    """How keys, values and activations are coded, where they are."""
    kinds = dict(zip(("keys", "values"), scope.keys_values or (), strict=False)) | {"activations": scope.activations}
    return {kind: quantizer.spec() for kind, quantizer in kinds.items() if quantizer}


def _describe(job: Job, config_file: Path) -> None:
    main = job.plan.candidates[0]
    tensors = {}
    for index in range(job.model.block_count):
        for name, (_, linear) in _coded(job, index).items():
            transposed = linear.oriented(torch.empty(1, 2, device="meta")).shape[0] == 2
            tensors[name] = {"width": linear.weight.shape[1], "transposed": transposed}
    config = json.loads(config_file.read_text())
    config["quantization_config"] = {
        "quant_method": QUANT_METHOD,
        "format": FORMAT,
        "epsilon": EPSILON,
        "method": main.method.spec(),
        "rotation": {"kind": main.rotation, "seed": job.plan.seed},
        "tensors": tensors,
        **_vectors(main.scope),
    }
    config_file.write_text(json.dumps(config, indent=2) + "\n")

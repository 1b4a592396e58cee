"""Lets transformers load what ``icml25 quantize`` packs and ``icml25 prune`` writes: import this module, then call
``from_pretrained`` as ever.

    import icml25cli.hf
    model = AutoModelForCausalLM.from_pretrained("DIR/packed")
    model.generate(**inputs, cache=icml25cli.hf.kv_cache(model))  # where keys and values were quantised, too

Packed matrices stay in memory as codes; pruned models need no ``trust_remote_code``. Knows transformers' hooks for
quantised checkpoints. Does not know how codes are decoded.
"""

from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightRenaming, rename_source_key
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from icml25cli.core.checkpoint import StoredTensor, tensor_index
from icml25cli.core.errors import InputError
from icml25cli.core.models import know_pruned
from icml25cli.papers.quantize.kv_cache import KVCache
from icml25cli.papers.quantize.matrix import dequantize
from icml25cli.papers.quantize.packed import QUANT_METHOD, PackedLinear, PackedMatrix, PackedSpec

# As safetensors spells them.
_DTYPES = {"U8": torch.uint8, "U32": torch.uint32, "F16": torch.float16, "F32": torch.float32}

know_pruned()


class NestQuantConfig(QuantizationConfigMixin):
    """``quantization_config`` of a packed directory, field for field."""

    def __init__(self, **described: Any) -> None:
        self.described = described
        self.quant_method = described["quant_method"]

    def to_dict(self) -> dict[str, Any]:
        return self.described


register_quantization_config(QUANT_METHOD)(NestQuantConfig)  # as a decorator it would hide the type


@register_quantizer(QUANT_METHOD)
class NestQuantQuantizer(HfQuantizer):
    """Puts a :class:`PackedLinear` in the place of every matrix that was packed."""

    requires_calibration = True  # packed directories alone can be loaded; a plain model is quantised by the command
    quantization_config: NestQuantConfig

    def _process_model_before_weight_loading(
        self, model: PreTrainedModel, checkpoint_files: list[str] | None = None, **_: Any
    ) -> None:
        if not checkpoint_files or not all(file.endswith(".safetensors") for file in checkpoint_files):
            raise InputError("packed codes are loaded from a directory of safetensors files")
        where = Path(checkpoint_files[0]).parent
        stored = tensor_index(where)
        described = self.quantization_config.described
        spec = PackedSpec.parse(described, f"quantization_config of {where / 'config.json'}")
        matrices = spec.matrices
        if lost := sorted({name.removesuffix(".codes") for name in stored if name.endswith(".codes")} - set(matrices)):
            raise InputError(f"{where}: quantization_config does not describe the codes of {lost[0]}")
        for name, matrix in matrices.items():
            path = _path_in(model, name)
            try:
                linear = model.get_submodule(path)
            except AttributeError as error:
                raise InputError(f"{where}: the model has no matrix {name}") from error
            packed = _without_storage(linear, matrix, stored, name, where)
            packed.activations = spec.activations
            for part, tensor in packed.stored().items():
                _check_header(stored.get(f"{name}.{part}"), tensor, f"{where}: {name}.{part}")
            model.set_submodule(path, packed)

    def _process_model_after_weight_loading(self, model: PreTrainedModel, **_: Any) -> None:
        for name, module in model.named_modules():
            if isinstance(module, PackedLinear):
                try:
                    module.settle()
                except InputError as error:
                    where = model.config.name_or_path
                    raise InputError(f"{where}: {name}: {error.message}", hint=error.hint) from error
        described = self.quantization_config.described
        method = {key: value for key, value in described["method"].items() if key != "entropy"}
        # The entropy form is for files alone; what is saved from here on is in the plain form.
        self.quantization_config = NestQuantConfig(**described | {"method": method})
        model.config.quantization_config = self.quantization_config

    def dequantize(self, model: PreTrainedModel, dtype: torch.dtype | None = None) -> PreTrainedModel:
        """The ordinary model whose weights the codes stand for, in place; in the dtype it has, if None."""
        return super().dequantize(model, dtype or model.dtype)

    def _dequantize(self, model: PreTrainedModel, dtype: Any = None) -> PreTrainedModel:
        packed = [(name, module) for name, module in model.named_modules() if isinstance(module, PackedLinear)]
        for name, module in packed:
            model.set_submodule(name, _plain(module))
        return model.to(dtype)

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False


def kv_cache(model: PreTrainedModel) -> KVCache:
    """An empty cache that stores keys and values in the codes that were chosen for ``model``.

    Raises:
        InputError: ``model`` is not packed, or was quantised without its keys and values.
    """
    config = getattr(model.config, "quantization_config", None)
    spec = PackedSpec.parse(config.described, "quantization_config") if isinstance(config, NestQuantConfig) else None
    if spec is None or spec.keys is None or spec.values is None:
        raise InputError(
            "the model has no codes for keys and values, as it was not quantised with --scope w+kv",
            hint="do so, or give papers.quantize.kv_cache.KVCache codes of your choice",
        )
    return KVCache(spec.keys, spec.values)


def use_coded_cache(model: PreTrainedModel) -> None:
    """Let every pass of ``model`` that brings no cache go through codes of keys and values, where there are any."""

    def start(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, {**kwargs, "cache": kv_cache(model)} if kwargs.get("cache") is None else kwargs

    config = getattr(model.config, "quantization_config", None)
    if isinstance(config, NestQuantConfig) and "keys" in config.described:
        model.register_forward_pre_hook(start, with_kwargs=True)


def _path_in(model: Any, name: str) -> str:
    """The module that a matrix of the files belongs to: some files leave out the prefix of the base model (GPT-2)."""
    renamings = [x for x in get_model_conversion_mapping(model) if isinstance(x, WeightRenaming)]
    known = {f"{path}.weight": None for path, _ in model.named_modules()}
    renamed, _ = rename_source_key(f"{name}.weight", renamings, [], model.base_model_prefix, known)
    return renamed.removesuffix(".weight")


def _without_storage(
    linear: nn.Module, matrix: PackedMatrix, stored: dict[str, StoredTensor], name: str, where: Path
) -> PackedLinear:
    if not isinstance(linear, nn.Linear | Conv1D):
        raise InputError(f"{where}: {name} is no matrix of the model")
    transposed = isinstance(linear, Conv1D)
    shape = linear.weight.shape[::-1] if transposed else linear.weight.shape
    if (shape[1], transposed) != (matrix.rotation.n, matrix.transposed):
        raise InputError(
            f"{where}: {name} is described with {matrix.rotation.n} inputs, its module has weights {list(shape)}"
        )
    scales, frame = (stored.get(f"{name}.{part}") for part in ("scales", "beta_zstd"))
    dtype = torch.float16 if scales and scales.dtype == "F16" else torch.float32
    beta_bytes = prod(frame.shape) if frame else 0
    return PackedLinear(matrix, matrix.parts(shape[0], dtype, beta_bytes), linear.bias)


def _check_header(found: StoredTensor | None, needed: torch.Tensor, what: str) -> None:
    if found is None:
        raise InputError(f"{what} is missing", hint="the files are damaged, or quantization_config was edited")
    if (_DTYPES.get(found.dtype), found.shape) != (needed.dtype, tuple(needed.shape)):
        dtype = next(name for name, dtype in _DTYPES.items() if dtype == needed.dtype)
        raise InputError(
            f"{what} is {found.dtype} of shape {list(found.shape)}, not {dtype} of shape {list(needed.shape)}",
            hint="the files are damaged, or quantization_config was edited",
        )


def _plain(packed: PackedLinear) -> nn.Module:
    """The ordinary module whose weight is what the codes stand for."""
    matrix, rows = packed.matrix, packed.out_features
    method = {"q": matrix.code.q, "betas": list(matrix.code.betas), "simplified": matrix.code.simplified}
    weight = dequantize(packed.stored(), {"method": method, "rotation": matrix.rotation.spec()})
    with torch.device("meta"):
        if matrix.transposed:
            module, weight = Conv1D(rows, packed.in_features), weight.T.contiguous()
        else:
            module = nn.Linear(packed.in_features, rows, bias=packed.bias is not None)
    module.weight = nn.Parameter(weight.to(packed.codes.device))
    module.register_parameter("bias", packed.bias)
    return module

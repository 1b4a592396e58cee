"""A causal language model built from its config.json alone, without storage, and the stored tensor of each parameter.

Config and headers of files must agree before anything is allocated, for either can ask for any amount of memory. Knows
transformers models and headers. Does not know what is done with a model.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightRenaming, rename_source_key

from icml25cli.core.checkpoint import FLOATS, StoredTensor
from icml25cli.core.errors import InputError, MissingError
from icml25cli.core.models import first_line

_PER_TENSOR = 64  # parameters that one stored tensor may stand for: it may be shared, or hold those of many experts
_BUFFERS = 2**26  # values that any model may compute for itself when it is loaded, as tables of positions


def build(
    config: PreTrainedConfig,
    index: Mapping[str, StoredTensor],
    where: Path | str,
    dtype: torch.dtype = torch.float32,
    *,
    trust_remote_code: bool = False,
) -> PreTrainedModel:
    """The model of ``config`` on torch's meta device, in evaluation mode; sets what outputs ``config`` asks for.

    Args:
        index: of its files, for their size: of many times as many parameters, or with larger tables, it is not theirs.
        where: for messages.

    Raises:
        InputError: transformers cannot build it, or it is out of proportion to its files.
        MissingError: its code needs a package that is not installed.
    """
    # Whatever the file says, a forward must give logits in a named field, and need give no more.
    config.return_dict, config.output_attentions, config.output_hidden_states = True, False, False
    try:
        with torch.device("meta"), _at_most(_PER_TENSOR * len(index)):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=trust_remote_code)
    except InputError as error:
        raise InputError(f"{where}: {error.message}", hint=error.hint) from error
    except ImportError as error:  # of a model that brings its own code
        raise MissingError(f"{where} cannot be built: {first_line(error)}", hint="install it") from error
    except Exception as error:  # modelling code raises what it likes on a config that it cannot follow
        raise InputError(f"{where} cannot be built from its config.json: {first_line(error)}") from error
    if sum(buffer.numel() for buffer in model.buffers()) > max(_BUFFERS, _values(index)):
        raise InputError(f"{where}: config.json asks for tables too large for any model", hint="restore its fields")
    return model.eval()


@contextmanager
def _at_most(parameters: int) -> Iterator[None]:
    made = 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal made
        made += parameter is not None
        if made > parameters:
            raise InputError("config.json asks for many more parameters than its files hold")

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def match_names(
    model: Any, index: Mapping[str, StoredTensor], where: Path | str
) -> tuple[dict[str, str], dict[str, str]]:
    """The model's name of every stored tensor, and the stored tensor of everything in the model.

    Some checkpoints leave out the prefix of the base model (GPT-2) or name the head otherwise (GPT-NeoX); transformers
    knows which.

    Raises:
        InputError: a parameter is not stored, or in another shape, or not as floating-point numbers.
    """
    asked = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    renamings = [x for x in get_model_conversion_mapping(model) if isinstance(x, WeightRenaming)]
    prefix = model.base_model_prefix
    model_name = {stored: rename_source_key(stored, renamings, [], prefix, asked)[0] for stored in index}
    tensor_of = {name: stored for stored, name in model_name.items() if name in asked}
    for pair in model.all_tied_weights_keys.items():
        for copy, original in (pair, reversed(pair)):
            if copy not in tensor_of and original in tensor_of:
                tensor_of[copy] = tensor_of[original]
    for name, _ in model.named_parameters():
        if name not in tensor_of:
            raise InputError(f"{where} lacks the tensor {name}")
    for name, stored in tensor_of.items():
        tensor, needed = index[stored], asked[name]
        if list(tensor.shape) != list(needed.shape):
            raise InputError(
                f"{tensor.file}: tensor {stored} has shape {list(tensor.shape)} where config.json asks for "
                f"{list(needed.shape)}"
            )
        if needed.is_floating_point() and tensor.dtype not in FLOATS:
            raise InputError(
                f"{tensor.file}: tensor {stored} holds {tensor.dtype} where the model has floating-point numbers"
            )
    return model_name, tensor_of


def check_files(model: Any, index: Mapping[str, StoredTensor], config: Mapping[str, Any], where: Path | str) -> None:
    """Refuse files that cannot be those of ``model``, built by ``build``.

    Where transformers joins stored tensors (experts) or another library decodes them, only their amount is compared.

    Raises:
        InputError: as ``match_names``; or the files hold less than a bit a parameter.
    """
    joined = any(not isinstance(x, WeightRenaming) for x in get_model_conversion_mapping(model))
    if not joined and not config.get("quantization_config"):
        match_names(model, index, where)
    values = sum(parameter.numel() for parameter in model.parameters())
    if values > 64 * _values(index):  # one bit each, in words of 64
        raise InputError(f"{where}: config.json asks for {values} parameters, far more than its files hold")


def _values(index: Mapping[str, StoredTensor]) -> int:
    return sum(prod(tensor.shape) for tensor in index.values())

"""A model directory in Hugging Face layout as files: is it whole, which tensor lies in which shard, reading them.

Knows config.json, safetensors headers and the index of shards. Does not know architectures, names or caches, and never
unpickles. torch and safetensors are imported where tensors are read.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icml25cli.core.errors import InputError
from icml25cli.core.forms import check_form

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors library itself
_AGAIN = "fetch or copy the file again"
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "BOOL": 1}
_MODEL = (".safetensors", ".json", ".model", ".txt", ".jinja", ".py")
FLOATS = frozenset(_BYTES) - {"BOOL"}  # what a weight may be stored as
_BYTES |= {f"{kind}{bits}": bits // 8 for kind in "IU" for bits in (8, 16, 32, 64)}


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies and what it is, by the header of its file."""

    file: Path
    dtype: str  # as safetensors spells it: BF16, F32 ...
    shape: tuple[int, ...]


def check_directory(directory: Path) -> dict[str, Any]:
    """The parsed config.json of a directory whose weights are all there, by headers and file lengths.

    Raises:
        InputError: it is no directory, is empty, holds an adapter, only pickles or only a GGUF file, or anything that
            ``read_config`` and ``tensor_index`` refuse.
    """
    if not directory.is_dir():
        raise InputError(f"{directory} is not a model directory or a .gguf file")
    names = {entry.name for entry in directory.iterdir()}
    if not names:
        raise InputError(f"{directory} is empty", hint="a model directory holds config.json and *.safetensors")
    if "config.json" not in names:
        if "adapter_config.json" in names:
            raise InputError(f"{directory} holds an adapter, not a model", hint="merge it into its base model first")
        if gguf := sorted(name for name in names if name.endswith(".gguf")):
            raise InputError(f"{directory} has no config.json", hint=f"name the file itself: {directory / gguf[0]}")
        inner = [name for name in ("bf16", "packed") if name in names]
        hint = f"name one of what it holds: {', '.join(str(directory / name) for name in inner)}" if inner else None
        raise InputError(f"{directory} has no config.json", hint=hint or "a model directory has config.json")
    config = read_config(directory)
    tensor_index(directory)
    return config


def model_files(directory: Path) -> dict[str, Path]:
    """What a model directory is of: configuration, weights, tokenizer, code; not an output that was put into it."""
    return {file.name: file for file in sorted(directory.iterdir()) if file.suffix in _MODEL}


def read_config(directory: Path) -> dict[str, Any]:
    """config.json as a dict.

    Raises:
        InputError: it is absent, no JSON object, or names no model_type.
    """
    config = _read_json(directory / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise InputError(f"{directory / 'config.json'} names no model_type")
    return config


def tensor_index(directory: Path) -> dict[str, StoredTensor]:
    """Every tensor of a model directory by name, in the order of shards and of their headers.

    As transformers does, one ``model.safetensors`` goes before an index of shards.

    Raises:
        InputError: no safetensors, shards without an index, an index that names an absent file or tensor, a file that
            is cut short or has a header that does not fit it, a dtype that is not supported.
    """
    if (directory / WEIGHTS).exists():
        return read_header(directory / WEIGHTS)
    if not (directory / INDEX).exists():
        raise _no_weights(directory)
    listed = _read_json(directory / INDEX)
    check_form(listed, {"weight_map": {str: str}}, directory / INDEX)
    weight_map = listed["weight_map"]
    if not weight_map:
        raise InputError(f"{directory / INDEX} names no tensor")
    tensors: dict[str, StoredTensor] = {}
    for shard in sorted(set(weight_map.values())):
        if Path(shard).name != shard:
            raise InputError(f"{directory / INDEX} names a file outside its directory: {shard}")
        if not (directory / shard).exists():
            raise InputError(
                f"{directory} lacks the shard {shard}, which {INDEX} names", hint="fetch the model again, all of it"
            )
        held = read_header(directory / shard)
        if absent := [name for name, file in weight_map.items() if file == shard and name not in held]:
            raise InputError(f"{directory / INDEX} says that {shard} holds {absent[0]}, which it does not")
        tensors |= {name: tensor for name, tensor in held.items() if weight_map.get(name) == shard}
    return tensors


def _no_weights(directory: Path) -> InputError:
    names = sorted(entry.name for entry in directory.iterdir())
    if any(name.endswith(".safetensors") for name in names):
        return InputError(f"{directory} has shards but neither {WEIGHTS} nor {INDEX}")
    if pickles := [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]:
        return InputError(
            f"{directory} has its weights only as a pickle ({pickles[0]}), which may run code when read",
            hint="convert it to safetensors where you trust it: save_pretrained of transformers writes them",
        )
    return InputError(f"{directory} has no safetensors weights")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{file} is not a JSON object")
    return value


def read_header(file: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file by its header, checked against the length of the file.

    The layout: 8 bytes of header length (little endian), the header as JSON, then the tensors without gaps.

    Raises:
        InputError: the file is cut short, has bytes too many, or its header is none or does not fit the file.
    """
    try:
        size = file.stat().st_size
        with open(file, "rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(size - 8, _MAX_HEADER):
                raise InputError(f"{file} is cut short or is not a safetensors file: {size} bytes", hint=_AGAIN)
            header = json.loads(stream.read(length))
        check_form(header, {}, f"the header of {file}")
        check_form(header.pop("__metadata__", {}), {str: str}, f"the metadata of {file}")
        check_form(header, {str: {"dtype": str, "shape": [int], "data_offsets": [int]}}, f"the header of {file}")
        tensors = {name: StoredTensor(file, x["dtype"], tuple(x["shape"])) for name, x in header.items()}
        end = 8 + length
        for begin, stop, name in sorted((*entry["data_offsets"], name) for name, entry in header.items()):
            tensor = tensors[name]
            if tensor.dtype not in _BYTES:
                raise InputError(
                    f"{file}: tensor {name} is stored as {tensor.dtype}, which is not supported",
                    hint="give it in float32, float16 or bfloat16",
                )
            negative = min(tensor.shape, default=0) < 0
            if negative or 8 + length + begin != end or stop - begin != math.prod(tensor.shape) * _BYTES[tensor.dtype]:
                raise InputError(f"{file}: the header of tensor {name} contradicts itself", hint=_AGAIN)
            end = 8 + length + stop
    except OSError as error:
        raise InputError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, TypeError, RecursionError) as error:  # no JSON, or other than two offsets
        raise InputError(f"{file} has no readable safetensors header", hint=_AGAIN) from error
    if size != end:
        fault = "cut short" if size < end else "too long"
        raise InputError(f"{file} is {fault}: {size} bytes where its header promises {end}", hint=_AGAIN)
    return tensors


def read_tensors(index: dict[str, StoredTensor], names: Iterable[str]) -> Iterator[tuple[str, "Tensor"]]:
    """The named tensors in their stored dtype, memory-mapped: pages come from the file when they are touched.

    Raises:
        InputError: a file cannot be read any more, or not by the safetensors library, which checks more than
            ``read_header``.
    """
    from safetensors import SafetensorError, safe_open

    by_file: dict[Path, list[str]] = {}
    for name in names:
        by_file.setdefault(index[name].file, []).append(name)
    for file, held in by_file.items():
        try:
            with safe_open(file, framework="pt") as stream:
                for name in held:
                    yield name, stream.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise InputError(f"{file} cannot be read: {error}", hint=_AGAIN) from error


def check_finite(where: Path, name: str, tensor: "Tensor") -> None:
    """Raise InputError naming the tensor if a floating-point value in it is NaN or infinite."""
    import torch

    # The extremes are NaN or infinite if any value is, and finding them makes no second tensor, as isfinite does.
    if tensor.is_floating_point() and tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():
        raise InputError(f"{where}: tensor {name} holds values that are not finite")

"""GGUF files, converted once to float32 safetensors in the user's cache.

transformers dequantises a GGUF file at every load and only as a whole; a converted directory is mapped into memory at
once and can be read block by block. Knows GGUF and the cache. Does not know model names.
"""

import contextlib
import fcntl
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icml25cli.core.errors import InputError
from icml25cli.core.files import atomic_path, output_errors
from icml25cli.core.models import first_line
from icml25cli.core.progress import track
from icml25cli.core.runs import cache_dir

_FLOAT = {"F64", "F32", "F16", "BF16"}
_RECORD = "gguf.json"  # in the converted directory: how many tensors had which storage type


def convert(file: Path) -> tuple[Path, str]:
    """A directory with the model of a GGUF file in float32, and a sentence for reports on what these weights are.

    The directory is named by the file's SHA-256, appears whole or not at all, and is made by one process while others
    that want the same one wait.

    Raises:
        InputError: the file is cut short, its header lies, or transformers cannot read what it holds.
        OutputError: the cache cannot be written.
    """
    try:
        with open(file, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{file} cannot be read: {(error.strerror or str(error)).lower()}", hint="check the path"
        ) from error
    converted = cache_dir() / "gguf" / digest[:32]
    if not converted.exists():
        types = storage_types(file)
        with _locked(converted.with_suffix(".lock")):
            if not converted.exists():
                with atomic_path(converted) as directory:
                    _write(file, directory)
                    (directory / _RECORD).write_text(json.dumps(types))
    return converted, _sentence(json.loads((converted / _RECORD).read_text()))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait for the lock; the kernel gives it back when its owner ends, however it ends."""
    with contextlib.ExitStack() as stack:
        with output_errors(path, path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(path, "ab"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def storage_types(file: Path) -> dict[str, int]:
    """How many tensors of a GGUF file are stored as which type, as ``{"Q4_1": 210, "F32": 61}``.

    Raises:
        InputError: the file is no GGUF, is cut short, or its header points beyond its end.
    """
    import numpy as np
    from gguf import GGUFReader

    class Reader(GGUFReader):
        def _get(self, offset, dtype, count=1, override_order=None):
            # The original cuts a read beyond the end short without a word; a header that promises 2**60 values would
            # then be read for ever.
            if offset + np.dtype(dtype).itemsize * int(count) > len(self.data):
                raise ValueError("the header points beyond the end of the file")
            return super()._get(offset, dtype, count, override_order)

    try:
        tensors = Reader(file).tensors
    except (ValueError, KeyError, IndexError, OSError, OverflowError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file} is cut short or is not a GGUF file: {error}", hint="fetch or copy it again"
        ) from error
    if not tensors:
        raise InputError(f"{file} holds no tensors", hint="name a file with a whole model")
    return dict(Counter(tensor.tensor_type.name for tensor in tensors))


def _write(file: Path, directory: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, modeling_gguf_pytorch_utils

    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name, "local_files_only": True}
    # The reader of transformers draws a bar of its own; ours goes where the command line wants it, or nowhere.
    reader: Any = modeling_gguf_pytorch_utils
    bar = reader.tqdm
    reader.tqdm = lambda items, **_: track(items, f"converting {file.name}, once")
    try:
        tokenizer = AutoTokenizer.from_pretrained(**where)
        loaded: Any = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, output_loading_info=True)
    except Exception as error:  # of many kinds: an unknown architecture, tokenizer or storage type
        raise InputError(
            f"{file} cannot be read by transformers: {first_line(error)}",
            hint="give the model as a directory of safetensors",
        ) from error
    finally:
        reader.tqdm = bar
    model, loading = loaded
    if loading["missing_keys"]:
        raise InputError(
            f"{file} lacks the tensor {min(loading['missing_keys'])} of its architecture", hint="fetch or copy it again"
        )
    # The loader leaves its dequantiser on the model, and save_pretrained then refuses weights that are plain by now.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _sentence(types: dict[str, int]) -> str:
    grids = {name: count for name, count in types.items() if name not in _FLOAT}
    if not grids:
        return f"float32 of a GGUF file stored as {max(types, key=types.__getitem__)}"
    main = max(grids, key=grids.__getitem__)
    bits = re.findall(r"\d+", main)[0]
    return (
        f"float32 of the dequantised GGUF ({main}): the weights already lie on a {bits}-bit grid, which "
        "rounding to nearest without a rotation finds again"
    )

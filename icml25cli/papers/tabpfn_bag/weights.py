"""The file of a network: safetensors in float16 with its sizes beside it.

Knows files. Does not know how a network is trained or used.
"""

import json
from dataclasses import asdict, fields
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from icml25cli.core.errors import InputError
from icml25cli.core.files import atomic_path
from icml25cli.papers.tabpfn_bag.network import NanoPfn, PfnConfig


def save_pfn(net: NanoPfn, folder: Path, *, force: bool = False) -> None:
    """Write ``model.safetensors`` (float16) and ``config.json`` into a new folder.

    Raises:
        OutputError: the folder exists (without ``force``) or cannot be written.
    """
    with atomic_path(folder, force=force) as new:
        new.mkdir()
        save_file(
            {name: weight.detach().half().contiguous() for name, weight in net.state_dict().items()},
            new / "model.safetensors",
        )
        (new / "config.json").write_text(json.dumps(asdict(net.config), indent=1) + "\n", encoding="utf-8")


def load_pfn(folder: Path) -> NanoPfn:
    """The network in a folder, in float32 and evaluation mode, its weights frozen.

    Raises:
        InputError: a file is missing or damaged, a size is unknown, or the tensors are not those of the sizes.
    """
    try:
        sizes = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if set(sizes) != {field.name for field in fields(PfnConfig)} or any(
            type(size) is not int for size in sizes.values()
        ):
            raise InputError(f"{folder / 'config.json'} does not give the sizes of a network")
        with torch.device("meta"):
            net = NanoPfn(PfnConfig(**sizes))
        weights = {name: weight.float() for name, weight in load_file(folder / "model.safetensors").items()}
        net.load_state_dict(weights, assign=True)
    except (OSError, ValueError, TypeError, AttributeError, SafetensorError, RuntimeError) as error:
        raise InputError(f"{folder} holds no network that can be read: {error}") from error
    return net.eval().requires_grad_(False)

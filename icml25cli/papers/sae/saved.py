"""A trained model as files: `sae.safetensors` (weights, and the mean of the training rows) and `cfg.json`.

`cfg.json` also names its shape as sparsify and others read it: d_in, num_latents, k, activation. Knows files.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from icml25cli.core.checkpoint import read_header
from icml25cli.core.errors import InputError
from icml25cli.core.files import write_json
from icml25cli.core.forms import check_form
from icml25cli.papers.sae.config import METHODS, Config
from icml25cli.papers.sae.model import Parameters, Scaling, SparseAutoencoder

FORMAT = "icml25/sae/1"
WEIGHTS, CONFIG = "sae.safetensors", "cfg.json"
_FORM: dict[str, Any] = {"format": str, "scale": float, "threshold": float, "sae": {"method": str, "d": int, "n": int}}
_FORM["sae"] |= {"levels": [int], "k": int, "weights": str, "l1": float, "soft_cap": float, "loss": str, "center": bool}


def write_model(directory: Path, model: SparseAutoencoder) -> None:
    """Write both files into ``directory``."""
    tensors = {name: x.contiguous() for name, x in model.parameters.named().items()}
    tensors["mean"] = torch.from_numpy(model.scaling.mean)
    save_file(tensors, directory / WEIGHTS, metadata={"format": FORMAT})
    config = model.config
    write_json(
        directory / CONFIG,
        {
            "format": FORMAT,
            "d_in": config.d,
            "num_latents": config.n,
            "k": config.k or (config.levels[0] if config.levels else config.n),
            "activation": "topk" if config.k or config.levels else config.method,
            "scale": model.scaling.scale,
            "threshold": model.threshold,
            "sae": config.to_json(),
        },
    )


def load(directory: Path | str) -> SparseAutoencoder:
    """Read what ``icml25 sae -o`` wrote.

    Raises:
        InputError: a file is absent or torn, or they do not agree.
    """
    directory = Path(directory)
    for name in (CONFIG, WEIGHTS):
        if not (directory / name).is_file():
            raise InputError(f"{directory} has no {name}", hint="`icml25 sae train X -o DIR` writes such a folder")
    try:
        cfg = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{directory / CONFIG} is not JSON") from error
    check_form(cfg, _FORM, directory / CONFIG)
    if cfg["format"] != FORMAT or cfg["sae"]["method"] not in METHODS:
        raise InputError(f"{directory / CONFIG} is of another format", hint=f"{FORMAT} is read here")
    known: dict[str, Any] = {name: cfg["sae"][name] for name in Config.__dataclass_fields__ if name in cfg["sae"]}
    known["levels"] = tuple(known["levels"])
    config = Config(**known)
    read_header(directory / WEIGHTS)
    try:
        tensors = load_file(directory / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{directory / WEIGHTS} cannot be read: {error}") from error
    d, n = config.d, config.n
    shapes = {"W_enc": (d, n), "b_enc": (n,), "W_dec": (n, d), "b_pre": (d,), "mean": (d,)}
    if config.method == "jumprelu":
        shapes["theta"] = (n,)
    for name, shape in shapes.items():
        if name not in tensors or tuple(tensors[name].shape) != shape or not tensors[name].isfinite().all():
            raise InputError(f"{directory / WEIGHTS}: {name} is not a finite tensor of shape {shape}")
    mean = tensors.pop("mean").double().numpy()
    parameters = Parameters(**{name: tensors[name].float() for name in shapes if name != "mean"})
    return SparseAutoencoder(config, parameters, Scaling(mean, cfg["scale"]), cfg["threshold"])

"""Vision encoders: pictures in, features out, none of them trained any further.

    vsf-tiny   our own, shipped with the toolbox: 96 pixels, 256 features
    efflite0   EfficientNet-Lite0 on ImageNet, the asset ``efficientnet-lite0``: 112 pixels, 1280 features
    resnet50, vgg16, vit_b16   the paper's, with weights that the user brings
    random     vsf-tiny before any training: the control that tells what looking with untrained eyes is worth

Knows pictures and weight files. Does not know graphs.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float16, UInt8
from numpy import ndarray
from torch import Tensor, nn

from icml25cli.core import store
from icml25cli.core.efficientnet import WIDTH, EfficientNetLite0
from icml25cli.core.errors import InputError, MissingError, UsageError
from icml25cli.papers.linkpred import vsf_tiny
from icml25cli.papers.linkpred.backbones import VGG16, ResNet50, ViTB16
from icml25cli.papers.linkpred.raster import PALETTE

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and standard deviation of red, green, blue
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
BRING = {"resnet50": ResNet50, "vgg16": VGG16, "vit_b16": ViTB16}
NAMES = ("vsf-tiny", "efflite0", *BRING, "random")
AT_ONCE = 64  # pictures in one pass
LARGEST = 2 * 2**30  # bytes of a weight file; the largest of these networks has half a gigabyte


@dataclass(frozen=True, eq=False)
class Encoder:
    """``encoder(pictures)`` gives a row of ``width`` features a picture of ``size`` pixels.

    ``weights`` is the SHA-256 of all parameters; ``precision`` the arithmetic, which this machine's processor decides:
    together with ``name`` and ``size`` they tell features apart.
    """

    name: str
    size: int
    width: int
    weights: str
    precision: str
    _forward: Callable[[UInt8[Tensor, "b s s"]], Float[Tensor, "b width"]]

    def __call__(self, pictures: UInt8[ndarray, "b s s"]) -> Float16[ndarray, "b width"]:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bfloat16"):
            parts = [self._forward(part) for part in torch.from_numpy(pictures).split(AT_ONCE)]
        largest = float(np.finfo(np.float16).max)
        return torch.cat(parts).float().clamp_(-largest, largest).half().numpy()

    @property
    def identity(self) -> dict[str, str | int]:
        return {"name": self.name, "size": self.size, "weights": self.weights, "precision": self.precision}


def load_encoder(name: str = "vsf-tiny", *, weights: Path | None = None, size: int | None = None) -> Encoder:
    """The encoder called ``name``, ready.

    Args:
        weights: a state dict as torchvision writes it, ``.safetensors`` or ``.pth``, for those of the paper.
        size: pixels of a picture; for ``vsf-tiny``, ``random`` and ``vit_b16`` there is one alone.

    Raises:
        UsageError: no encoder has that name, the size is not its own, or weights are given that it does not take.
        MissingError: its weights are not here.
        InputError: the file of weights cannot be read or is of another network.
    """
    if name not in NAMES:
        raise UsageError(f"no vision encoder is called '{name}'", hint=f"one of {', '.join(NAMES)}")
    if weights is not None and name not in BRING:
        raise UsageError(f"--ve-weights are not for {name}, which has its own", hint=f"for {', '.join(BRING)}")
    only = {"vsf-tiny": vsf_tiny.SIZE, "random": vsf_tiny.SIZE, "vit_b16": 224}.get(name)
    if only and size not in (None, only):
        raise UsageError(f"{name} looks at pictures of {only} pixels, not {size}", hint="leave out --image-size")
    size = size or only or 112
    if name in ("vsf-tiny", "random"):
        return _tiny(name)
    network, mean_std = _efficientnet() if name == "efflite0" else (_brought(name, weights), IMAGENET)
    return _on_colours(name, network, size, *mean_std)


def _tiny(name: str) -> Encoder:
    network = vsf_tiny.VsfTiny()
    if name == "random":
        generator = torch.Generator().manual_seed(0)
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):  # of a size that lets signals through undiminished
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
        nn.init.zeros_(network.features.bias)
    else:
        file = Path(str(files("icml25cli.assets") / "vsf_tiny" / "model.safetensors"))
        if not file.exists():
            raise MissingError(
                "vsf-tiny is not in this installation", hint="install the toolbox again, or --ve efflite0"
            )
        _load(network, _read(file), file)
    network.eval()
    return Encoder(
        name, vsf_tiny.SIZE, vsf_tiny.WIDTH, _hash(network), _precision(), lambda p: network(vsf_tiny.planes(p))
    )


def _efficientnet() -> tuple[nn.Module, tuple]:
    file = store.path("efficientnet-lite0")
    try:
        return EfficientNetLite0(_read(file)), HALF
    except (KeyError, RuntimeError) as error:
        raise InputError(f"{file} is not EfficientNet-Lite0", hint="icml25 assets verify efficientnet-lite0") from error


def _brought(name: str, weights: Path | None) -> nn.Module:
    if weights is None:
        raise MissingError(f"{name} comes without weights", hint="--ve-weights FILE, a state dict of torchvision")
    with torch.device("meta"):
        network = BRING[name]()
    network = network.to_empty(device="cpu")
    _load(network, _read(weights), weights)
    return network


def _on_colours(name: str, network: nn.Module, size: int, mean: tuple, std: tuple) -> Encoder:
    network = network.float().eval().requires_grad_(False)
    # Every byte of a picture is one of 256 colours: normalised once, not for each pixel.
    table = (torch.from_numpy(PALETTE).float() / 255 - torch.tensor(mean)) / torch.tensor(std)

    def forward(pictures: UInt8[Tensor, "b s s"]) -> Float[Tensor, "b width"]:
        return network(table[pictures.int()].permute(0, 3, 1, 2))

    width = WIDTH if name == "efflite0" else BRING[name].width
    return Encoder(name, size, width, _hash(network), _precision(), forward)


def _precision() -> str:
    able = torch.cpu.get_capabilities()
    return "bfloat16" if able.get("avx512_bf16") or able.get("amx_bf16") else "float32"


def _hash(network: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _read(file: Path) -> dict[str, Tensor]:
    """Tensors of a ``.safetensors`` file or a ``.pth`` one, which is not unpickled beyond tensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not file.is_file():
        raise InputError(f"{file} is no file", hint="name a .safetensors or .pth file")
    if file.stat().st_size > LARGEST:
        raise InputError(f"{file} is larger than any of these networks", hint="name the weights of the encoder alone")
    try:
        state = load_file(file) if file.suffix == ".safetensors" else torch.load(file, "cpu", weights_only=True)
    except SafetensorError as error:
        raise InputError(f"{file} is not a whole .safetensors file") from error
    except Exception as error:  # torn zip files and refused pickles raise whatever torch's reader does
        raise InputError(f"{file} holds no plain tensors", hint="save a state dict with torch.save") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{file} is no state dict", hint="save model.state_dict()")
    return state


def _load(network: nn.Module, state: dict[str, Tensor], file: Path) -> None:
    """Fill ``network``; a classifier in the file is ignored, as are counters of batches."""
    wanted = network.state_dict()
    for name, value in wanted.items():
        if name.endswith("num_batches_tracked"):
            continue
        if name not in state or state[name].shape != value.shape:
            found = "is missing" if name not in state else f"has shape {tuple(state[name].shape)}"
            raise InputError(
                f"{file} is of another network: {name} {found}, expected {tuple(value.shape)}",
                hint="name the file of the encoder that --ve says",
            )
        if not torch.isfinite(state[name]).all():
            raise InputError(f"{file}: {name} has values that are not finite")
    network.load_state_dict({k: state.get(k, torch.zeros(())) for k in wanted})

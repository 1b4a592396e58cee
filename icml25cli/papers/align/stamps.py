"""Real pairs without a hub: Tux Paint's stamps and their captions, by EfficientNet-Lite0 and MiniLM.

All three are fetched assets. Stamps are the pictures in pixels that have an English caption and are no symbols. Knows
assets and files. Does not know metrics.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from numpy import ndarray

from icml25cli.core import sentences, store
from icml25cli.core.efficientnet import EfficientNetLite0
from icml25cli.core.errors import InputError
from icml25cli.core.progress import track

PIXELS, BATCH = 224, 16
LEFT_OUT = "symbols"  # letters and signs, whose captions name a character
FILES = ("images.npz", "captions.npz", "categories.csv", "captions.txt", "words.npy", "words.txt")


@dataclass(frozen=True)
class Stamp:
    """A picture, its first line of English, and the folder it lies in."""

    file: Path
    name: str
    caption: str
    category: str


def stamps(folder: Path) -> list[Stamp]:
    """All that have both, in order of their paths.

    Raises:
        InputError: there are none.
    """
    found = []
    for file in sorted(folder.rglob("*.png")):
        name = file.relative_to(folder).as_posix().removesuffix(".png")
        category, text = name.partition("/")[0], file.with_suffix(".txt")
        if category == LEFT_OUT or not text.is_file():
            continue
        lines = text.read_text(encoding="utf-8", errors="replace").splitlines()
        if lines and lines[0].strip():
            found.append(Stamp(file, name, lines[0].strip(), category))
    if not found:
        raise InputError(f"{folder} holds no captioned pictures", hint="icml25 assets verify tuxpaint-stamps")
    return found


def pictures(found: list[Stamp], weights: Path) -> Float32[ndarray, "n 1280"]:
    """Features of pictures on white, padded to a square of 224 pixels."""
    try:
        network = EfficientNetLite0(torch.load(weights, map_location="cpu", weights_only=True)).eval()
    except Exception as error:  # torch's unpickler raises whatever the bytes make it do
        raise InputError(
            f"{weights} is not EfficientNet-Lite0", hint="icml25 assets verify efficientnet-lite0"
        ) from error
    rows = []
    with torch.inference_mode():
        for start in track(range(0, len(found), BATCH), "pictures"):
            pixels = np.stack([_square(stamp.file) for stamp in found[start : start + BATCH]])
            rows.append(network(torch.from_numpy(pixels)).numpy())
    return np.concatenate(rows)


def _square(file: Path) -> Float32[ndarray, "3 s s"]:
    """Values in -1 to 1, as this network was trained on."""
    from PIL import Image

    with Image.open(file) as opened:
        image = opened.convert("RGBA")
    image.thumbnail((PIXELS, PIXELS), Image.Resampling.BICUBIC)
    canvas = Image.new("RGBA", (PIXELS, PIXELS), "white")
    canvas.alpha_composite(image, ((PIXELS - image.width) // 2, (PIXELS - image.height) // 2))
    return (np.asarray(canvas.convert("RGB"), np.float32) / 127.5 - 1).transpose(2, 0, 1)


def words(captions: Iterable[str]) -> list[str]:
    """Words of three letters or more, in lower case, each once, in order of the alphabet."""
    return sorted({word for caption in captions for word in re.findall(r"[a-z]{3,}", caption.lower())})


def write_stamps(directory: Path) -> dict[str, Any]:
    """Write embeddings of pictures, of captions and of their words, categories and texts; how many there are.

    Raises:
        MissingError: an asset is not fetched.
        InputError: an asset is not what it should be.
    """
    folder, weights, model = (
        store.path(name) for name in ("tuxpaint-stamps", "efficientnet-lite0", "all-minilm-l6-v2")
    )
    found = stamps(folder)
    names = np.array([stamp.name for stamp in found])
    images = pictures(found, weights)
    vocabulary = words(stamp.caption for stamp in found)
    captions, meanings = (sentences.embed(texts, model) for texts in ([stamp.caption for stamp in found], vocabulary))
    np.savez(directory / FILES[0], x=images, id=names)
    np.savez(directory / FILES[1], x=captions, id=names)
    (directory / FILES[2]).write_text("label\n" + "".join(f"{stamp.category}\n" for stamp in found))
    (directory / FILES[3]).write_text("".join(f"{stamp.caption}\n" for stamp in found), encoding="utf-8")
    np.save(directory / FILES[4], meanings)
    (directory / FILES[5]).write_text("".join(f"{word}\n" for word in vocabulary))
    counts: dict[str, int] = {}
    for stamp in found:
        counts[stamp.category] = counts.get(stamp.category, 0) + 1
    return {
        "items": len(found),
        "words": len(vocabulary),
        "image_width": images.shape[1],
        "caption_width": captions.shape[1],
        "categories": counts,
    }

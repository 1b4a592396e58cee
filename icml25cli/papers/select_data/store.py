"""The store of gradient features: blocks of rows as safetensors files with a digest, and the files that LESS has.

Knows files and tensors. Does not know how features come about.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float32
from numpy import ndarray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from icml25cli.core.errors import InputError
from icml25cli.core.runs import Run
from icml25cli.papers.select_data.scoring import normalized

T = TypeVar("T")

ROWS = 64  # of a block: what is lost when work is cut short


def block_name(checkpoint: int, block: int) -> str:
    """The unit of a run that holds a block of rows at a checkpoint, both counted from 0."""
    return f"grads-{checkpoint + 1}-{block:06d}.safetensors"


def write_block(run: Run, unit: str, features: Float32[ndarray, "rows k"]) -> None:
    digest = hashlib.sha256(features.tobytes()).hexdigest()
    run.write(unit, lambda path: save_file({"features": features}, path, metadata={"sha256": digest}))


def read_block(path: Path) -> Float32[ndarray, "rows k"] | None:
    """The features of a block; None where the file is absent or damaged."""
    try:
        with safe_open(path, framework="numpy") as file:
            features, digest = file.get_tensor("features"), (file.metadata() or {}).get("sha256")
    except (OSError, SafetensorError, ValueError, KeyError):
        return None
    return features if hashlib.sha256(features.tobytes()).hexdigest() == digest else None


def read_whole(paths: Sequence[Path]) -> list[Float32[ndarray, "rows k"]]:
    """The features of several blocks.

    Raises:
        InputError: one is absent or damaged.
    """
    return [sound_block(path) for path in paths]


def sound_block(path: Path) -> Float32[ndarray, "rows k"]:
    """The features of a block.

    Raises:
        InputError: it is absent or damaged.
    """
    found = read_block(path)
    if found is None:
        raise InputError(f"{path} is damaged", hint="repeat the command: what is damaged is made again")
    return found


def is_sound(run: Run, unit: str) -> bool:
    """Whether a block is there and as it was written; a damaged one is thrown away."""
    if not run.has(unit):
        return False
    if read_block(run.path(unit)) is None:
        run.discard(unit)
        return False
    return True


def held(run: Run, unit: str, read: Callable[[Any], T]) -> T | None:
    """What ``read`` makes of a JSON unit; None where there is none or it is damaged, and then it is thrown away."""
    if not run.has(unit):
        return None
    try:
        return read(json.loads(run.path(unit).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        run.discard(unit)
        return None


# --- LESS --------------------------------------------------------------------------------------------------------


def write_less(folder: Path, blocks: Sequence[Float32[ndarray, "rows k"]]) -> None:
    """What LESS keeps of a checkpoint: ``all_orig.pt``, rows of length one, and ``all_unormalized.pt``."""
    raw = np.concatenate(blocks)
    folder.mkdir(parents=True)
    torch.save(torch.from_numpy(normalized(raw)), folder / "all_orig.pt")
    torch.save(torch.from_numpy(raw), folder / "all_unormalized.pt")

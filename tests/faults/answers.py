"""What a run answered, without what may differ from run to run, and how far two answers are from each other."""

import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.torch import load

VOLATILE = (
    "second",
    "elapsed",
    "tokens_per",
    "speed",
    "search_share",
    "load",
    "host",
    "output",
    "path",
    "date",
    "peak",
    "memory",
    "timings",
    "history",  # of losses, with their seconds
)


def settled(report: Any) -> Any:
    """A report without times, paths and places, which may differ."""
    if isinstance(report, dict):
        return {k: settled(v) for k, v in report.items() if not any(word in k for word in VOLATILE)}
    if isinstance(report, list):
        return [settled(item) for item in report]
    return report


def answer_of(report: str, out: Path) -> Any:
    """What a report says, wherever its output went."""
    read = json.loads(report.replace(str(out.parent), ""))
    return settled({key: read[key] for key in ("metrics", "answer", "rows", "tables") if key in read})


def products(out: Path) -> dict[str, Any]:
    """Everything written at ``out``, with whatever suffix, and below: arrays, documents and texts by file.

    Figures are left out, which say nothing that is not in the rest, and the run directory, which is not the answer.
    """
    found: dict[str, Any] = {}
    for place in sorted(out.parent.glob(f"{out.name}*")):
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            name = str(file.relative_to(out.parent))
            if file.is_file() and ".run" not in file.parts and file.suffix not in (".png", ".svg", ".pdf", ".html"):
                found[name] = content(name, file.read_bytes(), out)
    return found


def content(name: str, data: bytes, out: Path) -> Any:
    """What is in a file of that name, by its suffix or, where the user chose it, by what it looks like."""
    suffix = Path(name).suffix
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {member: content(member, archive.read(member), out) for member in archive.namelist()}
    if suffix == ".safetensors":
        return {k: (v.float() if v.is_floating_point() else v).numpy() for k, v in load(data).items()}
    if suffix == ".npy":
        return np.load(io.BytesIO(data))
    if suffix == ".parquet":
        return pd.read_parquet(io.BytesIO(data)).to_dict("list")
    if suffix == ".json":
        return settled(json.loads(data.replace(str(out.parent).encode(), b"")))
    if suffix == ".jsonl":
        return [settled(json.loads(line)) for line in data.splitlines()]
    try:  # a table, or other text
        return [[number(field) for field in line.split(",")] for line in data.decode().splitlines()]
    except UnicodeDecodeError:
        return data


def number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def disagreement(ours: Any, theirs: Any, step: float = 0.0) -> float:
    """The largest difference of two numbers, relative to the array they are in; infinite where else they differ.

    Args:
        step: by which figures may differ as they are: what one case more or less is of a figure that counts few.
    """
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        return max((disagreement(ours[key], theirs[key], step) for key in ours), default=0.0)
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple) and len(ours) == len(theirs):
        return max((disagreement(one, other, step) for one, other in zip(ours, theirs, strict=True)), default=0.0)
    if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return math.inf
        if np.array_equal(ours, theirs):
            return 0.0
        if ours.dtype.kind != "f":
            return math.inf
        return float(np.abs(ours - theirs).max() / max(np.abs(ours).max(), np.abs(theirs).max()))
    if ours == theirs or (ours != ours and theirs != theirs):
        return 0.0
    if isinstance(ours, float) and isinstance(theirs, float):
        return 0.0 if abs(ours - theirs) <= step else abs(ours - theirs) / max(abs(ours), abs(theirs))
    return math.inf

"""The plan of a pruned model: which heads and channels every layer keeps, as a file that a person can edit.

Knows numbers of heads and channels, and JSON. Does not know how they are chosen, or weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from icml25cli.core.errors import InputError
from icml25cli.core.files import atomic_path
from icml25cli.core.forms import check_form
from icml25cli.core.models import ModelSource
from icml25cli.papers.prune.anatomy import Anatomy

SCHEMA = "icml25/prune-plan/1"
_FORM: dict[str, Any] = {
    "schema": str,
    "model": {"name": str, "config_sha256": str, "shapes": {str: int}},
    "options": {},
    "layers": [
        {
            "index": int,
            "cosine": float,
            "ratio": float,
            "removed": bool,
            "heads": [int],
            "kv": [int],
            "channels": [int],
        }
    ],
}


@dataclass(frozen=True)
class Layer:
    """What one decoder layer keeps, in the numbering of the dense model.

    Kept query heads share the kept key-value heads evenly and in order: with 6 heads and ``kv`` of length 2, heads 0-2
    of the list read ``kv[0]`` and heads 3-5 ``kv[1]``. A key-value head may be kept several times (GQA ``expand``).
    """

    index: int
    cosine: float  # mean over tokens of the cosine of a layer's input and output; high is redundant
    ratio: float  # share of heads and channels that was asked to go
    heads: tuple[int, ...]  # kept query heads, ascending
    kv: tuple[int, ...]  # for every key-value head that there will be, the one it copies
    channels: tuple[int, ...]  # kept channels of the feed-forward network, ascending
    removed: bool = False  # the whole layer goes, and the lists are empty

    def is_dense(self, anatomy: Anatomy) -> bool:
        """Whether nothing is cut."""
        return not self.removed and self.keeps_heads(anatomy) and self.keeps_channels(anatomy)

    def keeps_heads(self, anatomy: Anatomy) -> bool:
        return len(self.heads) == anatomy.heads and self.kv == tuple(range(anatomy.kv_heads))

    def keeps_channels(self, anatomy: Anatomy) -> bool:
        return len(self.channels) == anatomy.inner


@dataclass(frozen=True)
class Plan:
    """A plan and the model it is for."""

    model: str  # as the user named it
    config_sha256: str
    shapes: dict[str, int]  # Anatomy.shapes
    options: dict[str, Any]  # what it was made with
    layers: tuple[Layer, ...]


def dense_layer(anatomy: Anatomy, index: int, cosine: float = 0.0) -> Layer:
    """A layer that keeps everything."""
    heads, kv, inner = (tuple(range(n)) for n in (anatomy.heads, anatomy.kv_heads, anatomy.inner))
    return Layer(index, cosine, 0.0, heads, kv, inner)


def removed_layer(index: int, cosine: float = 0.0) -> Layer:
    return Layer(index, cosine, 1.0, (), (), (), removed=True)


def make_plan(source: ModelSource, anatomy: Anatomy, options: dict[str, Any], layers: Sequence[Layer]) -> Plan:
    return Plan(source.name, config_hash(source), anatomy.shapes, options, tuple(layers))


def config_hash(source: ModelSource) -> str:
    """SHA-256 (hex) of the model's config.json as it lies on disk."""
    return hashlib.sha256((source.path / "config.json").read_bytes()).hexdigest()


def layer_parameters(anatomy: Anatomy, layer: Layer, *, biases: bool) -> int:
    """Parameters of a layer; with ``biases`` whatever is cut gets a bias on its way out, if it had none."""
    if layer.removed:
        return 0
    added = 0
    if biases:
        cut = {
            anatomy.names.output: len(layer.heads) < anatomy.heads,
            anatomy.names.down: not layer.keeps_channels(anatomy),
        }
        added = sum(is_cut and name not in anatomy.biased for name, is_cut in cut.items())
    return anatomy.parameters(len(layer.heads), len(layer.kv), len(layer.channels), added)


# --- files -------------------------------------------------------------------------------------------------------


def write_plan(path: Path, plan: Plan, *, force: bool = False) -> None:
    """Write ``plan`` as JSON with a line for each list, whole or not at all.

    Raises:
        OutputError: as ``atomic_path``.
    """
    with atomic_path(path, force=force) as temporary:
        temporary.write_text(plan_text(plan), encoding="utf-8")


def plan_text(plan: Plan) -> str:
    """The JSON of a plan."""
    head = {
        "schema": SCHEMA,
        "model": {"name": plan.model, "config_sha256": plan.config_sha256, "shapes": plan.shapes},
        "options": plan.options,
    }
    layers = []
    for layer in plan.layers:
        # One line a list: a person edits some numbers in it, and indented JSON would give each a line of its own.
        lines = (
            f"      {json.dumps(name)}: {json.dumps(value, allow_nan=False)}"
            for name, value in layer_fields(layer).items()
        )
        layers.append("    {\n" + ",\n".join(lines) + "\n    }")
    text = json.dumps(head, indent=2, ensure_ascii=False, allow_nan=False)
    return text.removesuffix("\n}") + ',\n  "layers": [\n' + ",\n".join(layers) + "\n  ]\n}\n"


def read_plan(path: Path) -> Plan:
    """A plan as ``write_plan`` wrote it, perhaps edited; ``check_plan`` says whether it fits a model.

    Raises:
        InputError: the file cannot be read, or is no such JSON.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}", hint="give a file that prune plan wrote"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}", hint="give a file that prune plan wrote") from error
    check_form(found, _FORM, path)
    for i, layer in enumerate(found["layers"]):
        if unknown := sorted(layer.keys() - _FORM["layers"][0].keys()):
            raise InputError(
                f"{path}: layers[{i}] has a field {unknown[0]}, which is none",
                hint=f"a layer has {', '.join(_FORM['layers'][0])}",
            )
    if found["schema"] != SCHEMA:
        raise InputError(f"{path} is {found['schema']}, not {SCHEMA}", hint="give a file that prune plan wrote")
    model, layers = found["model"], tuple(map(layer_from, found["layers"]))
    return Plan(model["name"], model["config_sha256"], model["shapes"], found["options"], layers)


def layer_fields(layer: Layer) -> dict[str, Any]:
    """A layer as JSON types."""
    return {
        "index": layer.index,
        "removed": layer.removed,
        "cosine": layer.cosine,
        "ratio": layer.ratio,
        "heads": list(layer.heads),
        "kv": list(layer.kv),
        "channels": list(layer.channels),
    }


def layer_from(fields: Mapping[str, Any]) -> Layer:
    """What ``layer_fields`` was made of."""
    heads, kv, channels = (tuple(fields[name]) for name in ("heads", "kv", "channels"))
    return Layer(fields["index"], fields["cosine"], fields["ratio"], heads, kv, channels, fields["removed"])


def check_plan(plan: Plan, source: ModelSource, anatomy: Anatomy) -> None:
    """Refuse a plan that is not for this model, or that no block can be built by.

    Raises:
        InputError: another config.json or other shapes; or a layer, named, keeps what is not there, keeps nothing, or
            does not share its key-value heads evenly.
    """
    if plan.config_sha256 != config_hash(source) or plan.shapes != anatomy.shapes:
        raise InputError(
            f"the plan is for {plan.model}, and {source.name} has another config.json",
            hint="make a plan for this model",
        )
    if [layer.index for layer in plan.layers] != list(range(anatomy.layers)):
        raise InputError(
            f"the plan does not name the layers 0 to {anatomy.layers - 1} in order",
            hint='a layer that goes stays in the list, with "removed": true and empty lists',
        )
    if all(layer.removed for layer in plan.layers):
        raise InputError("the plan removes every layer", hint="keep one")
    if beyond := [i for i in plan.options.get("protect", ()) if i >= anatomy.layers]:
        raise InputError(
            f"the plan's options: protect names layer {beyond[0]}", hint=f"the layers are 0 to {anatomy.layers - 1}"
        )
    for layer in plan.layers:
        if fault := _fault(layer, anatomy):
            raise InputError(f"layer {layer.index} of the plan {fault}", hint="correct the plan, or make a new one")


def _fault(layer: Layer, anatomy: Anatomy) -> str | None:
    # Written so that what is no number, which compares as false, is a fault; rounding may take a cosine beyond 1.
    for name, value, low in (("cosine", layer.cosine, -1), ("ratio", layer.ratio, 0)):
        if not low - 0.001 <= value <= 1.001:
            return f"has a {name} of {str(value)[:20]}, which does not lie in {low} to 1"
    if layer.removed:
        return "is removed, and keeps something" if layer.heads or layer.kv or layer.channels else None
    for kept, of, what in ((layer.heads, anatomy.heads, "head"), (layer.channels, anatomy.inner, "channel")):
        if not kept:
            return f"keeps no {what}s"
        if absent := [n for n in kept if not 0 <= n < of]:
            return f"keeps {what} {str(absent[0])[:20]}, and there are 0 to {of - 1}"
        if broken := [(a, b) for a, b in pairwise(kept) if a >= b]:
            return f"keeps {what} {broken[0][1]} after {broken[0][0]}, and they have to ascend"
    if absent := [n for n in layer.kv if not 0 <= n < anatomy.kv_heads]:
        return f"keeps key-value head {str(absent[0])[:20]}, and there are 0 to {anatomy.kv_heads - 1}"
    if not layer.kv or len(layer.heads) % len(layer.kv):
        return f"has {len(layer.heads)} heads for {len(layer.kv)} key-value heads"
    share = len(layer.heads) // len(layer.kv)
    if len(anatomy.names.qkv) == 1 and share != 1:
        return "shares key-value heads, which this family cannot"
    for j, head in enumerate(layer.heads):
        if head // anatomy.queries_per_kv != layer.kv[j // share]:
            return f"lets head {head} read key-value head {layer.kv[j // share]}, not {head // anatomy.queries_per_kv}"
    return None

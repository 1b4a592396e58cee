"""The methods of pruning by name, and what a user can ask for.

A method is a choice of scores, of how layers share what goes, and of what is done to outputs afterwards; SlimLLM's
ablations are the same choices made one by one. Knows names. Does not know tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from icml25cli.core.errors import InputError, UsageError

HEAD_SCORES = ("pearson", "wanda", "magnitude", "random")
FFN_SCORES = ("feature", "lorap", "wanda", "magnitude", "random")
SEARCHES = ("greedy", "none", "full")
REPAIRS = ("linear", "bias", "none", "ridge")
LAYER_RATIOS = ("cosine", "uniform")
GQA = ("group", "expand", "query")
SHARES = ("decoder", "all")


@dataclass(frozen=True)
class Method:
    """How heads and channels are chosen, and their loss repaired.

    ``layer_ratio`` is how layers share what goes: by ``cosine`` (section 3.1 of the paper), ``uniform``; ``threshold``,
    one for all heads and channels of the model; ``whole``, layers go as they are.
    """

    head_score: str
    ffn_score: str
    search: str = "none"  # for better heads than those of the score, by Pearson correlation
    repair: str = "none"
    layer_ratio: str = "uniform"
    keep_low: float = 0.0  # share of channels, those of the lowest score, that stay


_SLIMLLM = Method("pearson", "feature", search="greedy", repair="linear", layer_ratio="cosine", keep_low=0.01)
METHODS = {
    "slimllm": _SLIMLLM,
    "wanda-sp": Method("wanda", "wanda"),
    "flap": Method("fluctuation", "fluctuation", repair="bias", layer_ratio="threshold"),
    "lorap-ffn": replace(_SLIMLLM, ffn_score="lorap"),
    "magnitude-sp": Method("magnitude", "magnitude"),
    "random": Method("random", "random"),
    "depth": Method("none", "none", layer_ratio="whole"),
}
# What of a method cannot be changed without leaving nothing of it.
_FIXED = {
    "flap": ("head_score", "ffn_score", "search", "layer_ratio", "keep_low"),
    "depth": ("head_score", "ffn_score", "search", "repair", "layer_ratio", "keep_low"),
}


@dataclass(frozen=True)
class Options:
    """What is asked for. None is the method's own choice, for ``alpha`` and ``layers`` the paper's at such a target."""

    method: str = "slimllm"
    target: float = 0.2  # share of parameters to remove
    of: str = "decoder"  # whose parameters: the decoder blocks', or all
    gqa: str = "group"  # what goes together where query heads share key-value heads
    alpha: float | None = None  # of the softmax over layers
    layers: int | None = None  # that lose anything
    protect: tuple[int, ...] = ()  # layers that lose nothing
    multiple_of: int = 1  # what the widths of feed-forward networks are multiples of
    alike: bool = False  # all layers lose the same, heads in numbers that the family's stock class takes
    head_score: str | None = None
    search: str | None = None
    ffn_score: str | None = None
    repair: str | None = None
    layer_ratio: str | None = None
    keep_low: float | None = None
    seed: int = 0

    @property
    def chosen(self) -> Method:
        """The method with what was asked to be different in it."""
        asked = {field.name: getattr(self, field.name) for field in fields(Method)}
        method = replace(METHODS[self.method], **{name: value for name, value in asked.items() if value is not None})
        return replace(method, layer_ratio="uniform") if self.alike and method.layer_ratio == "cosine" else method


_CHOICES: dict[str, tuple[str, ...]] = {
    "method": tuple(METHODS),
    "of": SHARES,
    "gqa": GQA,
    "head_score": HEAD_SCORES,
    "search": SEARCHES,
    "ffn_score": FFN_SCORES,
    "repair": REPAIRS,
    "layer_ratio": LAYER_RATIOS,
}


def check_options(options: Options) -> None:
    """Refuse options of no meaning, before a model is read.

    Raises:
        UsageError: the option is named.
    """
    for name, choices in _CHOICES.items():
        value = getattr(options, name)
        optional = Options.__dataclass_fields__[name].default is None
        if value not in choices and not (optional and value is None):
            raise UsageError(f"{_spelt(name)} {value} is none of {', '.join(choices)}")
    limits: dict[str, tuple[float, float]] = {
        "target": (0, 1),
        "alpha": (0, float("inf")),
        "layers": (1, 2**16),
        "keep_low": (0, 0.5),
        "multiple_of": (1, 2**16),
        "seed": (0, 2**32 - 1),
    }
    for name, (low, high) in limits.items():
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            raise UsageError(f"{_spelt(name)} {value} does not lie in {low} to {high}")
    if min(options.protect, default=0) < 0:
        raise UsageError(f"--protect {min(options.protect)} is no layer")
    if options.alike and (options.protect or options.layers or options.layer_ratio == "cosine"):
        raise UsageError(
            "layers cannot be alike where some lose other shares than others",
            hint="leave out --protect, --layers and --layer-ratio, or --export uniform",
        )
    if options.alike and options.chosen.layer_ratio == "threshold":
        raise UsageError(f"--method {options.method} leaves no two layers alike", hint="use --export custom")
    for name in _FIXED.get(options.method, ()):
        if getattr(options, name) is not None:
            raise UsageError(f"{_spelt(name)} does not go with --method {options.method}", hint="leave out one of them")


def read_options(stored: Mapping[str, Any]) -> Options:
    """Options as a plan file holds them.

    Raises:
        InputError: a field is unknown or has another value than an option can have.
    """
    forms = get_type_hints(Options)
    if unknown := sorted(stored.keys() - forms.keys()):
        raise InputError(f"the plan's options have a field {unknown[0]}, which is none", hint="take it out")
    for name, value in stored.items():
        if not _has_type(value, forms[name]):
            like = json.dumps(write_options(Options())[name])
            raise InputError(f"the plan's options: {name} cannot be {json.dumps(value)}", hint=f"its default is {like}")
    options = Options(**{**stored, "protect": tuple(stored.get("protect", ()))})
    try:
        check_options(options)
    except UsageError as error:
        raise InputError(f"the plan's options cannot be used: {error}", hint="correct the plan") from error
    return options


def _has_type(value: Any, wanted: Any) -> bool:
    """Whether a value read from JSON is of the type that a field of ``Options`` is declared with."""
    if get_origin(wanted) is UnionType:
        return any(_has_type(value, kind) for kind in get_args(wanted))
    if get_origin(wanted) is tuple:
        return isinstance(value, list) and all(_has_type(item, get_args(wanted)[0]) for item in value)
    return type(value) is wanted or (wanted is float and type(value) is int)


def write_options(options: Options) -> dict[str, Any]:
    """Options as JSON types."""
    return {**asdict(options), "protect": list(options.protect)}


def _spelt(name: str) -> str:
    return f"--{name.replace('_', '-')}"

"""How many heads and channels each layer loses, so that a share of all parameters goes.

Layers share by the softmax of how little they change their input (section 3.1 of the paper), evenly, or by one
threshold over all scores. The ratio is solved on whole heads and channels, and what is stored is what counts: copies of
key-value heads and new biases too. Knows numbers of parts. Does not know tensors, or which heads and channels go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from icml25cli.core.errors import UsageError
from icml25cli.core.progress import warn
from icml25cli.papers.prune.anatomy import Anatomy
from icml25cli.papers.prune.methods import Options
from icml25cli.papers.prune.units import HeadUnits, head_units

CAP = 0.9  # most of a layer that goes; what is above it goes from the others
MIN_CHANNELS = 8
COARSE = 0.15  # steps of heads larger than this share of a layer deserve a warning


@dataclass(frozen=True)
class Quotas:
    """What each layer keeps, as numbers; ``units`` are what of attention goes at once."""

    ratios: Float64[ndarray, " layers"]
    dropped_units: Int64[ndarray, " layers"]
    channels: Int64[ndarray, " layers"]  # kept


# --- how layers share --------------------------------------------------------------------------------------------


def paper_layers(target: float, layers: int) -> int:
    """How many of ``layers`` lose anything: 26 of 32 at 20 %, 30 of 32 at 50 %, in between in proportion."""
    return round(float(np.interp(target, (0.2, 0.5), (26 / 32, 30 / 32))) * layers)


def paper_alpha(target: float) -> float:
    """Sharpness of the softmax: 10 at 20 %, 7 at 50 %, in between in proportion."""
    return float(np.interp(target, (0.2, 0.5), (10, 7)))


def cosine_weights(
    cosines: Sequence[float], count: int, alpha: float, protect: Sequence[int] = ()
) -> Float64[ndarray, " layers"]:
    """n_p times the softmax of ``alpha`` times the ``count`` highest cosines; 0 for the other layers."""
    s = np.asarray(cosines, dtype=np.float64)
    free = [i for i in range(len(s)) if i not in protect]
    chosen = sorted(free, key=lambda i: -s[i])[:count]
    weights = np.zeros(len(s))
    if not chosen:
        return weights
    softmax = np.exp(alpha * (s[chosen] - s[chosen].max()))
    weights[chosen] = len(chosen) * softmax / softmax.sum()
    return weights


def capped(weights: Float64[ndarray, " layers"], ratio: float) -> Float64[ndarray, " layers"]:
    """``ratio`` times ``weights``, none above ``CAP``: the excess goes to the others in proportion to their weights."""
    ratios = np.zeros(len(weights))
    free = weights > 0
    left = ratio * weights.sum()
    while free.any():
        ratios[free] = left * weights[free] / weights[free].sum()
        over = free & (ratios > CAP)
        if not over.any():
            break
        ratios[over] = CAP
        left -= CAP * over.sum()
        free &= ~over
    return ratios


# --- solving -----------------------------------------------------------------------------------------------------


def ratio_quotas(anatomy: Anatomy, options: Options, cosines: Sequence[float], total: int, *, biases: bool) -> Quotas:
    """Quotas at which ``options.target`` of ``total`` parameters go, by cosine or evenly.

    Args:
        total: parameters that the target is a share of.
        biases: what is cut gets a bias, which counts.

    Raises:
        UsageError: so much cannot go from these layers.
    """
    return _solve(_by_ratio(anatomy, options, cosines), anatomy, options, total, biases)


def check_target(anatomy: Anatomy, options: Options, total: int, *, biases: bool) -> None:
    """Refuse, before a model is run, a target that is out of reach whatever cosines and scores turn out to be.

    All layers are of one shape, so that which of them lose most does not matter.

    Args and errors as of ``ratio_quotas``.
    """
    cosines = [0.0] * anatomy.layers
    if options.chosen.layer_ratio == "whole":
        whole_layers(anatomy, options, cosines, total)
    elif options.chosen.layer_ratio == "threshold":
        units = head_units(anatomy, options.gqa).count
        scores = np.zeros((anatomy.layers, units + anatomy.inner))
        _most(_by_threshold(anatomy, options, scores[:, :units], scores[:, units:]), anatomy, options, total, biases)
    else:
        _most(_by_ratio(anatomy, options, cosines), anatomy, options, total, biases)


def _by_ratio(anatomy: Anatomy, options: Options, cosines: Sequence[float]) -> Callable[[float], Quotas]:
    free = anatomy.layers - len(options.protect)
    if options.chosen.layer_ratio == "cosine":
        count = options.layers or min(free, paper_layers(options.target, anatomy.layers))
        alpha = paper_alpha(options.target) if options.alpha is None else options.alpha
    else:
        count, alpha = options.layers or free, 0.0
    if count > free:
        raise UsageError(f"--layers {count} is more than the {free} layers that may lose anything", hint="lower it")
    weights = cosine_weights(cosines, count, alpha, options.protect)
    units = head_units(anatomy, options.gqa)

    def counts(ratio: float) -> Quotas:
        ratios = capped(weights, ratio)
        dropped = np.minimum(np.rint(ratios * units.count).astype(np.int64), units.count - 1)
        if options.alike:
            dropped = _nearest_taken(anatomy, units, ratios)
        kept = anatomy.inner - np.rint(ratios * anatomy.inner).astype(np.int64)
        return Quotas(ratios, dropped, _widths(kept, anatomy, options.multiple_of))

    return counts


def threshold_quotas(
    anatomy: Anatomy,
    options: Options,
    heads: Float64[ndarray, "layers units"],
    channels: Float64[ndarray, "layers inner"],
    total: int,
    *,
    biases: bool,
) -> Quotas:
    """Quotas of one threshold under all scores of the model, which are to be comparable between layers.

    Raises:
        UsageError: so much cannot go from these layers.
    """
    return _solve(_by_threshold(anatomy, options, heads, channels), anatomy, options, total, biases)


def _by_threshold(
    anatomy: Anatomy,
    options: Options,
    heads: Float64[ndarray, "layers units"],
    channels: Float64[ndarray, "layers inner"],
) -> Callable[[float], Quotas]:
    layers = np.array([i for i in range(anatomy.layers) if i not in options.protect], dtype=np.int64)
    units = head_units(anatomy, options.gqa)
    scores = np.concatenate([heads[layers], channels[layers]], axis=1)
    ranks = np.empty(scores.size, dtype=np.int64)
    ranks[np.argsort(scores, axis=None, kind="stable")] = np.arange(scores.size)
    ranks = ranks.reshape(scores.shape)

    def counts(share: float) -> Quotas:
        gone = ranks < round(share * scores.size)
        dropped = np.zeros(anatomy.layers, dtype=np.int64)
        kept = np.full(anatomy.layers, anatomy.inner, dtype=np.int64)
        ratios = np.zeros(anatomy.layers)
        dropped[layers] = np.minimum(gone[:, : units.count].sum(1), units.count - 1)
        kept[layers] -= gone[:, units.count :].sum(1)
        ratios[layers] = gone[:, units.count :].mean(1)
        return Quotas(ratios, dropped, _widths(kept, anatomy, options.multiple_of))

    return counts


def whole_layers(anatomy: Anatomy, options: Options, cosines: Sequence[float], total: int) -> list[int]:
    """The layers of highest cosine, as many as come nearest to the target (ShortGPT).

    Raises:
        UsageError: protected layers leave too few.
    """
    count = round(options.target * total / anatomy.block_parameters)
    free = [i for i in range(anatomy.layers) if i not in options.protect]
    if count > min(len(free), anatomy.layers - 1):
        raise _out_of_reach(options, min(len(free), anatomy.layers - 1) * anatomy.block_parameters / total)
    return sorted(sorted(free, key=lambda i: -cosines[i])[:count])


def removed_parameters(anatomy: Anatomy, options: Options, quotas: Quotas, *, biases: bool) -> int:
    """How many parameters fewer there are under these quotas."""
    names, units = anatomy.names, head_units(anatomy, options.gqa)
    removed = 0
    for dropped, channels in zip(quotas.dropped_units.tolist(), quotas.channels.tolist(), strict=True):
        cut = {names.output: dropped > 0, names.down: channels < anatomy.inner}
        added = sum(biases and is_cut and name not in anatomy.biased for name, is_cut in cut.items())
        removed += anatomy.block_parameters - anatomy.parameters(*units.left(anatomy, dropped), channels, added)
    return removed


def _solve(counts: Callable[[float], Quotas], anatomy: Anatomy, options: Options, total: int, biases: bool) -> Quotas:
    """Bisect for the parameters to go: first with heads and channels, then, heads being coarse, with channels alone."""
    goal = options.target * total

    def removed(quotas: Quotas) -> int:
        return removed_parameters(anatomy, options, quotas, biases=biases)

    def nearest(at: Callable[[float], Quotas]) -> Quotas:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if removed(at(middle)) < goal else (low, middle)
        return min(at(low), at(high), key=lambda quotas: abs(removed(quotas) - goal))

    if goal == 0:
        return counts(0.0)
    _most(counts, anatomy, options, total, biases)
    first = nearest(counts)

    def rest(ratio: float) -> Quotas:
        return Quotas(first.ratios, first.dropped_units, counts(ratio).channels)

    found = nearest(rest)
    _caution(anatomy, options, found, abs(removed(found) - goal), total)
    return found


def _most(counts: Callable[[float], Quotas], anatomy: Anatomy, options: Options, total: int, biases: bool) -> None:
    """Refuse a target beyond what goes where all goes that may."""
    quotas = counts(CAP if options.chosen.layer_ratio != "threshold" else 1.0)
    most = removed_parameters(anatomy, options, quotas, biases=biases)
    if options.target and most < options.target * total:
        raise _out_of_reach(options, most / total)


def _nearest_taken(
    anatomy: Anatomy, units: HeadUnits, ratios: Float64[ndarray, " layers"]
) -> Int64[ndarray, " layers"]:
    """Numbers of dropped units, as near to the ratios as the family's stock class takes what is left of the heads."""
    taken = np.array([n for n in range(units.count) if anatomy.takes_heads(units.left(anatomy, n)[0])])
    return taken[np.abs(taken - units.count * ratios[:, None]).argmin(1)]


def _widths(kept: Int64[ndarray, " layers"], anatomy: Anatomy, multiple: int) -> Int64[ndarray, " layers"]:
    """Kept channels as multiples, and never too few; a network that keeps all keeps its width."""
    least = -(-MIN_CHANNELS // multiple) * multiple
    rounded = np.clip(np.rint(kept / multiple).astype(np.int64) * multiple, least, None)
    return np.where(kept == anatomy.inner, kept, np.minimum(rounded, anatomy.inner))


def _caution(anatomy: Anatomy, options: Options, quotas: Quotas, miss: float, total: int) -> None:
    units = head_units(anatomy, options.gqa)
    one = anatomy.head_parameters() * anatomy.heads // units.count + anatomy.kv_parameters() * (units.kind == "group")
    if miss > one / 2:
        warn(f"the nearest that whole heads and widths come to --target {options.target} is {miss / total:.2%} off it")
    if 1 / units.count > COARSE and quotas.dropped_units.any():
        finer = "" if anatomy.queries_per_kv == 1 or units.kind == "expand" else "; --gqa expand has finer steps"
        warn(f"heads go in steps of {1 / units.count:.0%} of a layer{finer}")
    floors = [
        i
        for i in range(anatomy.layers)
        if quotas.dropped_units[i] == units.count - 1 > 0 and quotas.ratios[i] * units.count > units.count - 0.5
    ]
    if floors:
        warn(f"{len(floors)} layers would lose every head, and keep one: {', '.join(map(str, floors))}")


def _out_of_reach(options: Options, most: float) -> UsageError:
    ways = {
        "--protect fewer layers": bool(options.protect),
        "raise --layers": bool(options.layers),
        "lower --multiple-of": options.multiple_of > MIN_CHANNELS,
        "use another --method": options.chosen.layer_ratio == "whole",
        "count --of decoder": options.of == "all",
    }
    most = max(0.0, most)
    return UsageError(
        f"--target {options.target} is out of reach: at most {most:.0%} can go from the layers that may lose anything",
        hint=", or ".join(["lower it", *(way for way, helps in ways.items() if helps)]),
    )

"""What the paper says, as checks that can fail.

The paper's networks and its two hundred tables are out of reach: its orders of methods are checked with the network
that ships, on tables of scikit-learn (quick) and of KEEL (full), paired over tables and splits. Knows methods and
tables. Does not know the command line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64
from numpy import ndarray

from icml25cli.core.claims import Claim, Interval, Size, at_least, at_most
from icml25cli.core.errors import MissingError
from icml25cli.core.progress import display
from icml25cli.papers.tabpfn_bag.bias_variance import log_parts
from icml25cli.papers.tabpfn_bag.codes import Code, binary_code
from icml25cli.papers.tabpfn_bag.encoders import EncoderConfig, PathEncoder, Rows
from icml25cli.papers.tabpfn_bag.ensemble import probabilities
from icml25cli.papers.tabpfn_bag.finetune import Recipe, log_loss
from icml25cli.papers.tabpfn_bag.job import Split, make_split
from icml25cli.papers.tabpfn_bag.model import Model, Options, fit_model
from icml25cli.papers.tabpfn_bag.nets import load_net
from icml25cli.papers.tabpfn_bag.readers import read_tables
from icml25cli.papers.tabpfn_bag.spread import training_sets

TABLES: dict[Size, tuple[str, ...]] = {
    "quick": ("builtin:breast_cancer", "builtin:digits"),
    "full": ("keel:vehicle", "keel:phoneme", "keel:german", "keel:mammographic", "builtin:digits"),
}
SPLITS: dict[Size, int] = {"quick": 2, "full": 3}
MOST_ROWS: dict[Size, int] = {"quick": 400, "full": 1500}  # to fit on, and to judge on
OPTIONS: dict[Size, Options] = {
    "quick": Options(paths=4, fallback=False, recipe=Recipe(epochs=4, batch=128, context=128)),
    "full": Options(fallback=False, recipe=Recipe(epochs=30)),
}
SETS = 6  # training sets of bias and variance


# --- fits, which claims share ------------------------------------------------------------------------------------


@lru_cache
def splits(size: Size) -> tuple[Split, ...]:
    """The same rows for all methods.

    Raises:
        MissingError: KEEL's tables are not fetched.
    """
    most = MOST_ROWS[size]
    return tuple(
        make_split(frame, labels, seed, test=0.4, most_train=most, most_held=most)
        for frame, labels in read_tables(TABLES[size]).values()
        for seed in range(SPLITS[size])
    )


@lru_cache
def fitted(size: Size, method: str) -> tuple[Model, ...]:
    """A model a split."""
    with display(quiet=True):  # what there is to say of a table would be said for every fit
        return tuple(
            fit_model(s.train, pd.Series(s.train_labels), load_net(), replace(OPTIONS[size], method=method))
            for s in splits(size)
        )


@lru_cache
def losses(size: Size, method: str) -> tuple[float, ...]:
    """Log-loss on each split's held-out rows."""
    pairs = zip(fitted(size, method), splits(size), strict=True)
    return tuple(log_loss(model.probabilities(s.held), s.held_labels) for model, s in pairs)


def less(size: Size, one: str, other: str) -> Interval:
    """How many nats the first loses less than the second."""
    return Interval.of_mean(np.array(losses(size, other)) - np.array(losses(size, one)))


def alone_over_together(size: Size, method: str, *, copies: bool = False) -> Interval:
    """Mean loss of single paths over that of the ensemble; of ``copies``, of an ensemble of one path repeated."""
    gaps = []
    for model, split in zip(fitted(size, method), splits(size), strict=True):
        predictor = model.predictor
        scores = predictor.task_scores(model.schema.rows(split.held))
        if copies:
            scores = scores[:1].expand_as(scores)
        ways = range(len(predictor.tasks))
        alone = [probabilities(scores[k : k + 1], predictor.tasks.take(np.array([k]))) for k in ways]
        together = probabilities(scores, predictor.tasks)
        gaps.append(np.mean([log_loss(p, split.held_labels) for p in alone]) - log_loss(together, split.held_labels))
    return Interval.of_mean(gaps)


# --- bias and variance -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    bias: float
    variance: float


@lru_cache
def spreads(size: Size, rows: int, paths: int) -> tuple[Spread, ...]:
    """Of the network as it is with ``paths`` contexts of ``rows`` rows, out of training sets of 128."""
    found = []
    for split in splits(size):
        pool = split.train_labels
        sets, _ = training_sets(pool, min(128, len(pool) // 2), SETS, 0)
        p = []
        for i, index in enumerate(sets):
            frame = split.train.iloc[index].reset_index(drop=True)
            recipe = replace(OPTIONS[size].recipe, shown=rows, seed=i)
            options = replace(OPTIONS[size], method="bag", paths=paths, recipe=recipe)
            with display(quiet=True):
                model = fit_model(frame, pd.Series(pool[index]), load_net(), options)
            p.append(model.probabilities(split.held))
        parts = log_parts(np.stack(p), split.held_labels)
        found.append(Spread(parts.bias, parts.variance))
    return tuple(found)


def falls(size: Size, quantity: str, first: tuple[int, int], then: tuple[int, int]) -> Interval:
    """By how many nats a part of the loss falls from contexts (rows, paths) to others."""
    pairs = zip(spreads(size, *first), spreads(size, *then), strict=True)
    return Interval.of_mean([getattr(a, quantity) - getattr(b, quantity) for a, b in pairs])


# --- exact ones --------------------------------------------------------------------------------------------------


def path_error(*, scaled: bool) -> Interval:
    """Largest difference of a path from an ordinary network of weights W * (s r^T), or of weights W."""
    encoder = PathEncoder(EncoderConfig(5, (3,), 4, "tabm", width=16), seed=0)
    source = torch.Generator().manual_seed(0)
    for name, weight in encoder.named_parameters():
        if "scale" in name:
            weight.data += 0.3 * torch.randn(weight.shape, generator=source)
    rows = Rows(torch.randn(50, 5, generator=source), torch.randint(0, 3, (50, 1), generator=source))
    together = encoder(rows)
    worst = 0.0
    for k in range(4):
        x = encoder.embed(rows)
        for layer in encoder.blocks:
            assert layer.scale_in is not None
            assert layer.scale_out is not None
            factor = torch.outer(layer.scale_out[k], layer.scale_in[k]) if scaled else 1.0
            x = torch.selu(torch.nn.functional.linear(x, layer.weight * factor, layer.bias[k]))
        worst = max(worst, (x - together[k]).abs().max().item())
    return Interval.exact(worst)


def forgiven(code: Code, wrong: int) -> Interval:
    """Share of classes that are still told with ``wrong`` symbols of their word changed, over 2000 words."""
    rng = np.random.default_rng(0)
    classes, length = code.matrix.shape
    said = np.arange(2000) % classes
    words = code.matrix[said].copy()
    for word in words:
        word[rng.choice(length, wrong, replace=False)] ^= 1
    scores: Float64[ndarray, "n classes"] = np.zeros((len(words), classes))
    return Interval.exact(float((code.nearest(words, scores) == said).mean()))


def one_hot(classes: int) -> Code:
    return Code(np.eye(classes, dtype=np.int64), 2)


# --- the claims --------------------------------------------------------------------------------------------------

ORDER = "orders of methods on two hundred tables of TALENT"


def ordered(name: str, says: str, one: str, other: str, effect: float, *, without: str, control: str) -> Claim:
    """One method loses less than another; the control stands for the first."""
    return Claim(
        name,
        says=says,
        source="section 5, main results and ablations",
        published=ORDER,
        quantity=f"nats that {one} loses less than {other}",
        predicts=at_least(effect),
        measure=lambda size: less(size, one, other),
        control=lambda size: less(size, control, other),
        without=without,
    )


def out_of_reach(size: Size) -> Interval:
    raise MissingError(
        "needs TabPFN's own weights and the two hundred tables of TALENT",
        hint="bench does it on tables that are here",
    )


def _falls(quantity: str, first: tuple[int, int], then: tuple[int, int]) -> Callable[[Size], Interval]:
    return lambda size: falls(size, quantity, first, then)


CLAIMS = (
    Claim(
        "shared-weights",
        says="a path is an ordinary network of weights W * (s r^T)",
        source="section 3, batch ensemble",
        published="exact",
        quantity="largest difference of an encoded row",
        predicts=at_most(1e-5),
        measure=lambda size: path_error(scaled=True),
        control=lambda size: path_error(scaled=False),
        without="the factors s and r",
    ),
    Claim(
        "codes",
        says="more classes than the network has are told by error-correcting output codes",
        source="section 3, more than ten classes",
        published="the idea",
        quantity="share of 26 classes told with three wrong symbols of their word",
        predicts=at_least(1.0),
        measure=lambda size: forgiven(binary_code(26, 20), 3),
        control=lambda size: forgiven(one_hot(26), 3),
        without="distance: a word with one symbol for each class",
    ),
    ordered(
        "tuned",
        "encoders trained through the frozen network beat the network as it is",
        *("beta", "frozen", 0.005),
        without="training: the network as it is on either side",
        control="frozen",
    ),
    ordered(
        "network",
        "it is the network's knowledge that is used: one of random weights does worse",
        *("beta", "random-pfn", 0.01),
        without="the network's weights on either side",
        control="random-pfn",
    ),
    Claim(
        "ensemble",
        says="paths together beat paths alone",
        source="section 4, bagging of encoders",
        published="figure of bias and variance",
        quantity="nats that single paths lose more than all together",
        predicts=at_least(0.002),
        measure=lambda size: alone_over_together(size, "beta"),
        control=lambda size: alone_over_together(size, "beta", copies=True),
        without="differences between paths: one path, repeated",
    ),
    Claim(
        "variance",
        says="bagging lowers variance",
        source="section 4, bias and variance",
        published="Adult and Bank: variance falls with bagging",
        quantity="nats by which variance falls from one context to eight",
        predicts=at_least(0.002),
        measure=_falls("variance", (64, 1), (64, 8)),
        control=_falls("variance", (64, 1), (64, 1)),
        without="bagging: one context on either side",
    ),
    Claim(
        "context",
        says="more rows in a context lower variance",
        source="section 4, bias and variance",
        published="Adult and Bank: variance falls with the context, bias levels off",
        quantity="nats by which variance falls from 64 rows to 128",
        predicts=at_least(0.002),
        measure=_falls("variance", (64, 1), (128, 1)),
        control=_falls("variance", (64, 1), (64, 1)),
        without="more rows: 64 on either side",
    ),
    Claim(
        "first-of-all",
        says="Beta ranks first among tabular methods",
        source="section 5, main results",
        published="first by mean rank on two hundred tables of TALENT",
        quantity="mean rank",
        predicts=at_most(1.5),
        measure=out_of_reach,
        control=out_of_reach,
        without="encoders and bagging",
        sizes=("full",),
    ),
)

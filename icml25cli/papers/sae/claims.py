"""What the paper says, as checks that can fail.

Orders of methods on rows whose atoms are known, over seeds, each with its own data and start. The paper's own
embeddings are out of reach. Knows methods, training and metrics. Does not know the command line.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from icml25cli.core.claims import Claim, Interval, Size, at_least, at_most
from icml25cli.core.embeddings import of_array
from icml25cli.core.errors import MissingError
from icml25cli.core.survey import survey
from icml25cli.papers.sae.config import Budget, Config
from icml25cli.papers.sae.metrics import evaluate
from icml25cli.papers.sae.model import Scaling
from icml25cli.papers.sae.synthetic import dictionary
from icml25cli.papers.sae.training import train

D, N, ACTIVE, HELD_OUT = 32, 64, 3, 1000
LEVELS, KS = (2, 4, 8, 16, 32, 64), (2, 4, 8, 16, 64)
RUNS: dict[Size, tuple[int, int, int]] = {"quick": (3, 8000, 20), "full": (5, 20_000, 60)}  # seeds, rows, epochs
METHODS = {
    "uw": Config("msae", D, N, "uw", LEVELS),
    "rw": Config("msae", D, N, "rw", LEVELS),
    "one level": Config("msae", D, N, "uw", (ACTIVE,)),
    "topk": Config("topk", D, N, k=ACTIVE),
}


@lru_cache
def errors(name: str, size: Size) -> tuple[tuple[float, ...], ...]:
    """FVU on held-out rows at each of ``KS``, a seed each; claims share these runs."""
    seeds, rows, epochs = RUNS[size]
    found = []
    for seed in range(seeds):
        made = dictionary(rows, D, N, ACTIVE, seed=seed).rows
        training, test = of_array("training", made[HELD_OUT:]), of_array("held out", made[:HELD_OUT])
        trained = train(METHODS[name], Budget(epochs, 256, 2e-3, seed), training, Scaling.of(survey(training)))
        found.append(tuple(quality.fvu for quality in evaluate(trained.model, test, KS)))
    return tuple(found)


def log_ratio(one: str, other: str, k: int) -> Callable[[Size], Interval]:
    """ln of the second method's error over the first's."""

    def measure(size: Size) -> Interval:
        a, b = (np.log([fvu[KS.index(k)] for fvu in errors(name, size)]) for name in (one, other))
        return Interval.of_mean(b - a)

    return measure


def largest_rise(name: str) -> Callable[[Size], Interval]:
    """The largest ln of the error at one k over that at the k before."""
    return lambda size: Interval.of_mean(np.diff(np.log(errors(name, size)), axis=1).max(axis=1))


def out_of_reach(size: Size) -> Interval:
    raise MissingError("needs CLIP embeddings of CC3M and ImageNet", hint="sae train does it where they are")


CLAIMS = (
    Claim(
        "falls-at-every-k",
        says="reconstruction gets better with every latent that is added",
        source="section 4, progressive recovery",
        published="a figure",
        quantity="largest ln of unexplained variance at one k over that at the k before",
        predicts=at_most(-0.05),
        measure=largest_rise("uw"),
        control=largest_rise("one level"),
        without="nested levels: one TopK",
    ),
    Claim(
        "full-code",
        says="with all its latents it explains more than TopK",
        source="section 4, the tables of sparsity and fidelity",
        published="below 0.1 unexplained on CLIP ViT-L/14",
        quantity="ln of TopK's unexplained variance over MSAE's, full codes",
        predicts=at_least(float(np.log(2))),
        measure=log_ratio("uw", "topk", N),
        control=log_ratio("one level", "topk", N),
        without="nested levels: one TopK",
    ),
    Claim(
        "reverse-weights-small-k",
        says="weights that favour small k are better at small k",
        source="section 3, RW and UW",
        published="a trade-off",
        quantity="ln of UW's unexplained variance over RW's at k = 2",
        predicts=at_least(0.02),
        measure=log_ratio("rw", "uw", 2),
        control=log_ratio("uw", "uw", 2),
        without="the weights: all alike on both sides",
    ),
    Claim(
        "uniform-weights-full-code",
        says="uniform weights are better with all latents",
        source="section 3, RW and UW",
        published="a trade-off",
        quantity="ln of RW's unexplained variance over UW's, full codes",
        predicts=at_least(0.02),
        measure=log_ratio("uw", "rw", N),
        control=log_ratio("rw", "rw", N),
        without="the weights: the same on both sides",
    ),
    Claim(
        "clip",
        says="0.99 cosine similarity, less than 0.1 unexplained variance and 80 % sparsity at once",
        source="abstract",
        published="0.99, below 0.1, about 80 %",
        quantity="mean cosine of embeddings and reconstructions",
        predicts=at_least(0.99),
        measure=out_of_reach,
        control=out_of_reach,
        without="nested levels: ReLU with a penalty",
        sizes=("full",),
    ),
)

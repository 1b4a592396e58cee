"""Two views of bits with known shared and unique information about a label (section 4.1, appendix; spec 3.5).

``x1`` holds eight shared bits and four of its own, ``x2`` the same shared ones and four others. Of the label's eight
bits R are shared and 8 - R unique. Everything about it can be summed exactly. Knows numbers. Does not know encoders.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from icml25cli.core.errors import InputError

SHARED, OWN, CHOSEN, CLASSES = 8, 4, 8, 4
TEMPERATURE = 0.05
FEATURES_SEED, WEIGHTS_SEED = 1, 2


@dataclass(frozen=True)
class Task:
    """A label of eight bits.

    Attributes:
        redundant: R, how many of them both views hold.
        shared, first, second: which bits of the shared eight, and of each view's own four.
        given: P(label | bits), a row a combination, the chosen bits as a binary number, the first the highest.
    """

    redundant: int
    shared: Int64[ndarray, "R"]
    first: Int64[ndarray, "u1"]
    second: Int64[ndarray, "u2"]
    given: Float64[ndarray, "256 classes"]

    @property
    def unique(self) -> int:
        return CHOSEN - self.redundant


def task(redundant: int, temperature: float = TEMPERATURE) -> Task:
    """The task with R redundant bits: softmax of a linear map, balanced until classes are equally likely.

    Raises:
        InputError: R is not in 0 to 8, or the temperature is not positive.
    """
    if not 0 <= redundant <= CHOSEN:
        raise InputError(f"{redundant} redundant bits of {CHOSEN} do not exist")
    if not temperature > 0:
        raise InputError(f"temperature {temperature} is not positive")
    one = (CHOSEN - redundant) // 2
    other = CHOSEN - redundant - one
    if max(one, other) > OWN:
        raise InputError(f"{CHOSEN - redundant} unique bits are more than the {2 * OWN} there are")
    draw = np.random.RandomState(FEATURES_SEED)  # the authors' generator, so that their tasks come out
    shared, first, second = (
        draw.choice(size, number, replace=False) for size, number in ((SHARED, redundant), (OWN, one), (OWN, other))
    )
    weights = np.random.RandomState(WEIGHTS_SEED).uniform(0, 1, (CHOSEN, CLASSES))
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    logits = _combinations(CHOSEN) @ weights / temperature
    given = np.exp(logits - logits.max(axis=1, keepdims=True))
    given /= given.sum(axis=1, keepdims=True)
    for _ in range(100):
        marginal = given.mean(axis=0)
        if np.allclose(marginal, 1 / CLASSES, atol=0.01):
            break
        given = given * (1 / CLASSES / marginal)
        given /= given.sum(axis=1, keepdims=True)
    return Task(redundant, shared, first, second, given)


def _combinations(bits: int) -> Int64[ndarray, "2**bits bits"]:
    return (np.arange(2**bits)[:, None] >> np.arange(bits)[::-1]) & 1


def view(of: Task, second: bool) -> tuple[Float64[ndarray, "4096 12"], Float64[ndarray, "4096 classes"]]:
    """All combinations of the bits of a view, equally likely, and P(label | them)."""
    r, u1 = of.redundant, len(of.first)
    table = of.given.reshape((2**r, 2**u1, 2 ** len(of.second), CLASSES)).mean(axis=1 if second else 2)
    bits = _combinations(SHARED + OWN)
    chosen = bits[:, np.concatenate([of.shared, SHARED + (of.second if second else of.first)])]
    row = chosen @ (1 << np.arange(chosen.shape[1])[::-1])
    return bits.astype(np.float64), table.reshape(-1, CLASSES)[row]


@dataclass(frozen=True)
class Exact:
    """Information about the label in nats, and the accuracy of the best classifier, of each view and of both."""

    total: float
    first: float
    second: float
    shared: float
    accuracy: float
    accuracy_first: float
    accuracy_second: float


def exact(of: Task) -> Exact:
    """By summing over all combinations of bits."""
    r, u1 = of.redundant, len(of.first)
    whole = of.given.reshape((2**r, 2**u1, 2 ** len(of.second), CLASSES))
    views = {
        "total": of.given,
        "first": whole.mean(axis=2).reshape(-1, CLASSES),
        "second": whole.mean(axis=1).reshape(-1, CLASSES),
        "shared": whole.mean(axis=(1, 2)),
    }
    marginal = of.given.mean(axis=0)
    entropy = _entropy(marginal)
    information = {name: entropy - float(np.mean([_entropy(p) for p in view])) for name, view in views.items()}
    best = {name: float(view.max(axis=1).mean()) for name, view in views.items()}
    return Exact(**information, accuracy=best["total"], accuracy_first=best["first"], accuracy_second=best["second"])


def _entropy(p: Float64[ndarray, "classes"]) -> float:
    return float(-np.sum(p * np.log(np.where(p > 0, p, 1))))


@dataclass(frozen=True)
class Sample:
    """Drawn items: both views as 0 and 1, and labels."""

    x1: Float64[ndarray, "N 12"]
    x2: Float64[ndarray, "N 12"]
    label: Int64[ndarray, "N"]


def draw(of: Task, count: int, seed: int) -> Sample:
    """``count`` independent items."""
    rng = np.random.default_rng((seed, of.redundant))
    shared, first, second = (rng.integers(0, 2, (count, size)) for size in (SHARED, OWN, OWN))
    chosen = np.hstack([shared[:, of.shared], first[:, of.first], second[:, of.second]])
    row = chosen @ (1 << np.arange(CHOSEN)[::-1])
    label = (of.given[row].cumsum(axis=1) < rng.random((count, 1))).sum(axis=1)
    return Sample(
        np.hstack([shared, first]).astype(np.float64),
        np.hstack([shared, second]).astype(np.float64),
        np.minimum(label, CLASSES - 1),
    )


def heterogeneous(x: Float64[ndarray, "N d"], depth: int, seed: int = 0) -> Float64[ndarray, "N d"]:
    """A view seen otherwise: a linear map, then ``depth`` times tanh and another; torch's own start. -1 leaves it."""
    import torch

    if depth < 0:
        return x
    d = x.shape[1]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        rows = torch.nn.Linear(d, d)(torch.from_numpy(x).float())
        for _ in range(depth):
            rows = torch.nn.Linear(d, d)(torch.tanh(rows))
    return rows.double().numpy()

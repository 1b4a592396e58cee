"""Answers of several predictors made one, each to a power that validation rows decide (a logarithmic pool).

With one predictor the power is an inverse temperature, with two it is also how much either counts. A trained ensemble
is blended with the network as it is: where validation rows are few both count nearly the same.

Knows probabilities and predictors. Does not know training or files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from icml25cli.papers.tabpfn_bag.encoders import Rows
from icml25cli.papers.tabpfn_bag.ensemble import Predictor

# Nats over all validation rows: what moving a power by one from where it starts costs. Chosen on the development list.
CAUTION = 20.0
LEAST = 0.01  # power below which a predictor is left out
SMALLEST = 1e-15  # probability


@dataclass(frozen=True, eq=False)
class Blend:
    """Predictors of the same classes, and their powers."""

    members: tuple[Predictor, ...]
    powers: tuple[float, ...]

    def __call__(self, rows: Rows, progress: Callable[[int], None] = lambda _: None) -> Float64[ndarray, "n classes"]:
        """Class probabilities. ``progress`` is told how many more rows are done by the last member."""
        *others, last = self.members
        return pooled([*(member(rows) for member in others), last(rows, progress)], self.powers)


def pooled(answers: Sequence[Float64[ndarray, "n classes"]], powers: Sequence[float]) -> Float64[ndarray, "n classes"]:
    """The product of probabilities to their powers, normalised."""
    return _softmax(np.tensordot(powers, _logarithms(answers), 1))


def best_powers(
    answers: Sequence[Float64[ndarray, "n classes"]], labels: Int64[ndarray, "n"], start: Sequence[float]
) -> tuple[float, ...]:
    """Powers, none negative, of the least log-loss on ``labels`` and ``CAUTION`` times the squared way from ``start``.

    The sum of log-losses is convex in the powers, so that there is one minimum.
    """
    from scipy.optimize import minimize

    z, at = _logarithms(answers), np.asarray(start, float)
    right = z[:, np.arange(len(labels)), labels]

    def loss(powers: ndarray) -> tuple[float, ndarray]:
        mixed = np.tensordot(powers, z, 1)
        p = _softmax(mixed)
        nats = np.log(np.exp(mixed - mixed.max(1, keepdims=True)).sum(1)) + mixed.max(1) - powers @ right
        slope = (p * z).sum((1, 2)) - right.sum(1)
        return nats.sum() + CAUTION * ((powers - at) ** 2).sum(), slope + 2 * CAUTION * (powers - at)

    found = minimize(loss, at, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(at))
    return tuple(found.x.tolist())


def blend(members: Sequence[Predictor], powers: Sequence[float]) -> Blend:
    """A blend of the members that count."""
    kept = [pair for pair in zip(members, powers, strict=True) if pair[1] >= LEAST or len(members) == 1]
    return Blend(tuple(member for member, _ in kept), tuple(power for _, power in kept))


def _logarithms(answers: Sequence[ndarray]) -> Float64[ndarray, "members n classes"]:
    return np.log(np.maximum(np.stack(answers), SMALLEST))


def _softmax(z: Float64[ndarray, "n classes"]) -> Float64[ndarray, "n classes"]:
    p = np.exp(z - z.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)

"""Loss as bias and variance over training sets (section 3.8). Knows tensors of probabilities alone."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

LEAST = 1e-15  # probability


@dataclass(frozen=True)
class Parts:
    """A loss, its bias and its variance, means over test rows; for log-loss and Brier loss = bias + variance."""

    loss: float
    bias: float
    variance: float


def log_parts(p: Float64[ndarray, "sets n classes"], labels: Int64[ndarray, "n"]) -> Parts:
    """E_m[-log p_m(y)] = -log q(y) + E_m KL(q || p_m), q the normalised geometric mean of the p_m (Heskes 1998)."""
    log_p = np.log(np.maximum(p, LEAST))
    log_p -= np.log(np.exp(log_p).sum(2, keepdims=True))
    mean = log_p.mean(0)
    log_q = mean - np.log(np.exp(mean).sum(1, keepdims=True))
    rows = np.arange(len(labels))
    divergence = (np.exp(log_q) * (log_q - log_p)).sum(2).mean(0)
    return Parts(float(-log_p[:, rows, labels].mean()), float(-log_q[rows, labels].mean()), float(divergence.mean()))


def brier_parts(p: Float64[ndarray, "sets n classes"], labels: Int64[ndarray, "n"]) -> Parts:
    """E|y - p_m|^2 = |y - p|^2 + E|p - p_m|^2, p the mean of the p_m."""
    right = np.eye(p.shape[2])[labels]
    mean = p.mean(0)
    return Parts(
        float(((right - p) ** 2).sum(2).mean()),
        float(((right - mean) ** 2).sum(1).mean()),
        float(((p - mean) ** 2).sum(2).mean()),
    )


def zero_one_parts(p: Float64[ndarray, "sets n classes"], labels: Int64[ndarray, "n"]) -> Parts:
    """Errors; bias is whether the commonest guess is wrong, variance how often a guess is another (Domingos 2000)."""
    guess = p.argmax(2)
    counts = (guess[:, :, None] == np.arange(p.shape[2])).sum(0)
    main = counts.argmax(1)
    return Parts(float((guess != labels).mean()), float((main != labels).mean()), float((guess != main).mean()))


DECOMPOSITIONS = {"log_loss": log_parts, "brier": brier_parts, "error": zero_one_parts}

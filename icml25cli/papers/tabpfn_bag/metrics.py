"""How good class probabilities are. Knows arrays."""

import warnings

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from icml25cli.papers.tabpfn_bag.finetune import log_loss

BINS = 15  # of confidence


def evaluate(p: Float64[ndarray, "n classes"], labels: Int64[ndarray, "n"]) -> dict[str, float]:
    """Accuracy, balanced accuracy, AUC (mean of one class against the rest, over classes present), log-loss, ECE."""
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    guess = p.argmax(1)
    present = [c for c in range(p.shape[1]) if 0 < (labels == c).sum() < len(labels)]
    aucs = [roc_auc_score(labels == c, p[:, c]) for c in present]
    with warnings.catch_warnings(action="ignore"):  # a class that is guessed and absent is no fault
        balanced = balanced_accuracy_score(labels, guess)
    return {
        "accuracy": float((guess == labels).mean()),
        "balanced_accuracy": float(balanced),
        "auc": float(np.mean(aucs)) if aucs else float("nan"),
        "log_loss": log_loss(p, labels),
        "ece": expected_calibration_error(p, labels),
    }


def expected_calibration_error(p: Float64[ndarray, "n classes"], labels: Int64[ndarray, "n"]) -> float:
    """Mean gap between confidence and accuracy over 15 equal bins of confidence, weighted by rows (Guo 2017)."""
    _, confidence, accuracy, share = reliability(p, labels)
    return float((share * np.abs(confidence - accuracy)).sum())


def reliability(
    p: Float64[ndarray, "n classes"], labels: Int64[ndarray, "n"]
) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """For each bin that has rows: its number, mean confidence, accuracy, and share of the rows."""
    confidence, hit = p.max(1), p.argmax(1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    number = np.bincount(bins, minlength=BINS)
    used = np.flatnonzero(number)
    mean = np.bincount(bins, confidence, BINS)[used] / number[used]
    accuracy = np.bincount(bins, hit.astype(float), BINS)[used] / number[used]
    return used, mean, accuracy, number[used] / len(labels)

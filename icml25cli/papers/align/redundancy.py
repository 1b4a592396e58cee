"""Whether alignment can matter for a label: how much of what is known about it both sides know (spec 3.5).

Information is H(label) less the cross-entropy of a probe on rows it was not fitted on, a lower bound that a better
probe raises. Alignment tells performance where information is redundant, by the paper's finding. Knows rows and labels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from icml25cli.core.claims import Interval
from icml25cli.core.errors import InputError
from icml25cli.core.progress import track
from icml25cli.papers.align.prepared import Prepared
from icml25cli.papers.align.resampling import jackknife, parts

FOLDS = 5
PROBE_ROWS = 20_000  # drawn of more
COMPONENTS = 100  # principal ones that a probe reads
INFORMATIVE, NO_PROXY = 0.6, 0.3
STRENGTHS = (0.01, 0.1, 1.0, 10.0)  # of a probe's freedom, chosen inside the rows it is fitted on
FAITH = 0.05  # nats that must be known for any verdict


@dataclass(frozen=True)
class Redundancy:
    """Information about a label in nats, by cross-fitted probes.

    Attributes:
        entropy: H(label).
        first, second, both: what A, B and [A, B] know.
        accuracy: of the three probes.
        share: max(0, redundant)/both, with its interval; None where nothing is known.
    """

    entropy: float
    first: float
    second: float
    both: float
    accuracy: tuple[float, float, float]
    share: Interval | None

    @property
    def redundant(self) -> float:
        """Below 0 where both together know more than the sum: synergy."""
        return self.first + self.second - self.both

    @property
    def verdict(self) -> str:
        if self.share is None:
            return "no verdict: probes know nothing about the label"
        if self.share.value >= INFORMATIVE:
            return "alignment likely informative"
        if self.share.value <= NO_PROXY:
            return "alignment not a proxy for performance"
        return "undecided: redundancy is partial"

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"probe": name, "information_nats": value, "accuracy": accuracy}
            for name, value, accuracy in zip(
                ("a", "b", "a and b"), (self.first, self.second, self.both), self.accuracy, strict=True
            )
        ]


def redundancy(x: Prepared, y: Prepared, label: Int64[ndarray, "n"], seed: int = 0) -> Redundancy:
    """Probes on each side and on both, every row judged by one that was not fitted on it.

    Raises:
        InputError: a class has fewer rows than folds.
    """
    rows = np.arange(x.rows)
    if x.rows > PROBE_ROWS:
        rows = np.sort(np.random.default_rng((seed, 7)).choice(x.rows, PROBE_ROWS, replace=False))
    label = label[rows]
    counts = np.bincount(label)
    if counts[counts > 0].min() < FOLDS:
        raise InputError(f"a label has {counts[counts > 0].min()} rows, each needs {FOLDS}", hint="merge rare labels")
    often = counts[counts > 0] / len(label)
    entropy = float(-(often * np.log(often)).sum())
    a, b = x[rows], y[rows]
    lost, right = [], []
    for features in track([(a,), (b,), (a, b)], "probes"):
        nats, hit = _crossfitted(features, label, seed)
        lost.append(nats)
        right.append(float(hit.mean()))
    means = [entropy - float(nats.mean()) for nats in lost]
    return Redundancy(
        entropy, *means, accuracy=(right[0], right[1], right[2]), share=_share(entropy, label, lost, seed)
    )


def _share(entropy: float, label: ndarray, lost: list[Float64[ndarray, "n"]], seed: int) -> Interval | None:
    def share(kept: ndarray) -> float:
        first, second, both = (entropy - nats[kept].mean() for nats in lost)
        return float(np.clip((first + second - both) / both, 0, 1)) if both > 0 else float("nan")

    own = np.arange(len(label))
    if entropy - lost[2].mean() < FAITH:
        return None
    return jackknife(share(own), [share(np.delete(own, part)) for part in parts(len(label), seed)])


def _crossfitted(features: tuple[ndarray, ...], label: ndarray, seed: int) -> tuple[ndarray, ndarray]:
    """Nats lost and whether the guess is right, of each row."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold
    from sklearn.preprocessing import StandardScaler

    lost, hit = np.empty(len(label)), np.empty(len(label), bool)
    for fitted, judged in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(label, label):
        inner = np.random.default_rng((seed, 8)).permutation(fitted)
        cut = len(inner) * 4 // 5
        blocks = []
        for part in features:
            scaler = StandardScaler().fit(part[fitted])
            scaled = np.asarray(scaler.transform(part))
            most = min(COMPONENTS, *scaled.shape, len(fitted) - 1)
            if most < scaled.shape[1]:
                scaled = PCA(most, random_state=seed).fit(scaled[fitted]).transform(scaled)
                scaled = scaled / scaled[fitted].std()
            blocks.append(scaled)
        z = np.hstack(blocks)

        def nats(c: float, fit: ndarray, judge: ndarray, z: ndarray = z) -> tuple[ndarray, ndarray]:
            probe = LogisticRegression(C=c, max_iter=500).fit(z[fit], label[fit])
            given = np.full((len(judge), int(label.max()) + 1), 1e-9)
            given[:, probe.classes_] = probe.predict_proba(z[judge])
            chosen = given[np.arange(len(judge)), label[judge]]
            return -np.log(np.maximum(chosen, 1e-9)), given.argmax(axis=1) == label[judge]

        best = min(STRENGTHS, key=lambda c: float(nats(c, inner[:cut], inner[cut:])[0].mean()))
        lost[judged], hit[judged] = nats(best, fitted, judged)
    return lost, hit

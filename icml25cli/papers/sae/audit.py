"""Whether a label, and a classifier of it, depend on concepts (section 3.10, bias audit). Knows arrays and models."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from numpy import ndarray
from scipy.stats import false_discovery_control, mannwhitneyu

from icml25cli.core.embeddings import Embeddings
from icml25cli.papers.sae.model import SparseAutoencoder
from icml25cli.papers.sae.probe import fit_probe, halves

MOST_ROWS, RESAMPLES, HIGH = 5000, 1000, 0.99
ROWS = 1024


def audit(
    model: SparseAutoencoder,
    x: Embeddings,
    positive: Int64[ndarray, "N"],
    latents: Sequence[int] | None = None,
    *,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """For each latent: how well it tells the label, and what changing it does to a linear probe of the label.

    ``auc`` is of the code by label on test rows, with Mann-Whitney's p adjusted over latents (Benjamini and Hochberg);
    ``to_zero`` and ``to_high`` are the mean change of the probe's probability when the code becomes 0 or its 99 %
    quantile, with 95 % bootstrap intervals over at most 5000 test rows. The probe is fitted on the other 80 % of rows.

    Args:
        positive: 1 for the class asked about, else 0.
        latents: None for all that are active on test rows.
    """
    fit, test = halves(positive, seed)
    probe = fit_probe(x[fit], positive[fit], seed)
    rng = np.random.default_rng(seed)
    test = np.sort(rng.choice(test, min(len(test), MOST_ROWS), replace=False))
    rows, label = x[test], positive[test].astype(bool)
    z = torch.cat([model.codes(part, full=False) for part in np.array_split(rows, -(-len(rows) // ROWS))]).numpy()
    active = np.flatnonzero((z > 0).any(axis=0))
    chosen = active if latents is None else np.intersect1d(active, latents)
    if not len(chosen):
        return
    tested = mannwhitneyu(z[label][:, chosen], z[~label][:, chosen], axis=0)
    auc = np.asarray(tested.statistic) / (label.sum() * (~label).sum())
    adjusted = false_discovery_control(np.asarray(tested.pvalue))
    before = probe.log_probabilities(rows).exp()[:, 1].numpy()
    weights = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), RESAMPLES) / len(rows)
    for place in np.argsort(-np.abs(auc - 0.5), kind="stable"):
        j = int(chosen[place])
        row: dict[str, Any] = {
            "latent": j,
            "auc": float(auc[place]),
            "p_adjusted": float(adjusted[place]),
            "active_share": float((z[:, j] > 0).mean()),
        }
        direction = model.parameters.W_dec[j].numpy() / np.float32(model.scaling.scale)
        own = model.capped(torch.from_numpy(z[:, j])).numpy()
        for name, value in (("to_zero", 0.0), ("to_high", float(np.quantile(z[:, j], HIGH)))):
            target = float(model.capped(torch.tensor(value)))
            moved = rows + (np.float32(target) - own)[:, None] * direction
            change = probe.log_probabilities(moved).exp()[:, 1].numpy() - before
            low, high = np.quantile(weights @ change, [0.025, 0.975])
            row |= {name: float(change.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}
        yield row

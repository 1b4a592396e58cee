"""What a linear classifier of embeddings still reads from reconstructions (section 3.8). Knows arrays and models."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64
from numpy import ndarray
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from torch import Tensor

from icml25cli.core.embeddings import Embeddings
from icml25cli.core.errors import InputError
from icml25cli.core.progress import warn
from icml25cli.papers.sae.model import SparseAutoencoder
from icml25cli.papers.sae.nested import topk_code

RATE, BATCH, EPOCHS, PATIENCE, TEST = 1e-3, 512, 100, 5, 0.2
LITTLE = 0.1  # macro-F1 that a probe should have beyond the commonest class
ROWS = 1024


@dataclass(frozen=True)
class Probe:
    """A softmax classifier of L2-normalised rows."""

    linear: torch.nn.Linear
    macro_f1: float  # on validation rows

    @torch.no_grad()
    def log_probabilities(self, x: Float32[ndarray, "B d"]) -> Float32[Tensor, "B classes"]:
        return self.linear(torch.nn.functional.normalize(torch.from_numpy(x))).log_softmax(dim=1)


def halves(classes: Int64[ndarray, "N"], seed: int) -> tuple[Int64[ndarray, "a"], Int64[ndarray, "b"]]:
    """Rows to fit and rows to test, 80 to 20, each class in its share.

    Raises:
        InputError: a class has fewer than three rows.
    """
    if np.bincount(classes).min() < 3:
        raise InputError("a class of the labels has fewer than three rows", hint="leave out rare classes")
    fit, test = train_test_split(np.arange(len(classes)), test_size=TEST, stratify=classes, random_state=seed)
    return np.sort(fit), np.sort(test)


def fit_probe(x: Float32[ndarray, "N d"], classes: Int64[ndarray, "N"], seed: int) -> Probe:
    """AdamW at 1e-3, batches of 512, at most 100 epochs; stops when macro-F1 on a fifth has not risen for five."""
    fit, held = halves(classes, seed)
    rows, target = torch.nn.functional.normalize(torch.from_numpy(x)), torch.from_numpy(classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        linear = torch.nn.Linear(x.shape[1], int(classes.max()) + 1)
    optimiser = torch.optim.AdamW(linear.parameters(), lr=RATE)
    generator = torch.Generator().manual_seed(seed)
    best, best_f1, waited = copy.deepcopy(linear), -1.0, 0
    for _ in range(EPOCHS):
        for chosen in torch.from_numpy(fit)[torch.randperm(len(fit), generator=generator)].split(BATCH):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(linear(rows[chosen]), target[chosen]).backward()
            optimiser.step()
        with torch.no_grad():
            said = linear(rows[held]).argmax(dim=1).numpy()
        f1 = float(f1_score(classes[held], said, average="macro"))
        waited = 0 if f1 > best_f1 else waited + 1
        if f1 > best_f1:
            best, best_f1 = copy.deepcopy(linear), f1
        if waited == PATIENCE:
            break
    commonest = np.full(len(held), np.bincount(classes).argmax())
    plain = float(f1_score(classes[held], commonest, average="macro", zero_division=0))  # pyright: ignore[reportArgumentType] -- the stub knows the default alone
    if best_f1 < plain + LITTLE:
        warn(
            f"the probe hardly knows the label: macro-F1 {best_f1:.2f} on {len(held)} rows, {plain:.2f} for the "
            "commonest class alone; what is said of its probabilities says little"
        )
    return Probe(best, best_f1)


def probe_table(
    model: SparseAutoencoder,
    x: Embeddings,
    labels: tuple[Int64[ndarray, "N"], tuple[str, ...]],
    ks: Sequence[int],
    *,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """For each k: KL(p(x)‖p(x̂)) in nats and the share of equal decisions, on test rows."""
    classes, _ = labels
    fit, test = halves(classes, seed)
    probe = fit_probe(x[fit], classes[fit], seed)
    for k in ks:
        kl, agree, right = 0.0, 0, 0
        for start in range(0, len(test), ROWS):
            rows = x[test[start : start + ROWS]]
            z = model.capped(topk_code(model.codes(rows), k))
            p = probe.log_probabilities(rows)
            q = probe.log_probabilities(model.decoded(z @ model.parameters.W_dec))
            kl += float((p.exp() * (p - q)).sum())
            said = q.argmax(dim=1)
            agree += int((p.argmax(dim=1) == said).sum())
            right += int((said.numpy() == classes[test[start : start + ROWS]]).sum())
        yield {
            "k": k,
            "code": "full" if k == model.config.n else "topk",
            "kl": kl / len(test),
            "agreement": agree / len(test),
            "accuracy": right / len(test),
            "probe_macro_f1": probe.macro_f1,
            "test_rows": len(test),
        }

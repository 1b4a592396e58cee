"""A name for each latent from a vocabulary in the same space, with a null that says which names mean something.

Name(j) is the word of the largest cosine with decoder row j (section 3.9). A name is valid if its cosine, and its ratio
to the next latent's for that word, lie above the 99.9 % quantiles of random directions that have the covariance of the
vocabulary. (The paper's 0.42 and 2.0 are of one encoder.) Knows arrays and models.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray
from torch import Tensor

from icml25cli.core.embeddings import Embeddings
from icml25cli.core.errors import InputError
from icml25cli.core.progress import warn
from icml25cli.core.usage import nearest
from icml25cli.papers.sae.model import SparseAutoencoder

QUANTILE, NULL_ROWS, BLOCK = 0.999, 4096, 4096
Space = Literal["direction", "absolute"]
BY_CHANCE = 10.0  # a ratio above which the next latent's cosine is nearly none
FILE = "names.csv"


@dataclass(frozen=True)
class Matches:
    """For each latent the best word, its cosine, and that over the next latent's cosine with the same word."""

    word: Int64[ndarray, "n"]
    similarity: Float32[ndarray, "n"]
    ratio: Float32[ndarray, "n"]


@dataclass(frozen=True)
class Naming:
    """Matches with what a name needs to be valid."""

    matches: Matches
    least_similarity: float
    least_ratio: float

    @property
    def valid(self) -> Bool[ndarray, "n"]:
        return self.alike & self.apart

    @property
    def alike(self) -> Bool[ndarray, "n"]:
        return self.matches.similarity >= self.least_similarity

    @property
    def apart(self) -> Bool[ndarray, "n"]:
        return self.matches.ratio >= self.least_ratio

    def failures(self) -> list[str]:
        """What each latent's name fell short of: similarity, ratio, both, or nothing."""
        return [
            " and ".join(test for test, passed in (("similarity", one), ("ratio", two)) if not passed)
            for one, two in zip(self.alike, self.apart, strict=True)
        ]

    def advice(self) -> str:
        """In a sentence how many names failed which test, and what helps; empty where all are valid."""
        if self.valid.all():
            return ""
        below, close = int((~self.alike).sum()), int((~self.apart).sum())
        said = []
        if below:
            said.append(
                f"{below} have a similarity below {self.least_similarity:.3g} (a vocabulary of more words, or more "
                "training rows and steps, may help)"
            )
        if close and self.least_ratio > BY_CHANCE:
            said.append(
                f"{close} have a ratio to the next latent below {self.least_ratio:.3g} (so high a bar, where latents "
                "are few, tells little: --min-ratio 2 is the paper's)"
            )
        elif close:
            said.append(
                f"{close} have a ratio to the next latent below {self.least_ratio:.3g}, so it answers to the word "
                "nearly as much (fewer latents, by --expansion, or more training rows and steps, may help)"
            )
        return f"Of {len(self.alike)} names {' and '.join(said)}."


def rows_to_name(model: SparseAutoencoder, space: Space = "direction") -> Float32[Tensor, "n d"]:
    """Decoder rows as directions, or un-scaled with the mean added, as the reference has them."""
    W = model.parameters.W_dec
    if space == "absolute":
        W = W / model.scaling.scale + torch.from_numpy(model.scaling.mean).float()
    return torch.nn.functional.normalize(W)


def match(rows: Float32[Tensor, "n d"], vocabulary: Embeddings, mean: Float32[Tensor, "d"] | None = None) -> Matches:
    """Best words of unit rows; ``mean`` is taken off the vocabulary first."""
    n = len(rows)
    best, word = torch.full((n,), -2.0), torch.zeros(n, dtype=torch.int64)
    first = torch.full((vocabulary.rows, 2), -2.0)
    first_latent = torch.zeros(vocabulary.rows, dtype=torch.int64)
    for start, block in vocabulary.blocks(BLOCK):
        t = torch.from_numpy(block)
        s = torch.nn.functional.normalize(t if mean is None else t - mean) @ rows.T
        value, place = s.max(dim=0)
        better = value > best
        best[better], word[better] = value[better], start + place[better]
        top = torch.topk(s, min(2, n), dim=1)
        first[start : start + len(s), : top.values.shape[1]] = top.values
        first_latent[start : start + len(s)] = top.indices[:, 0]
    own = first_latent[word] == torch.arange(n)
    other = torch.where(own, first[word, 1], first[word, 0]).clamp_min(1e-6)
    return Matches(word.numpy(), best.numpy(), (best / other).numpy())


def vocabulary_moments(vocabulary: Embeddings) -> tuple[Float32[Tensor, "d"], Float32[Tensor, "d d"]]:
    """Mean and covariance of the words."""
    total = torch.zeros(vocabulary.columns, dtype=torch.float64)
    second = torch.zeros(vocabulary.columns, vocabulary.columns, dtype=torch.float64)
    for _, block in vocabulary.blocks(BLOCK):
        t = torch.from_numpy(block).double()
        total += t.sum(dim=0)
        second += t.T @ t
    mean = total / vocabulary.rows
    return mean.float(), (second / vocabulary.rows - torch.outer(mean, mean)).float()


def name_latents(
    model: SparseAutoencoder,
    vocabulary: Embeddings,
    *,
    space: Space = "direction",
    centered: bool = False,
    least_similarity: float | None = None,
    least_ratio: float | None = None,
    seed: int = 0,
) -> Naming:
    """Names of all latents.

    Args:
        centered: the vocabulary's mean is taken off it.
        least_similarity, least_ratio: instead of the null's quantiles.
    """
    mean, covariance = vocabulary_moments(vocabulary)
    off = mean if centered else None
    matches = match(rows_to_name(model, space), vocabulary, off)
    if least_similarity is None or least_ratio is None:
        values, vectors = torch.linalg.eigh(covariance.double())
        root = (vectors * values.clamp_min(0).sqrt()).float()
        count = max(NULL_ROWS, model.config.n)
        drawn = torch.randn(count, len(root), generator=torch.Generator().manual_seed(seed)) @ root.T
        # As many at a time as there are latents: the ratio falls as more directions compete for a word.
        parts = [match(torch.nn.functional.normalize(p), vocabulary, off) for p in drawn.split(model.config.n)]
        null_similarity = float(np.quantile(np.concatenate([p.similarity for p in parts]), QUANTILE))
        null_ratio = float(np.quantile(np.concatenate([p.ratio for p in parts]), QUANTILE))
        least_similarity = null_similarity if least_similarity is None else least_similarity
        least_ratio = null_ratio if least_ratio is None else least_ratio
    return Naming(matches, least_similarity, least_ratio)


def records(naming: Naming, words: list[str]) -> list[dict[str, Any]]:
    """A row a latent, valid names first, then by similarity."""
    m, valid, failed = naming.matches, naming.valid, naming.failures()
    order = np.lexsort((-m.similarity, ~valid))
    return [
        {
            "latent": int(j),
            "name": words[m.word[j]],
            "similarity": float(m.similarity[j]),
            "ratio": float(m.ratio[j]),
            "valid": bool(valid[j]),
            "failed": failed[j],
        }
        for j in order
    ]


# --- names in files, to speak of latents by ------------------------------------------------------------------------


def read_names(path: Path, n: int) -> dict[int, tuple[str, bool]]:
    """Name and validity of latents, as ``name -o`` wrote them.

    Raises:
        InputError: the file cannot be read, has other columns, or names a latent that is not there.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        found = {int(row["latent"]): (row["name"], row["valid"] in ("True", "true", "1")) for row in rows}
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise InputError(f"{path} is no file of names", hint="`icml25 sae name -o` writes one") from error
    if found and not 0 <= min(found) <= max(found) < n:
        raise InputError(f"{path} names latent {max(found)}, the model has {n}")
    return found


def latent_of(concept: str, names: dict[int, tuple[str, bool]], n: int) -> int:
    """The latent that a number or a name means; of several with a name, the first. Warns of a name not valid.

    Raises:
        InputError: there is no such latent or name.
    """
    for j, (name, valid) in names.items():
        if name == concept:
            if not valid:
                warn(f"{concept}: this name of latent {j} did not pass the test against chance, so it may mislead")
            return j
    if concept.isdecimal() and int(concept[:12]) < n:
        return int(concept)
    near = nearest(concept, [name for name, _ in names.values()])
    hint = f"did you mean {near}?" if near else f"give a number from 0 to {n - 1}, or --names with a file of `sae name`"
    raise InputError(f"no latent is called {concept}", hint=hint)

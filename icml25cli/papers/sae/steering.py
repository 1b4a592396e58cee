"""Raising and lowering concepts in embeddings, and search by them (section 3.10). Knows arrays and models."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float32, Int64
from numpy import ndarray
from torch import Tensor

from icml25cli.core.embeddings import Embeddings, open_embeddings
from icml25cli.core.errors import InputError
from icml25cli.core.neighbours import unit_rows
from icml25cli.core.progress import warn
from icml25cli.core.survey import LARGEST
from icml25cli.papers.sae.model import SparseAutoencoder
from icml25cli.papers.sae.naming import latent_of

ROWS = 1024


@dataclass(frozen=True)
class Change:
    """What happens to one latent: set to a value (=), times a factor (*), or plus so many standard deviations (+)."""

    latent: int
    how: Literal["=", "*", "+"]
    amount: float


def parse_change(text: str, names: dict[int, tuple[str, bool]], n: int) -> Change:
    """``snow=2.0``, ``snow*0`` or ``snow+3`` (three standard deviations), with a name or the number of a latent.

    Raises:
        InputError: it is none of these, or no latent has that name.
    """
    found = re.fullmatch(r"(.+?)\s*([=*+])\s*([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)", text.strip())
    try:
        amount = float(found[3]) if found else None
    except ValueError:
        amount = None
    if found is None or amount is None:
        raise InputError(f"--set {text} is no change of a concept", hint="write it as snow=2.0, snow*0.5 or snow+3")
    if abs(amount) > LARGEST:
        raise InputError(
            f"--set {text}: the change is above {LARGEST:.0e}", hint="embeddings would overflow: give less"
        )
    how: Literal["=", "*", "+"] = found[2]  # type: ignore[assignment]
    return Change(latent_of(found[1].strip(), names, n), how, amount)


def deviations(model: SparseAutoencoder, x: Embeddings, latents: Sequence[int]) -> Float32[Tensor, "c"]:
    """Standard deviation of the codes of some latents over all rows."""
    total, square = (torch.zeros(len(latents), dtype=torch.float64) for _ in range(2))
    for _, rows in x.blocks(ROWS):
        z = model.codes(rows, full=False)[:, list(latents)].double()
        total += z.sum(dim=0)
        square += z.square().sum(dim=0)
    return (square / x.rows - (total / x.rows).square()).clamp_min(0).sqrt().float()


def steered(
    model: SparseAutoencoder,
    x: Embeddings,
    changes: Sequence[Change],
    *,
    keep_error: bool = True,
    among: Embeddings | None = None,
) -> Iterator[Float32[ndarray, "B d"]]:
    """Rows with concepts changed: x + decode(z_new) − decode(z), or decode(z_new) without ``keep_error``.

    Args:
        among: the rows whose standard deviations count; ``x`` itself by default.
    """
    latents = [change.latent for change in changes]
    spread = any(c.how == "+" for c in changes)
    scale = deviations(model, among or x, latents) if spread else torch.zeros(len(changes))
    for _, rows in x.blocks(ROWS):
        z = model.codes(rows, full=False)
        new = z.clone()
        for change, deviation in zip(changes, scale, strict=True):
            j = change.latent
            if change.how == "=":
                new[:, j] = change.amount
            elif change.how == "*":
                new[:, j] *= change.amount
            else:
                new[:, j] += change.amount * deviation
        W = model.parameters.W_dec
        if keep_error:
            moved = model.capped(new[:, latents]) - model.capped(z[:, latents])
            yield rows + (moved @ W[latents]).numpy() / np.float32(model.scaling.scale)
        else:
            yield model.decoded(model.capped(new) @ W)


@dataclass(frozen=True)
class Hits:
    """For each query the nearest rows and their cosines, best first.

    Attributes:
        strength: length of a row's code in the concepts that are compared; None where embeddings are.
    """

    row: Int64[ndarray, "q top"]
    similarity: Float32[ndarray, "q top"]
    strength: Float32[ndarray, "q top"] | None


def search(
    model: SparseAutoencoder,
    index: Embeddings,
    queries: Float32[ndarray, "q d"],
    top: int,
    latents: Sequence[int] | None = None,
) -> Hits:
    """Rows of ``index`` most like each query: by codes of ``latents`` alone, or by embeddings where that is None.

    Of rows that are alike to the sixth digit, as all that have the one concept asked, those with more of it come first,
    then those of lower number.
    """

    def shown(rows: Float32[ndarray, "B d"]) -> tuple[Float32[ndarray, "B f"], Float32[ndarray, "B"]]:
        seen = rows if latents is None else model.codes(rows, full=False)[:, list(latents)].numpy()
        return unit_rows(seen), np.linalg.norm(seen, axis=1) if latents else np.zeros(len(rows), np.float32)

    asked, has = shown(queries)
    if latents and (lacking := np.flatnonzero(has == 0)).size:
        warn(f"query {lacking[0]} has none of these concepts, so rows come by how much they have of them")
    top = min(top, index.rows)
    best, strength = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.float32)
    place = np.zeros((len(queries), 0), np.int64)
    for start, rows in index.blocks(ROWS):
        block, strong = shown(rows)
        numbers = np.arange(start, start + len(rows))
        best = np.hstack([best, (asked @ block.T).clip(-1, 1)])
        place, strength = (
            np.hstack([kept, np.broadcast_to(new, (len(queries), len(rows)))])
            for kept, new in ((place, numbers), (strength, strong))
        )
        order = np.lexsort((place, -strength, -best.round(6)), axis=1)[:, :top]
        best, place, strength = (np.take_along_axis(kept, order, 1) for kept in (best, place, strength))
    return Hits(place, best, strength if latents else None)


def hits(found: Hits) -> list[dict[str, Any]]:
    """A record a hit."""
    return [
        {"query": q, "rank": rank + 1, "row": int(row), "similarity": float(found.similarity[q, rank])}
        | ({} if found.strength is None else {"strength": float(found.strength[q, rank])})
        for q, rows in enumerate(found.row)
        for rank, row in enumerate(rows)
    ]


def moved_length(x: Embeddings, changed: Path) -> float:
    """Mean distance between rows of ``x`` and the file of changed ones."""
    y = open_embeddings(str(changed))
    total = sum(float(np.linalg.norm(rows - y[s : s + len(rows)], axis=1).sum()) for s, rows in x.blocks(ROWS))
    return total / x.rows

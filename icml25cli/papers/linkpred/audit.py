"""What is wrong with a split: edges that one part tells another, and pairs that are not what their part says.

Knows parts as they were given. Does not know how they were made.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64
from numpy import ndarray

from icml25cli.core.errors import InputError
from icml25cli.papers.linkpred.graph import Graph, canonical, codes, contains
from icml25cli.papers.linkpred.parts import Parts

_EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """Something about pairs of a part.

    Attributes:
        kind: in a few words.
        part: whose pairs they are.
        other: the part that they are in, too; empty where there is none.
        count: of pairs.
        reversed: how many of them stand in the other direction there.
        leak: whether figures on this split mean less than they say.
        examples: up to three pairs as they were given.
    """

    kind: str
    part: str
    other: str
    count: int
    reversed: int
    leak: bool
    examples: tuple[tuple[str, str], ...]


def audit(parts: Parts, observed: Graph | None = None) -> tuple[Finding, ...]:
    """All findings about ``parts``, leaks first.

    A leak is an edge of validation or test in an earlier part, in either direction; a test edge in the graph that
    models observe; and a negative that is a known edge or an edge of its own part. Negatives of validation that are
    test edges are none: avoiding them would be one. Where each positive has its own negatives, as in HeaRT, other
    positives of the part may be among them.

    Args:
        observed: the graph that models draw, propagate on and count in, where it is not the training part.

    Raises:
        InputError: the observed graph has no edge between nodes of the parts, so it is another's.
    """
    found = []
    for part, pairs in parts.pairs.items():
        found += _within(parts, part, pairs)
    positives = [part for part in ("train", "valid", "test") if part in parts.pairs]
    for place, part in enumerate(positives):
        for other in positives[:place]:
            found += _shared(parts, "edges of two parts", part, other, parts.pairs[other], leak=True)
    for part in ("valid", "test"):
        name = f"{part}_negatives"
        for other in positives if name in parts.pairs else ():
            own = parts.pairs[name].ndim == 3
            leak = other == "train" or part == "test" or other == part
            if own and other == part:
                mine = parts.pairs[part][:, None, :]
                same = (canonical(mine) == canonical(parts.pairs[name])).all(axis=-1)
                found += _finding(parts, "negatives of a positive that are itself", name, part, parts.pairs[name][same])
                leak = False
            found += _shared(parts, "negatives that are edges", name, other, parts.pairs[other], leak=leak)
    if observed is not None:
        row = {name: place for place, name in enumerate(parts.ids)}
        inside = np.array([row.get(name, -1) for name in observed.ids], dtype=np.int64)[observed.edges]
        inside = inside[(inside >= 0).all(axis=1)]
        if not len(inside):
            raise InputError(
                f"no edge of {observed.name} is between nodes of the split", hint="name nodes alike in both"
            )
        for part in ("valid", "test"):
            if part in parts.pairs:
                found += _shared(parts, "edges in the observed graph", part, "observed", inside, leak=part == "test")
    return tuple(sorted(found, key=lambda finding: not finding.leak))


def _within(parts: Parts, part: str, pairs: Int64[ndarray, "*k 2"]) -> list[Finding]:
    """What a part has in itself. None of it is a leak, but counts are not what they seem."""
    found = _finding(parts, "self loops", part, "", pairs[pairs[..., 0] == pairs[..., 1]], leak=False)
    if pairs.ndim == 3:  # the same negative may serve several positives
        return found
    n = len(parts.ids)
    seen = codes(canonical(pairs), n)
    _, first = np.unique(seen, return_index=True)
    repeated = np.ones(len(pairs), bool)
    repeated[first] = False
    turned = np.unique(codes(pairs[:, ::-1], n))
    both = contains(turned, codes(pairs, n)) & (pairs[:, 0] < pairs[:, 1])
    again = _finding(parts, "repeated pairs", part, "", pairs[repeated], leak=False)
    return found + again + _finding(parts, "pairs in both directions", part, "", pairs[both], leak=False)


def _shared(
    parts: Parts, kind: str, part: str, other: str, theirs: Int64[ndarray, "k 2"], *, leak: bool
) -> list[Finding]:
    pairs = parts.pairs[part].reshape(-1, 2)
    n = len(parts.ids)
    there = contains(np.unique(codes(canonical(theirs), n)), codes(canonical(pairs), n))
    straight = contains(np.unique(codes(theirs, n)), codes(pairs, n))
    return _finding(parts, kind, part, other, pairs[there], reversed_=there & ~straight, leak=leak)


def _finding(
    parts: Parts,
    kind: str,
    part: str,
    other: str,
    pairs: Int64[ndarray, "k 2"],
    *,
    reversed_: Bool[ndarray, "p"] | None = None,
    leak: bool = True,
) -> list[Finding]:
    if not len(pairs):
        return []
    examples = tuple((parts.ids[u], parts.ids[v]) for u, v in pairs[:_EXAMPLES].tolist())
    turned = 0 if reversed_ is None else int(reversed_.sum())
    return [Finding(kind, part, other, len(pairs), turned, leak, examples)]

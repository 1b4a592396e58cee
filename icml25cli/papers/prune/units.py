"""What of attention goes at once where query heads share key-value heads.

Knows numbers of heads. Does not know tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from icml25cli.papers.prune.anatomy import Anatomy


@dataclass(frozen=True)
class HeadUnits:
    """How attention is taken apart.

    ``group``: a key-value head goes with all its query heads. ``expand``: query heads go one by one, and each that is
    left has a key-value head of its own, a copy of the shared one. ``query``: as many query heads go from every group,
    and key-value heads stay.
    """

    kind: str
    count: int  # of steps in which a layer can lose all its heads

    def left(self, anatomy: Anatomy, dropped: int) -> tuple[int, int]:
        """Query heads and key-value heads of a layer after so many steps."""
        heads = anatomy.heads - dropped * (anatomy.heads // self.count)
        if not dropped or self.kind == "query":
            return heads, anatomy.kv_heads
        return heads, heads if self.kind == "expand" else anatomy.kv_heads - dropped

    def scored(self, anatomy: Anatomy) -> int:
        """How many equal parts of the output matrix's inputs get a score each."""
        return anatomy.kv_heads if self.kind == "group" else anatomy.heads

    def partition(self, anatomy: Anatomy) -> list[int]:
        """For every scored part the number of those out of which one goes at a step."""
        if self.kind == "query":
            return [head // anatomy.queries_per_kv for head in range(anatomy.heads)]
        return [0] * self.scored(anatomy)

    def heads(self, anatomy: Anatomy, kept: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Kept query heads, and for every key-value head there will be the one it copies, of kept scored parts."""
        share = anatomy.queries_per_kv
        if len(kept) == self.scored(anatomy):
            return tuple(range(anatomy.heads)), tuple(range(anatomy.kv_heads))
        if self.kind == "group":
            return tuple(group * share + i for group in kept for i in range(share)), tuple(kept)
        if self.kind == "expand":
            return tuple(kept), tuple(head // share for head in kept)
        return tuple(kept), tuple(range(anatomy.kv_heads))


def head_units(anatomy: Anatomy, gqa: str) -> HeadUnits:
    """Where no key-value head is shared, query heads go one by one with theirs, whatever ``gqa`` says."""
    if gqa == "group" or anatomy.queries_per_kv == 1:
        return HeadUnits("group", anatomy.kv_heads)
    return HeadUnits(gqa, anatomy.heads if gqa == "expand" else anatomy.queries_per_kv)

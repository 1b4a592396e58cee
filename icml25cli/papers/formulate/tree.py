"""The tree of partial formulations: what was proposed, what became of it, and how often it was visited.

    depth 0   nothing is decided
    depth 1   parameters and decision variables (m1)
    depth 2   objective (m2)
    depth 3   equality constraints (m3)
    depth 4   inequality constraints (m4): a leaf, which is a whole formulation

Knows nodes, values and the rule of selection (section 3 of the paper). Does not know who proposes, nor who judges.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from icml25cli.papers.formulate.backend import Draft
from icml25cli.papers.formulate.formulation import Formulation
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.solve import Solution

LEVELS = ("variables", "objective", "equalities", "inequalities")  # what a child of depth 1 to 4 adds
# empty: no component could be read; invalid: it does not compile; equivalent: says what a kept one says
Status = Literal["ok", "empty", "invalid", "pruned-equivalent", "low-ranked"]
STATUSES: tuple[Status, ...] = ("ok", "empty", "invalid", "pruned-equivalent", "low-ranked")


@dataclass(eq=False, slots=True)
class Node:
    """A partial formulation in the tree; grows visits and reward as the search goes."""

    formulation: Formulation
    parent: "Node | None" = None
    place: int = 0  # among all that was proposed for the parent, rejected ones too
    status: Status = "ok"
    reason: str = ""  # why it was rejected, or what was dropped of it
    prior: float = 0.5
    visits: int = 0
    total: float = 0.0  # sum of rewards
    children: list["Node"] | None = None  # kept ones, best prior first; None is unexpanded
    rejected: list["Node"] = field(default_factory=list)
    source: dict[str, Any] = field(default_factory=dict)  # back end, seed and sample
    model: LinearModel | None = None
    solution: Solution | None = None  # of a leaf
    reward: float | None = None  # of a leaf, once it was judged
    finished: bool = False  # nothing new is to be found below

    @property
    def depth(self) -> int:
        return self.formulation.depth

    @property
    def compiled(self) -> LinearModel:
        """The model of a formulation that compiles."""
        assert self.model is not None, "only formulations that compile get here"
        return self.model

    @property
    def draft(self) -> Draft:
        """What a judge is shown."""
        return Draft(self.formulation, self.compiled, self.solution)

    @property
    def name(self) -> str:
        """Places on the way from the root: ``0.2.1``; the root's is empty."""
        if self.parent is None:
            return ""
        return f"{self.parent.name}.{self.place}".lstrip(".")

    def path(self) -> list["Node"]:
        """Nodes from the root to this one."""
        return [*(self.parent.path() if self.parent else ()), self]

    def value(self, weight: float) -> float:
        """V = weight * prior + (1 - weight) * mean reward; the prior alone while unvisited."""
        if not self.visits:
            return self.prior
        return weight * self.prior + (1 - weight) * self.total / self.visits

    def walk(self) -> Iterator["Node"]:
        """This node and all below it, rejected ones too, parents first."""
        yield self
        for child in sorted([*(self.children or ()), *self.rejected], key=lambda node: node.place):
            yield from child.walk()


def is_optimal(leaf: Node) -> bool:
    return leaf.solution is not None and leaf.solution.status == "optimal"


def upper_bound(node: Node, weight: float, exploration: float) -> float:
    """What selection makes large: V + exploration * sqrt(ln N(parent) / N), with N of an unvisited node taken as 1."""
    assert node.parent is not None
    ways = math.log(max(node.parent.visits, 1))
    return node.value(weight) + exploration * math.sqrt(ways / max(node.visits, 1))


def select(children: list[Node], weight: float, exploration: float) -> Node:
    """The child of largest upper bound; the first of several."""
    return max(children, key=lambda child: upper_bound(child, weight, exploration))


def backpropagate(leaf: Node, reward: float) -> None:
    """Add a visit and its reward to every node from the leaf to the root."""
    for node in leaf.path():
        node.visits += 1
        node.total += reward


def mean_path_value(leaf: Node, weight: float) -> float:
    """Mean of V from the first level to the leaf, by which the paper chooses the best of N."""
    path = leaf.path()[1:]
    return math.fsum(node.value(weight) for node in path) / len(path)


def mark_finished(node: Node | None) -> None:
    """Carry upwards that nothing new is to be found below a node."""
    while node is not None:
        if node.children is not None:
            node.finished = all(child.finished for child in node.children)
        if not node.finished:
            return
        node = node.parent


def counters(root: Node) -> list[dict[str, Any]]:
    """For every level: how many were generated, and what became of them; the parts add up to the whole."""
    counts: dict[int, Counter[str]] = {depth: Counter() for depth in range(1, len(LEVELS) + 1)}
    for node in root.walk():
        if node.parent is not None:
            counts[node.parent.depth + 1][node.status] += 1
    return [
        {
            "level": LEVELS[depth - 1],
            "generated": sum(count.values()),
            "empty": count["empty"],
            "invalid": count["invalid"],
            "pruned": count["pruned-equivalent"],
            "low_ranked": count["low-ranked"],
            "kept": count["ok"],
        }
        for depth, count in counts.items()
    ]


def diversity(root: Node) -> float | None:
    """How much drafts for the same place differ: 0 where all say the same, 1 where no two do; None without two."""
    others = different = 0
    for node in root.walk():
        drafts = [child for child in (*(node.children or ()), *node.rejected) if child.model is not None]
        if len(drafts) > 1:
            others += len(drafts) - 1
            different += sum(draft.status != "pruned-equivalent" for draft in drafts) - 1
    return different / others if others else None


def expansion(node: Node) -> str:
    """What came of an expansion, in a sentence: how many drafts, how they ended, and what the best of them says."""
    drawn = sorted([*(node.children or ()), *node.rejected], key=lambda each: each.place)
    ends = Counter(each.status for each in drawn)
    told = ", ".join(f"{ends[status]} {'kept' if status == 'ok' else status}" for status in STATUSES if ends[status])
    said = f"{node.name or 'root'}: {len(drawn)} drafts of {LEVELS[node.depth]}: {told}"
    if not node.children:
        return said
    added = _node_document(node.children[0])
    return f"{said}; first {', '.join(json.dumps(added[key]) for key in _ADDED[node.depth][-1:])}"


_ADDED = (("parameters", "decision_variables"), ("objective",), ("equality_constraints",), ("inequality_constraints",))


def document(root: Node) -> list[dict[str, Any]]:
    """All nodes as JSON, parents first, each with what it adds to its parent."""
    return [_node_document(node) for node in root.walk()]


def _node_document(node: Node) -> dict[str, Any]:
    added: dict[str, Any] = {}
    if node.parent is not None and node.status not in ("empty",):
        whole = node.formulation.document()
        added = {key: whole[key] for key in _ADDED[node.parent.depth]}
    found = node.solution
    return {
        "node": node.name,
        "depth": node.parent.depth + 1 if node.parent else 0,
        "status": node.status,
        "reason": node.reason,
        "prior": node.prior,
        "visits": node.visits,
        "total": node.total,
        "reward": node.reward,
        "source": node.source,
        "expanded": node.children is not None,
        "solved": None if found is None else {"status": found.status, "objective": found.objective},
        **added,
    }

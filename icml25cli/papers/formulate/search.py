"""Monte-Carlo tree search over formulations (section 3 of the paper), and the searches it is measured by.

    found = Search(proposer, judge, Settings(rollouts=16)).run()
    found.best(), found.leaves, counters(found.root)

Proposals are drawn when a node is first passed, checked by compiling, pruned where they say the same, and ranked for
their priors; a path that ends in a leaf is rewarded by comparing it with a baseline set. Every draw has a seed of its
own, made from the seed of the search and the place in the tree, so that the order of visits changes no draw. Knows the
tree and the rules. Does not know the problem's text.
"""

import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from icml25cli.core.errors import InputError
from icml25cli.papers.formulate.backend import Judge, Proposer
from icml25cli.papers.formulate.canonical import Canonical
from icml25cli.papers.formulate.compiler import compile_model
from icml25cli.papers.formulate.formulation import Formulation, cleaned
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.pruning import Pruner
from icml25cli.papers.formulate.ranking import bradley_terry, rank_order, spaced
from icml25cli.papers.formulate.rewarding import Rewards, Shares, mean_score
from icml25cli.papers.formulate.settings import TYPES_OF, Settings
from icml25cli.papers.formulate.solve import Solution, solve
from icml25cli.papers.formulate.tree import (
    LEVELS,
    Node,
    backpropagate,
    is_optimal,
    mark_finished,
    mean_path_value,
    select,
)

DEPTH = len(LEVELS)
SCORE_VOTES = 2  # for a prior by score
ATTEMPTS = 1000  # descents, new leaves or not


@dataclass
class Found:
    """A searched tree: leaves in the order in which they were reached."""

    root: Node
    settings: Settings
    leaves: list[Node] = field(default_factory=list)
    leaders: list[Node | None] = field(default_factory=list)  # the best, after every new leaf
    attempts: int = 0
    backpropagations: int = 0
    shares: Shares = field(default_factory=list)  # of comparisons, by positions in `leaves`
    stopped: str = ""  # why the search ended

    def order(self) -> list[Node]:
        """Leaves from best to worst: those with an optimum first, then by mean value of their path, or by strength."""
        weight = self.settings.weight
        if self.settings.order == "path":
            worth = [mean_path_value(leaf, weight) for leaf in self.leaves]
        else:
            worth = self.strengths()
        places = sorted(range(len(self.leaves)), key=lambda i: (not is_optimal(self.leaves[i]), -worth[i]))
        return [self.leaves[i] for i in places]

    def strengths(self) -> list[float]:
        """Bradley-Terry strengths of the leaves, in the order of ``leaves``."""
        return [float(strength) for strength in bradley_terry(self.shares, len(self.leaves))]

    def best(self) -> Node | None:
        """The first of ``order`` that has an optimum."""
        order = self.order()
        return order[0] if order and is_optimal(order[0]) else None


class Search:
    """One search for one problem.

    Args:
        expanded: called after every expansion, to keep a journal or show progress.
    """

    def __init__(
        self, proposer: Proposer, judge: Judge, settings: Settings, expanded: Callable[[Node], None] | None = None
    ) -> None:
        self._proposer, self._judge, self._settings = proposer, judge, settings
        self._expanded = expanded or (lambda node: None)
        self._models: dict[str, LinearModel | InputError] = {}
        self._solutions: dict[Canonical, tuple[LinearModel, Solution]] = {}
        self.found = found = Found(Node(Formulation()), settings)
        self._pruner = Pruner(proposer, settings, self._seed)
        self._rewards = Rewards(judge, settings, found.leaves, found.shares, self._pruner.form, self._seed)

    def run(self) -> Found:
        """Search until enough new leaves were reached, all are, or attempts run out."""
        settings, found = self._settings, self.found
        if settings.pre_expand and settings.search != "sequential":
            self._expand_all(found.root)
        random_path = random.Random(self._seed("path"))
        while len(found.leaves) < settings.rollouts:
            if found.attempts >= ATTEMPTS:
                found.stopped = "attempts"
                break
            if found.root.finished and settings.search != "sequential":  # which always draws anew
                found.stopped = "exhausted"
                break
            found.attempts += 1
            known = len(found.leaves)
            end = self._descend(random_path)
            if end.depth < DEPTH:  # nothing could be made of what was proposed here
                mark_finished(end)
                reward = 0.0
            else:
                if end.reward is None:
                    end.reward = self._rewards.of(end)
                    end.finished = True
                    mark_finished(end.parent)
                reward = end.reward
            backpropagate(end, reward)
            found.backpropagations += 1
            if len(found.leaves) > known:
                found.leaders.append(found.best())
            if settings.search == "greedy":
                found.stopped = "one path"
                break
        else:
            found.stopped = "rollouts"
        return found

    # --- descent -------------------------------------------------------------------------------------------------

    def _descend(self, random_path: random.Random) -> Node:
        settings, node = self._settings, self.found.root
        while node.depth < DEPTH:
            if settings.search == "sequential":
                child = self._drawn_once(node)
                if child is None:
                    return node
                node = child
                continue
            if node.children is None:
                self._expand(node)
            children = node.children or []
            if not children:
                return node
            if settings.search == "mcts":
                node = select(children, settings.weight, settings.exploration)
            elif settings.search == "random":
                node = random_path.choice(children)
            else:  # best prior first, what is done with left behind
                node = next((child for child in children if not child.finished), children[0])
        return node

    def _drawn_once(self, node: Node) -> Node | None:
        """A child of its own for this descent, without a tree: one draw a level."""
        taken = len(node.children or ()) + len(node.rejected)
        candidate = self._candidates(node, 1, taken)[0]
        if candidate.status != "ok":
            node.rejected.append(candidate)
            return None
        node.children = [*(node.children or ()), candidate]
        if candidate.depth == DEPTH:
            self._solve(candidate)
        self._expanded(node)
        return candidate

    def _expand_all(self, node: Node) -> None:
        if node.depth == DEPTH:
            return
        self._expand(node)
        for child in node.children or ():
            self._expand_all(child)

    # --- expansion -----------------------------------------------------------------------------------------------

    def _expand(self, node: Node) -> None:
        """Draw, read, compile, prune and rank; the children of a node are decided once."""
        settings = self._settings
        candidates = self._candidates(node, settings.candidates, 0)
        kept = self._pruner.distinct([each for each in candidates if each.status == "ok"], node)
        if node.depth + 1 == DEPTH:
            for each in kept:
                self._solve(each)
        for each, prior in zip(kept, self._priors(kept, node), strict=True):
            each.prior = prior
        order = sorted(kept, key=lambda each: -each.prior)
        for each in order[settings.keep :]:
            each.status = "low-ranked"
        node.children = order[: settings.keep]
        node.rejected = [each for each in candidates if each.status != "ok"]
        if not node.children:
            mark_finished(node)
        self._expanded(node)

    def _candidates(self, node: Node, count: int, first: int) -> list[Node]:
        """Children as they were drawn, with the status that reading and compiling gives them."""
        partial = node.formulation
        keys = ("decision_variables", "objective", "equality_constraints", "inequality_constraints")
        if partial.parameters is None:
            partial = self._with_parameters(partial, node, count, first)
        key = keys[node.depth]
        seed = self._seed(node.name, key, first)
        values = [*self._proposer.propose(key, partial, count, seed)][:count]
        values += [None] * (count - len(values))  # fewer answers than asked for are empty ones
        made = []
        for sample, value in enumerate(values):
            child = Node(partial, node, first + sample)
            child.source = {"backend": self._proposer.name, "seed": seed, "sample": sample}
            made.append(child)
            self._fill(child, key, value)
        return made

    def _with_parameters(self, partial: Formulation, node: Node, count: int, first: int) -> Formulation:
        """Parameters are no choice: the object drawn most often, else the one of most fields (as in the paper)."""
        values = self._proposer.propose("parameters", partial, count, self._seed(node.name, "parameters", first))
        usable = []
        for value in values:
            try:
                usable.append(partial.filled("parameters", value))
            except InputError:
                continue
        chosen = greedy([dict(each.parameters or {}) for each in usable])
        return partial.filled("parameters", chosen)

    def _fill(self, child: Node, key: str, value: Any) -> None:
        if value is None:
            child.status, child.reason = "empty", "no component could be read"
            return
        try:
            value, dropped = cleaned(key, value, child.formulation.variables or ())
            child.formulation = child.formulation.filled(key, value).of_type(TYPES_OF[self._settings.domain])
            child.reason = "; ".join(dropped)
        except InputError as error:
            child.status, child.reason = "empty", error.message
            return
        found = self._compiled(child.formulation)
        if isinstance(found, InputError):
            child.status, child.reason = "invalid", found.message
        else:
            child.model = found

    def _compiled(self, formulation: Formulation) -> LinearModel | InputError:
        text = json.dumps(formulation.document())
        if text not in self._models:
            try:
                self._models[text] = compile_model(formulation)
            except InputError as error:
                self._models[text] = error
        return self._models[text]

    def _solve(self, leaf: Node) -> None:
        """Solve a leaf; of models that say the same only the first is solved."""
        model = leaf.compiled
        form = self._pruner.form(model)
        if form not in self._solutions:
            self._solutions[form] = model, solve(model, self._settings.solver, self._settings.time_limit)
        first, found = self._solutions[form]
        if found.values is not None and first is not model:
            named = found.by_name(first)
            values = tuple(named[column.name] for column in model.columns)
            terms = [float(model.constant), *(float(a) * values[column] for column, a in model.objective)]
            found = replace(found, values=values, objective=math.fsum(terms))  # max f and min -f have one form
        leaf.solution = found

    # --- priors --------------------------------------------------------------------------------------

    def _priors(self, kept: list[Node], parent: Node) -> list[float]:
        settings = self._settings
        drafts = [each.draft for each in kept]
        if settings.prior == "uniform" or not kept:
            return [0.5] * len(kept)
        if settings.prior == "score":
            return [mean_score(self._judge, each, SCORE_VOTES, self._seed(each.name, "score")) for each in kept]
        if len(kept) == 1:
            return [0.5]
        votes = self._judge.rank(drafts, settings.prior_votes, self._seed(parent.name, "rank"))
        return spaced(rank_order(votes, len(kept)))

    def _seed(self, *parts: object) -> int:
        text = json.dumps([self._settings.seed, *parts], default=str)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def greedy(parameters: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The object that stands there most often; of several, and where none is repeated, the one of most fields."""
    if not parameters:
        return {}
    texts = [json.dumps(each, sort_keys=True, default=str) for each in parameters]
    often = Counter(texts)
    top = max(often.values())
    best = [each for each, text in zip(parameters, texts, strict=True) if often[text] == top]
    return max(best, key=len)

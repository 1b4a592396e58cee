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
from itertools import combinations
from typing import Any, Literal

from icml25cli.core.errors import InputError
from icml25cli.papers.formulate.backend import Draft, Judge, Proposer
from icml25cli.papers.formulate.canonical import Canonical, canonical
from icml25cli.papers.formulate.compiler import compile_model
from icml25cli.papers.formulate.equivalence import SECONDS, equivalent
from icml25cli.papers.formulate.formulation import Formulation, VariableType, cleaned
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.probing import told_apart
from icml25cli.papers.formulate.ranking import bradley_terry, rank_order, spaced
from icml25cli.papers.formulate.solve import Solution, SolverName, solve
from icml25cli.papers.formulate.tree import (
    LEVELS,
    Node,
    backpropagate,
    mark_finished,
    mean_path_value,
    select,
)

DEPTH = len(LEVELS)
CLUSTER_VOTES = 8  # of the paper
SCORE_VOTES = 2  # for a prior by score
ATTEMPTS = 1000  # descents, new leaves or not

SearchName = Literal["mcts", "dfs", "sequential", "greedy", "random"]
PruneName = Literal["smt", "canon", "none"]
PriorName = Literal["rank", "score", "uniform"]
RewardName = Literal["compare", "score", "solver"]
OrderName = Literal["path", "strength"]
Domain = Literal["auto", "integer", "continuous"]
TYPES_OF: dict[Domain, VariableType | None] = {"auto": None, "integer": "INTEGER", "continuous": "CONTINUOUS"}


@dataclass(frozen=True)
class Settings:
    """Of the search; defaults are the paper's."""

    candidates: int = 10  # H, drawn for an expansion
    keep: int = 3  # I, children of a node
    rollouts: int = 16  # T, new leaves
    weight: float = 0.5  # lambda, of the prior against the mean reward
    exploration: float = 1.0  # omega
    prior_votes: int = 5
    compare_votes: int = 5  # with either of the two shown first
    baselines: int = 3  # K
    update_baselines: bool = False
    search: SearchName = "mcts"
    prune: PruneName = "smt"
    prior: PriorName = "rank"
    reward: RewardName = "compare"
    order: OrderName = "path"  # of the final ranking: mean value of the path, or Bradley-Terry strength
    domain: Domain = "auto"  # of all variables but yes-or-no ones, where the user says it
    pre_expand: bool = False  # the whole tree before the first rollout
    smt_timeout: float = SECONDS
    solver: SolverName = "highs"
    time_limit: float = 10.0  # seconds a solver may take for a leaf
    seed: int = 0


@dataclass
class Found:
    """A searched tree: leaves in the order in which they were reached."""

    root: Node
    settings: Settings
    leaves: list[Node] = field(default_factory=list)
    leaders: list[Node | None] = field(default_factory=list)  # the best, after every new leaf
    attempts: int = 0
    backpropagations: int = 0
    shares: list[tuple[int, int, float]] = field(default_factory=list)  # of comparisons, by positions in `leaves`
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


def is_optimal(leaf: Node) -> bool:
    return leaf.solution is not None and leaf.solution.status == "optimal"


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
        self._forms: dict[int, Canonical] = {}
        self._solutions: dict[Canonical, tuple[LinearModel, Solution]] = {}
        self._baseline: list[int] = []  # positions of leaves
        self._known: dict[tuple[int, int], float] = {}  # shares of comparisons made
        self.found = Found(Node(Formulation()), settings)

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
                    end.reward = self._rewarded(end)
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
        kept = self._distinct([each for each in candidates if each.status == "ok"], node)
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
        model, form = _model(leaf), self._form(leaf)
        if form not in self._solutions:
            self._solutions[form] = model, solve(model, self._settings.solver, self._settings.time_limit)
        first, found = self._solutions[form]
        if found.values is not None and first is not model:
            named = found.by_name(first)
            values = tuple(named[column.name] for column in model.columns)
            terms = [float(model.constant), *(float(a) * values[column] for column, a in model.objective)]
            found = replace(found, values=values, objective=math.fsum(terms))  # max f and min -f have one form
        leaf.solution = found

    def _form(self, node: Node) -> Canonical:
        model = _model(node)
        if id(model) not in self._forms:
            self._forms[id(model)] = canonical(model)
        return self._forms[id(model)]

    # --- pruning -------------------------------------------------------------------------------------------------

    def _distinct(self, candidates: list[Node], parent: Node) -> list[Node]:
        """Those that say something that none before them says; the others are marked."""
        if self._settings.prune == "none":
            return candidates
        if parent.depth == 0:
            return self._distinct_variables(candidates, parent)
        kept: list[Node] = []
        for each in candidates:
            same = next((other for other in kept if self._says_the_same(other, each)), None)
            if same is None:
                kept.append(each)
            else:
                each.status, each.reason = "pruned-equivalent", f"says what {same.name} says"
        return kept

    def _says_the_same(self, one: Node, other: Node) -> bool:
        if self._form(one) == self._form(other):
            return True
        if self._settings.prune == "canon" or told_apart(self._form(one), self._form(other)):
            return False
        verdict = equivalent(_model(one), _model(other), timeout=self._settings.smt_timeout)
        return verdict.status == "equivalent"  # undecided counts as different, as in the paper

    def _distinct_variables(self, candidates: list[Node], parent: Node) -> list[Node]:
        """Variables have no domain in common, so a back end says which choices lead to the same model."""
        if not candidates:
            return []
        drafts = [Draft(each.formulation, _model(each)) for each in candidates]
        votes = self._proposer.cluster(drafts, CLUSTER_VOTES, self._seed(parent.name, "cluster"))
        clusters = commonest_partition(votes, len(candidates))
        kept = sorted(min(cluster) for cluster in clusters)
        for cluster in clusters:
            for position in cluster:
                if position != min(cluster):
                    candidates[position].status = "pruned-equivalent"
                    candidates[position].reason = f"says what {candidates[min(cluster)].name} says"
        return [candidates[position] for position in kept]

    # --- priors and rewards --------------------------------------------------------------------------------------

    def _priors(self, kept: list[Node], parent: Node) -> list[float]:
        settings = self._settings
        drafts = [self._draft(each) for each in kept]
        if settings.prior == "uniform" or not kept:
            return [0.5] * len(kept)
        if settings.prior == "score":
            return [self._mean_score(each, SCORE_VOTES) for each in kept]
        if len(kept) == 1:
            return [0.5]
        votes = self._judge.rank(drafts, settings.prior_votes, self._seed(parent.name, "rank"))
        return spaced(rank_order(votes, len(kept)))

    def _mean_score(self, node: Node, votes: int) -> float:
        marks = self._judge.score(self._draft(node), votes, self._seed(node.name, "score"))
        read = [mark for mark in marks if mark is not None]
        return math.fsum(read) / len(read) / 100 if read else 0.0

    def _draft(self, node: Node) -> Draft:
        return Draft(node.formulation, _model(node), node.solution)

    def _rewarded(self, leaf: Node) -> float:
        """The reward of a new leaf, which joins the leaves."""
        settings, leaves = self._settings, self.found.leaves
        leaves.append(leaf)
        position = len(leaves) - 1
        if settings.reward == "score":
            return self._mean_score(leaf, settings.compare_votes)
        if not is_optimal(leaf):
            return 0.0
        if settings.reward == "solver":
            return 1.0
        rivals = [other for other in self._baseline if other != position]
        won = self._shares([(position, other) for other in rivals])
        joins = len(self._baseline) < settings.baselines and not settings.update_baselines
        if joins and all(self._form(leaves[other]) != self._form(leaf) for other in self._baseline):
            self._baseline.append(position)
            return 0.5
        if settings.update_baselines:
            reward = math.fsum(won) / len(won) if len(won) >= settings.baselines else 0.5
            self._choose_baseline()
            return reward
        return math.fsum(won) / len(won) if won else 0.5

    def _shares(self, pairs: Sequence[tuple[int, int]]) -> list[float]:
        """For pairs of leaves the mean share of votes for the one against the other, with either shown first."""
        leaves, new = self.found.leaves, [pair for pair in pairs if pair not in self._known]
        shown, seeds = [], []
        for one, other in new:
            first, second = self._draft(leaves[one]), self._draft(leaves[other])
            seed = self._seed("compare", leaves[one].name, leaves[other].name)
            shown += [(first, second), (second, first)]
            seeds += [seed, seed + 1]
        won = self._judge.compare(shown, self._settings.compare_votes, seeds) if new else ()
        for (one, other), first, second in zip(new, won[::2], won[1::2], strict=True):
            share = (first + 1.0 - second) / 2
            self._known[one, other], self._known[other, one] = share, 1.0 - share
            self.found.shares.append((one, other, share))
        return [self._known[pair] for pair in pairs]

    def _choose_baseline(self) -> None:
        """The baseline set becomes the strongest of all leaves with an optimum."""
        usable = [position for position, leaf in enumerate(self.found.leaves) if is_optimal(leaf)]
        if len(usable) < 3:
            self._shares([*combinations(usable, 2)])
        strengths = bradley_terry(self.found.shares, len(self.found.leaves))
        self._baseline = sorted(usable, key=lambda position: -strengths[position])[: self._settings.baselines]

    def _seed(self, *parts: object) -> int:
        text = json.dumps([self._settings.seed, *parts], default=str)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def _model(node: Node) -> LinearModel:
    assert node.model is not None, "only formulations that compile get here"
    return node.model


def greedy(parameters: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The object that stands there most often; of several, and where none is repeated, the one of most fields."""
    if not parameters:
        return {}
    texts = [json.dumps(each, sort_keys=True, default=str) for each in parameters]
    often = Counter(texts)
    top = max(often.values())
    best = [each for each, text in zip(parameters, texts, strict=True) if often[text] == top]
    return max(best, key=len)


def commonest_partition(votes: Sequence[Sequence[Sequence[int]]], count: int) -> list[list[int]]:
    """The partition of ``range(count)`` voted for most often, in whatever order; single members where none is whole."""
    whole = [
        frozenset(frozenset(cluster) for cluster in vote)
        for vote in votes
        if sorted(position for cluster in vote for position in cluster) == list(range(count))
    ]
    if not whole:
        return [[position] for position in range(count)]
    chosen, _ = Counter(whole).most_common(1)[0]
    return sorted(sorted(cluster) for cluster in chosen)

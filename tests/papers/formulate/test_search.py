"""The search does what section 3 of the paper says: priors, selection, rewards, pruning, and an honest count."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icml25cli.papers.formulate.canonical import canonical
from icml25cli.papers.formulate.compiler import compile_model
from icml25cli.papers.formulate.equivalence import equivalent
from icml25cli.papers.formulate.formulation import Formulation, read_formulation
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.probing import told_apart
from icml25cli.papers.formulate.pruning import commonest_partition
from icml25cli.papers.formulate.ranking import bradley_terry, rank_order, spaced
from icml25cli.papers.formulate.search import ATTEMPTS, Search, greedy
from icml25cli.papers.formulate.settings import Settings
from icml25cli.papers.formulate.tree import (
    Node,
    backpropagate,
    counters,
    document,
    mean_path_value,
    select,
    upper_bound,
)

VARIABLES = [
    {"wheat": {"type": "CONTINUOUS"}, "corn": {"type": "CONTINUOUS"}},
    {"wheat": {"type": "INTEGER"}, "corn": {"type": "INTEGER"}},
    {"wheat": {"type": "nothing"}},  # no such type
]
OBJECTIVES = [
    {"max": "20*wheat + 30*corn"},
    {"max": "30*corn + 20*wheat"},  # the same
    {"min": "-20*wheat - 30*corn"},  # the same
    {"min": "20*wheat + 30*corn"},  # the wrong direction
    {"max": "20*wheat*corn"},  # does not compile
]
EQUALITIES = [{}, {}, {"all": "wheat + corn == 10"}]
INEQUALITIES = [
    {"land": "wheat + corn <= 10", "money": "2*wheat + 5*corn <= 100"},
    {"money": "5*corn + 2*wheat <= 100", "land": "2*wheat + 2*corn <= 20"},  # the same
    {"land": "wheat + corn <= 10", "redundant": "wheat + corn <= 12", "money": "2*wheat + 5*corn <= 100"},  # the same
    {"money": "2*wheat + 5*corn <= 100"},
    {"land": "wheat + corn <= 10"},
    {"land": "wheat + corn >= 10"},  # unbounded
    {"land": "wheat + corn >= 12", "money": "wheat + corn <= 11"},  # infeasible
]


class Scripted:
    """Draws from lists, and likes what stands early in them."""

    name = "scripted"

    def __init__(self, **lists) -> None:
        self.lists = {
            "parameters": [{"acres": 10}],
            "decision_variables": VARIABLES,
            "objective": OBJECTIVES,
            "equality_constraints": EQUALITIES,
            "inequality_constraints": INEQUALITIES,
            **lists,
        }
        self.asked = 0
        self.compared = []

    def propose(self, key, partial, count, seed):
        self.asked += count
        return random.Random(seed).choices([*self.lists[key], None], k=count)

    def cluster(self, drafts, votes, seed):
        kinds = [draft.model.columns[0].integer for draft in drafts]
        groups = [[i for i, kind in enumerate(kinds) if kind is whole] for whole in (True, False)]
        return [[group for group in groups if group]] * votes

    def likes(self, draft) -> float:
        value = 0.0
        for key, items in self.lists.items():
            part = draft.formulation.document()[key]
            if part in items:
                value -= items.index(part)
        return value

    def rank(self, drafts, votes, seed):
        order = sorted(range(len(drafts)), key=lambda i: -self.likes(drafts[i]))
        return [[order.index(i) + 1 for i in range(len(drafts))], None, [1] * len(drafts)][:votes]

    def score(self, draft, votes, seed):
        return [50.0 + self.likes(draft), None][:votes]

    def compare(self, pairs, votes, seeds):
        self.compared += [(first.formulation, second.formulation) for first, second in pairs]
        return [1.0 / (1.0 + math.exp(self.likes(second) - self.likes(first))) for first, second in pairs]


def search(script=None, **settings):
    script = script or Scripted()
    found = Search(script, script, Settings(**settings)).run()
    return found, script


def model_of(node: Node) -> LinearModel:
    assert node.model is not None
    return node.model


def solved(leaf: Node) -> bool:
    assert leaf.solution is not None
    return leaf.solution.status == "optimal"


# --- known answers -----------------------------------------------------------------------------------------------


def test_selection():
    parent = Node(Formulation(), visits=4)
    child, sibling = Node(Formulation(), parent, prior=0.75), Node(Formulation(), parent, 1, prior=0.75)
    child.visits, child.total = 2, 1.0
    assert upper_bound(child, 0.5, 1.0) == pytest.approx(1.457555, abs=1e-6)
    assert upper_bound(sibling, 0.5, 1.0) == pytest.approx(1.927410, abs=1e-6)
    assert select([child, sibling], 0.5, 1.0) is sibling
    parent.visits = 1
    assert upper_bound(sibling, 0.5, 1.0) == 0.75
    assert select([sibling, Node(Formulation(), parent, 2, prior=0.75)], 0.5, 1.0) is sibling  # the first of equals


def test_priors_of_votes():
    counted = [[1, 2, 3]] * 4 + [[1, 3, 2]]
    votes = [*counted, None, [1, 1, 2], [1, 2]]  # the last three do not count
    assert [sum(vote[i] for vote in counted) for i in range(3)] == [5, 11, 14]
    assert spaced(rank_order(votes, 3)) == [0.75, 0.5, 0.25]
    assert spaced([0]) == [0.5]
    assert spaced([1, 0]) == pytest.approx([1 / 3, 2 / 3])
    assert rank_order([[1, 2], [2, 1]], 2) == [0, 1]  # ties by position


def test_strengths_against_scikit_learn():
    linear = pytest.importorskip("sklearn.linear_model")
    shares = [(0, 1, 0.8), (0, 2, 0.6), (1, 2, 0.7), (1, 2, 0.3), (2, 3, 0.9), (0, 3, 0.5)]
    rows, wins = [], []
    for i, j, share in shares:
        if share != 0.5:
            for sign in (1, -1):  # the mirrored row at half the weight says the same, and gives the library two classes
                row = np.zeros(4)
                row[i], row[j] = sign, -sign
                rows.append(row)
                wins.append((share > 0.5) == (sign > 0))
    model = linear.LogisticRegression(fit_intercept=False, C=1.0, tol=1e-12, max_iter=1000)
    model.fit(np.array(rows), wins, sample_weight=np.full(len(rows), 0.5))
    assert bradley_terry(shares, 4) == pytest.approx(model.coef_[0], abs=1e-5)
    assert not bradley_terry([(0, 1, 0.5)], 2).any()


def test_parameters_and_partitions_by_majority():
    assert greedy([{"a": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1}]) == {"a": 1, "b": 2}
    assert greedy([{"a": 1}, {"a": 1, "b": 2}, {"c": 3}]) == {"a": 1, "b": 2}
    assert commonest_partition([[[0], [1, 2]], [[2, 1], [0]], [[0, 1, 2]]], 3) == [[0], [1, 2]]
    assert commonest_partition([[[0], [0, 1]], [[0]]], 2) == [[0], [1]]  # neither is a partition


# --- the search --------------------------------------------------------------------------------------------------


def test_finds_the_farmer():
    found, _ = search(candidates=12, rollouts=16, seed=1)
    best = found.best()
    assert best is not None
    assert best.solution is not None
    model = model_of(best)
    assert best.solution.objective == (300 if model.sense == "max" else -300)  # `min -f` is as good
    assert best.solution.by_name(model) == {"wheat": 0, "corn": 10}


@pytest.mark.parametrize("kind", ["mcts", "dfs", "random"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_counts_add_up(kind, seed):
    found, _ = search(candidates=10, rollouts=12, search=kind, seed=seed)
    for node in found.root.walk():
        if node.children is not None:
            assert len(node.children) <= 3
            assert len(node.children) + len(node.rejected) == 10
    for row in counters(found.root):
        parts = ("empty", "invalid", "pruned", "low_ranked", "kept")
        assert row["generated"] == sum(row[part] for part in parts)
    assert found.root.visits == found.backpropagations == found.attempts
    assert len({id(leaf) for leaf in found.leaves}) == len(found.leaves) <= 12
    assert len(found.leaves) <= 3**4
    total = 0.0
    for leaf in found.leaves:
        assert leaf.reward is not None
        total += leaf.reward * leaf.visits
    assert math.isclose(found.root.total, total)


def test_each_status_is_met_and_says_why():
    found, _ = search(candidates=20, rollouts=8, prune="smt")
    statuses = {node.status: node for node in found.root.walk()}
    assert statuses.keys() == {"ok", "empty", "invalid", "pruned-equivalent", "low-ranked"}
    assert "says what" in statuses["pruned-equivalent"].reason
    assert any("20 * wheat * corn" in node.reason for node in found.root.walk() if node.status == "invalid")


def test_no_two_kept_siblings_say_the_same():
    found, _ = search(candidates=20, rollouts=16)
    for node in found.root.walk():
        for child in node.children or ():
            for other in node.children or ():
                if child is not other and node.depth > 0:
                    assert equivalent(model_of(child), model_of(other)).status != "equivalent"
    objectives = [node for node in found.root.walk() if node.depth == 2 and node.status == "ok"]
    assert objectives
    assert all(node.formulation.objective is not None for node in objectives)


def test_pruning_leaves_more_that_differ():
    def distinct(prune):
        found, _ = search(candidates=20, rollouts=10, prune=prune, seed=3)
        return len({canonical(model_of(leaf)).key for leaf in found.leaves})

    assert distinct("smt") > distinct("none")


def test_rewards_of_the_first_three_are_a_half_and_theirs_are_the_comparisons():
    found, script = search(candidates=20, rollouts=10, seed=2)
    judged = [leaf for leaf in found.leaves if solved(leaf)]
    assert [leaf.reward for leaf in judged[:3]] == [0.5] * 3
    assert any(leaf.reward not in (0.0, 0.5) for leaf in judged[3:])
    assert all(leaf.reward == 0 for leaf in found.leaves if not solved(leaf))
    for leaf in judged[3:]:
        gaps = [script.likes(leaf) - script.likes(other) for other in judged[:3]]
        assert leaf.reward == pytest.approx(np.mean([1 / (1 + math.exp(-gap)) for gap in gaps]))
    assert len(script.compared) == 2 * (1 + 2 + 3 * (len(judged) - 3))


def test_the_same_seed_is_the_same_tree_and_another_is_not():
    trees = [document(search(rollouts=8, seed=seed)[0].root) for seed in (5, 5, 6)]
    assert trees[0] == trees[1] != trees[2]


def test_a_whole_tree_first_finds_the_same_leaves():
    lazy, _ = search(rollouts=10_000, candidates=12)
    whole, _ = search(rollouts=10_000, candidates=12, pre_expand=True)
    assert lazy.stopped == whole.stopped == "exhausted"
    assert {leaf.name for leaf in lazy.leaves} == {leaf.name for leaf in whole.leaves}
    assert lazy.attempts < ATTEMPTS


def test_always_the_same_answer_leaves_one_child_a_level():
    same = {
        "decision_variables": VARIABLES[:1],
        "objective": OBJECTIVES[:1],
        "equality_constraints": [{}],
        "inequality_constraints": INEQUALITIES[:1],
    }
    found, _ = search(Scripted(**same), candidates=30)
    assert len(found.leaves) == 1
    assert found.stopped == "exhausted"
    assert mean_path_value(found.leaves[0], 0.5) == 0.5


def test_nothing_usable_ends_the_search():
    found, _ = search(Scripted(objective=["prose", 7]), candidates=5)
    assert found.leaves == []
    assert found.best() is None
    assert found.stopped == "exhausted"
    assert found.root.total == 0 < found.root.visits


def test_searches_without_a_tree():
    greedy_found, _ = search(search="greedy", candidates=12)
    assert len(greedy_found.leaves) == 1
    for node in greedy_found.leaves[0].path()[1:]:
        assert node.parent is not None
        assert node.parent.children is not None
        assert node.place == node.parent.children[0].place
    drawn, _ = search(search="sequential", rollouts=6)
    assert len(drawn.leaves) == 6
    assert len({leaf.path()[1].place for leaf in drawn.leaves}) == 6  # of one path each
    assert all(node.status != "pruned-equivalent" for node in drawn.root.walk())


def test_new_baselines_are_the_strongest():
    found, script = search(candidates=20, rollouts=12, update_baselines=True, seed=2)
    strengths = found.strengths()
    judged = [i for i, leaf in enumerate(found.leaves) if solved(leaf)]
    assert max(judged, key=lambda i: strengths[i]) in sorted(judged, key=lambda i: -script.likes(found.leaves[i]))[:3]


def test_a_leaf_visited_again_is_no_rollout():
    leaf_parent = Node(Formulation())
    leaf = Node(Formulation(), leaf_parent)
    backpropagate(leaf, 0.25)
    backpropagate(leaf, 0.25)
    assert (leaf.visits, leaf_parent.visits, leaf_parent.total) == (2, 2, 0.5)
    found, _ = search(candidates=12, rollouts=14)
    assert found.attempts >= len(found.leaves)


# --- telling models apart without a proof ------------------------------------------------------------------------

COEFFICIENTS = st.integers(-4, 6)
ROWS = st.lists(st.tuples(COEFFICIENTS, COEFFICIENTS, st.integers(-5, 20)), max_size=4)


def _model(rows, whole, objective):
    kind = "INTEGER" if whole else "CONTINUOUS"
    return compile_model(
        read_formulation(
            {
                "parameters": {},
                "decision_variables": {name: {"type": kind, "upper": 30} for name in "xy"},
                "objective": {"max": f"{objective[0]}*x + {objective[1]}*y"},
                "equality_constraints": {},
                "inequality_constraints": {f"c{i}": f"{a}*x + {b}*y <= {c}" for i, (a, b, c) in enumerate(rows)},
            },
            "the test",
        )
    )


@given(ROWS, ROWS, st.booleans(), st.tuples(COEFFICIENTS, COEFFICIENTS))
def test_what_is_told_apart_is_different(one, other, whole, objective):
    models = [_model(rows, whole, objective) for rows in (one, other)]
    if told_apart(canonical(models[0]), canonical(models[1])):
        assert equivalent(*models).status == "different"


def test_what_differs_is_mostly_told_apart_without_z3():
    random_rows = random.Random(0)
    told = different = 0
    for _ in range(30):
        rows = [(*tuple(random_rows.randint(1, 9) for _ in range(2)), random_rows.randint(10, 90)) for _ in range(3)]
        other = [*rows[:2], (rows[2][0] + 1, rows[2][1], rows[2][2] - 7)]
        models = [_model(each, False, (1, 1)) for each in (rows, other)]
        told += told_apart(*map(canonical, models))
        different += equivalent(*models).status == "different"
    assert told >= 0.9 * different > 15

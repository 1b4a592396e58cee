"""Which reading is the answer, and how likely it is what the text means.

A text may well be infeasible or unbounded. The search turns away from such readings, since a misread number makes them
too; they are the answer where the text speaks for them so clearly that a slip of reading is the less likely story.
Knows searched trees and what a grammar thinks of them. Does not know how answers are shown.
"""

import math

from icml25cli.papers.formulate.backend import Draft
from icml25cli.papers.formulate.grammar.judging import Judge
from icml25cli.papers.formulate.search import Found
from icml25cli.papers.formulate.tree import Node, is_optimal

SHARPNESS = 0.16  # of the confidence: on NL4OPT's development problems it errs on the low side
MISSING = 0.6  # factor of the confidence for a number that the model lacks
UNREAD = 0.15  # and for a sentence or clause that seems to say something about it: below what counts as an answer
IDLE = 0.4  # for a least that is reached by doing nothing: then some demand was not read
RARE = 4.0  # logarithm by which a reading without an optimum has to be likelier than the best with one
BARREN = 0.75  # factor of the confidence of an answer that there is no optimum


def answer(grammar: Judge, found: Found) -> Node | None:
    """The best leaf, or a reading without an optimum that the text speaks for much more clearly."""
    best = found.best()
    barren = [node for node in found.root.walk() if node.solution and _has_none(node)]
    if not barren:
        return best or next(iter(found.order()), None)
    plainest = max(barren, key=lambda node: _said(grammar, node))
    if best is None or _said(grammar, plainest) > _said(grammar, best) + RARE:
        return plainest
    return best


def confidence(grammar: Judge, found: Found, best: Node) -> float:
    """How likely ``best`` is what the text means, in [0, 1].

    The share in the likelihood of all readings of its kind that have its optimum, times a power of its own likelihood,
    which is small where many decisions were close, and less for every number of the text that the model lacks.
    """
    if is_optimal(best):
        rivals = [leaf for leaf in found.leaves if is_optimal(leaf)]
        logs = [grammar.likelihood(_draft(leaf)) for leaf in rivals]
        own, factor = grammar.likelihood(_draft(best)), 1.0
    elif _has_none(best):
        rivals = [node for node in found.root.walk() if node.solution and _has_none(node)]
        logs = [_said(grammar, node) for node in rivals]
        own, factor = _said(grammar, best), BARREN
    else:  # time was up
        return 0.1
    weights = [math.exp(min(50.0, (log - own) / 2)) for log in logs]
    alike = [
        weight for weight, rival in zip(weights, rivals, strict=True) if rival is best or _same_answer(rival, best)
    ]
    share = math.fsum(alike) / math.fsum(weights)
    factor *= MISSING ** len(grammar.missing(best.formulation)) * UNREAD ** len(grammar.unread(best.formulation))
    if does_nothing(best):
        factor *= IDLE
    return round(factor * min(1.0, math.sqrt(share) * math.exp(SHARPNESS * min(0.0, own))), 4)


def does_nothing(best: Node) -> bool:
    """Whether a least is reached with nothing made or bought."""
    assert best.model is not None
    return best.model.sense == "min" and is_optimal(best) and not any((best.solution and best.solution.values) or ())


def agreement(found: Found, best: Node) -> float:
    """How many of a language model's readings have the optimum of the best, in [0, 1].

    Readings count by their Bradley-Terry strength, and against the best stands one more of strength 0: the reading that
    was not found. No calibration: a model that is always wrong in the same way agrees with itself. Without an optimum,
    how many have none for the same reason.
    """
    assert best.solution is not None
    weights = [math.exp(strength) for strength in found.strengths()]
    same = [w for leaf, w in zip(found.leaves, weights, strict=True) if _same_end(leaf, best)]
    return round(math.fsum(same) / (math.fsum(weights) + 1), 4)


def _same_end(leaf: Node, best: Node) -> bool:
    """Whether two leaves have the same optimum, a maximum and the minimum of its negative included, or both none."""
    assert leaf.solution is not None
    assert best.solution is not None
    if not is_optimal(leaf) or not is_optimal(best):
        return leaf.solution.status == best.solution.status
    worth = []
    for each in (leaf, best):
        assert each.model is not None
        assert each.solution is not None
        assert each.solution.objective is not None
        worth.append(each.solution.objective * (1 if each.model.sense == "max" else -1))
    return math.isclose(*worth, rel_tol=1e-6, abs_tol=1e-9)


def _same_answer(leaf: Node, best: Node) -> bool:
    return is_optimal(leaf) and is_optimal(best) and _same_end(leaf, best)


def _has_none(node: Node) -> bool:
    return node.solution is not None and node.solution.status in ("infeasible", "unbounded")


def _said(grammar: Judge, node: Node) -> float:
    """How well a whole formulation agrees with the text, whatever the solver says of it."""
    assert node.model is not None
    return grammar.likelihood(Draft(node.formulation, node.model))


def _draft(leaf: Node) -> Draft:
    assert leaf.model is not None
    return Draft(leaf.formulation, leaf.model, leaf.solution)

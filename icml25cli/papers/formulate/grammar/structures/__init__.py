"""Texts of a known form: formulas, tables, lists with the data of shipping, assignment, shifts or cutting, and things
described alike, which are chosen or blended.

Each form is read by what any text of it has, and only where every part of its model was found.
"""

from icml25cli.papers.formulate.grammar.structures import algebra, items, listed, tabled
from icml25cli.papers.formulate.grammar.structures.structure import Structure
from icml25cli.papers.formulate.grammar.text import Problem

LONGEST = 3000  # words: what is looked for grows with the square of a text


def read_structure(problem: Problem) -> Structure | None:
    """The form of a text; None where it has none that is known here.

    Raises:
        Unreadable: it has one, and something in it that would be read wrongly.
    """
    if len(problem.words) > LONGEST:
        return None
    return algebra.read(problem.text) or tabled.read(problem.text) or listed.read(problem) or items.read(problem)

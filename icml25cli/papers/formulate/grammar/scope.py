"""What the grammar does not understand, said before it answers.

Knows signs of other kinds of problems. A text without such signs may still be read wrongly; the confidence is for that.
"""

import re

from icml25cli.papers.formulate.grammar.grammar import Grammar
from icml25cli.papers.formulate.grammar.numbers import Quantity
from icml25cli.papers.formulate.grammar.tagger import stem
from icml25cli.papers.formulate.grammar.text import Problem

LONGEST = 400  # words
_SIGNS = (
    (
        r"\bsquared?\b(?! ?-?(?:feet|foot|ft|met(?:er|re)s?|m\b|inch|yards?|miles?|km|cm))|"
        r"\bquadratic|\bcubic\b|\bnon-?linear|\bexponential|\blogarithm|\bsquare root|\bvariance\b|"
        r"\bproduct of\b|\bvolume of the\b|\barea of the\b",
        "it asks for products or powers of what is decided",
    ),
    (
        r"\bif\b[^.?!]{0,80}\bthen\b|\beither\b[^.?!]{0,60}\bor not\b|\bset-?up cost|\bfixed (?:cost|charge|fee)|"
        r"\bone-time\b|\bopening cost|\bnot both\b|\bmutually exclusive|\bonly if\b|\bunless\b",
        "it has conditions or fixed costs",
    ),
    (
        r"\btable \d|\btable below|\bfollowing table|\bin the table|\bsee (?:the )?(?:figure|appendix|table)|"
        r"\battached\b|\bspreadsheet",
        "its data is in a table or a file that is not in the text",
    ),
    (
        r"\b(?:shortest|longest) (?:path|route|tour)|\btravell?ing sales|\bsequence of jobs|\bprecedence\b|\bmakespan|"
        r"\beach (?:day|week|month|quarter|period) (?:of|over)|\binventory at the (?:end|start|beginning)|"
        r"\bcarried over\b|\b(?:kept|stored|held|carried) (?:from|over|until)\b|\b(?:holding|storage|inventory) cost|"
        r"\bassign(?:ed|ment)?\b[^.?!]{0,40}\beach\b|\bcutting patterns?\b|\bpatterns?\b|\bcut into\b|"
        r"\bcut from\b|\brolls?\b[^.?!]{0,40}\bcut\b",
        "it is about orders, routes, assignments, patterns or periods",
    ),
    (
        r"\bfrom (?:each )?\w+ \w* ?to (?:each )?(?:store|market|warehouse|customer|city|plant)s?\b[^.?!]{0,80}"
        r"\b(?:ship|cost)|\bship(?:ping|ped)?\b[^.?!]{0,60}\bfrom\b[^.?!]{0,60}\bto\b",
        "what is decided has two indices, such as from and to",
    ),
    (
        r"\bblend\b|\bmixture must (?:contain|have|be)\b[^.?!]{0,40}(?:%|percent)|"
        r"\bon average (?:must|at least|at most)|\baverage \w+ (?:of the|must)",
        "it limits an average of a blend",
    ),
    (
        r"\bfinish(?:es|ed)? (?:last|first)\b|\bas (?:early|late|evenly) as possible\b|\blongest[- ]running\b|"
        r"\b(?:min|max)imi[sz]e the (?:largest|smallest|maximum|minimum|longest)\b",
        "it is about the largest or smallest of several amounts",
    ),
    (
        r"\bday shifts? (?:start|begin)|\bconsecutive\b|\bstarts? work|\bcovers?\b[^.?!]{0,40}\bhours\b|\bo'clock\b|"
        r"\b\d+ ?[ap]m\b",
        "it is a timetable",
    ),
    (
        r"\bat most one of\b|\bwhich (?:items|projects|of the following)\b|\bchoose (?:a )?(?:subset|which)\b|"
        r"\bselect which\b|\bknapsack\b|\bbackpack\b|\byes or no\b",
        "each thing is taken or left",
    ),
)
_AIM = (
    r"\b(?:min|max)imi[sz]|\b(?:highest|lowest|fewest|cheapest|largest|smallest|greatest|best|decreas\w*|increas\w*|"
    r"reduc\w*|the (?:most|least)|as (?:much|many|little|few|cheaply) \w* ?as possible)\b"
)


def too_long(problem: Problem) -> str | None:
    """Why a text is too long for the grammar, asked before it reads; None where it is not."""
    if len(problem.words) <= LONGEST:
        return None
    return f"it has {len(problem.words)} words, and problems of one paragraph are what the grammar reads"


# Units that measure one thing; the grammar does not turn one into the other.
_UNITS = (
    {"second", "minute", "hour"},
    {"milligram", "mg", "gram", "g", "kilogram", "kg", "ton", "tonne", "pound", "lb", "ounce", "oz"},
    {"millilitre", "milliliter", "ml", "litre", "liter", "l", "gallon", "quart", "pint"},
    {
        "millimetre",
        "mm",
        "centimetre",
        "centimeter",
        "cm",
        "metre",
        "meter",
        "m",
        "kilometre",
        "kilometer",
        "km",
        "mile",
    },
    {"cent", "$"},
)


def mixed_units(problem: Problem) -> str | None:
    """Why numbers of a text cannot be compared: "2 hours" of a thing, and "90 minutes" of all."""
    units = {_unit(problem, quantity) for quantity in problem.told}
    mixed = next((sorted(units & family) for family in _UNITS if len(units & family) > 1), None)
    return f'it measures in "{mixed[0]}" and in "{mixed[1]}": say all in one unit' if mixed else None


def _unit(problem: Problem, quantity: Quantity) -> str:
    after = problem.lower[quantity.last : quantity.last + 1]
    return "$" if quantity.kind == "money" else stem(after[0]) if after else ""


def _several(text: str) -> bool:
    """Whether two paragraphs aim at something with numbers of their own."""
    parts = [part for part in re.split(r"\n\s*\n", text) if re.search(r"\b(?:min|max)imi[sz]", part, re.IGNORECASE)]
    return sum(len(re.findall(r"\d+", part)) > 2 for part in parts) > 1


def out_of_scope(grammar: Grammar) -> str | None:
    """Why the grammar should not answer for its text; None where it may."""
    problem = grammar.problem
    for pattern, reason in _SIGNS:
        found = re.search(pattern, problem.text, re.IGNORECASE)
        if found:
            return f'{reason} ("{" ".join(found.group().split())[:60]}")'
    if _several(problem.text):
        return "it holds several problems: give them one at a time, or one a line of a .jsonl file"
    if len(problem.told) < 3:
        return "it holds hardly any numbers"
    tagged = any(role == "OBJ_DIR" for _, _, role in problem.spans)
    if not tagged and not re.search(_AIM, problem.text, re.IGNORECASE):
        return "it does not say what is to be made large or small"
    if not grammar.choices:
        return "what is to be decided could not be found"
    return mixed_units(problem)

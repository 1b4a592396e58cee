"""What the grammar does not understand, said before it answers.

Knows signs of other kinds of problems. A text without such signs may still be read wrongly; the confidence is for that.
"""

import re

from icml25cli.papers.formulate.grammar.grammar import Grammar
from icml25cli.papers.formulate.grammar.lexicon import AT_LEAST, AT_MOST, HAD, NEEDED
from icml25cli.papers.formulate.grammar.limits import two_ways
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
        r"\bone-time\b|\bopening cost|\bnot both\b|\bmutually exclusive|\bonly\b[^.?!]{0,60}\bif\b|\bunless\b",
        "it has conditions or fixed costs",
    ),
    (
        r"\b(?:in|of|from|by|to|see|per) (?:the )?tables? \d|(?-i:\bTables? \d)|\(tables? \d+\)|"
        r"\btable \d+ (?:shows|gives|lists|has|holds|says)\b|"
        r"\btable below|\bfollowing table|\bin the table|\bsee (?:the )?(?:figure|appendix|table)|"
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
        "it is about a blend",
    ),
    (
        r"\bfinish(?:es|ed)? (?:last|first)\b|\bas (?:early|late|evenly) as possible\b|\blongest[- ]running\b|"
        r"\b(?:min|max)imi[sz]e the (?:largest|smallest|maximum|minimum|longest)\b",
        "it is about the largest or smallest of several amounts",
    ),
    (
        r"\bday shifts? (?:start|begin)|\bconsecutive\b|\bstarts? work|\bcovers?\b[^.?!]{0,40}\bhours\b|"
        r"\b\d+ ?(?:[ap]m|o'clock)\b[^.?!]{0,60}\b\d+ ?(?:[ap]m|o'clock)\b",
        "it is a timetable",
    ),
    (
        r"\bat most one of\b|\bwhich (?:items|projects|of the following)\b|"
        r"\bchoose (?:a )?(?:subset|which|among|between)\b|\bselect which\b|\bknapsack\b|\bbackpack\b|\byes or no\b",
        "each thing is taken or left",
    ),
)
_AIM = (
    r"\b(?:min|max)imi[sz]|\b(?:highest|lowest|fewest|cheapest|largest|smallest|greatest|best|decreas\w*|increas\w*|"
    r"reduc\w*|the (?:most|least)|"
    r"as (?:much|many|little|few|cheaply|cheap|low|high|small|large) (?:\w+ ){0,2}as possible)\b"
)


_FOREIGN = {
    "German": "der die das und ein eine einen einer eines ist sind wird werden soll sollen muss nicht mit für von zu "
    "zur zum den dem des wie viele wir pro kostet kosten höchstens mindestens unter",
    "French": "le la les et un une des du de est sont pour que qui dans ne pas plus il elle nous doit au aux par "
    "combien chaque peut coûte sur",
    "Spanish": "el la los las y un una de del es son para que en no más por se cada cuántos debe puede con al cuesta",
    "Italian": "il lo la gli le e un una di del della è sono per che in non più con ogni quanti deve può costa al",
    "Dutch": "de het een en van is zijn voor met niet meer per elke hoeveel moet kan kost wordt worden te op",
    "Portuguese": "o a os as e um uma de do da é são para que em não mais por cada quantos deve pode custa com",
}
_SPOKEN = (
    "the and an of is are to with for that each how many must can has have at most least per not it from we they be "
    "subject maximize minimize maximise minimise find"
)
_ENGLISH = {*_SPOKEN.split()}


def foreign(text: str) -> str | None:
    """Why a text that is not English is not read; None where it may be."""
    words = re.findall(r"[^\W\d_]{2,}", text.lower())  # a letter alone is a variable
    own = sum(word in _ENGLISH for word in words)
    common = {language: sum(word in set(said.split()) for word in words) for language, said in _FOREIGN.items()}
    language = max(common, key=lambda name: common[name])
    if common[language] < 4 or common[language] <= 2 * own:
        return None
    return f"it seems to be {language}, and the grammar reads English alone"


def ambiguous_number(text: str) -> str | None:
    """Why a comma between digits could be of a decimal or of a list: "2,5" is not read as 25."""
    found = re.search(r"(?<![\d.,{(\[])\d+,(?:\d{1,2}(?!\d)|\d{4,})[^\s,;]{0,3}", text)
    return (
        f'the comma of "{found.group()}" may be of a decimal or of a list: write 2.5, and lists as 2, 5'
        if found
        else None
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
    units = {_unit(problem, quantity) for quantity in problem.told if _counts(problem, quantity)}
    mixed = next((sorted(units & family) for family in _UNITS if len(units & family) > 1), None)
    return f'it measures in "{mixed[0]}" and in "{mixed[1]}": say all in one unit' if mixed else None


def _counts(problem: Problem, quantity: Quantity) -> bool:
    """Whether a number stands where something is decided or limited, not in talk: "the cake was gone in 10 minutes"."""
    begin, end = problem.sentence_of(quantity.first)
    said = " ".join(problem.lower[begin:end])
    limits = AT_LEAST.search(said) or AT_MOST.search(said) or HAD.search(said) or NEEDED.search(said)
    return bool(limits or problem.named & {*range(begin, end)})


def _difference(text: str) -> str | None:
    """Why a profit that is a price less a cost is not read; None where profits are said, or none is aimed at."""
    aims = re.search(r"\b(?:max|most|highest|largest|greatest)\w*(?: \w+){0,4} profits?\b", text, re.IGNORECASE)
    sold = re.search(r"\bsells? for\b|\bsold (?:for|at)\b|\bsell(?:s|ing)? price\b", text, re.IGNORECASE)
    paid = re.search(
        r"\bcosts? (?:about )?[$€£]?\d[\d.,]* (?:to (?:make|produce|build|bake)|each)", text, re.IGNORECASE
    )
    said = re.search(r"\bprofit (?:of|is|on|for|per)\b[^.]{0,40}\d|\d[^.]{0,20}\b(?:in )?profit\b", text, re.IGNORECASE)
    return "the profit is a price less a cost: say the profit of each" if aims and sold and paid and not said else None


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
    return (
        _difference(problem.text)
        or mixed_units(problem)
        or two_ways(problem, [each for each in problem.told if not problem.is_fact(each)])
    )

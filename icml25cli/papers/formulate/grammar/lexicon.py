"""Words that the grammar knows by heart: numbers, directions, units, and words that say nothing about a quantity."""

import re

from icml25cli.papers.formulate.grammar.tagger import stem

_SMALL = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SAYS_NOTHING = """
a an the of to in on at by for from with and or but is are be been was were it its they them their there this that these
those he she his her him one each every per both either any all than as so if can could must should would will may might
has have had do does not no only also further however while whereas in which who whom into out up more most least less
fewer minimum maximum total number amount unit type kind make use used using take get give need require available
require due since because additionally addition order how many much what some other another then when where about over
under between within together such given company want
"""
_BULK = """
acre hectare kg kilogram gram g ton tonne pound lb lbs ounce oz liter litre l ml gallon kilometer mile metre meter
dollar money barrel
"""
SMALL = {word: number for number, word in enumerate(_SMALL.split())}
TENS = {word: 10 * number for number, word in enumerate(_TENS.split(), 2)}
SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "dozen": 12}
FRACTIONS = {"half": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4, "fourth": 4, "fifth": 5, "tenth": 10}
FACTORS = {"twice": 2, "double": 2, "thrice": 3, "triple": 3, "quadruple": 4}

SAYS_NOTHING = set(_SAYS_NOTHING.split())
BREAKS = {",", ";", "and", "but", "while", "whereas", "however", "(", ")", ":", "or", "then"}
PER = {"per", "each", "every", "for", "on", "from"}
BULK = set(_BULK.split())  # units of what can be divided
_GROUPS = {
    "@gain": "profit earn revenue income return gain earning interest yield bring fetch",
    "@cost": "cost spend budget expense expenditure paid pay wage price bill salary charge spent payroll",
    "@time": "hour minute day second time week month labor labour work",
    "@money": "profit earn revenue cost spend budget expense paid pay wage bill salary capital dollar money price",
    "@carry": "transport carry hold move deliver ship transported moved carried delivered capacity",
    "@people": "people person passenger traveler traveller customer worker employee staff patient guest viewer tourist",
}


def root(word: str) -> str:
    """A word without plural and the endings of verbs, for comparing what quantities are called."""
    word = stem(word)
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) > len(ending) + 3:
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2]:
                word = word[:-1]
            break
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


GROUPS: dict[str, tuple[str, ...]] = {}
for _name, _words in _GROUPS.items():
    for _word in _words.split():
        GROUPS[root(_word)] = (*GROUPS.get(root(_word), ()), _name)
NOTHING = {root(word) for word in SAYS_NOTHING} | SAYS_NOTHING

MINIMISE = re.compile(
    r"minimi|as (?:low|little|few|cheap|cheaply|small|short) |"
    r"least|lowest|fewest|smallest|decreas|reduc|cheapest|minimum",
    re.I,
)
MAXIMISE = re.compile(
    r"maximi|as (?:high|much|many|large|great) |"
    r"most|highest|largest|greatest|increas|best|maximum|optimi",
    re.I,
)

# Ways to say in which direction a limit goes, read on the words between the limit before and this one.
AT_LEAST = re.compile(
    r"at least|at minimum|at a minimum|minimum|no less than|not less than|no fewer than|not be less than|"
    r"(?<!no )(?<!not )(?<!any )(?<!not be )(?<!cannot be )(?<!n't be )more than|"
    r"(?:not|n't|never|cannot) (?:\w+ ){1,3}(?:less|fewer|lower|smaller) than|"
    r"(?<!not )(?<!cannot )(?<!n't )(?<!never )exceed|greater than|larger than|above|or more|lower limit|fewest",
    re.I,
)
AT_MOST = re.compile(
    r"at most|maximum|no more than|not more than|not be more than|cannot be more than|not exceed|cannot exceed|"
    r"(?:n't|never) exceed|up to|(?<!no )(?<!not )(?<!not be )less than|below|under(?! the)|fewer than|or less|"
    r"(?:not|n't|never|cannot) (?:\w+ ){1,3}(?:more|greater|larger|higher) than|"
    r"limit|upper|capped|restrict|not any more than|smaller than|not be larger than|not be greater than",
    re.I,
)
EXACTLY = re.compile(r"\bexactly\b|\bequal to\b|\bequals\b|\bin total exactly\b", re.I)
NEEDED = re.compile(r"\bneeds?\b|\brequir|\bdemand|\bmust\b|\bhas to\b|\bhave to\b|\bshould\b|\breserv", re.I)
HAD = re.compile(
    r"availab|\bhas\b|\bhave\b|\bhaving\b|\baccess|budget|\bonly\b|\bowns?\b|capacity|\bspend|\bspare|"
    r"\bthere (?:is|are)\b|produces|\bcan\b|\bopen\b|\bpossess|\bstock|\bsupply|\bholds?\b",
    re.I,
)
STOCK = re.compile(
    r"availab|\bhas\b|\bhave\b|\bhaving\b|\baccess|budget|\bowns?\b|\bthere (?:is|are)\b|\btotal of\b|\bonly\b|"
    r"\bin (?:store|stock|hand)\b|\bon hand\b|\bat hand\b|\bto spare\b|\bleft over\b",
    re.I,
)
# Ways to say that there is no more of something: in front of its number, and behind it.
SCARCE = re.compile(
    r"\bonly\b|\bjust\b|\bmere(?:ly)?\b|\bwithin\b|\b(?:manage|make do|cope|get by|get along) with\b|"
    r"\b(?:stay|remain|fit|keep|stick)\w* (?:in|to|into|inside|below|under)\b",
    re.I,
)
SCARCE_BEHIND = re.compile(
    r"(?:\W*[\w-]+){0,3}?\W*\b(?:available|at \w+ disposal|(?:on|at|in) hand|in (?:stock|store)|to spare|"
    r"(?:and|but|,) (?:no|not one|none) more|(?:is|are) (?:\w+ )?(?:left|free|all)\b|at the most|or fewer|or below)",
    re.I,
)
ONLY_NEEDED = re.compile(r"\b(?:needs?|requires?|demands?|wants?) (?:only|just|merely)\b", re.I)
QUANTIFIED = re.compile(
    r"\b(?:both|all|either|any)\b|\b(?:each|every|per)\b(?! (?:day|week|month|year|hour|season|shift|minute))"
)
RATE = re.compile(r"\b(?:per|each|every|profit|costs?|earns?|paid|sells?|sold|yields?|revenue)\b")

"""Words and marks of formulas in a text: numbers, names, signs (said in words, too), kinds of variables, ends of rows.

    tokens("maximise 3x\\nsubject to x is at most twice y")

Knows one token and its neighbours. Does not know formulas.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NUMBER = r"\d+(?:,\d{3})+(?:\.\d+)?|(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
SIGNS = {"=<": "<=", "≤": "<=", "=>": ">=", "≥": ">=", "=": "=="} | {
    sign: sign for sign in ("<=", ">=", "==", "<", ">")
}
OPERATORS = {"\N{MINUS SIGN}": "-", "·": "*", "\N{MULTIPLICATION SIGN}": "*"} | {sign: sign for sign in "+-*/()"}
_BE = r"(?:(?:is|are|must be|should be|shall be|may be|can be|has to be|have to be) )"
_NOT = r"(?:(?:may|must|can|shall|should|does|do|is|are|will) ?(?:not|n['’]t)(?: be| to)?|cannot(?: be)?|not)"
# Relations in words; each is a sign only where formulas stand on both sides of it.
_SAID = {
    "<=": rf"{_NOT} (?:exceed|(?:more|greater|larger|higher) than)\b|"
    rf"{_BE}?(?:at most|no (?:more|greater|larger|higher) than|up to|(?:less|smaller) than or equal to)\b|"
    rf"{_BE}(?=(?:{_NUMBER}) or (?:less|fewer|below)\b)",
    ">=": rf"{_NOT} (?:less|fewer|smaller|lower) than\b|"
    rf"{_BE}?(?:at least|no (?:less|fewer|smaller|lower) than|(?:more|greater|larger) than or equal to)\b|"
    rf"{_BE}(?=(?:{_NUMBER}) or (?:more|greater|above)\b)",
    "==": rf"{_BE}?(?:exactly|equal to)\b|(?:must |should )?equals?\b",
}
_TIMES = {
    "half of": 0.5,
    "half": 0.5,
    "twice": 2,
    "thrice": 3,
    "three times": 3,
    "four times": 4,
    "five times": 5,
    "ten times": 10,
}
# What variables may be said to be, and what that makes of them.
_KINDS = {
    "whole": r"integers?|integral|integer[- ]valued|whole(?: numbers?)?|∈ ?[ℤℕ]",
    "binary": r"binar(?:y|ies)|0 ?[-/] ?1|(?:in |∈ ?)?\{ ?0 ?, ?1 ?\}",
    "free": r"free|unrestricted(?: in sign)?|of any sign|∈ ?ℝ",
    "signed": r"non-? ?negative|not negative|positive",
    "real": r"real(?: numbers?)?|continuous",
}
_SORTED = "|".join(map(re.escape, sorted([*SIGNS, *OPERATORS], key=len, reverse=True)))
_TOKEN = re.compile(
    r"(?P<line>[^\S\n]*\n\s*)|"
    + "".join(
        rf"(?P<{name}>\b(?:{said})|(?<!\w)(?:{said}))(?!\w)|" for name, said in _KINDS.items() if name != "binary"
    )
    + rf"(?P<binary>{_KINDS['binary']})(?!\w)|"
    + "".join(rf"(?P<{name}>\b(?:{_SAID[sign]}))|" for name, sign in (("most", "<="), ("least", ">="), ("same", "==")))
    + rf"(?P<times>\b(?:{'|'.join(_TIMES)})\b)|(?P<product>times\b)|"
    r"(?P<ormore>or (?:more|less|fewer|greater|above|below)\b)|"
    rf"(?P<number>{_NUMBER})|(?P<name>[A-Za-z]\w*)|(?P<sign>{_SORTED})|(?P<other>\S)",
    re.I,
)
_WORDED = {"most": "<=", "least": ">=", "same": "=="}
_ROW = ("\n", ";")


@dataclass(frozen=True)
class Token:
    """A mark with what it means (``text``), its kind, and where it stands."""

    text: str
    kind: str  # number, name, sign, kind, line or other
    start: int
    end: int


def tokens(text: str) -> list[Token]:
    """All marks of a text in order. An end of line is one where the row before it is complete."""
    found = []
    for match in _TOKEN.finditer(text):
        kind, said = str(match.lastgroup), match.group()
        if kind in _KINDS:
            said, kind = kind, "kind"
        elif kind in _WORDED:
            said, kind = _WORDED[kind], "sign"
        elif kind == "times":
            said, kind = str(_TIMES[said.lower()]), "number"
        elif kind == "product":
            said, kind = "*", "sign"
        elif kind == "ormore":
            kind = "other"
        elif kind == "line":
            said = "\n"
        found.append(Token(said, kind, match.start(), match.end()))
    return _without_bullets(_joined(found))


def _joined(found: Sequence[Token]) -> list[Token]:
    """Without the ends of lines within a formula: behind an operator, or before one of an open row."""
    kept: list[Token] = []
    for i, token in enumerate(found):
        if token.kind == "line":
            row = kept[max((k + 1 for k, each in enumerate(kept) if each.text in _ROW), default=0) :]
            after = found[i + 1 : next((k for k in range(i + 1, len(found)) if found[k].kind == "line"), len(found))]
            if row and after and _continues(row, after):
                continue
        kept.append(token)
    return kept


def _continues(row: Sequence[Token], after: Sequence[Token]) -> bool:
    last, first = row[-1].text, after[0].text
    if last in SIGNS or first in SIGNS or (last in OPERATORS and last != ")"):
        return True
    if OPERATORS.get(first) not in ("+", "-"):
        return False
    related = any(each.text in SIGNS for each in after)
    if not related:
        return True
    aims = any(each.text.lower().startswith(("min", "max")) for each in row)
    return any(each.text in OPERATORS for each in row) and not (aims or any(each.text in SIGNS for each in row))


def _without_bullets(found: Sequence[Token]) -> list[Token]:
    """Without dashes that begin rows: where all rows with a relation begin with a dash and a blank, it is no minus."""
    rows: list[list[Token]] = [[]]
    for token in found:
        rows[-1].append(token)
        if token.kind == "line":
            rows.append([])
    related = [row for row in rows if any(token.text in SIGNS for token in row)]
    dashed = [row for row in related if len(row) > 1 and row[0].text in ("-", "*") and row[1].start > row[0].end]
    if len(related) < 2 or len(dashed) < len(related):
        return [*found]
    bullets = {row[0].start for row in dashed}
    return [token for token in found if token.start not in bullets]

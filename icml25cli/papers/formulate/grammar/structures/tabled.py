"""Models from a table in a text: products by what they take, shipping by origins and destinations, or assignment.

Knows tables and a few words of the text around them. Does not know the other forms.
"""

import re
from dataclasses import replace
from fractions import Fraction

from icml25cli.papers.formulate.grammar.lexicon import BULK, MAXIMISE, MINIMISE, root
from icml25cli.papers.formulate.grammar.structures.drawn import Table, check_units, table_of
from icml25cli.papers.formulate.grammar.structures.forms import Grid, Product, Side, assignment, mix, shipping
from icml25cli.papers.formulate.grammar.structures.structure import Structure
from icml25cli.papers.formulate.grammar.tagger import stem, words_of
from icml25cli.papers.formulate.grammar.text import Problem
from icml25cli.papers.formulate.grammar.unread import unread
from icml25cli.papers.formulate.linear import Sense

HELD = re.compile(
    r"on hand|availab|\bstock|suppl|capacit|\blimit|\bmax|at most|budget|\bholds?\b|\bhave\b|produces", re.I
)
WANTED = re.compile(r"requir|\bneed|demand|\bmin|at least|order|wanted", re.I)
_GAIN = re.compile(r"profit|margin|revenue|price|earn|gain|return|value|worth|\bsells?\b|benefit|income", re.I)
_COST = re.compile(r"cost|expense|price|\bpay|wage|charge", re.I)
_LITTLE = re.compile(r"\bcheap(?:ly|est)?\b|\bas (?:little|few|soon|early)\b", re.I)
_MUCH = re.compile(r"\bas (?:much|many|high)\b", re.I)
_PARTS = re.compile(r"\bfractions?\b(?: are| is)?(?: allowed| fine)?|\bnot (?:be )?whole|\bpart of a\b", re.I)
ONE_EACH = re.compile(
    r"\bone each\b|\bassign|\b(?:each|every)\b[^.?!]{0,60}\b(?:exactly |only |just )?one\b|"
    r"\bone [^.?!]{0,30}\b(?:each|per)\b|\bwho (?:should )?do(?:es)?\b|\bpair|\bmatch",
    re.I,
)


def read(text: str) -> Structure | None:
    """The model that a text's table gives; None where it has no table, or one of another form."""
    found = table_of(text)
    if found is None:
        return None
    table, rest = found
    sense = sense_of(rest)
    made = _products(table, rest, sense) or _products(table.transposed, rest, sense) or _grid(table, rest, sense)
    if made is None:
        return None
    groups = [
        [n for n in names if not HELD.search(n) and not WANTED.search(n)] for names in (table.rows, table.columns)
    ]
    counts = [len(names) - over for names in groups for over in (0, 1)]
    known = ONE_EACH if made.form == "assignment" else _PARTS
    return replace(made, unread=unread(Problem(rest), (), groups, counts, known))


def sense_of(text: str) -> Sense | None:
    """Which way the text aims: of several words for it the last."""
    found: list[tuple[int, Sense]] = []
    patterns: tuple[tuple[re.Pattern[str], Sense], ...] = (
        (MINIMISE, "min"),
        (_LITTLE, "min"),
        (MAXIMISE, "max"),
        (_MUCH, "max"),
    )
    for pattern, sense in patterns:
        for match in pattern.finditer(text):
            limits = text[: match.start()].rstrip().lower().endswith(" at")  # at least, at most
            if not limits:
                found.append((match.start(), sense))
    return max(found)[1] if found else None


def _marginal(labels: tuple[str, ...]) -> tuple[int, Side] | None:
    """Which of the labels stands over limits, and on which side they limit."""
    for i, label in enumerate(labels):
        if HELD.search(label):
            return i, "<="
        if WANTED.search(label):
            return i, ">="
    return None


def _products(table: Table, rest: str, sense: Sense | None) -> Structure | None:
    """Columns are products, one column has limits, and the row without one is aimed at."""
    margin = _marginal(table.columns)
    if margin is None:
        return None
    place, side = margin
    rows = range(len(table.rows))
    limited = [row for row in rows if table.number(row, place) is not None]
    aims = [row for row in rows if row not in limited]
    if len(aims) != 1 or not limited or _marginal((table.rows[aims[0]],)):
        return None
    products = [column for column in range(len(table.columns)) if column != place]
    names = [table.columns[column] for column in products]
    if len(products) < 2 or any(_GAIN.search(name) or _COST.search(name) for name in names):
        return None
    made = [
        Product(
            name,
            {table.rows[row]: value for row in rows if (value := table.number(row, column)) is not None},
        )
        for name, column in zip(names, products, strict=True)
    ]
    label = table.rows[aims[0]]
    if any(label not in product.takes for product in made):
        return None
    told = sense or ("max" if _GAIN.search(label) else "min" if _COST.search(label) else None)
    if told is None:
        return None
    limits: list[tuple[str, Side, Fraction]] = []
    for row in rows:
        check_units(table.rows[row], table.cells[row])
    for row in limited:
        own = _marginal((table.rows[row],))
        limits.append((table.rows[row], own[1] if own else side, table.number(row, place) or Fraction(0)))
    measured = any({stem(word.text), root(word.text)} & BULK for name in names for word in words_of(name))
    return mix(made, limits, (told, label), 0.1 if measured or _PARTS.search(rest) else 0.9)


def _grid(table: Table, rest: str, sense: Sense | None) -> Structure | None:
    """Rows and columns with their limits, or none where each gets one."""
    column, row = _marginal(table.columns), _marginal(table.rows)
    kept_rows = [i for i in range(len(table.rows)) if row is None or i != row[0]]
    kept_columns = [j for j in range(len(table.columns)) if column is None or j != column[0]]
    cells = [[table.number(i, j) for j in kept_columns] for i in kept_rows]
    if len(cells) < 2 or len(cells[0]) < 2 or any(value is None for line in cells for value in line):
        return None
    whole = tuple(tuple(value for value in line if value is not None) for line in cells)
    grid = Grid(
        tuple(table.rows[i] for i in kept_rows),
        tuple(table.columns[j] for j in kept_columns),
        whole,
        kinds=("origins", "destinations"),
    )
    check_units("all cells", [table.cells[i][j] for i in kept_rows for j in kept_columns])
    if row is None and column is None:
        return assignment(grid, sense or "min") if ONE_EACH.search(rest) else None
    if row is None or column is None:
        return None
    held = [table.number(i, column[0]) for i in kept_rows]
    wanted = [table.number(row[0], j) for j in kept_columns]
    if None in held or None in wanted:
        return None
    margins = [table.cells[i][column[0]] for i in kept_rows] + [table.cells[row[0]][j] for j in kept_columns]
    check_units("all limits", margins)
    sides = column[1], row[1]
    grid = Grid(
        grid.rows,
        grid.columns,
        whole,
        tuple(value for value in held if value is not None),
        sides[0],
        tuple(value for value in wanted if value is not None),
        sides[1],
        grid.kinds,
    )
    return shipping(grid, sense or "min")

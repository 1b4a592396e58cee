"""Models whose data are lists in prose: shipping, assignment, shifts around a week, cutting.

Knows lists. Does not know tables or formulas.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from icml25cli.papers.formulate.grammar.numbers import Quantity
from icml25cli.papers.formulate.grammar.structures.forms import (
    Grid,
    Side,
    assignment,
    cutting,
    rota,
    shipping,
)
from icml25cli.papers.formulate.grammar.structures.series import Listed, Series
from icml25cli.papers.formulate.grammar.structures.structure import Structure
from icml25cli.papers.formulate.grammar.structures.tabled import ONE_EACH, WANTED, sense_of
from icml25cli.papers.formulate.grammar.tagger import stem
from icml25cli.papers.formulate.grammar.text import Problem
from icml25cli.papers.formulate.grammar.unread import unread

_MOVED = re.compile(r"\bship|\btransport|\bsend|\bsent\b|\bdeliver|\bsuppl|\bhaul|\bserve", re.I)
_CUT = re.compile(r"\bcuts?\b|\bcutting (?!machine)|\bsawn?\b|\bslit", re.I)
_WHOLE = re.compile(r"\bwhole (?:rolls?|bars?|pieces?|planks?|rods?)\b", re.I)
_IN_TURN = re.compile(r"consecutive|in a row|in succession|on end", re.I)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def read(problem: Problem) -> Structure | None:
    """The model that a text's lists give; None where they are of no known form."""
    listed = Listed(problem)
    if not listed.series:
        return None
    rota = _rota(listed)
    if rota is not None:
        return rota
    found = _cutting(listed) or _grid(listed)
    return None if found is None or found.missing else found  # lists that leave numbers over are of another form


# --- rows by columns ---------------------------------------------------------------------------------------------


def _grid(listed: Listed) -> Structure | None:
    groups: dict[tuple[int, str], list[Series]] = defaultdict(list)
    for series in listed.series:
        groups[len(series), series.kind].append(series)
    for group in sorted(groups.values(), key=len, reverse=True):
        margins = [series for series in listed.series if series not in group]
        found = _assigned(listed, group) or _shipped(listed, group, margins) if len(group) > 1 else None
        if found is not None:
            return found
    return None


def _cells(group: Sequence[Series], columns: Sequence[str]) -> tuple[tuple[Fraction, ...], ...] | None:
    """Numbers in the order of the columns, by their labels where they have some."""
    lines = []
    for series in group:
        numbers = [quantity.value for quantity in series.numbers]
        if series.labels:
            by_label = dict(zip(map(str.lower, series.labels), numbers, strict=True))
            if by_label.keys() != {*map(str.lower, columns)}:
                return None
            numbers = [by_label[column.lower()] for column in columns]
        lines.append(tuple(numbers))
    return tuple(lines)


def _columns(listed: Listed, group: Sequence[Series], rows: Sequence[str]) -> tuple[str, ...] | None:
    labelled = next((series.labels for series in group if series.labels), None)
    if labelled:
        return labelled
    taken = {stem(word) for row in rows for word in row.split()}
    lists = [run for run in listed.names(len(group[0])) if not taken & {*map(stem, run)}]
    return lists[0] if lists else None


def _assigned(listed: Listed, group: Sequence[Series]) -> Structure | None:
    text = listed.problem.text
    rows = listed.owners(group)
    if rows is None or not ONE_EACH.search(text):
        return None
    columns = _columns(listed, group, rows)
    if columns is None:
        return None
    cells = _cells(group, columns)
    used = [quantity for series in group for quantity in series.numbers]
    missing = listed.left_over(used, (len(rows), len(columns)))
    if cells is None or missing:
        return None
    made = assignment(Grid(tuple(rows), columns, cells, kinds=("who", "what")), sense_of(text) or "min")
    return replace(made, unread=_unread(listed, used, (rows, columns), ONE_EACH))


def _shipped(listed: Listed, group: Sequence[Series], margins: Sequence[Series]) -> Structure | None:
    text = listed.problem.text
    rows = listed.owners(group)
    if rows is None or not _MOVED.search(text):
        return None
    width = len(group[0])
    used = [quantity for series in group for quantity in series.numbers]
    held = [listed.after(row, [*used, *(q for m in margins for q in m.numbers)]) for row in rows]
    row_limits = [quantity for quantity in held if quantity is not None]
    wanted = next((series for series in margins if len(series) == width), None)
    if len(row_limits) < len(rows):
        row_series = next((series for series in margins if len(series) == len(rows) and series is not wanted), None)
        row_limits = [*row_series.numbers] if row_series else []
    columns = _columns(listed, group, rows)
    column_limits = [*wanted.numbers] if wanted else []
    if not wanted and columns:
        after = [listed.after(column, [*used, *row_limits]) for column in columns]
        column_limits = [quantity for quantity in after if quantity is not None]
    if len(row_limits) != len(rows) or len(column_limits) != width:
        return None
    if columns is None:
        columns = tuple(str(place) for place in range(1, width + 1))
    cells = _cells(group, columns)
    if cells is None or _side(listed, row_limits[0], "<=") != "<=":
        return None
    kind = rows[0].split()[0] + "s" if " " in rows[0] else "origins"
    grid = Grid(
        tuple(rows),
        columns,
        cells,
        tuple(quantity.value for quantity in row_limits),
        "<=",
        tuple(quantity.value for quantity in column_limits),
        _side(listed, column_limits[0], ">="),
        (kind.lower(), "destinations"),
        missing=listed.left_over([*used, *row_limits, *column_limits], (len(rows), width)),
        wording={
            "supply": listed.problem.clause(row_limits[0].first),
            "demand": listed.problem.clause(column_limits[0].first),
        },
    )
    made = shipping(grid, sense_of(text) or "min")
    return replace(made, unread=_unread(listed, [*used, *row_limits, *column_limits], (rows, columns)))


def _unread(
    listed: Listed, used: Sequence[Quantity], groups: Sequence[Sequence[str]], known: re.Pattern[str] | None = None
) -> tuple[str, ...]:
    counts = [len(names) for names in groups]
    return unread(listed.problem, {quantity.first for quantity in used}, groups, counts, known)


def _side(listed: Listed, quantity: Quantity, otherwise: Side) -> Side:
    begin, _ = listed.problem.sentence_of(quantity.first)
    said = " ".join(listed.problem.lower[begin : quantity.first])
    return ">=" if WANTED.search(said) else "<=" if otherwise == "<=" else otherwise


# --- shifts ------------------------------------------------------------------------------------------------------


def _rota(listed: Listed) -> Structure | None:
    """Who works some days in a row, and how many are wanted on each day of the week."""
    problem = listed.problem
    week = next((series for series in listed.series if [*map(str.lower, series.labels)] == [*_DAYS]), None)
    found = _IN_TURN.search(problem.text)
    if week is None or found is None:
        return None
    ends = ("consecutive", "row", "succession", "end")
    place = next(i for i, word in enumerate(problem.lower) if word in ends)
    begin, end = problem.sentence_of(place)
    lengths = [q for q in listed.numbers if begin <= q.first < end and 1 < q.value < 7 and q not in week.numbers]
    near = min(lengths, key=lambda q: abs(q.first - place), default=None)
    if near is None:
        return None
    rest = [quantity for quantity in lengths if quantity.value == 7 - near.value]  # "and then rest two"
    needed = [quantity.value for quantity in week.numbers]
    made = rota(week.labels, needed, int(near.value), problem.clause(week.first))
    return replace(made, unread=_unread(listed, [*week.numbers, near, *rest], (week.labels,)))


# --- cutting -----------------------------------------------------------------------------------------------------


def _cutting(listed: Listed) -> Structure | None:
    """Pieces of some lengths, so many of each, out of stock of one length."""
    problem = listed.problem
    if not _CUT.search(problem.text):
        return None
    runs = [series for series in listed.series if series.kind == "plain"]
    pairs = [(one, other) for one in runs for other in runs if one is not other and len(one) == len(other)]
    for sizes, wanted in pairs:
        largest = max(quantity.value for quantity in sizes.numbers)
        begin, end = problem.sentence_of(wanted.first)
        if not re.search(r"order|\bneed|requir|demand|want|sell", " ".join(problem.lower[begin:end])):
            continue
        used = [*sizes.numbers, *wanted.numbers]
        stock = [q for q in listed.numbers if q not in used and q.kind == "plain" and q.value >= largest]
        unit = problem.unit(sizes.numbers[-1])
        stock = [q for q in stock if problem.unit(q) == unit] or stock
        whole = all(q.value.denominator == 1 for q in wanted.numbers)
        if len(stock) != 1 or not whole or (sizes.first > wanted.first and problem.unit(wanted.numbers[-1]) == unit):
            continue
        made = cutting(
            stock[0].value,
            [q.value for q in sizes.numbers],
            [int(q.value) for q in wanted.numbers],
            listed.left_over([*used, stock[0]], (len(sizes),)),
            problem.clause(wanted.first),
        )
        names = [" ".join(problem.words[q.first : q.last]) for q in sizes.numbers]
        return replace(made, unread=_unread(listed, [*used, stock[0]], (names,), _WHOLE)) if made else None
    return None

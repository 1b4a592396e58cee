"""Tables in a text: drawn with bars, tabs or blanks, or as comma-separated lines.

Knows lines. Does not know what a table is about; `tabled` does.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from icml25cli.papers.formulate.grammar.numbers import quantities
from icml25cli.papers.formulate.grammar.structures.structure import Unreadable
from icml25cli.papers.formulate.grammar.tagger import stem, words_of

FEWEST = 3  # lines of a table, the one of headings too
_RULE = re.compile(r"[\s|+:=\-_*]+")


@dataclass(frozen=True)
class Table:
    """Cells as they are written: headings of the columns, and rows with their headings."""

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    corner: str = ""

    def number(self, row: int, column: int) -> Fraction | None:
        return cell_number(self.cells[row][column])

    @property
    def transposed(self) -> "Table":
        return Table(self.rows, self.columns, tuple(zip(*self.cells, strict=True)), self.corner)


def cell_number(cell: str) -> Fraction | None:
    """The number of a cell; None where there is none, or more than one."""
    found = quantities([word.text for word in words_of(cell)])
    return found[0].value if len(found) == 1 else None


_UNIT = re.compile(r"[A-Za-z%]+|[$€£]")
_HEADED = re.compile(r"[(\[]\s*(?:in )?([A-Za-z%$€£]+)[^)\]]*[)\]]\s*$")


def check_units(label: str, cells: Sequence[str]) -> None:
    """Numbers of an attribute are compared with each other, so they have to be in one unit.

    Raises:
        Unreadable: they are in several, of which the heading may say one: ``labour (min)``.
    """
    headed = _HEADED.search(label)
    units = {stem(headed[1])} if headed else set()
    units |= {unit for cell in cells if (unit := _unit_of(cell))}
    if len(units) > 1:
        raise Unreadable(f'the table measures "{label}" in {" and in ".join(sorted(units))}: say all in one unit')


def _unit_of(cell: str) -> str:
    """What stands beside the number of a cell; empty where there is none."""
    found = _UNIT.search(cell) if cell_number(cell) is not None and re.search(r"\d", cell) else None
    return stem(found.group()) if found else ""


def table_of(text: str) -> tuple[Table, str] | None:
    """The only table of a text, and the text around it; None where there is none, or several."""
    lines = text.splitlines()
    parted = [_parted(line) for line in lines]
    blocks: list[list[int]] = []
    for i, cells in enumerate(parted):
        ruled = bool(_RULE.fullmatch(lines[i])) and len(lines[i].strip()) > 2
        if cells is None and not ruled:
            continue
        if blocks and blocks[-1][-1] == i - 1:
            blocks[-1].append(i)
        else:
            blocks.append([i])
    found = []
    for block in blocks:
        rows = [cells for i in block if (cells := parted[i]) is not None]
        table = _table(rows)
        if table is not None:
            found.append((table, {*block}))
    if len(found) != 1:
        return None
    table, taken = found[0]
    return table, "\n".join(line for i, line in enumerate(lines) if i not in taken)


def _parted(line: str) -> list[str] | None:
    """Cells of a line that looks like one of a table."""
    if _RULE.fullmatch(line):
        return None
    if line.count("|") >= 2 or (line.count("|") == 1 and len(line.split("|")[1].split()) < 4):
        cells = line.split("|")
        if line.strip().startswith("|"):
            cells = cells[1:]
        if line.rstrip().endswith("|"):
            cells = cells[:-1]
    elif "\t" in line:
        cells = line.split("\t")
    elif len(re.findall(r"\S {2,}\S", line)) >= 1:
        cells = re.split(r" {2,}", line.strip())
        if line.startswith("   "):
            cells = ["", *cells]
    elif line.count(",") >= 2 and all(len(cell.split()) <= 3 for cell in line.split(",")):
        cells = line.split(",")
    else:
        return None
    return [cell.strip() for cell in cells] if len(cells) > 1 else None


def _table(rows: Sequence[Sequence[str]]) -> Table | None:
    if len(rows) < FEWEST:
        return None
    head, body = [*rows[0]], [[*row] for row in rows[1:]]
    width = max(len(row) for row in body)
    if len(head) == width - 1:
        head = ["", *head]
    if len(head) != width or width < 3 or any(len(row) not in (width, width - 1) for row in body):
        return None
    body = [row + [""] * (width - len(row)) for row in body]  # the last cell of a row may be left out
    if any(cell_number(cell) is not None for cell in head[1:]) or any(not row[0] for row in body):
        return None
    numbers = [cell_number(cell) for row in body for cell in row[1:]]
    if sum(number is not None for number in numbers) < 0.6 * len(numbers):
        return None
    return Table(tuple(head[1:]), tuple(row[0] for row in body), tuple(tuple(row[1:]) for row in body), head[0])

"""Models of known forms from their data: a mix of products, shipping, assignment.

Knows data. Does not know texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

from icml25cli.papers.formulate.grammar.structures.structure import REAL, WHOLE, Component, Structure
from icml25cli.papers.formulate.linear import Sense, sanitised

Side = Literal["<=", ">="]


@dataclass(frozen=True)
class Grid:
    """Numbers by row and column, with what the margins limit."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Fraction, ...], ...]
    row_limits: tuple[Fraction, ...] | None = None
    row_side: Side = "<="
    column_limits: tuple[Fraction, ...] | None = None
    column_side: Side = ">="
    kinds: tuple[str, str] = ("rows", "columns")  # what rows and columns are
    whole: float = 0.1  # chance that what is decided comes in whole numbers
    missing: tuple[str, ...] = ()
    wording: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Product:
    """What is made: its name, and what a unit of it takes or brings, by attribute."""

    name: str
    takes: Mapping[str, Fraction]


def number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def domains(whole: float, **fields: Any) -> tuple[tuple[Component, float], ...]:
    """Variables of one declaration, whole or not."""
    variants = []
    for kind, chance in ((WHOLE, whole), (REAL, 1 - whole)):
        if chance:
            variants.append(({name: {**declared, "type": kind} for name, declared in fields.items()}, chance))
    return tuple(variants)


def _named(grid: Grid) -> tuple[list[str], list[str], str, str]:
    rows, columns = [*sanitised(grid.rows)], [*sanitised(grid.columns)]
    plural_rows, plural_columns = sanitised(grid.kinds)
    return rows, columns, plural_rows, plural_columns


def _data(grid: Grid, rows: Sequence[str], columns: Sequence[str]) -> dict[str, dict[str, int | float]]:
    return {
        row: dict(zip(columns, map(number, cells), strict=True)) for row, cells in zip(rows, grid.cells, strict=True)
    }


def shipping(grid: Grid, sense: Sense) -> Structure:
    """Amounts from every row to every column: rows hold so much, columns want so much."""
    assert grid.row_limits is not None
    assert grid.column_limits is not None
    rows, columns, from_, to = _named(grid)
    parameters = {
        from_: rows,
        to: columns,
        "supply": dict(zip(rows, map(number, grid.row_limits), strict=True)),
        "demand": dict(zip(columns, map(number, grid.column_limits), strict=True)),
        "worth" if sense == "max" else "cost": _data(grid, rows, columns),
    }
    each = f"sum(amount[i, j] for j in {to})", f"sum(amount[i, j] for i in {from_})"
    supplied = {"supply": f"{each[0]} {grid.row_side} supply[i] for i in {from_}"}
    at_least = {"demand": f"{each[1]} {grid.column_side} demand[j] for j in {to}"}
    exactly = {"demand": f"{each[1]} == demand[j] for j in {to}"}
    what = f"from each of {', '.join(grid.rows)} to each of {', '.join(grid.columns)}"
    declared = {"description": f"amount {what}", "iteration_space": f"[(i, j) for i in {from_} for j in {to}]"}
    worth = "worth" if sense == "max" else "cost"
    return Structure(
        "shipping",
        parameters,
        domains(grid.whole, amount=declared),
        (({sense: f"sum({worth}[i][j] * amount[i, j] for i in {from_} for j in {to})"}, 1.0),),
        (({}, supplied | at_least, 0.8), (exactly, supplied, 0.2)),
        grid.missing,
        grid.wording,
        sure=-1.0,
    )


def assignment(grid: Grid, sense: Sense) -> Structure:
    """One row for every column: of more rows some stay free."""
    rows, columns, who, what = _named(grid)
    parameters = {who: rows, what: columns, "worth" if sense == "max" else "cost": _data(grid, rows, columns)}
    declared = {
        "takes": {
            "description": f"whether one of {', '.join(grid.rows)} has one of {', '.join(grid.columns)}",
            "type": "BINARY",
            "iteration_space": f"[(i, j) for i in {who} for j in {what}]",
        }
    }
    by_row = f"sum(takes[i, j] for j in {what}) {{}} 1 for i in {who}"
    by_column = f"sum(takes[i, j] for i in {who}) {{}} 1 for j in {what}"
    more_rows, more_columns = len(rows) > len(columns), len(columns) > len(rows)
    equal = {}
    if not more_rows:
        equal[f"one_{who}"] = by_row.format("==")
    if not more_columns:
        equal[f"one_{what}"] = by_column.format("==")
    other = {f"one_{who}": by_row.format("<=")} if more_rows else {}
    other |= {f"one_{what}": by_column.format("<=")} if more_columns else {}
    worth = "worth" if sense == "max" else "cost"
    return Structure(
        "assignment",
        parameters,
        ((declared, 1.0),),
        (({sense: f"sum({worth}[i][j] * takes[i, j] for i in {who} for j in {what})"}, 1.0),),
        ((equal, other, 1.0),),
        grid.missing,
        grid.wording,
        sure=-1.0,
    )


def mix(
    products: Sequence[Product],
    limits: Sequence[tuple[str, Side, Fraction]],
    aim: tuple[Sense, str],
    whole: float,
) -> Structure:
    """How much of each product: ``limits`` bound sums of an attribute, one more attribute is aimed at."""
    names = [*sanitised(product.name for product in products)]
    kinds = [label for label, _, _ in limits] + [aim[1]]
    attributes = dict(zip(kinds, sanitised(kinds), strict=True))
    parameters: Component = {
        attributes[kind]: {
            name: number(product.takes[kind])
            for name, product in zip(names, products, strict=True)
            if kind in product.takes
        }
        for kind in dict.fromkeys(kinds)
    }

    def total(kind: str) -> str:
        terms = zip(names, products, strict=True)
        return " + ".join(f"{attributes[kind]}['{name}'] * {name}" for name, product in terms if kind in product.takes)

    said: Component = {}
    for label, side, limit in limits:
        title = f"{attributes[label]}_{'most' if side == '<=' else 'least'}"
        parameters[title] = number(limit)
        said[title] = f"{total(label)} {side} {title}"
    variables = {name: {"description": product.name} for name, product in zip(names, products, strict=True)}
    return Structure(
        "mix",
        parameters,
        domains(whole, **variables),
        (({aim[0]: total(aim[1])}, 1.0),),
        (({}, said, 1.0),),
        sure=-0.8,
    )


def rota(days: Sequence[str], needed: Sequence[Fraction], length: int, wording: str) -> Structure:
    """How many begin on each day of a cycle and work ``length`` days in a row."""
    names = [*sanitised(days)]
    count = len(names)
    return Structure(
        "shifts",
        {"days": names, "needed": [number(value) for value in needed], "length": length},
        (
            (
                {"begins": {"description": "who begin on a day", "type": WHOLE, "iteration_space": "range(len(days))"}},
                1.0,
            ),
        ),
        (({"min": "sum(begins[d] for d in range(len(days)))"}, 1.0),),
        (
            (
                {},
                {
                    "needed": f"sum(begins[(d - k) % {count}] for k in range(length)) >= needed[d] "
                    "for d in range(len(days))"
                },
                1.0,
            ),
        ),
        wording={"needed": wording},
        sure=-1.0,
    )


MOST_PATTERNS = 3000


def cutting(
    stock: Fraction, sizes: Sequence[Fraction], wanted: Sequence[int], missing: tuple[str, ...], wording: str
) -> Structure | None:
    """How often each way to cut a piece of stock is used; None where there are too many ways."""
    patterns = _patterns(stock, sizes)
    if patterns is None:
        return None
    return Structure(
        "cutting",
        {
            "sizes": [number(value) for value in sizes],
            "wanted": [*wanted],
            "stock": number(stock),
            "patterns": [[*pattern] for pattern in patterns],
        },
        (
            (
                {
                    "rolls": {
                        "description": "pieces of stock that are cut in one way",
                        "type": WHOLE,
                        "iteration_space": "range(len(patterns))",
                    }
                },
                1.0,
            ),
        ),
        (({"min": "sum(rolls[p] for p in range(len(patterns)))"}, 1.0),),
        (
            (
                {},
                {
                    "wanted": "sum(patterns[p][s] * rolls[p] for p in range(len(patterns))) >= wanted[s] "
                    "for s in range(len(sizes))"
                },
                1.0,
            ),
        ),
        missing,
        {"wanted": wording},
        sure=-1.0,
    )


def _patterns(stock: Fraction, sizes: Sequence[Fraction]) -> list[tuple[int, ...]] | None:
    """Ways to cut that leave no room for another piece."""
    found: list[tuple[int, ...]] = []
    smallest = min(sizes)

    def grow(taken: tuple[int, ...], left: Fraction) -> bool:
        place = len(taken)
        if place == len(sizes):
            if left < smallest:
                found.append(taken)
            return len(found) <= MOST_PATTERNS
        return all(grow((*taken, n), left - n * sizes[place]) for n in range(int(left // sizes[place]), -1, -1))

    return found if grow((), stock) and found else None


def choice(
    things: Sequence[Product],
    limits: Sequence[tuple[str, str, Fraction]],
    aim: tuple[Sense, str],
) -> Structure:
    """Which things are taken, each once or not at all."""
    whole = mix(things, [(label, "<=" if side == "<=" else ">=", limit) for label, side, limit in limits], aim, 1.0)
    (declared, _), *_ = whole.variables
    taken = {name: {**fields, "type": "BINARY"} for name, fields in declared.items()}
    return replace(whole, form="choice", variables=((taken, 1.0),), sure=-1.0)


def blend(
    things: Sequence[Product],
    averages: Sequence[tuple[str, str, Fraction]],
    amount: Fraction,
    cost: str,
) -> Structure:
    """How much of each thing goes into so much of a mixture, whose averages are limited, at least cost."""
    whole = mix(things, (), ("min", cost), 0.0)
    names = [*sanitised(thing.name for thing in things)]
    everything = " + ".join(names)
    labels = sanitised(label for label, _, _ in averages)
    parameters = {**whole.parameters, "amount": number(amount)}
    said: Component = {}
    for name, (label, side, limit) in zip(labels, averages, strict=True):
        title = f"average_{name}_{'least' if side == '>=' else 'most'}"
        parameters |= {
            name: {n: number(t.takes[label]) for n, t in zip(names, things, strict=True)},
            title: number(limit),
        }
        rates = " + ".join(f"{name}['{each}'] * {each}" for each in names)
        said[title] = f"{rates} {side} {title} * ({everything})"
    exact = ({"amount": f"{everything} == amount"}, said, 0.7)
    at_least = ({}, said | {"amount": f"{everything} >= amount"}, 0.3)
    return replace(whole, form="blend", parameters=parameters, constraints=(exact, at_least), sure=-1.0)

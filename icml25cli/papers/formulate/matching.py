"""Comparing models that call their variables by different names, as two people do.

Names that differ in spelling alone are matched; else a renaming is looked for under which both models have the same
canonical rows. Where neither succeeds, different optima still prove that the models differ, since no renaming changes
an optimum. Knows canonical forms. Does not know what names mean.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from icml25cli.core.errors import UsageError
from icml25cli.papers.formulate.canonical import Canonical, canonical
from icml25cli.papers.formulate.equivalence import SECONDS, Verdict, equivalent
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.solve import solve

TRIES = 2000  # of renamings between models that look the same from every variable
APART = 1e-6  # of optima, relative

Names = Mapping[str, str]  # from the second model's to the first's


def parse_names(pairs: Sequence[str], a: LinearModel, b: LinearModel) -> Names:
    """Names from texts ``NAME=NAME``, first that in the second model.

    Raises:
        UsageError: a text is no such pair, or a model has no variable of that name.
    """
    known = [{column.name for column in model.columns} for model in (b, a)]
    names = {}
    for pair in pairs:
        here, _, there = (part.strip() for part in pair.partition("="))
        for name, of in zip((here, there), known, strict=True):
            if name not in of:
                raise UsageError(f"--map {pair}: there is no variable '{name}'", hint="--map NAME_IN_B=NAME_IN_A")
        names[here] = there
    return names


def compare(
    a: LinearModel,
    b: LinearModel,
    names: Names | None = None,
    *,
    timeout: float = SECONDS,
    called: tuple[str, str] = ("the first", "the second"),
) -> tuple[Verdict, Names]:
    """The verdict on two models, and what variables of the second were taken to be called in the first.

    Args:
        names: some of those names, where they are known.
    """
    names = {c.name: (names or {}).get(c.name, c.name) for c in b.columns}
    first, second = canonical(a), canonical(b, names)
    if first.names != second.names:
        spelt = _by_spelling(first, second)
        if spelt is None:
            return _without_names(a, b, first, second, names, timeout, called)
        names = {name: spelt[other] for name, other in names.items()}
    verdict = equivalent(a, b, names=names, timeout=timeout, called=called)
    return verdict, {name: other for name, other in names.items() if name != other}


def _by_spelling(first: Canonical, second: Canonical) -> Names | None:
    """From names of the second form to names of the first that differ in case, blanks and marks alone."""
    plain = [{_letters(name): name for name in form.names} for form in (first, second)]
    if plain[0].keys() != plain[1].keys() or any(
        len(p) < len(f.names) for p, f in zip(plain, (first, second), strict=True)
    ):
        return None
    return {name: plain[0][letters] for letters, name in plain[1].items()}


def _letters(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def _without_names(
    a: LinearModel,
    b: LinearModel,
    first: Canonical,
    second: Canonical,
    names: Names,
    timeout: float,
    called: tuple[str, str],
) -> tuple[Verdict, Names]:
    renaming = find_renaming(first, second)
    if renaming is not None:
        verdict = Verdict("equivalent", "under other names their canonical rows are the same", "canonical rows")
        return verdict, {name: renaming[other] for name, other in names.items() if name != renaming[other]}
    found = [solve(model, time_limit=5 * timeout) for model in (a, b)]
    if all(solution.status in ("optimal", "infeasible", "unbounded") for solution in found):
        values = [(s.objective or 0.0) * (1 if m.sense == "min" else -1) for s, m in zip(found, (a, b), strict=True)]
        if found[0].status != found[1].status or not math.isclose(*values, rel_tol=APART, abs_tol=APART):
            said = [
                f"{called} is {s.status}" + ("" if s.objective is None else f" at {m.sense} {s.objective:.10g}")
                for called, s, m in zip(called, found, (a, b), strict=True)
            ]
            return Verdict("different", f"whatever their variables are called: {' and '.join(said)}", "HiGHS"), {}
    return equivalent(a, b, names=names, called=called), {}


def find_renaming(first: Canonical, second: Canonical) -> Names | None:
    """Names of the first form for those of the second under which both are the same; None where none is found.

    Colours variables by what is asked of them and by their rows, again and again, until no more can be told apart
    (refinement as in tests of graph isomorphism); of those that still look alike one is paired by trial.
    """
    if (
        len(first.names) != len(second.names)
        or len(first.rows) != len(second.rows)
        or first.constant != second.constant
    ):
        return None
    tries = iter(range(TRIES))

    def search(pins: list[tuple[str, str]]) -> Names | None:
        classes = [_classes(form, [pin[side] for pin in pins]) for side, form in enumerate((first, second))]
        sizes = [Counter({colour: len(names) for colour, names in found.items()}) for found in classes]
        if sizes[0] != sizes[1] or next(tries, None) is None:
            return None
        alike = [colour for colour, names in classes[0].items() if len(names) > 1]
        if not alike:
            renaming = {classes[1][colour][0]: names[0] for colour, names in classes[0].items()}
            return renaming if _renamed(second, renaming) == (first.variables, first.rows, first.objective) else None
        colour = min(alike, key=lambda colour: len(classes[0][colour]))
        one = classes[0][colour][0]
        return next((r for other in classes[1][colour] if (r := search([*pins, (one, other)])) is not None), None)

    return search([])


def _classes(form: Canonical, pinned: list[str]) -> dict[int, list[str]]:
    """Variables by colour; those that are pinned have colours of their own."""
    cost = dict(form.objective)
    colours = {name: hash((whole, cost.get(name, 0))) for name, whole in form.variables}
    colours |= {name: hash((colours[name], position)) for position, name in enumerate(pinned)}
    count = 0
    while len(set(colours.values())) > count:
        count = len(set(colours.values()))
        seen: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for terms, bound in form.rows:
            row = hash((bound, tuple(sorted((a, colours[name]) for name, a in terms))))
            for name, a in terms:
                seen[name].append((a, row))
        colours = {name: hash((colour, tuple(sorted(seen[name])))) for name, colour in colours.items()}
    classes: dict[int, list[str]] = defaultdict(list)
    for name in sorted(colours):
        classes[colours[name]].append(name)
    return classes


def _renamed(form: Canonical, names: Names) -> tuple:
    variables = frozenset((names[name], whole) for name, whole in form.variables)
    rows = frozenset((tuple(sorted((names[name], a) for name, a in terms)), bound) for terms, bound in form.rows)
    return variables, rows, tuple(sorted((names[name], a) for name, a in form.objective))

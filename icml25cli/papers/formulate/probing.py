"""A cheap look for a point that tells two models apart, before a solver is asked for a proof.

Corners of the feasible sets, whole where variables are, are tried against the other model. A point that is found is
proof; where none is found nothing is known (`equivalence`). Knows canonical forms of few variables.
"""

from itertools import combinations

import numpy as np

from icml25cli.papers.formulate.canonical import Canonical

VARIABLES, ROWS = 4, 14  # beyond which corners are too many
MARGIN = 1e-6  # relative: by how much a point between whole ones has to break a row

Rows = tuple[np.ndarray, np.ndarray]  # coefficients (rows, variables) and bounds: coefficients @ x <= bounds


def told_apart(a: Canonical, b: Canonical) -> bool:
    """Whether a point was found that is feasible for one model alone, or worth another objective to each."""
    if a.variables != b.variables or len(a.variables) > VARIABLES or max(len(a.rows), len(b.rows)) > ROWS:
        return False
    names = sorted(a.names)
    whole = np.array([dict(a.variables)[name] for name in names])
    systems = [_arrays(form, names) for form in (a, b)]
    points = np.vstack([_corners(rows, whole) for rows in systems])
    inside, broken = zip(*(_tested(rows, points) for rows in systems), strict=True)
    if (inside[0] & broken[1]).any() or (inside[1] & broken[0]).any():
        return True
    costs = [np.array([float(dict(form.objective).get(name, 0)) for name in names]) for form in (a, b)]
    worth = [points @ cost + float(form.constant) for cost, form in zip(costs, (a, b), strict=True)]
    apart = np.abs(worth[0] - worth[1]) > MARGIN * (1 + np.abs(worth[0]))
    return bool((apart & inside[0] & inside[1]).any())


def _arrays(form: Canonical, names: list[str]) -> Rows:
    rows = sorted(form.rows, key=repr)
    place = {name: column for column, name in enumerate(names)}
    coefficients = np.zeros((len(rows), len(names)))
    for row, (terms, _) in zip(coefficients, rows, strict=True):
        for name, coefficient in terms:
            row[place[name]] = coefficient
    return coefficients, np.array([float(bound) for _, bound in rows])


def _corners(rows: Rows, whole: np.ndarray) -> np.ndarray:
    """Where as many rows meet as there are variables, moved to whole values, and some points around: (points, n)."""
    coefficients, bounds = rows
    count = coefficients.shape[1]
    chosen = np.array(list(combinations(range(len(bounds)), count)), dtype=int).reshape(-1, count)
    squares, sides = coefficients[chosen], bounds[chosen]
    regular = np.abs(np.linalg.det(squares)) > 1e-9
    points = np.linalg.solve(squares[regular], sides[regular][:, :, None])[:, :, 0]
    points = np.vstack([np.eye(count), np.zeros((1, count)), points])
    rounded = [np.where(whole, np.floor(points + 1e-9), points), np.where(whole, np.ceil(points - 1e-9), points)]
    near = np.vstack(rounded)
    return np.vstack([near, near + 1, near + 100, np.floor(near / 2)])


def _tested(rows: Rows, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every point, whether it satisfies all rows, and whether it breaks one beyond all rounding."""
    coefficients, bounds = rows
    beyond = points @ coefficients.T - bounds
    scale = MARGIN * (1 + np.abs(bounds) + np.abs(points) @ np.abs(coefficients).T)
    return np.all(beyond <= 1e-3 * scale, axis=1), np.any(beyond > scale, axis=1)

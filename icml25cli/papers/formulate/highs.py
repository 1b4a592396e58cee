"""HiGHS as this package uses it: silent, on one thread, from and to the arrays of a linear model.

Knows HiGHS's arrays and options. Does not know what is asked of the solver.
"""

from collections.abc import Sequence

import highspy
import numpy as np

from icml25cli.core.errors import InputError
from icml25cli.papers.formulate.linear import LinearModel
from icml25cli.papers.formulate.rationals import Number

SMALLEST, LARGEST = 1e-12, 1e15  # coefficients that HiGHS drops from there on, or refuses
INFINITE = 1e20  # a bound from there on is none to HiGHS
GAP = 1e-9  # HiGHS's own 1e-4 calls a whole-number solution optimal that is 0.01 % away from it


class Highs(highspy.Highs):
    """A solver that prints nothing."""

    def enableCallbacks(self) -> None:  # noqa: N802
        # Called first by the constructor, and the first word of HiGHS to standard output: an answer stands there.
        self.setOptionValue("log_to_console", False)
        super().enableCallbacks()


def new_solver(time_limit: float | None = None) -> Highs:
    """A new solver; models here are small, and searches run side by side, so it takes one thread."""
    highs = Highs()
    for option, value in {"threads": 1, "mip_rel_gap": GAP, "small_matrix_value": SMALLEST}.items():
        highs.setOptionValue(option, value)
    if time_limit is not None:
        highs.setOptionValue("time_limit", float(time_limit))
    return highs


def arrays(model: LinearModel, *, relaxed: bool = False) -> highspy.HighsLp:
    """The model in HiGHS's arrays, float64, rows first; ``relaxed`` leaves out that variables are whole.

    Raises:
        InputError: a number is so small or large that HiGHS would drop it, refuse it or take it for infinite.
    """
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(model.columns), len(model.rows)
    cost = np.zeros(len(model.columns))
    for column, coefficient in model.objective:
        cost[column] = _coefficient(coefficient, model, column, "the objective")
    lp.col_cost_ = cost
    lp.offset_ = float(model.constant)
    lp.sense_ = highspy.ObjSense.kMaximize if model.sense == "max" else highspy.ObjSense.kMinimize
    names = [f"the bounds of {column.name}" for column in model.columns]
    lp.col_lower_ = _bounds([column.lower for column in model.columns], -1, names)
    lp.col_upper_ = _bounds([column.upper for column in model.columns], 1, names)
    names = [row.name for row in model.rows]
    lp.row_lower_ = _bounds([row.lower for row in model.rows], -1, names)
    lp.row_upper_ = _bounds([row.upper for row in model.rows], 1, names)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.cumsum([0, *(len(row.terms) for row in model.rows)]).astype(np.int32)
    lp.a_matrix_.index_ = np.array([column for row in model.rows for column, _ in row.terms], np.int32)
    lp.a_matrix_.value_ = np.array(
        [_coefficient(value, model, column, f"'{row.name}'") for row in model.rows for column, value in row.terms]
    )
    if model.is_integer and not relaxed:
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        lp.integrality_ = [kinds[column.integer] for column in model.columns]
    return lp


def _coefficient(value: Number, model: LinearModel, column: int, where: str) -> float:
    size = abs(value)
    if SMALLEST < size < LARGEST:
        return float(value)
    size_word = "small" if size <= SMALLEST else "large"
    raise InputError(
        f"the coefficient {float(value):g} of {model.columns[column].name} in {where} is too {size_word} for a solver",
        hint="choose other units, such as thousands",
    )


def _bounds(bounds: Sequence[Number | None], sign: int, names: Sequence[str]) -> np.ndarray:
    infinity = sign * highspy.kHighsInf
    for bound, name in zip(bounds, names, strict=True):
        if bound is not None and abs(bound) >= INFINITE:
            raise InputError(
                f"the number {float(bound):g} in {name} is infinite to a solver", hint="choose other units, or no bound"
            )
    return np.array([infinity if bound is None else float(bound) for bound in bounds], np.float64)

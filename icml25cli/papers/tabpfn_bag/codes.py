"""Codes of many classes: rows of symbols, one a class, that the network's few outputs can spell (section 3.5).

Error-correcting output codes (Dietterich and Bakiri 1995): a class is told by what its symbols are, and up to
(d - 1) // 2 wrong symbols are forgiven, d being the smallest distance between two rows.

Knows small integer matrices. Does not know rows of tables or networks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import ceil, log, log2

import numpy as np
from jaxtyping import Float64, Int64
from numpy import ndarray

from icml25cli.core.errors import UsageError

CANDIDATES = 2000
STEPS = 3000  # of the climb from the best candidate
LEAST = 3  # distance that forgives one wrong symbol
BATCH = 2**24  # entries of candidates' tables of distances at a time


@dataclass(frozen=True, eq=False)
class Code:
    """Symbols of classes, in [0, alphabet)."""

    matrix: Int64[ndarray, "classes length"]
    alphabet: int

    @property
    def distance(self) -> int:
        """The smallest number of symbols in which two classes differ."""
        return int(np.min(_distances(self.matrix[None])))

    def nearest(self, words: Int64[ndarray, "n length"], scores: Float64[ndarray, "n classes"]) -> Int64[ndarray, "n"]:
        """The class whose row differs least from each word, of several the one with the highest score."""
        differ = (words[:, None] != self.matrix).sum(2)
        return np.where(differ == differ.min(1, keepdims=True), scores, -np.inf).argmax(1)


def binary_length(classes: int, paths: int) -> int:
    """Lc = max(K, ceil(4 log2 C))."""
    return max(paths, ceil(4 * log2(classes)))


@lru_cache(maxsize=8)  # a fit asks for the same one several times, and for hundreds of classes it takes seconds
def binary_code(classes: int, length: int, seed: int = 0, *, least: int = LEAST) -> Code:
    """Columns with floor(C/2) ones, none the same as or the complement of another, rows as far apart as was found.

    The best of 2000 random matrices by smallest distance, then by correlation of columns, and a climb from it by
    exchanging two symbols of a column. Longer than asked where the distance would be below ``least``.

    Raises:
        UsageError: fewer than 3 classes, or that many different columns do not exist.
    """
    if classes < 3:
        raise UsageError(f"{classes} classes need no code", hint="give at least 3 classes")
    ones = classes // 2
    while True:
        code = _best(partial(_balanced_bits, classes, ones, length), _no_twins, classes, length, 2, seed)
        if code is None:
            raise UsageError(
                f"there are not {length} different balanced columns of {classes} classes", hint="ask for a shorter code"
            )
        if code.distance >= least:
            return code
        length += 1


@lru_cache(maxsize=8)
def alphabet_code(classes: int, alphabet: int, length: int, seed: int = 0) -> Code:
    """Columns that share classes out evenly among ``alphabet`` symbols; longer than asked where rows would be the same.

    Raises:
        UsageError: fewer than 3 classes, or fewer than 2 symbols.
    """
    if classes < 3 or alphabet < 2:
        raise UsageError(f"there is no code of {classes} classes in {alphabet} symbols", hint="give more of them")
    length = max(length, ceil(log(classes, alphabet)))

    def draw(rng: np.random.Generator, number: int) -> ndarray:
        order = rng.random((number, classes, length)).argsort(1)
        return order % alphabet

    code = _best(draw, lambda matrices: np.ones(len(matrices), bool), classes, length, alphabet, seed)
    assert code is not None
    return code


def _best(
    draw: Callable[[np.random.Generator, int], ndarray],
    allowed: Callable[[ndarray], ndarray],
    classes: int,
    length: int,
    alphabet: int,
    seed: int,
) -> Code | None:
    rng = np.random.default_rng((seed, classes, length))
    best, key = None, (-1, 0.0)
    batch = max(1, min(CANDIDATES, BATCH // (classes * classes)))
    for start in range(0, CANDIDATES, batch):
        matrices = draw(rng, min(batch, CANDIDATES - start))
        matrices = matrices[allowed(matrices)]
        if not len(matrices):
            continue
        distance = _distances(matrices).min(1)
        for i in np.flatnonzero(distance == distance.max()):
            found = (int(distance[i]), -_correlation(matrices[i]))
            if found > key:
                best, key = matrices[i], found
    if best is None:
        return None
    matrix = _climb(best, allowed, rng)
    matrix.flags.writeable = False  # it is shared by whoever asks for the same code
    return Code(matrix, alphabet)


def _balanced_bits(classes: int, ones: int, length: int, rng: np.random.Generator, number: int) -> ndarray:
    return (rng.random((number, classes, length)).argsort(1) < ones).astype(np.int64)


def _no_twins(matrices: Int64[ndarray, "n classes length"]) -> ndarray:
    """Which matrices have no two columns that are the same or each other's complement."""
    sign = (2 * matrices - 1).astype(np.float32)
    product = np.abs(sign.transpose(0, 2, 1) @ sign)
    product[:, np.arange(matrices.shape[2]), np.arange(matrices.shape[2])] = 0
    return product.max((1, 2)) < matrices.shape[1]


def _distances(matrices: Int64[ndarray, "n classes length"]) -> Int64[ndarray, "n pairs"]:
    """Hamming distances of all pairs of rows."""
    classes, length = matrices.shape[1:]
    symbols = int(matrices.max()) + 1
    agree = np.zeros((len(matrices), classes, classes), np.float32)
    for symbol in range(symbols):
        has = (matrices == symbol).astype(np.float32)
        agree += has @ has.transpose(0, 2, 1)
    first, second = np.triu_indices(classes, 1)
    return (length - agree[:, first, second]).astype(np.int64)


def _correlation(matrix: Int64[ndarray, "classes length"]) -> float:
    """Mean size of the correlation of two columns."""
    if matrix.shape[1] < 2:
        return 0.0
    r = np.abs(np.corrcoef(matrix, rowvar=False))
    return float((r.sum() - len(r)) / (len(r) * (len(r) - 1)))


def _climb(matrix: ndarray, allowed: Callable[[ndarray], ndarray], rng: np.random.Generator) -> ndarray:
    """Exchange symbols of two classes in a column while that leaves fewer pairs at the smallest distance."""
    first, second = np.triu_indices(len(matrix), 1)
    between = (matrix[:, None] != matrix).sum(
        2, dtype=np.int32
    )  # of classes; kept up, since an exchange touches two of them
    distance = between[first, second]

    def cost(distance: ndarray) -> tuple[int, int]:
        return -int(distance.min()), int((distance == distance.min()).sum())

    now = cost(distance)
    for _ in range(STEPS):
        pair = rng.choice(np.flatnonzero(distance == distance.min()))
        row = (first, second)[rng.integers(2)][pair]
        same = np.flatnonzero(matrix[first[pair]] == matrix[second[pair]])
        if not len(same):
            break
        column = rng.choice(same)
        others = np.flatnonzero(matrix[:, column] != matrix[row, column])
        other = rng.choice(others)
        changed = matrix.copy()
        changed[[row, other], column] = matrix[[other, row], column]
        touched = between.copy()
        for one in (row, other):
            touched[one] = touched[:, one] = (changed[one] != changed).sum(1)
        apart = touched[first, second]
        after = cost(apart)
        if after <= now and allowed(changed[None])[0]:
            matrix, between, distance, now = changed, touched, apart, after
    return matrix

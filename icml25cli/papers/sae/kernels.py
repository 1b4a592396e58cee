"""Compiled loops over the kept entries of nested TopK codes.

Entries of a row stand by shell: shell s holds what level s keeps and level s - 1 does not, at places k_(s-1) to k_s; a
row with fewer positive values stops at ``filled``. Knows arrays. Does not know levels' weights, losses or models.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numba import njit

from icml25cli.core.jit import compiled

# Sums of a row with a decoder row may be taken in any order: a gradient, which nothing decodes again.
_dot = njit(nogil=True, error_model="numpy", cache=True, fastmath={"reassoc", "contract"})


@compiled
def _classify_exactly(row, limit, ks, sparse, index, value, dense):  # type: ignore[no-untyped-def]
    """``classify`` of one row in which values repeat: of those equal to a threshold the first columns are kept."""
    levels = len(ks)
    place, equal = [0] * levels, [0] * levels  # equal: how many entries equal to the threshold belong to the level
    for s in range(levels):
        equal[s] = ks[s]
        place[s] = ks[s - 1] if s else 0
    dense[:] = 0
    for v in row:
        for s in range(levels):
            equal[s] -= v > limit[s]
    count = 0
    for j in range(len(row)):
        v, shell = row[j], levels
        if v <= 0:
            continue
        for s in range(levels - 1, -1, -1):
            if v > limit[s]:
                shell = s
            elif v == limit[s] and equal[s] > 0:
                shell = s
                equal[s] -= 1
            else:
                break
        if shell < sparse:
            index[place[shell]] = j
            value[place[shell]] = v
            place[shell] += 1
            count += 1
        elif shell < levels:
            dense[shell - sparse, j] = v
    return count


@compiled
def classify(pre, thresholds, ks, sparse, index, value, filled, dense):  # type: ignore[no-untyped-def]
    """Sort the positive entries of each row into shells: the first ``sparse`` as entries, the others as matrices.

    Args:
        pre: (B, n) float32.
        thresholds: (B, L) the k_s-th largest value of the row, or 0 where a row has fewer positive ones.
        ks: (L,) ascending.
        index, value: (B, k of the last sparse shell), filled: (B,), to be written.
        dense: (L - sparse, B, n), to be written whole.
    """
    rows, n = pre.shape
    levels = len(ks)
    place = [0] * levels
    smallest = np.float32(1e-45)  # what is positive
    for b in range(rows):
        row, limit = pre[b], thresholds[b]
        repeated, count = False, 0
        if sparse:
            lowest = max(limit[sparse - 1], smallest)
            for s in range(sparse):
                place[s] = ks[s - 1] if s else 0
            for j in range(n):
                v = row[j]
                if v >= lowest:
                    shell = sparse - 1
                    while shell > 0 and v >= limit[shell - 1]:
                        shell -= 1
                    if place[shell] == ks[shell]:
                        repeated = True
                        break
                    index[b, place[shell]] = j
                    value[b, place[shell]] = v
                    place[shell] += 1
                    count += 1
        for s in range(sparse, levels):
            high = limit[s - 1] if s else np.float32(np.inf)
            low, out, kept = max(limit[s], smallest), dense[s - sparse, b], 0
            for j in range(n):
                inside = (row[j] >= low) & ((row[j] < high) | (s == 0))
                out[j] = row[j] if inside else np.float32(0)
                kept += inside
            repeated |= kept > ks[s] - (ks[s - 1] if s else 0)
        if repeated:
            count = _classify_exactly(row, limit, ks, sparse, index[b], value[b], dense[:, b])
        filled[b] = count


@compiled
def keep(product, matrix, out):  # type: ignore[no-untyped-def]
    """out = product where ``matrix`` is positive."""
    for b in range(len(out)):
        for j in range(out.shape[1]):
            out[b, j] = product[b, j] if matrix[b, j] > 0 else out[b, j]


@compiled
def gather(index, value, filled, ks, weights, out):  # type: ignore[no-untyped-def]
    """out[s, b] = Σ value · weights[index] over the entries of shells 0 to s: cumulative reconstructions.

    Args:
        weights: (n, d). out: (shells, B, d), written whole.
    """
    for b in range(len(filled)):
        begin = 0
        for s in range(len(ks)):
            sums = out[s, b]
            if s:
                sums[:] = out[s - 1, b]
            else:
                sums[:] = 0
            end = min(ks[s], filled[b])
            e = begin
            while e + 4 <= end:  # four decoder rows a pass: the sums are loaded and stored a quarter as often
                w0, w1, w2, w3 = (
                    weights[index[b, e]],
                    weights[index[b, e + 1]],
                    weights[index[b, e + 2]],
                    weights[index[b, e + 3]],
                )
                v0, v1, v2, v3 = value[b, e], value[b, e + 1], value[b, e + 2], value[b, e + 3]
                for c in range(sums.size):
                    sums[c] += v0 * w0[c] + v1 * w1[c] + v2 * w2[c] + v3 * w3[c]
                e += 4
            while e < end:
                w, v = weights[index[b, e]], value[b, e]
                for c in range(sums.size):
                    sums[c] += v * w[c]
                e += 1
            begin = max(begin, end)


@compiled
def gather_rows(indptr, indices, data, weights, out):  # type: ignore[no-untyped-def]
    """out[b] = Σ data · weights[indices] over the entries of row b of a CSR matrix."""
    for b in range(len(indptr) - 1):
        sums = out[b]
        sums[:] = 0
        e, end = indptr[b], indptr[b + 1]
        while e + 4 <= end:
            w0, w1, w2, w3 = (
                weights[indices[e]],
                weights[indices[e + 1]],
                weights[indices[e + 2]],
                weights[indices[e + 3]],
            )
            v0, v1, v2, v3 = data[e], data[e + 1], data[e + 2], data[e + 3]
            for c in range(sums.size):
                sums[c] += v0 * w0[c] + v1 * w1[c] + v2 * w2[c] + v3 * w3[c]
            e += 4
        while e < end:
            w, v = weights[indices[e]], data[e]
            for c in range(sums.size):
                sums[c] += v * w[c]
            e += 1


@_dot
def dots(index, filled, ks, errors, weights, out):  # type: ignore[no-untyped-def]
    """out[b, j] = errors[s, b] · weights[j] for every entry j of shell s; other places of ``out`` are left alone."""
    for b in range(len(filled)):
        begin = 0
        for s in range(len(ks)):
            end = min(ks[s], filled[b])
            x = errors[s, b]
            for e in range(begin, end):
                w = weights[index[b, e]]
                total = x[0] * w[0]
                for c in range(1, x.size):
                    total += x[c] * w[c]
                out[b, index[b, e]] = total
            begin = max(begin, end)


@compiled
def scatter(index, value, filled, ks, errors, low, high, out):  # type: ignore[no-untyped-def]
    """out[j] += value · errors[s, b] for every entry j of shell s with low <= j < high."""
    for b in range(len(filled)):
        begin = 0
        for s in range(len(ks)):
            end = min(ks[s], filled[b])
            x = errors[s, b]
            for e in range(begin, end):
                j = index[b, e]
                if low <= j < high:
                    sums, v = out[j], value[b, e]
                    for c in range(x.size):
                        sums[c] += v * x[c]
            begin = max(begin, end)


def spread(kernel: Any, count: int, *arguments: Any) -> None:
    """Call ``kernel(*arguments(part))`` for parts of ``range(count)``, one for each of torch's threads.

    An argument that is callable is given the part, a slice; parts write apart, so the result does not depend on them.
    """
    threads = min(torch.get_num_threads(), max(1, count // 16))
    bounds = [count * i // threads for i in range(threads + 1)]
    parts = [slice(a, b) for a, b in pairwise(bounds)]

    def call(part: slice) -> None:
        kernel(*(argument(part) if callable(argument) else argument for argument in arguments))

    if threads == 1:
        call(parts[0])
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(call, parts))

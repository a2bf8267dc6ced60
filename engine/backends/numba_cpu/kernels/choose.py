"""Choose the best of a few columns of logits, and sum up their powers; choose.pxi explains it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiler.compiling import helper, inline
from ..compiler.structs import Best, Float, Floats, Int, Ints, Size, Vector
from ..compiler.vector import v_fma, v_loadn, v_set1
from ..target import VL
from .elementwise import natural_logarithm
from .lanes import sum_of
from .softmax import entries, largest, power, sum_of_powers

LOWEST = -np.finfo(np.float32).max      # of a row whose logits are all -inf, because -inf - -inf is NaN


@inline
def is_better(x: Float, id: Int, other: Float, other_id: Int) -> bool:
    """Return True if x comes before another logit: it is larger, or equal with a lower id; -1 is an empty place."""
    return x > other or (x == other and (other_id < 0 or id < other_id))


@helper
def insert_best(values: Floats, ids: Ints, k: Size, x: Float, id: Int) -> None:
    """Put x at its place of the list, if it is better than the last of the k."""
    i = k - 1
    if not is_better(x, id, values[i], ids[i]):
        return
    while i > 0 and is_better(x, id, values[i - 1], ids[i - 1]):
        values[i], ids[i] = values[i - 1], ids[i - 1]
        i -= 1
    values[i], ids[i] = x, id


def choose(best: Best, logits: Floats, logits_stride: Size, M: Size, id: Size, n: Size, maximum: Floats, sum: Floats,
           stride: Size) -> None:
    """Update the best of M rows with logits of ids [id, id + n); store their maxima and sums, unless these are NULL."""
    k = best.k
    for row in range(M):
        x = logits + row * logits_stride
        highest = largest(x, n, LOWEST)
        if maximum:
            maximum[row * stride], sum[row * stride] = highest, sum_of_powers(x, n, v_set1(highest))
        values, ids = best.values + row * k, best.ids + row * k
        if is_better(highest, np.int32(id), values[k - 1], ids[k - 1]):     # otherwise no logit is among the best
            for i in range(n):
                insert_best(values, ids, k, x[i], np.int32(id + i))


@inline
def _add_part(sum: Vector, maxima: Floats, i: Size, n: Size, other: Any) -> Vector:
    """Add the sums of some parts of a row, scaled from their own maxima to the row's. other: (sums, highest)."""
    sums, highest = other
    return v_fma(power(entries(maxima + i, min(n, VL)), highest), v_loadn(sums + i, min(n, VL)), sum)


_sum_of_parts = sum_of(_add_part)


def log_sum_exp(maximum: Floats, sum: Floats, stride: Size, M: Size, parts: Size, out: Floats) -> None:
    """Compute ln(sum of e^x) of M rows from the maxima and the sums of their parts."""
    for row in range(M):
        highests, sums = maximum + row * stride, sum + row * stride
        highest = largest(highests, parts, LOWEST)
        total = _sum_of_parts(highests, parts, (sums, v_set1(highest)))
        out[row] = highest + natural_logarithm(total)

"""Choose the best of a few columns of logits, and sum up their powers; choose.pxi explains it."""

from __future__ import annotations

from math import log

import numpy as np

from ..compiler.compiling import helper, inline
from ..compiler.structs import Best, Float, Floats, Int, Ints, Size
from ..compiler.vector import v_add, v_fma, v_loadn, v_set1, v_sum
from ..target import VL
from .softmax import entries, largest, power

LOWEST = -np.finfo(np.float32).max


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
    """Update the best of M rows with n logits; store their maxima and sums, unless these are NULL."""
    k = best.k
    for row in range(M):
        x = logits + row * logits_stride
        highest = largest(x, n, LOWEST)
        if maximum:
            total = v_set1(0.0)
            for i in range(0, n, VL):
                total = v_add(total, power(entries(x + i, min(n - i, VL)), v_set1(highest)))
            maximum[row * stride], sum[row * stride] = highest, v_sum(total)
        values, ids = best.values + row * k, best.ids + row * k
        if is_better(highest, np.int32(id), values[k - 1], ids[k - 1]):
            for i in range(n):
                insert_best(values, ids, k, x[i], np.int32(id + i))


def log_sum_exp(maximum: Floats, sum: Floats, stride: Size, M: Size, parts: Size, out: Floats) -> None:
    """Compute ln(sum of e^x) of M rows from the maxima and the sums of their parts."""
    for row in range(M):
        highests, sums = maximum + row * stride, sum + row * stride
        highest = largest(highests, parts, LOWEST)
        total = v_set1(0.0)
        for i in range(0, parts, VL):
            n = min(parts - i, VL)
            total = v_fma(power(entries(highests + i, n), v_set1(highest)), v_loadn(sums + i, n), total)
        out[row] = highest + log(v_sum(total))

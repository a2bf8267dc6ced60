"""Compute the softmax over the keys of one range of a cache, and fold the sums of ranges; see ranges.pxi."""

from __future__ import annotations

import numpy as np

from ...cpu.native.layout import CELL
from ..compiler.compiling import helper, inline
from ..compiler.structs import CachedAttention, Float, Floats, Size, Vector
from ..compiler.vector import (
    v_add,
    v_div,
    v_equal,
    v_fma,
    v_iota,
    v_largest,
    v_less,
    v_load,
    v_loadn,
    v_max,
    v_mul,
    v_select,
    v_set1,
    v_store,
    v_storen,
    v_sub,
)
from ..target import VL
from .attention import correct, padded
from .elementwise import v_exp2
from .lanes import sum_of
from .scores import LOG2_E, ONE, v_tanh

LEAST = np.float32(-3.0e38)
"""The maximum of no scores: a finite number, because -inf - -inf is NaN."""


@inline
def changes_cached_scores(call: CachedAttention) -> bool:
    """Return True if soft-capping or a bias changes the scores."""
    return call.softcap != 0 or bool(call.bias)


@helper
def revise_cached_scores(call: CachedAttention, query: Size, p: Floats, key: Size, n: Size, lanes: Floats) -> None:
    """Compute (c tanh(score / c) + bias) log2 e for a query's scores of keys [key, key + n).

    query: row * heads + head.
    """
    bias = call.bias + (query % call.heads * call.bias_head + query // call.heads * call.bias_t + key * call.bias_s)
    cap, inverse = v_set1(call.softcap), v_set1(ONE / call.softcap)
    v_store(lanes, v_set1(0.0))
    for s in range(0, n, VL):
        width = min(n - s, VL)
        x = v_loadn(p + s, width)
        if call.softcap != 0:
            x = v_mul(cap, v_tanh(v_mul(x, inverse)))
        if call.bias:
            for r in range(width):
                lanes[r] = bias[(s + r) * call.bias_s]
            x = v_add(x, v_load(lanes))
        v_storen(p + s, v_mul(v_set1(LOG2_E), x), width)


@inline
def multiply_scores(p: Floats, scales: Floats, first: Size, last: Size) -> None:
    """Multiply the scores or the weights of the cells of keys [first, last) by their scales."""
    for i in range(first // CELL * CELL, (last + CELL - 1) // CELL * CELL, VL):
        v_store(p + i, v_mul(v_load(p + i), v_load(scales + i)))


@inline
def seen_lanes(i: Size, begin: Size, end: Size) -> Vector:
    """Return a mask of the lanes i, i + 1, ... that are at least `begin` and less than `end`."""
    before_end = v_less(v_iota(), v_set1(np.float32(end - i)))
    return v_select(v_less(v_iota(), v_set1(np.float32(begin - i))), v_set1(0.0), before_end)


@inline
def weight_at(p: Floats, maximum: Vector) -> Vector:
    """Return 2^(p - maximum), and 0 where p is -inf, after storing it in place of the scores at p."""
    x = v_load(p)
    x = v_select(v_equal(x, v_set1(-np.inf)), v_set1(0.0), v_exp2(v_sub(x, maximum)))
    v_store(p, x)
    return x


@inline
def _add_weights(sum: Vector, p: Floats, i: Size, n: Size, maximum: Vector) -> Vector:
    """Turn scores into weights in place, and add the weights."""
    return v_add(sum, weight_at(p + i, maximum))


_sum_of_weights = sum_of(_add_weights)


@helper
def weigh_range(p: Floats, begin: Size, end: Size, maximum: Floats, sum: Floats) -> None:
    """Turn scores of keys [begin, end) of a range into powers of two, and other keys of their cells into 0.

    The sum is in lanes (lanes.py), one for each place of a cell.
    """
    first, last = begin // CELL * CELL, (end + CELL - 1) // CELL * CELL
    highest = v_set1(LEAST)
    for i in range(first, last, VL):
        x = v_select(seen_lanes(i, begin, end), v_load(p + i), v_set1(-np.inf))
        v_store(p + i, x)
        highest = v_max(x, highest)
    maximum[0] = v_largest(highest)
    highest = v_set1(maximum[0])
    sum[0] = _sum_of_weights(p + first, last - first, highest)


@inline
def fold(total: Floats, E: Size, maximum: Float, sum: Float, context: Floats) -> None:
    """Fold the context [E], maximum and sum of a range into `total` [E + 2], which has those of the ranges before it.

    Each side is multiplied by 2^(its maximum - the larger one). E is the value width, padded to whole vectors.
    """
    most = max(total[E], maximum)
    old, new = correct(v_set1(total[E]), v_set1(most)), correct(v_set1(maximum), v_set1(most))
    v_storen(total + (E + 1), v_fma(v_set1(sum), new, v_mul(v_set1(total[E + 1]), old)), 1)
    total[E] = most
    for k in range(0, E, VL):
        v_store(total + k, v_fma(v_load(context + k), new, v_mul(v_load(total + k), old)))


@inline
def store_context_of(total: Floats, e: Size, out: Floats) -> None:
    """Compute out = O / l, the context by the sum in `total`; a query that saw no key has l = 0 and gets zeros."""
    sum = total[padded(e) + 1]
    divisor = v_set1(sum if sum != 0 else ONE)
    for k in range(0, e, VL):
        v_storen(out + k, v_div(v_load(total + k), divisor), min(e - k, VL))

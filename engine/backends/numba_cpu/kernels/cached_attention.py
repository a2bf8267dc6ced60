"""Compute attention for few queries over the rows of a cache; cached_attention.pxi explains it."""

from __future__ import annotations

import numpy as np
from numba import types

from ..compiler.compiling import helper, inline
from ..compiler.pointers import Pointer, on_stack
from ..compiler.structs import CachedAttention, FewQueries, Float, Floats, Size
from ..compiler.vector import (
    fetch_far,
    transpose,
    v_add,
    v_div,
    v_equal,
    v_fma,
    v_largest,
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
from ..target import LINE, MR, NR, VL
from .attention import KEYS, correct, padded
from .elementwise import v_exp2
from .scores import LOG2_E, ONE, v_tanh
from .softmax import entries
from .tile import VALUES_MR, scores_tile, values_tile

FEW = 16
"""The most queries that share a transposed key."""

sizes = on_stack(types.intp, FEW)
rows_of_values = on_stack(Pointer(types.float32), KEYS)


def cached_attention_scratch(d: Size, e: Size) -> Size:
    """Return the number of floats of scratch that cached attention needs."""
    return NR * (d + 1) + FEW * (KEYS + 2 * ((e + VL - 1) // VL * VL) + d + 3) + VL * VL


def cached_attention(call: CachedAttention, scratch: Floats) -> None:
    """Compute out = softmax(scores) v for T * heads queries, in groups of FEW."""
    e = padded(call.e)
    p = scratch + NR * call.d
    context = p + FEW * KEYS
    unused = context + 2 * FEW * e
    queries = unused + NR
    maximum = queries + FEW * call.d
    begin, end, values = sizes(), sizes(), rows_of_values()
    for first in range(0, call.T * call.heads, FEW):
        n = min(call.T * call.heads - first, FEW)
        g = FewQueries(first, n, scratch, p, context, context + FEW * e, unused, queries, maximum, maximum + FEW,
                       maximum + 2 * FEW, maximum + 3 * FEW, begin, end, values)
        attend_cache(call, g)


@helper
def attend_cache(call: CachedAttention, g: FewQueries) -> None:
    """Compute one group of queries."""
    load_few_queries(call, g)
    low = g.first // call.heads + call.low
    seen = min(call.S, (g.first + g.n - 1) // call.heads + call.high)
    for key in range(max(0, low) // KEYS * KEYS, seen, KEYS):
        first, last = max(key, low), min(key + KEYS, seen)
        if first < last:
            score_cache(call, g, first, last)
            weigh_cache(call, g, first, last)
            add_cached_values(call, g)
    store_few_contexts(call, g)


@inline
def changes_cached_scores(call: CachedAttention) -> bool:
    """Return True if soft-capping or a bias changes the scores."""
    return call.softcap != 0 or bool(call.bias)


@inline
def query_of(call: CachedAttention, x: Floats, stride: Size, head: Size, i: Size) -> Floats:
    """Return the address of query i, in an array whose rows and heads have these strides."""
    return x + (i // call.heads * stride + i % call.heads * head)


@helper
def load_few_queries(call: CachedAttention, g: FewQueries) -> None:
    """Store q scale log2 e; the factor log2 e is applied later if the scores are changed."""
    scale = v_set1(call.scale if changes_cached_scores(call) else call.scale * LOG2_E)
    for i in range(0, g.n * padded(call.e), VL):
        v_store(g.context + i, v_set1(0.0))
    for i in range(g.n):
        g.maximum[i], g.sum[i] = np.float32(-3.0e38), np.float32(0.0)
        q = query_of(call, call.q, call.q_stride, call.q_head, g.first + i)
        for k in range(0, call.d, VL):
            width = min(call.d - k, VL)
            v_storen(g.queries + (i * call.d + k), v_mul(v_loadn(q + k, width), scale), width)


@inline
def cached_row(call: CachedAttention, key: Size, start: Size, stride: Size) -> Floats:
    """Return the address of a key's row, or of its value's."""
    row = call.rows[key] if call.rows else key
    block = row >> call.shift
    return call.blocks[block] + (start + (row - (block << call.shift)) * stride)


@helper
def score_cache(call: CachedAttention, g: FewQueries, first: Size, last: Size) -> None:
    """Compute P = Q K^T for keys [first, last), and find the rows of their values."""
    tiles = (g.n + MR - 1) // MR
    for key in range(first, last, NR):
        count = min(last - key, NR)
        nv = (count + VL - 1) // VL
        for i in range(count):
            value = cached_row(call, key + i, call.v, call.v_stride)
            g.values[key - first + i] = value
            for column in range(0, call.e, LINE):
                fetch_far(value + column)
        for j in range(nv):
            transpose_keys(call, g, key + j * VL, min(count - j * VL, VL), g.keys + j * VL, nv * VL)
        row = 0
        for i in range(tiles):
            next_row = g.n * (i + 1) // tiles
            scores_tile(next_row - row, nv, call.d, g.queries + row * call.d, call.d, g.keys,
                        g.p + (row * KEYS + key - first), KEYS, g.unused)
            row = next_row


@helper
def transpose_keys(call: CachedAttention, g: FewQueries, key: Size, count: Size, columns: Floats, stride: Size) -> None:
    """Write `count` <= VL keys to the columns of K^T, and zeros to the rest of VL columns."""
    for k in range(0, call.d, VL):
        width = min(call.d - k, VL)
        for i in range(VL):
            row = cached_row(call, key + min(i, count - 1), call.k, call.k_stride)
            v_store(g.tile + i * VL, v_loadn(row + k, width if i < count else 0))
        transpose(g.tile, VL, g.tile)
        for i in range(width):
            v_store(columns + (k + i) * stride, v_load(g.tile + i * VL))


@helper
def weigh_cache(call: CachedAttention, g: FewQueries, first: Size, last: Size) -> None:
    """Turn the scores of keys [first, last) into powers of two, and correct the sums for the new maximum."""
    for i in range(g.n):
        t = (g.first + i) // call.heads
        begin, end = max(0, t + call.low - first), min(last, t + call.high) - first
        g.begin[i], g.end[i] = begin, end
        if begin < end:
            p, before = g.p + (i * KEYS + begin), g.maximum[i]
            if changes_cached_scores(call):
                revise_cached_scores(call, query_of(call, call.bias, call.bias_t, call.bias_head, g.first + i)
                                     + (first + begin) * call.bias_s, p, end - begin, g.tile)
            maximum = largest(p, end - begin, before)
            g.maximum[i] = maximum
            v_storen(g.correction + i, correct(v_set1(before), v_set1(maximum)), 1)
            g.sum[i] *= g.correction[i]
            exponentiate_row(p, end - begin, maximum)


@helper
def revise_cached_scores(call: CachedAttention, bias: Floats, p: Floats, n: Size, lanes: Floats) -> None:
    """Compute (c tanh(score / c) + bias) log2 e for n scores of a query."""
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


@helper
def largest(x: Floats, n: Size, least: Float) -> Float:
    """Return the largest of n numbers and `least`. NaN is ignored."""
    highest = v_set1(least)
    for i in range(0, n, VL):
        highest = v_max(entries(x + i, min(n - i, VL)), highest)
    return v_largest(highest)


@helper
def exponentiate_row(p: Floats, n: Size, maximum: Float) -> None:
    """Compute 2^(p - maximum) of n scores, and 0 where a score is -inf."""
    for i in range(0, n, VL):
        width = min(n - i, VL)
        score = v_loadn(p + i, width)
        x = v_select(v_equal(score, v_set1(-np.inf)), v_set1(0.0), v_exp2(v_sub(score, v_set1(maximum))))
        v_storen(p + i, x, width)


@helper
def add_cached_values(call: CachedAttention, g: FewQueries) -> None:
    """Compute O = c O + P V and l = l + sum of P.

    A tile of queries adds the keys that all of them see together. The keys before and after, that only some of them
    see, are added for each query alone.
    """
    e = padded(call.e)
    tiles = (g.n + VALUES_MR - 1) // VALUES_MR
    for i in range(0, g.n * e, VL):
        v_store(g.product + i, v_set1(0.0))
    row = 0
    for k in range(tiles):
        next_row = g.n * (k + 1) // tiles
        begin, end = g.begin[row], g.end[row]
        for i in range(row + 1, next_row):
            begin, end = max(begin, g.begin[i]), min(end, g.end[i])
        end = max(begin, end)
        for i in range(row, next_row):
            add_products_of_keys(call, g, i, 1, g.begin[i], min(begin, g.end[i]))
        add_products_of_keys(call, g, row, next_row - row, begin, end)
        for i in range(row, next_row):
            add_products_of_keys(call, g, i, 1, max(end, g.begin[i]), g.end[i])
        row = next_row
    for i in range(g.n):
        if g.begin[i] < g.end[i]:
            for k in range(i * e, (i + 1) * e, VL):
                v_store(g.context + k, v_fma(v_load(g.context + k), v_set1(g.correction[i]), v_load(g.product + k)))


@helper
def add_products_of_keys(call: CachedAttention, g: FewQueries, row: Size, mr: Size, begin: Size, end: Size) -> None:
    """Add P V of keys [begin, end) to `product`, and their weights to `sum`, for mr queries."""
    if begin >= end:
        return
    sum = g.sum + row
    tail = call.e % VL
    for column in range(0, call.e - tail, NR):
        add_columns(call, g, row, mr, begin, end, column, min(call.e - tail - column, NR) // VL, VL, sum)
        sum = g.unused      # weights are added once
    if tail:
        add_columns(call, g, row, mr, begin, end, call.e - tail, 1, tail, sum)


@helper
def add_columns(call: CachedAttention, g: FewQueries, row: Size, mr: Size, begin: Size, end: Size, column: Size,
                nv: Size, width: Size, sum: Floats) -> None:
    """Add the products of nv vectors of columns; width: columns of the last vector, VL unless nv is 1."""
    values_tile(mr, nv, end - begin, g.p + (row * KEYS + begin), KEYS, g.values + begin, column, width,
                g.product + (row * padded(call.e) + column), padded(call.e), sum)


@helper
def store_few_contexts(call: CachedAttention, g: FewQueries) -> None:
    """Compute out = O / l. A query that saw no key has the sum 0; its result is zeros."""
    for i in range(g.n):
        empty = g.sum[i] == 0
        scale = v_div(v_set1(1.0), v_set1(g.sum[i]))
        out = query_of(call, call.out, call.out_stride, call.out_head, g.first + i)
        for k in range(0, call.e, VL):
            x = v_set1(0.0) if empty else v_mul(v_load(g.context + (i * padded(call.e) + k)), scale)
            v_storen(out + k, x, min(call.e - k, VL))

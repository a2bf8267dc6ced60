"""Compute attention over the cells of a cache; cached_attention.pxi and cached_many.pxi explain it.

For each range of RANGE = 256 keys, keys and values are unpacked to panels of floats, and GEMMs compute scores and
context of CHUNK_QUERIES queries at a time. The sums of each range, O [E] with E = e padded to VL, the maximum and the
sum of weights, are folded in order. Here every number of queries unpacks its ranges. The bits are the same.
"""

from __future__ import annotations

import numpy as np

from ...cpu.native.layout import CELL, QUERIES, RANGE
from ..compiler.compiling import helper, inline
from ..compiler.pointers import as_bytes
from ..compiler.structs import CachedAttention, Floats, Size, Unpacked
from ..compiler.vector import v_fma, v_load, v_loadn, v_mul, v_set1, v_store, v_storen
from ..target import MR, NR, VL
from .attention import padded
from .cells import unpack_range
from .embed import INT8
from .ranges import (
    LEAST,
    changes_cached_scores,
    fold,
    multiply_scores,
    revise_cached_scores,
    store_context_of,
    weigh_range,
)
from .scores import LOG2_E, all_finite
from .tile import scores_tile

CHUNK_QUERIES = 24
"""Queries whose scores stay in the L1 cache."""


def cached_attention_scratch(d: Size, e: Size) -> Size:
    """Return the number of floats of scratch that `cut_range` divides."""
    E = (e + VL - 1) // VL * VL
    return RANGE * (d + E + 2) + CHUNK_QUERIES * (RANGE + E + 2) + NR + VL + QUERIES * (d + E + 2) + 1


def cached_attention(call: CachedAttention, scratch: Floats) -> None:
    """Compute out = softmax(q K^T scale) V of each query over its keys; with `call.sums`, the sums of one range alone.

    The sums of a query are O [E], its maximum m and l, of the weights w = e^(score - m) of its keys:
    O = sum of w v, l = sum of w, and out = O / l.
    """
    E, count = padded(call.e), call.T * call.heads
    for first in range(0, count, QUERIES):
        u = cut_range(call, first, min(count - first, QUERIES), scratch)
        attend_query_group(call, u)
        if not call.sums:
            for i in range(u.n):
                store_context_of(u.sums + i * (E + 2), call.e, query_of(call, call.out, call.out_stride, call.out_head,
                                                                        first + i))


@inline
def cut_range(call: CachedAttention, first: Size, n: Size, scratch: Floats) -> Unpacked:
    """Return the scratch areas, for n queries from `first` on; `of_range` sets the range and its keys."""
    E = padded(call.e)
    values = scratch + RANGE * call.d
    key_scales = values + RANGE * E
    p = key_scales + 2 * RANGE
    product = p + CHUNK_QUERIES * RANGE
    maximum = product + CHUNK_QUERIES * E
    unused = maximum + 2 * CHUNK_QUERIES
    queries = unused + (NR + VL)
    sums = queries + QUERIES * call.d
    finite = as_bytes(sums + QUERIES * (E + 2))
    if call.sums:
        sums = call.sums + first * (E + 2)
    return Unpacked(0, 0, 0, first, n, scratch, values, key_scales, key_scales + RANGE, p,
                    product, maximum, maximum + CHUNK_QUERIES, unused, unused + NR, queries, sums, finite)


@inline
def of_range(u: Unpacked, r: Size, begin: Size, end: Size) -> Unpacked:
    """Return the areas for keys [begin, end) of range r."""
    return Unpacked(r, begin, end, u.first, u.n, u.keys, u.values, u.key_scales, u.value_scales, u.p, u.product,
                    u.maximum, u.sum, u.unused, u.lanes, u.queries, u.sums, u.finite)


@inline
def query_of(call: CachedAttention, x: Floats, stride: Size, head: Size, i: Size) -> Floats:
    """Return the address of query i = row * heads + head, in an array whose rows and heads have these strides."""
    return x + (i // call.heads * stride + i % call.heads * head)


@inline
def begin_of(call: CachedAttention, query: Size, r: Size) -> Size:
    """Return the first key of range r that a query sees, counted from the first key of the range."""
    return min(max(0, query // call.heads + call.low - r * RANGE), RANGE)


@inline
def end_of(call: CachedAttention, query: Size, r: Size) -> Size:
    """Return the end of the keys of range r that a query sees, counted from the first key of the range."""
    return max(0, min(min(call.S, query // call.heads + call.high) - r * RANGE, RANGE))


@helper
def attend_query_group(call: CachedAttention, u: Unpacked) -> None:
    """Compute and fold the sums of all ranges that the queries see."""
    E = padded(call.e)
    load_cached_queries(call, u)
    for i in range(u.n * (E + 2)):
        u.sums[i] = np.float32(0.0)
    for i in range(u.n):
        u.sums[i * (E + 2) + E] = LEAST
    first, last = call.range, call.range + 1
    if not call.sums:
        first = max(0, u.first // call.heads + call.low) // RANGE
        last = (max(0, min(call.S, (u.first + u.n - 1) // call.heads + call.high)) + RANGE - 1) // RANGE
    for r in range(first, last):
        begin, end = begin_of(call, u.first, r), end_of(call, u.first + u.n - 1, r)
        if begin < end:
            unpacked = of_range(u, r, begin, end)
            unpack_range(call, unpacked)
            unpacked.finite[0] = np.uint8(2)        # not checked yet
            for row in range(0, u.n, CHUNK_QUERIES):
                attend_chunk(call, unpacked, row, min(u.n - row, CHUNK_QUERIES))


@helper
def load_cached_queries(call: CachedAttention, u: Unpacked) -> None:
    """Store q scale log2 e; the factor log2 e is applied later if the scores are changed."""
    scale = v_set1(call.scale if changes_cached_scores(call) else call.scale * LOG2_E)
    for i in range(u.n):
        q = query_of(call, call.q, call.q_stride, call.q_head, u.first + i)
        for k in range(0, call.d, VL):
            width = min(call.d - k, VL)
            v_storen(u.queries + (i * call.d + k), v_mul(v_loadn(q + k, width), scale), width)


@helper
def attend_chunk(call: CachedAttention, u: Unpacked, row: Size, n: Size) -> None:
    """Compute the sums of the range for queries [row, row + n) of the group, and fold them."""
    # Later queries see later keys: the first query has the first key of all, and the last query the last one.
    E, query = padded(call.e), u.first + row
    first, last = begin_of(call, query, u.range), end_of(call, query + n - 1, u.range)
    if first >= last:
        return
    score_panels(call, u, row, n, first, last)
    hides = False
    for i in range(n):
        begin, end = begin_of(call, query + i, u.range), end_of(call, query + i, u.range)
        hides = hides or begin > first or end < last
        weigh_query(call, u, i, query + i, begin, end)
        # It gives weights to whole cells. All other cells get 0, which are all cells if the query sees no key.
        clear(u.p + i * RANGE, first, last if begin >= end else begin // CELL * CELL)
        clear(u.p + i * RANGE, (end + CELL - 1) // CELL * CELL, last)
    if hides and not range_is_finite(call, u):      # 0 times a hidden value that is infinite or NaN would be NaN
        multiply_seen_values(call, u, row, n)
    else:
        multiply_values(call, u, n, first, last)
    for i in range(n):
        fold(u.sums + (row + i) * (E + 2), E, u.maximum[i], u.sum[i], u.product + i * E)


@inline
def clear(p: Floats, first: Size, last: Size) -> None:
    """Set weights [first, last) to 0."""
    for i in range(first, last):
        p[i] = np.float32(0.0)


@helper
def weigh_query(call: CachedAttention, u: Unpacked, i: Size, query: Size, begin: Size, end: Size) -> None:
    """Turn the scores of a query's keys [begin, end) into weights; store their maximum and their sum."""
    u.maximum[i], u.sum[i] = LEAST, np.float32(0.0)
    if begin < end:
        p = u.p + i * RANGE
        if call.storage == INT8:
            multiply_scores(p, u.key_scales, begin, end)
        if changes_cached_scores(call):
            revise_cached_scores(call, query, p + begin, u.range * RANGE + begin, end - begin, u.lanes)
        weigh_range(p, begin, end, u.maximum + i, u.sum + i)
        if call.storage == INT8:
            multiply_scores(p, u.value_scales, begin, end)


@helper
def score_panels(call: CachedAttention, u: Unpacked, row: Size, n: Size, first: Size, last: Size) -> None:
    """Compute P = Q K^T of n queries from `row` on, for whole panels, of NR keys each, that hold keys [first, last)."""
    tiles = (n + MR - 1) // MR
    for panel in range(first // NR, (last + NR - 1) // NR):
        keys = u.keys + panel * NR * call.d
        for i in range(tiles):
            begin, following = n * i // tiles, n * (i + 1) // tiles
            q, p = u.queries + (row + begin) * call.d, u.p + (begin * RANGE + panel * NR)
            scores_tile(following - begin, NR // VL, call.d, q, call.d, keys, p, RANGE, u.unused)


@helper
def multiply_values(call: CachedAttention, u: Unpacked, n: Size, first: Size, last: Size) -> None:
    """Compute O = P V of n queries, for keys [first, last): product [n][E] from p [n][RANGE] and panels of values.

    The maxima that scores_tile computes are not used.
    """
    E, tiles = padded(call.e), (n + MR - 1) // MR
    for column in range(0, E, NR):
        width = min(E - column, NR)
        values = u.values + (column * RANGE + first * width)
        for i in range(tiles):
            begin, following = n * i // tiles, n * (i + 1) // tiles
            p, out = u.p + (begin * RANGE + first), u.product + (begin * E + column)
            scores_tile(following - begin, width // VL, last - first, p, RANGE, values, out, E, u.unused)


@helper
def range_is_finite(call: CachedAttention, u: Unpacked) -> bool:
    """Return True if all values of the range are finite, and their scales."""
    if u.finite[0] == 2:        # not checked yet
        E, finite = padded(call.e), True
        for column in range(0, E, NR):
            width = min(E - column, NR)
            finite = finite and all_finite(u.values + (column * RANGE + u.begin * width), width, u.end - u.begin, width)
        if call.storage == INT8:
            finite = finite and all_finite(u.value_scales + u.begin, u.end - u.begin, 1, u.end - u.begin)
        u.finite[0] = np.uint8(1) if finite else np.uint8(0)
    return u.finite[0] == 1


@helper
def multiply_seen_values(call: CachedAttention, u: Unpacked, row: Size, n: Size) -> None:
    """Compute the bits of multiply_values without the hidden keys of each query, whose values may be NaN."""
    E = padded(call.e)
    for i in range(n):
        query = u.first + row + i
        for j in range(0, E, VL):
            column = j // NR * NR
            width = min(E - column, NR)
            sum = v_set1(0.0)
            for key in range(begin_of(call, query, u.range), end_of(call, query, u.range)):
                v = u.values + (column * RANGE + key * width + j - column)
                sum = v_fma(v_set1(u.p[i * RANGE + key]), v_load(v), sum)
            v_store(u.product + (i * E + j), sum)


def fold_ranges(sums: Floats, stride: Size, ranges: Size, e: Size, out: Floats) -> None:
    """Compute a query's out [e] from the sums of its ranges, `stride` floats apart; the first is changed."""
    E = (e + VL - 1) // VL * VL
    for i in range(1, ranges):
        range_sums = sums + i * stride
        fold(sums, E, range_sums[E], range_sums[E + 1], range_sums)
    store_context_of(sums, e, out)

"""Compute attention of one head of one sequence in blocks, with a streaming softmax; attention.pxi explains it.

Queries lie across the lanes: W = nv*VL of them have scores P^T [keys][W], so the softmax needs no sum over lanes. When
the maximum of a query grows, its sums so far are multiplied by a correction, 2^(old - new maximum).
"""

from __future__ import annotations

import numpy as np

from ...cpu.native.layout import KEYS, QUERIES
from ..compiler.compiling import helper, inline
from ..compiler.pointers import as_bytes, null
from ..compiler.structs import Attention, Block, Floats, Keys, Scratch, Size, Terms, Vector
from ..compiler.vector import (
    fetch_far,
    v_add,
    v_div,
    v_equal,
    v_fma,
    v_load,
    v_loadn,
    v_mul,
    v_select,
    v_set1,
    v_store,
    v_storen,
    v_sub,
)
from ..target import LINE, MR, NR, VL
from .elementwise import v_exp2
from .relative import load_transposed, multiply_terms, terms_stride
from .scores import LOG2_E, all_finite, changes_scores, revise_scores
from .tile import context_tile, scores_tile

MORE = 3 * VL * VL + VL
"""Floats of scratch for `bias`, `visible`, `distant`, `lanes`, `finite`, which compiled kernels keep on the stack."""


@inline
def padded(e: Size) -> Size:
    """Round e up to a multiple of VL."""
    return (e + VL - 1) // VL * VL


def attention_scratch(d: Size, e: Size, columns: Size) -> Size:
    """Return the number of floats of scratch that `cut_block` and `cut` divide."""
    plain = QUERIES * (d + (e + VL - 1) // VL * VL + 2) + NR * (2 * KEYS + 2) + MORE
    return plain + (QUERIES + KEYS) * terms_stride(columns)


@inline
def cut(call: Attention, scratch: Floats) -> Scratch:
    """Return the scratch areas behind the query blocks, as `attention_scratch` counts them; terms come last."""
    p = scratch + QUERIES * (call.d + padded(call.e) + 2)
    tail = p + NR * KEYS
    correction = tail + NR * KEYS
    bias = correction + 2 * NR
    visible = bias + VL * VL
    distant = visible + VL * VL
    lanes = as_bytes(distant + VL * VL)
    unused, terms, finite = correction + NR, bias + MORE, lanes + VL
    return Scratch(p, tail, correction, unused, bias, visible, distant, terms, lanes, finite)


@inline
def cut_block(call: Attention, t: Size, i: Size, scratch: Floats) -> Block:
    """Return query block i of the query group that starts at query t."""
    first = t + i * NR
    n = min(call.T - first, NR)
    queries = scratch + i * NR * (call.d + padded(call.e) + 2)
    context = queries + NR * call.d
    maximum = context + NR * padded(call.e)
    return Block(first, n, (n + VL - 1) // VL, queries, context, maximum, maximum + NR)


def attention(call: Attention, scratch: Floats) -> None:
    """Compute out[T,e] = softmax(scores) v[S,e]."""
    s = cut(call, scratch)
    for t in range(0, call.T, QUERIES):
        n = min(call.T - t, QUERIES)
        count = (n + NR - 1) // NR
        for i in range(count):
            load_queries(call, cut_block(call, t, i, scratch), s.bias)
        last = min(call.S, t + n - 1 + call.high)
        for key in range(max(0, t + call.low) // KEYS * KEYS, last, KEYS):
            keys = Keys(key, min(call.S, key + KEYS), call.v + key * call.v_stride, s.tail)
            if call.e % VL:
                copy_tail(call, keys)
            s.finite[0] = np.uint8(2)       # not checked yet
            terms = multiply_terms(call, s, t, n, keys)
            for i in range(count):
                attend_keys(call, s, terms, cut_block(call, t, i, scratch), keys)
        for i in range(count):
            store_context(call, cut_block(call, t, i, scratch))


@inline
def seen_keys(call: Attention, b: Block, keys: Keys) -> Keys:
    """Return the part of a key block that lies in the band of at least one query of the block."""
    first = max(keys.first, b.t + call.low)
    skipped = first - keys.first
    return Keys(first, min(keys.last, b.t + b.n - 1 + call.high), keys.v + skipped * call.v_stride,
                keys.tail + skipped * (padded(call.e) - call.e // NR * NR))


@inline
def compute_scores(call: Attention, s: Scratch, terms: Terms, b: Block, keys: Keys) -> bool:
    """Compute the scores P^T, with -inf for hidden keys, and update the maximum.

    Returns whether the scores are plain: none of them was changed or hidden.
    """
    edge = keys.first < b.t + b.n - 1 + call.low or keys.last > b.t + call.high     # whether the band hides any key
    plain = not (edge or bool(call.mask) or changes_scores(call))
    first_block = b.t % QUERIES == 0        # of the query group; it prefetches for the others
    score_keys(call, b, keys, s.p, b.maximum if plain else s.unused, first_block)
    if not plain:
        revise_scores(call, s, terms, b, keys, edge)
    return plain


@inline
def attend_keys(call: Attention, s: Scratch, terms: Terms, b: Block, block: Keys) -> None:
    """Update a query block's sums with the part of a key block that it sees."""
    keys = seen_keys(call, b, block)
    if keys.first >= keys.last:
        return
    count = keys.last - keys.first
    fresh = keys.first == max(0, b.t + call.low)        # the block's first keys: nothing has been summed up
    for j in range(b.nv):
        v_store(s.correction + j * VL, v_load(b.maximum + j * VL))      # before these keys; see exponentiate
    plain = compute_scores(call, s, terms, b, keys)
    for j in range(b.nv):
        place = j * VL
        if plain:       # `plain`, the last argument, is a constant in both calls, so that the loop has no test of it
            exponentiate(s.p + place, b.nv * VL, count, b.maximum + place, b.sum + place, s.correction + place, True)
        else:
            exponentiate(s.p + place, b.nv * VL, count, b.maximum + place, b.sum + place, s.correction + place, False)
    if plain or values_are_finite(call, s, block):
        add_values(call, s, b, keys, fresh)
    else:
        add_seen_values(call, s, b, keys, fresh)


@helper
def values_are_finite(call: Attention, s: Scratch, block: Keys) -> bool:
    """Return True if all values of the key block are finite; they are checked once."""
    if s.finite[0] == 2:        # not checked yet
        s.finite[0] = np.uint8(all_finite(block.v, call.v_stride, block.last - block.first, call.e))
    return s.finite[0] == 1


@helper
def load_queries(call: Attention, b: Block, tile: Floats) -> None:
    """Store (q scale log2 e)^T, with zeros in the lanes that have no query.

    The softmax uses powers of two. If the scores are changed later, the factor log2 e is applied after the change.
    """
    scale = v_set1(call.scale if changes_scores(call) else call.scale * LOG2_E)
    for j in range(b.nv):
        v_store(b.maximum + j * VL, v_set1(-3.0e38))      # a finite number, because -inf - -inf is NaN
        v_store(b.sum + j * VL, v_set1(0.0))
        for k in range(0, call.d, VL):
            columns = min(call.d - k, VL)
            q = call.q + ((b.t + j * VL) * call.q_stride + k)
            load_transposed(q, call.q_stride, b.n - j * VL, columns, tile)
            for i in range(columns):
                v_store(b.queries + ((k + i) * b.nv + j) * VL, v_mul(v_load(tile + i * VL), scale))


@helper
def score_keys(call: Attention, b: Block, keys: Keys, p: Floats, maximum: Floats, fetch: bool) -> None:
    """Compute P^T = K Q^T and update the maximum. fetch: prefetch the next keys, and the values of these."""
    count = keys.last - keys.first
    tiles = (count + MR - 1) // MR
    W = b.nv * VL
    row = 0
    for i in range(tiles):
        next_row = count * (i + 1) // tiles
        k = call.k + (keys.first + row) * call.k_stride
        if fetch:
            first, last = keys.first + row, keys.first + next_row
            fetch_rows(call.k, call.k_stride, call.d, last, min(last + MR, call.S))
            fetch_rows(call.v, call.v_stride, call.e, first, last)
        scores_tile(next_row - row, b.nv, call.d, k, call.k_stride, b.queries, p + row * W, W, maximum)
        row = next_row


@inline
def fetch_rows(x: Floats, stride: Size, width: Size, row: Size, last: Size) -> None:
    """Prefetch rows [row, last) of x."""
    for r in range(row, last):
        for i in range(0, width, LINE):
            fetch_far(x + (r * stride + i))


@inline
def correct(before: Vector, maximum: Vector) -> Vector:
    """Return 2^(before - maximum), and exactly 1 if they are equal."""
    return v_select(v_equal(before, maximum), v_set1(1.0), v_exp2(v_sub(before, maximum)))


@inline
def exponentiate(p: Floats, stride: Size, keys: Size, maximum: Floats, sum: Floats, correction: Floats,
                 plain: bool) -> None:
    """Compute P^T = 2^(P^T - maximum) and its sum, for VL queries.

    On entry `correction` holds the maximum before these keys, and `maximum` the maximum that includes them. Only a
    hidden key, whose score is -inf, gets the weight 0, because the smallest result of v_exp2 is 2^-126.
    """
    highest = v_load(maximum)
    factor = correct(v_load(correction), highest)
    v_store(correction, factor)
    total = v_mul(v_load(sum), factor)
    for _ in range(keys):
        score = v_load(p)
        x = v_exp2(v_sub(score, highest))
        if not plain:
            x = v_select(v_equal(score, v_set1(-np.inf)), v_set1(0.0), x)
        v_store(p, x)
        total = v_add(total, x)
        p += stride
    v_store(sum, total)


@helper
def copy_tail(call: Attention, keys: Keys) -> None:
    """Copy the last columns of V, padded with zeros to whole vectors."""
    column = call.e // NR * NR
    width = padded(call.e) - column
    v = keys.v + column
    tail = keys.tail
    for _ in range(keys.last - keys.first):
        for i in range(0, width, VL):
            v_store(tail + i, v_loadn(v + i, min(call.e - column - i, VL)))
        v += call.v_stride
        tail += width


@helper
def add_values(call: Attention, s: Scratch, b: Block, keys: Keys, fresh: bool) -> None:
    """Compute O = correction O + P V for the queries of a block; fresh: O has no sums yet, so O = P V."""
    e, count = padded(call.e), keys.last - keys.first
    tiles = (b.n + MR - 1) // MR
    for column in range(0, e, NR):
        nv = min(e - column, NR) // VL
        v, v_stride = keys.v + column, call.v_stride
        if call.e % VL and column + NR > call.e:        # the last panel, from its padded copy
            v, v_stride = keys.tail, e - column
        row = 0
        for i in range(tiles):
            next_row = b.n * (i + 1) // tiles
            out, correction = b.context + (row * e + column), null() if fresh else s.correction + row
            context_tile(next_row - row, nv, count, s.p + row, b.nv * VL, v, v_stride, out, e, correction)
            row = next_row


@helper
def add_seen_values(call: Attention, s: Scratch, b: Block, keys: Keys, fresh: bool) -> None:
    """Compute the same bits as add_values, but skip keys of weight 0, whose values may be NaN or infinite."""
    e = padded(call.e)
    for column in range(0, call.e, VL):
        width = min(call.e - column, VL)
        for i in range(b.n):
            sum = v_set1(0.0)
            for key in range(keys.last - keys.first):
                weight = s.p[key * b.nv * VL + i]
                if weight != 0:
                    sum = v_fma(v_set1(weight), v_loadn(keys.v + (key * call.v_stride + column), width), sum)
            out = b.context + (i * e + column)
            if not fresh:
                sum = v_fma(v_load(out), v_set1(s.correction[i]), sum)
            v_store(out, sum)


@helper
def store_context(call: Attention, b: Block) -> None:
    """Compute out = O / l, the context by the sum of the weights; a query that saw no key has l = 0 and gets zeros."""
    for i in range(b.n):
        scale = v_div(v_set1(1.0), v_set1(b.sum[i]))
        empty = b.sum[i] == 0
        context = b.context + i * padded(call.e)
        out = call.out + (b.t + i) * call.out_stride
        for j in range(0, call.e, VL):
            x = v_set1(0.0) if empty else v_mul(v_load(context + j), scale)
            v_storen(out + j, x, min(call.e - j, VL))

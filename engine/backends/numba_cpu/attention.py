"""Attention of one head of one sequence, blocked, with a streaming softmax; the algorithm is told in attention.pxi."""

from __future__ import annotations

import numpy as np

from .compiling import helper
from .elementwise import v_exp2
from .pointers import null
from .structs import Attention, Floats, Size
from .tile import context_tile, scores_tile
from .vector import MR, NR, VL, v_add, v_div, v_load, v_mul, v_set1, v_store, v_sub

KEYS = 256
LOG2_E = np.float32(1.4426950408889634)


def attention_scratch(d: Size, e: Size) -> Size:
    """Floats of scratch that attention needs."""
    return NR * (d + KEYS + e + 3)


def attention(call: Attention, scratch: Floats) -> None:
    """out[T,e] = softmax(q[T,d] k[S,d]^T * scale) v[S,e]"""
    queries = scratch                   # [d][W], W = nv*VL
    p = queries + NR * call.d           # [KEYS][W]
    context = p + NR * KEYS             # [W][e]
    maximum = context + NR * call.e     # [W]
    sum = maximum + NR                  # [W]
    correction = sum + NR               # [W]
    for t in range(0, call.T, NR):
        n = min(call.T - t, NR)
        nv = (n + VL - 1) // VL
        load_queries(call, queries, t, n, nv)
        for j in range(nv):
            v_store(maximum + j * VL, v_set1(-3.0e38))
            v_store(sum + j * VL, v_set1(0.0))
        for key in range(0, call.S, KEYS):
            keys = min(call.S - key, KEYS)
            for j in range(nv):
                v_store(correction + j * VL, v_load(maximum + j * VL))
            score_keys(call, queries, p, maximum, key, keys, nv)
            for j in range(nv):
                exponentiate(p + j * VL, nv * VL, keys, maximum + j * VL, sum + j * VL, correction + j * VL)
            add_values(call, p, context, correction, key, keys, n, nv)
        store_context(call, context, sum, t, n)


@helper
def load_queries(call: Attention, queries: Floats, t: Size, n: Size, nv: Size) -> None:
    """(q scale log2 e)^T, zeros in the lanes of no query: the softmax is taken in powers of two."""
    scale = call.scale * LOG2_E
    W = nv * VL
    for i in range(n):
        q = call.q + (t + i) * call.q_stride
        for k in range(call.d):
            queries[k * W + i] = q[k] * scale
    for i in range(n, W):
        for k in range(call.d):
            queries[k * W + i] = np.float32(0.0)


@helper
def score_keys(call: Attention, queries: Floats, p: Floats, maximum: Floats, key: Size, keys: Size, nv: Size) -> None:
    """P^T = K Q^T, and the maximum."""
    tiles = (keys + MR - 1) // MR
    W = nv * VL
    row = 0
    for i in range(tiles):
        next_row = keys * (i + 1) // tiles
        k = call.k + (key + row) * call.k_stride
        scores_tile(next_row - row, nv, call.d, k, call.k_stride, queries, p + row * W, W, maximum)
        row = next_row


@helper
def exponentiate(p: Floats, stride: Size, keys: Size, maximum: Floats, sum: Floats, correction: Floats) -> None:
    """P^T = 2^(P^T - maximum) and its sum, for VL queries; correction is the maximum before this block of keys."""
    highest = v_load(maximum)
    factor = v_exp2(v_sub(v_load(correction), highest))
    v_store(correction, factor)
    total = v_mul(v_load(sum), factor)
    for _ in range(keys):
        x = v_exp2(v_sub(v_load(p), highest))
        v_store(p, x)
        total = v_add(total, x)
        p += stride
    v_store(sum, total)


@helper
def add_values(call: Attention, p: Floats, context: Floats, correction: Floats, key: Size, keys: Size, n: Size,
               nv: Size) -> None:
    """O = correction O + P V"""
    tiles = (n + MR - 1) // MR
    e = call.e
    for column in range(0, e, NR):
        v = call.v + key * call.v_stride + column
        row = 0
        for i in range(tiles):
            next_row = n * (i + 1) // tiles
            factor = correction + row if key else null()
            context_tile(next_row - row, min(e - column, NR) // VL, keys, p + row, nv * VL, v, call.v_stride,
                         context + row * e + column, e, factor)
            row = next_row


@helper
def store_context(call: Attention, context: Floats, sum: Floats, t: Size, n: Size) -> None:
    """out = O / l"""
    for i in range(n):
        scale = v_div(v_set1(1.0), v_set1(sum[i]))
        out = call.out + (t + i) * call.out_stride
        for j in range(0, call.e, VL):
            v_store(out + j, v_mul(v_load(context + i * call.e + j), scale))

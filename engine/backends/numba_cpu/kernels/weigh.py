"""Compute the attention weights of one head of one sequence, and their entropy; weigh.pxi explains it."""

from __future__ import annotations

import numpy as np

from ...cpu.native.layout import KEYS, QUERIES
from ..compiler.compiling import helper
from ..compiler.pointers import null
from ..compiler.structs import Attention, Block, Float, Floats, Keys, Scratch, Size
from ..compiler.vector import (
    transpose,
    v_add,
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
from ..target import NR, VL
from .attention import compute_scores, cut, cut_block, load_queries
from .elementwise import natural_logarithm, v_exp2
from .relative import multiply_terms

LN_2 = np.float32(0.6931471805599453)
ZERO, ONE = np.float32(0.0), np.float32(1.0)


def weigh(call: Attention, weights: Floats, stride: Size, entropy: Floats, scratch: Floats) -> None:
    """Compute weights[T,S] = softmax(scores) and their entropy[T]; either may be NULL."""
    s = cut(call, scratch)
    for t in range(0, call.T, QUERIES):
        for i in range((min(call.T - t, QUERIES) + NR - 1) // NR):
            b = cut_block(call, t, i, scratch)
            load_queries(call, b, s.bias)
            for j in range(b.nv):
                v_store(b.context + j * VL, v_set1(0.0))    # for the entropy; see weigh_keys
            weigh_block(call, s, b, weights, stride)
            store_rows(call, b, weights, stride, entropy)


@helper
def weigh_block(call: Attention, s: Scratch, b: Block, weights: Floats, stride: Size) -> None:
    """Find the maximum of each query's scores; in a second pass, compute the powers of two and their sums.

    The scores are computed in both passes, so that no row of them is kept. They are blocks P^T [KEYS][W] of W queries.
    """
    last = min(call.S, b.t + b.n - 1 + call.high)
    for second_pass in (False, True):
        for key in range(max(0, b.t + call.low), last, KEYS):
            keys = Keys(key, min(last, key + KEYS), call.v, null())
            terms = multiply_terms(call, s, b.t, b.n, keys)
            compute_scores(call, s, terms, b, keys)
            if second_pass:
                weigh_keys(s, b, keys, weights, stride)


@helper
def weigh_keys(s: Scratch, b: Block, keys: Keys, weights: Floats, stride: Size) -> None:
    """Turn scores P^T into powers of two, add them to the sums, and store a row for each query if weights are wanted.

    b.context, unused otherwise, holds the sum of p (score - maximum) of each query for its entropy; s.bias is a tile.
    """
    zero = v_set1(0.0)
    for row in range(0, keys.last - keys.first, VL):
        rows = min(keys.last - keys.first - row, VL)
        for j in range(b.nv):
            maximum, sum, product = v_load(b.maximum + j * VL), v_load(b.sum + j * VL), v_load(b.context + j * VL)
            for r in range(VL):
                v_store(s.bias + r * VL, zero)
            for r in range(rows):
                x = v_load(s.p + ((row + r) * b.nv + j) * VL)
                hidden = v_equal(x, v_set1(-np.inf))
                x = v_select(hidden, zero, v_sub(x, maximum))
                p = v_select(hidden, zero, v_exp2(x))
                sum = v_add(sum, p)
                product = v_fma(p, x, product)
                v_store(s.bias + r * VL, p)
            v_store(b.sum + j * VL, sum)
            v_store(b.context + j * VL, product)
            if weights:
                transpose(s.bias, VL, s.bias)
                for i in range(min(b.n - j * VL, VL)):
                    out = weights + ((b.t + j * VL + i) * stride + keys.first + row)
                    v_storen(out, v_load(s.bias + i * VL), rows)


@helper
def store_rows(call: Attention, b: Block, weights: Floats, stride: Size, entropy: Floats) -> None:
    """Divide the rows of weights by their sums, with zeros outside the band, and store the entropies."""
    first = min(max(0, b.t + call.low), call.S)
    last = max(first, min(call.S, b.t + b.n - 1 + call.high))
    for i in range(b.n):
        total = b.sum[i]
        empty = total == 0
        if entropy:
            nats = ZERO if empty else natural_logarithm(total) - b.context[i] * LN_2 / total
            entropy[b.t + i] = ZERO if nats < 0 else nats
        if weights:
            row = weights + (b.t + i) * stride
            fill(row, first, ZERO, clear=True)
            fill(row + first, last - first, ZERO if empty else ONE / total, clear=False)
            fill(row + last, call.S - last, ZERO, clear=True)


@helper
def fill(row: Floats, n: Size, scale: Float, clear: bool) -> None:
    """Set n numbers to zero if `clear`, or multiply them by the scale."""
    for i in range(0, n, VL):
        width = min(n - i, VL)
        v_storen(row + i, v_set1(0.0) if clear else v_mul(v_loadn(row + i, width), v_set1(scale)), width)

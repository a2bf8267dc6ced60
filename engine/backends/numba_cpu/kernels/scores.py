"""Change a block of scores P^T [keys][W] between the two GEMMs of attention; see scores.pxi."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from ..compiler.compiling import helper, inline
from ..compiler.structs import Attention, Block, Bytes, Floats, Keys, Scratch, Size, Terms, Vector
from ..compiler.vector import (
    transpose,
    v_abs,
    v_add,
    v_and,
    v_div,
    v_fma,
    v_iota,
    v_less,
    v_load,
    v_load_mask,
    v_loadn,
    v_max,
    v_min,
    v_mul,
    v_or,
    v_scale,
    v_select,
    v_set1,
    v_store,
    v_sub,
    v_sum,
    with_parameters,
)
from ..target import VL
from .elementwise import ROUNDER, pair
from .relative import load_terms, load_transposed

LOG2_E = np.float32(1.4426950408889634)
ONE = np.float32(1.0)


@inline
def changes_scores(call: Attention) -> bool:
    """Return True if relative positions, soft-capping, a bias or a score function changes the scores."""
    return call.softcap != 0 or bool(call.bias) or bool(call.score_mod) or bool(call.relative)


@inline
def v_tanh(x: Vector) -> Vector:
    """Return (e^y - 1) / (e^y + 1) with x's sign, y = 2|x|; the numerator is 2^n (2^r - 1) + (2^n - 1)."""
    rounder = v_set1(ROUNDER)
    y = v_mul(v_min(v_set1(10.0), v_abs(x)), v_set1(2.8853901))      # 2|x| log2 e = n + r; tanh 10 rounds to 1
    z = v_add(y, rounder)
    r = v_sub(y, v_sub(z, rounder))
    r2 = v_mul(r, r)
    power = v_scale(v_set1(1.0), z)
    q = v_fma(pair(1.3390735e-3, 1.5403512e-4, r), r2, pair(5.5503573e-2, 9.618238e-3, r))
    q = v_fma(q, r2, pair(6.931472e-1, 2.4022649e-1, r))
    numerator = v_fma(v_mul(q, r), power, v_sub(power, v_set1(1.0)))
    return v_or(v_div(numerator, v_add(numerator, v_set1(2.0))), v_and(x, v_set1(-0.0)))


@helper
def load_bias(call: Attention, t: Size, n: Size, key: Size, keys: Size, tile: Floats) -> None:
    """Set lane i of tile[r] to bias[t + i, key + r], for n <= VL queries and keys <= VL; other lanes are zero."""
    bias = call.bias + (t * call.bias_t + key * call.bias_s)
    if call.bias_t == 1:        # a bias by distance: those of successive queries lie side by side
        for r in range(keys):
            v_store(tile + r * VL, v_loadn(bias + r * call.bias_s, n))
    elif call.bias_s == 1:
        load_transposed(bias, call.bias_t, n, keys, tile)
    else:
        for r in range(keys):
            v_store(tile + r * VL, v_set1(0.0))
            for i in range(n):
                tile[r * VL + i] = bias[i * call.bias_t + r * call.bias_s]


@helper
def load_mask(call: Attention, t: Size, n: Size, key: Size, keys: Size, tile: Floats, lanes: Bytes) -> None:
    """Set lane i of tile[r] to all ones if query t + i may see key + r, otherwise to zeros.

    lanes: scratch space of VL bytes.
    """
    mask = call.mask + (t * call.mask_t + key * call.mask_s)
    if call.mask_s == 1:
        for i in range(VL):
            v_store(tile + i * VL, v_load_mask(mask + i * call.mask_t, keys if i < n else 0))
        transpose(tile, VL, tile)
    else:
        for r in range(keys):
            for i in range(n):
                lanes[i] = mask[i * call.mask_t + r * call.mask_s]
            v_store(tile + r * VL, v_load_mask(lanes, n))


@inline
def revise(call: Attention, s: Scratch, terms: Terms, b: Block, keys: Keys, change: bool, hide: bool,
           edge: bool) -> None:
    """Change or hide the scores of a key block, or both.

    change: compute scores = c tanh((scores + terms) / c) + bias. hide: set scores that the mask hides to -inf, and
    update the maximum with the others. If `edge` is True, the block lies on the edge of the band, and scores outside
    the band are hidden too. Scores that were changed are multiplied by log2 e, for the softmax's powers of two.
    """
    cap, inverse = v_set1(call.softcap), v_set1(ONE / call.softcap)
    hidden, gain = v_set1(-np.inf), v_set1(LOG2_E if changes_scores(call) else ONE)
    for row in range(0, keys.last - keys.first, VL):
        rows = min(keys.last - keys.first - row, VL)
        for j in range(b.nv):
            lanes = min(b.n - j * VL, VL)
            if change and call.relative:
                load_terms(call, terms, b.t + j * VL, lanes, keys.first + row, rows, s.distant)
            if change and call.bias:
                load_bias(call, b.t + j * VL, lanes, keys.first + row, rows, s.bias)
            if hide and call.mask:
                load_mask(call, b.t + j * VL, lanes, keys.first + row, rows, s.visible, s.lanes)
            maximum = v_load(b.maximum + j * VL)
            query = v_add(v_iota(), v_set1(np.float32(j * VL)))     # counted from query b.t, and so is `key`
            for r in range(rows):
                place = s.p + ((row + r) * b.nv + j) * VL
                x = v_load(place)
                if change:
                    if call.relative:
                        x = v_add(x, v_load(s.distant + r * VL))
                    if call.softcap != 0:
                        x = v_mul(cap, v_tanh(v_mul(x, inverse)))
                    if call.bias:
                        x = v_add(x, v_load(s.bias + r * VL))
                if hide:
                    x = v_mul(gain, x)
                    if call.mask:
                        x = v_select(v_load(s.visible + r * VL), x, hidden)
                    if edge:
                        key = np.float32(keys.first + row + r - b.t)
                        x = v_select(v_less(v_set1(key - np.float32(call.low)), query), hidden, x)
                        x = v_select(v_less(v_set1(key - np.float32(call.high)), query), x, hidden)
                    maximum = v_max(maximum, x)
                v_store(place, x)
            if hide:
                v_store(b.maximum + j * VL, maximum)


@helper
def revise_scores(call: Attention, s: Scratch, terms: Terms, b: Block, keys: Keys, edge: bool) -> None:
    """Apply all changes to the scores of a key block, then the mask and the band. edge: whether the band hides any key.

    One pass changes and hides scores, unless a user's function comes between: it gets changed scores, and none hidden.
    """
    change = call.softcap != 0 or bool(call.bias) or bool(call.relative)
    if change and not call.score_mod:
        revise(call, s, terms, b, keys, change=True, hide=True, edge=edge)
        return
    if change:
        revise(call, s, terms, b, keys, change=True, hide=False, edge=edge)
    if call.score_mod:
        call_score_mod(call.score_mod, s.p, b.nv * VL, call.b, call.h, call.query + b.t, b.n, keys.first,
                       keys.last - keys.first, call.captured)
    revise(call, s, terms, b, keys, change=False, hide=True, edge=edge)


def _call_code(b: ir.IRBuilder, code: ir.Value, scores: ir.Value, stride: ir.Value, batch: ir.Value, head: ir.Value,
               query: ir.Value, n: ir.Value, key: ir.Value, keys: ir.Value, captured: ir.Value) -> ir.Value:
    """Emit a call of the C function at the address `code`."""
    args = [scores, stride, batch, head, query, n, key, keys, captured]
    kind = ir.FunctionType(ir.VoidType(), [arg.type for arg in args])
    return b.call(b.bitcast(code, kind.as_pointer()), args)


def _call_score_mod(typing: Any, *args: Any) -> Any:
    """Return the types of `call_score_mod`, and what emits its code, as Numba wants them of an intrinsic."""
    return types.void(*args), lambda context, b, sig, values: _call_code(b, *values)


call_score_mod = with_parameters(_call_score_mod, _call_code)
"""Call the user's score function, a ScoreMod of table.pxd, at the address `code`."""


@helper
def all_finite(v: Floats, v_stride: Size, rows: Size, e: Size) -> bool:
    """Return True if all values are finite: 0 x is 0 if x is finite and NaN if not.

    Four rows are added at a time, to hide the latency of the additions; the last row stands for rows that are missing.
    """
    zero = v_set1(0.0)
    sum0, sum1, sum2, sum3 = zero, zero, zero, zero
    for row in range(0, rows, 4):
        for column in range(0, e, VL):
            width = min(e - column, VL)
            x = v + (row * v_stride + column)
            sum0 = v_fma(v_loadn(x, width), zero, sum0)
            sum1 = v_fma(v_loadn(x + min(1, rows - 1 - row) * v_stride, width), zero, sum1)
            sum2 = v_fma(v_loadn(x + min(2, rows - 1 - row) * v_stride, width), zero, sum2)
            sum3 = v_fma(v_loadn(x + min(3, rows - 1 - row) * v_stride, width), zero, sum3)
    return v_sum(v_add(v_add(sum0, sum1), v_add(sum2, sum3))) == 0

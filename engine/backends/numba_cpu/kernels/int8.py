"""Compute the GEMM in 8-bit integers, y[M,N] = activation(a[M,K] w[N,K]^T + bias[N] + residual[M,N]); see int8.pxi.

Rows are rounded to codes from 0 to 255 over their own range, a[i,k] = low_i + step_i code[i,k]; `ranges`: (low, step).
Weights are integers with a scale for each column. Panels have NR = NV*VL columns; one product takes DOT steps.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from ..compiler.compiling import inline
from ..compiler.pointers import as_integers8, null
from ..compiler.structs import Code, Floats, Integers8, Linear, Output, Size, Vector
from ..compiler.vector import (
    emits,
    v_fma,
    v_iota,
    v_largest,
    v_less,
    v_load,
    v_loadn,
    v_max,
    v_min,
    v_mul,
    v_select,
    v_set1,
    v_sub,
    v_sum,
)
from ..target import DOT, DOT_MR, NR, VL
from . import dot
from .elementwise import IDENTITY, activate_rows
from .linear import place_of
from .tile import columns, dot_tile


@emits()
def store_codes(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> None:
    """Store VL codes to p: the integers nearest to the lanes of x."""
    dot.store_codes(b, p, x)


@inline
def row_part(x: Floats, i: Size, K: Size, rest: Vector) -> Vector:
    """Return VL entries of a row of K from entry i on; beyond the end of the row, return the entries of `rest`."""
    if i + VL <= K:
        return v_load(x + i)
    return v_select(v_less(v_iota(), v_set1(K - i)), v_loadn(x + i, K - i), rest)


def quantize(x: Floats, x_stride: Size, M: Size, K: Size, codes: Code, codes_stride: Size, first: Size,
             ranges: Floats) -> None:
    """Convert M rows of x to codes, each over its own range (low, step); a row that is not finite gets the step NaN.

    `probe` adds up 0 x, which is NaN if x is not finite. A step so small that 1 / step could overflow gives codes 0.
    """
    for row in range(M):
        to = codes + (first + row) * codes_stride
        least = v_set1(x[0])
        most, probe = least, v_set1(0.0)
        for i in range(0, K, VL):
            value = row_part(x, i, K, least)
            least, most = v_min(value, least), v_max(value, most)
            probe = v_fma(value, v_set1(0.0), probe)
        lowest = -v_largest(v_sub(v_set1(0.0), least))      # the smallest lane
        step = (v_largest(most) - lowest) / np.float32(255)
        ranges[2 * row], ranges[2 * row + 1] = lowest, step + v_sum(probe)
        low = v_set1(lowest)
        inverse = v_set1(np.float32(1) / step if step > np.float32(1e-30) else np.float32(0))
        for i in range(0, K, VL):
            value = v_mul(v_sub(row_part(x, i, K, v_set1(0.0)), low), inverse)
            store_codes(to + i, v_min(v_max(value, v_set1(0.0)), v_set1(255.0)))
        x += x_stride


def linear_int8(y: Linear, codes: Code, codes_stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output,
                panel: Size, last: Size) -> None:
    """Compute panels [panel, last) of y for M rows of codes.

    The outer loop is over panels, the inner loop over tiles of rows of nearly equal height. The depth is not divided.
    Each tile prefetches its share of the next panel (ahead).
    """
    tiles, depth = (M + DOT_MR - 1) // DOT_MR, (y.K + DOT - 1) // DOT       # depth: counted in DOT steps
    offsets = columns()
    ahead_step = (NR * DOT + tiles - 1) // max(tiles, 1)        # bytes: a tile's share of DOT steps of depth
    for p in range(panel, last):
        nv = min(y.N - p * NR, NR) // VL
        for j in range(nv):
            offsets[j] = place_of(p * NR + j * VL, out)
        w = as_integers8(y.panels) + p * NR * depth * DOT
        scale, sums, bias = y.scale + p * NR, y.sums + p * NR, y.bias + p * NR
        row = 0
        for i in range(tiles):
            next_row = M * (i + 1) // tiles
            extra = residual + row * out.stride if residual else null()
            ahead = w + (depth * NR * DOT + depth * NR * DOT * i // tiles)      # in the next panel
            target = out.data + row * out.stride
            dot_tile(next_row - row, nv, depth, codes + row * codes_stride, codes_stride, w, target,
                     out.stride, offsets, ranges + 2 * row, scale, sums, bias, extra, ahead, ahead_step)
            if y.activation != IDENTITY:        # then columns lie side by side
                activate_rows(y.activation, target + offsets[0], out.stride, next_row - row, nv * VL)
            row = next_row


def pack_int8(y: Linear, panels: Integers8, sums: Floats, column: Size, w: Integers8, n: Size) -> None:
    """Pack rows of w[n,K] from `column` on into zeroed panels [K/DOT][vector][DOT/4][VL][4]; store their sums."""
    depth = (y.K + DOT - 1) // DOT
    for i in range(n):
        c = column + i
        first = c // NR * NR
        width = min(y.N - first, NR)
        lane = panels + (first * depth * DOT + (c - first) // VL * VL * DOT + c % VL * 4)
        total = 0
        for k in range(y.K):
            lane[k // DOT * width * DOT + k % DOT // 4 * VL * 4 + k % 4] = w[i * y.K + k]
            total += w[i * y.K + k]
        sums[c] = np.float32(total)

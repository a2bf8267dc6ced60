"""Compute the GEMM of rows in 16-bit integers and weights of 8 bits; see integers.pxi.

A row is rounded to integers of 12 bits by its own step, a[i,k] = step_i code[i,k]; `ranges` has (0, step) of each.
Panels of NR columns lie as [K/2][columns][2] int8; tiles have up to MR rows and NV vectors of VL columns.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types

from ..compiler.compiling import inline
from ..compiler.emit import I32, VF, VI, fetch
from ..compiler.flow import repeat
from ..compiler.pointers import SIZE, as_integers8, on_stack, store
from ..compiler.structs import Floats, Integers8, Ints, Linear, Output, Shorts, Size, Vector
from ..compiler.vector import (
    emits,
    v_abs,
    v_add,
    v_fma,
    v_largest,
    v_load,
    v_loadn,
    v_max,
    v_mul,
    v_set1,
    v_store,
    v_sum,
    vector,
)
from ..target import MR, NR, VL
from .dot import nearest
from .elementwise import IDENTITY, activate_rows
from .integer_pairs import BLOCK_DEPTH, FETCHED, NO_SUM, SHORT, at, dot, load_pairs_of_bytes, pair
from .linear import place_of
from .tile import columns, tile_of

DEEPEST, INTEGER_ROWS = 4096, 64
"""The depth over which sums are exact in int32, and the rows whose sums are kept at a time."""
LARGEST_CODE = np.float32(2047)


def _sums(b: ir.IRBuilder, mr: int, nv: int, steps: ir.Value, codes: ir.Value, stride: ir.Value, w: ir.Value,
          totals: ir.Value) -> None:
    """Compute totals[mr][NR] = codes w, in int32, over weights [steps][nv*VL][2] in int8."""

    def step(values: list[ir.Value]) -> list[ir.Value]:
        a, w, *results = values
        fetch(b, at(b, w, SIZE(FETCHED)), locality=2)
        weights = [load_pairs_of_bytes(b, at(b, w, SIZE(j * 2 * VL))) for j in range(nv)]
        for i in range(mr):
            x = pair(b, at(b, a, b.mul(stride, SIZE(i)), SHORT))
            for j in range(nv):
                results[i * nv + j] = dot(b, results[i * nv + j], x, weights[j])
        return [at(b, a, SIZE(2), SHORT), at(b, w, SIZE(nv * 2 * VL)), *results]

    places = [at(b, totals, SIZE(i * NR + j * VL), I32) for i in range(mr) for j in range(nv)]
    for place, total in zip(places, repeat(b, steps, [codes, w, *[NO_SUM] * (mr * nv)], step)[2:], strict=True):
        store(b, place, total, align=4)


sum_bytes = tile_of(_sums)


@emits(vector)
def v_integers(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
    """Load VL int32 from p and convert them to floats."""
    return b.sitofp(b.load(p, typ=VI, align=4), VF)


@emits()
def store_shorts(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> None:
    """Round VL floats within the range of int16 to the nearest integers, and store them."""
    store(b, p, b.trunc(nearest(b, x), ir.VectorType(SHORT, VL)), align=2)


@inline
def inverse_step(x: Floats, K: Size, row: Floats) -> Vector:
    """Store (0, step) of the integers of a row of x, and return 1 / step, or 0 if that could overflow.

    `probe` adds up 0 x, which is NaN if x is not finite; then the step is NaN, too, and so are the row's results.
    """
    largest, probe = v_set1(0.0), v_set1(0.0)
    for i in range(0, K, VL):
        value = v_load(x + i) if i + VL <= K else v_loadn(x + i, K - i)
        largest = v_max(v_abs(value), largest)
        probe = v_fma(value, v_set1(0.0), probe)
    step = v_largest(largest) / LARGEST_CODE
    row[0], row[1] = np.float32(0), step + v_sum(probe)
    return v_set1(np.float32(1) / step if step > np.float32(1e-30) else np.float32(0))


@inline
def padded_depth(K: Size) -> Size:
    """Round the depth K up to whole steps, as rows and panels have it."""
    return (K + BLOCK_DEPTH - 1) // BLOCK_DEPTH * BLOCK_DEPTH


def to_integers(x: Floats, x_stride: Size, M: Size, K: Size, operands: Shorts, stride: Size, first: Size,
                ranges: Floats) -> None:
    """Round M rows of x, each by its own step, to integers, and complete the last step of depth with zeros."""
    end_of_vectors, padded = K // VL * VL, padded_depth(K)
    for row in range(M):
        codes, inverse = operands + (first + row) * stride, inverse_step(x, K, ranges + 2 * row)
        for i in range(0, padded, VL):
            value = v_load(x + i) if i < end_of_vectors else v_loadn(x + i, max(0, K - i))
            store_shorts(codes + i, v_mul(value, inverse))
        x += x_stride


all_totals = on_stack(types.int32, INTEGER_ROWS * NR)
all_results = on_stack(types.float32, INTEGER_ROWS * NR)


@inline
def sum_in_tiles(M: Size, nv: Size, steps: Size, codes: Shorts, stride: Size, b: Integers8, totals: Ints) -> None:
    """Compute totals[M][NR] = codes w, in tiles of rows of nearly equal height."""
    tiles = (M + MR - 1) // MR
    row = 0
    for i in range(tiles):
        next_row = M * (i + 1) // tiles
        sum_bytes(next_row - row, nv, steps, codes + row * stride, stride, b, totals + row * NR)
        row = next_row


@inline
def integer_results(y: Linear, codes: Shorts, stride: Size, M: Size, p: Size, nv: Size, results: Floats) -> None:
    """Compute results[M][NR], the products of M rows and panel p, not yet multiplied by the steps of the rows."""
    totals = all_totals()
    padded = padded_depth(y.K)
    b = as_integers8(y.panels) + p * NR * padded
    for k in range(0, padded, DEEPEST):
        sum_in_tiles(M, nv, min(padded - k, DEEPEST) // 2, codes + k, stride, b + k * nv * VL, totals)
        for i in range(M):
            for j in range(nv):
                at = i * NR + j * VL
                before = v_load(results + at) if k else v_set1(0.0)
                v_store(results + at, v_fma(v_integers(totals + at), v_load(y.scale + (p * NR + j * VL)), before))


def linear_integers(y: Linear, codes: Shorts, stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output,
                    panel: Size, last: Size) -> None:
    """Compute panels [panel, last) of y for M rows of integers."""
    results, offsets = all_results(), columns()
    for p in range(panel, last):
        nv = min(y.N - p * NR, NR) // VL
        for j in range(nv):
            offsets[j] = place_of(p * NR + j * VL, out)
        for first in range(0, M, INTEGER_ROWS):
            rows = min(M - first, INTEGER_ROWS)
            integer_results(y, codes + first * stride, stride, rows, p, nv, results)
            for i in range(rows):
                step = v_set1(ranges[2 * (first + i) + 1])
                for j in range(nv):
                    x = v_fma(step, v_load(results + (i * NR + j * VL)), v_load(y.bias + (p * NR + j * VL)))
                    place = (first + i) * out.stride + offsets[j]
                    if residual:
                        x = v_add(x, v_load(residual + place))
                    v_store(out.data + place, x)
            if y.activation != IDENTITY:        # then columns lie side by side
                activate_rows(y.activation, out.data + (first * out.stride + offsets[0]), out.stride, rows, nv * VL)


def pack_integers(y: Linear, panels: Integers8, sums: Floats, column: Size, w: Integers8, n: Size) -> None:
    """Pack the rows of w[n,K] into columns [column, column + n) of the panels, which the caller has zeroed.

    sums: stays as it is; it is an argument of the functions of all formats, and only int8 needs sums of weights.
    """
    for i in range(n):
        c = column + i
        first = c // NR * NR
        width = min(y.N - first, NR)
        to = panels + (first * padded_depth(y.K) + 2 * (c - first))
        for k in range(y.K):
            to[k // 2 * 2 * width + k % 2] = w[i * y.K + k]

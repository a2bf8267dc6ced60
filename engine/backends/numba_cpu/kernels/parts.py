"""Compute the GEMM of floats on AMX's tiles, each float the sum of two or three bfloat16 numbers; see parts.pxi.

Operands are stored as parts, in strips of 16 rows [K/32][part][16][16][2]. Weights stay floats in memory, in steps of
32 of the depth, [K/32][16][2][16] for 16 columns: numbers i and i + 16 of a step are a pair. They are split while the
tiles multiply. A block of sums has up to SIDE = 32 rows and columns.
"""

from __future__ import annotations

from typing import Any

from numba import types

from ..compiler.amx import SIDE, TILE_BYTES, add_part, clear_sums, store_sums
from ..compiler.compiling import apart, inline, stays_apart
from ..compiler.pointers import as_floats, on_stack
from ..compiler.structs import Bytes, Code, Double, Floats, Linear, Output, Size, Vector
from ..compiler.vector import (
    v_add,
    v_load,
    v_loadn,
    v_max,
    v_min,
    v_nearest,
    v_set1,
    v_store,
    v_sub,
    v_upper,
    v_zip_upper,
)
from ..target import LINE_BYTES, NR, TILE_ROWS, VL
from .elementwise import IDENTITY, activate_rows
from .linear import place_of
from .tiles import run_bfloat16_rounds

STEP_DEPTH, FRESH = 32, 24
"""The columns of depth that a step has, and the steps after which sums begin anew."""

STEP_BYTES = 3 * 2 * TILE_BYTES
"""The most bytes of the parts of the weights of a step: three parts of two tiles."""

ORDERS = {3: ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0)), 2: ((1, 0), (0, 0), (0, 1))}
"""The (part of operands, part of weights) of each product, for each number of parts; neighbours share a loaded part."""

LARGEST = float.fromhex("0x1.fefffep127")
"""The largest float that rounds to a finite bfloat16 number."""

parts_of_two_steps = on_stack(types.uint8, 2 * STEP_BYTES, align=LINE_BYTES)
sums_of_block = on_stack(types.float32, SIDE * SIDE, align=LINE_BYTES)


@inline
def v_cut(x: Vector) -> Vector:
    """Limit x to numbers that round to a finite bfloat16 number; NaN stays NaN."""
    return v_min(v_set1(LARGEST), v_max(v_set1(-LARGEST), x))


@inline
def split_in_three(to: Bytes, next_part: Size, low: Vector, high: Vector) -> None:
    """Write numbers i (low) and i + 16 (high) of an operand's step as pairs, in three parts `next_part` bytes apart."""
    low_part, high_part = v_nearest(v_cut(low)), v_nearest(v_cut(high))
    v_store(as_floats(to), v_zip_upper(low_part, high_part))
    low, high = v_sub(low, low_part), v_sub(high, high_part)
    low_part, high_part = v_nearest(low), v_nearest(high)
    v_store(as_floats(to + next_part), v_zip_upper(low_part, high_part))
    # At most 8 bits are left, which fit the third part.
    v_store(as_floats(to + 2 * next_part), v_zip_upper(v_sub(low, low_part), v_sub(high, high_part)))


@inline
def split_in_two(to: Bytes, next_part: Size, low: Vector, high: Vector) -> None:
    """Write numbers i (low) and i + 16 (high) of a step, operands or weights, as pairs: a line for each of two parts.

    The second part of NaN must be NaN. `v_nearest` adds to the bits of a float, which can make 0 of NaN.
    """
    low_part, high_part = v_nearest(v_cut(low)), v_nearest(v_cut(high))
    v_store(as_floats(to), v_zip_upper(low_part, high_part))
    low, high = v_sub(low, low_part), v_sub(high, high_part)
    # What both parts leave. low - low_rest is v_nearest(low), but NaN if low is NaN.
    low_rest, high_rest = v_sub(low, v_nearest(low)), v_sub(high, v_nearest(high))
    v_store(as_floats(to + next_part), v_zip_upper(v_sub(low, low_rest), v_sub(high, high_rest)))


@inline
def cut_in_three(to: Bytes, next_part: Size, low: Vector, high: Vector) -> None:
    """Write numbers i and i + 16 of a step of weights as pairs: a line for each of three parts, which hold all 24 bits.

    `v_zip_upper` cuts them, in 14 instructions; rounding takes 22, and each block of rows splits weights again.
    """
    for part in range(3):
        v_store(as_floats(to + part * next_part), v_zip_upper(low, high))
        low, high = v_sub(low, v_upper(low)), v_sub(high, v_upper(high))


def _split_weights(parts: int, columns: int) -> Any:
    """Return the function that splits lines [begin, end) of a step of weights, VL pairs a line, to [part][line]."""
    split, next_part = split_in_two if parts == 2 else cut_in_three, columns * TILE_BYTES

    @inline
    def split_weights(source: Floats, to: Bytes, begin: Size, end: Size) -> None:
        for line in range(begin, end):
            at = source + line * 2 * VL
            split(to + line * LINE_BYTES, next_part, v_load(at), v_load(at + VL))

    return split_weights


def _products(parts: int, rows: int, columns: int, i: int = 0) -> Any:
    """Return the products of a step from the i-th one on, each of which also splits some weights of the next step.

    The vectors are free while the tiles multiply, so it takes little time to split weights again for every block.
    """
    order = ORDERS[parts]
    (a_before, w_before), (part_of_a, part_of_w) = order[i - 1] if i else (None, None), order[i]
    add = add_part(rows, columns, part_of_a, part_of_w, loads_a=part_of_a != a_before, loads_w=part_of_w != w_before)
    lines, split_weights = columns * TILE_ROWS, _split_weights(parts, columns)
    begin, end = lines * i // len(order), lines * (i + 1) // len(order)

    @inline
    def multiply_and_split(a: Bytes, lower: Bytes, w: Bytes, source: Floats, to: Bytes) -> None:
        add(a, lower, w)
        split_weights(source, to, begin, end)

    if i + 1 == len(order):
        return multiply_and_split
    multiply_rest = _products(parts, rows, columns, i + 1)

    @inline
    def multiply_all(a: Bytes, lower: Bytes, w: Bytes, source: Floats, to: Bytes) -> None:
        multiply_and_split(a, lower, w, source, to)
        multiply_rest(a, lower, w, source, to)

    return multiply_all


def _block(parts: int, rows: int, columns: int) -> Any:
    """Return the function that computes the sums of a block of 1 or 2 tiles of rows and of columns over some steps.

    a, lower: the parts of the upper and of the lower rows. source: weights, floats in lines of two vectors. of_steps:
    memory for the parts of the weights of two steps, of which one is multiplied while the next one is split.
    """
    clear, store, lines = clear_sums(rows, columns), store_sums(rows, columns), columns * TILE_ROWS
    split_weights, multiply_step = _split_weights(parts, columns), _products(parts, rows, columns)

    @apart
    def multiply_block(sums: Floats, steps: Size, a: Bytes, lower: Bytes, source: Floats, of_steps: Bytes) -> None:
        stays_apart()
        w, to = of_steps, of_steps + STEP_BYTES
        split_weights(source, w, 0, lines)
        clear()
        for step in range(1, steps + 1):
            if step < steps:        # the last step has no next one, and is split again
                source += lines * 2 * VL
            multiply_step(a, lower, w, source, to)
            a += parts * TILE_BYTES
            lower += parts * TILE_BYTES
            w, to = to, w
        store(sums)

    return multiply_block


def _any_block(parts: int) -> Any:
    """Return the function that computes the sums of a block of up to 32 rows and 1 or 2 tiles of columns."""
    small, wide, tall, full = (_block(parts, rows, columns) for rows in (1, 2) for columns in (1, 2))

    @inline
    def multiply_any_block(rows: Size, columns: Size, sums: Floats, steps: Size, a: Bytes, lower: Bytes, source: Floats,
                           of_steps: Bytes) -> None:
        if rows > TILE_ROWS:
            if columns == 2:
                full(sums, steps, a, lower, source, of_steps)
            else:
                tall(sums, steps, a, lower, source, of_steps)
        elif columns == 2:
            wide(sums, steps, a, lower, source, of_steps)
        else:
            small(sums, steps, a, lower, source, of_steps)

    return multiply_any_block


@inline
def finish_rows(y: Linear, residual: Floats, out: Output, sums: Floats, column: Size, columns: Size, row: Size,
                rows: Size, initial: bool, final: bool) -> None:
    """Add the sums of a slice of the depth to the results; `initial` adds the bias, `final` residual and activation."""
    for j in range(columns):
        place = place_of(column + j * VL, out) + row * out.stride
        for i in range(rows):
            at = place + i * out.stride
            before = v_load(y.bias + (column + j * VL) if initial else out.data + at)
            x = v_add(v_load(sums + (i * SIDE + j * VL)), before)
            if final and residual:
                x = v_add(x, v_load(residual + at))
            v_store(out.data + at, x)
        if final and y.activation != IDENTITY:
            activate_rows(y.activation, out.data + place, out.stride, rows, VL)


def _multiply(parts: int) -> Any:
    """Return the function that computes panels [panel, last) of y for M rows of the parts of floats in strips.

    The loops, from the outermost: slices of the depth; columns, whose weights stay in cache; blocks of rows.
    """
    multiply_any_block = _any_block(parts)

    @inline
    def multiply(y: Linear, a: Code, a_stride: Size, M: Size, residual: Floats, out: Output, panel: Size,
                 last: Size) -> None:
        all_steps = (y.K + STEP_DEPTH - 1) // STEP_DEPTH
        strip = a_stride * TILE_ROWS * parts * 2        # bytes of 16 rows
        of_steps, sums = parts_of_two_steps(), sums_of_block()
        for first in range(0, all_steps, FRESH):
            steps = min(all_steps - first, FRESH)
            initial, final = first == 0, first + steps == all_steps
            for column in range(panel * NR, min(y.N, last * NR), SIDE):
                width = min(y.N - column, SIDE)
                w = y.panels + (column * all_steps + first * width) * STEP_DEPTH
                for row in range(0, M, SIDE):
                    rows, upper = min(M - row, SIDE), a + (row // TILE_ROWS * strip + first * parts * TILE_BYTES)
                    multiply_any_block(rows, width // VL, sums, steps, upper, upper + strip, w, of_steps)
                    finish_rows(y, residual, out, sums, column, width // VL, row, rows, initial, final)

    return multiply


multiply_in_two, multiply_in_three = _multiply(2), _multiply(3)


def tiles_float32(y: Linear, a: Code, a_stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output,
                  panel: Size, last: Size) -> None:
    """Compute panels [panel, last) of y for M rows of the three parts of floats."""
    multiply_in_three(y, a, a_stride, M, residual, out, panel, last)


def tiles_two_parts(y: Linear, a: Code, a_stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output,
                    panel: Size, last: Size) -> None:
    """Compute panels [panel, last) of y for M rows of two parts of floats."""
    multiply_in_two(y, a, a_stride, M, residual, out, panel, last)


def _split_rows(parts: int) -> Any:
    """Return the function that splits M rows of x into the parts of operands in strips of 16 rows."""
    split = split_in_two if parts == 2 else split_in_three

    @inline
    def split_rows(x: Floats, x_stride: Size, M: Size, K: Size, operands: Code, operands_stride: Size,
                   first: Size) -> None:
        for row in range(first, first + M):
            to = operands + (row // TILE_ROWS * TILE_ROWS * operands_stride * parts * 2 + row % TILE_ROWS * LINE_BYTES)
            for i in range(0, K, STEP_DEPTH):       # zeros complete a step
                if i + STEP_DEPTH <= K:
                    split(to, TILE_BYTES, v_load(x + i), v_load(x + (i + VL)))
                else:
                    split(to, TILE_BYTES, v_loadn(x + i, K - i), v_loadn(x + (i + VL), K - i - VL))
                to += parts * TILE_BYTES
            x += x_stride

    return split_rows


rows_in_two, rows_in_three = _split_rows(2), _split_rows(3)


def to_parts(x: Floats, x_stride: Size, M: Size, K: Size, operands: Code, operands_stride: Size, first: Size,
             ranges: Floats) -> None:
    """Split M rows of x into the three parts of operands."""
    rows_in_three(x, x_stride, M, K, operands, operands_stride, first)


def to_two_parts(x: Floats, x_stride: Size, M: Size, K: Size, operands: Code, operands_stride: Size, first: Size,
                 ranges: Floats) -> None:
    """Split M rows of x into two parts of operands."""
    rows_in_two(x, x_stride, M, K, operands, operands_stride, first)


def pack_parts(y: Linear, panels: Floats, sums: Floats, column: Size, w: Floats, n: Size) -> None:
    """Pack the rows of w[n,K] into columns [column, column + n) of the panels, which the caller has zeroed."""
    # A panel is [step][width/16][16 pairs][2][16 columns]; numbers i and i + 16 of a step are pair i.
    steps = (y.K + STEP_DEPTH - 1) // STEP_DEPTH
    for i in range(column, column + n):
        first = i // SIDE * SIDE
        width = min(y.N - first, SIDE)
        start = panels + (first * steps * STEP_DEPTH + (i - first) // VL * VL * STEP_DEPTH + i % VL)
        for k in range(y.K):
            pair, half = k % VL, k % STEP_DEPTH // VL
            start[k // STEP_DEPTH * width * STEP_DEPTH + (pair * 2 + half) * VL] = w[k]
        w += y.K


def tile_rounds_float32(n: Size, sink: Floats) -> Double:
    """Run n rounds of products of tiles, and return their operations: six products of parts are one of floats."""
    return run_bfloat16_rounds(n, sink) / 6


def tile_rounds_two_parts(n: Size, sink: Floats) -> Double:
    """Run rounds as `tile_rounds_float32` does; three products of two parts are one of floats."""
    return run_bfloat16_rounds(n, sink) / 3

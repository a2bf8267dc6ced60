"""Compute the GEMM on AMX's tiles, in bfloat16, int8 and 16-bit integers, and prepare its inputs; see tiles.pxi.

Operands lie in strips of 16 rows, line by line: a line, 64 bytes of depth of the 16 rows, is a tile. Of 16-bit integers
a line is two tiles, upper bytes and lower bytes, which a block multiplies in the places of its upper and lower rows. A
block of sums has up to SIDE = 32 rows and 32 columns. VL = TILE_ROWS = 16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from ..compiler.amx import (
    OF_BFLOAT16,
    OF_INT8,
    OF_INT16,
    SIDE,
    TILE_BYTES,
    Numbers,
    add_round,
    add_step,
    clear_sums,
    clear_tiles,
    configure_tiles,
    release_tiles,
    store_sums,
    v_load_integers,
    v_load_joined,
)
from ..compiler.compiling import apart, inline, stays_apart
from ..compiler.pointers import as_bytes, as_integers8, on_stack
from ..compiler.structs import (
    NUMBA_TYPES,
    Bytes,
    Code,
    Double,
    Floats,
    Linear,
    Operands,
    Output,
    Size,
    TileBlock,
    Vector,
)
from ..compiler.vector import emits, fetch_near, v_add, v_fma, v_load, v_loadn, v_mul, v_set1, v_store
from ..target import LINE_BYTES, NR, TILE_ROWS, VL
from . import depth
from .bfloat16 import round_rows
from .elementwise import IDENTITY, activate_rows
from .int8 import quantize_rows
from .integers import DEEPEST, inverse_step, store_halves
from .linear import place_of
from .operands import start_of_row

two_blocks = on_stack(NUMBA_TYPES["TileBlock"].to, 2)
sums_of_two = on_stack(types.float32, 2 * SIDE * SIDE, align=LINE_BYTES)
fetch_lines = emits()(depth.fetch_lines)


def begin_tiles() -> None:
    """Make this thread ready for products on tiles."""
    configure_tiles()


def end_tiles() -> None:
    """Release what `begin_tiles` took."""
    release_tiles()


@inline
def bfloat16_result(block: TileBlock, column: Size, sums: Floats, row: Floats, out: Floats) -> Vector:
    """Return the sums of one row and VL columns, from `column` on, with the bias."""
    return v_add(v_load(sums), v_load(block.y.bias + column))


@inline
def int8_result(block: TileBlock, column: Size, sums: Floats, row: Floats, out: Floats) -> Vector:
    """Return the result that int8.pxi defines for the sums of VL columns and one row of codes; row: (low, step)."""
    y = block.y
    low = v_mul(v_set1(row[0]), v_load(y.sums + column))
    total = v_fma(v_set1(row[1]), v_load_integers(sums), low)
    return v_fma(total, v_load(y.scale + column), v_load(y.bias + column))


@inline
def int16_result(block: TileBlock, column: Size, sums: Floats, row: Floats, out: Floats) -> Vector:
    """Return the result that integers.pxi defines; out: where the sums of the depth before wait."""
    before = v_set1(0.0) if block.initial else v_load(out)
    total = v_fma(v_load_joined(sums), v_load(block.y.scale + column), before)
    return v_fma(v_set1(row[1]), total, v_load(block.y.bias + column)) if block.final else total


def _block(numbers: Numbers, tiles: int, rows: int, columns: int, work_between: Any) -> Any:
    """Return the function that computes the sums of a block of 1 or 2 tiles of rows and of columns.

    tiles: those of a line of operands; the second one, if any, takes the place of the lower rows. Each step of depth
    finishes height / steps rows of the block before; `due` is the part of a row that is due.
    """
    height = SIDE // tiles      # the most rows of a block
    clear, add, store = clear_sums(rows, columns), add_step(numbers, rows, columns), store_sums(rows, columns)

    @apart
    def multiply_block(block: TileBlock, before: TileBlock, steps: Size, a: Bytes, lower: Bytes, w: Bytes, ahead: Bytes,
                       ahead_step: Size) -> None:
        stays_apart()
        row = end = due = 0
        clear()
        for _ in range(steps):
            fetch_lines(ahead, ahead_step)
            ahead += ahead_step
            add(a, lower, w)
            a += tiles * TILE_BYTES
            lower += tiles * TILE_BYTES
            w += columns * TILE_BYTES
            due += height
            while due >= steps:
                due -= steps
                end += 1
            if row < end:
                work_between(block, before, row, end)
                row = end
        store(block.sums)

    return multiply_block


def product(numbers: Numbers, size: int, tiles: int, result: Callable[..., Vector]) -> Any:
    """Return the loops of a GEMM of operands with the first part of its epilogue.

    size: bytes of an operand in a tile. tiles: tiles of a line of operands. The loops, from the outermost: columns,
    whose weights stay in cache; blocks of rows. While tiles multiply for a block, vectors finish the block before.
    """

    @inline
    def finish_rows(block: TileBlock, first: Size, last: Size) -> None:
        y, out, residual, stride = block.y, block.out.data, block.residual, block.out.stride
        for i in range(first, last):
            for j in range(block.columns):
                at = (block.second_place if j else block.place) + i * stride
                column, sums = block.column + j * VL, block.sums + (i * SIDE + j * VL)
                x = result(block, column, sums, block.ranges + 2 * i, out + at)
                if residual and block.final:
                    x = v_add(x, v_load(residual + at))
                v_store(out + at, x)
        if y.activation != IDENTITY and first < last and block.final:       # then columns lie side by side
            activate_rows(y.activation, out + (block.place + first * stride), stride, last - first, block.columns * VL)

    @apart
    def work_between(block: TileBlock, before: TileBlock, first: Size, last: Size) -> None:
        """Prefetch the results of rows [first, last) of a block, and finish these rows of the block before."""
        stays_apart()
        out, stride = block.out.data, block.out.stride
        for row in range(first, min(last, block.rows)):
            for j in range(block.columns):
                fetch_near(out + ((block.second_place if j else block.place) + row * stride))
        finish_rows(before, first, min(last, before.rows))

    height, line = SIDE // tiles, tiles * TILE_BYTES
    small, wide = (_block(numbers, tiles, tiles, columns, work_between) for columns in (1, 2))      # up to 16 rows
    tall, full = (_block(numbers, tiles, 2, columns, work_between) for columns in (1, 2))

    @inline
    def multiply_tiles(y: Linear, a: Bytes, a_stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output,
                       panel: Size, last_panel: Size, first: Size, most: Size) -> None:
        """Compute panels [panel, last_panel) of y over at most `most` lines of the depth, from line `first` on."""
        lines, strip = (y.K * size + LINE_BYTES - 1) // LINE_BYTES, a_stride * tiles * size * TILE_ROWS
        steps, blocks = min(lines - first, most), (M + height - 1) // height
        pair, sums, number = two_blocks(), sums_of_two(), 0
        for i in range(2):
            block = pair + i
            block.y, block.residual, block.out = y, residual, out
            block.sums, block.rows = sums + i * SIDE * SIDE, 0      # no rows: nothing to finish during the first block
            block.initial, block.final = first == 0, first + steps == lines
        for column in range(panel * NR, min(y.N, last_panel * NR), SIDE):
            width = min(y.N - column, SIDE)
            w = as_bytes(y.panels) + (column * lines + first * width) * LINE_BYTES
            bytes_of_columns = width * steps * LINE_BYTES
            ahead_step = (width * LINE_BYTES + blocks - 1) // max(blocks, 1)
            place, second_place = place_of(column, out), place_of(column + VL, out)
            for i in range(blocks):
                row, block, before = i * height, pair + number % 2, pair + (number + 1) % 2     # two blocks take turns
                block.column, block.columns, block.rows = column, width // VL, min(M - row, height)
                block.place, block.second_place = place + row * out.stride, second_place + row * out.stride
                block.ranges = ranges + 2 * row
                upper = a + (row // TILE_ROWS * strip + first * line)
                lower = upper + (TILE_BYTES if tiles == 2 else strip)       # the lower bytes, or the next 16 rows
                ahead = w + (width * lines * LINE_BYTES + bytes_of_columns // blocks * i)   # in the next columns
                if block.rows > TILE_ROWS:
                    if block.columns == 2:
                        full(block, before, steps, upper, lower, w, ahead, ahead_step)
                    else:
                        tall(block, before, steps, upper, lower, w, ahead, ahead_step)
                elif block.columns == 2:
                    wide(block, before, steps, upper, lower, w, ahead, ahead_step)
                else:
                    small(block, before, steps, upper, lower, w, ahead, ahead_step)
                number += 1
        block = pair + (number + 1) % 2
        finish_rows(block, 0, block.rows)

    return multiply_tiles


multiply_bfloat16 = product(OF_BFLOAT16, size=2, tiles=1, result=bfloat16_result)
multiply_int8 = product(OF_INT8, size=1, tiles=1, result=int8_result)
multiply_int16 = product(OF_INT16, size=1, tiles=2, result=int16_result)


def tiles_bfloat16(y: Linear, a: Code, a_stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output,
                   panel: Size, last: Size) -> None:
    """Compute panels [panel, last) of y for M rows of bfloat16 operands in strips."""
    multiply_bfloat16(y, a, a_stride, ranges, M, residual, out, panel, last, 0, y.K)        # at most K lines: all


def tiles_int8(y: Linear, a: Code, a_stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output, panel: Size,
               last: Size) -> None:
    """Compute panels [panel, last) of y for M rows of codes in strips."""
    multiply_int8(y, a, a_stride, ranges, M, residual, out, panel, last, 0, y.K)        # at most K lines: all


def tiles_int16(y: Linear, a: Code, a_stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output, panel: Size,
                last: Size) -> None:
    """Compute panels [panel, last) of y for M rows of 16-bit integers in strips; sums begin anew after DEEPEST."""
    for first in range(0, (y.K + LINE_BYTES - 1) // LINE_BYTES, DEEPEST // LINE_BYTES):
        multiply_int16(y, a, a_stride, ranges, M, residual, out, panel, last, first, DEEPEST // LINE_BYTES)


def to_tiles(x: Floats, x_stride: Size, M: Size, K: Size, operands: Operands, operands_stride: Size, first: Size,
             ranges: Floats) -> None:
    """Round M rows of x to bfloat16 in strips of 16 rows."""
    round_rows(TILE_ROWS, x, x_stride, M, K, operands, operands_stride, first)


def quantize_to_tiles(x: Floats, x_stride: Size, M: Size, K: Size, codes: Code, codes_stride: Size, first: Size,
                      ranges: Floats) -> None:
    """Convert M rows of x to codes in strips of 16 rows."""
    quantize_rows(TILE_ROWS, x, x_stride, M, K, codes, codes_stride, first, ranges)


def integers_to_tiles(x: Floats, x_stride: Size, M: Size, K: Size, operands: Code, stride: Size, first: Size,
                      ranges: Floats) -> None:
    """Round M rows of x to 16-bit integers in strips of 16 rows, a tile of lower bytes behind each of upper bytes."""
    for row in range(M):
        start = operands + start_of_row(first + row, TILE_ROWS, 2 * stride, LINE_BYTES)
        inverse = inverse_step(x, K, ranges + 2 * row)
        for i in range(0, K, VL):
            value = v_load(x + i) if i + VL <= K else v_loadn(x + i, K - i)
            to = start + (i // LINE_BYTES * 2 * TILE_BYTES + i % LINE_BYTES)
            store_halves(to, to + TILE_BYTES, v_mul(value, inverse))
        x += x_stride


@inline
def pack_row(y: Linear, panels: Bytes, column: Size, w: Bytes, size: Size) -> None:
    """Put the weights of a column, a row w of `size` bytes, into tiles [size/64][2][16][16 columns][4 bytes]."""
    first, steps = column // SIDE * SIDE, (size + LINE_BYTES - 1) // LINE_BYTES
    step = min(y.N - first, SIDE) * LINE_BYTES      # bytes of all tiles of a step of depth
    start = panels + (first * steps * LINE_BYTES + column % SIDE // TILE_ROWS * TILE_BYTES + column % TILE_ROWS * 4)
    for i in range(size):
        start[i // LINE_BYTES * step + i % LINE_BYTES // 4 * LINE_BYTES + i % 4] = w[i]


def pack_tiles_bfloat16(y: Linear, panels: Code, sums: Floats, column: Size, w: Code, n: Size) -> None:
    """Pack the rows of w[n,K] into columns [column, column + n) of the panels, which the caller has zeroed."""
    for i in range(n):
        pack_row(y, panels, column + i, w + i * y.K * 2, y.K * 2)


def pack_tiles_int8(y: Linear, panels: Code, sums: Floats, column: Size, w: Code, n: Size) -> None:
    """Pack the rows of w[n,K] into columns [column, column + n) of the zeroed panels, and store the sums of columns."""
    for i in range(n):
        row, total = w + i * y.K, 0
        pack_row(y, panels, column + i, row, y.K)
        for k in range(y.K):
            total += as_integers8(row)[k]
        sums[column + i] = np.float32(total)


def _rounds(numbers: Numbers, size: int, tiles: int) -> Any:
    """Return a function that runs n rounds of independent products and returns their operations, to find the peak.

    sink keeps LLVM from dropping them. size, tiles: see `product`. A round: SIDE / tiles rows x SIDE columns x a line.
    """
    add, store, operations = add_round(numbers), store_sums(2, 2), 2.0 * SIDE // tiles * SIDE * LINE_BYTES // size

    @inline
    def run_rounds(n: Size, sink: Floats) -> Double:
        sums = sums_of_two()
        configure_tiles()
        clear_tiles()
        for _ in range(n):
            add()
        store(sums)
        release_tiles()
        sink[0] = sums[0]
        return operations * n

    return run_rounds


run_bfloat16_rounds, run_int8_rounds = _rounds(OF_BFLOAT16, size=2, tiles=1), _rounds(OF_INT8, size=1, tiles=1)
run_int16_rounds = _rounds(OF_INT16, size=1, tiles=2)


def tile_rounds_bfloat16(n: Size, sink: Floats) -> Double:
    """Run n rounds of products of bfloat16 tiles, and return their floating-point operations."""
    return run_bfloat16_rounds(n, sink)


def tile_rounds_int8(n: Size, sink: Floats) -> Double:
    """Run n rounds of products of int8 tiles, and return their integer operations."""
    return run_int8_rounds(n, sink)


def tile_rounds_int16(n: Size, sink: Floats) -> Double:
    """Run n rounds of products of both halves of 16-bit integers, and return the operations of the integers."""
    return run_int16_rounds(n, sink)

"""Generate AMX's tile instructions as LLVM code, as tiles.h does in C. A tile has 16 rows of 64 bytes.

A block of up to 2 by 2 tiles of sums has its upper row in tiles 0 and 1, its lower row in 2 and 3. Operands are in
tiles 4 (upper rows) and 5 (lower rows), weights in 6 and 7.

LLVM takes every one of these calls for an access to all memory. So it keeps them in order among themselves and among
loads and stores, and a thread's tiles keep their contents when it calls other code, because no other code uses tiles.
"""

from __future__ import annotations

import struct
from typing import Any

from llvmlite import ir
from numba.core.cgutils import global_constant

from ..target import LINE_BYTES, TILE_ROWS, VL
from .emit import VF, VI, call, load
from .pointers import BYTE, SIZE
from .vector import emits, vector

TILE_BYTES, SIDE = TILE_ROWS * LINE_BYTES, 2 * TILE_ROWS
"""SIDE: the most rows, and the most columns, of a block of sums."""

_SHAPES = struct.pack("<BB14x16H16B", 1, 0, *[LINE_BYTES] * 8, *[0] * 8, *[TILE_ROWS] * 8, *[0] * 8)
"""The configuration of a thread: palette 1, and all eight tiles of the full size."""

Numbers = tuple[str, str]
"""The instructions that multiply the upper tile of operands, and the lower one."""

OF_BFLOAT16, OF_INT8 = ("tdpbf16ps", "tdpbf16ps"), ("tdpbusd", "tdpbusd")
OF_INT16 = ("tdpbssd", "tdpbusd")
"""The upper tile has the upper bytes of 16-bit integers, which are signed; the lower tile the lower, unsigned ones."""

_LOAD, _STREAM = "tileloadd64", "tileloaddt164"
"""Loads of a tile. _STREAM leaves no copy in the L1 cache, from which operands and weights would drive the sums."""


def _run(b: ir.IRBuilder, instruction: str, *args: ir.Value | int) -> None:
    """Emit a tile instruction; an int is the number of a tile."""
    call(b, f"llvm.x86.{instruction}", ir.VoidType(), *(BYTE(arg) if isinstance(arg, int) else arg for arg in args))


def _add_products(b: ir.IRBuilder, numbers: Numbers, row: int, column: int) -> None:
    """Multiply a tile of operands by a tile of weights, and add the products to the sums of this row and column."""
    _run(b, numbers[row], 2 * row + column, 4 + row, 6 + column)


def _sums_at(b: ir.IRBuilder, pointer: ir.Value, row: int, column: int) -> ir.Value:
    """Return the address of a tile of sums, by its row and its column of tiles, in floats [SIDE][SIDE]."""
    floats = row * TILE_ROWS * SIDE + column * TILE_ROWS
    return b.gep(pointer, [SIZE(4 * floats)], source_etype=BYTE)


@emits()
def configure_tiles(b: ir.IRBuilder) -> None:
    """Make this thread's tiles usable."""
    shapes = ir.Constant(ir.ArrayType(BYTE, len(_SHAPES)), bytearray(_SHAPES))
    _run(b, "ldtilecfg", global_constant(b.module, "shapes", shapes))


@emits()
def release_tiles(b: ir.IRBuilder) -> None:
    """Release this thread's tiles, so that the operating system need not save them."""
    _run(b, "tilerelease")


def clear_sums(rows: int, columns: int) -> Any:
    """Return an intrinsic that sets the sums of a block to zero; rows and columns, here and below, count tiles."""

    @emits()
    def clear(b: ir.IRBuilder) -> None:
        for row in range(rows):
            for column in range(columns):
                _run(b, "tilezero", 2 * row + column)

    return clear


def add_step(numbers: Numbers, rows: int, columns: int) -> Any:
    """Return an intrinsic that adds the products of 64 bytes of depth to the sums of a block.

    Its arguments are the upper tile of operands, which it loads to tile 4, the lower one (5), and weights (6 and 7).
    """

    @emits()
    def add(b: ir.IRBuilder, upper: ir.Value, lower: ir.Value, weights: ir.Value) -> None:
        line = SIZE(LINE_BYTES)
        _run(b, _STREAM, 4, upper, line)
        _run(b, _STREAM, 6, weights, line)
        _add_products(b, numbers, 0, 0)
        if columns == 2:
            _run(b, _STREAM, 7, b.gep(weights, [SIZE(TILE_BYTES)], source_etype=BYTE), line)
            _add_products(b, numbers, 0, 1)
        if rows == 2:
            _run(b, _STREAM, 5, lower, line)
            for column in range(columns):
                _add_products(b, numbers, 1, column)

    return add


def add_part(rows: int, columns: int, a: int, w: int, loads_a: bool, loads_w: bool) -> Any:
    """Return an intrinsic that adds the products of part a of operands and part w of weights to the sums of a block.

    Its arguments are those of `add_step`. The parts of a tile of operands lie one behind the other, and so do those of
    the weights of a step. loads_a, loads_w: False if the product before has loaded these tiles.
    """

    @emits()
    def add(b: ir.IRBuilder, upper: ir.Value, lower: ir.Value, weights: ir.Value) -> None:
        def load_tile(tile: int, pointer: ir.Value, index: int) -> None:
            _run(b, _LOAD, tile, b.gep(pointer, [SIZE(index * TILE_BYTES)], source_etype=BYTE), SIZE(LINE_BYTES))

        for row in range(rows if loads_a else 0):
            load_tile(4 + row, (upper, lower)[row], a)
        for column in range(columns if loads_w else 0):
            load_tile(6 + column, weights, w * columns + column)
        for row in range(rows):
            for column in range(columns):
                _add_products(b, OF_BFLOAT16, row, column)

    return add


def store_sums(rows: int, columns: int) -> Any:
    """Return an intrinsic that stores the sums of a block to floats [SIDE][SIDE]."""

    @emits()
    def store(b: ir.IRBuilder, sums: ir.Value) -> None:
        for row in range(rows):
            for column in range(columns):
                _run(b, "tilestored64", 2 * row + column, _sums_at(b, sums, row, column), SIZE(4 * SIDE))

    return store


def add_round(numbers: Numbers) -> Any:
    """Return an intrinsic that multiplies tiles in registers: the work of `add_step` on a full block, without loads."""

    @emits()
    def add(b: ir.IRBuilder) -> None:
        for row in range(2):
            for column in range(2):
                _add_products(b, numbers, row, column)

    return add


@emits()
def clear_tiles(b: ir.IRBuilder) -> None:
    """Set all tiles to zero."""
    for tile in range(8):
        _run(b, "tilezero", tile)


@emits(vector)
def v_load_integers(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
    """Load VL sums as integers, and convert them to float."""
    return b.sitofp(b.bitcast(load(b, p), VI), VF)


@emits(vector)
def v_load_joined(b: ir.IRBuilder, p: ir.Value) -> ir.Value:
    """Load VL sums of upper bytes, and those of lower bytes 16 rows below, join them, and convert them to float."""
    upper, lower = (b.bitcast(load(b, _sums_at(b, p, row, 0)), VI) for row in range(2))
    return b.sitofp(b.add(b.shl(upper, ir.Constant(VI, [8] * VL)), lower), VF)

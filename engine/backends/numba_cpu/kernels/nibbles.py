"""Compute the GEMM of rows in 8-bit integers and weights of 4 bits; see nibbles.pxi.

Each block of 32 numbers of a row has its own step, and codes from -127 to 127. Weights are from 0 to 15. A block
of a panel is [4][columns] words of 32 bits, eight weights of a column each, then its scales, or multipliers of INT4.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir

from ..compiler.compiling import inline
from ..compiler.emit import F32, I32, VF, VI, call, fetch, fma, splat
from ..compiler.flow import repeat
from ..compiler.pointers import BYTE, SIZE, as_floats, as_integers8, as_ints, as_shorts, store
from ..compiler.structs import Float, Floats, Int, Integers8, Linear, Shorts, Size
from ..compiler.vector import emits, v_abs, v_add, v_largest, v_load, v_loadn, v_max, v_mul, v_set1, v_sub, v_sum
from ..rows import ROWS
from ..target import INTEGERS, NR, VL
from .blocks import blocks_of
from .dot import nearest
from .elementwise import ROUNDER
from .embed import INT4, Q4_0, Q4_1
from .integer_pairs import BLOCK_DEPTH, FETCHED, NO_SUM, SCALE_BYTES, SHORTS, at, every, load_float16
from .integer_pairs import dot as dot_pairs
from .tile import tile_of

NIBBLE_ROWS = 4     # the most rows of a tile
GROUP_DEPTH, WEIGHT_BYTES, OFFSET_BYTES = 16, BLOCK_DEPTH // 2, 2
"""The depth of a group; the bytes of the weights, and of the offsets of INT4, of a block of one column."""
DEEPEST_OFFSETS, BESIDE_BLOCK = 4096, ROWS["codes"]["beside"]
"""The depth over which sums of offsets are exact; the bytes that a row has behind its int16 for each block."""
IN_PAIRS = INTEGERS == "vpmaddubsw"
"""Whether pairs of products are added in int16, so that a 32-bit lane holds two sums."""
BYTES_OF_VECTOR = ir.VectorType(BYTE, 4 * VL)
_ROUNDER = np.float32(ROUNDER)
_PRODUCTS = {8: "llvm.x86.avx2.pmadd.ub.sw", 16: "llvm.x86.avx512.pmaddubs.w.512"}


def _half(b: ir.IRBuilder, word: ir.Value, n: int) -> ir.Value:
    """Return the lower (n = 0) or the upper four bits of every byte."""
    return b.and_(b.lshr(word, every(4 * n)), every(0x0F0F0F0F))


def _dot(b: ir.IRBuilder, total: ir.Value, weights: ir.Value, codes: ir.Value) -> ir.Value:
    """Return total + the four products of each lane: the bytes of weights are unsigned, those of codes signed."""
    if INTEGERS == "vpdpbusd":
        return call(b, f"llvm.x86.avx512.vpdpbusd.{32 * VL}", VI, total, weights, codes)
    if IN_PAIRS:
        operands = [b.bitcast(x, BYTES_OF_VECTOR) for x in (weights, codes)]
        return b.bitcast(b.add(b.bitcast(total, SHORTS), call(b, _PRODUCTS[VL], SHORTS, *operands)), VI)
    for i in range(4):
        weight = b.and_(b.lshr(weights, every(8 * i)), every(255))
        total = b.add(total, b.mul(weight, b.ashr(b.shl(codes, every(24 - 8 * i)), every(24))))
    return total


def _factor(b: ir.IRBuilder, pointer: ir.Value, g: int) -> ir.Value:
    """Return the multipliers of group g, each in both int16 of its lane. A byte holds those of both groups."""
    both = b.zext(b.load(pointer, typ=ir.VectorType(BYTE, VL), align=1), VI)
    return b.mul(b.and_(b.lshr(both, every(4 * g)), every(15)), every(0x10001))


def _totals(b: ir.IRBuilder, starts: list[ir.Value], words: list[ir.Value], factors: list[ir.Value] | None,
            codes: Callable[[int, int], ir.Value]) -> list[ir.Value]:
    """Return the sums of a block for each row, added to `starts`.

    words: the four vectors of weights, eight of each column. factors: the multipliers of both groups, or None. codes(i,
    n): the codes 4n to 4n + 3 of row i in every lane. Without IN_PAIRS, weights are multiplied by their factor at once;
    otherwise sums in int16 (shorts) wait for the end of a group, or of a block without groups.
    """
    totals, shorts = starts, [NO_SUM] * len(starts)
    for h, word in enumerate(words):
        for n in range(2):
            w = _half(b, word, n)
            if factors and not IN_PAIRS:        # two bytes at a time: 15 * 15 needs no carry
                w = b.bitcast(b.mul(b.bitcast(w, SHORTS), b.bitcast(factors[h // 2], SHORTS)), VI)
            sums = [_dot(b, x, w, codes(i, 2 * h + n)) for i, x in enumerate(shorts if IN_PAIRS else totals)]
            shorts, totals = (sums, totals) if IN_PAIRS else (shorts, sums)
        if IN_PAIRS and (h == 3 or (factors and h == 1)):
            factor = factors[h // 2] if factors else every(0x10001)     # 1 in both int16
            totals = [dot_pairs(b, total, short, factor) for total, short in zip(totals, shorts, strict=True)]
            shorts = [NO_SUM] * len(starts)
    return totals


def _tile(storage: int) -> Callable[..., None]:
    """Return the body of a tile of one vector of columns, whose weights are stored in these blocks."""
    grouped = storage == INT4

    def tile(b: ir.IRBuilder, mr: int, nv: int, blocks: ir.Value, width: ir.Value, codes: ir.Value,
             stride: ir.Value, steps: ir.Value, sums: ir.Value, weights: ir.Value, scales: ir.Value,
             results: ir.Value) -> None:
        """results[mr][NR] = the products of mr rows, without the scale of INT4 and without its offsets

        codes, steps, sums: of the first row; stride: bytes from one row to the next. weights, scales, results: those of
        the first column; scales: for INT4, its multipliers. width: the columns of the panel.
        """
        next_block = b.mul(width, SIZE(bytes_of_block.py_func(storage)))

        def of_row(pointer: ir.Value, i: int) -> ir.Value:
            return at(b, pointer, b.mul(stride, SIZE(i)))

        def block(values: list[ir.Value]) -> list[ir.Value]:
            a, steps_at, sums_at, w, scales_at, *sums = values
            fetch(b, at(b, w, SIZE(FETCHED)), locality=2)
            row_sums = [splat(b, b.load(of_row(sums_at, i), typ=I32, align=4)) for i in range(mr)]
            starts = [b.mul(x, every(-8)) if storage == Q4_0 else NO_SUM for x in row_sums]     # weights w - 8
            words = [b.load(at(b, w, b.mul(width, SIZE(4 * h))), typ=VI, align=1) for h in range(4)]
            factors = [_factor(b, scales_at, group) for group in range(2)] if grouped else None
            totals = _totals(b, starts, words, factors, lambda i, n: splat(
                b, b.load(at(b, of_row(a, i), SIZE(4 * n)), typ=I32, align=1)))
            scale = None if grouped else load_float16(b, scales_at)
            minimum = load_float16(b, at(b, scales_at, b.mul(width, SIZE(2)))) if storage == Q4_1 else None
            for i, total in enumerate(totals):
                y = b.sitofp(total, VF)
                if storage == Q4_1:
                    y = fma(b, y, scale, b.fmul(b.sitofp(row_sums[i], VF), minimum))
                elif not grouped:
                    y = b.fmul(y, scale)
                step = splat(b, b.load(of_row(steps_at, i), typ=F32, align=4))
                sums[i] = fma(b, step, y, sums[i])
            return [at(b, a, SIZE(BLOCK_DEPTH)), at(b, steps_at, SIZE(4)), at(b, sums_at, SIZE(4)),
                    at(b, w, next_block), at(b, scales_at, next_block), *sums]

        begin = [codes, steps, sums, weights, scales, *[ir.Constant(VF, [0.0] * VL)] * mr]
        for i, total in enumerate(repeat(b, blocks, begin, block)[5:]):
            store(b, at(b, results, SIZE(4 * i * NR)), total, align=4)

    tile.__name__ = f"_nibbles{storage}"        # for the name of its LLVM function
    return tile


sum_int4 = tile_of(_tile(INT4), NIBBLE_ROWS, vectors=1)     # one vector of columns
sum_q4_0 = tile_of(_tile(Q4_0), NIBBLE_ROWS, vectors=1)
sum_q4_1 = tile_of(_tile(Q4_1), NIBBLE_ROWS, vectors=1)


@emits()
def store_bytes(b: ir.IRBuilder, p: ir.Value, x: ir.Value) -> None:
    """Round VL floats within the range of int8 to the nearest integers, and store them."""
    store(b, p, b.trunc(nearest(b, x), ir.VectorType(BYTE, VL)), align=1)


@inline
def bytes_of_block(storage: Int) -> Size:
    """Return the bytes of a block of one column in a panel: weights, and multipliers, a scale, or scale and minimum."""
    return WEIGHT_BYTES + (1 if storage == INT4 else SCALE_BYTES if storage == Q4_0 else 2 * SCALE_BYTES)


@inline
def stored_bytes(storage: Int) -> Size:
    """Return the bytes of a block as it is stored, where the offsets of INT4 are a part of it."""
    return bytes_of_block(storage) + (OFFSET_BYTES if storage == INT4 else 0)


@inline
def codes_of(row: Shorts, blocks: Size) -> Integers8:
    """Return the codes of a row of operands."""
    return as_integers8(row) + 2 * BLOCK_DEPTH * blocks


@inline
def groups_of(row: Shorts, blocks: Size) -> Shorts:
    """Return the sums of groups of a row of operands."""
    return as_shorts(codes_of(row, blocks) + (BLOCK_DEPTH + 8) * blocks)


@inline
def round_blocks(x: Floats, K: Size, row: Shorts, row_step: Float) -> None:
    """Round a row to codes; row_step: the step of the sums of its groups, NaN for a row that is not finite."""
    blocks = blocks_of(K)
    codes, groups = codes_of(row, blocks), groups_of(row, blocks)
    steps, sums = as_floats(codes + BLOCK_DEPTH * blocks), as_ints(codes + (BLOCK_DEPTH + 4) * blocks)
    if row_step != row_step:        # NaN
        for i in range(BESIDE_BLOCK * blocks):
            codes[i] = np.int8(0)
        for b in range(blocks):
            steps[b] = row_step
        return
    rounder = v_set1(_ROUNDER)
    inverse_row_step = np.float32(1) / row_step if row_step > np.float32(1e-30) else np.float32(0)
    for b in range(blocks):
        largest = v_set1(0.0)
        for i in range(b * BLOCK_DEPTH, (b + 1) * BLOCK_DEPTH, VL):
            value = v_load(x + i) if K - i >= VL else v_loadn(x + i, max(K - i, 0))
            largest = v_max(v_abs(value), largest)
        top = v_largest(largest)
        step = top * np.float32(1 / 127)
        inverse = v_set1(np.float32(127) / top if step > np.float32(1e-30) else np.float32(0))
        steps[b], total = step, np.float32(0)       # total: of the codes of the block
        for g in range(2):
            of_group, begin = v_set1(0.0), b * BLOCK_DEPTH + g * GROUP_DEPTH
            for i in range(begin, begin + GROUP_DEPTH, VL):
                value = v_load(x + i) if K - i >= VL else v_loadn(x + i, max(K - i, 0))
                value = v_mul(value, inverse)
                store_bytes(codes + i, value)
                of_group = v_add(of_group, v_sub(v_add(value, rounder), rounder))
            group = v_sum(of_group)     # of its codes; _ROUNDER rounds their sum in steps of the row
            total += group
            groups[2 * b + g] = np.int16((group * (step * inverse_row_step) + _ROUNDER) - _ROUNDER)
        sums[b] = np.int32(total)


@inline
def add_blocks(storage: Int, blocks: Size, width: Size, a: Shorts, stride: Size, M: Size, panel: Integers8,
               results: Floats) -> None:
    """results[M][NR] = the products of M rows, `stride` int16 apart, and a panel, in tiles of nearly equal height."""
    tiles = (M + NIBBLE_ROWS - 1) // NIBBLE_ROWS
    row = 0
    for i in range(tiles):
        n = M * (i + 1) // tiles - row
        codes, to = codes_of(a + row * stride, blocks), results + row * NR
        steps, sums = as_floats(codes + BLOCK_DEPTH * blocks), as_ints(codes + (BLOCK_DEPTH + 4) * blocks)
        for c in range(0, width, VL):
            words, scales = panel + 4 * c, panel + WEIGHT_BYTES * width + (c if storage == INT4 else SCALE_BYTES * c)
            if storage == INT4:
                sum_int4(n, 1, blocks, width, codes, 2 * stride, steps, sums, words, scales, to + c)
            elif storage == Q4_0:
                sum_q4_0(n, 1, blocks, width, codes, 2 * stride, steps, sums, words, scales, to + c)
            else:
                sum_q4_1(n, 1, blocks, width, codes, 2 * stride, steps, sums, words, scales, to + c)
        row += n


@inline
def pack_nibbles(y: Linear, panel: Integers8, width: Size, c: Size, row: Integers8) -> None:
    """Put a stored row into column c of a panel of this width.

    A stored block of INT4 begins with weights, 2i and 2i + 1 in a byte; one of GGUF with scales, and then i and i + 16.
    """
    size, blocks = bytes_of_block(y.storage), blocks_of(y.K)
    offsets, scale_bytes = panel + size * width * blocks, size - WEIGHT_BYTES
    for k in range(blocks):
        for h in range(4):
            for i in range(4):
                low, high = 8 * h + i, 8 * h + 4 + i        # the two weights of byte i of word h
                if y.storage == INT4:
                    w_low, w_high = row[low // 2] >> 4 * (low % 2), row[high // 2] >> 4 * (high % 2)
                else:
                    w_low = row[scale_bytes + low % WEIGHT_BYTES] >> 4 * (low // WEIGHT_BYTES)
                    w_high = row[scale_bytes + high % WEIGHT_BYTES] >> 4 * (high // WEIGHT_BYTES)
                panel[(h * width + c) * 4 + i] = np.int8((w_low & 15) | (w_high & 15) << 4)
        if y.storage == INT4:
            panel[WEIGHT_BYTES * width + c] = row[WEIGHT_BYTES]         # both multipliers
            for i in range(OFFSET_BYTES):
                offsets[(k * width + c) * OFFSET_BYTES + i] = row[size + i]
        else:
            for i in range(scale_bytes):        # [scale, minimum][width] float16
                panel[WEIGHT_BYTES * width + (i // 2 * width + c) * 2 + i % 2] = row[i]
        row += stored_bytes(y.storage)
        panel += size * width

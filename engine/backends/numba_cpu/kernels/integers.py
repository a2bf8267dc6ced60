"""Compute the GEMM of rows in 16-bit integers and weights of 8 or 4 bits; see integers.pxi."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..compiler.compiling import inline
from ..compiler.emit import I32, VF, VI, fetch
from ..compiler.flow import repeat
from ..compiler.pointers import BYTE, SIZE, Pointer, as_integers8, as_ints, on_stack, store
from ..compiler.structs import Double, Floats, Integers8, Ints, Linear, Output, Shorts, Size
from ..compiler.vector import (
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
from ..target import MR, NR, NV, VL
from .blocks import block_bytes, block_results, pack_row_of_blocks
from .elementwise import IDENTITY, activate_rows
from .embed import INT4, INT8
from .integer_pairs import (
    FETCHED,
    GROUP,
    GROUPED,
    NO_SUM,
    SHORT,
    at,
    dot,
    every,
    load_pairs_of_bytes,
    nibble,
    pair,
)
from .roofline import in_rounds
from .tile import columns, tile_of

DEEPEST, WIDENED, INTEGER_ROWS, NIBBLE_ROWS = 4096, 256, 64, 4
LARGEST_CODE = np.float32(2047)
MAGIC = ir.Constant(VF, [12582912.0] * VL)


def _bytes_or_words(words: bool) -> Callable[..., None]:
    """Return the body of a tile that multiplies weights [steps][nv*VL][2] in int8, or in int16."""
    size = 4 if words else 2

    def column(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
        if words:
            return b.load(pointer, typ=VI, align=1)
        return load_pairs_of_bytes(b, pointer)

    def sums(b: ir.IRBuilder, mr: int, nv: int, steps: ir.Value, codes: ir.Value, stride: ir.Value, w: ir.Value,
             totals: ir.Value, adds: ir.Value) -> None:
        """totals[mr][NR] (+)= codes w"""
        places = [at(b, totals, SIZE(i * NR + j * VL), I32) for i in range(mr) for j in range(nv)]
        go_on = b.icmp_signed("!=", adds, SIZE(0))
        starts = [b.select(go_on, b.load(place, typ=VI, align=4), NO_SUM) for place in places]

        def step(values: list[ir.Value]) -> list[ir.Value]:
            a, w, *results = values
            fetch(b, at(b, w, SIZE(FETCHED)), 2)
            weights = [column(b, at(b, w, SIZE(j * size * VL))) for j in range(nv)]
            for i in range(mr):
                x = pair(b, at(b, a, b.mul(stride, SIZE(i)), SHORT))
                for j in range(nv):
                    results[i * nv + j] = dot(b, results[i * nv + j], x, weights[j])
            return [at(b, a, SIZE(2), SHORT), at(b, w, SIZE(nv * size * VL)), *results]

        for place, total in zip(places, repeat(b, steps, [codes, w, *starts], step)[2:], strict=True):
            store(b, place, total, 4)

    sums.__name__ = "_words" if words else "_bytes"
    return sums


sum_bytes = tile_of(_bytes_or_words(words=False))
sum_words = tile_of(_bytes_or_words(words=True))


def _nibbles(b: ir.IRBuilder, mr: int, nv: int, blocks: ir.Value, width: ir.Value, codes: ir.Value, stride: ir.Value,
             words: ir.Value, multipliers: ir.Value, totals: ir.Value) -> None:
    """totals[mr][NR] = sum over k of m q codes, for one vector of columns.

    words, multipliers and totals are those of its first column; width: the columns of the panel.
    """
    byte = ir.VectorType(BYTE, VL)
    between = b.mul(width, SIZE(4))

    def block(values: list[ir.Value]) -> list[ir.Value]:
        a, word_at, factors_at, *results = values
        fetch(b, at(b, word_at, SIZE(FETCHED)), 2)
        factors = b.zext(b.load(factors_at, typ=byte, align=1), VI)
        for g in range(2):
            sums = [NO_SUM] * mr
            for h in range(2):
                word = b.load(at(b, word_at, b.mul(between, SIZE(2 * g + h))), typ=VI, align=1)
                for n in range(4):
                    weights = nibble(b, word, n)
                    for i in range(mr):
                        x = at(b, at(b, a, b.mul(stride, SIZE(i)), SHORT), SIZE(g * GROUP + 8 * h + 2 * n), SHORT)
                        sums[i] = dot(b, sums[i], pair(b, x), weights)
            factor = nibble(b, factors, g)
            results = [b.add(result, b.mul(total, factor)) for result, total in zip(results, sums, strict=True)]
        step = b.mul(width, SIZE(17))
        return [at(b, a, SIZE(GROUPED), SHORT), at(b, word_at, step), at(b, factors_at, step), *results]

    begin = [codes, words, multipliers, *[NO_SUM] * mr]
    for i, total in enumerate(repeat(b, blocks, begin, block)[3:]):
        store(b, at(b, totals, SIZE(i * NR), I32), total, 4)


sum_nibbles = tile_of(_nibbles, NIBBLE_ROWS, vectors=1)


@intrinsic
def v_integers(typing: Any, p: Pointer) -> Any:
    """Load VL int32 from p and convert them to floats."""
    return vector(p), lambda context, b, sig, args: b.sitofp(b.load(args[0], typ=VI, align=4), VF)


@intrinsic
def store_shorts(typing: Any, p: Pointer, x: Any) -> Any:
    """Round VL floats within the range of int16 to the nearest integers, and store them."""

    def build(context: Any, b: ir.IRBuilder, sig: Any, args: Any) -> Any:
        whole = b.trunc(b.bitcast(b.fadd(args[1], MAGIC), VI), ir.VectorType(SHORT, VL))
        store(b, args[0], whole, 2)
        return context.get_dummy_value()

    return types.void(p, x), build


def to_integers(x: Floats, x_stride: Size, M: Size, K: Size, operands: Shorts, stride: Size, first: Size,
                ranges: Floats) -> None:
    """Round M rows of x, each by its own step, and put the sum of every group behind the integers."""
    whole, padded = K // VL * VL, (K + GROUPED - 1) // GROUPED * GROUPED
    for row in range(M):
        codes = operands + (first + row) * stride
        largest, probe = v_set1(0.0), v_set1(0.0)
        for i in range(0, K, VL):
            value = v_load(x + i) if i < whole else v_loadn(x + i, K - whole)
            largest = v_max(v_abs(value), largest)
            probe = v_fma(value, v_set1(0.0), probe)
        step = v_largest(largest) / LARGEST_CODE
        ranges[2 * row], ranges[2 * row + 1] = np.float32(0), step + v_sum(probe)
        inverse = v_set1(np.float32(1) / step if step > np.float32(1e-30) else np.float32(0))
        for i in range(0, padded, VL):
            value = v_load(x + i) if i < whole else v_loadn(x + i, max(0, K - i))
            store_shorts(codes + i, v_mul(value, inverse))
        for group in range(padded // GROUP):
            total = 0
            for j in range(GROUP):
                total += codes[group * GROUP + j]
            codes[padded + group] = np.int16(total)
        x += x_stride


@inline
def widen_blocks(nv: Size, blocks: Size, b: Integers8, to: Shorts) -> None:
    """to[16 * blocks][nv*VL][2] = m q"""
    width = nv * VL
    for k in range(blocks):
        words, factors = as_ints(b + k * 17 * width), b + (k * 17 + 16) * width
        for h in range(4):
            rows = to + (k * GROUPED + 8 * h) * width
            for c in range(width):
                word, m = words[h * width + c], (factors[c] >> 4 * (h // 2)) & 15
                for n in range(4):
                    rows[(n * width + c) * 2] = np.int16(((word >> 4 * n) & 15) * m)
                    rows[(n * width + c) * 2 + 1] = np.int16(((word >> (16 + 4 * n)) & 15) * m)


all_totals = on_stack(types.int32, INTEGER_ROWS * NR)
all_results = on_stack(types.float32, INTEGER_ROWS * NR)
all_widened = on_stack(types.int16, WIDENED * NR)


@inline
def sum_in_tiles(words: Size, M: Size, nv: Size, steps: Size, codes: Shorts, stride: Size, b: Integers8, totals: Ints,
                 adds: Size) -> None:
    """totals[M][NR] (+)= codes w, in tiles of rows of nearly equal height."""
    tiles = (M + MR - 1) // MR
    row = 0
    for i in range(tiles):
        next_row = M * (i + 1) // tiles
        if words:
            sum_words(next_row - row, nv, steps, codes + row * stride, stride, b, totals + row * NR, adds)
        else:
            sum_bytes(next_row - row, nv, steps, codes + row * stride, stride, b, totals + row * NR, adds)
        row = next_row


@inline
def sum_widened(M: Size, nv: Size, depth: Size, codes: Shorts, stride: Size, b: Integers8, totals: Ints) -> None:
    """totals[M][NR] = sum over k of m q codes, slice by slice."""
    wide = all_widened()
    for k in range(0, depth, WIDENED):
        part = min(depth - k, WIDENED)
        widen_blocks(nv, part // GROUPED, b + k // GROUPED * 17 * nv * VL, wide)
        sum_in_tiles(1, M, nv, part // 2, codes + k, stride, as_integers8(wide), totals, 1 if k else 0)


@inline
def add_scaled(M: Size, nv: Size, totals: Ints, scale: Floats, results: Floats, adds: Size) -> None:
    """results[M][NR] (+)= totals * scale"""
    for i in range(M):
        for j in range(nv):
            at = i * NR + j * VL
            before = v_load(results + at) if adds else v_set1(0.0)
            v_store(results + at, v_fma(v_integers(totals + at), v_load(scale + j * VL), before))


@inline
def integer_results(y: Linear, codes: Shorts, stride: Size, M: Size, p: Size, nv: Size, results: Floats) -> None:
    """results[M][NR] = the products of M rows and panel p, without the steps of the rows."""
    totals = all_totals()
    padded, width = (y.K + GROUPED - 1) // GROUPED * GROUPED, nv * VL
    narrow = 1 if y.storage == INT4 else 0
    b = as_integers8(y.panels) + p * NR * (padded // GROUPED * 19 if narrow else padded)
    offsets = b + padded // GROUPED * 17 * width
    for k in range(0, padded, DEEPEST):
        depth = min(padded - k, DEEPEST)
        blocks = b + k // GROUPED * 17 * width
        if not narrow:
            sum_in_tiles(0, M, nv, depth // 2, codes + k, stride, b + k * width, totals, 0)
        elif M <= NIBBLE_ROWS:
            for j in range(nv):
                sum_nibbles(M, 1, depth // GROUPED, width, codes + k, stride, blocks + j * 4 * VL,
                            blocks + 16 * width + j * VL, totals + j * VL)
        else:
            sum_widened(M, nv, depth, codes + k, stride, blocks, totals)
        add_scaled(M, nv, totals, y.scale + p * NR, results, 1 if k else 0)
        if narrow:
            sum_in_tiles(0, M, nv, depth // GROUPED, codes + padded + k // GROUP, stride,
                         offsets + k // GROUPED * 2 * width, totals, 0)
            add_scaled(M, nv, totals, y.offset_scale + p * NR, results, 1)


def linear_integers(y: Linear, codes: Shorts, stride: Size, ranges: Floats, M: Size, residual: Floats, out: Output,
                    panel: Size, last: Size) -> None:
    """Compute panels [panel, last) of y for M rows of integers."""
    results, offsets = all_results(), columns()
    for p in range(panel, last):
        nv = min(y.N - p * NR, NR) // VL
        for j in range(nv):
            column = p * NR + j * VL
            offsets[j] = column // out.width * out.block + column % out.width
        for first in range(0, M, INTEGER_ROWS):
            rows = min(M - first, INTEGER_ROWS)
            if y.storage == INT8 or y.storage == INT4:
                integer_results(y, codes + first * stride, stride, rows, p, nv, results)
            else:
                block_results(y, codes + first * stride, stride, rows, p, nv, results)
            for i in range(rows):
                step = v_set1(ranges[2 * (first + i) + 1])
                for j in range(nv):
                    x = v_fma(step, v_load(results + (i * NR + j * VL)), v_load(y.bias + (p * NR + j * VL)))
                    place = (first + i) * out.stride + offsets[j]
                    if residual:
                        x = v_add(x, v_load(residual + place))
                    v_store(out.data + place, x)
            if y.activation != IDENTITY:
                activate_rows(y.activation, out.data + (first * out.stride + offsets[0]), out.stride, rows, nv * VL)


def pack_integers(y: Linear, panels: Integers8, sums: Floats, column: Size, w: Integers8, n: Size) -> None:
    """Pack the rows of w, [n,K] int8 or [n,bytes of a row] in blocks, into columns [column, column + n)."""
    padded = (y.K + GROUPED - 1) // GROUPED * GROUPED
    of_column = padded
    if y.storage != INT8:
        of_column = padded // GROUPED * (19 if y.storage == INT4 else block_bytes(y.storage))
    for i in range(n):
        c = column + i
        first = c // NR * NR
        width = min(y.N - first, NR)
        to, c = panels + first * of_column, c - first
        if y.storage == INT4:
            for k in range(padded // GROUPED):
                pack_block(w + (i * of_column + k * 19), to + k * 17 * width,
                           to + (padded // GROUPED * 17 + k * 2) * width, width, c)
        elif y.storage != INT8:
            pack_row_of_blocks(y, to, width, c, w + i * of_column)
        else:
            for k in range(y.K):
                to[k // 2 * 2 * width + 2 * c + k % 2] = w[i * y.K + k]


@inline
def pack_block(block: Integers8, to: Integers8, offsets: Integers8, width: Size, c: Size) -> None:
    """Pack a stored block: the words of a column, the multipliers of its two groups, and their offsets."""
    words = as_ints(to)
    for h in range(4):
        word = np.int64(0)
        for i in range(8):
            q = (np.int64(block[4 * h + i // 2]) >> 4 * (i % 2)) & 15
            word |= q << (16 * (i % 2) + 4 * (i // 2))
        words[h * width + c] = np.int32(word)
    to[16 * width + c] = block[16]
    offsets[2 * c], offsets[2 * c + 1] = block[17], block[18]


@intrinsic
def integer_loop(typing: Any, n: Any) -> Any:
    """Run n rounds of MR*NV independent products of pairs, with sums as operands, and return the sum of all."""

    def build(context: Any, b: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        starts = [every(i) for i in range(MR * NV)]
        total = in_rounds(b, args[0], starts, lambda x: dot(b, x, x, every(0x10001)), b.add)
        return b.sitofp(total, VF)

    return vector(types.intp), build


def integer_rounds(n: Size, sink: Floats) -> Double:
    """Run n rounds of independent products of pairs, and return their integer operations."""
    sink[0] = v_sum(integer_loop(n))
    return 4.0 * VL * MR * NV * n

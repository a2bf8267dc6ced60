"""Compute the GEMM of rows in 16-bit integers and weights in the blocks of GGUF files; see blocks.pxi."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir

from ..compiler.compiling import inline
from ..compiler.emit import I32, VF, VI, fetch, fma, splat
from ..compiler.flow import repeat
from ..compiler.pointers import SIZE, as_integers8, as_ints, store
from ..compiler.structs import Floats, Int, Integers8, Linear, Shorts, Size
from ..target import MR, NR, VL
from .embed import Q4_0, Q4_1, Q8_0
from .integer_pairs import (
    FETCHED,
    GROUPED,
    NO_SUM,
    SHORT,
    at,
    dot,
    every,
    load_float16,
    load_pairs_of_bytes,
    nibble,
    pair,
)
from .tile import tile_of

BLOCK_ROWS = 4
_BYTES = {Q8_0: 34, Q4_0: 18, Q4_1: 20}
"""The bytes of a block of one column."""


def _tile(storage: int) -> Callable[..., None]:
    """Return the body of a tile of one vector of columns, whose weights are stored in these blocks."""
    wide = storage == Q8_0

    def blocks_of(b: ir.IRBuilder, mr: int, nv: int, blocks: ir.Value, width: ir.Value, codes: ir.Value,
                  stride: ir.Value, sums: ir.Value, weights: ir.Value, scales: ir.Value, results: ir.Value) -> None:
        """results[mr][NR] = the products of mr rows

        sums: two for each block of a row. weights, scales, results: those of the first column. width: the columns of
        the panel.
        """
        step = b.mul(width, SIZE(_BYTES[storage]))

        def block(values: list[ir.Value]) -> list[ir.Value]:
            a, sum_at, w, scales_at, *found = values
            fetch(b, at(b, w, SIZE(FETCHED)), 2)
            rows = [at(b, a, b.mul(stride, SIZE(i)), SHORT) for i in range(mr)]
            of_rows = []
            for i in range(mr):
                pointer = at(b, sum_at, b.mul(stride, SIZE(i)), SHORT)
                both = [b.sext(b.load(at(b, pointer, SIZE(n), SHORT), typ=SHORT, align=2), I32) for n in range(2)]
                of_rows.append(splat(b, b.add(*both)))
            totals = [b.mul(x, every(-8)) if storage == Q4_0 else NO_SUM for x in of_rows]
            word = None
            for n in range(GROUPED // 2):
                if wide:
                    x = load_pairs_of_bytes(b, at(b, w, b.mul(width, SIZE(2 * n))))
                else:
                    if n % 4 == 0:
                        word = b.load(at(b, w, b.mul(width, SIZE(n))), typ=VI, align=1)
                    x = nibble(b, word, n % 4)
                for i in range(mr):
                    totals[i] = dot(b, totals[i], pair(b, at(b, rows[i], SIZE(2 * n), SHORT)), x)
            scale = load_float16(b, scales_at)
            found = [fma(b, b.sitofp(total, VF), scale, y) for total, y in zip(totals, found, strict=True)]
            if storage == Q4_1:
                minimum = load_float16(b, at(b, scales_at, b.mul(width, SIZE(2))))
                found = [fma(b, b.sitofp(x, VF), minimum, y) for x, y in zip(of_rows, found, strict=True)]
            return [at(b, a, SIZE(GROUPED), SHORT), at(b, sum_at, SIZE(2), SHORT), at(b, w, step),
                    at(b, scales_at, step), *found]

        begin = [codes, sums, weights, scales, *[ir.Constant(VF, [0.0] * VL)] * mr]
        for i, total in enumerate(repeat(b, blocks, begin, block)[4:]):
            store(b, at(b, results, SIZE(4 * i * NR)), total, 4)

    blocks_of.__name__ = f"_blocks{storage}"
    return blocks_of


sum_q8_0 = tile_of(_tile(Q8_0), MR, vectors=1)
sum_q4_0 = tile_of(_tile(Q4_0), BLOCK_ROWS, vectors=1)
sum_q4_1 = tile_of(_tile(Q4_1), BLOCK_ROWS, vectors=1)


@inline
def block_bytes(storage: Int) -> Size:
    """Return the bytes of a block of one column."""
    return 34 if storage == Q8_0 else 18 if storage == Q4_0 else 20


@inline
def block_results(y: Linear, codes: Shorts, stride: Size, M: Size, p: Size, nv: Size, results: Floats) -> None:
    """results[M][NR] = the products of M rows and panel p, without the steps of the rows, in tiles of equal height."""
    blocks, width = (y.K + GROUPED - 1) // GROUPED, nv * VL
    size = block_bytes(y.storage)
    b, sums = as_integers8(y.panels) + p * NR * blocks * size, codes + blocks * GROUPED
    tiles = (M + MR - 1) // MR if y.storage == Q8_0 else (M + BLOCK_ROWS - 1) // BLOCK_ROWS
    row = 0
    for i in range(tiles):
        n = M * (i + 1) // tiles - row
        a, s, to = codes + row * stride, sums + row * stride, results + row * NR
        for j in range(nv):
            if y.storage == Q8_0:
                sum_q8_0(n, 1, blocks, width, a, stride, s, b + j * 2 * VL, b + (32 * width + j * 2 * VL), to + j * VL)
            elif y.storage == Q4_0:
                sum_q4_0(n, 1, blocks, width, a, stride, s, b + j * 4 * VL, b + (16 * width + j * 2 * VL), to + j * VL)
            else:
                sum_q4_1(n, 1, blocks, width, a, stride, s, b + j * 4 * VL, b + (16 * width + j * 2 * VL), to + j * VL)
        row += n


@inline
def pack_row_of_blocks(y: Linear, panel: Integers8, width: Size, c: Size, row: Integers8) -> None:
    """Put a stored row of blocks into column c of a panel of this width."""
    size = block_bytes(y.storage)
    codes = 32 if y.storage == Q8_0 else 16
    halves = size - codes
    for _ in range((y.K + GROUPED - 1) // GROUPED):
        for i in range(halves):
            panel[codes * width + (i // 2 * width + c) * 2 + i % 2] = row[i]
        if codes == 32:
            for i in range(32):
                panel[(i // 2 * width + c) * 2 + i % 2] = row[halves + i]
        else:
            words = as_ints(panel)
            for h in range(4):
                word = np.int64(0)
                for i in range(8):
                    step = 8 * h + i
                    q = (np.int64(row[halves + step % 16]) >> 4 * (step // 16)) & 15
                    word |= q << (16 * (i % 2) + 4 * (i // 2))
                words[h * width + c] = np.int32(word)
        row += size
        panel += size * width

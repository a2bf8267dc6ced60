"""Compute the GEMM of rows in 16-bit integers and weights in the blocks Q8_0 of GGUF files; see blocks.pxi."""

from __future__ import annotations

from llvmlite import ir

from ..compiler.compiling import inline
from ..compiler.emit import VF, fetch, fma
from ..compiler.flow import repeat
from ..compiler.pointers import SIZE, as_integers8, store
from ..compiler.structs import Floats, Integers8, Linear, Shorts, Size
from ..target import MR, NR, VL
from .integer_pairs import (
    BLOCK_DEPTH,
    FETCHED,
    NO_SUM,
    SCALE_BYTES,
    SHORT,
    at,
    dot,
    load_float16,
    load_pairs_of_bytes,
    pair,
)
from .tile import tile_of

Q8_0_BYTES = SCALE_BYTES + BLOCK_DEPTH
"""The bytes of a block of one column."""


def _blocks(b: ir.IRBuilder, mr: int, nv: int, blocks: ir.Value, width: ir.Value, codes: ir.Value, stride: ir.Value,
            weights: ir.Value, scales: ir.Value, results: ir.Value) -> None:
    """results[mr][NR] = the products of mr rows of codes, `stride` numbers apart, and one vector of columns

    weights, scales, results: those of the first column. width: the columns of the panel. A panel is a run of blocks:
    integers [16][width][2] of 32 steps of depth, then float16 scales [width]. Sums of a block are exact.
    """
    step = b.mul(width, SIZE(Q8_0_BYTES))

    def block(values: list[ir.Value]) -> list[ir.Value]:
        a, w, scales_at, *sums = values
        fetch(b, at(b, w, SIZE(FETCHED)), locality=2)
        rows = [at(b, a, b.mul(stride, SIZE(i)), SHORT) for i in range(mr)]
        totals = [NO_SUM] * mr
        for n in range(BLOCK_DEPTH // 2):
            x = load_pairs_of_bytes(b, at(b, w, b.mul(width, SIZE(2 * n))))
            totals = [dot(b, total, pair(b, at(b, row, SIZE(2 * n), SHORT)), x)
                      for total, row in zip(totals, rows, strict=True)]
        scale = load_float16(b, scales_at)
        sums = [fma(b, b.sitofp(total, VF), scale, y) for total, y in zip(totals, sums, strict=True)]
        return [at(b, a, SIZE(BLOCK_DEPTH), SHORT), at(b, w, step), at(b, scales_at, step), *sums]

    begin = [codes, weights, scales, *[ir.Constant(VF, [0.0] * VL)] * mr]
    for i, total in enumerate(repeat(b, blocks, begin, block)[3:]):
        store(b, at(b, results, SIZE(4 * i * NR)), total, align=4)


sum_q8_0 = tile_of(_blocks, MR, vectors=1)


@inline
def blocks_of(K: Size) -> Size:
    """Return the blocks of a row."""
    return (K + BLOCK_DEPTH - 1) // BLOCK_DEPTH


@inline
def block_results(y: Linear, codes: Shorts, stride: Size, M: Size, p: Size, nv: Size, results: Floats) -> None:
    """results[M][NR] = the products of M rows and panel p, without the steps of the rows, in tiles of equal height."""
    blocks, width, tiles = blocks_of(y.K), nv * VL, (M + MR - 1) // MR
    b = as_integers8(y.panels) + p * NR * blocks * Q8_0_BYTES
    row = 0
    for i in range(tiles):
        n = M * (i + 1) // tiles - row
        for j in range(nv):
            sum_q8_0(n, 1, blocks, width, codes + row * stride, stride, b + j * 2 * VL,
                     b + (BLOCK_DEPTH * width + j * 2 * VL), results + (row * NR + j * VL))
        row += n


@inline
def pack_row_of_blocks(y: Linear, panel: Integers8, width: Size, c: Size, row: Integers8) -> None:
    """Put a stored row of blocks into column c of a panel of this width."""
    for _ in range(blocks_of(y.K)):
        for i in range(SCALE_BYTES):
            panel[BLOCK_DEPTH * width + SCALE_BYTES * c + i] = row[i]
        for i in range(BLOCK_DEPTH):
            panel[(i // 2 * width + c) * 2 + i % 2] = row[SCALE_BYTES + i]
        row += Q8_0_BYTES
        panel += Q8_0_BYTES * width

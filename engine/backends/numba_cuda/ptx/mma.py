"""Provide tensor cores through mma.sync (sm_80): products of bfloat16, 16x16 by 16x8, with float32 sums; and ldmatrix.

The elements of each lane (PTX ISA, "Matrix Fragments for mma.m16n8k16"): with g = lane // 4 and t = lane % 4, a
register holds two neighbours along the depth, the first at 2t or, in a high register, at 2t + 8. A's four registers
hold row g, row g + 8, row g high, row g + 8 high; B's two hold column g, and column g high. The four sums are (g, 2t),
(g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).

Operands lie in shared memory as rows of 16-byte chunks, permuted (`swizzle`) so that ldmatrix has no bank conflict.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..toolchain import device_function
from .emulated import current
from .inline import PtxWriter, Registers, Statement, f32, function, straight, u32
from .warp import bf16_of_bits

_G, _T = np.arange(32) // 4, np.arange(32) % 4


# The emulator runs these three functions in place of the instructions, on arrays [32], a number for each lane.
def _mma(*registers: np.ndarray) -> tuple[np.ndarray, ...]:
    """Run `mma`; registers: four of A, two of B, four sums. Returns the four new sums."""
    from .tensor_cores import add_products  # Numba compiles it, which a process without an emulator does without

    a, b, sums = np.empty((16, 16), np.float32), np.empty((8, 16), np.float32), np.empty((16, 8), np.float32)
    for i in range(4):
        _split(a, _G + 8 * (i % 2), 2 * _T + 8 * (i // 2), registers[i])
        sums[_G + 8 * (i // 2), 2 * _T + i % 2] = registers[6 + i]
    for i in range(2):
        _split(b, _G, 2 * _T + 8 * i, registers[4 + i])
    add_products(a, b, sums)
    return tuple(sums[_G + 8 * (i // 2), 2 * _T + i % 2] for i in range(4))


def _split(matrix: np.ndarray, rows: np.ndarray, depth: np.ndarray, pairs: np.ndarray) -> None:
    """Write the two bfloat16 numbers of each lane's register to (rows, depth) and (rows, depth + 1) of a matrix."""
    matrix[rows, depth] = bf16_of_bits(pairs & np.uint32(0xFFFF))
    matrix[rows, depth + 1] = bf16_of_bits(pairs >> np.uint32(16))


def _ldmatrix(addresses: np.ndarray) -> tuple[np.ndarray, ...]:
    """Run `ldmatrix` on the addresses [32] of rows of 16 bytes; a register has two neighbours of a row."""
    shared, places = current().block.shared_places(addresses, 16)
    rows = shared[places].view(np.uint32)
    return tuple(rows[8 * i:8 * i + 8][_G, _T] for i in range(4))


def _ldmatrix_transposed(addresses: np.ndarray) -> tuple[np.ndarray, ...]:
    """Run `ldmatrix_transposed`; a register has two neighbours of a column."""
    shared, places = current().block.shared_places(addresses, 16)
    rows = shared[places].view(np.uint16).astype(np.uint32)
    return tuple(m[2 * _T, _G] | m[2 * _T + 1, _G] << np.uint32(16) for m in rows.reshape(4, 8, 8))


MMA = Statement("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                "{$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};", (f32,) * 4, (u32,) * 6 + (f32,) * 4, _mma)
LDMATRIX = Statement("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3}, [$4];",
                     (u32,) * 4, (u32,), _ldmatrix, memory=True)
LDMATRIX_TRANSPOSED = Statement("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0,$1,$2,$3}, [$4];",
                                (u32,) * 4, (u32,), _ldmatrix_transposed, memory=True)

mma = function(MMA)
"""(a0..a3, b0, b1, c0..c3) -> four sums: c + a b, for one 16x8 tile."""
ldmatrix = function(LDMATRIX)
"""Load four 8x8 matrices of 16-bit numbers, a register each; lane i gives the address of row i % 8 of matrix i // 8."""
ldmatrix_transposed = function(LDMATRIX_TRANSPOSED)
"""Load four 8x8 matrices as ldmatrix does, each transposed."""


@device_function
def swizzle(row: Any, pitch: Any) -> Any:
    """Return the number with which chunk indices in a row of shared memory are combined by exclusive or.

    pitch: bytes per row, a constant multiple of 64. Then eight rows, one chunk of each, cover all 32 banks.
    """
    return row % 8 if pitch % 128 == 0 else row // 2 % 4


def warp_product(rows: int, columns: int, depth: int, *, pitch: int, transposed: bool = False, a_pitch: int = 0,
                 start: bool = False) -> Any:
    """Return a function for kernels: sums (+)= A [rows, depth] B [depth, columns] by a warp, unrolled.

    Its arguments are (sums, a, a_chunk, b, b_chunk).
    - sums: local float32 array [rows/16, columns/8, 4]; with `start` they begin at zero
    - a: local uint32 array [rows/16, depth/16, 4] of fragments; or, if A's rows lie in shared memory a_pitch bytes
        apart, the uint32 address of row lane % 16
    - a_chunk: byte offset of chunk lane // 16 in that row, permuted; ignored without a_pitch
    - b, b_chunk: B^T [columns, depth] has rows `pitch` bytes apart: b is the address of row lane // 16 * 8 + lane % 8,
        and b_chunk the offset of chunk lane // 8 % 2. If `transposed`, the rows are those of B [depth, columns]: row
        lane % 16 and chunk lane // 16
    """

    def body(writer: PtxWriter, sums: list[Any], a: Any, a_chunk: Any, b: Any, b_chunk: Any) -> None:
        if start:
            sums[:] = [writer.constant(f32, 0.0)] * len(sums)
        for k in range(depth // 16):
            fragments = [_a_fragment(writer, a, a_chunk, m, k, depth // 16, a_pitch) for m in range(rows // 16)]
            for pair in range(columns // 16):
                along, across = (k, pair) if transposed else (pair, k)
                place = writer.add(writer.add(b, writer.xor(b_chunk, 32 * across)), 16 * pitch * along)
                loaded = writer(LDMATRIX_TRANSPOSED if transposed else LDMATRIX, place)
                for m, fragment in enumerate(fragments):
                    for half in range(2):
                        i = (m * columns // 8 + 2 * pair + half) * 4
                        sums[i:i + 4] = writer(MMA, *fragment, *loaded[2 * half:2 * half + 2], *sums[i:i + 4])

    fragments = u32 if a_pitch else Registers(rows // 16 * depth // 16 * 4, u32)
    return straight(body, Registers(rows // 16 * columns // 8 * 4), fragments, u32, u32, u32)


def _a_fragment(writer: PtxWriter, a: Any, chunk: Any, m: int, k: int, steps: int, pitch: int) -> list[Any]:
    """Return the four registers of A's tile (m, k), 16 x 16: from the list `a` of all, or loaded from shared memory.

    steps: tiles along the depth. a, chunk, pitch: as `warp_product` has a, a_chunk and a_pitch; pitch 0 for a list.
    """
    if not pitch:
        first = (m * steps + k) * 4
        return a[first : first + 4]
    return writer(LDMATRIX, writer.add(writer.add(a, writer.xor(chunk, 32 * k)), 16 * m * pitch))

"""Compute a linear layer on tensor cores with mma.sync (sm_80 and later): out = act(x w^T + bias), or + residual.

A block computes a tile of `rows` tokens by `columns` channels; each of its four warps computes a quarter, 2 by 2. Steps
of 32 along the depth pass through a ring of `stages` slots of shared memory: cp.async fills slots while earlier ones
are multiplied. A slot's rows are 64 bytes, whose 16-byte chunks are permuted by (row / 2) % 4, so that ldmatrix has no
bank conflicts. Rows, channels and depths outside the matrices are read as zeros. The rows of the weights are permuted
when they are copied (`ptx/epilogue.py`), so that lanes store neighbouring channels.

    tile                shared    registers (ptxas)    blocks per multiprocessor
    LARGE 128 x 128     64 KB     193 to 197           2: a warp's 64 x 64 uses each fragment four or eight times
    SMALL  32 x  32     24 KB     56                   4 or more: for few tokens, when reading weights takes the time

Limit: tensor cores with mma.sync. On an H200, LARGE reaches 287 to 304 TFLOP/s, half of the speed of wgmma there. No
GPU that lacks wgmma has run this kernel yet. Every sum runs over the depth in steps of 16, in order, whatever the tile,
so that a token's result does not depend on its batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..kernel import Kernel
from ..ptx.copy import address, copy_async, copy_commit, copy_wait, shared_base
from ..ptx.epilogue import epilogue, epilogue_name, epilogues
from ..ptx.mma import swizzle, warp_product
from ..toolchain import cuda, device_function, types

DEPTH = 32
"""Depth of a step, in elements."""
LINE = 2 * DEPTH
"""Bytes per row of a slot."""
THREADS = 128


@dataclass(frozen=True)
class Tile:
    """The part of the result that a block computes, and the number of slots of its ring."""

    rows: int
    columns: int
    stages: int
    registers: int = 255
    blocks_per_sm: int = 2
    unrolled: int = 1
    """Number of slots per iteration of the loop, as unrolled by ptxas."""

    @property
    def slot(self) -> int:
        """Return the size of a slot in bytes."""
        return (self.rows + self.columns) * LINE


LARGE = Tile(rows=128, columns=128, stages=4, registers=200)
SMALL = Tile(rows=32, columns=32, stages=6, registers=64, blocks_per_sm=4, unrolled=3)

# Variables of the kernel: `top` is the first token of the tile, `first` its first channel; `upper` and `left` are those
# of the warp's quarter in the tile.


def linear_kernel(activation: str = "identity", residual: bool = False, tile: Tile = LARGE, *, gate: bool = False,
                  wide: bool = False) -> Kernel:
    """Make the kernel for one epilogue and tile; grid (ceil(M / tile.columns), ceil(N / tile.rows)), or (.., .., z).

        kernel(x, w, bias, residual, out)

    x: uint16 (bfloat16) [N, K]. w: uint16 [M, K]. bias: float32 [M]. M and K are multiples of 8. residual: float32 [N,
    M], which may be `out`; if there is no residual, any float32 matrix, which is not read. out: [N, M]: float32 with a
    residual or if `wide`, otherwise bfloat16. activation: a name of `ptx.epilogue.ACTIVATIONS`. gate: whether w and the
    bias have the rows of a gate and of another map in turns (`interleave`), a multiple of 16 rows; out is [N, M / 2].
    With z in the grid, the kernel computes z maps side by side, of K columns of x each: x is [N, at least z K], w is [z
    M, K], the bias is [z M], and the residual and out are [N, z M].
    """
    rows, columns, slot, ring = tile.rows, tile.columns, tile.slot, tile.stages * tile.slot
    ahead = (tile.stages - 1) * DEPTH       # how far ahead of the product the copies are
    floating = residual or wide
    size, share = 4 if floating else 2, 2 if gate else 1    # bytes of an element of `out`; channels for each of them
    row_tiles, column_tiles = rows // 32, columns // 16     # a warp's tiles of 16 x 8
    shape = row_tiles, column_tiles, 4      # the sums of a lane: four in each tile
    fetch = _fetch(tile)
    multiply = warp_product(rows=rows // 2, columns=columns // 2, depth=DEPTH, pitch=LINE, a_pitch=LINE)
    finish = epilogue(row_tiles, row_step=16, column_tiles=column_tiles, activation=activation, residual=residual,
                      gate=gate, wide=wide)
    wait = copy_wait[tile.stages - 2]       # until the slot that is multiplied next is full

    def kernel(x: Any, w: Any, bias: Any, res: Any, out: Any) -> None:
        thread, lane = types.uint32(cuda.threadIdx.x), types.uint32(cuda.threadIdx.x % 32)
        top, first = types.int64(cuda.blockIdx.y) * rows, types.int64(cuda.blockIdx.x) * columns
        N, K, M = x.shape[0], w.shape[1], w.shape[0] // cuda.gridDim.z
        number = types.int64(cuda.blockIdx.z)       # of the map
        x_at, w_at = address(x) + number * K * 2, address(w) + number * M * K * 2
        slots = shared_base()

        # Addresses for ldmatrix: the rows and chunks of this lane, as warp_product requires, in its warp's quarter.
        upper, left = thread // 64 * (rows // 2), thread // 32 % 2 * (columns // 2)
        x_row = types.uint32(slots + (upper + lane % 16) * LINE)
        x_chunk = types.uint32((lane // 16 ^ swizzle(lane % 16, LINE)) * 16)
        w_row = types.uint32(slots + (rows + left + lane // 16 * 8 + lane % 8) * LINE)
        w_chunk = types.uint32((lane // 8 % 2 ^ swizzle(lane % 8, LINE)) * 16)

        sums = cuda.local.array(shape, types.float32)
        for i in range(row_tiles):
            for j in range(column_tiles):
                for e in range(4):
                    sums[i, j, e] = types.float32(0)
        reading, writing = types.uint32(0), types.uint32(0)     # offsets of the slots that are read and written next
        for k in range(-ahead, K, DEPTH):       # below 0, the first slots are only filled
            if k >= 0:
                wait()
                cuda.syncthreads()
            if k + ahead < K:
                fetch(x_at, x.shape[1] * 2, N, w_at, M, K, top, first, types.int64(k + ahead),
                      types.uint32(slots + writing), thread)
            copy_commit()
            writing = types.uint32(writing + slot) if writing + slot < ring else types.uint32(0)
            if k >= 0:
                multiply(sums, types.uint32(x_row + reading), x_chunk, types.uint32(w_row + reading), w_chunk)
                reading = types.uint32(reading + slot) if reading + slot < ring else types.uint32(0)

        row, column = top + types.int64(upper + lane // 4), first + types.int64(left + lane % 4 * 4)
        channel = number * M + column
        place = row * out.shape[1] + channel // share
        finish(sums, address(bias) + channel * 4, address(res) + place * 4, address(out) + place * size, out.shape[1],
               types.int32(N - row), types.int32(M - column))

    halves, floats = types.uint16[:, ::1], types.float32[:, ::1]
    return Kernel(
        name=f"linear {rows}x{columns} {epilogue_name(activation, residual, gate, wide)}", body=kernel,
        signature=(halves, halves, types.float32[::1], floats, floats if floating else halves),
        threads=THREADS, shared=ring, registers=tile.registers, blocks_per_sm=tile.blocks_per_sm,
        instructions={"HMMA": tile.unrolled * row_tiles * column_tiles * DEPTH // 16})


def _fetch(tile: Tile) -> Any:
    """Make a device function that starts to copy a thread's chunks of a slot.

    It copies tokens from `top` on, channels from `first` on, and depths from k on. x_at, w_at: the addresses of x [N,
    K], of `pitch` bytes a row, and of w [M, K].
    """
    lines = THREADS // 4   # rows that all threads copy together, each with four chunks
    x_turns, w_turns, w_begin = tile.rows // lines, tile.columns // lines, tile.rows * LINE     # w lies behind x

    @device_function
    def fetch(x_at: Any, pitch: Any, N: Any, w_at: Any, M: Any, K: Any, top: Any, first: Any, k: Any, slot: Any,
              thread: Any) -> None:
        line, chunk = thread // 4, thread % 4
        to = types.uint32(slot + line * LINE + (chunk ^ swizzle(line, LINE)) * 16)
        depth = k + types.int64(chunk * 8)
        row = top + types.int64(line)
        # Channel PERMUTED[line % 16] of ptx/epilogue.py, written as arithmetic, so that lanes store neighbours.
        column = first + types.int64(line // 16 * 16 + line % 8 // 2 * 4 + line // 8 % 2 * 2 + line % 2)
        inside = depth < K
        x_from, w_from = x_at + row * pitch + depth * 2, w_at + (column * K + depth) * 2
        for i in range(x_turns):
            size = types.uint32(16 if inside and row + i * lines < N else 0)   # 0 copies zeros
            copy_async(types.uint32(to + i * lines * LINE), x_from + i * lines * pitch, size)
        for i in range(w_turns):
            size = types.uint32(16 if inside and column + i * lines < M else 0)
            copy_async(types.uint32(to + w_begin + i * lines * LINE), w_from + i * lines * K * 2, size)

    return fetch


def variants() -> Iterator[Kernel]:
    """Yield the kernels of every epilogue and tile."""
    yield from (linear_kernel(tile=tile, **options) for tile in (LARGE, SMALL) for options in epilogues())

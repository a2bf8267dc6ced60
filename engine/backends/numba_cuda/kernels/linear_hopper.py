"""Compute a linear layer on Hopper's tensor cores with wgmma and TMA (sm_90a): out = act(x w^T + bias), or + residual.

A block stays on its multiprocessor and computes one tile after the other. Its first warpgroup, the producer, releases
most of its registers, and one of its threads requests from TMA boxes of 64 along the depth, `stages` slots ahead, past
the end of a tile into the next. One or two more warpgroups, the consumers, multiply. mbarriers signal when a slot is
full and when it is empty again.

    tile                        shared    registers    a consumer's sums
    LARGE      128 x 256        192 KB    168          64 x 256: the two share a tile
    ALTERNATE  128 x 128        192 KB    168          128 x 128: each has its own tile; one stores, one multiplies
    SMALL       64 x  64        128 KB    109          64 x  64, one consumer: for few tokens

LARGE reads least. ALTERNATE hides its epilogue. On an H200, with 16,384 rows, ALTERNATE has 609 TFLOP/s with a bias and
615 to 628 with a residual, where LARGE has 560 and 593 to 630; with GELU, LARGE has 539 to 575 and ALTERNATE 516 to
559. Every sum runs over the depth in steps of 16, in order, whatever the tile: a result does not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..ptx.copy import address, load_quad, shared_base, store_quad
from ..ptx.epilogue import PERMUTED, epilogue, epilogue_name, epilogues
from ..ptx.hopper import (
    BY_ROWS,
    barrier_arrive,
    barrier_expect,
    barrier_wait,
    copy_box,
    fence_tensor_map,
    ring_barriers,
    set_registers,
    wgmma,
    wgmma_wait,
)
from ..toolchain import cuda, device_function, types

DEPTH = 64
"""Depth of a slot, in elements."""
LINE = 2 * DEPTH
"""Bytes per row of a slot."""


@dataclass(frozen=True)
class HopperTile:
    """The part of the result that a block computes at a time, and the number of slots of its ring."""

    rows: int
    columns: int
    stages: int
    consumers: int = 2
    unrolled: int = 7
    """Number of slots in the bodies of the loops, as unrolled by ptxas."""
    alternate: bool = False
    """True if two consumers compute separate tiles in turns; False if all consumers share one tile.

    In turns, a consumer begins when the other has waited for its last slot: waiting for a barrier's phase tells it from
    the next phase, but not from the one after that.
    """

    @property
    def slot(self) -> int:
        """Return the size of a slot in bytes; it holds x's box, then w's."""
        return (self.rows + self.columns) * LINE

    @property
    def row_tiles(self) -> int:
        """Return the number of 64-row tiles per consumer."""
        return self.rows // 64 // (self.consumers // self.teams)

    @property
    def teams(self) -> int:
        """Return the number of tiles that are computed at the same time."""
        return self.consumers if self.alternate else 1


LARGE = HopperTile(rows=128, columns=256, stages=4)
ALTERNATE = HopperTile(rows=128, columns=128, stages=6, unrolled=3, alternate=True)
SMALL = HopperTile(rows=64, columns=64, stages=8, consumers=1)


def lay_out(w: np.ndarray) -> np.ndarray:
    """Return weights in the kernel's layout: [M rounded up to 16, K], rows permuted within 16, zeros below."""
    padded = np.concatenate([w, np.zeros((-len(w) % 16, w.shape[1]), w.dtype)])
    return np.ascontiguousarray(padded.reshape(-1, 16, w.shape[1])[:, PERMUTED]).reshape(padded.shape)


def lay_out_kernel() -> Kernel:
    """Make the kernel of `lay_out`: (w u16 [M,K], out u16 [M rounded up to 16, K]); the grid is `lay_out_grid`."""

    def lay_out_rows(w: Any, out: Any) -> None:
        number, pieces = types.int64(cuda.blockIdx.x) * 128 + cuda.threadIdx.x, out.shape[1] // 8
        row, piece = number // pieces, number % pieces
        if row >= out.shape[0]:
            return
        source = row // 16 * 16 + row % 8 // 2 * 4 + row // 8 % 2 * 2 + row % 2         # PERMUTED[row % 16]
        to, zero = address(out) + (row * out.shape[1] + piece * 8) * 2, types.float32(0)
        if source < w.shape[0]:
            numbers = load_quad(address(w) + (source * w.shape[1] + piece * 8) * 2)
            store_quad(to, numbers[0], numbers[1], numbers[2], numbers[3])
        else:
            store_quad(to, zero, zero, zero, zero)

    halves = types.uint16[:, ::1]
    return Kernel("lay out", lay_out_rows, (halves, halves), threads=128, registers=32)


def lay_out_grid(M: int, K: int) -> tuple[int]:
    """Return the grid for M rows, a multiple of 16, of K numbers: a thread copies eight of them."""
    return (-(-M * K // (8 * 128)),)


# Variables of the kernel: `turn` counts the slots that were used before the present tile, `made` the tiles that this
# consumer has made. Shared memory ends with the mbarriers, 8 bytes each: "full" and "empty" of each slot, then `begin`,
# which lets a team begin a tile, of each team. `row` and `column` are the lane's first ones: a warp has 16 rows of each
# 64, a lane one of these and the one 8 below.


def linear_kernel(activation: str = "identity", residual: bool = False, tile: HopperTile = LARGE, *, gate: bool = False,
                  wide: bool = False) -> Kernel:
    """Make the kernel for one epilogue and tile; grid: one block per multiprocessor, or per tile if these are fewer.

        kernel(x_map, w_map, bias, residual, out, K)

    x_map: tensor map (`tensor_map.encode`) of x, bfloat16 [at least N, K], boxes of tile.rows. w_map: tensor map of
    `lay_out(w)`, boxes of tile.columns. bias: float32 [M]. K, int32, and M are multiples of 8. residual: float32 [N,
    M], which may be `out`; if there is no residual, any float32 matrix, which is not read. out: [N, M]: float32 with a
    residual or if `wide`, otherwise bfloat16. activation: a name of `ptx.epilogue.ACTIVATIONS`. gate: whether w and the
    bias have the rows of a gate and of another map in turns (`interleave`), M of them; out is then [N, M / 2].
    """
    rows, columns, stages, slot, teams = tile.rows, tile.columns, tile.stages, tile.slot, tile.teams
    row_tiles, consumers = tile.row_tiles, tile.consumers
    shape = row_tiles, columns // 8, 4      # the sums of a lane: 4 of each 16 x 8 of its warp
    floating = residual or wide
    size, share = 4 if floating else 2, 2 if gate else 1    # bytes of an element of `out`; channels for each of them
    make_barriers = ring_barriers(slots=stages, consumers=consumers // teams, others=teams)
    produce, consume = _producer(tile), _consumer(tile)
    finish = epilogue(row_tiles, row_step=64, column_tiles=columns // 8, activation=activation, residual=residual,
                      gate=gate, wide=wide)
    # Registers of a thread: 40 + 2 * 232 for three warpgroups are the 3 * 168 that the launch gives them.
    shrink, grow = set_registers(40, grow=False), set_registers(232, grow=True)

    def kernel(x_map: Any, w_map: Any, bias: Any, res: Any, out: Any, K: Any) -> None:
        thread, lane = types.uint32(cuda.threadIdx.x), types.uint32(cuda.threadIdx.x % 32)
        N, M = types.int32(out.shape[0]), types.int32(out.shape[1] * share)
        across = types.int32((M + columns - 1) // columns)
        tiles = types.int32((N + rows - 1) // rows * across)
        steps = types.uint32((K + DEPTH - 1) // DEPTH)
        full = types.uint32(shared_base() + stages * slot)
        empty, begin = types.uint32(full + 8 * stages), types.uint32(full + 16 * stages)
        make_barriers(thread, full)
        if thread < 128:
            if consumers > 1:       # one consumer has registers enough
                shrink()
            if thread == 0:
                fence_tensor_map(address(x_map))
                fence_tensor_map(address(w_map))
                turn = types.uint32(0)
                for number in range(cuda.blockIdx.x, tiles, cuda.gridDim.x):    # tiles, row after row
                    produce(x_map, w_map, types.int32(number // across * rows), types.int32(number % across * columns),
                            steps, turn, full, empty)
                    turn = types.uint32(turn + steps)
        else:
            if consumers > 1:
                grow()
            consumer = types.uint32(thread // 128 - 1)
            team = types.uint32(consumer if teams > 1 else 0)
            own_row = types.uint32(0 if teams > 1 else consumer * 64)
            sums = cuda.local.array(shape, types.float32)
            turn, made = types.uint32(team * steps), types.uint32(0)
            for number in range(cuda.blockIdx.x + team * cuda.gridDim.x, tiles, teams * cuda.gridDim.x):
                if teams > 1:       # until the other consumer has waited for its last slot; team 0 begins at once
                    barrier_wait(begin + 8 * team, (made + 1 - team) % 2)
                consume(sums, own_row, steps, turn, full, empty, begin + 8 * (1 - team), thread % 128 == 0)
                turn, made = types.uint32(turn + teams * steps), types.uint32(made + 1)
                row = types.int64(number // across * rows) + types.int64(own_row + thread % 128 // 32 * 16 + lane // 4)
                column = types.int64(number % across * columns) + types.int64(lane % 4 * 4)
                place = row * out.shape[1] + column // share
                finish(sums, address(bias) + column * 4, address(res) + place * 4, address(out) + place * size,
                       out.shape[1], types.int32(N - row), types.int32(M - column))

    floats, map_kind = types.float32[:, ::1], types.uint8[::1]
    out_kind = floats if floating else types.uint16[:, ::1]
    return Kernel(
        name=f"linear wgmma {rows}x{columns}{' alternate' * tile.alternate} "
             f"{epilogue_name(activation, residual, gate, wide)}",
        body=kernel, threads=128 * (1 + tile.consumers), shared=stages * (slot + 16) + 8 * teams,
        signature=(map_kind, map_kind, types.float32[::1], floats, out_kind, types.int32),
        arch=(9, 0, "a"), registers=168,
        instructions={"HGMMA": tile.unrolled * row_tiles * DEPTH // 16, "UTMALDG": 14})


def _producer(tile: HopperTile) -> Any:
    """Make a device function for one thread that requests the boxes of x's rows from `row`, and of w's from `column`.

    turn: number of the first slot, counted over all tiles. full, empty: the addresses of the barriers of slot 0
    """
    stages, slot, w_begin = tile.stages, tile.slot, tile.rows * LINE        # w's box lies behind x's in a slot

    @device_function
    def produce(x_map: Any, w_map: Any, row: Any, column: Any, steps: Any, turn: Any, full: Any, empty: Any) -> None:
        for step in range(steps):
            number = types.uint32(turn + step)
            at = types.uint32(number % stages)
            barrier_wait(empty + 8 * at, (number // stages + 1) % 2)    # passes at once in the first round of slots
            barrier_expect(full + 8 * at, slot)
            to = types.uint32(shared_base() + at * slot)
            copy_box(to, address(x_map), step * DEPTH, row, full + 8 * at)
            copy_box(types.uint32(to + w_begin), address(w_map), step * DEPTH, column, full + 8 * at)

    return produce


def _consumer(tile: HopperTile) -> Any:
    """Make a device function for a warpgroup that computes the sums of a tile and signals when it has read each slot.

    turn: number of the first slot, counted over all tiles; elected: whether this thread signals for its warpgroup;
    next_team: the barrier that lets the other consumer begin
    """
    stages, slot, w_begin, teams = tile.stages, tile.slot, tile.rows * LINE, tile.teams
    count = tile.row_tiles * tile.columns // 2      # sums of a thread: 64 x columns of each row tile, by 128 threads
    multiply = wgmma(tile.columns, DEPTH // 16, row_tiles=tile.row_tiles)
    wait_for_older, wait_for_all = wgmma_wait(count, pending=1), wgmma_wait(count, pending=0)

    @device_function
    def consume(sums: Any, own_row: Any, steps: Any, turn: Any, full: Any, empty: Any, next_team: Any,
                elected: Any) -> None:
        previous = types.uint32(0)      # the slot of the step before
        for step in range(steps):
            number = types.uint32(turn + step)
            at = types.uint32(number % stages)
            barrier_wait(full + 8 * at, number // stages % 2)
            x_box = types.uint32(shared_base() + at * slot)
            x, w = types.int64((x_box + own_row * LINE) // 16) | BY_ROWS, types.int64((x_box + w_begin) // 16) | BY_ROWS
            multiply(sums, x, w, step)      # step 0 begins new sums
            wait_for_older(sums)
            if elected and step > 0:
                barrier_arrive(empty + 8 * previous)
            previous = at
        if elected and teams > 1:
            barrier_arrive(next_team)
        wait_for_all(sums)
        if elected:
            barrier_arrive(empty + 8 * previous)

    return consume


def variants() -> Iterator[Kernel]:
    """Yield the kernels of every epilogue and tile, and that which lays out weights."""
    yield lay_out_kernel()
    yield from (linear_kernel(tile=tile, **options) for tile in (LARGE, ALTERNATE, SMALL) for options in epilogues())

"""Emulate Hopper's asynchronous units: mbarriers, TMA copies, products of a warpgroup.

Descriptors are decoded as the hardware does (PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"),
and the 128-byte swizzle is an exclusive or of address bits. Therefore a wrong offset, stride or alignment gives wrong
numbers here too. A copy or a product ends as late as waits allow or at once (`cuda_emulator.launch`). Fences do
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.backends.numba_cuda.ptx.emulated import current
from engine.backends.numba_cuda.ptx.warp import bf16_of_bits

from .warp_program import WARP, EmulationError, LocalArray

WARPGROUP = 128
SWIZZLED = 64
"""Elements of a row of 128 bytes, which is the width of every box and panel."""


@dataclass
class Barrier:
    """An mbarrier: its phase ends after `pending` more arrivals and when all announced bytes have been copied."""

    arrivals: int
    """How many threads arrive in each phase."""
    pending: int
    bytes: int = 0
    """Announced bytes that have not been copied yet."""
    phase: int = 0
    """The parity of the present phase: 0 or 1."""
    flying: list[Callable[[], None]] = field(default_factory=list)
    """Copies that are not finished."""

    def arrive(self) -> None:       # of one thread
        if self.pending == 0:
            raise EmulationError("more threads arrive at an mbarrier than it expects")
        self.pending -= 1
        self.settle()

    def settle(self) -> None:
        """End the phase if nothing is missing any more."""
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase ^ 1, self.arrivals

    def passed(self, parity: int) -> bool:
        """Return True if the phase of this parity has ended."""
        while self.flying:
            self.flying.pop(0)()
        return self.phase != parity


class TensorMap(np.ndarray):
    """A tensor map of 128 bytes as an argument of an emulated kernel; `tensor_map` creates it."""

    matrix: np.ndarray      # uint16, bits of bfloat16
    box_rows: int           # rows of a box, each of 64 elements


def tensor_map(matrix: np.ndarray, box_rows: int) -> TensorMap:
    """Return a tensor map as `numba_cuda.tensor_map.encode` does, for boxes of box_rows by 64 of a uint16 matrix.

    Elements outside the matrix are zeros, and boxes are swizzled.
    """
    made = np.zeros(128, np.uint8).view(TensorMap)
    made.matrix, made.box_rows = matrix, box_rows
    return made


def _swizzle(address: np.ndarray) -> np.ndarray:
    """Return where TMA puts bytes: row r of 128 bytes has its 16-byte columns in the order c ^ (r % 8)."""
    return address ^ ((address >> 7 & 7) << 4)


def operand(descriptor: int, rows: int, transposed: bool) -> np.ndarray:
    """Return the matrix [rows, 16] that a descriptor describes, as float32.

    transposed: False if the 16 of a row lie side by side in memory, True if 64 rows do
    """
    # The descriptor has three numbers of bytes, each as 14 bits in units of 16: the start, from 64 rows to the next (of
    # transposed ones alone), and from 8 lines of memory, of 128 bytes, to the next 8. Bits 62 and 63 are the kind of
    # swizzle, 1 for 128 bytes, and bits 49 to 51 the offset of a pattern that begins at no multiple of 1024 bytes.
    start, leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    if descriptor >> 62 & 3 != 1 or descriptor >> 49 & 7:
        raise EmulationError("a matrix descriptor asks for other than the 128-byte swizzle at 1024-byte atoms: "
                             f"{descriptor:#x}")
    row, k = np.arange(rows)[:, None], np.arange(16)
    if transposed:
        at = start + row // SWIZZLED * leading + row % SWIZZLED * 2 + k // 8 * stride + k % 8 * 128
    else:
        at = start + row // 8 * stride + row % 8 * 128 + k * 2
    shared = current().block.shared
    if at.max() >= shared.size:
        raise EmulationError(f"a matrix descriptor reaches byte {at.max()} of {shared.size} of shared memory")
    return bf16_of_bits(shared.view(np.uint16)[_swizzle(at) // 2])


_LANE = np.arange(WARPGROUP)
# The first row of 64, and the first column of each 8, of which each thread holds numbers (`ptx/mma.py`).
_ROW, _PAIR = _LANE // 32 * 16 + _LANE % 32 // 4, _LANE % 4 * 2


def _registers(arrays: list[LocalArray], first: int, count: int) -> np.ndarray:
    """Return some registers of the threads of a warpgroup, [count, 128], from the local arrays of its warps."""
    return np.concatenate([array.data.reshape(-1, WARP)[first:first + count] for array in arrays], axis=1)


def _left(arrays: list[LocalArray], step: int) -> np.ndarray:
    """Return the matrix [64, 16] of a step, whose bfloat16 pairs lie in four registers per thread."""
    matrix = np.empty((64, 16), np.float32)
    quads = _registers(arrays, 4 * step, 4)
    for i in range(4):      # register i: row +8 if i is odd, column +8 from i = 2 on; two columns in its halves
        for odd in range(2):
            halves = quads[i] >> np.uint32(16 * odd) & np.uint32(0xFFFF)
            matrix[_ROW + 8 * (i % 2), _PAIR + 8 * (i // 2) + odd] = bf16_of_bits(halves)
    return matrix


def _accumulate(sums: list[LocalArray], first: int, left: np.ndarray, right: np.ndarray, keep: bool) -> None:
    """Add left [64, 16] right^T [16, n] to the threads' registers from `first` on, or begin new sums."""
    from engine.backends.numba_cuda.ptx.tensor_cores import add_products  # imports Numba, which few tests need

    n = len(right)
    register = np.arange(n // 2)[:, None]       # four for each 8 columns: two of a row, two of the row 8 below
    mine = _ROW + register % 4 // 2 * 8, _PAIR + register // 4 * 8 + register % 2
    matrix = np.zeros((WARPGROUP // 2, n), np.float32)
    if keep:
        matrix[mine] = _registers(sums, first, n // 2)
    add_products(left, right, matrix)
    for number, array in enumerate(sums):
        array.data.reshape(-1, WARP)[first:first + n // 2] = matrix[mine][:, number * WARP:][:, :WARP]


class Hopper:
    """The asynchronous units of a block: barriers by address, and unfinished products by warpgroup, oldest first."""

    def __init__(self, block: Any) -> None:
        self._block = block
        self._barriers: dict[int, Barrier] = {}
        self._products: dict[int, list[Callable[[], None]]] = defaultdict(list)

    def barrier(self, address: int) -> Barrier:
        """Return the mbarrier that was created at an address of shared memory."""
        if address not in self._barriers:
            raise EmulationError(f"no mbarrier was made at {address}")
        return self._barriers[address]

    def make_barrier(self, address: int, arrivals: int) -> None:
        """Emulate mbarrier.init."""
        self._block.shared_bytes(address, size=8, align=8)      # raises outside of shared memory
        self._barriers[address] = Barrier(arrivals, pending=arrivals)

    def expect(self, address: int, size: int) -> None:
        """Emulate mbarrier.arrive.expect_tx."""
        self.barrier(address).bytes += size
        self.barrier(address).arrive()

    def copy_box(self, to: int, map_address: int, column: int, row: int, signal: int) -> None:
        """Emulate cp.async.bulk.tensor.2d: copy the box at [row, column] to `to`; its bytes count at `signal`."""
        block, arrived = self._block, self.barrier(signal)
        tensor = next((a for a in block.arguments if isinstance(a, TensorMap) and a.ctypes.data == map_address), None)
        if tensor is None:
            raise EmulationError("a TMA copy was given an address that is no tensor map's")
        target = block.shared_bytes(to, size=tensor.box_rows * 128, align=1024)

        def land() -> None:
            box = np.zeros((tensor.box_rows, SWIZZLED), np.uint16)
            inside = tensor.matrix[row:row + tensor.box_rows, column:column + SWIZZLED]
            box[:inside.shape[0], :inside.shape[1]] = inside
            target.view(np.uint16)[_swizzle(2 * np.arange(box.size)) // 2] = box.ravel()
            arrived.bytes -= target.size
            arrived.settle()

        if block.late:
            arrived.flying.append(land)
        else:
            land()

    def warpgroup(self, what: str, argument: tuple[Any, ...], action: Callable[[list[Any]], None]) -> None:
        """Wait for the 128 threads of a warpgroup, and run the action once on the arguments of its warps."""
        number = current().number // (WARPGROUP // WARP)

        def once(arguments: list[Any]) -> list[None]:
            action(arguments)
            return [None] * len(arguments)

        self._block.meet((f"warpgroup {number}", what), WARPGROUP, argument, once)

    def multiply(self, arguments: list[Any], row_tiles: int, n: int, steps: int, advance: tuple[int, int],
                 left_tile: int, transposed: bool, rows_in_registers: bool) -> None:
        """Start a group of products of `hopper.wgmma`; arguments of four warps: (sums, left, right, keep)."""
        sums, lefts, *others = (list(column) for column in zip(*arguments, strict=True))
        if not rows_in_registers:
            others.append(lefts)
        if any(len(np.unique(np.concatenate(column))) > 1 for column in others):
            raise EmulationError("the threads of a warpgroup disagree about a product's operands")
        right_at, kept = int(others[0][0][0]), bool(others[1][0][0])

        def run() -> None:
            for step in range(steps):
                right = operand(right_at + step * advance[1], n, transposed)
                for tile in range(row_tiles):
                    left = (_left(lefts, step) if rows_in_registers
                            else operand(int(lefts[0][0]) + step * advance[0] + tile * left_tile, 64, False))
                    _accumulate(sums, tile * n // 2, left, right, kept or step > 0)

        if self._block.late:
            self._products[current().number // (WARPGROUP // WARP)].append(run)
        else:
            run()

    def settle_products(self, pending: int) -> None:
        """Emulate wgmma.wait_group for the warpgroup of the running thread."""
        groups = self._products[current().number // (WARPGROUP // WARP)]
        while len(groups) > pending:
            groups.pop(0)()

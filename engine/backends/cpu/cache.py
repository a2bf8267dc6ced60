"""The cache of a decoder: blocks of rows of keys and values, which rows are free, and the rows of each hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .packer import allocate

BLOCK_ROWS = 64
"""Rows of a block, CACHE_ROWS in state.pxi."""


class Cache:
    """Blocks of rows, one row for each token. The cache grows by whole blocks, and no row ever moves."""

    def __init__(self, row_floats: int):
        """Hold no blocks yet; row_floats: floats of the keys and values of one token in all layers."""
        self._block_floats = BLOCK_ROWS * row_floats
        self._memory: list[np.ndarray] = []
        self.addresses = np.zeros(1, np.uintp)
        """The address of each block; one zero while there is no block."""
        self._free = np.zeros(0, np.int32)
        self._count = 0     # free rows are self._free[:count], the next one to be taken last

    @property
    def rows(self) -> int:
        """Return the number of rows, free ones included."""
        return len(self._free)

    @property
    def taken(self) -> int:
        """Return the number of rows that are not free."""
        return len(self._free) - self._count

    def take(self, n: int) -> NDArray[np.int32]:
        """Return n rows that nobody uses, and at least double the cache if there are too few."""
        if self._count < n:
            self._grow(max(n - self._count, len(self._free)))
        self._count -= n
        return self._free[self._count : self._count + n][::-1].copy()

    def give(self, rows: NDArray[np.int32]) -> None:
        """Take rows back."""
        self._free[self._count : self._count + len(rows)] = rows[::-1]
        self._count += len(rows)

    def _grow(self, rows: int) -> None:
        blocks, old = -(-rows // BLOCK_ROWS), len(self._free)
        memory = allocate(blocks * self._block_floats)
        starts = memory.ctypes.data + np.arange(blocks, dtype=np.uintp) * np.uintp(4 * self._block_floats)
        self._memory.append(memory)
        self.addresses = np.concatenate([self.addresses[: old // BLOCK_ROWS], starts])
        fresh = np.arange(old + blocks * BLOCK_ROWS, old, -1, dtype=np.int32) - np.int32(1)
        free = np.empty(old + len(fresh), np.int32)
        # Fresh rows lie below the free ones, so that rows that are in a CPU cache already are taken first.
        free[: len(fresh)] = fresh
        free[len(fresh) : len(fresh) + self._count] = self._free[: self._count]
        self._free, self._count = free, len(fresh) + self._count


@dataclass(eq=False)
class _Strip:
    """Row numbers of a hypothesis and of its first children, which share one array."""

    rows: NDArray[np.int32]
    used: int


class RowTable:
    """The rows of the cache in which the tokens of a hypothesis lie, in order.

    A child's table continues the array of its parent's, unless another child has done so before.
    """

    def __init__(self, strip: _Strip | None = None, past: int = 0, length: int = 0):
        """Hold the first `length` rows of a strip, of which those from `past` on are the hypothesis' own."""
        self._strip = strip or _Strip(np.empty(0, np.int32), 0)
        self._past, self._length = past, length

    def __len__(self) -> int:
        """Return the number of tokens."""
        return self._length

    @property
    def rows(self) -> NDArray[np.int32]:
        """Return the rows of all tokens."""
        return self._strip.rows[: self._length]

    @property
    def own(self) -> NDArray[np.int32]:
        """Return the rows of the tokens that the hypothesis added to its parent."""
        return self._strip.rows[self._past : self._length]

    def extended(self, rows: NDArray[np.int32]) -> RowTable:
        """Return the table of a child with these rows of its own."""
        strip, length = self._strip, self._length + len(rows)
        if strip.used != self._length or length > len(strip.rows):
            strip = _Strip(np.empty(max(BLOCK_ROWS, 2 * length), np.int32), length)
            strip.rows[: self._length] = self.rows
        strip.rows[self._length : length] = rows
        strip.used = length
        return RowTable(strip, self._length, length)

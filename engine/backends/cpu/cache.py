"""The cache of a decoder: blocks of rows of keys and values, which rows are free, and the rows of each hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .packer import allocate

BLOCK_ROWS = 64
"""Rows of a block, CACHE_ROWS in state.pxi."""
REGION_BYTES = 2**24
"""About the size of a region: large enough for huge pages, small enough to be given back soon."""


class Cache:
    """Rows of keys and values, one for each token, in regions of whole blocks.

    A region is allocated when no row is free. It is given back when none of its rows is taken, and more rows are free
    than are taken. No row ever moves.
    """

    def __init__(self, row_floats: int, most_rows: int | None = None):
        """Hold no rows yet; row_floats: floats of the keys and values of one token in all layers.

        most_rows: the most rows that will be taken, if somebody sees to that; a region need not be larger.
        """
        blocks = max(1, REGION_BYTES // (4 * BLOCK_ROWS * row_floats))
        if most_rows is not None:
            blocks = min(blocks, -(-most_rows // BLOCK_ROWS))
        self._block_floats, self._region_rows = BLOCK_ROWS * row_floats, blocks * BLOCK_ROWS
        self._regions: list[np.ndarray | None] = []
        """The memory of each region; None for one that was given back, whose place another may take."""
        self.addresses = np.zeros(1, np.uintp)
        """The address of each block; one zero while there is no block."""
        self._free = np.zeros(0, np.int32)
        self._count = 0     # free rows are self._free[:count], the next one to be taken last

    @property
    def rows(self) -> int:
        """Return the number of rows, free ones included."""
        return self._region_rows * sum(region is not None for region in self._regions)

    @property
    def taken(self) -> int:
        """Return the number of rows that are not free."""
        return self.rows - self._count

    @property
    def nbytes(self) -> int:
        """Return the bytes of all rows."""
        return 4 * self._block_floats * self.rows // BLOCK_ROWS

    def take(self, n: int) -> NDArray[np.int32]:
        """Return n rows that nobody uses; allocate regions if there are too few."""
        if self._count < n:
            self._grow(n - self._count)
        self._count -= n
        return self._free[self._count : self._count + n][::-1].copy()

    def give(self, rows: NDArray[np.int32]) -> None:
        """Take rows back."""
        self._free[self._count : self._count + len(rows)] = rows[::-1]
        self._count += len(rows)

    def keep(self, taken: Sequence[NDArray[np.int32]]) -> None:
        """Let exactly these rows be taken, whatever came in the middle of an earlier call."""
        free = np.repeat([region is not None for region in self._regions], self._region_rows)
        for rows in taken:
            free[rows] = False
        self._hold(np.flatnonzero(free)[::-1].astype(np.int32))

    def shrink(self) -> None:
        """Give regions back to the system while more rows are free than are taken, except for one region."""
        spare = self._count - max(self.taken, self._region_rows)
        if spare < self._region_rows:
            return
        free = self._free[: self._count]
        counts = np.bincount(free // self._region_rows, minlength=len(self._regions))
        empty = np.flatnonzero(counts == self._region_rows)[::-1][: spare // self._region_rows]
        if not len(empty):
            return
        for i in empty.tolist():
            self._regions[i] = None
        self._hold(free[~np.isin(free // self._region_rows, empty)])

    def _grow(self, rows: int) -> None:
        fresh = []
        for _ in range(-(-rows // self._region_rows)):
            memory = allocate(self._region_rows // BLOCK_ROWS * self._block_floats)
            place = next((i for i, region in enumerate(self._regions) if region is None), len(self._regions))
            self._regions[place : place + 1] = [memory]
            fresh.append(np.arange(place * self._region_rows, (place + 1) * self._region_rows, dtype=np.int32))
        # Fresh rows lie below the free ones, so that rows that are in a CPU cache already are taken first.
        self._hold(np.concatenate([np.concatenate(fresh)[::-1], self._free[: self._count]]))

    def _hold(self, free: NDArray[np.int32]) -> None:
        """Hold these free rows, the next one to be taken last, and the addresses of the regions."""
        blocks = np.arange(self._region_rows // BLOCK_ROWS, dtype=np.uintp) * np.uintp(4 * self._block_floats)
        self.addresses = np.concatenate([np.zeros_like(blocks) if memory is None else memory.ctypes.data + blocks
                                         for memory in self._regions] or [np.zeros(1, np.uintp)])
        self._free = np.empty(self.rows, np.int32)
        self._free[: len(free)] = free
        self._count = len(free)


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

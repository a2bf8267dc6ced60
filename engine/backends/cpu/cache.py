"""Define the cache of a decoder: cells of keys and values, which cells are free, and the cells of each hypothesis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .native.layout import CELL
from .packer import allocate

REGION_BYTES = 2**24
"""About the size of a region: large enough for huge pages, small enough to be given back soon."""
LONG_RUN, SHORT_RUN = 16, 4
"""Cells of one head that lie one after the other, which a CPU can prefetch. The short run is for large models."""


@dataclass(eq=False)
class _CellList:
    """The numbers of cells, in the order of their tokens, which one or more hypotheses have in common."""

    cells: NDArray[np.int32]
    users: int = 1
    """How many hypotheses have this list."""


@dataclass(eq=False)
class CellTable:
    """The cells of the cache in which the tokens of a hypothesis lie, in order; `Cache.extend` makes it."""

    shared: _CellList
    length: int
    """The number of tokens."""
    copied: int | None = None
    """The parent's last cell, whose tokens the next pass copies to the first cell of this hypothesis' own, before it
    writes the first new token; None if there is nothing to copy."""

    @property
    def cells(self) -> NDArray[np.int32]:
        """Return the numbers of the cells."""
        return self.shared.cells


class Cache:
    """Cells of CELL tokens in regions. A cell holds the keys and values of its tokens in all layers.

    A hypothesis holds the cells of all its tokens. Children share the full cells of their parent. The first child goes
    on in the parent's last cell; each other one copies it.

    A region is allocated when no cell is free. `shrink` gives it back when none of its cells is taken, and more cells
    are free than are taken. No cell ever moves. A region is divided into segments, each with a run of cells: for each
    head first the keys of all cells of the run, one after the other, then their values.

    All methods belong to the thread that has the decoder's turn.
    """

    def __init__(self, cell_bytes: int, heads: int, most_tokens: int | None = None):
        """Hold no cells yet.

        cell_bytes: the bytes of a cell's keys, or of its values, of one head. heads: the key heads of all layers.
        most_tokens: the most tokens that the caller will ever keep at a time; a region need not be larger.
        """
        most_cells = LONG_RUN if most_tokens is None else -(-most_tokens // CELL)
        whole_bytes = 2 * heads * cell_bytes        # of a cell: the keys and values of all heads
        run = max(1, min(LONG_RUN, max(SHORT_RUN, REGION_BYTES // whole_bytes), most_cells))
        segments = max(1, REGION_BYTES // (run * whole_bytes))
        if most_tokens is not None:
            segments = min(segments, -(-most_cells // run))
        self.run_bytes = run * cell_bytes
        """Bytes from the keys of a cell to its values, and from there to the keys of the next head."""
        self._region_cells, self._whole_bytes = segments * run, whole_bytes
        segment, place = np.divmod(np.arange(self._region_cells, dtype=np.uintp), np.uintp(run))
        self._places = segment * np.uintp(run * whole_bytes) + place * np.uintp(cell_bytes)
        """The offset of each cell from the beginning of its region."""
        self._regions: list[np.ndarray | None] = []
        """The memory of each region; None for one that was given back, whose place another may take."""
        self.addresses = np.zeros(1, np.uintp)
        """The address of each cell; one zero while there is none."""
        self._free = np.zeros(0, np.int32)
        """A stack of the free cells, `_free[:_free_count]`: the last one is taken first."""
        self._free_count = 0
        self._holders = np.zeros(0, np.int32)
        """How many `_CellList` have each cell; a cell is free when none has it."""

    @property
    def cells(self) -> int:
        """Return the number of cells, free ones included."""
        return self._region_cells * sum(region is not None for region in self._regions)

    @property
    def taken(self) -> int:
        """Return the number of cells that are not free."""
        return self.cells - self._free_count

    @property
    def nbytes(self) -> int:
        """Return the bytes of all cells."""
        return self._whole_bytes * self.cells

    def extend(self, parent: CellTable | None, count: int) -> CellTable:
        """Return the table of a child with `count` tokens of its own; allocate regions if there are too few cells.

        The parent must not have been freed.
        """
        length = count if parent is None else parent.length + count
        needed = -(-length // CELL)
        if parent is None:
            return CellTable(self._take(np.empty(0, np.int32), needed), length)
        shared, copied = parent.shared, None
        inherited = shared.cells
        if parent.length % CELL and not (shared.users == 1 and self._holders[inherited[-1]] == 1):
            # An earlier child goes on in the parent's last cell, which is not full, so this child copies it.
            inherited, copied = inherited[:-1], int(inherited[-1])
        elif needed == len(inherited):
            shared.users += 1
            return CellTable(shared, length)
        return CellTable(self._take(inherited, needed - len(inherited)), length, copied)

    def cut(self, table: CellTable, length: int) -> CellTable:
        """Return the table of the first `length` tokens of a hypothesis that has not been freed.

        A cell that both have is written by neither: the next child of each copies the tokens that it needs.
        """
        return CellTable(self._take(table.cells[: -(-length // CELL)], 0), length)

    def free(self, tables: Iterable[CellTable]) -> None:
        """Free the cells of hypotheses that no other hypothesis has. Call it once for each table."""
        for table in tables:
            shared = table.shared
            shared.users -= 1
            if not shared.users:
                self._holders[shared.cells] -= 1
                free = shared.cells[self._holders[shared.cells] == 0]
                self._free[self._free_count : self._free_count + len(free)] = free[::-1]      # taken in the same order
                self._free_count += len(free)

    def keep(self, tables: Iterable[CellTable]) -> None:
        """Free all cells but those of these hypotheses.

        It counts users and holders anew, because an exception in the middle of a call may have left them wrong.
        """
        lists: dict[int, _CellList] = {}
        for shared in (table.shared for table in tables):
            shared.users = shared.users + 1 if id(shared) in lists else 1
            lists[id(shared)] = shared
        self._holders = np.zeros(len(self._regions) * self._region_cells, np.int32)
        for shared in lists.values():
            self._holders[shared.cells] += 1
        allocated = np.array([region is not None for region in self._regions], bool)
        free = np.repeat(allocated, self._region_cells) & (self._holders == 0)
        self._set_free(np.flatnonzero(free)[::-1].astype(np.int32))

    def shrink(self) -> None:
        """Give empty regions back to the system while more cells are free than are taken.

        The free cells of one region stay in any case.
        """
        spare = self._free_count - max(self.taken, self._region_cells)
        if spare < self._region_cells:
            return
        free = self._free[: self._free_count]
        counts = np.bincount(free // self._region_cells, minlength=len(self._regions))      # free cells of each region
        empty = np.flatnonzero(counts == self._region_cells)[::-1][: spare // self._region_cells]
        if not len(empty):
            return
        for i in empty.tolist():
            self._regions[i] = None
        self._set_free(free[~np.isin(free // self._region_cells, empty)])

    def _take(self, inherited: NDArray[np.int32], count: int) -> _CellList:
        """Return a new list of `inherited` cells and then `count` free ones, and count it among the holders of each."""
        if self._free_count < count:
            self._grow(count - self._free_count)
        self._free_count -= count
        cells = np.concatenate([inherited, self._free[self._free_count : self._free_count + count][::-1]])
        self._holders[cells] += 1
        return _CellList(cells)

    def _grow(self, cells: int) -> None:
        """Allocate regions with at least this number of cells."""
        fresh = []
        for _ in range(-(-cells // self._region_cells)):
            memory = allocate(self._region_cells * self._whole_bytes // 4)
            place = next((i for i, region in enumerate(self._regions) if region is None), len(self._regions))
            self._regions[place : place + 1] = [memory]
            fresh.append(np.arange(place * self._region_cells, (place + 1) * self._region_cells, dtype=np.int32))
        # Fresh cells lie below the free ones, so that cells that are in a CPU cache already are taken first.
        self._set_free(np.concatenate([np.concatenate(fresh)[::-1], self._free[: self._free_count]]))

    def _set_free(self, free: NDArray[np.int32]) -> None:
        """Make these the free cells, of which the last is taken first, after regions have come or gone.

        `addresses` and `_holders` then have an entry for each cell of all regions.
        """
        addresses = [np.zeros_like(self._places) if memory is None else memory.ctypes.data + self._places
                     for memory in self._regions]       # a region that was given back has zeros
        self.addresses = np.concatenate(addresses or [np.zeros(1, np.uintp)])
        unlisted = len(self._regions) * self._region_cells - len(self._holders)     # cells of new regions
        self._holders = np.concatenate([self._holders, np.zeros(unlisted, np.int32)])
        self._free = np.empty(self.cells, np.int32)
        self._free[: len(free)] = free
        self._free_count = len(free)

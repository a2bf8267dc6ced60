"""`RowsTicket` and `RowsEntry`: the ticket and the entry of a work of pieces, each of which gets one row of results."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import InputError
from .entry import Entry, OwnStop
from .ticket import Ticket
from .work import Work

if TYPE_CHECKING:
    from .work_queue import WorkQueue


@dataclass(slots=True)
class GivenRows:
    """The rows of some pieces of a work, from one batch."""

    numbers: list[int]
    """The numbers of the pieces."""
    end: int
    """How many pieces of the work have their row after this batch."""
    rows: Any
    """An array or a list, one row for each of `numbers`; None once the caller has them."""


class RowsEntry(Entry):
    """A work of pieces on its way through a queue."""

    __slots__ = ("first", "job", "left", "most", "pieces_left", "taken", "work")
    taken: int
    """How many pieces batches have taken so far, in the order of the work."""
    left: int
    """The tokens of the pieces that were not taken."""
    pieces_left: int
    """The number of the pieces that were not taken."""
    first: int
    """The tokens of the very first piece; 0 once it was taken."""

    def __init__(self, number: int, work: Work, priority: int, owner: Hashable, stop: OwnStop, mixes: bool = True):
        """mixes: whether its pieces may be computed beside those of other works."""
        super().__init__(number, priority, owner, stop)
        self.work = work
        self.job: Hashable = work.job if mixes else number
        """Works with equal jobs may share a batch; a number, which no other work has, keeps it alone."""
        self.most = work.most
        """The most pieces of a batch with this work; None for no limit."""
        self.parts: list[GivenRows] = []
        self.taken, self.left, self.pieces_left = 0, sum(work.costs), len(work.order)
        if work.order:
            self.first = work.costs[work.order[0]]
        else:       # a work without pieces has ended
            self.first, self.end = 0, True

    @property
    def given(self) -> int:
        """How many pieces have their row, in the order of the work."""
        return self.parts[-1].end if self.parts else 0

    def take_all(self) -> None:
        """Take all pieces that are left."""
        self.taken = len(self.work.order)
        self.left = self.pieces_left = self.first = 0

    def take(self, grain: int, max_tokens: int, max_pieces: float, oversize: bool) -> tuple[int, int]:
        """Take the next pieces until they have `grain` tokens or more, and return (their number, their tokens).

        max_tokens, max_pieces: limits on these pieces, inf for none. oversize: whether the first piece may have more
        than `max_tokens`. Returns (0, 0) if the first piece does not fit.
        """
        costs, order, taken, size = self.work.costs, self.work.order, self.taken, 0
        while taken < len(order) and size < grain and taken - self.taken < max_pieces:
            cost = costs[order[taken]]
            if size + cost > max_tokens and not oversize:
                break
            taken, size, oversize = taken + 1, size + cost, False
        pieces = taken - self.taken
        if pieces:
            self.taken, self.first = taken, 0
            self.left -= size
            self.pieces_left -= pieces
        return pieces, size

    def give(self, rows: Any, shared: bool) -> None:
        """Append the rows of the pieces that were taken last. shared: whether the batch has other works, too."""
        given = self.given
        if shared:      # a view of an array of the whole batch would keep that alive
            rows = rows.copy() if isinstance(rows, np.ndarray) else [
                row.copy() if isinstance(row, np.ndarray) else row for row in rows]
        self.parts.append(GivenRows(self.work.order[given : self.taken], self.taken, rows))
        if self.bells and self.taken < len(self.work.order):       # after the last rows, the end rings
            self.ring()

    def add_times(self, begun: float, ended: float) -> None:
        """Add the wait for a batch and the time of the batch, which went from `begun` to `ended` (`perf_counter`)."""
        self.waited += begun - self.since
        self.computing += ended - begun
        self.since = ended

    def rewind(self) -> None:
        """Let the pieces wait again that a batch has taken and an interrupt has left without rows."""
        given, costs, order = self.given, self.work.costs, self.work.order
        self.taken, self.pieces_left = given, len(order) - given
        self.left = sum(costs[i] for i in order[given:])
        self.first = costs[order[0]] if order and not given else 0


class RowsTicket(Ticket):
    """The ticket of a work of pieces: iterate over the rows of each batch, or wait for all by `result`."""

    __slots__ = ("_read",)
    entry: RowsEntry

    def __init__(self, queue: WorkQueue, entry: RowsEntry):
        super().__init__(queue, entry)
        self._read = 0      # how many parts of the entry an iteration has returned

    @property
    def waits(self) -> bool:
        """Whether the work has not ended and has pieces that wait for a batch."""
        return self.entry.end is None and self.entry.pieces_left > 0

    def __iter__(self) -> Iterator[tuple[list[int], Any]]:
        return self

    def __next__(self) -> tuple[list[int], Any]:
        """Wait for rows, and return (the numbers of their pieces, the rows); raises the error of the work.

        Rows are not kept after that, so `result` cannot be called after an iteration.
        """
        entry, read = self.entry, self._read
        if read == len(entry.parts):
            if entry.end is None:
                self._queue.wait([entry], read)
            if read == len(entry.parts):        # it has ended, with an error or after its last part
                self._raise()
                raise StopIteration
        part, self._read = entry.parts[read], read + 1
        rows, part.rows = part.rows, None
        return part.numbers, rows

    def result(self, timeout: float | None = None) -> list[Any]:
        """Wait for all rows, and return them in the order of the pieces; raises the error of the work.

        timeout: the seconds after which this raises `TimedOut`, and the work goes on.
        """
        self.wait(timeout)
        if self._read:
            raise InputError("the rows of this ticket were given one batch after the other; take them all from "
                             "there, or call result without an iteration")
        rows: list[Any] = [None] * len(self.entry.work.order)
        for part in self.entry.parts:
            for i, row in zip(part.numbers, part.rows, strict=True):
                rows[i] = row
        return rows

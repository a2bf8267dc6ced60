"""`RowsTicket`: the ticket of a work of pieces, each of which has a row; and `RowsEntry`: its entry in the queue."""

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
    """The rows of some pieces of a work, which one batch computed."""

    numbers: list[int]
    end: int
    """How many pieces of the work have their row now."""
    rows: Any


class RowsEntry(Entry):
    """A work of pieces on its way through a queue."""

    __slots__ = ("first", "job", "left", "most", "pieces_left", "taken", "work")
    taken: int
    """How many pieces a batch has taken, in the order of the work."""
    left: int
    """The tokens of the other pieces."""
    pieces_left: int
    """The number of the other pieces."""
    first: int
    """The tokens of the first piece, 0 once it was taken."""

    def __init__(self, number: int, work: Work, priority: int, owner: Hashable, stop: OwnStop, mixes: bool = True):
        """mixes: whether its pieces may be computed beside those of other works."""
        super().__init__(number, priority, owner, stop)
        self.work = work
        self.job: Hashable = work.job if mixes else number
        """Works with equal jobs may be computed in one batch."""
        self.most = work.most
        """The most pieces of a batch that it is in."""
        self.parts: list[GivenRows] = []
        self.taken, self.left, self.pieces_left = 0, sum(work.costs), len(work.order)
        if work.order:
            self.first = work.costs[work.order[0]]
        else:
            self.first, self.end = 0, True

    @property
    def given(self) -> int:
        """How many pieces have their row."""
        return self.parts[-1].end if self.parts else 0

    def take_all(self) -> None:
        """Take all pieces that are left."""
        self.taken = len(self.work.order)
        self.left = self.pieces_left = self.first = 0

    def take(self, grain: int, max_tokens: int, max_pieces: float, oversize: bool) -> tuple[int, int]:
        """Take pieces in order until they have `grain` tokens or more, and return (their number, their tokens).

        max_tokens, max_pieces: what they may have at most; inf pieces are no limit. oversize: whether the first piece
        may have more than `max_tokens`. Returns (0, 0) if the first piece does not fit.
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
        """Give the caller the rows of the pieces that were taken last. shared: the batch has rows of other works, too.
        """
        given = self.given
        if shared:      # a view of an array of the whole batch would keep that alive
            rows = rows.copy() if isinstance(rows, np.ndarray) else [
                row.copy() if isinstance(row, np.ndarray) else row for row in rows]
        self.parts.append(GivenRows(self.work.order[given : self.taken], self.taken, rows))
        if self.bells and self.taken < len(self.work.order):       # after the last rows, the end rings
            self.ring()

    def add_times(self, begun: float, ended: float) -> None:
        """Count how long it waited for a batch, and was in it. begun, ended: of the batch, by `time.perf_counter`."""
        self.waited += begun - self.since
        self.computing += ended - begun
        self.since = ended

    def rewind(self) -> None:
        """Let the pieces wait again that a batch has taken, and that were never computed."""
        given, costs, order = self.given, self.work.costs, self.work.order
        self.taken, self.pieces_left = given, len(order) - given
        self.left = sum(costs[i] for i in order[given:])
        self.first = costs[order[0]] if order and not given else 0


class RowsTicket(Ticket):
    """The rows of one work, for its caller."""

    __slots__ = ("_read",)
    entry: RowsEntry

    def __init__(self, queue: WorkQueue, entry: RowsEntry):
        super().__init__(queue, entry)
        self._read = 0

    @property
    def waits(self) -> bool:
        """Whether some of its pieces wait for a batch."""
        return self.entry.end is None and self.entry.pieces_left > 0

    def __iter__(self) -> Iterator[tuple[list[int], Any]]:
        return self

    def __next__(self) -> tuple[list[int], Any]:
        """Wait for rows, and return (the numbers of their pieces, the rows); raises the error of the work.

        A row is given once, and not kept: `result` has no rows of which an iteration has given some.
        """
        entry, read = self.entry, self._read
        if read == len(entry.parts):
            if entry.end is None:
                self._queue.wait([entry], read)
            if read == len(entry.parts):
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

"""`Ticket`: what became of a work, for whoever waits for it; and `Waiting`: what the queue keeps of it to its end."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import InputError
from ..base.stop import NEVER, Stop
from .work import Work

if TYPE_CHECKING:
    from .model_queue import ModelQueue


class Part:
    """The rows of some pieces of a work, which one batch computed."""

    __slots__ = ("end", "numbers", "rows")

    def __init__(self, numbers: list[int], end: int, rows: Any):
        """end: how many pieces of the work have their row now."""
        self.numbers, self.end, self.rows = numbers, end, rows


class OwnStop(Stop):
    """The stop of one work: that of its call, an earlier deadline, or the end of its ticket."""

    __slots__ = ("_outer",)

    def __init__(self, outer: Stop, deadline: float):
        super().__init__(min(filter(None, (outer.deadline, deadline)), default=0.0))
        self._outer = outer

    @property
    def has_come(self) -> bool:
        """Whether the time has come, or the call or the ticket was cancelled."""
        return self._outer.has_come or self.cancelled or 0 < self.deadline < time.monotonic()

    def check(self) -> None:
        """Raise as the stop of the call does, and then as `Stop.check`."""
        self._outer.check()
        if self.cancelled or self.deadline:
            super().check()


class Holder(weakref.ref["Ticket"]):
    """A weak reference to a ticket, which the queue gets when nobody holds the ticket any more."""

    __slots__ = ("waiting",)
    waiting: Waiting


class Waiting:
    """A work on its way through a queue. The thread that has the queue's turn changes it; any thread may read it."""

    __slots__ = ("bells", "callbacks", "computing", "end", "holder", "job", "left", "number", "owner", "parts",
                 "priority", "process", "since", "stop", "taken", "waited", "work")

    def __init__(self, number: int, work: Work, priority: int, owner: str, stop: Stop, mixes: bool = True):
        """mixes: whether its pieces may be computed beside those of other works."""
        self.number, self.work, self.priority, self.owner, self.stop = number, work, priority, owner, stop
        self.job: Hashable = work.job if mixes else number
        """What its batches are told by: works with equal jobs share them."""
        self.process = os.getpid()
        self.holder: Holder | None = None
        self.taken = 0
        """How many pieces a batch has taken, in the order of the work."""
        self.left = sum(work.costs)
        """The tokens of the other pieces."""
        self.parts: list[Part] = []
        """The rows so far. Nothing else says which pieces are computed, so that no interrupt can give a row twice."""
        self.end: BaseException | bool | None = None if work.order else True
        """True when all rows are there, the error of a work that failed, and None until then."""
        self.bells: deque[SimpleQueue[bool]] = deque()      # of the threads that wait; an item in one wakes its thread
        self.callbacks: deque[Callable[[], object]] = deque()
        self.since = time.perf_counter()        # when it began to wait for its next batch
        self.waited = self.computing = 0.0

    @property
    def most(self) -> int | None:
        """The most pieces of a batch."""
        return self.work.most

    @property
    def pieces_left(self) -> int:
        """The number of pieces that no batch has taken."""
        return len(self.work.order) - self.taken

    @property
    def first(self) -> int:
        """The tokens of the first piece, 0 once it was taken."""
        return 0 if self.taken else self.work.costs[self.work.order[0]]

    @property
    def given(self) -> int:
        """How many pieces have their row."""
        return self.parts[-1].end if self.parts else 0

    def take(self, room: int | None) -> int | None:
        """Take the next piece, and return its tokens; None, and nothing is taken, if it has more than `room`."""
        cost = self.work.costs[self.work.order[self.taken]]
        if room is not None and cost > room:
            return None
        self.taken += 1
        self.left -= cost
        return cost

    def give(self, rows: Any, shared: bool) -> None:
        """Take the rows of the pieces that were taken last. shared: the batch has rows of other works, too."""
        given = self.given
        if shared:      # a view of an array of the whole batch would keep that alive
            rows = rows.copy() if isinstance(rows, np.ndarray) else [
                row.copy() if isinstance(row, np.ndarray) else row for row in rows]
        self.parts.append(Part(self.work.order[given : self.taken], self.taken, rows))
        self.ring(news=True)

    def clock(self, begun: float, ended: float) -> None:
        """Count the times of a batch that it was in."""
        self.waited += begun - self.since
        self.computing += ended - begun
        self.since = ended

    def rewind(self) -> None:
        """Take back what a batch has taken that was never computed."""
        self.taken = self.given
        self.left = sum(self.work.costs[i] for i in self.work.order[self.taken :])

    def has_news(self, seen: int) -> bool:
        """Return whether there are more than `seen` parts, or the end."""
        return self.end is not None or len(self.parts) > seen

    def ring(self, news: bool) -> bool:
        """Wake the threads that wait, or without news one of them, to step; return whether there was one."""
        rung = False
        while self.bells and (news or not rung):
            with suppress(IndexError):      # its thread has taken it
                self.bells.popleft().put(not news)
                rung = True
        return rung

    def call_back(self) -> None:
        """Call the functions that wait for the end, each once."""
        while self.callbacks:
            try:
                call = self.callbacks.popleft()
            except IndexError:      # another thread has taken it
                return
            call()


class Ticket:
    """The rows of one work, for its caller. Any thread may call its methods.

    The work ends with the ticket: when it is cancelled, or when nobody holds it any more.
    """

    __slots__ = ("__weakref__", "_queue", "_read", "_waiting")

    def __init__(self, queue: ModelQueue, waiting: Waiting):
        self._queue, self._waiting, self._read = queue, waiting, 0

    @property
    def done(self) -> bool:
        """Whether all rows are there, or an error."""
        return self._waiting.end is not None

    @property
    def waits(self) -> bool:
        """Whether some of its pieces wait for a batch."""
        return self._waiting.end is None and self._waiting.pieces_left > 0

    @property
    def error(self) -> BaseException | None:
        """The error of the work; None as long as it has none."""
        return self._waiting.end if isinstance(self._waiting.end, BaseException) else None

    @property
    def times(self) -> tuple[float, float]:
        """The seconds that the work waited for its batches, and the seconds that its batches took."""
        return self._waiting.waited, self._waiting.computing

    def __iter__(self) -> Iterator[tuple[list[int], Any]]:
        return self

    def __next__(self) -> tuple[list[int], Any]:
        """Wait for rows, and return (the numbers of their pieces, the rows); raises the error of the work.

        A row is given once, and not kept: `result` has no rows of which an iteration has given some.
        """
        waiting = self._waiting
        if self._read == len(waiting.parts) and waiting.end is None:
            self._queue.wait(waiting, self._read)
        if self._read == len(waiting.parts):
            self._raise()
            raise StopIteration
        part = waiting.parts[self._read]
        self._read += 1
        rows, part.rows = part.rows, None
        return part.numbers, rows

    def result(self, timeout: float | None = None) -> list[Any]:
        """Wait for all rows, and return them in the order of the pieces; raises the error of the work.

        timeout: the seconds after which this raises `TimedOut`, and the work goes on.
        """
        waiting, until = self._waiting, NEVER if timeout is None else Stop.after(timeout)
        while waiting.end is None:
            self._queue.wait(waiting, len(waiting.parts), until)
        self._raise()
        if self._read:
            raise InputError("the rows of this ticket were given one batch after the other; take them all from "
                             "there, or call result without an iteration")
        rows: list[Any] = [None] * len(waiting.work.order)
        for part in waiting.parts:
            for i, row in zip(part.numbers, part.rows, strict=True):
                rows[i] = row
        return rows

    def cancel(self) -> None:
        """End the work with `Cancelled`, if it has not ended."""
        if self._waiting.end is None:
            self._queue.cancel(self._waiting)

    def add_done_callback(self, function: Callable[[Ticket], object]) -> None:
        """Let the queue call `function(ticket)` at the end, in the thread that steps, or at once if it has come.

        The queue holds the ticket then, and the function must be quick. What it raises is logged, and nothing more.
        Raises `InputError` for a queue without a thread of its own, because then nobody may step until the end.
        """
        if self._waiting.end is None and not self._queue.has_thread:
            raise InputError("a callback needs a queue with a thread of its own, which steps while nobody waits; call "
                             "start of the queue before, or wait for the result")
        self._waiting.callbacks.append(lambda: function(self))
        if self._waiting.end is not None:
            self._queue.call_back(self._waiting)

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error

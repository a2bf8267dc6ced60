"""`Entry`: the state of one work in a queue, from its arrival to its end; and the bells that wake waiting threads."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from heapq import heapify
from queue import SimpleQueue
from typing import Any

from ..base.errors import LATE_REQUEST
from ..base.stop import Stop


class OwnStop(Stop):
    """The stop of one work: the stop of its call, a deadline of its own, or the cancellation of its ticket."""

    __slots__ = ("outer",)

    def __init__(self, outer: Stop, deadline: float):
        """outer: the stop of the call. deadline: of the work, a `time.monotonic()`; 0 for none."""
        is_own = deadline > 0 and not 0 < outer.deadline < deadline     # the earlier of the two deadlines counts
        super().__init__(deadline if is_own else outer.deadline, LATE_REQUEST if is_own else outer.message)
        self.outer = outer

    @property
    def has_come(self) -> bool:
        """Whether the time has come, or the call or the ticket was cancelled."""
        return self.outer.has_come or self.cancelled or 0 < self.deadline < time.monotonic()

    def check(self) -> None:
        """Raise the error of the call's stop if that has come, and then `Cancelled` or `TimedOut` of this one."""
        self.outer.check()
        if self.cancelled or self.deadline:
            super().check()


class TicketRef(weakref.ref[Any]):
    """A weak reference to a ticket. When the ticket is garbage, its callback appends it to `WorkQueue._departed`.

    The callback is a function of C, so that no Python code runs then, which a signal could interrupt.
    """

    entry: Entry | None = None
    """The work; None if an interrupt came before the queue had it."""


class Bell(SimpleQueue[bool]):
    """A queue on which a thread sleeps until some works have news: an item wakes it; True tells it to take the turn."""

    __slots__ = ("entries", "seen")

    def __init__(self, entries: Sequence[Entry], seen: int | None):
        """entries, seen: the thread waits until `has_news(entries, seen)`."""
        self.entries, self.seen = entries, seen


class Entry:
    """A work on its way through a queue. The thread that has the queue's turn changes it; any thread may read it."""

    __slots__ = ("bells", "callbacks", "computing", "end", "end_bells", "number", "owner", "parts", "priority",
                 "process", "since", "stop", "ticket_ref", "waited")

    def __init__(self, number: int, priority: int, owner: Hashable, stop: OwnStop):
        self.number, self.priority, self.owner, self.stop = number, priority, owner, stop
        self.process = os.getpid()
        self.ticket_ref: TicketRef | None = None
        self.parts: list[Any] = []
        """The results that the caller may read so far. No other count of them exists, so an interrupt repeats none."""
        self.end: BaseException | bool | None = None
        """True after the last result, the error of a work that failed, and None until then."""
        self.bells: deque[SimpleQueue[bool]] = deque()
        """The bells of the threads that wait for the next part."""
        self.end_bells: deque[SimpleQueue[bool]] = deque()
        """The bells of the threads that wait for the end."""
        self.callbacks: deque[Callable[[], object]] = deque()
        """Functions without arguments, each to be called once after the end."""
        self.since = time.perf_counter()        # when it began to wait for its next batch
        self.waited = self.computing = 0.0      # seconds, of waiting for batches, and of those batches

    def bells_of(self, seen: int | None) -> deque[SimpleQueue[bool]]:
        """Return the bells of threads that wait for more than `seen` parts, or with None for the end alone."""
        return self.end_bells if seen is None else self.bells

    def ring(self) -> None:
        """Wake the threads that wait for a part; after the end, wake all."""
        _ring(self.bells)
        if self.end is not None:
            _ring(self.end_bells)


def _ring(bells: deque[SimpleQueue[bool]]) -> None:
    """Ring and remove all bells; their threads need not take the turn."""
    while bells:
        try:
            bells.popleft().put(False)
        except IndexError:      # the thread of the last bell has removed it meanwhile
            return


def has_news(entries: Sequence[Entry], seen: int | None) -> bool:
    """Return whether any entry has more than `seen` parts or has ended; if seen is None, whether any has ended."""
    for entry in entries:       # noqa: SIM110, because a generator for each look costs more than the look
        if entry.end is not None or (seen is not None and len(entry.parts) > seen):
            return True
    return False


def drop_ended(heap: list[Any], waiting: int, waits: Callable[[Any], bool]) -> None:
    """Rebuild a large heap with the items that still wait, if most do not, because the others hold memory.

    waiting: the number of works that wait. waits: returns whether an item is of one of them.
    """
    if len(heap) > 2 * waiting + 64:
        heap[:] = [item for item in heap if waits(item)]
        heapify(heap)

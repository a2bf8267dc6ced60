"""What the event loop of a server has beside asyncio: results and news of other threads, rests, alarms of requests."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

REST, SHORTEST_REST, LONGEST_REST = 1 / 16, 0.005, 0.05
"""How long the event loop leaves the cores to the model: a share of the time of waiting work, up to 50 ms, or not at
all for 5 ms or less."""


Reply: TypeAlias = tuple[asyncio.Future[Any], Future[Any] | None]
"""A future of an event loop, and what has its result; None for news, which has none."""


class Replies:
    """Brings results of other threads to the event loop, which is woken once for all results that are there."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: deque[Reply] = deque()
        self._woken = False

    def waiter(self) -> asyncio.Future[Any]:
        """Return a future of the event loop, which another thread gives its result by `add`."""
        return self._loop.create_future()

    def wait(self, future: Future[Any]) -> asyncio.Future[Any]:
        """Return a future of the event loop that gets the result of a future of another thread."""
        waiter = self.waiter()
        future.add_done_callback(lambda future: self.add([(waiter, future)]))
        return waiter

    def add(self, done: Iterable[Reply]) -> None:
        """Take results, in any thread."""
        self._done.extend(done)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):     # the loop has ended, and nobody waits
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False     # first: what comes from now on wakes the loop again
        while self._done:
            waiter, future = self._done.popleft()
            if waiter.done():
                continue
            if future is None:
                waiter.set_result(None)
            elif future.cancelled():
                waiter.cancel()
            elif (error := future.exception()) is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(future.result())


class News:
    """Says that there is something to take. One task of an event loop waits for it, and any thread may ring it."""

    def __init__(self) -> None:
        self._waits: tuple[Replies, asyncio.Future[None]] | None = None

    def wait(self, replies: Replies) -> asyncio.Future[None]:
        """Return a future of the event loop that is done at the next ring, and forget the one before."""
        waiter = replies.waiter()
        self._waits = replies, waiter
        return waiter

    def ring(self) -> None:
        """Say that there is something to take."""
        ring_all(deque([self]))


def ring_all(several: deque[News]) -> None:
    """Ring several that other threads add, and wake each event loop once."""
    done: dict[Replies, list[Reply]] = {}
    while several:
        news = several.popleft()
        waits, news._waits = news._waits, None
        if waits is not None:       # somebody has rung it, or nobody waits any more
            done.setdefault(waits[0], []).append((waits[1], None))
    for replies, waiters in done.items():
        replies.add(waiters)


class Busy(Protocol):
    """What has work."""

    @property
    def backlog(self) -> float:
        """The seconds for which there is work."""


class Rest:
    """Lets requests that arrive within a moment be read together, while the model has work for much longer.

    Each time the event loop wakes, it takes a core from the model for a moment, and Python's lock from all threads.
    """

    def __init__(self, service: Busy):
        self._service, self._due = service, False

    def soon(self) -> None:
        """Rest when the requests that are here now have gone on."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._rest)

    def _rest(self) -> None:
        self._due = False
        seconds = min(LONGEST_REST, self._service.backlog * REST)
        if seconds > SHORTEST_REST:
            time.sleep(seconds)     # the whole loop rests, and that is its purpose


class Alarm:
    """Calls a function at a time, as one after the other for the parts of a request.

    Its one timer stays when the time is unset or becomes later, and is then set anew when it ends: each timer of the
    event loop takes as long as a small part of a short request.
    """

    __slots__ = ("_call", "_due", "_timer", "rang")

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        self._call: Callable[[], object] = _nothing
        self.rang = False
        """Whether the last time has come."""

    def set(self, due: float, call: Callable[[], object]) -> None:
        """Call a function at a `time.monotonic()`, which is that of the event loop, in place of the last one."""
        self._due, self._call, self.rang = due, call, False
        if self._timer is None or due < self._timer.when():
            self._start()

    def unset(self) -> None:
        """Call nothing any more."""
        self._due, self._call = math.inf, _nothing

    def end(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _start(self) -> None:
        self.end()
        self._timer = asyncio.get_running_loop().call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if time.monotonic() < self._due < math.inf:     # it was set to a later time
            self._start()
        elif self._due < math.inf:
            self.rang = True
            self._call()


def _nothing() -> None:
    pass

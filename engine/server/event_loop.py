"""What the event loop of a server has beside asyncio: results and calls of other threads, rests, alarms of requests."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

REST, SHORTEST_REST, LONGEST_REST = 1 / 16, 0.005, 0.05
"""How long the event loop leaves the cores to the model: a share of the time of waiting work, up to 50 ms, or not at
all for 5 ms or less."""


Call: TypeAlias = Callable[[], object]
"""A function that the event loop calls; it must be quick, and raise nothing."""


class Replies:
    """Brings calls of other threads to the event loop, which is woken once for all calls that are there."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: deque[Call] = deque()
        self._woken = False

    def wait(self, future: Future[Any]) -> asyncio.Future[Any]:
        """Return a future of the event loop that gets the result of a future of another thread."""
        waiter = self._loop.create_future()
        future.add_done_callback(lambda future: self.add([partial(_settle, waiter, future)]))
        return waiter

    def add(self, calls: Iterable[Call]) -> None:
        """Have the event loop call these functions. Any thread may call this."""
        # No lock is needed: where `_woken` is True, a `_deliver` is still to come, which sets it to False before it
        # takes the calls. Two threads that see False together wake the loop twice, which does no harm.
        self._calls.extend(calls)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):     # the loop has ended, and nobody waits
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False     # first: what comes from now on wakes the loop again
        while self._calls:
            self._calls.popleft()()


def _settle(waiter: asyncio.Future[Any], future: Future[Any]) -> None:
    """Give a future of the event loop the result of another one, unless it has one."""
    if waiter.done():
        return
    if future.cancelled():
        waiter.cancel()
    elif (error := future.exception()) is not None:
        waiter.set_exception(error)
    else:
        waiter.set_result(future.result())


class News:
    """Says that there is something to take. One event loop listens, and any thread may ring."""

    def __init__(self) -> None:
        self._listener: tuple[Replies, Call] | None = None
        self._rung = False      # since `answer`

    def listen(self, replies: Replies, function: Call) -> None:
        """Let an event loop call a function after each `ring`, in place of the one before."""
        self._listener, self._rung = (replies, function), False

    def end(self) -> None:
        """Let nobody listen any more."""
        self._listener = None

    def answer(self) -> None:
        """Say that all is taken now that was there; a ring before it calls the function once."""
        self._rung = False

    def ring(self) -> None:
        """Say that there is something to take."""
        ring_all([self])


def ring_all(several: Iterable[News]) -> None:
    """Ring several, and wake each event loop once."""
    calls: dict[Replies, list[Call]] = {}
    for news in several:
        listener = news._listener
        if listener is not None and not news._rung:
            news._rung = True
            calls.setdefault(listener[0], []).append(listener[1])
    for replies, of_loop in calls.items():
        replies.add(of_loop)


class Rest:
    """Lets requests that arrive within a moment be read together, while the model has work for much longer.

    Each time the event loop wakes, it takes a core from the model for a moment, and Python's lock from all threads.
    """

    def __init__(self, backlog: Callable[[], float]):
        """backlog: returns the seconds for which there is work."""
        self._backlog, self._due = backlog, False

    def soon(self) -> None:
        """Rest when the requests that are here now have gone on."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._rest)

    def _rest(self) -> None:
        self._due = False
        seconds = min(LONGEST_REST, self._backlog() * REST)
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

    def postpone(self, due: float) -> None:
        """Call the same function at a later time."""
        self._due = due

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

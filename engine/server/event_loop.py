"""Help the event loop of a server: calls from other threads (`Replies`, `News`), rests (`Rest`), timers (`Alarm`)."""

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
"""The event loop rests for 1/16 of the seconds of work that waits, at most for 50 ms, and not at all where that is 5 ms
or less."""


Call: TypeAlias = Callable[[], object]
"""A function that the event loop calls; it must be quick, and raise nothing."""


class Replies:
    """Runs functions of other threads in the event loop, which is woken once for all functions that wait."""

    def __init__(self) -> None:
        """Belong to the event loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._calls: deque[Call] = deque()
        self._woken = False

    def wait(self, future: Future[Any]) -> asyncio.Future[Any]:
        """Return a future of the event loop that gets the result of a future of another thread."""
        waiter = self._loop.create_future()
        future.add_done_callback(lambda future: self.add([partial(_copy_end, waiter, future)]))
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
        """Call all functions that wait, in the event loop."""
        self._woken = False     # before the calls are taken: each later `add` wakes the loop again
        while self._calls:
            self._calls.popleft()()


def _copy_end(waiter: asyncio.Future[Any], future: Future[Any]) -> None:
    """End the event loop's future `waiter` as `future` has ended, unless `waiter` has ended before."""
    if waiter.done():
        return
    if future.cancelled():
        waiter.cancel()
    elif (error := future.exception()) is not None:
        waiter.set_exception(error)
    else:
        waiter.set_result(future.result())


class News:
    """A bell that any thread rings when it has something new, and that calls a function of one event loop."""

    def __init__(self) -> None:
        self._listener: tuple[Replies, Call] | None = None
        self._rung = False      # whether `ring` was called since the last `answer`

    def listen(self, replies: Replies, function: Call) -> None:
        """Let an event loop call `function` after each `ring`, in place of the function before."""
        self._listener, self._rung = (replies, function), False

    def end(self) -> None:
        """Call nothing after a `ring` any more."""
        self._listener = None

    def answer(self) -> None:
        """Say that the listener reads all news now; until then, further rings call nothing."""
        self._rung = False

    def ring(self) -> None:
        """Have the listener's function called, once until `answer`."""
        ring_all([self])


def ring_all(several: Iterable[News]) -> None:
    """Ring several bells, and wake each event loop once for all of them."""
    calls: dict[Replies, list[Call]] = {}
    for news in several:
        listener = news._listener
        if listener is not None and not news._rung:
            news._rung = True
            calls.setdefault(listener[0], []).append(listener[1])
    for replies, functions in calls.items():
        replies.add(functions)


class Rest:
    """Lets requests that arrive within a moment be read together, while the model has work for much longer.

    Each time the event loop wakes, it takes a core from the model for a moment, and Python's lock from all threads.
    """

    def __init__(self, backlog: Callable[[], float]):
        """backlog: returns the seconds for which there is work."""
        self._backlog, self._due = backlog, False

    def soon(self) -> None:
        """Rest once after the callbacks that wait in the event loop now, however often this is called."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._rest)

    def _rest(self) -> None:
        """Block the event loop, so that the model's threads have all cores."""
        self._due = False
        seconds = min(LONGEST_REST, self._backlog() * REST)
        if seconds > SHORTEST_REST:
            time.sleep(seconds)     # blocks the whole event loop on purpose


class Alarm:
    """Calls a function at a set time; a request sets it anew for each of its stages.

    Its one timer stays when the time is unset or becomes later, and is then set anew when it ends: each timer of the
    event loop takes as long as a small part of a short request.
    """

    __slots__ = ("_call", "_due", "_timer", "rang")

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        self._call: Callable[[], object] = _nothing
        self.rang = False
        """Whether the function of the last `set` was called."""

    def set(self, due: float, call: Callable[[], object]) -> None:
        """Call `call` when `time.monotonic()`, the event loop's clock, is `due`; replace the function set before."""
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
        """Replace the timer by one that ends at the due time."""
        self.end()
        self._timer = asyncio.get_running_loop().call_at(self._due, self._ring)

    def _ring(self) -> None:
        """Call the function, or start the timer anew if the due time was postponed."""
        self._timer = None
        if time.monotonic() < self._due < math.inf:     # it was postponed
            self._start()
        elif self._due < math.inf:
            self.rang = True
            self._call()


def _nothing() -> None:
    pass

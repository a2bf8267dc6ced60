"""Threads that read requests, tokenize them and write answers, in fair turns, while the thread of the model computes.

A long call is a generator, which does a step of some milliseconds between two yields. After each step the key, and of
its calls the call, that has used the least time is next: start-time fair queueing (Goyal, Vin and Cheng 1996), twice.
`queues.order.Order` cannot do it, because it counts the tokens of a piece before the piece is computed, for one thread.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, TypeAlias

from ..base.errors import LATE_REQUEST, TimedOut
from . import logs

Steps: TypeAlias = Generator[Any, None, Any]
"""A call in steps, which ends with its result. What it yields between them is for whoever runs it inside of another."""


TURN = 0.002
"""The seconds for which steps of one call follow each other, before another call may be next."""


class Result(Future[Any]):
    """The result of a call or a request. A callback that raises, `SystemExit` too, is a line in the log and no more."""

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Let `fn` be called with this future when it is done, by the thread that ends it."""
        super().add_done_callback(partial(_guarded, fn))


def _guarded(call: Callable[..., object], *arguments: Any) -> None:
    try:
        call(*arguments)
    except BaseException as error:      # the thread that ends a request has those of others to end
        logs.write("callback", error=type(error).__name__, places=logs.places_of(error))


@dataclass(eq=False)
class WorkerCall:
    """A call of the workers."""

    function: Callable[[], Any]
    """Returns the result, or the steps that make it."""
    then: Callable[[Any, BaseException | None], object]
    """Gets the result and the error, one of which is None, unless the call was cancelled."""
    key: str
    """Whose call it is."""
    deadline: float
    """The `time.monotonic()` at which the error is `TimedOut`, between two steps."""
    used: float = 0.0
    """The time of its key when it came, plus the seconds that it has used."""
    steps: Steps | None = None
    cancelled: bool = False

    def cancel(self) -> None:
        """End the call at its next step."""
        self.cancelled = True


@dataclass(eq=False)
class _Key:
    used: float
    """`_Lane._start` when it came, plus the seconds that its calls have used."""
    start: float = 0.0
    """`used` of the last call that was taken, which a new call begins with."""
    waiting: list[tuple[float, int, WorkerCall]] = field(default_factory=list)
    """A heap of (used, number of arrival, call)."""
    runs: int = 0
    """How many threads run one of its calls."""


class _Lane:
    """The calls of one kind that wait, and the threads that run them."""

    def __init__(self, name: str, threads: int, of_key: int):
        """of_key: the most threads that run calls of one key."""
        self._keys: dict[str, _Key] = {}
        self._of_key = of_key
        self._start = 0.0       # `used` of the last key that was taken, which a new key begins with
        self._numbers = count()
        self._ends = False
        self._lock = threading.Lock()
        self._bell: SimpleQueue[bool] = SimpleQueue()
        """True for each call that waits, unless a thread is about to take one; False ends a thread."""
        self._held = 0      # how many rang in vain, because all calls that wait are of keys with enough threads
        self._threads = [threading.Thread(target=self._work, name=f"engine-{name}-{i}", daemon=True)
                         for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def add(self, call: WorkerCall) -> None:
        with self._lock:
            key = self._keys.get(call.key)
            if key is None:
                key = self._keys[call.key] = _Key(self._start)
            call.used = key.start
            self._push(key, call)

    def end(self) -> None:
        """End the threads after the calls that wait, and wait for their ends."""
        with self._lock:
            self._ends = True
            self._end_threads()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while self._bell.get():
            if (call := self._next()) is None:
                continue
            begun = time.perf_counter()
            while (goes_on := _step(call)) and time.perf_counter() - begun < TURN:
                pass        # a short call takes no second turn
            self._ran(call, time.perf_counter() - begun, goes_on)
            del call        # which would keep a result until the next call

    def _next(self) -> WorkerCall | None:
        """Return the call that is next; None if the keys of all that wait have enough threads."""
        with self._lock:
            ready = [key for key in self._keys.values() if key.waiting and key.runs < self._of_key]
            if not ready:
                self._held += 1
                return None
            key = min(ready, key=lambda key: key.used)
            key.runs += 1
            call = heapq.heappop(key.waiting)[2]
            self._start, key.start = key.used, call.used
            return call

    def _ran(self, call: WorkerCall, seconds: float, goes_on: bool) -> None:
        """Count the time of a step, and let the call wait for its next one."""
        with self._lock:
            key = self._keys[call.key]
            key.runs -= 1
            key.used += seconds
            call.used += seconds
            if goes_on:
                self._push(key, call)
            elif not key.waiting and not key.runs:
                del self._keys[call.key]
            if self._held:      # one of them may run now
                self._held -= 1
                self._bell.put(True)
            if self._ends:
                self._end_threads()

    def _push(self, key: _Key, call: WorkerCall) -> None:
        heapq.heappush(key.waiting, (call.used, next(self._numbers), call))
        self._bell.put(True)

    def _end_threads(self) -> None:
        """End the threads if no call waits or runs; the caller holds the lock."""
        if not self._keys:
            for _ in self._threads:
                self._bell.put(False)


def _step(call: WorkerCall) -> bool:
    """Run a call to its next yield; return whether it goes on. At its end, let it hand over the result or the error."""
    result, error = None, None
    try:
        if not call.cancelled:
            if time.monotonic() > call.deadline:
                raise TimedOut(LATE_REQUEST)
            if call.steps is None:
                result = call.function()
                if isinstance(result, Generator):
                    call.steps = result
                    return True
            else:
                try:
                    next(call.steps)
                    return True
                except StopIteration as end:
                    result = end.value
    except BaseException as raised:      # also SystemExit, which would end the thread
        # Without this frame, which has the call.
        error = raised.with_traceback(raised.__traceback__ and raised.__traceback__.tb_next)
    if call.steps is not None:
        call.steps.close()
    if not call.cancelled:
        _guarded(call.then, result, error)
    call.function = call.then = _nothing        # which know the call, and what it has read
    call.steps = None
    return False


def _nothing(*arguments: Any) -> None:
    pass


def _settle(future: Result, result: Any, error: BaseException | None) -> None:
    """Give a future its result or its error, unless it was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class Workers:
    """Two lanes of threads: short calls never wait for long ones."""

    def __init__(self, short: int, long: int = 2):
        """short, long: the threads of each lane. A key leaves one of the long lane's to others: a step may be long."""
        self._lanes = _Lane("short", short, of_key=short), _Lane("long", long, of_key=max(1, long - 1))

    def add(self, call: WorkerCall, long: bool = False) -> None:
        """Let a thread run a call."""
        self._lanes[long].add(call)

    def submit(self, function: Callable[[], Any], *, key: str, long: bool = False, deadline: float = math.inf
               ) -> Result:
        """Let a thread call a function; return at once a future of its result, or that of the steps it returns.

        A call whose future is cancelled ends at its next step. key: whose call it is. deadline: the
        `time.monotonic()` at which it ends with `TimedOut`, between two steps.
        """
        future = Result()
        call = WorkerCall(function, partial(_settle, future), key, deadline)
        self.add(call, long)
        future.add_done_callback(lambda future: call.cancel() if future.cancelled() else None)
        return future

    def end(self) -> None:
        """End the threads after the calls that wait, and wait for their ends."""
        for lane in self._lanes:
            lane.end()


def run(steps: Steps) -> Any:
    """Run a call in steps to its end, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value

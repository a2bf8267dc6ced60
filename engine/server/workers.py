"""`Workers`: threads that read requests, tokenize them and write answers, while the thread of the model computes.

A long call is a generator with steps of some milliseconds. After each step, the next one is of the API key that has
used the least time, and of its call with the least time: start-time fair queueing (Goyal, Vin and Cheng 1996), twice.
`queues.order.Order` cannot do it, because it counts the tokens of a piece before the piece is computed, for one thread.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, TypeAlias

from ..base.errors import LATE_REQUEST
from ..base.stop import Stop
from . import logs

Steps: TypeAlias = Generator[Any, None, Any]
"""A call in steps: a generator, which returns the result. What it yields matters only to a caller that iterates it."""
TURN = 0.002
"""The seconds for which a thread runs steps of one call before it looks for the next call."""


class Result(Future[Any]):
    """The future of a call or a request. An error of a callback, even `SystemExit`, is logged and goes no further."""

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Let the thread that ends this future call `fn` with it."""
        super().add_done_callback(partial(_run_logged, fn))


def _run_logged(call: Callable[..., object], *arguments: Any) -> None:
    """Call a function, and log its error in place of raising it."""
    try:
        call(*arguments)
    except BaseException as error:      # this thread has the requests of others to end, too
        logs.write("callback", error=type(error).__name__, places=logs.places_of(error))


@dataclass(eq=False)
class WorkerCall:
    """A call that the workers run; one thread at a time has it."""

    function: Callable[[], Any]
    """Returns the result, or a generator of steps that returns it."""
    then: Callable[[Any, BaseException | None], object]
    """Called with (result, None) or (None, error) at the end, by the thread that ran it; not if it was cancelled."""
    key: str
    """The name of the client, by its API key."""
    stop: Stop
    """Is checked before each step; once it has come, no further step is run."""
    used: float = 0.0
    """Its virtual time: `_Key.start` when it came, plus the seconds that its steps have used."""
    steps: Steps | None = None      # the generator, once `function` has returned it


@dataclass(eq=False)
class _Key:
    """The calls of one API key in a lane; it is there while a call of it waits or runs."""

    used: float
    """Its virtual time: `_Lane._start` when it came, plus the seconds that its calls have used."""
    start: float = 0.0
    """The virtual time of its call that ran last, with which a new call begins."""
    waiting: list[tuple[float, int, WorkerCall]] = field(default_factory=list)
    """A heap of (used, number of arrival, call)."""
    running: int = 0
    """How many threads run one of its calls now."""


class _Lane:
    """The waiting calls of one kind, short or long, and the threads that run them."""

    def __init__(self, name: str, threads: int, of_key: int):
        """Start the threads. of_key: the most threads that run calls of one key at a time."""
        self._keys: dict[str, _Key] = {}
        self._of_key = of_key
        self._start = 0.0       # the virtual time of the key that ran last, with which a new key begins
        self._numbers = count()     # of arrival, so that a heap compares no calls
        self._is_ending = False
        self._lock = threading.Lock()       # guards all fields but the bell
        self._bell: SimpleQueue[bool] = SimpleQueue()
        """Wakes the threads: it has True for each waiting call, and False for each thread that has to end."""
        self._held = 0      # how often a thread woke in vain, as the keys of all waiting calls had enough
        self._threads = [threading.Thread(target=self._work, name=f"engine-{name}-{i}", daemon=True)
                         for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def add(self, call: WorkerCall) -> None:
        """Let a call wait for a thread. Any thread may call it."""
        with self._lock:
            key = self._keys.get(call.key)
            if key is None:
                key = self._keys[call.key] = _Key(self._start)
            call.used = key.start
            self._push(key, call)

    def end(self) -> None:
        """Let the threads end once no call waits or runs, and wait until they have."""
        with self._lock:
            self._is_ending = True
            self._end_threads_if_idle()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        """Run steps of calls until the bell has False: the body of each thread."""
        while self._bell.get():
            if (call := self._next()) is None:
                continue
            begun = time.perf_counter()
            while (goes_on := _step(call)) and time.perf_counter() - begun < TURN:
                pass        # so a short call of several steps needs one turn only
            self._end_turn(call, time.perf_counter() - begun, goes_on)
            del call        # this name would keep the result alive until the next call

    def _next(self) -> WorkerCall | None:
        """Remove and return the next call; None if the keys of all waiting calls have enough threads."""
        with self._lock:
            ready = [key for key in self._keys.values() if key.waiting and key.running < self._of_key]
            if not ready:
                self._held += 1
                return None
            key = min(ready, key=lambda key: key.used)
            key.running += 1
            call = heapq.heappop(key.waiting)[2]
            self._start, key.start = key.used, call.used
            return call

    def _end_turn(self, call: WorkerCall, seconds: float, goes_on: bool) -> None:
        """Count the seconds of a turn, and let the call wait for its next turn if it `goes_on`."""
        with self._lock:
            key = self._keys[call.key]
            key.running -= 1
            key.used += seconds
            call.used += seconds
            if goes_on:
                self._push(key, call)
            elif not key.waiting and not key.running:
                del self._keys[call.key]
            if self._held:      # the key has a thread less, so one of the held calls may run now
                self._held -= 1
                self._bell.put(True)
            if self._is_ending:
                self._end_threads_if_idle()

    def _push(self, key: _Key, call: WorkerCall) -> None:
        """Let a call of a key wait, and wake a thread; the caller holds the lock."""
        heapq.heappush(key.waiting, (call.used, next(self._numbers), call))
        self._bell.put(True)

    def _end_threads_if_idle(self) -> None:
        """End the threads if no call waits or runs; the caller holds the lock."""
        if not self._keys:
            for _ in self._threads:
                self._bell.put(False)


def _step(call: WorkerCall) -> bool:
    """Run a call to its next yield; return whether it goes on. At its end, call its `then` unless it was cancelled."""
    result, error = None, None
    try:
        call.stop.check()
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
        # Leave this frame, which refers to the call, out of the traceback.
        error = raised.with_traceback(raised.__traceback__ and raised.__traceback__.tb_next)
    if call.steps is not None:
        call.steps.close()
    if not call.stop.cancelled:
        _run_logged(call.then, result, error)
    call.function = call.then = _nothing        # both refer to the request, whose memory is then free
    call.steps = None
    result = error = None       # a frame of the error refers to this one, and a cycle would keep both
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
    """Two lanes of threads, one for short and one for long calls, so that short calls never wait for long ones."""

    def __init__(self, short: int, long: int = 2):
        """short, long: the threads of each lane. One key never has all threads of the long lane, if it has several."""
        self._lanes = _Lane("short", short, of_key=short), _Lane("long", long, of_key=max(1, long - 1))

    def add(self, call: WorkerCall, long: bool = False) -> None:
        """Let a thread of the short or the long lane run a call."""
        self._lanes[long].add(call)

    def submit(self, function: Callable[[], Any], *, key: str, long: bool = False, deadline: float = 0.0
               ) -> Result:
        """Let a thread call a function; return at once the future of its result, or of the result of its steps.

        A call whose future is cancelled ends at its next step. key: the name of the client. deadline: the
        `time.monotonic()` at which it ends with `TimedOut`, between two steps; 0 for none.
        """
        future, stop = Result(), Stop(deadline, LATE_REQUEST)

        def ended(future: Future[Any]) -> None:
            stop.cancelled = future.cancelled()

        self.add(WorkerCall(function, partial(_settle, future), key, stop), long)
        future.add_done_callback(ended)
        return future

    def end(self) -> None:
        """End the threads after the calls that wait, and wait for their ends."""
        for lane in self._lanes:
            lane.end()


def run(steps: Steps) -> Any:
    """Run a generator of steps to its end in this thread, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value

"""`Stop`: the deadline or the cancellation of a call, which every pass of a model checks; and `beside`, for code of
other libraries that does not."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from .arguments import positive_seconds
from .errors import LATE_CALL, BackendUnavailable, Cancelled, TimedOut

_Found = TypeVar("_Found")


class Stop:
    """Says when a call has to stop: at a point in time, or as soon as another thread sets `cancelled`.

    Ctrl-C needs no `Stop`: code that looks at one lets Python's signal handlers run, too.
    """

    __slots__ = ("cancelled", "deadline", "message")

    def __init__(self, deadline: float = 0.0, message: str = LATE_CALL):
        """deadline: the time.monotonic() at which to stop; 0 for none. message: that of the `TimedOut` error then."""
        self.deadline, self.message = deadline, message
        self.cancelled = False

    @classmethod
    def after(cls, timeout: Any, message: str = LATE_CALL) -> Stop:
        """Return the stop of a call that begins now. timeout: its seconds, or None. message: that of `TimedOut`.

        Raises `InputError` for any other timeout.
        """
        if timeout is None:
            return cls()
        seconds = positive_seconds("timeout", timeout, "None or a number of seconds above 0")
        return cls(time.monotonic() + seconds, message)

    @property
    def has_come(self) -> bool:
        """Whether the time has come, or the call was cancelled."""
        return self.cancelled or (self.deadline > 0 and time.monotonic() > self.deadline)

    @property
    def left(self) -> float:
        """The seconds to the deadline; inf without one."""
        return self.deadline - time.monotonic() if self.deadline else float("inf")

    def check(self) -> None:
        """Raise `TimedOut` if the time has come, and `Cancelled` if the call was cancelled."""
        if self.cancelled or 0 < self.deadline < time.monotonic():
            raise Cancelled if self.cancelled else TimedOut(self.message)


NEVER = Stop()
"""The stop of a call that runs to its end. Nobody cancels it."""

_LOOK = 0.05
"""Seconds between two looks at the `Stop` of a call that waits for a thread."""
THREADS_BESIDE = 16
"""The most threads of `beside` that run at once, including threads for which nobody waits any more."""
_ROOMS: dict[int, threading.BoundedSemaphore] = {}
"""Counts these threads, by the id of the process: a forked child has none of its parent's threads."""


def beside(call: Callable[[], _Found], stop: Stop) -> _Found:
    """Run `call` in a thread of its own while this thread looks at the stop; return its result, or raise its error.

    It is for code of another library that looks at no stop and runs without the GIL. When the stop comes, or Ctrl-C,
    this raises at once, and the thread goes on to its end, whose result is dropped. At most `THREADS_BESIDE` threads
    run at a time; a further call waits, and looks at its stop, too. Raises `BackendUnavailable` if the system starts no
    thread.
    """
    room = _ROOMS.setdefault(os.getpid(), threading.BoundedSemaphore(THREADS_BESIDE))
    while not room.acquire(timeout=_LOOK):
        stop.check()
    results: list[_Found] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        """Run the call, and keep its result or its error; the thread does this."""
        try:
            results.append(call())
        except BaseException as error:      # a panic of Rust is no Exception
            failed.append(error)
        finally:
            room.release()
            done.set()

    try:
        threading.Thread(target=run, name="engine-beside", daemon=True).start()
    except RuntimeError as error:
        room.release()
        raise BackendUnavailable(f"the system starts no thread beside the call: {error}; end other threads") from None
    while not done.wait(_LOOK):
        stop.check()
    if failed:
        raise failed[0]
    return results[0]

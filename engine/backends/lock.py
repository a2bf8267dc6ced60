"""Locks ("turns") by which one call at a time uses a plan or a queue, and marks of calls that an exception ended."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from ..base.errors import BackendUnavailable
from ..base.install import explain_missing_kernels
from ..base.stop import NEVER, Stop

if TYPE_CHECKING:
    from .cpu.native.native import TurnLock

_Result = TypeVar("_Result")

_CHECK_SECONDS = 0.05
"""Seconds between two checks of `stop` by a thread that waits for a turn in Python."""


def new_turn() -> TurnLock:
    """Return a new compiled lock, by which calls take turns to use a plan's memory. No fork can leave it locked.

    Raises `BackendUnavailable` where the compiled modules are missing.
    """
    try:
        from .cpu.native.native import TurnLock  # here, because `import engine` shall work without compiled modules
    except ImportError as error:
        raise BackendUnavailable(explain_missing_kernels(error)) from error
    return TurnLock()


def any_turn() -> TurnLock | PlainTurn:
    """Return `new_turn()`, or a lock in Python where the compiled modules are missing."""
    try:
        return new_turn()
    except BackendUnavailable:
        return PlainTurn()


class TornMark:
    """Keeps whether an exception ended the last `run`, so that the next one repairs what it left half done.

    A signal handler may raise between any two lines. `run` belongs to the thread that has the turn.
    """

    def __init__(self) -> None:
        self.torn = False
        """Whether the last run has not come to its end: it still runs, or an exception ended it."""

    def run(self, work: Callable[[], _Result], repair: Callable[[], object]) -> _Result:
        """Return the result of `work`; call `repair` first if the last run was torn.

        An exception of either leaves the mark torn, so that the next run repairs.
        """
        torn, self.torn = self.torn, True
        if torn:
            repair()
        result = work()
        self.torn = False
        return result


class PlainTurn:
    """The right to use a plan's memory, without compiled modules; an interrupt at a wrong moment leaves it locked."""

    def __init__(self) -> None:
        self._lock, self._process, self._holder = threading.Lock(), os.getpid(), 0

    @property
    def held(self) -> bool:
        """Whether the calling thread has the turn."""
        return self._holder == threading.get_ident() and self._process == os.getpid()

    @contextmanager
    def take(self, stop: Stop = NEVER, waits: bool = True) -> Iterator[bool]:
        """Have the turn inside of a `with` statement, and yield True; raises what `stop` raises while it waits.

        waits: False to yield False at once where the turn is not free.
        """
        if self._process != os.getpid():        # the thread that had it does not exist in a forked child
            self._lock, self._process = threading.Lock(), os.getpid()
        lock = self._lock
        while not (taken := lock.acquire(waits, _CHECK_SECONDS if waits else -1)) and waits:     # -1: no limit of time
            stop.check()
        try:
            if taken:
                self._holder = threading.get_ident()
            yield taken
        finally:
            if taken and lock is self._lock:        # not so in a child that was forked within the statement
                self._holder = 0
                lock.release()

    def take_if_free(self) -> AbstractContextManager[bool]:
        """Have the turn inside of a `with` statement if it is free, and yield whether it was; do not wait."""
        return self.take(waits=False)

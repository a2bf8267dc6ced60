"""Interrupt a call as Ctrl-C does: from a timer of the system, or at a line that is chosen."""

import gc
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from linecache import getline
from typing import Any


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGALRM raise KeyboardInterrupt in the body, which starts the timer.

    Python drops an exception that a handler raises inside a callback of a weak reference or of the garbage collector,
    and the collector runs at any moment. So it rests here, and no interrupt is lost.
    """
    gc.collect()
    gc.disable()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()


def interrupt_often(call: Callable[[], bool], times: int, rng: random.Random, soonest: float = 1e-6) -> None:
    """Repeat a call until it was interrupted `times` times, at random moments; where it returns, it must return True.

    The moments lie within the shortest time of three calls, because one call may wait long for its CPU.
    """
    arrived, latest = 0, float("inf")
    for _ in range(3):
        begun = time.perf_counter()
        assert call()
        latest = min(latest, time.perf_counter() - begun)
    with interruptible():
        while arrived < times:
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(soonest, latest))
                right = call()
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert right
            except KeyboardInterrupt:
                arrived += 1


@contextmanager
def interrupt_at(line: int, files: tuple[str, ...]) -> Iterator[list[None]]:
    """Raise KeyboardInterrupt in the body before the `line`-th line that this thread runs in files with these endings.

    Yields a list that has an element for each line that has run.
    """
    lines: list[None] = []

    def trace(frame: Any, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if not name.endswith(files):
            return None
        # No signal is looked at where a body ends and its compiled `__exit__` has not begun, nor at a `try`.
        if event == "line" and not getline(name, frame.f_lineno).strip().startswith(("with self._", "try:")):
            lines.append(None)
            if len(lines) == line:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(None)

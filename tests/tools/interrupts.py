"""Interrupt a call as Ctrl-C does, from a timer of the system."""

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager


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

"""Interrupt a call as Ctrl-C does: from a timer of the system, or at a line that is chosen."""

import gc
import signal
import sys
from collections.abc import Iterator
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

"""Errors that come to a thread from outside: a signal handler raises them, or another thread sets them."""

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def raising(error: type[BaseException]) -> Iterator[None]:
    """Let the handler of SIGALRM raise an error in the body."""
    def handler(*given: object) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def from_handler(error: type[BaseException]) -> None:
    """Let the handler raise the error in this thread."""
    signal.raise_signal(signal.SIGALRM)


def from_thread(error: type[BaseException]) -> None:
    """Set the error in this thread, which raises it at one of its next lines."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(error))

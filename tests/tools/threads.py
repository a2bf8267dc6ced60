"""What tests of several threads share: calls that run together, and a wait for what another thread does."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


def begin(call: Callable[[], Any]) -> Future[Any]:
    """Start a call in a thread of its own, which ends with the process; the future has its result or its error."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run calls in a thread each, and return their results; an error in one of them is raised when all have ended."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
    return [future.result() for future in futures]


def wait_for(true: Callable[[], Any]) -> None:
    """Wait until a condition holds; a hang fails the test."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.001)

"""Threads that tokenize requests and finish answers, while the thread of the model computes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias

Call: TypeAlias = Callable[[], object]


class Workers:
    """Two lanes of threads: short calls never wait for long ones."""

    def __init__(self, short: int, long: int = 1):
        """short, long: the threads of each lane. A call must not raise."""
        self._lanes: list[tuple[SimpleQueue[Call | None], list[threading.Thread]]] = []
        for name, threads in (("short", short), ("long", long)):
            calls: SimpleQueue[Call | None] = SimpleQueue()
            made = [threading.Thread(target=_work, args=(calls,), name=f"engine-{name}-{i}", daemon=True)
                    for i in range(threads)]
            for thread in made:
                thread.start()
            self._lanes.append((calls, made))

    def call(self, function: Callable[..., object], *args: Any, long: bool = False) -> None:
        """Let a thread call a function; returns at once."""
        self._lanes[long][0].put(partial(function, *args))      # lane 0 is for short calls

    def end(self) -> None:
        """End the threads after the calls that wait, and wait for their ends."""
        for calls, threads in self._lanes:
            for _ in threads:
                calls.put(None)
            for thread in threads:
                thread.join()


def _work(calls: SimpleQueue[Call | None]) -> None:
    while (call := calls.get()) is not None:
        call()

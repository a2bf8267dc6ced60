"""Compute items in threads ahead of the one who takes the results, in order and with a bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class Pool(ThreadPoolExecutor):
    """Threads that end with the work that they have begun."""

    def __exit__(self, *error: Any) -> None:
        self.shutdown(wait=True, cancel_futures=True)


def ahead(function: Callable[[A], B], items: Iterable[A], most: int, pool: ThreadPoolExecutor) -> Iterator[B]:
    """Yield function(item) for each item in order, while up to `most` more are computed by the pool."""
    waiting: deque[Future[B]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()

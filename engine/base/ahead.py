"""Compute items in threads ahead of the thread that consumes the results, in order and with a bound on their number."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class Pool(ThreadPoolExecutor):
    """A pool of threads whose `with` block, at its end, cancels the items that no thread has begun."""

    def __exit__(self, *error: Any) -> None:
        """Wait for the items that threads have begun, and cancel all others."""
        self.shutdown(wait=True, cancel_futures=True)


def ahead(function: Callable[[A], B], items: Iterable[A], most: int, pool: ThreadPoolExecutor) -> Iterator[B]:
    """Yield function(item) for each item, in order, while threads of the pool compute up to `most` items after it."""
    waiting: deque[Future[B]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()

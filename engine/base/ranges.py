"""Divide a list into ranges by the sizes of its items, so that each range fits into a limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def ranges(sizes: Iterable[int], most: int, most_items: int | None = None) -> Iterator[range]:
    """Yield ranges of consecutive items whose sizes sum to at most `most`; a larger item has a range of its own.

    sizes: one for each item, which are read one by one. most_items: the most items of a range; None for any number.
    """
    first = total = count = 0
    for i, size in enumerate(sizes):
        if i > first and (i - first == most_items or total + size > most):
            yield range(first, i)
            first, total = i, 0
        total, count = total + size, i + 1
    if first < count:
        yield range(first, count)

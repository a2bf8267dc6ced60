"""Which sequences are worked on together, and by whom: the policy in front of the native schedule.

Work is counted in tokens. A group is some whole sequences that go through all layers together, either a bundle, which
one thread does alone, or a group of all threads.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

BUNDLE = 192
"""Tokens of a bundle, about: enough rows to use a weight often while it is in cache, few enough to stay there."""

MIN_BUNDLE = 48
"""With fewer tokens a thread would wait for the weights; then all threads share them, each reading a part."""

IMBALANCE = 1.08
"""Bundles are taken when the busiest thread has at most this much more than its share."""


@dataclass(frozen=True)
class Schedule:
    """Groups in the order in which they are started."""

    bundles: bool
    """Whether each group is done by one thread (and threads take them from a queue) or by all of them."""
    sequences: np.ndarray
    """int64 [n, 3]: first token in the batch, T, first row in its group; group after group."""
    groups: np.ndarray
    """int64 [g, 2]: sequences and tokens of each group."""


def make_schedule(cu_seqlens: np.ndarray, threads: int, max_tokens: int) -> Schedule:
    """Group the sequences of a batch (int32 [B+1], at least one token), each at most `max_tokens` long."""
    lengths = np.diff(cu_seqlens)
    order = np.argsort(-lengths, kind="stable")
    order = order[: np.count_nonzero(lengths)]
    sizes = lengths[order].tolist()
    total = sum(sizes)
    bundles = True
    per_thread = min(max_tokens // threads, max(BUNDLE, sizes[0]))
    groups = _fill(sizes, min(per_thread, -(-total // threads)))
    if threads > 1 and (total < MIN_BUNDLE * threads or sizes[0] > per_thread or not _balanced(groups, total, threads)):
        bundles = False
        groups = _fill(sizes, max_tokens)
    counts = np.array(groups, np.int64)
    rows = np.concatenate([np.cumsum([0, *sizes[last - n : last - 1]]) for n, last in zip(counts[:, 0], np.cumsum(counts[:, 0]), strict=True)])
    sequences = np.stack([cu_seqlens[order].astype(np.int64), lengths[order].astype(np.int64), rows.astype(np.int64)], 1)
    return Schedule(bundles, np.ascontiguousarray(sequences), counts)


def _fill(sizes: list[int], budget: int) -> list[tuple[int, int]]:
    """Neighbours of a descending list, taken together while they fit the budget: (how many, sum) of each group."""
    groups: list[tuple[int, int]] = []
    count = tokens = 0
    for size in sizes:
        if count and tokens + size > budget:
            groups.append((count, tokens))
            count = tokens = 0
        count += 1
        tokens += size
    groups.append((count, tokens))
    return groups


def _balanced(groups: list[tuple[int, int]], total: int, threads: int) -> bool:
    """Whether a queue of these groups, in this order, keeps all threads busy to the end."""
    if len(groups) > 16 * threads:
        return True
    loads = [0] * threads
    for _, tokens in groups:
        heapq.heappushpop(loads, loads[0] + tokens)
    return max(loads) * threads <= IMBALANCE * total
